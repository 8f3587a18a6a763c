//! What notifications tell: states that last, and repairs.

use super::super::events::Severity;
use gabion_platform::display_path::DisplayPath;
use serde::{Deserialize, Serialize};

/// Most bytes of a line, and most lines of details in a condition.
const MAX_LINE: usize = 240;
const MAX_DETAILS: usize = 5;

/// Subject of a notification; the names are those of the events of the daemon where there is such an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Files are damaged, and redundancy is left to restore them.
    DamageFound,
    /// Files cannot be restored from redundancy.
    Lost,
    /// A target of a pool does not answer.
    TargetGone,
    /// The loss of targets has to be confirmed.
    RebuildConfirmation,
    /// A rebuild left something undone.
    RebuildIncomplete,
    /// A change-set is held until it is approved.
    ChangeSetHeld,
    /// Files were not scrubbed for longer than their policy says.
    ScrubOverdue,
    /// A scheduled job failed.
    JobFailed,
    /// A source protects nothing.
    SourceFailed,
    /// Files were repaired. This happens and does not last.
    Repaired,
}

impl Topic {
    /// All of them.
    pub const ALL: [Topic; 10] = [
        Topic::DamageFound,
        Topic::Lost,
        Topic::TargetGone,
        Topic::RebuildConfirmation,
        Topic::RebuildIncomplete,
        Topic::ChangeSetHeld,
        Topic::ScrubOverdue,
        Topic::JobFailed,
        Topic::SourceFailed,
        Topic::Repaired,
    ];

    /// Its name, as in JSON and in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Topic::DamageFound => "damage_found",
            Topic::Lost => "lost",
            Topic::TargetGone => "target_gone",
            Topic::RebuildConfirmation => "rebuild_confirmation",
            Topic::RebuildIncomplete => "rebuild_incomplete",
            Topic::ChangeSetHeld => "change_set_held",
            Topic::ScrubOverdue => "scrub_overdue",
            Topic::JobFailed => "job_failed",
            Topic::SourceFailed => "source_failed",
            Topic::Repaired => "repaired",
        }
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Topic::Lost | Topic::SourceFailed => Severity::Error,
            Topic::Repaired => Severity::Info,
            _ => Severity::Warning,
        }
    }
}

/// A state of a source that needs attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::daemon) struct Condition {
    pub(in crate::daemon) topic: Topic,
    pub(in crate::daemon) source: String,
    /// Tells conditions of one topic apart: a target, a digest, a kind of job. Empty if there can be only one.
    pub(in crate::daemon) object: String,
    /// A number that grows if it gets worse.
    pub(in crate::daemon) extent: u64,
    /// One line.
    pub(in crate::daemon) summary: String,
    /// First names, reasons.
    pub(in crate::daemon) details: Vec<String>,
    /// What to do, with the commands to type.
    pub(in crate::daemon) next: Vec<String>,
}

impl Condition {
    /// Without details. All texts are made printable lines of bounded length.
    pub(in crate::daemon) fn new(topic: Topic, source: &str, extent: u64, summary: &str) -> Condition {
        Condition {
            topic,
            source: source.to_owned(),
            object: String::new(),
            extent,
            summary: line(summary),
            details: Vec::new(),
            next: Vec::new(),
        }
    }

    pub(in crate::daemon) fn of(mut self, object: &str) -> Condition {
        self.object = line(object);
        self
    }

    pub(in crate::daemon) fn detailed<T: AsRef<str>>(
        mut self,
        details: impl IntoIterator<Item = T>,
    ) -> Condition {
        self.details.extend(details.into_iter().take(MAX_DETAILS).map(|text| line(text.as_ref())));
        self
    }

    pub(in crate::daemon) fn next(mut self, step: &str) -> Condition {
        self.next.push(line(step));
        self
    }

    /// True if both are of the same thing.
    pub(super) fn is_same(&self, other: &Condition) -> bool {
        (self.topic, &self.source, &self.object) == (other.topic, &other.source, &other.object)
    }
}

/// A text as one printable line of bounded length: names of files and errors of other programs may contain anything.
pub(in crate::daemon) fn line(text: &str) -> String {
    let directs = |letter: char| matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = match text.contains(|letter: char| letter.is_control() || directs(letter)) {
        true => DisplayPath::bytes(text.as_bytes()).to_string(),
        false => text.to_owned(),
    };
    match shown.len() <= MAX_LINE {
        true => shown,
        false => format!("{}…", &shown[..shown.floor_char_boundary(MAX_LINE)]),
    }
}

/// A number of files.
pub(in crate::daemon) fn files(number: u64) -> String {
    if number == 1 { "1 file".to_owned() } else { format!("{number} files") }
}

#[cfg(test)]
mod tests {
    use super::{Topic, line};

    #[test]
    fn words_are_the_names_in_json() {
        for topic in Topic::ALL {
            assert_eq!(serde_json::to_value(topic).unwrap(), topic.word());
        }
    }

    #[test]
    fn any_text_becomes_a_printable_line() {
        for text in ["a\r\nBcc: x@example.org", "\u{1b}[31m", "\0", "\u{2028}x", "\u{202e}fdp.exe", "\u{85}"]
        {
            let shown = line(text);
            assert!(!shown.contains(|letter: char| letter.is_control() || letter == '\u{202e}'), "{shown:?}");
        }
        assert_eq!(line("Grüße \\ 1"), "Grüße \\ 1");
        assert!(line(&"ü".repeat(1000)).len() < 250);
    }
}
