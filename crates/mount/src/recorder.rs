//! Tells the changelog what happens, before anyone is told that it is durable.
//!
//! A change is handed to the changelog when it has happened and is durable there within moments; whoever asks for durability
//! (`fsync`, synchronous writes) waits for that as well. As long as a mount is alive its repository holds a mark: if the process
//! dies before the changelog has everything, the next one finds the mark and has everything reconciled by a scan.

use gabion_platform::lock::Lockable;
use gabion_vault::changelog::{Change, Changelog, Error, Ticket, When};
use gabion_vault::policy::Policy;
use gabion_vault::private::read_text;
use gabion_vault::tree::{Stat, Tree};
use gabion_vault::world::{Clock, Nanos, SECOND};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The mark of a mount that is alive, in its repository.
pub const MARK: &str = "mounted";

/// However often a file is written, it is protected after this many quiet periods, and not before [`SHORTEST_CAP`].
const QUIET_PERIODS: Nanos = 10;
const SHORTEST_CAP: Nanos = 60 * SECOND;

/// How long to wait before an engine that fails is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// What happens to writes while the changelog does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// They wait.
    Wait,
    /// They go on; everything is reconciled by a scan when it is back.
    Continue,
}

/// How long a file is to rest before it is protected, and how urgent it is then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    quiet: Nanos,
    priority: u8,
}

/// Records changes of one mount.
pub struct Recorder {
    changelog: Arc<dyn Changelog>,
    policy: Policy,
    clock: Clock,
    outage: Outage,
    /// Something could not be recorded: when the changelog is back, everything is to be scanned.
    gap_pending: AtomicBool,
    gap_lock: Mutex<()>,
    /// Of changes whose fate is not known yet, in order.
    tickets: Mutex<VecDeque<Ticket>>,
    recorded: AtomicU64,
    mark: Mutex<Option<Mark>>,
}

struct Mark {
    repository: Tree,
    _file: Lockable,
}

impl Recorder {
    /// Records into `changelog`; `repository` keeps the mark. If one is left there by a mount that died, everything has to be
    /// reconciled: that is recorded before this returns.
    ///
    /// # Errors
    /// Another mount is alive, the mark cannot be made, or the changelog does not answer.
    pub fn start(
        changelog: Arc<dyn Changelog>,
        policy: Policy,
        clock: Clock,
        outage: Outage,
        repository: &Path,
    ) -> io::Result<Recorder> {
        let tree = Tree::open_owned(repository)?;
        let left = tree.find(MARK.as_bytes())?.is_some();
        let file = Lockable::from(tree.write_or_create(MARK.as_bytes(), 0o600)?);
        // The living hold it: another mount would take their mark away at its end.
        if file.try_lock().is_err() {
            let holder = read_text(&*file).unwrap_or_default();
            let why = format!("it is mounted by another process: {}", holder.trim_end());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        file.set_len(0)?;
        writeln!(&*file, "process {} on {}", gabion_vault::world::process(), gabion_vault::world::host())?;
        file.sync_all()?;
        tree.sync_directory(b"")?;
        let recorder = Recorder {
            changelog,
            policy,
            clock,
            outage,
            gap_pending: AtomicBool::new(false),
            gap_lock: Mutex::new(()),
            tickets: Mutex::new(VecDeque::new()),
            recorded: AtomicU64::new(0),
            mark: Mutex::new(Some(Mark { repository: tree, _file: file })),
        };
        if left {
            let gap = Change::gap(Vec::new(), When::now(recorder.clock.now(), u8::MAX));
            recorder.changelog.record(&[gap]).map_err(io::Error::other)?;
        }
        Ok(recorder)
    }

    /// Everything is recorded: takes the mark away. Whoever dies before leaves it.
    ///
    /// # Errors
    /// The mark cannot be removed.
    pub fn finish(&self) -> io::Result<()> {
        self.flush();
        if self.gap_pending.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.mark.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(mark) => mark.repository.remove(MARK.as_bytes()),
            None => Ok(()),
        }
    }

    /// What the policy says of a file.
    pub fn rest_of(&self, path: &[u8], stat: &Stat) -> Rest {
        let treatment = self.policy.decide(path, stat, self.clock.now()).treatment;
        let (quiet, priority) = treatment.map_or((0, 0), |treatment| (treatment.quiet, treatment.priority));
        Rest { quiet, priority }
    }

    /// Bytes of a file changed.
    pub fn record_write(&self, path: Vec<u8>, range: Range<u64>, rest: Rest) {
        let now = self.clock.now();
        let cap = rest.quiet.saturating_mul(QUIET_PERIODS).max(SHORTEST_CAP);
        let when = When::after_rest(now, rest.quiet, cap, rest.priority);
        self.record(Change::modify(path, range, when));
    }

    /// A file or directory got another name.
    pub fn record_rename(&self, from: Vec<u8>, to: Vec<u8>) {
        self.record(Change::rename(from, to, When::now(self.clock.now(), 0)));
    }

    /// A file or directory is gone.
    pub fn record_removal(&self, path: Vec<u8>) {
        self.record(Change::delete(path, When::now(self.clock.now(), 0)));
    }

    /// Something happened at and beneath a path, and what is not known.
    pub fn record_unknown(&self, path: Vec<u8>) {
        self.record(Change::gap(path, When::now(self.clock.now(), 0)));
    }

    /// How many changes were recorded.
    pub fn recorded(&self) -> u64 {
        self.recorded.load(Ordering::Relaxed)
    }

    fn record(&self, change: Change) {
        self.recorded.fetch_add(1, Ordering::Relaxed);
        loop {
            self.record_gap();
            match self.changelog.record_later(std::slice::from_ref(&change)) {
                Ok(ticket) => {
                    self.tickets().push_back(ticket);
                    return;
                }
                // A path too long for the log, say: waiting does not help, a scan does.
                Err(Error::Path { .. } | Error::Range { .. } | Error::Nested { .. }) => {
                    self.gap_pending.store(true, Ordering::Release);
                    return;
                }
                Err(_) if self.outage == Outage::Continue => {
                    self.gap_pending.store(true, Ordering::Release);
                    return;
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// Returns when all that was recorded before is durable.
    pub fn flush(&self) {
        loop {
            // Groups are decided in order: when this one is, all before it are.
            let recorded = self.changelog.record_later(&[]).and_then(Ticket::wait).is_ok();
            self.collect_results();
            if recorded && self.record_gap() || self.outage == Outage::Continue {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Looks what became of changes that nobody waited for. To be called now and then.
    pub fn collect_results(&self) {
        let mut tickets = self.tickets();
        while tickets.front().is_some_and(Ticket::is_decided) {
            if tickets.pop_front().is_some_and(|ticket| ticket.wait().is_err()) {
                self.gap_pending.store(true, Ordering::Release);
            }
        }
    }

    fn tickets(&self) -> MutexGuard<'_, VecDeque<Ticket>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// If something is missing from the log, says so there. False if nobody listens.
    pub fn record_gap(&self) -> bool {
        if !self.gap_pending.load(Ordering::Acquire) {
            return true;
        }
        let _one_at_a_time = self.gap_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.gap_pending.swap(false, Ordering::AcqRel) {
            return true;
        }
        let gap = Change::gap(Vec::new(), When::now(self.clock.now(), u8::MAX));
        let recorded = self.changelog.record(&[gap]).is_ok();
        if !recorded {
            self.gap_pending.store(true, Ordering::Release);
        }
        recorded
    }
}
