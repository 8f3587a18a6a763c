//! Keeper thread: runs scans and processes entries whose quiet period has passed.

mod memory;
mod vanished;

use super::batch::rested;
use super::status::FILESYSTEM_WIDE;
use super::{Notice, Options, Scan, Shared};
use crate::catalogue::{Change as ScannedChange, Class};
use crate::changelog::{CLOCK_TOLERANCE, Change, Sequence, When};
use crate::displaced::Awaited;
use crate::guard::{self, Digest, GuardError, Held, Judgement};
use crate::mark::MarkNotice;
use crate::protect::renamed;
use crate::protect::{self, ProtectError, admission, change_at, order, purge_displaced, with_worker};
use crate::run::RunContext;
use crate::tree::Generation;
use crate::vault::Vault;
use crate::worker::{Done, GuardVerdict, Scanned, WorkerOptions};
use crate::world::{SECOND, Stopwatch, Timestamp};
use crate::write_once;
use memory::Remembered;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use vanished::{Vanished, is_absent};

/// Interval at which approvals and the policy are checked.
const POLL_INTERVAL: Duration = SECOND;

/// The pause after a scan is this multiple of its duration, so that many gaps do not cause continuous scans.
const PAUSE: u32 = 5;

/// Maximum pause after a scan.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// The changelog is polled this many times per shortest quiet period while entries are pending, within the bounds
/// below.
const POLLS_PER_QUIET: u32 = 4;
const MIN_POLL: Duration = Duration::from_millis(100);
const MAX_POLL: Duration = Duration::from_secs(5);

/// Delay after an error that is not about one file.
const RETRY_AFTER_ERROR: Duration = Duration::from_secs(10);

/// A failed file is retried after this number of quiet periods, but not before [`crate::worker::RETRY`].
const RETRY_QUIETS: u32 = 2;

/// Interval at which redundancy that was set aside is purged.
const PURGE: Duration = Duration::from_secs(600);

/// State of the keeper thread.
pub(super) struct Keeper {
    vault: Vault,
    options: Options,
    shared: Arc<Shared>,
    /// True if a recorder wakes this thread; otherwise it polls the changelog.
    is_called: bool,
    scanned: Scanned,
    /// Change-set that waits for an approval.
    held: Option<Held>,
    /// Change-set that was approved and is not carried out yet.
    approved: Option<Digest>,
    /// Approvals before the last full scan.
    approvals: BTreeSet<Digest>,
    /// End of the last full scan; start and length of the pause after the last scan.
    last_scan: Option<Stopwatch>,
    pause: (Stopwatch, Duration),
    /// Last purge of redundancy that was set aside.
    purged: Option<Stopwatch>,
    policy: Option<Generation>,
    /// Paths that need a scan.
    for_scan: Vec<Vec<u8>>,
    /// Files that scans did not find.
    vanished: Vanished,
    wants_scan: bool,
    /// Sequence number before the last full scan that the guard passed.
    passed: Sequence,
    /// Identity of the changelog's server, to detect that it lost entries.
    remembered: Remembered,
    /// Last value of [`Status::filesystem_wide`](super::Status::filesystem_wide) that was written to the catalogue.
    noted: Option<Option<String>>,
}

impl Keeper {
    pub(super) fn new(vault: Vault, options: Options, shared: Arc<Shared>, is_called: bool) -> Keeper {
        Keeper {
            policy: vault.policy_version().ok().flatten(),
            vault,
            options,
            shared,
            is_called,
            scanned: Scanned::default(),
            held: None,
            approved: None,
            approvals: BTreeSet::new(),
            last_scan: None,
            pause: (Stopwatch::start(), Duration::ZERO),
            purged: None,
            for_scan: Vec::new(),
            vanished: Vanished::default(),
            wants_scan: true,
            passed: Sequence::default(),
            remembered: Remembered::default(),
            noted: None,
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.is_stopping() {
            self.note_filesystem_wide();
            if self.shared.is_suspended() {
                self.wait_suspended();
                continue;
            }
            let next = match self.turn() {
                Ok(next) => {
                    self.shared.status().trouble = None;
                    next
                }
                Err(ProtectError::Scan(crate::scan::ScanError::Stopped)) => continue,
                Err(error) => {
                    let why = error.to_string();
                    self.shared.status().trouble = Some(why.clone());
                    (self.shared.notify)(&Notice::Trouble(why));
                    Some(self.vault.clock.now() + RETRY_AFTER_ERROR)
                }
            };
            self.sleep(next);
        }
        // The watch ends. A note that remains is removed by the next watch.
        let _ = self.vault.catalogue.set_note_here(FILESYSTEM_WIDE, None);
    }

    /// Stores the reason for a filesystem-wide watch in the catalogue, for `gabion status`.
    fn note_filesystem_wide(&mut self) {
        let filesystem_wide = self.shared.status().filesystem_wide.clone();
        let is_noted = self.noted.as_ref() == Some(&filesystem_wide);
        let catalogue = &self.vault.catalogue;
        if !is_noted && catalogue.set_note_here(FILESYSTEM_WIDE, filesystem_wide.as_deref()).is_ok() {
            self.noted = Some(filesystem_wide);
        }
    }

    /// Runs one turn. Returns the time of the next one, unless woken before.
    fn turn(&mut self) -> Result<Option<Timestamp>, ProtectError> {
        let is_due = {
            let mut due = self.shared.due();
            let now = self.vault.clock.now();
            due.take_if(|due| *due <= now).is_some()
        };
        // Another process may have accepted a changed write-once file; it cannot wake this thread.
        let is_due = is_due || (self.held.is_none() && self.vault.catalogue.has_accepted()?);
        self.follow_policy();
        self.check_memory(is_due)?;
        // Without due work an error can wait.
        let lost = self.vault.give_up_lost_monitors().unwrap_or_default();
        let is_due = is_due || !lost.is_empty();
        if !lost.is_empty() {
            (self.shared.notify)(&Notice::Trouble(MarkNotice::Lost(lost).to_string()));
        }
        match self.vault.follow().map_err(Box::new) {
            Err(error) if is_due => return Err(error.into()),
            // Without due work the error can wait.
            _ => {}
        }
        let old = self.last_scan.is_none_or(|since| since.elapsed() >= self.options.rescan);
        let may_scan = self.pause.0.elapsed() >= self.pause.1;
        // The held change-set may have been reverted or may have changed.
        let held = self.held.is_some() && is_due && may_scan;
        let all = self.wants_scan || old || held || self.is_approved()?;
        if all {
            self.scan_all()?;
        } else if !self.for_scan.is_empty() && may_scan {
            self.scan_parts()?;
        } else if !is_due && !self.vanished.is_any_late() {
            // No work during quiet periods, so that writers are not disturbed.
            return Ok(None);
        }
        self.record_gone()?;
        // After a full scan that the guard passed no further check is needed.
        let mut is_guarded = all || self.vault.changelog.sequence()? == self.passed;
        if !is_guarded && self.held.is_none() && admission(&self.vault, GuardVerdict::Stale)?.is_exceeded() {
            self.scan_all()?;
            is_guarded = true;
        }
        let done = self.work(is_guarded)?;
        let pending = self.vault.changelog.pending()?;
        {
            let mut status = self.shared.status();
            (status.pending, status.oldest) = (pending.entries(), pending.oldest);
        }
        if self.purged.is_none_or(|since| since.elapsed() >= PURGE) {
            let settled = pending.entries() == 0 && self.held.is_none() && done.for_scan.is_empty();
            purge_displaced(&self.vault, if settled { Awaited::Perhaps } else { Awaited::Likely });
            self.purged = Some(Stopwatch::start());
        }
        self.for_scan.extend(done.for_scan);
        self.vanished.seek(done.vanished, false);
        self.for_scan.sort();
        self.for_scan.dedup();
        let now = self.vault.clock.now();
        let again = if self.for_scan.is_empty() && !done.refused { self.poll_delay() } else { MIN_POLL };
        let must_poll = pending.entries() > 0 || !self.is_called;
        Ok(must_poll.then(|| now + again))
    }

    fn sleep(&self, next: Option<Timestamp>) {
        let mut due = self.shared.due();
        if let Some(next) = next {
            *due = Some(due.map_or(next, |due| due.min(next)));
        }
        let slept = Stopwatch::start();
        loop {
            let now = self.vault.clock.now();
            let waited = slept.elapsed();
            if self.shared.is_stopping() || due.is_some_and(|due| due <= now) || waited >= POLL_INTERVAL {
                return;
            }
            let left = due
                .map_or(POLL_INTERVAL, |due| due.since(now))
                .clamp(Duration::from_millis(1), POLL_INTERVAL);
            due = self.shared.wake.wait_timeout(due, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits while suspended, regardless of due entries.
    fn wait_suspended(&self) {
        let due = self.shared.due();
        if self.shared.is_suspended() && !self.shared.is_stopping() {
            drop(self.shared.wake.wait_timeout(due, POLL_INTERVAL));
        }
    }

    /// Delay until the changelog is polled again while entries are pending.
    fn poll_delay(&self) -> Duration {
        (self.shortest_quiet() / POLLS_PER_QUIET).clamp(MIN_POLL, MAX_POLL)
    }

    fn shortest_quiet(&self) -> Duration {
        self.vault.policy.shortest_quiet()
    }

    /// Loads the policy if it was changed. A scan then applies it to existing files.
    fn follow_policy(&mut self) {
        let Ok(version) = self.vault.policy_version() else { return };
        if version == self.policy {
            return;
        }
        match (self.vault.read_policy(), self.vault.read_policy()) {
            (Ok(policy), Ok(same)) => {
                self.vault.policy = policy;
                *self.shared.policy.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(same);
                self.policy = version;
                self.wants_scan = true;
                (self.shared.notify)(&Notice::Policy);
            }
            // The file may be partly written; the old policy stays in force.
            (Err(error), _) | (_, Err(error)) => {
                self.policy = version;
                (self.shared.notify)(&Notice::Trouble(format!("the policy is not changed: {error}")));
            }
        }
    }

    /// True if a change-set was approved since the last full scan, while changes are held.
    fn is_approved(&self) -> Result<bool, GuardError> {
        Ok(self.held.is_some() && !guard::approvals(&self.vault.repository)?.is_subset(&self.approvals))
    }

    fn scan_all(&mut self) -> Result<(), ProtectError> {
        self.wants_scan = false;
        self.for_scan.clear();
        if let Err(error) = self.scan(vec![Vec::new()]) {
            self.wants_scan = true;
            return Err(error);
        }
        self.last_scan = Some(Stopwatch::start());
        self.shared.status().last_scan = Some(self.vault.clock.now());
        Ok(())
    }

    fn scan_parts(&mut self) -> Result<(), ProtectError> {
        let parts = std::mem::take(&mut self.for_scan);
        // The root contains all parts.
        if parts.iter().any(Vec::is_empty) {
            return self.scan_all();
        }
        let scanned = self.scan(parts.clone());
        if scanned.is_err() {
            self.for_scan.extend(parts);
        }
        scanned
    }

    /// Scans parts of the tree and records the differences.
    fn scan(&mut self, within: Vec<Vec<u8>>) -> Result<(), ProtectError> {
        let whole = within.iter().any(Vec::is_empty);
        let began = Stopwatch::start();
        let upto = self.vault.changelog.sequence()?;
        let shared = Arc::clone(&self.shared);
        let stopped = || shared.is_suspended();
        let approvals = guard::approvals(&self.vault.repository).map_err(GuardError::Io)?;
        let seen = protect::scan_within(&self.vault, &within, self.context(&stopped))?;
        write_once::note(&self.vault.catalogue, &seen.write_once)?;
        let judgement = protect::judge(&self.vault, &seen)?;
        let held = judgement.held().cloned();
        if judgement != Judgement::Passed && !whole {
            // An approval covers the complete change-set, so a full scan is needed.
            return self.scan_all();
        }
        let approved = judgement.approved().is_some();
        // A part without changes says nothing about the rest.
        if whole {
            if judgement == Judgement::Passed {
                // Those were for change-sets of before.
                guard::forget_approvals(&self.vault.repository, &approvals).map_err(GuardError::Io)?;
            }
            self.approvals = approvals;
            self.approved = judgement.approved().cloned();
            self.passed = if held.is_none() { upto } else { Sequence::default() };
            self.report_held(held);
        }
        // Files that were renamed over others while no watch was running.
        if self.held.is_none() {
            renamed::follow(&self.vault)?;
        }
        self.record_found(approved)?;
        self.seek_vanished(whole, approved)?;
        self.pause = (Stopwatch::start(), (began.elapsed() * PAUSE).min(MAX_PAUSE));
        self.shared.status().scans += 1;
        let scan = Scan {
            within: within.clone(),
            files: seen.files,
            changes: seen.changes.files(),
            unreadable: seen.unreadable,
            write_once: seen.write_once,
            seconds: began.seconds(),
        };
        self.scanned.note(upto, within);
        (self.shared.notify)(&Notice::Scanned(scan));
        Ok(())
    }

    fn report_held(&mut self, held: Option<Held>) {
        match (&self.held, &held) {
            (Some(_), None) => (self.shared.notify)(&Notice::Released),
            (was, Some(now)) if was.as_ref() != Some(now) => (self.shared.notify)(&Notice::Held(now.clone())),
            _ => {}
        }
        self.shared.status().held.clone_from(&held);
        self.held = held;
    }

    /// Records the change-set of the last scan. An approved one is recorded completely; otherwise missing files are
    /// left out.
    fn record_found(&self, approved: bool) -> Result<(), ProtectError> {
        let when = |found: &ScannedChange| match approved {
            true => When::now(self.vault.clock.now(), found.priority),
            false => self.when(found),
        };
        let is_part = |found: &&ScannedChange| {
            approved || found.class != Class::Removed || !is_absent(&*self.vault.storage, &found.path)
        };
        for class in order(self.held.is_some()) {
            self.vault.catalogue.each_change(class, |page| -> Result<(), ProtectError> {
                let found = page.iter().filter(is_part);
                let changes: Vec<_> = found.map(|found| change_at(found, when(found))).collect();
                self.vault.changelog.record(&changes)?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Due time of a change: at once if the quiet period passed before the scan.
    fn when(&self, found: &ScannedChange) -> When {
        let stat = self.vault.storage.find(&found.path);
        // After the file was looked at, which may have been written a moment before.
        let now = self.vault.clock.now();
        let at_once = |priority| When::now(now, priority);
        if matches!(found.class, Class::Removed | Class::Moved) {
            return at_once(u8::MAX);
        }
        let Ok(Some(stat)) = stat else { return at_once(found.priority) };
        let decision = self.vault.policy.decide(&found.path, &stat, now);
        let quiet = decision.treatment.map_or(Duration::ZERO, |treatment| treatment.quiet);
        match last_change([stat.mtime, stat.ctime], now) + quiet {
            due if due > now => When { due, ..rested(now, quiet, found.priority) },
            _ => at_once(found.priority),
        }
    }

    fn context<'a>(&self, stopped: &'a (dyn Fn() -> bool + Sync)) -> RunContext<'a> {
        RunContext { threads: self.options.threads, rate: self.options.rate, progress: &|_| {}, stopped }
    }

    /// Processes due entries. `is_guarded`: the guard has checked all of them.
    fn work(&mut self, is_guarded: bool) -> Result<Done, ProtectError> {
        let shared = Arc::clone(&self.shared);
        let stopped = || shared.is_suspended();
        let retry = self.shortest_quiet().saturating_mul(RETRY_QUIETS).max(crate::worker::RETRY);
        let hold = self.held.is_some();
        let approved = self.approved.is_some();
        let verdict = match (is_guarded, approved) {
            (_, true) => GuardVerdict::Approved,
            (true, false) => GuardVerdict::Passed,
            (false, false) => GuardVerdict::Stale,
        };
        let admission = (!hold).then(|| admission(&self.vault, verdict)).transpose()?;
        let options =
            WorkerOptions { hold, retry, live_events: true, approved, ..WorkerOptions::new(&self.scanned) };
        let done = with_worker(&self.vault, self.context(&stopped), options, |worker| {
            worker.drain(admission.as_ref())
        })?;
        // The approval was for one change-set, which has been carried out.
        if let Some(approved) = self.approved.take() {
            let Vault { repository, catalogue, policy, clock, .. } = &self.vault;
            let now = clock.now();
            guard::clear(repository, catalogue, &policy.guard, now, Some(&approved), &self.approvals)?;
        }
        self.record_other_names(&done.inodes)?;
        if done.is_something() {
            self.shared.status().add(&done);
            (self.shared.notify)(&Notice::Worked(Box::new(done.clone())));
        }
        Ok(done)
    }

    /// Records the other hard links of inodes that changed or lost a link, for which there are no events.
    fn record_other_names(&self, inodes: &[u64]) -> Result<(), ProtectError> {
        let now = self.vault.clock.now();
        let mut changes = Vec::new();
        for &inode in inodes {
            for (path, known) in self.vault.catalogue.names_of(inode)? {
                let stat = self.vault.storage.find(&path).ok().flatten();
                if stat.is_some_and(|stat| stat.inode == inode && stat.generation() != known) {
                    changes
                        .push(Change::modify_whole(path, When::now(now, self.vault.policy.default.priority)));
                }
            }
        }
        if !changes.is_empty() {
            self.vault.changelog.record(&changes)?;
            self.shared.call_keeper(now);
        }
        Ok(())
    }
}

/// Time of the last change of a file by its timestamps. One in the future is ignored, otherwise the quiet period would
/// restart with every scan; but the clock of a file server may be a little ahead.
fn last_change(times: [Timestamp; 2], now: Timestamp) -> Timestamp {
    let past = times.into_iter().filter(|&time| time <= now + CLOCK_TOLERANCE);
    past.max().map_or(Timestamp::MIN, |time| time.min(now))
}

#[cfg(test)]
mod tests {
    use super::{CLOCK_TOLERANCE, Timestamp, last_change};
    use std::time::Duration;

    /// Regression: a file that was written while a scan looked at it did not rest at all.
    #[test]
    fn the_last_change_is_not_in_the_future() {
        let now = Timestamp::from_seconds(1_700_000_000);
        assert_eq!(
            last_change([now - Duration::from_nanos(5), now - Duration::from_nanos(9)], now),
            now - Duration::from_nanos(5)
        );
        assert_eq!(last_change([now - Duration::from_nanos(9), now + Duration::from_nanos(1)], now), now);
        assert_eq!(
            last_change(
                [now - Duration::from_nanos(9), now + CLOCK_TOLERANCE + Duration::from_nanos(1)],
                now
            ),
            now - Duration::from_nanos(9)
        );
        assert_eq!(last_change([Timestamp::MAX; 2], now), Timestamp::MIN);
    }
}
