//! Recorder of a mount: writes every change of the mounted files to the changelog.
//!
//! Entries are handed over asynchronously and are durable within moments; `fsync` and synchronous writes wait until
//! they are ([`flush`](Recorder::flush)). A mark is left while a mount runs. If the process dies before all entries
//! are durable, somebody finds the mark and records a gap for the whole tree, so that a scan finds the missing changes:
//! with the changelog of one host the next mount, since the mark is a file in the repository; in a deployment of
//! several hosts any process, since each mount has a mark on the server ([`gabion_vault::mark`]).

use gabion_platform::lock::Lockable;
use gabion_platform::sync;
use gabion_vault::changelog::monitors::MonitorKind;
use gabion_vault::changelog::windows::Tick;
use gabion_vault::changelog::{Change, Changelog, Error, Memory, Span, Ticket, When, Window};
use gabion_vault::mark::{Mark, OnNotice, Pulse};
use gabion_vault::policy::Policy;
use gabion_vault::private::read_text;
use gabion_vault::tree::{Stat, Tree};
use gabion_vault::vault::MOUNTED;
use gabion_vault::world::{Clock, Timestamp};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

/// A file that is written without pause becomes due after this many quiet periods, but not before [`SHORTEST_CAP`].
const QUIET_PERIODS: u32 = 10;
const SHORTEST_CAP: Duration = Duration::from_secs(60);

/// Range recorded for a change of attributes only, so that a worker examines the file.
pub(crate) const NO_CONTENT: Range<u64> = 0..1;

/// Pause before a failed changelog is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Behaviour of writes while the changelog is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Writes block until it is available again.
    Wait,
    /// Writes go on; a gap is recorded later, and a scan finds what changed.
    Continue,
}

/// Quiet period of a file before it becomes due, and its priority then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    quiet: Duration,
    priority: u8,
}

/// Records the changes of one mount.
pub struct Recorder {
    changelog: Arc<dyn Changelog>,
    policy: Policy,
    clock: Clock,
    outage: Outage,
    /// A change could not be recorded: a gap for the whole tree has to be.
    gap_pending: AtomicBool,
    gap_lock: Mutex<()>,
    /// Entries whose result is not known yet, in order.
    tickets: Mutex<VecDeque<Ticket>>,
    recorded: AtomicU64,
    /// The mark file of the changelog of one host.
    file: Mutex<Option<MarkFile>>,
    /// The mark on the server of a deployment.
    mark: RwLock<Option<Mark>>,
    /// What the server of a deployment said last of its memory.
    memory: Mutex<Option<Memory>>,
}

/// Versions that go with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versions {
    /// They are not known.
    Unknown,
    /// Nothing else was written between them.
    Span(Span),
    /// They were seen before and after it was written.
    Window(Window),
}

struct MarkFile {
    repository: Tree,
    file: Lockable,
}

impl MarkFile {
    /// Creates and locks the file. Also says whether a dead mount left one.
    fn begin(repository: Tree) -> io::Result<(MarkFile, bool)> {
        let left = repository.find(MOUNTED.as_bytes())?.is_some();
        let file = Lockable::from(repository.write_or_create(MOUNTED.as_bytes(), 0o600)?);
        // A running mount holds the lock; this one would remove its mark at the end.
        if file.try_lock().is_err() {
            let holder = read_text(&*file).unwrap_or_default();
            let why = format!("it is mounted by another process: {}", holder.trim_end());
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        Ok((MarkFile { repository, file }, left))
    }

    fn write(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        writeln!(
            &*self.file,
            "process {} on {}",
            gabion_vault::world::process(),
            gabion_vault::world::host()
        )?;
        self.file.sync_all()?;
        self.repository.sync_directory(b"")
    }

    fn remove(&self) -> io::Result<()> {
        self.repository.remove(MOUNTED.as_bytes())
    }
}

impl Recorder {
    /// Records into `changelog`, with a mark on its server or in `repository`. If a dead mount left its mark there, a
    /// gap for the whole tree is recorded first. `notice` hears of marks on the server.
    ///
    /// # Errors
    /// Another mount is running where the changelog is for one host, the mark cannot be created, or the changelog does
    /// not answer.
    pub fn start(
        changelog: Arc<dyn Changelog>,
        policy: Policy,
        clock: Clock,
        outage: Outage,
        repository: &Path,
        notice: OnNotice,
    ) -> io::Result<Recorder> {
        let tree = Tree::open_owned(repository)?;
        let mark = Mark::begin(&changelog, MonitorKind::Mount, &clock, notice)?;
        let recorder = Recorder {
            changelog,
            policy,
            clock,
            outage,
            gap_pending: AtomicBool::new(false),
            gap_lock: Mutex::new(()),
            tickets: Mutex::new(VecDeque::new()),
            recorded: AtomicU64::new(0),
            file: Mutex::new(None),
            mark: RwLock::new(mark),
            memory: Mutex::default(),
        };
        match recorder.begin(tree) {
            Ok(()) => Ok(recorder),
            Err(error) => match recorder.remove_mark() {
                Ok(()) => Err(error),
                Err(why) => {
                    Err(io::Error::other(format!("{error}; its mark stays, and will be lost: {why}")))
                }
            },
        }
    }

    /// Takes the mark file, if there is to be one, and records what a dead mount may have left.
    fn begin(&self, repository: Tree) -> io::Result<()> {
        *sync::lock(&self.memory) = self.changelog.memory().map_err(io::Error::other)?;
        if self.outage == Outage::Continue
            && let (Some(windows), Some(mark)) = (self.changelog.windows(), &*sync::read(&self.mark))
        {
            windows.distrust(mark.monitor()).map_err(io::Error::other)?;
        }
        let has_mark = sync::read(&self.mark).is_some();
        // One that was left when the changelog moved to a server.
        if has_mark && repository.find(MOUNTED.as_bytes())?.is_none() {
            return Ok(());
        }
        let (file, left) = MarkFile::begin(repository)?;
        if !has_mark {
            file.write()?;
        }
        if left {
            let gap = Change::gap(Vec::new(), When::now(self.clock.now(), u8::MAX));
            self.changelog.record(&[gap]).map_err(io::Error::other)?;
        }
        if has_mark {
            return file.remove();
        }
        *sync::lock(&self.file) = Some(file);
        Ok(())
    }

    /// Tells how long the server of a deployment has not answered.
    pub fn pulse(&self) -> Option<Pulse> {
        sync::read(&self.mark).as_ref().map(Mark::pulse)
    }

    /// Removes the mark of a mount that never began.
    ///
    /// # Errors
    /// The mark cannot be removed.
    pub fn withdraw(&self) -> io::Result<()> {
        self.remove_mark()?;
        self.remove_file()
    }

    fn remove_mark(&self) -> io::Result<()> {
        let mark = sync::write(&self.mark).take();
        mark.map_or(Ok(()), Mark::finish).map_err(io::Error::other)
    }

    /// Flushes, and removes the mark if every change is recorded.
    ///
    /// # Errors
    /// The mark cannot be removed.
    pub fn finish(&self) -> io::Result<()> {
        self.flush();
        if self.gap_pending.load(Ordering::Acquire) {
            return Ok(());
        }
        self.remove_mark()?;
        self.remove_file()
    }

    fn remove_file(&self) -> io::Result<()> {
        sync::lock(&self.file).take().map_or(Ok(()), |file| file.remove())
    }

    /// True if other hosts record changes of the same files.
    pub(crate) fn is_shared(&self) -> bool {
        self.changelog.monitors().is_some()
    }

    /// Tells the server that everything is recorded that was written before a tick was heard of, if it is. The present
    /// tick; none if the server does not answer.
    pub(crate) fn cover(&self, covered: Option<Tick>) -> Option<Tick> {
        // Not under the lock: the server may be away, and this mount end.
        let monitor = sync::read(&self.mark).as_ref()?.monitor().clone();
        self.changelog.windows()?.cover(&monitor, covered).ok()
    }

    /// Whether everything that was recorded before is on the server, also if it came back with older files meanwhile.
    /// What it lacks is recorded as a gap.
    pub(crate) fn is_complete(&self) -> bool {
        if self.outage == Outage::Continue || self.changelog.record_later(&[]).and_then(Ticket::wait).is_err()
        {
            return false;
        }
        self.collect_results();
        let Ok(now) = self.changelog.memory() else { return false };
        let said = std::mem::replace(&mut *sync::lock(&self.memory), now.clone());
        if said.is_some_and(|said| now.is_none_or(|now| said.is_lost(&now))) {
            self.gap_pending.store(true, Ordering::Release);
        }
        // Another thread may be recording a gap, and fail.
        drop(sync::lock(&self.gap_lock));
        self.record_gap()
    }

    /// Waits until a change may be made: while the mark on the server may be gone, nobody would notice that this
    /// process died with changes that are not recorded.
    pub(crate) fn wait_for_mark(&self) {
        if self.outage == Outage::Wait
            && let Some(mark) = &*sync::read(&self.mark)
        {
            mark.wait_until_valid();
        }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Quiet period and priority of a file by the policy.
    pub fn rest_of(&self, path: &[u8], stat: &Stat) -> Rest {
        let treatment = self.policy.decide(path, stat, self.clock.now()).treatment;
        let (quiet, priority) =
            treatment.map_or((Duration::ZERO, 0), |treatment| (treatment.quiet, treatment.priority));
        Rest { quiet, priority }
    }

    /// Records that bytes of a file changed.
    pub fn record_write(&self, path: Vec<u8>, range: Range<u64>, versions: Versions, rest: Rest) {
        let now = self.clock.now();
        let cap = rest.quiet.saturating_mul(QUIET_PERIODS).max(SHORTEST_CAP);
        let when = When::after_rest(now, rest.quiet, cap, rest.priority);
        let change = Change::modify(path, range, when);
        self.record(match versions {
            Versions::Unknown => change,
            Versions::Span(span) => change.between(Some(span)),
            Versions::Window(window) => change.within(window),
        });
    }

    /// Records that a file or directory was renamed.
    pub fn record_rename(&self, from: Vec<u8>, to: Vec<u8>) {
        self.record(Change::rename(from, to, When::now(self.clock.now(), 0)));
    }

    /// Records that a file or directory was removed.
    pub fn record_removal(&self, path: Vec<u8>) {
        self.record(Change::delete(path, When::now(self.clock.now(), 0)));
    }

    /// Records an unknown change at or below a path; it will be scanned.
    pub fn record_unknown(&self, path: Vec<u8>) {
        self.record(Change::gap(path, When::now(self.clock.now(), 0)));
    }

    /// Number of changes recorded so far.
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
                // For example a path that is too long for the log: a retry would fail as well, a scan finds the change.
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

    /// Waits until all changes recorded before are durable.
    pub fn flush(&self) {
        loop {
            // Groups complete in order: when this one is durable, all before it are.
            let recorded = self.changelog.record_later(&[]).and_then(Ticket::wait).is_ok();
            self.collect_results();
            if recorded && self.record_gap() || self.outage == Outage::Continue {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Collects results of entries that nobody waits for. The flush thread calls this regularly.
    pub fn collect_results(&self) {
        let mut tickets = self.tickets();
        while tickets.front().is_some_and(Ticket::is_decided) {
            if tickets.pop_front().is_some_and(|ticket| ticket.wait().is_err()) {
                self.gap_pending.store(true, Ordering::Release);
            }
        }
    }

    fn tickets(&self) -> MutexGuard<'_, VecDeque<Ticket>> {
        sync::lock(&self.tickets)
    }

    /// Records a gap if a change is missing from the changelog. False if the changelog does not answer.
    pub fn record_gap(&self) -> bool {
        if !self.gap_pending.load(Ordering::Acquire) {
            return true;
        }
        let _recording = sync::lock(&self.gap_lock);
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
