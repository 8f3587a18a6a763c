//! `gabion pool create`.

use super::terminal::Names;
use crate::output::{OutputArgs, print_json};
use anyhow::{bail, ensure};
use gabion::exit::Outcome;
use gabion::report::pool::CreateReport;
use gabion::size::Size;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::pool::{NewTarget, Options, Pool};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion pool create tank --targets /mnt/d1 /mnt/d2 /mnt/d3 /mnt/d4 /mnt/d5 /mnt/d6 --stripe 4 --block 1MiB
  gabion pool create tank --targets /mnt/a1 /mnt/a2 /mnt/b1 /mnt/b2 /mnt/c1 --domains a a b b c --stripe 2 --redundancy 1
  gabion pool create tank --targets /mnt/d1 /mnt/d2 /mnt/d3 --stripe 1 --redundancy 2 --dry-run

Missing directories are created; existing ones must be empty. Targets of one failure domain may fail together, so the columns of \
a stripe are placed in different domains. To survive the loss of any M disks, use at least K + M domains.";

/// Arguments of `gabion pool create`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The pool's name
    name: String,
    /// The directories, usually one per disk
    #[arg(long, value_name = "DIR", num_args = 1.., required = true)]
    targets: Vec<PathBuf>,
    /// Failure domain of each directory, in the same order; by default each has its own
    #[arg(long, value_name = "DOMAIN", num_args = 1..)]
    domains: Vec<String>,
    /// Number of targets that a file is striped over: the K of its code
    #[arg(long, value_name = "K")]
    stripe: usize,
    /// Number of redundancy columns: the M of its code
    #[arg(long, value_name = "M", default_value_t = 2)]
    redundancy: usize,
    /// Block size, such as 64KiB or 1MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    block: Size,
    /// Check, print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    names: Names,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { name, targets, domains, stripe, redundancy, block, dry_run, names, output } = self;
        let count = targets.len();
        ensure!(
            domains.is_empty() || domains.len() == count,
            "{} domains for {count} targets: give one for each, or none",
            domains.len()
        );
        let mut domains = domains.into_iter();
        let targets: Vec<NewTarget> =
            targets.into_iter().map(|path| NewTarget { path, domain: domains.next() }).collect();
        let registry = names.registry();
        if let Some(registry) = &registry
            && let Some(targets) = registry.find(&name)?
        {
            let at = targets.first().map_or(String::new(), |path| format!(" at {}", DisplayPath::path(path)));
            bail!("a pool {name} already exists{at}");
        }
        let config = match dry_run {
            true => Pool::plan(&name, &targets, stripe, block.0 as u64, redundancy)?,
            false => {
                let pool =
                    Pool::create(&name, &targets, stripe, block.0 as u64, redundancy, Options::default())?;
                match registry {
                    Some(registry) => registry.record(&name, &pool.paths())?,
                    None => errln!(
                        "gabion: warning: no registry for the name of the pool; use the path of a target"
                    ),
                }
                pool.config()
            }
        };
        if output.json {
            print_json(&CreateReport { dry_run, pool: &config });
            return Ok(Outcome::Fine);
        }
        let verb = if dry_run { "would create" } else { "created" };
        output.print_line(format!("{verb} pool {name}: {count} targets, stripe {stripe}, block {block}"));
        for member in &config.target {
            output.print_line(format!("  {}  domain {}  {}", member.name, member.domain, member.path));
        }
        let domains: std::collections::BTreeSet<_> =
            config.target.iter().map(|member| &member.domain).collect();
        if domains.len() < stripe + redundancy {
            let missing = stripe + redundancy - domains.len();
            errln!(
                "gabion: warning: {} domains for {stripe}+{redundancy} columns: {missing} redundancy columns cannot be placed",
                domains.len()
            );
        }
        Ok(Outcome::Fine)
    }
}
