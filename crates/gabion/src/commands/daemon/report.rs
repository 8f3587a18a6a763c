//! Prints results of the daemon as text.

use crate::output::{bytes, count, files};
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::shell::ApproveCommand;
use gabion_platform::display_path::DisplayPath;
use serde_json::Value;

/// Most names that are listed.
const FIRST: usize = 10;

/// Prints the result of a job.
pub(in crate::commands) fn print(
    word: &str,
    request: &Request,
    done: &Value,
    json: bool,
    quiet: bool,
) -> Outcome {
    let outcome = done["outcome"].as_str();
    if json {
        outln!("{done}");
    } else if let Some(queued) = done["queued"].as_str() {
        outln!("{queued} is queued; see `gabion daemon status`");
    } else if !quiet || outcome != Some("fine") {
        print_work(word, request, done);
    }
    match outcome {
        Some("lost") => Outcome::Unrecoverable,
        Some("stopped") => Outcome::Failed,
        Some("open") => Outcome::Found,
        _ => Outcome::Fine,
    }
}

fn print_work(word: &str, request: &Request, done: &Value) {
    let counted = |key: &str| {
        done[key].as_u64().map(|number| match key {
            "files" => files(number),
            "bytes" => bytes(number),
            _ => format!("{} {key}", count(number)),
        })
    };
    let keys = ["files", "bytes", "encoded", "damaged", "examined", "moved", "removed", "pending"];
    let counts: Vec<String> = keys.iter().filter_map(|key| counted(key)).collect();
    outln!("{word}: {} ({})", done["outcome"].as_str().unwrap_or("done"), counts.join(", "));
    print_by_state("", &done["damage"]);
    for repaired in [&done["repaired"], &done["repair"]["repaired"]] {
        print_by_state("repaired", repaired);
    }
    print_names("kept", &done["kept"]);
    print_names("LOST", &done["lost"]);
    print_names("no place", &done["unplaced"]);
    print_names("failed", &done["failed"]);
    let digest = done["held"]["digest"].as_str().and_then(|digest| digest.parse().ok());
    if let (Some(digest), Some(source)) = (digest, request.source()) {
        let approve = ApproveCommand::of_source(source).text(&digest);
        outln!("HELD: very many files disappeared or changed at once. If that is intended: {approve}");
    }
}

/// Prints files by state; `good` is the label for protected ones.
fn print_by_state(good: &str, list: &Value) {
    for (state, word) in
        [("protected", good), ("degraded", "degraded"), ("damaged", "damaged"), ("lost", "LOST")]
    {
        let of_state = list.as_array().into_iter().flatten().filter(|item| item["state"] == state);
        print_names(word, &Value::Array(of_state.cloned().collect()));
    }
}

fn print_names(word: &str, list: &Value) {
    let names: Vec<&Value> = list.as_array().into_iter().flatten().collect();
    for item in names.iter().take(FIRST) {
        let why = item["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        outln!("  {word:<9} {}{why}", shown(&item["path"]));
    }
    if names.len() > FIRST {
        outln!("  and {} more; --json lists them", names.len() - FIRST);
    }
}

/// A path of a report, escaped for the terminal.
pub(super) fn shown(path: &Value) -> String {
    DisplayPath::bytes(path.as_str().unwrap_or("?").as_bytes()).to_string()
}

/// Prints an answer key by key.
pub(super) fn print_words(done: &Value) {
    for (key, value) in done.as_object().into_iter().flatten() {
        match value {
            _ if key == "version" => {}
            Value::Array(list) if list.is_empty() => {}
            Value::Array(list) => {
                let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                outln!("{key}: {}", words.join(", "));
            }
            Value::String(text) => outln!("{key}: {text}"),
            other => outln!("{key}: {other}"),
        }
    }
}
