//! Events of the daemon: each one passes through [`Events::publish`], which numbers it, writes it to the log, to the
//! history in the repository of its source, and hands it to subscribers.
//!
//! A subscriber has a cursor instead of a queue: it reads what came after the last event that it saw, from memory, or
//! from the histories if that is long ago. A slow one costs no memory and delays nobody.
//!
//! Sequence numbers increase over all sources and over restarts: a number is the time in microseconds, or the last
//! number plus one if that is more. They are not consecutive.

mod history;

pub use history::recorded;

use super::{LogEntry, Tell};
use crate::report::{PathName, Time};
use gabion_platform::sync::lock;
use gabion_vault::world::Clock;
use history::History;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Events that are kept in memory.
const RECENT: usize = 1024;

/// Events of one source that wait for its repository.
const UNWRITTEN: usize = 64;

/// Most paths in an event, and most bytes of its text.
const MAX_PATHS: usize = 10;
const MAX_TEXT: usize = 4096;

/// Kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A scrub or a read found damaged files.
    DamageFound,
    /// Damaged files were repaired.
    Repaired,
    /// Files cannot be restored from redundancy.
    Lost,
    /// A target of a pool does not answer.
    TargetGone,
    /// A target of a pool answers again.
    TargetBack,
    /// Very many files vanished or changed: their redundancy is kept until the change-set is approved.
    ChangeSetHeld,
    /// A held change-set was approved, or is no longer held.
    Approved,
    /// A scrub began.
    ScrubStarted,
    /// A scrub ended.
    ScrubFinished,
    /// Files were not scrubbed for longer than their policy says.
    ScrubOverdue,
    /// No scrub is overdue any more.
    ScrubCurrent,
    /// A job failed.
    JobFailed,
    /// The loss of targets has to be confirmed before anything is rebuilt.
    RebuildConfirmation,
    /// A rebuild began.
    RebuildStarted,
    /// A rebuild restored all redundancy.
    RebuildFinished,
    /// A rebuild ended and left something undone.
    RebuildIncomplete,
    /// A source does not run, or runs and cannot protect files.
    SourceFailed,
    /// A source runs.
    SourceRunning,
    /// A source stopped.
    SourceStopped,
    /// Work on a source was suspended by a request.
    SourcePaused,
    /// Work on a source continues.
    SourceResumed,
    /// The daemon is ready.
    DaemonStarted,
    /// The daemon stops.
    DaemonStopping,
    /// The configuration was read again.
    ConfigurationReloaded,
    /// Nothing of a source needs attention any more.
    AllWell,
}

/// How bad an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing needs attention.
    Info,
    /// Something needs attention.
    Warning,
    /// Data is lost, or nothing is protected.
    Error,
}

impl EventKind {
    /// The name, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::DamageFound => "damage_found",
            EventKind::Repaired => "repaired",
            EventKind::Lost => "lost",
            EventKind::TargetGone => "target_gone",
            EventKind::TargetBack => "target_back",
            EventKind::ChangeSetHeld => "change_set_held",
            EventKind::Approved => "approved",
            EventKind::ScrubStarted => "scrub_started",
            EventKind::ScrubFinished => "scrub_finished",
            EventKind::ScrubOverdue => "scrub_overdue",
            EventKind::ScrubCurrent => "scrub_current",
            EventKind::JobFailed => "job_failed",
            EventKind::RebuildConfirmation => "rebuild_confirmation",
            EventKind::RebuildStarted => "rebuild_started",
            EventKind::RebuildFinished => "rebuild_finished",
            EventKind::RebuildIncomplete => "rebuild_incomplete",
            EventKind::SourceFailed => "source_failed",
            EventKind::SourceRunning => "source_running",
            EventKind::SourceStopped => "source_stopped",
            EventKind::SourcePaused => "source_paused",
            EventKind::SourceResumed => "source_resumed",
            EventKind::DaemonStarted => "daemon_started",
            EventKind::DaemonStopping => "daemon_stopping",
            EventKind::ConfigurationReloaded => "configuration_reloaded",
            EventKind::AllWell => "all_well",
        }
    }

    /// Its severity.
    pub fn severity(self) -> Severity {
        match self {
            EventKind::Lost | EventKind::SourceFailed => Severity::Error,
            EventKind::DamageFound
            | EventKind::TargetGone
            | EventKind::ChangeSetHeld
            | EventKind::ScrubOverdue
            | EventKind::JobFailed
            | EventKind::RebuildConfirmation
            | EventKind::RebuildIncomplete => Severity::Warning,
            _ => Severity::Info,
        }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Increases over all sources and over restarts; not consecutive.
    pub sequence: u64,
    /// When it was published.
    pub time: Time,
    /// Its kind.
    pub kind: EventKind,
    /// Its severity.
    pub severity: Severity,
    /// Name of the source; absent for events of the daemon itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// For people, in one line.
    pub message: String,
    /// For programs.
    #[serde(default)]
    pub data: EventData,
}

/// Details of an event; each kind has those that apply to it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EventData {
    /// Kind of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Number of the job in this run of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<u64>,
    /// Outcome of the job: fine, open, stopped or lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Files that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Bytes that were read or reconstructed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Time that the job took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The first of the files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathName>,
    /// Targets of a pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Digest of a held change-set, or of the question that has to be confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
}

impl EventData {
    /// With the first of these paths.
    pub fn with_paths<'a>(mut self, paths: impl IntoIterator<Item = &'a PathName>) -> EventData {
        let short = paths.into_iter().filter(|path| path.path.len() <= MAX_TEXT);
        self.paths = short.take(MAX_PATHS).cloned().collect();
        self
    }
}

/// Called after each event; must not block.
type Waker = Box<dyn Fn() + Send + Sync>;

/// The one place through which events pass.
pub struct Events {
    recent: Mutex<Recent>,
    published: Condvar,
    histories: Mutex<BTreeMap<String, Arc<Mutex<SourceHistory>>>>,
    wakers: Mutex<Vec<Waker>>,
    counts: Mutex<BTreeMap<(String, EventKind), u64>>,
    tell: Tell,
}

struct Recent {
    last: u64,
    /// All events after this number are in `events`.
    complete_after: u64,
    events: VecDeque<Arc<Event>>,
    closed: bool,
}

#[derive(Default)]
struct SourceHistory {
    history: Option<History>,
    unwritten: VecDeque<Arc<Event>>,
    /// The last error, so that it is reported once.
    error: Option<String>,
}

impl Events {
    /// Without any event; `tell` writes the log.
    pub fn new(tell: Tell) -> Arc<Events> {
        let last = now();
        let recent = Recent { last, complete_after: last, events: VecDeque::new(), closed: false };
        Arc::new(Events {
            recent: Mutex::new(recent),
            published: Condvar::new(),
            histories: Mutex::default(),
            wakers: Mutex::default(),
            counts: Mutex::default(),
            tell,
        })
    }

    /// Publishes an event of a source, or of the daemon itself.
    pub fn publish(
        &self,
        source: Option<&str>,
        kind: EventKind,
        message: &str,
        data: EventData,
    ) -> Arc<Event> {
        let log = match kind.severity() {
            Severity::Info => LogEntry::Message(message),
            Severity::Warning | Severity::Error => LogEntry::Warning(message),
        };
        (self.tell)(source.unwrap_or_default(), log);
        let event = self.number(source, kind, message, data);
        *lock(&self.counts).entry((source.unwrap_or_default().to_owned(), kind)).or_default() += 1;
        if let Some(source) = source {
            let history = Arc::clone(lock(&self.histories).entry(source.to_owned()).or_default());
            let mut history = lock(&history);
            if history.unwritten.len() >= UNWRITTEN {
                history.unwritten.pop_front();
            }
            history.unwritten.push_back(Arc::clone(&event));
            self.write(source, &mut history);
        }
        self.published.notify_all();
        lock(&self.wakers).iter().for_each(|wake| wake());
        event
    }

    fn number(&self, source: Option<&str>, kind: EventKind, message: &str, data: EventData) -> Arc<Event> {
        let mut recent = lock(&self.recent);
        let sequence = now().max(recent.last + 1);
        recent.last = sequence;
        let event = Arc::new(Event {
            sequence,
            time: Time(Clock::System.now()),
            kind,
            severity: kind.severity(),
            source: source.map(str::to_owned),
            message: shortened(message),
            data: EventData { error: data.error.as_deref().map(shortened), ..data },
        });
        if recent.events.len() >= RECENT
            && let Some(oldest) = recent.events.pop_front()
        {
            recent.complete_after = oldest.sequence;
        }
        recent.events.push_back(Arc::clone(&event));
        event
    }

    /// Writes what is unwritten. An error is reported once; the events are written with a later one.
    fn write(&self, source: &str, of: &mut SourceHistory) {
        let Some(history) = &mut of.history else { return };
        while let Some(event) = of.unwritten.front() {
            match history.append(event) {
                Ok(()) => drop(of.unwritten.pop_front()),
                Err(error) => {
                    let text = format!("the history of events is not written: {error}");
                    if of.error.as_ref() != Some(&text) {
                        (self.tell)(source, LogEntry::Warning(&text));
                    }
                    of.error = Some(text);
                    return;
                }
            }
        }
        of.error = None;
    }

    /// Opens the history of a source in its repository; what was published before is written there.
    pub fn attach(&self, source: &str, repository: &Path) {
        let of = Arc::clone(lock(&self.histories).entry(source.to_owned()).or_default());
        let mut of = lock(&of);
        let opened = History::open(repository);
        match opened {
            Ok((history, last)) => {
                let mut recent = lock(&self.recent);
                recent.last = recent.last.max(last);
                drop(recent);
                of.history = Some(history);
                self.write(source, &mut of);
            }
            Err(error) => {
                (self.tell)(
                    source,
                    LogEntry::Warning(&format!("the history of events cannot be read: {error}")),
                );
            }
        }
    }

    /// Forgets a source that is no longer configured. Its history stays in the repository.
    pub fn detach(&self, source: &str) {
        lock(&self.histories).remove(source);
    }

    /// Number of events since the start, by source (empty for the daemon itself) and kind.
    pub fn counts(&self) -> BTreeMap<(String, EventKind), u64> {
        lock(&self.counts).clone()
    }

    /// Calls `wake` after each event.
    pub fn on_publish(&self, wake: impl Fn() + Send + Sync + 'static) {
        lock(&self.wakers).push(Box::new(wake));
    }

    /// All events from now on.
    pub fn subscribe(self: &Arc<Events>) -> Subscription {
        self.subscribe_after(lock(&self.recent).last)
    }

    /// All events after a number.
    pub fn subscribe_after(self: &Arc<Events>, sequence: u64) -> Subscription {
        Subscription { events: Arc::clone(self), cursor: sequence }
    }

    /// The number of the last event.
    pub fn last(&self) -> u64 {
        lock(&self.recent).last
    }

    /// The events of memory after a number, oldest first; none if older ones have to be read from the histories.
    pub fn recent_after(&self, sequence: u64, limit: usize) -> Option<Vec<Arc<Event>>> {
        let recent = lock(&self.recent);
        if sequence < recent.complete_after {
            return None;
        }
        let from = recent.events.partition_point(|event| event.sequence <= sequence);
        Some(recent.events.iter().skip(from).take(limit).cloned().collect())
    }

    /// The events after a number, oldest first, of all sources. May read files.
    pub fn after(&self, sequence: u64, limit: usize) -> Vec<Arc<Event>> {
        if let Some(recent) = self.recent_after(sequence, limit) {
            return recent;
        }
        let sources: Vec<String> = lock(&self.histories).keys().cloned().collect();
        let mut all = BTreeMap::new();
        for source in sources {
            all.extend(self.read(&source).into_iter().map(|event| (event.sequence, event)));
        }
        // Those of the daemon itself, and those that could not be written.
        all.extend(lock(&self.recent).events.iter().map(|event| (event.sequence, Arc::clone(event))));
        all.range(sequence.saturating_add(1)..).take(limit).map(|(_, event)| Arc::clone(event)).collect()
    }

    /// The history of a source, oldest first: events after a number, of these kinds (any if empty). Reads files.
    pub fn history(&self, source: &str, after: u64, kinds: &[EventKind]) -> Vec<Arc<Event>> {
        let fits =
            |event: &Arc<Event>| event.sequence > after && (kinds.is_empty() || kinds.contains(&event.kind));
        self.read(source).into_iter().filter(fits).collect()
    }

    fn read(&self, source: &str) -> Vec<Arc<Event>> {
        let Some(of) = lock(&self.histories).get(source).cloned() else { return Vec::new() };
        let of = lock(&of);
        let written = of.history.as_ref().and_then(|history| history.read().ok()).unwrap_or_default();
        let mut all: BTreeMap<u64, Arc<Event>> =
            written.into_iter().map(|event| (event.sequence, Arc::new(event))).collect();
        all.extend(of.unwritten.iter().map(|event| (event.sequence, Arc::clone(event))));
        all.into_values().collect()
    }

    /// Wakes all subscribers for the last time.
    pub fn close(&self) {
        lock(&self.recent).closed = true;
        self.published.notify_all();
        lock(&self.wakers).iter().for_each(|wake| wake());
    }

    /// True once the daemon ends.
    pub fn is_closed(&self) -> bool {
        lock(&self.recent).closed
    }
}

/// A reader of all events, with a cursor.
pub struct Subscription {
    events: Arc<Events>,
    cursor: u64,
}

impl Subscription {
    /// The next events, oldest first; waits for the first one up to `patience`. Empty if none came.
    pub fn next(&mut self, patience: Duration) -> Vec<Arc<Event>> {
        let recent = lock(&self.events.recent);
        let cursor = self.cursor;
        let waited = self
            .events
            .published
            .wait_timeout_while(recent, patience, |recent| recent.last <= cursor && !recent.closed);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        let found = self.events.after(cursor, RECENT);
        if let Some(last) = found.last() {
            self.cursor = last.sequence;
        }
        found
    }

    /// True once the daemon ends: no more events come.
    pub fn is_closed(&self) -> bool {
        self.events.is_closed()
    }
}

fn now() -> u64 {
    u64::try_from(Clock::System.now().nanoseconds() / 1000).unwrap_or(0)
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
