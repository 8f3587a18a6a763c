//! Takes events and records what they mean.

use super::batch::{Batch, View};
use super::{MonitorError, Notice, Options, Shared};
use crate::changelog::{Change, Changelog, Ticket, When};
use crate::policy::Policy;
use crate::tree::{Kind, Tree};
use crate::vault::Vault;
use crate::world::{Clock, Nanos, Stopwatch};
use gabion_platform::event::{Event, EventSource};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

/// Most changes that are gathered before they are recorded: some ten megabytes.
const MAX_GATHERED: usize = 100_000;

/// Events within the time that they are left to gather that are a storm.
const STORM: usize = 100;

/// Events that are read as they come, after a moment without any and after the making of a directory: the sooner that is read, the
/// less has to be told of what is in it.
const AT_ONCE: usize = 32;

/// How many times longer changes gather in a storm: a commit of ours has the file system write its journal, and whoever makes so many
/// files waits for that.
const LONGER: u32 = 5;

/// Most changes that are gathered while others are on their way to the disk; then events wait in the kernel.
const MAX_WAITING: usize = 200_000;

/// Events that may gather in the kernel: it searches those that wait for one to merge with, at the expense of who writes.
const MAX_UNREAD: usize = 1000;

/// How often to look whether someone wants us to stop, or changes are durable.
const LOOK: Duration = Duration::from_millis(250);

/// The shortest time that is waited.
const SOON: Duration = Duration::from_millis(1);

/// The thread that records.
pub(super) struct Recorder {
    source: Box<dyn EventSource>,
    changelog: Arc<dyn Changelog>,
    tree: Tree,
    clock: Clock,
    options: Options,
    shared: Arc<Shared>,
    batch: Batch,
    /// How long events are left to gather in the kernel, as often as they come now.
    gather: Duration,
    /// Events that were read since they were last to be read as they come.
    since_rest: usize,
    /// Events that came, and since when they are counted.
    came: (usize, Stopwatch),
    /// Since a storm was seen last.
    stormed: Option<Stopwatch>,
    /// Since when the source keeps something back.
    kept_back: Option<Stopwatch>,
    /// Since when something is gathered.
    gathering: Option<Stopwatch>,
    /// What is on its way to the disk; events are taken meanwhile.
    in_flight: Option<InFlight>,
    /// What could not be recorded is forgotten; a scan is owed for it.
    owes_gap: bool,
    unwatched: usize,
}

/// Changes that are not durable yet.
struct InFlight {
    ticket: Ticket,
    changes: u64,
    due: Nanos,
}

/// The tree as it is while events are read.
struct Now<'a> {
    tree: &'a Tree,
    clock: &'a Clock,
    policy: &'a Policy,
}

impl View for Now<'_> {
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn rest(&self, path: &[u8]) -> Option<(Nanos, u8)> {
        let default = &self.policy.default;
        // Where rules differ, they differ by what the file is.
        let stat = match self.policy.rules().next() {
            Some(_) => self.tree.find(path).ok().flatten(),
            None => None,
        };
        let Some(stat) = stat else { return Some((default.quiet, default.priority)) };
        let treatment = self.policy.decide(path, &stat, self.clock.now()).treatment?;
        Some((treatment.quiet, treatment.priority))
    }

    fn rest_of_gone(&self) -> Nanos {
        self.policy.default.quiet
    }

    fn is_directory(&self, path: &[u8]) -> Option<bool> {
        let stat = self.tree.find(path).ok().flatten()?;
        Some(stat.kind == Kind::Directory)
    }
}

/// How long to let events gather when so many came in `now`; never longer than `at_most`.
fn next_gather(now: Duration, at_most: Duration, came: usize) -> Duration {
    let next = match came {
        came if came > MAX_UNREAD => now * MAX_UNREAD as u32 / u32::try_from(came).unwrap_or(u32::MAX),
        came if came < MAX_UNREAD / 4 => now * 2,
        _ => now,
    };
    next.max(SOON).min(at_most)
}

/// How long to gather changes so long after a storm.
fn ripening(record: Duration, after_storm: Option<Duration>) -> Duration {
    if after_storm.is_some_and(|passed| passed < LOOK) { record * LONGER } else { record }
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
            gather: options.gather,
            since_rest: 0,
            came: (0, Stopwatch::start()),
            stormed: None,
            kept_back: None,
            options,
            shared,
            batch: Batch::default(),
            gathering: None,
            in_flight: None,
            owes_gap: false,
        })
    }

    /// Records until someone wants it to stop. If it ends by itself, the owner can see that.
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
            // Asked before events are taken: what happened before the wish to stop is still recorded.
            let stopping = self.shared.is_stopping();
            self.take(stopping, &mut events)?;
            self.tell_of_width();
            self.look_for_storm(events.len());
            self.gather(&mut events);
            if stopping || self.in_flight.as_ref().is_some_and(|it| it.ticket.is_decided()) {
                self.settle();
            }
            let full = self.batch.len() >= MAX_GATHERED || self.is_ripe();
            if stopping || (full && (self.in_flight.is_none() || self.batch.len() >= MAX_WAITING)) {
                self.record();
            }
            if stopping {
                self.settle();
                return Ok(());
            }
        }
    }

    /// Waits for events and takes them, with what was kept back long enough.
    fn take(&mut self, stopping: bool, events: &mut Vec<Event>) -> Result<(), MonitorError> {
        let some = !stopping && self.source.wait(self.patience())?;
        let gathered = some && self.since_rest >= AT_ONCE;
        if gathered {
            thread::sleep(self.gather);
        }
        self.source.drain(events)?;
        if gathered {
            self.gather = next_gather(self.gather, self.options.gather, events.len());
        }
        let made = |event: &Event| matches!(event, Event::Changed { directory: true, .. });
        self.since_rest = match !some || events.iter().any(made) {
            true => 0,
            false => self.since_rest.saturating_add(events.len()),
        };
        if stopping || self.kept_back.as_ref().is_some_and(|since| since.elapsed() >= self.keeping()) {
            self.source.report_deferred(events)?;
            self.kept_back = None;
        }
        if self.kept_back.is_none() && self.source.has_deferred() {
            self.kept_back = Some(Stopwatch::start());
        }
        Ok(())
    }

    fn look_for_storm(&mut self, events: usize) {
        self.came.0 = self.came.0.saturating_add(events);
        if self.came.0 >= STORM {
            self.stormed = Some(Stopwatch::start());
        }
        if self.came.1.elapsed() >= self.options.gather {
            self.came = (0, Stopwatch::start());
        }
    }

    /// Says once that the source costs those who write more than it has to.
    fn tell_of_width(&self) {
        let Some(why) = self.source.filesystem_wide() else { return };
        let mut status = self.shared.status();
        if status.wide.is_none() {
            let why = why.to_string();
            status.wide = Some(why.clone());
            drop(status);
            (self.shared.tell)(&Notice::Wide(why));
            self.shared.call_keeper(self.clock.now());
        }
    }

    /// How long events may be waited for.
    fn patience(&self) -> Duration {
        let left = |since: &Stopwatch, of: Duration| of.saturating_sub(since.elapsed());
        let kept_back = self.kept_back.as_ref().map_or(LOOK, |since| left(since, self.keeping()));
        let gathered = match &self.gathering {
            // What waits for a commit is looked at soon.
            _ if self.in_flight.is_some() => self.options.gather,
            Some(since) => left(since, self.ripening()),
            None => LOOK,
        };
        gathered.min(kept_back).clamp(SOON, LOOK)
    }

    fn is_ripe(&self) -> bool {
        self.gathering.as_ref().is_some_and(|since| since.elapsed() >= self.ripening())
    }

    /// How long changes are gathered, as often as events come now.
    fn ripening(&self) -> Duration {
        ripening(self.options.record, self.stormed.as_ref().map(Stopwatch::elapsed))
    }

    /// How long a source may keep things back: they are to be recorded no later than if they had been told.
    fn keeping(&self) -> Duration {
        self.options.record / 2
    }

    fn gather(&mut self, events: &mut Vec<Event>) {
        if !events.is_empty() {
            self.shared.status().events += events.len() as u64;
        }
        let policy = Arc::clone(&self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner));
        let view = Now { tree: &self.tree, clock: &self.clock, policy: &policy };
        for event in events.drain(..) {
            if let Event::Gap(loss) = event {
                self.shared.status().gaps += 1;
                (self.shared.tell)(&Notice::Gap(loss));
            }
            self.batch.add(event, &view);
        }
        // Directories that cannot be watched may hide anything.
        if self.source.unwatched().len() > self.unwatched {
            let new = &self.source.unwatched()[self.unwatched..];
            let named: Vec<String> = new
                .iter()
                .map(|(path, why)| format!("{}: {why}", crate::shown::Shown::bytes(path)))
                .collect();
            (self.shared.tell)(&Notice::Trouble(format!("not watched: {}", named.join(", "))));
        }
        self.unwatched = self.source.unwatched().len();
        if (self.batch.len() > 0 || self.kept_back.is_some()) && self.gathering.is_none() {
            self.gathering = Some(Stopwatch::start());
        }
    }

    fn record(&mut self) {
        self.settle();
        self.gathering = None;
        let mut changes = self.batch.take();
        if std::mem::take(&mut self.owes_gap) {
            changes = vec![Change::gap(Vec::new(), When::now(self.clock.now(), u8::MAX))];
        }
        let Some(due) = changes.iter().map(|change| change.when.due).min() else { return };
        match self.changelog.record_later(&changes) {
            Ok(ticket) => self.in_flight = Some(InFlight { ticket, changes: changes.len() as u64, due }),
            Err(error) => self.lost(&error),
        }
    }

    /// Waits for what is on its way.
    fn settle(&mut self) {
        let Some(InFlight { ticket, changes, due }) = self.in_flight.take() else { return };
        match ticket.wait() {
            Ok(last) => self.shared.acknowledged.fetch_max(last, Ordering::Relaxed),
            Err(error) => return self.lost(&error),
        };
        {
            let mut status = self.shared.status();
            status.recorded += changes;
            status.pending += changes;
            status.unrecorded = None;
        }
        (self.shared.tell)(&Notice::Recorded(changes));
        self.shared.call_keeper(due);
    }

    /// Nobody knows what of it was recorded, and a rename must not be recorded twice.
    fn lost(&mut self, error: &crate::changelog::Error) {
        self.owes_gap = true;
        self.gathering = Some(Stopwatch::start());
        let why = format!("the changelog: {error}");
        self.shared.status().unrecorded = Some(why.clone());
        (self.shared.tell)(&Notice::Trouble(why));
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGER, LOOK, MAX_UNREAD, next_gather, ripening};
    use std::time::Duration;

    /// In a storm as many events are read at once as may gather, and when it is over all is as before.
    #[test]
    fn events_gather_for_less_time_in_a_storm() {
        let at_most = Duration::from_millis(100);
        let after = |per_second: usize, mut gather: Duration| {
            for _ in 0..10 {
                gather = next_gather(gather, at_most, per_second * gather.as_micros() as usize / 1_000_000);
            }
            gather
        };
        assert_eq!(after(0, at_most), at_most);
        assert_eq!(after(9_000, at_most), at_most);
        for per_second in [20_000, 90_000, 700_000] {
            let unread = per_second * after(per_second, at_most).as_micros() as usize / 1_000_000;
            assert!((MAX_UNREAD / 4..=MAX_UNREAD).contains(&unread), "{per_second}: {unread}");
        }
        assert_eq!(after(usize::MAX / 1_000_000, at_most), Duration::from_millis(1));
        assert_eq!(after(10, Duration::from_millis(1)), at_most);
        // Whoever wants no gathering gets none.
        assert_eq!(next_gather(Duration::ZERO, Duration::ZERO, 5), Duration::ZERO);
    }

    /// Whoever makes many files waits for fewer commits, and nobody waits long for his few.
    #[test]
    fn changes_gather_for_longer_only_while_a_storm_lasts() {
        let record = Duration::from_secs(1);
        assert_eq!(ripening(record, None), record);
        assert_eq!(ripening(record, Some(Duration::ZERO)), record * LONGER);
        assert_eq!(ripening(record, Some(LOOK)), record);
    }
}
