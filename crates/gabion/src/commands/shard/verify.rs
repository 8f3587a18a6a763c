//! `gabion shard verify`.

use super::terminal::{RunArgs, Which, warn};
use crate::commands::device;
use crate::output::{bytes, print_json};
use gabion::exit::Outcome;
use gabion::report::shard::VerifyReport;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::Scan;
use gabion_shard::verify::{Health, Report, Shard, State, chosen, shown_name, verify};

const EXAMPLES: &str = "\
Examples:
  gabion shard verify shards
  gabion shard verify mixed --set 3fa9
  gabion shard verify shards --json | jq .health

Reads every block: against its seal, against the other blocks of its stripe, and the whole against the \
identity of the set. Without --set, all sets that can be joined are verified.
Exit codes: 0 all good, 1 damaged but recoverable, 3 not recoverable.";

/// Arguments of `gabion shard verify`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    run_args: RunArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which: Which { dir, set }, run_args } = self;
        let device = run_args.device()?;
        let scan = Scan::of(&dir)?;
        let mut reports = Vec::new();
        for set in chosen(&scan, set.as_deref())? {
            reports.push(run_args.run(&device, |run| verify(&scan, set, run))??);
        }
        let worst = reports.iter().map(Report::health).max().unwrap_or(Health::Good);
        if run_args.output.json {
            print_json(&device::add_to(VerifyReport::new(worst, &reports), &device));
        } else {
            reports.iter().for_each(|report| print(report, &run_args));
            run_args.say_device(&device);
        }
        Ok(match worst {
            Health::Good => Outcome::Fine,
            Health::Recoverable => Outcome::Found,
            Health::Unrecoverable => Outcome::Unrecoverable,
        })
    }
}

fn print(report: &Report, run_args: &RunArgs) {
    let name = shown_name(&report.content);
    run_args.output.print_line(format!(
        "set {}  {name}  {}  {}",
        report.set,
        bytes(report.content.size),
        report.content.code
    ));
    for Shard { index, path, state } in &report.shards {
        let file = path.as_ref().map(|path| DisplayPath::path(path).to_string());
        let line = format!("  {index:3}  {}{state}", file.map_or(String::new(), |file| format!("{file}: ")));
        match state {
            State::Ok => run_args.output.print_line(&line),
            // Damage is said even to those who want quiet.
            _ => outln!("{line}"),
        }
    }
    warn(&report.others);
    match (report.health(), report.loss()) {
        (Health::Good, _) => run_args.output.print_line("all good"),
        (Health::Recoverable, _) => {
            run_args.output.print_line("damaged but recoverable: `gabion shard repair` makes it whole")
        }
        (Health::Unrecoverable, loss) => outln!("not recoverable: {}", loss.unwrap_or_default()),
    }
}
