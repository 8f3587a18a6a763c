//! Messages: several conditions and repairs in one text, with a subject.

use super::super::events::Severity;
use super::topic::{Condition, Topic};
use crate::report::Time;
use gabion_platform::local_time::local;
use gabion_vault::world::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Most items that a message shows.
const MAX_ITEMS: usize = 20;

/// Most bytes of a subject.
const MAX_SUBJECT: usize = 200;

/// A message as receivers get it. `docs/reference/json.md` documents its keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Version of the format.
    pub version: u32,
    /// The same for each attempt to deliver it.
    pub id: String,
    /// When it was composed.
    pub time: Time,
    /// The host.
    pub host: String,
    /// The worst of its items that last.
    pub severity: Severity,
    /// True if nothing needs attention any more.
    pub all_well: bool,
    /// One line.
    pub subject: String,
    /// Everything, for people.
    pub text: String,
    /// Everything, for programs.
    pub items: Vec<Item>,
    /// Items that are left out.
    pub omitted: u64,
}

/// State of an item of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Began,
    /// It is worse than it was told.
    Worse,
    /// It still lasts.
    Lasts,
    /// It is over.
    Ended,
    /// It does not last.
    Happened,
    /// A test.
    Test,
}

/// One item of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// What it is about; none for a test.
    pub event: Option<Topic>,
    /// What is new about it.
    pub change: Change,
    /// The source; empty for a test.
    pub source: String,
    /// The target, digest, disk or kind of job.
    pub object: String,
    /// How bad it is.
    pub severity: Severity,
    /// Since when.
    pub since: Time,
    /// One line.
    pub summary: String,
    /// First names, reasons.
    pub details: Vec<String>,
    /// What to do.
    pub next: Vec<String>,
}

impl Item {
    /// Of a condition.
    pub(super) fn new(condition: &Condition, change: Change, since: Timestamp) -> Item {
        let (details, next) = match change {
            Change::Ended => Default::default(),
            _ => (condition.details.clone(), condition.next.clone()),
        };
        Item {
            event: Some(condition.topic),
            change,
            source: condition.source.clone(),
            object: condition.object.clone(),
            severity: condition.topic.severity(),
            since: Time(since),
            summary: condition.summary.clone(),
            details,
            next,
        }
    }

    /// Order in a message: what lasts, the worst first, then what happened, then what is over.
    fn rank(&self) -> (u8, std::cmp::Reverse<Severity>) {
        let group = match self.change {
            Change::Began | Change::Worse | Change::Lasts | Change::Test => 0,
            Change::Happened => 1,
            Change::Ended => 2,
        };
        (group, std::cmp::Reverse(self.severity))
    }

    /// The summary with its source.
    fn headline(&self) -> String {
        match self.source.is_empty() {
            true => self.summary.clone(),
            false => format!("{}: {}", self.source, self.summary),
        }
    }

    fn lines(&self, now: Timestamp) -> Vec<String> {
        let word = match (self.change, self.severity) {
            (Change::Test, _) => "TEST",
            (Change::Ended, _) => "OVER",
            (Change::Happened, _) => "DONE",
            (_, Severity::Error) => "ERROR",
            (_, Severity::Warning) => "WARNING",
            (_, Severity::Info) => "NOTE",
        };
        let since = match self.change {
            Change::Ended => format!(" (it lasted {})", span(now.since(self.since.0))),
            Change::Lasts => format!(" (since {}, reminder)", local(self.since.0)),
            Change::Worse => format!(" (since {}, worse)", local(self.since.0)),
            Change::Began | Change::Happened | Change::Test => String::new(),
        };
        let mut lines = vec![format!("{word} {}{since}", self.headline())];
        lines.extend(self.details.iter().map(|detail| format!("    {detail}")));
        lines.extend(self.next.iter().map(|step| format!("  > {step}")));
        lines
    }
}

/// Composes a message.
pub(super) fn compose(
    id: String,
    host: &str,
    mut items: Vec<Item>,
    all_well: bool,
    discarded: u64,
    now: Timestamp,
) -> Message {
    items.sort_by_key(Item::rank);
    let omitted = items.len().saturating_sub(MAX_ITEMS) as u64;
    let lasting = items.iter().filter(|item| !matches!(item.change, Change::Ended | Change::Happened));
    let severity = lasting.map(|item| item.severity).max().unwrap_or(Severity::Info);
    let subject = subject(host, &items, all_well);
    items.truncate(MAX_ITEMS);
    let mut lines = vec![format!("Host {host}, {}", local(now)), String::new()];
    for item in &items {
        lines.extend(item.lines(now));
        lines.push(String::new());
    }
    if omitted > 0 {
        lines.push(format!("And {omitted} more: gabion daemon status"));
    }
    if discarded > 0 {
        lines
            .push(format!("Messages that could not be delivered for a week and were discarded: {discarded}"));
    }
    if all_well {
        lines.push("All is well again.".to_owned());
    }
    let text = format!("{}\n", lines.join("\n").trim_end());
    let host = host.to_owned();
    Message { version: 1, id, time: Time(now), host, severity, all_well, subject, text, items, omitted }
}

fn subject(host: &str, items: &[Item], all_well: bool) -> String {
    let more = match items.len() {
        0 | 1 => String::new(),
        number => format!(", and {} more", number - 1),
    };
    let first = items.first().map(Item::headline).unwrap_or_default();
    let over = items.first().is_some_and(|item| item.change == Change::Ended);
    let text = match (all_well, over) {
        (true, _) => format!("[gabion {host}] all is well again ({first}{more})"),
        (false, true) => format!("[gabion {host}] over: {first}{more}"),
        (false, false) => format!("[gabion {host}] {first}{more}"),
    };
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    match text.len() <= MAX_SUBJECT {
        true => text,
        false => format!("{}…", &text[..text.floor_char_boundary(MAX_SUBJECT)]),
    }
}

/// A time span for people.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds if seconds < 48 * 3600 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}

/// A message that tests the way to a receiver.
pub(super) fn test(id: String, host: &str, name: &str, now: Timestamp) -> Message {
    let item = Item {
        event: None,
        change: Change::Test,
        source: String::new(),
        object: name.to_owned(),
        severity: Severity::Info,
        since: Time(now),
        summary: format!("test of the receiver {name}"),
        details: Vec::new(),
        next: vec!["Nothing is to be done. Notifications of this host arrive here.".to_owned()],
    };
    compose(id, host, vec![item], false, 0, now)
}

#[cfg(test)]
mod tests {
    use super::{Change, Item, compose, test};
    use crate::daemon::events::Severity;
    use crate::daemon::notifications::topic::{Condition, Topic};
    use gabion_vault::world::Timestamp;

    fn item(topic: Topic, change: Change, summary: &str) -> Item {
        let condition = Condition::new(topic, "photos", 1, summary)
            .detailed(["a\nb"])
            .next("Repair them: gabion daemon repair photos");
        Item::new(&condition, change, Timestamp::from_seconds(1000))
    }

    #[test]
    fn a_message_tells_the_worst_first_and_what_to_do() {
        let items = vec![
            item(Topic::ScrubOverdue, Change::Ended, "2 files are overdue"),
            item(Topic::DamageFound, Change::Began, "3 files are damaged"),
            item(Topic::Lost, Change::Began, "1 file is lost"),
        ];
        let message = compose("1".to_owned(), "nas", items, false, 0, Timestamp::from_seconds(8200));
        assert_eq!(message.subject, "[gabion nas] photos: 1 file is lost, and 2 more");
        assert_eq!(message.severity, Severity::Error);
        let text = "Host nas, 1970-01-01 02:16:40 UTC

ERROR photos: 1 file is lost
    a\\nb
  > Repair them: gabion daemon repair photos

WARNING photos: 3 files are damaged
    a\\nb
  > Repair them: gabion daemon repair photos

OVER photos: 2 files are overdue (it lasted 2 h)
";
        assert_eq!(message.text, text);
    }

    #[test]
    fn the_end_of_all_is_told() {
        let items = vec![item(Topic::DamageFound, Change::Ended, "3 files are damaged")];
        let message = compose("1".to_owned(), "nas", items, true, 2, Timestamp::from_seconds(1030));
        assert_eq!(message.subject, "[gabion nas] all is well again (photos: 3 files are damaged)");
        assert!(message.text.ends_with("discarded: 2\nAll is well again.\n"), "{}", message.text);
        assert_eq!(message.severity, Severity::Info);
    }

    #[test]
    fn a_subject_is_one_line_and_many_items_are_counted() {
        let mut hostile = item(Topic::Lost, Change::Began, "x");
        hostile.summary = format!("x\r\nBcc: all@example.org\r\n\r\n{}", "ü".repeat(300));
        let items: Vec<Item> = (0..50).map(|_| hostile.clone()).collect();
        let message = compose("1".to_owned(), "nas", items, false, 0, Timestamp::EPOCH);
        assert!(!message.subject.contains(['\r', '\n']) && message.subject.len() < 210);
        assert_eq!((message.items.len(), message.omitted), (20, 30));
        assert!(message.text.contains("And 30 more"));
        assert!(
            test("1".to_owned(), "nas", "mail", Timestamp::EPOCH)
                .subject
                .contains("test of the receiver mail")
        );
    }
}
