//! `gabion pool forget`.

use super::rebuild::vault;
use super::terminal::Which;
use crate::commands::vault::lock;
use crate::output::{OutputArgs, print_json};
use gabion::exit::Outcome;
use gabion::report::pool::ForgetTargetReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::pool_rebuild::forget;

const EXAMPLES: &str = "\
Examples:
  gabion pool rebuild tank          restore on other targets what the dead disk d3 held
  gabion pool forget tank d3        then remove d3 from the pool for good
  gabion pool retire tank d4        before a disk in service is removed: empty it
  gabion pool forget tank d4

The target must be given up (by `gabion pool rebuild`) or retired, and no file may have a column on it. If it is reachable, its \
pool.toml is removed; all else on it stays. If it comes back later it is no target of the pool any more.
Exit codes: 0 removed from the pool, 2 error, or files still need it.";

/// Arguments of `gabion pool forget`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Name of the target
    target: String,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, target, wait, output } = self;
        let pool = which.open()?;
        let vault = vault(&pool)?;
        let _lock = lock(&vault, "pool forget", wait, &output)?;
        let member = pool.config().target.into_iter().find(|member| member.name == target);
        let target = forget(&vault, &target)?;
        which.record(&pool)?;
        if output.json {
            print_json(&ForgetTargetReport { target: &target });
        }
        output.print_line(format!("target {target} is no longer part of the pool"));
        if member.is_some_and(|member| vault.root == std::path::Path::new(&member.path)) {
            output.print_line(format!(
                "its catalogue was on it, and is made anew by `gabion protect {}`",
                DisplayPath::bytes(pool.config().name.as_bytes())
            ));
        }
        Ok(Outcome::Fine)
    }
}
