//! `gabion pool retire`.

use super::rebuild::RebuildRun;
use super::terminal::Which;
use crate::commands::device::DeviceArgs;
use crate::commands::vault::Effort;
use crate::output::{OutputArgs, print_json};
use anyhow::ensure;
use gabion::exit::Outcome;
use gabion::report::pool::RetireReport;
use gabion_vault::pool_rebuild::RebuildOptions;

const EXAMPLES: &str = "\
Examples:
  gabion pool retire tank d3                 move the content of d3 to other targets
  gabion pool retire tank d3 --no-rebuild    only stop writing new files to it

New files no longer use the target. Its columns are copied to targets in other failure domains and verified against \
signatures; unreadable blocks are reconstructed. Then the columns are removed from it, and the disk can be removed. \
The command can be interrupted: `gabion pool rebuild` continues with the rest.
Exit codes: 0 the target is empty, 1 columns are left on it, 2 error, 3 data lost.";

/// Arguments of `gabion pool retire`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Name of the target
    target: String,
    /// Do not move its content
    #[arg(long)]
    no_rebuild: bool,
    /// Check, print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, target, no_rebuild, dry_run, wait, effort, device, output } = self;
        let compute = device.open()?;
        let pool = which.open()?;
        match dry_run {
            true => {
                let known = pool.config().target.iter().any(|member| member.name == target);
                ensure!(known, "pool {} has no target {target}", pool.config().name);
            }
            false => pool.retire(&target)?,
        }
        let verb = if dry_run { "would retire" } else { "retired" };
        output.print_line(format!("{verb} target {target}: new files no longer use it"));
        if dry_run || no_rebuild {
            if output.json {
                print_json(&RetireReport { dry_run, target: &target });
            }
            return Ok(Outcome::Fine);
        }
        let options = RebuildOptions { targets: vec![target], ..RebuildOptions::default() };
        let run = RebuildRun { output: &output, effort: &effort, compute: &compute, all: false, wait };
        run.rebuild(&pool, &options, "pool retire")
    }
}
