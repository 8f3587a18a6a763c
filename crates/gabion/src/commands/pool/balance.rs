//! `gabion pool balance`.

use super::rebuild::vault;
use super::terminal::Which;
use crate::commands::vault::{Effort, lock};
use crate::output::{OutputArgs, bytes, files, print_json, table};
use gabion::exit::Outcome;
use gabion::report::pool::BalanceReport as Report;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::pool_rebuild::{BalanceReport, balance};

const EXAMPLES: &str = "\
Examples:
  gabion pool balance tank                     after a target was added
  gabion pool balance tank --dry-run           how full the targets are, and how much would move
  gabion pool balance tank --within 1 --limit 50MiB/s

Moves columns from targets that are fuller than the others to those that are emptier, each in another failure domain than the \
rest of its file. The goal is the same share of each target's room: what the pool has there and what is free. Columns are \
verified while they are copied; the old one is removed when the new one is in use. The command can be interrupted or killed at \
any time; the next run continues.
Exit codes: 0 balanced, or nothing to do, 1 some files were left as they are, 2 error.";

/// Arguments of `gabion pool balance`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Leave targets alone that are fuller than the goal by at most this share of their room, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = clap::value_parser!(u8).range(0..=100))]
    within: u8,
    /// Print what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, within, dry_run, wait, effort, output } = self;
        let pool = which.open()?;
        let vault = vault(&pool)?;
        let _lock = match dry_run {
            true => None,
            false => Some(lock(&vault, "pool balance", wait, &output)?),
        };
        let report = output.run(&effort, |context| balance(&vault, within, dry_run, context))??;
        if output.json {
            print_json(&Report::new(&report, dry_run));
        } else {
            print(&report, dry_run, &output);
        }
        for (path, error) in &report.failed {
            errln!("gabion: {}: {error}", DisplayPath::bytes(path));
        }
        Ok(match () {
            () if report.stopped => Outcome::Failed,
            () if !report.failed.is_empty() => Outcome::Found,
            () => Outcome::Fine,
        })
    }
}

fn print(report: &BalanceReport, dry_run: bool, output: &OutputArgs) {
    let mut rows = vec![["target", "used", "goal", "room"].map(str::to_owned).to_vec()];
    rows.extend(
        report
            .before
            .iter()
            .map(|fill| vec![fill.name.to_string(), bytes(fill.used), bytes(fill.goal), bytes(fill.room)]),
    );
    table(&rows, |at| at > 0).iter().for_each(|line| output.print_line(line));
    output.print_line(match (report.planned, dry_run) {
        (0, _) => "the targets are balanced".to_owned(),
        (planned, true) => format!("would move {}", bytes(planned)),
        (planned, false) => {
            format!("moved {} of {}, of {}", bytes(report.bytes), bytes(planned), files(report.files))
        }
    });
    if report.stopped {
        output.print_line("stopped; the next run continues");
    }
}
