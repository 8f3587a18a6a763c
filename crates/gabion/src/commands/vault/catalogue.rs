//! `gabion catalogue`.

use super::{Effort, Which};
use crate::output::{OutputArgs, files, print_json};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::CatalogueReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue_rebuild::Rebuilt;
use gabion_vault::run::RunContext;
use gabion_vault::vault::{Renewed, Vault, survey};
use gabion_vault::world::Clock;

/// Arguments of `gabion catalogue`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Rebuild the catalogue from the headers of redundancy files, and damaged settings and changelog too
    Rebuild {
        #[command(flatten)]
        which: Which,
        /// Print what it would contain, and change nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let Command::Rebuild { which, dry_run, output } = self.command;
        let (rebuilt, renewed) = if dry_run { look(&which, &output)? } else { make(&which, &output)? };
        if output.json {
            print_json(&CatalogueReport::new(dry_run, &rebuilt, &renewed));
        } else {
            let verb = if dry_run { "would have" } else { "has" };
            let when = if dry_run { "" } else { " now" };
            output.print_line(format!("the catalogue {verb} {}{when}", files(rebuilt.files)));
            for (path, why) in &rebuilt.unusable {
                errln!("gabion: {}: {why}", DisplayPath::path(path));
            }
        }
        Ok(if rebuilt.unusable.is_empty() { Outcome::Fine } else { Outcome::Found })
    }
}

fn make(which: &Which, output: &OutputArgs) -> anyhow::Result<(Rebuilt, Vec<Renewed>)> {
    let location = which.remains()?;
    let rebuild =
        |context: RunContext<'_>| Vault::renew(&location, "catalogue rebuild", Clock::System, context);
    let renewal = output.run(&Effort::ALL, rebuild)??;
    for what in &renewal.renewed {
        errln!("gabion: warning: {}", was_renewed(*what));
    }
    Ok((renewal.rebuilt, renewal.renewed))
}

/// What [`make`] would find. Checks only the settings, not the databases: opening a database may change it.
fn look(which: &Which, output: &OutputArgs) -> anyhow::Result<(Rebuilt, Vec<Renewed>)> {
    let location = which.remains()?;
    let survey = |context: RunContext<'_>| survey(&location, &Clock::System, context);
    let (rebuilt, lacks_settings) = output.run(&Effort::ALL, survey)??;
    Ok((rebuilt, if lacks_settings { vec![Renewed::Settings] } else { Vec::new() }))
}

fn was_renewed(what: Renewed) -> &'static str {
    match what {
        Renewed::Settings => {
            "the settings were missing or damaged and were recreated; if the changelog is on a Redis server, put its address into \
            vault.toml"
        }
        Renewed::Catalogue => "the catalogue was damaged and was replaced",
        Renewed::Changelog => {
            "the changelog was damaged and was replaced; `gabion protect` finds what changed"
        }
    }
}
