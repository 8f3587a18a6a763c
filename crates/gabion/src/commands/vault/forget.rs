//! `gabion forget`.

use super::Elsewhere;
use crate::output::{OutputArgs, bytes, files, print_json};
use anyhow::Context;
use gabion::daemon::note;
use gabion::exit::Outcome;
use gabion::report::ForgetReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::vault::{ForgetOptions, Removal};
use gabion_vault::world::Clock;
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion forget /srv/photos --dry-run
  gabion forget /srv/photos
  gabion forget --repository /mnt/other-disk/photos.gabion --yes

Ends the protection of a directory: removes its repository, with all redundancy, catalogue and pending changes, and the \
pointer in the directory. The files of the directory are not touched, nor is anything in the repository that is not of \
Gabion. Content that repair replaced may be the only copy of what a program wrote: it is removed only with --with-replaced. \
Refused while a daemon, watch, mount, worker or command uses the vault. If it is interrupted, nothing opens the vault any \
more, and the same command finishes.
Exit codes: 0 removed, 2 error, or not confirmed.";

/// Arguments of `gabion forget`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The protected directory
    #[arg(value_name = "DIR", default_value = ".")]
    path: PathBuf,
    #[command(flatten)]
    elsewhere: Elsewhere,
    /// Remove without asking
    #[arg(long)]
    yes: bool,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also remove content that repair replaced
    #[arg(long)]
    with_replaced: bool,
    /// Remove even if the changelog knows mounts, watches or workers on other hosts, or does not answer
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if let Some((pool, _)) = self.elsewhere.pool(&self.path)? {
            anyhow::bail!(
                "{} is a pool, whose redundancy is part of it: take the files out with `gabion pool get`, then delete the \
                directories of its targets",
                pool.config().name
            );
        }
        let removal = Removal::find(&self.path, self.elsewhere.repository.as_deref())?;
        self.print(&removal);
        if !self.dry_run {
            anyhow::ensure!(self.yes || self.confirmed(&removal)?, "nothing was removed");
            let options = ForgetOptions { force: self.force, with_replaced: self.with_replaced };
            let source = note::find(&removal.repository).map(|note| note.source);
            removal.carry_out(options, "forget", Clock::System).with_context(|| match &source {
                Some(source) => format!(
                    "a daemon may serve this vault as source {source}: remove the source from its configuration and run \
                     `gabion daemon reload` before"
                ),
                None => format!("removing {}", DisplayPath::path(&removal.repository)),
            })?;
            self.output.print_line(format!(
                "removed: {} is not protected any more",
                DisplayPath::path(&removal.root)
            ));
        }
        if self.output.json {
            print_json(&ForgetReport::new(&removal, !self.dry_run));
        }
        Ok(Outcome::Fine)
    }

    fn print(&self, removal: &Removal) {
        let output = &self.output;
        let root = DisplayPath::path(&removal.root);
        output.print_line(match removal.is_resumed {
            true => format!("finishing the interrupted removal of the protection of {root}:"),
            false => format!("removing the protection of {root}; its files stay as they are:"),
        });
        output.print_line(format!(
            "  repository  {}: redundancy of {} ({})",
            DisplayPath::path(&removal.repository),
            files(removal.files),
            bytes(removal.bytes)
        ));
        if let Some(pointer) = &removal.pointer {
            output.print_line(format!("  pointer     {}", DisplayPath::path(pointer)));
        }
        if removal.replaced > 0 {
            let what = if self.with_replaced { "removed, too" } else { "needs --with-replaced" };
            output.print_line(format!("  replaced    content of {}: {what}", files(removal.replaced)));
        }
        for path in &removal.foreign {
            output.print_line(format!("  kept        {}: not of Gabion", DisplayPath::path(path)));
        }
    }

    fn confirmed(&self, removal: &Removal) -> anyhow::Result<bool> {
        anyhow::ensure!(
            stdin().is_terminal() && !self.output.json,
            "no terminal to ask on: use --yes to remove the redundancy of {}, or --dry-run",
            files(removal.files)
        );
        out!("Remove the redundancy of {}? [y/N] ", files(removal.files));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}
