//! `gabion shard verify`.

use super::terminal::{RunArgs, Which, warn};
use gabion::exit::Outcome;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::Scan;
use gabion_shard::verify::{Health, Report, Shard, State, chosen, shown_name, verify};
use serde_json::{Value, json};

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
        if run_args.json {
            let sets: Vec<Value> = reports.iter().map(as_json).collect();
            let device = RunArgs::device_json(&device);
            outln!("{}", json!({ "command": "verify", "health": worst, "sets": sets, "device": device }));
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
    run_args
        .say(&format!("set {}  {name}  {} bytes  {}", report.set, report.content.size, report.content.code));
    for Shard { index, path, state } in &report.shards {
        let file = path.as_ref().map(|path| DisplayPath::path(path).to_string());
        let line = format!("  {index:3}  {}{state}", file.map_or(String::new(), |file| format!("{file}: ")));
        match state {
            State::Ok => run_args.say(&line),
            // Damage is said even to those who want quiet.
            _ => outln!("{line}"),
        }
    }
    warn(&report.others);
    match (report.health(), report.loss()) {
        (Health::Good, _) => run_args.say("all good"),
        (Health::Recoverable, _) => {
            run_args.say("damaged but recoverable: `gabion shard repair` makes it whole")
        }
        (Health::Unrecoverable, loss) => outln!("not recoverable: {}", loss.unwrap_or_default()),
    }
}

pub(super) fn as_json(report: &Report) -> Value {
    let shards: Vec<Value> = report.shards.iter().map(shard_as_json).collect();
    json!({
        "set": report.set.to_string(), "name": String::from_utf8_lossy(&report.content.name),
        "code": report.content.code.to_string(), "size": report.content.size, "block": report.content.block,
        "health": report.health(), "lost_stripes": report.lost, "content_right": report.content_right,
        "loss": report.loss(), "shards": shards, "others": report.others,
    })
}

fn shard_as_json(shard: &Shard) -> Value {
    let blocks = match &shard.state {
        State::Damaged { blocks, .. } => json!(blocks),
        _ => Value::Null,
    };
    json!({
        "index": shard.index, "path": shard.path.as_ref().map(|path| path.to_string_lossy()),
        "state": shard.state.word(), "detail": shard.state.to_string(), "bad_blocks": blocks,
    })
}
