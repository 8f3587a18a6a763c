//! `gabion pool add`.

use super::terminal::Which;
use crate::output::{OutputArgs, print_json};
use gabion::exit::Outcome;
use gabion::report::pool::AddReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::storage::pool::NewTarget;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion pool add tank /mnt/d7
  gabion pool add tank /mnt/c2 --domain c

A missing directory is created; an existing one must be empty. Existing files are not moved; new files also use \
the new target.";

/// Arguments of `gabion pool add`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The directory
    dir: PathBuf,
    /// Failure domain; by default its own
    #[arg(long)]
    domain: Option<String>,
    /// Check, print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, dir, domain, dry_run, output } = self;
        let pool = which.open()?;
        let target = NewTarget { path: dir, domain };
        let planned = pool.plan_add(&target, None)?;
        let name = match dry_run {
            true => planned.name,
            false => {
                let name = pool.add(&target)?;
                which.record(&pool)?;
                name
            }
        };
        if output.json {
            let path = target.path.to_string_lossy();
            print_json(&AddReport { dry_run, target: &name, domain: &planned.domain, path: &path });
        }
        let verb = if dry_run { "would add" } else { "added" };
        output.print_line(format!(
            "{verb} target {name}, domain {}: {}",
            planned.domain,
            DisplayPath::path(&target.path)
        ));
        Ok(Outcome::Fine)
    }
}
