//! `gabion daemon status`.

use super::Alone;
use super::report::shown;
use crate::commands::vault::FIRST;
use crate::commands::vault::events::filesystem_wide_watch;
use crate::commands::vault::status::overdue_scrubs;
use crate::output::{ago, bytes, count};
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::Time;
use gabion_platform::local_time::local;
use gabion_vault::world::Timestamp;
use serde_json::Value;

const EXAMPLES: &str = "\
Examples:
  gabion daemon status
  gabion daemon status photos --json | jq .sources[0].state

Exit codes: 0 all sources are running, 1 a source needs attention, 2 no daemon answers, 3 data lost.";

/// Arguments of `gabion daemon status`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Only this source
    source: Option<String>,
    #[command(flatten)]
    how: Alone,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let status = self.how.ask(&Request::Status { source: self.source.clone() })?;
        let sources: Vec<&Value> = status["sources"].as_array().into_iter().flatten().collect();
        // Of one source only its own state counts.
        let receivers = status["notifications"].as_array().filter(|_| self.source.is_none());
        let receivers: Vec<&Value> = receivers.into_iter().flatten().collect();
        if self.how.json {
            outln!("{status}");
        } else {
            let now = time(&status["now"]).unwrap_or(Timestamp::EPOCH);
            outln!(
                "daemon, process {}, {}, started {}",
                status["process"],
                shown(&status["config"]["path"]),
                ago(now, time(&status["since"]).unwrap_or(now))
            );
            if sources.is_empty() {
                outln!("no sources: add a [[source]] to the configuration, then `gabion daemon reload`");
            }
            sources.iter().for_each(|source| print(source, now));
            receivers.iter().for_each(|receiver| print_receiver(receiver));
        }
        let telling =
            if receivers.iter().any(|it| !it["error"].is_null()) { Outcome::Found } else { Outcome::Fine };
        Ok(sources.iter().map(|source| outcome(source)).fold(telling, worse))
    }
}

/// A time of a report.
fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse::<Time>().ok().map(|time| time.0)
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    let rank = |outcome: Outcome| match outcome {
        Outcome::Fine => 0,
        Outcome::Found => 1,
        Outcome::Failed => 2,
        Outcome::Unrecoverable => 3,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// Exit code for the state of a source.
fn outcome(source: &Value) -> Outcome {
    let some = |key: &str| source["files"][key].as_u64().unwrap_or(0) > 0;
    let asks = ["notice", "rebuild", "verify", "ask"].iter().any(|key| !source["pool"][key].is_null());
    let lost = source["pool"]["files"]["lost"].as_u64().unwrap_or(0) > 0;
    match () {
        () if some("lost") || lost => Outcome::Unrecoverable,
        () if some("damaged") || some("degraded") || asks => Outcome::Found,
        () if source["scrub_overdue"]["files"].as_u64().unwrap_or(0) > 0 => Outcome::Found,
        () if !source["live"]["held"].is_null() || source["state"] != "running" => Outcome::Found,
        () => Outcome::Fine,
    }
}

/// Prints the state of a source.
pub(in crate::commands) fn print(source: &Value, now: Timestamp) {
    let text = |key: &str| source[key].as_str().unwrap_or("");
    let at = &source["at"]["path"];
    let at = if at.is_string() { format!(" at {}", shown(at)) } else { String::new() };
    outln!("{}: {} {} {}{at}", text("name"), text("state"), text("kind"), shown(&source["path"]));
    if let Some(why) = source["reason"].as_str() {
        let again =
            time(&source["retry_at"]).map(|at| format!("; tried again in {} s", at.since(now).as_secs()));
        outln!("  {why}{}", again.unwrap_or_default());
    }
    let number = |value: &Value| count(value.as_u64().unwrap_or(0));
    let files = &source["files"];
    if files.is_object() {
        outln!(
            "  {} files, {} degraded, {} damaged, {} lost; {} pending, {} encoded ({})",
            number(&files["known"]),
            number(&files["degraded"]),
            number(&files["damaged"]),
            number(&files["lost"]),
            number(&source["live"]["pending"]),
            number(&source["live"]["encoded"]),
            bytes(source["live"]["encoded_bytes"].as_u64().unwrap_or(0))
        );
    }
    if let Some(why) = source["live"]["filesystem_wide"].as_str() {
        outln!("  NOTE: {}", filesystem_wide_watch(why));
    }
    print_held(source);
    print_pool(&source["pool"], text("name"));
    let job = &source["job"];
    if job.is_object() {
        let of = job["total_files"].as_u64().map(|of| format!(" of {}", count(of))).unwrap_or_default();
        let waits = job["waiting_for"].as_str().map(|who| format!("waits for {who}"));
        let step = waits.unwrap_or_else(|| job["step"].as_str().unwrap_or("").to_owned());
        outln!(
            "  at work: {} {step}, {}{of} files",
            job["work"].as_str().unwrap_or(""),
            number(&job["files"])
        );
    }
    for (word, last) in source["last"].as_object().into_iter().flatten() {
        let ended = ago(now, time(&last["ended"]).unwrap_or(now));
        let why = last["error"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        outln!("  last {word} {ended}: {}{why}", last["outcome"].as_str().unwrap_or(""));
    }
    let overdue = &source["scrub_overdue"];
    if overdue["oldest"].is_object() {
        let verified = ago(now, time(&overdue["oldest"]["verified"]).unwrap_or(now));
        let oldest = &shown(&overdue["oldest"]["path"]);
        let number = overdue["files"].as_u64().unwrap_or(0);
        outln!("  {}", overdue_scrubs(number, oldest, &verified));
    }
    if let Some(next) = time(&source["scrub"]["next"]) {
        outln!("  next scrub {}", if next <= now { "now".to_owned() } else { local(next) });
    }
}

/// Prints the state of a receiver of notifications.
fn print_receiver(receiver: &Value) {
    let text = |key: &str| receiver[key].as_str().unwrap_or("");
    let open = receiver["open"].as_u64().unwrap_or(0);
    let mut words = format!("notify {}: {}, {open} open", text("name"), text("kind"));
    if let Some(at) = receiver["delivered"].as_str() {
        words += &format!(", last delivery {at}");
    }
    outln!("{words}");
    if let Some(why) = receiver["error"].as_str() {
        let again = receiver["retry_at"].as_str().map(|at| format!("; tried again at {at}"));
        outln!("  NOT DELIVERED: {why}{}", again.unwrap_or_default());
    }
    let discarded = receiver["discarded"].as_u64().unwrap_or(0);
    if discarded > 0 {
        outln!("  messages discarded after a week: {discarded}");
    }
}

fn print_held(source: &Value) {
    let held = &source["live"]["held"];
    if let Some(digest) = held["digest"].as_str() {
        let before = &held["before"];
        outln!(
            "  HELD: of {} files, {} disappeared and {} changed at once (shortly before: {} and {}). If that is intended: gabion daemon approve {} {digest}",
            held["known"],
            held["removed"],
            held["changed"],
            before["removed"],
            before["changed"],
            source["name"].as_str().unwrap_or("")
        );
    }
}

fn print_pool(pool: &Value, name: &str) {
    let names = |list: &Value| {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
    };
    if pool["notice"].is_object() {
        let until = time(&pool["notice"]["given_up_at"]).map(|at| format!(", given up at {}", local(at)));
        outln!("  DEGRADED: {} gone{}", names(&pool["notice"]["gone"]), until.unwrap_or_default());
    }
    for file in pool["files"]["named"].as_array().into_iter().flatten().take(FIRST) {
        let word = file["health"].as_str().unwrap_or("");
        outln!("    {word:<9} {} (missing on {})", shown(&file["path"]), names(&file["misses"]));
    }
    let affected = |key: &str| pool["files"][key].as_u64().unwrap_or(0);
    let more = (affected("degraded") + affected("lost")).saturating_sub(FIRST as u64);
    if more > 0 {
        outln!("    and {} more files", count(more));
    }
    for (key, word) in [("rebuild", "given up, to be rebuilt"), ("verify", "came back, to be verified")] {
        if pool[key].is_array() {
            outln!("  {}: {word}", names(&pool[key]));
        }
    }
    if let Some(agreement) = pool["ask"]["agreement"].as_str() {
        outln!(
            "  CONFIRM: {} ({}). If they are lost: gabion daemon rebuild {name} --agree {agreement}",
            pool["ask"]["why"].as_str().unwrap_or(""),
            names(&pool["ask"]["gone"])
        );
    }
}
