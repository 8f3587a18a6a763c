//! Recorder thread: takes events from the source and records changes in the changelog.

use super::batch::{Batch, View};
use super::{MonitorError, Notice, Options, Shared};
use crate::changelog::{Change, Changelog, Ticket, When};
use crate::policy::Policy;
use crate::tree::{Kind, Tree};
use crate::vault::Vault;
use crate::world::{Clock, Stopwatch, Timestamp};
use gabion_platform::event::{Event, EventSource};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// Maximum number of changes in a batch, about ten megabytes.
const MAX_BATCH: usize = 100_000;

/// Number of events within one event delay that counts as a storm.
const STORM: usize = 100;

/// Number of events that are read without delay, after a pause and after the creation of a directory: an early watch of
/// a new directory saves synthesized events.
const PROMPT_EVENTS: usize = 32;

/// Factor by which the record interval grows in a storm: each commit makes the file system write its journal, for which
/// the writers wait.
const STORM_FACTOR: u32 = 5;

/// Maximum number of changes in a batch while an earlier batch is being committed; beyond it events stay in the kernel.
const MAX_BATCH_IN_FLIGHT: usize = 200_000;

/// Target for the number of events queued in the kernel, which searches them for one to merge with at the writers'
/// expense.
const MAX_UNREAD: usize = 1000;

/// Interval at which a stop and the end of a commit are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Minimum wait.
const MIN_WAIT: Duration = Duration::from_millis(1);

/// State of the recorder thread.
pub(super) struct Recorder {
    source: Box<dyn EventSource>,
    changelog: Arc<dyn Changelog>,
    tree: Tree,
    clock: Clock,
    options: Options,
    shared: Arc<Shared>,
    batch: Batch,
    /// Present delay before events are read.
    event_delay: Duration,
    /// Number of events read since they were last read without delay.
    since_pause: usize,
    /// Number of events, and the start of counting.
    recent_events: (usize, Stopwatch),
    /// Time of the last storm.
    last_storm: Option<Stopwatch>,
    /// Time since which the source holds events back.
    held_back_since: Option<Stopwatch>,
    /// Time since which the batch is not empty.
    batch_since: Option<Stopwatch>,
    /// Batch that is being committed; events are taken meanwhile.
    in_flight: Option<InFlight>,
    /// A batch was lost: record a gap, so that a scan finds its changes.
    must_record_gap: bool,
    unwatched: usize,
}

/// Changes that are not durable yet.
struct InFlight {
    ticket: Ticket,
    changes: u64,
    due: Timestamp,
}

/// View of the present tree.
struct Now<'a> {
    tree: &'a Tree,
    clock: &'a Clock,
    policy: &'a Policy,
}

impl View for Now<'_> {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn rest(&self, path: &[u8]) -> Option<(Duration, u8)> {
        let default = &self.policy.default;
        // Different rules need the properties of the file.
        let stat = match self.policy.is_uniform() {
            false => self.tree.find(path).ok().flatten(),
            true => None,
        };
        let Some(stat) = stat else { return Some((default.quiet, default.priority)) };
        let treatment = self.policy.decide(path, &stat, self.clock.now()).treatment?;
        Some((treatment.quiet, treatment.priority))
    }

    fn rest_of_gone(&self) -> Duration {
        self.policy.default.quiet
    }

    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        let stat = self.tree.find(path).ok().flatten()?;
        Some(stat.kind == Kind::Directory)
    }
}

/// Delay before the next read of events, if `came` arrived with the delay `now`.
fn next_event_delay(now: Duration, at_most: Duration, came: usize) -> Duration {
    let next = match came {
        came if came > MAX_UNREAD => now * MAX_UNREAD as u32 / u32::try_from(came).unwrap_or(u32::MAX),
        came if came < MAX_UNREAD / 4 => now * 2,
        _ => now,
    };
    next.max(MIN_WAIT).min(at_most)
}

/// Record interval, longer after a storm.
fn record_interval(record: Duration, after_storm: Option<Duration>) -> Duration {
    if after_storm.is_some_and(|passed| passed < POLL_INTERVAL) { record * STORM_FACTOR } else { record }
}

impl Recorder {
    pub(super) fn new(
        source: Box<dyn EventSource>,
        vault: &Vault,
        options: Options,
        shared: Arc<Shared>,
    ) -> Result<Recorder, MonitorError> {
        Ok(Recorder {
            unwatched: source.unwatched().len(),
            source,
            changelog: Arc::clone(&vault.changelog),
            tree: Tree::open(&vault.root)?,
            clock: vault.clock.clone(),
            event_delay: options.event_delay,
            since_pause: 0,
            recent_events: (0, Stopwatch::start()),
            last_storm: None,
            held_back_since: None,
            options,
            shared,
            batch: Batch::default(),
            batch_since: None,
            in_flight: None,
            must_record_gap: false,
        })
    }

    /// Records until the watch stops. An error is visible to the owner in `over`.
    pub(super) fn run(mut self) -> Result<(), MonitorError> {
        let ended = self.until_stopped();
        if ended.is_err() {
            self.shared.over.store(true, Ordering::Relaxed);
        }
        ended
    }

    fn until_stopped(&mut self) -> Result<(), MonitorError> {
        let mut events = Vec::new();
        loop {
            // Checked before events are taken, so that events before the stop are still recorded.
            let stopping = self.shared.is_stopping();
            self.take(stopping, &mut events)?;
            self.report_filesystem_wide();
            self.detect_storm(events.len());
            self.add_events(&mut events);
            if stopping || self.in_flight.as_ref().is_some_and(|it| it.ticket.is_decided()) {
                self.finish_in_flight();
            }
            let full = self.batch.len() >= MAX_BATCH || self.is_record_due();
            if stopping || (full && (self.in_flight.is_none() || self.batch.len() >= MAX_BATCH_IN_FLIGHT)) {
                self.record();
            }
            if stopping {
                self.finish_in_flight();
                return Ok(());
            }
        }
    }

    /// Waits for events and takes them, together with events that were held back long enough.
    fn take(&mut self, stopping: bool, events: &mut Vec<Event>) -> Result<(), MonitorError> {
        let some = !stopping && self.source.wait(self.wait_limit())?;
        let is_delayed = some && self.since_pause >= PROMPT_EVENTS;
        if is_delayed {
            thread::sleep(self.event_delay);
        }
        self.source.drain(events)?;
        if is_delayed {
            self.event_delay = next_event_delay(self.event_delay, self.options.event_delay, events.len());
        }
        let made = |event: &Event| matches!(event, Event::Changed { directory: true, .. });
        self.since_pause = match !some || events.iter().any(made) {
            true => 0,
            false => self.since_pause.saturating_add(events.len()),
        };
        if stopping
            || self.held_back_since.as_ref().is_some_and(|since| since.elapsed() >= self.hold_back_limit())
        {
            self.source.report_deferred(events)?;
            self.held_back_since = None;
        }
        if self.held_back_since.is_none() && self.source.has_deferred() {
            self.held_back_since = Some(Stopwatch::start());
        }
        Ok(())
    }

    fn detect_storm(&mut self, events: usize) {
        self.recent_events.0 = self.recent_events.0.saturating_add(events);
        if self.recent_events.0 >= STORM {
            self.last_storm = Some(Stopwatch::start());
        }
        if self.recent_events.1.elapsed() >= self.options.event_delay {
            self.recent_events = (0, Stopwatch::start());
        }
    }

    /// Reports once that the source slows all writers of the file system.
    fn report_filesystem_wide(&self) {
        let Some(why) = self.source.filesystem_wide() else { return };
        let mut status = self.shared.status();
        if status.filesystem_wide.is_none() {
            let why = why.to_string();
            status.filesystem_wide = Some(why.clone());
            drop(status);
            (self.shared.notify)(&Notice::FilesystemWide(why));
            self.shared.call_keeper(self.clock.now());
        }
    }

    /// Maximum wait for events.
    fn wait_limit(&self) -> Duration {
        let left = |since: &Stopwatch, of: Duration| of.saturating_sub(since.elapsed());
        let held_back_since =
            self.held_back_since.as_ref().map_or(POLL_INTERVAL, |since| left(since, self.hold_back_limit()));
        let until_record = match &self.batch_since {
            // A commit in flight is checked soon.
            _ if self.in_flight.is_some() => self.options.event_delay,
            Some(since) => left(since, self.record_interval()),
            None => POLL_INTERVAL,
        };
        until_record.min(held_back_since).clamp(MIN_WAIT, POLL_INTERVAL)
    }

    fn is_record_due(&self) -> bool {
        self.batch_since.as_ref().is_some_and(|since| since.elapsed() >= self.record_interval())
    }

    /// Present record interval.
    fn record_interval(&self) -> Duration {
        record_interval(self.options.record_interval, self.last_storm.as_ref().map(Stopwatch::elapsed))
    }

    /// Maximum time for which the source may hold events back without delaying their record.
    fn hold_back_limit(&self) -> Duration {
        self.options.record_interval / 2
    }

    fn add_events(&mut self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.shared.status().events += events.len() as u64;
        }
        let policy = Arc::clone(&self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner));
        let view = Now { tree: &self.tree, clock: &self.clock, policy: &policy };
        for event in events.drain(..) {
            if let Event::Gap(loss) = event {
                self.shared.status().gaps += 1;
                (self.shared.notify)(&Notice::Gap(loss));
            }
            self.batch.add(event, &view);
        }
        // Directories that cannot be watched may hide any change.
        if self.source.unwatched().len() > self.unwatched {
            let new = &self.source.unwatched()[self.unwatched..];
            let named: Vec<String> = new
                .iter()
                .map(|(path, why)| format!("{}: {why}", crate::display_path::DisplayPath::bytes(path)))
                .collect();
            (self.shared.notify)(&Notice::Trouble(format!("not watched: {}", named.join(", "))));
        }
        self.unwatched = self.source.unwatched().len();
        if (self.batch.len() > 0 || self.held_back_since.is_some()) && self.batch_since.is_none() {
            self.batch_since = Some(Stopwatch::start());
        }
    }

    fn record(&mut self) {
        self.finish_in_flight();
        self.batch_since = None;
        let mut changes = self.batch.take();
        if std::mem::take(&mut self.must_record_gap) {
            changes = vec![Change::gap(Vec::new(), When::now(self.clock.now(), u8::MAX))];
        }
        let Some(due) = changes.iter().map(|change| change.when.due).min() else { return };
        match self.changelog.record_later(&changes) {
            Ok(ticket) => self.in_flight = Some(InFlight { ticket, changes: changes.len() as u64, due }),
            Err(error) => self.record_failed(&error),
        }
    }

    /// Waits for the batch in flight.
    fn finish_in_flight(&mut self) {
        let Some(InFlight { ticket, changes, due }) = self.in_flight.take() else { return };
        match ticket.wait() {
            Ok(last) => self.shared.acknowledged.fetch_max(last.0, Ordering::Relaxed),
            Err(error) => return self.record_failed(&error),
        };
        {
            let mut status = self.shared.status();
            status.recorded += changes;
            status.pending += changes;
            status.unrecorded = None;
        }
        (self.shared.notify)(&Notice::Recorded(changes));
        self.shared.call_keeper(due);
    }

    /// It is unknown which changes were recorded, and a rename must not be recorded twice: a gap replaces them.
    fn record_failed(&mut self, error: &crate::changelog::Error) {
        self.must_record_gap = true;
        self.batch_since = Some(Stopwatch::start());
        let why = format!("the changelog: {error}");
        self.shared.status().unrecorded = Some(why.clone());
        (self.shared.notify)(&Notice::Trouble(why));
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_UNREAD, POLL_INTERVAL, STORM_FACTOR, next_event_delay, record_interval};
    use std::time::Duration;

    /// In a storm the delay shrinks until about as many events arrive as may queue, and it recovers afterwards.
    #[test]
    fn events_gather_for_less_time_in_a_storm() {
        let at_most = Duration::from_millis(100);
        let after = |per_second: usize, mut event_delay: Duration| {
            for _ in 0..10 {
                event_delay = next_event_delay(
                    event_delay,
                    at_most,
                    per_second * event_delay.as_micros() as usize / 1_000_000,
                );
            }
            event_delay
        };
        assert_eq!(after(0, at_most), at_most);
        assert_eq!(after(9_000, at_most), at_most);
        for per_second in [20_000, 90_000, 700_000] {
            let unread = per_second * after(per_second, at_most).as_micros() as usize / 1_000_000;
            assert!((MAX_UNREAD / 4..=MAX_UNREAD).contains(&unread), "{per_second}: {unread}");
        }
        assert_eq!(after(usize::MAX / 1_000_000, at_most), Duration::from_millis(1));
        assert_eq!(after(10, Duration::from_millis(1)), at_most);
        // A delay of zero stays zero.
        assert_eq!(next_event_delay(Duration::ZERO, Duration::ZERO, 5), Duration::ZERO);
    }

    /// In a storm fewer commits are made; otherwise changes are recorded after the normal interval.
    #[test]
    fn changes_gather_for_longer_only_while_a_storm_lasts() {
        let record = Duration::from_secs(1);
        assert_eq!(record_interval(record, None), record);
        assert_eq!(record_interval(record, Some(Duration::ZERO)), record * STORM_FACTOR);
        assert_eq!(record_interval(record, Some(POLL_INTERVAL)), record);
    }
}
