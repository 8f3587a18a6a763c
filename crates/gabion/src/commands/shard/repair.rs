//! `gabion shard repair`.

use super::terminal::{RunArgs, Which, warn};
use crate::commands::device;
use crate::output::print_json;
use gabion::exit::Outcome;
use gabion::report::shard::ShardRepairReport;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::Scan;
use gabion_shard::repair::{Plan, Rebuild};

const EXAMPLES: &str = "\
Examples:
  gabion shard repair shards --dry-run
  gabion shard repair shards

Missing and damaged shards are rebuilt: good blocks are copied, bad ones reconstructed. New shards are \
read back before they take their place. Good shards are not touched. If any stripe is beyond \
repair, nothing is changed.
Exit codes: 0 repaired, or nothing to do, 3 not recoverable.";

/// Arguments of `gabion shard repair`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Verify and say what would be done, but do nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace files that are in the way and are no damaged shards of this set
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which: Which { dir, set }, dry_run, force, run_args } = self;
        let device = run_args.device()?;
        let scan = Scan::of(&dir)?;
        let plan = run_args.run(&device, |run| Plan::new(&scan, set.as_deref(), force, run))??;
        warn(&plan.report.others);
        if !dry_run && !plan.rebuild.is_empty() {
            run_args.run(&device, |run| plan.run(run))??;
        }
        if run_args.output.json {
            print_json(&device::add_to(ShardRepairReport::new(&plan, dry_run), &device));
        }
        let verb = if dry_run { "would rebuild" } else { "rebuilt" };
        for Rebuild { index, why, to, .. } in &plan.rebuild {
            run_args.output.print_line(format!("{verb} shard {index}: {} ({why})", DisplayPath::path(to)));
        }
        run_args.say_device(&device);
        if plan.rebuild.is_empty() {
            run_args.output.print_line("nothing to repair");
        }
        Ok(Outcome::Fine)
    }
}
