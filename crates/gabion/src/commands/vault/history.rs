//! `gabion events`.

use super::Which;
use crate::output::{OutputArgs, print_json};
use gabion::daemon::events::{Event, EventKind, Severity, recorded};
use gabion::exit::Outcome;
use gabion_platform::display_path::DisplayPath;
use gabion_platform::local_time::local;
use gabion_vault::policy::DurationText;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  gabion events /srv/photos
  gabion events /srv/photos --since 7d --least warning
  gabion events tank --kind damage_found --kind repaired --last 1000 --json

Lists what the daemon recorded of a directory or pool, oldest first: damage, repairs, scrubs, lost targets, held change-sets, failed jobs. \
The history is in the repository and is read there, whether the daemon runs or not; it holds at least the last 4096 events, or 1 MiB. \
What commands do without the daemon is not in it.
Exit codes: 0 printed, also if there are none, 2 error.";

/// Arguments of `gabion events`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only events of this kind, such as damage_found; may be repeated
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Vec<EventKind>,
    /// Only events of this severity, or worse: info, warning, error
    #[arg(long, value_name = "SEVERITY", default_value = "info", value_parser = severity)]
    least: Severity,
    /// Only events of this time: 12h, 7d
    #[arg(long, value_name = "TIME")]
    since: Option<DurationText>,
    /// The last N events
    #[arg(long, value_name = "N", default_value_t = 100)]
    last: usize,
    #[command(flatten)]
    output: OutputArgs,
}

/// `gabion events`.
#[derive(Serialize)]
#[serde(tag = "command", rename = "events")]
struct EventsReport<'a> {
    events: &'a [Event],
}

fn kind(text: &str) -> Result<EventKind, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn severity(text: &str) -> Result<Severity, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open_to_examine()?;
        anyhow::ensure!(inside.is_empty(), "events are recorded for a directory or pool as a whole: name it");
        let now = vault.clock.now();
        let mut events = recorded(vault.repository.path())?;
        events.retain(|event| {
            let is_recent = self.since.is_none_or(|since| now.since(event.time.0) <= since.0);
            let is_kind = self.kind.is_empty() || self.kind.contains(&event.kind);
            is_recent && is_kind && event.severity >= self.least
        });
        let events = &events[events.len().saturating_sub(self.last)..];
        if self.output.json {
            print_json(&EventsReport { events });
        } else if events.is_empty() {
            self.output.print_line("no events");
        } else {
            events.iter().for_each(|event| outln!("{}", line(event)));
        }
        Ok(Outcome::Fine)
    }
}

fn line(event: &Event) -> String {
    let severity = match event.severity {
        Severity::Info => "",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    let message = DisplayPath::bytes(event.message.as_bytes()).to_string();
    format!("{}  {severity:<7}  {message}", local(event.time.0))
}
