//! Watch: live protection of a directory that applications use directly.
//!
//! Two threads. The *recorder* takes events from the operating system, collects them for a moment and records them in
//! the changelog. The *keeper* scans (the whole tree after a time without a watch, parts of it after a gap) and
//! processes entries whose quiet period has passed. Neither holds the vault's lock, so other commands can run next to
//! them.
//!
//! Events are hints: an entry names a path, and the state of the path at processing time decides what is done.
//! Correctness does not depend on complete events: the watch starts before the scan, a gap causes a scan, and so does
//! the rescan interval. So this process holds no state in memory that must not be lost.

mod batch;
mod keeper;
mod mounts;
mod recorder;
pub(crate) mod status;

pub use status::{Notice, Scan, Status};

use crate::changelog::monitors::MonitorKind;
use crate::mark::{Mark, MarkNotice};
use crate::policy::Policy;
use crate::storage::plain::OWN;
use crate::vault::{Kind, Lock, LockError, Vault};
use crate::world::{SECOND, Timestamp};
use gabion_platform::event::{EventSource, SourceError};
use gabion_platform::fanotify::Fanotify;
use gabion_platform::inotify::Inotify;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Source of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Fanotify if available, otherwise inotify.
    #[default]
    Auto,
    /// Fanotify: names of the whole file system, content of the tree; needs root.
    Fanotify,
    /// Inotify: one watch per directory; works for every user.
    Inotify,
}

/// Options of a watch.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Command that watches, for the message to others that try to.
    pub command: &'static str,
    /// Source of events.
    pub source: Choice,
    /// Threads that encode.
    pub threads: usize,
    /// Maximum read rate in bytes per second, overrides the policy.
    pub rate: Option<u64>,
    /// Interval between scans of the whole tree.
    pub rescan: Duration,
    /// Time that events are left in the kernel, which merges events of the same name.
    pub event_delay: Duration,
    /// Interval at which collected changes are recorded.
    pub record_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            command: "watch",
            source: Choice::Auto,
            threads: 1,
            rate: None,
            rescan: 3600 * SECOND,
            event_delay: Duration::from_millis(20),
            record_interval: Duration::from_secs(1),
        }
    }
}

/// Error that prevents or ends a watch.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The vault is a pool, which has no directory for applications.
    #[error("a pool changes only through `gabion pool`: there is nothing to watch")]
    Pool,
    /// Another watch is running, or the lock failed.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// No event source is available.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The operating system returned an error.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A thread panicked.
    #[error("the {0} ended unexpectedly")]
    Died(&'static str),
}

/// Receives notices from both threads.
pub type Notify = Arc<dyn Fn(&Notice) + Send + Sync>;

/// State that both threads and the owner share.
struct Shared {
    stop: AtomicBool,
    paused: AtomicBool,
    over: AtomicBool,
    status: Mutex<Status>,
    /// Time at which the keeper next reads the changelog.
    due: Mutex<Option<Timestamp>>,
    wake: Condvar,
    /// Sequence number of the last change that was recorded and acknowledged.
    acknowledged: AtomicU64,
    /// Policy from which the recorder takes quiet periods.
    policy: Mutex<Arc<Policy>>,
    notify: Notify,
}

impl Shared {
    fn new(vault: &Vault, source: &'static str, notify: Notify) -> std::io::Result<Arc<Shared>> {
        let policy = vault.read_policy().map_err(std::io::Error::other)?;
        Ok(Arc::new(Shared {
            stop: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            over: AtomicBool::new(false),
            status: Mutex::new(Status::new(source)),
            acknowledged: AtomicU64::new(0),
            due: Mutex::new(None),
            wake: Condvar::new(),
            policy: Mutex::new(Arc::new(policy)),
            notify,
        }))
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// True while the keeper must not process files.
    fn is_suspended(&self) -> bool {
        self.is_stopping() || self.paused.load(Ordering::Relaxed)
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the keeper at `at`, or earlier if it is due before.
    fn call_keeper(&self, at: Timestamp) {
        let mut due = self.due();
        if due.is_none_or(|due| at < due) {
            *due = Some(at);
            self.wake.notify_all();
        }
    }
}

/// A running watch.
pub struct Live {
    shared: Arc<Shared>,
    /// None if another component records the changes.
    recorder: Option<JoinHandle<Result<(), MonitorError>>>,
    keeper: JoinHandle<()>,
    /// None if another component records the changes, or the changelog is for one host.
    mark: Option<Mark>,
    _watching: Lock,
}

impl Live {
    /// Starts a watch. All changes after this call returns are seen; earlier ones are found by the keeper's first scan.
    ///
    /// # Errors
    /// See [`MonitorError`].
    pub fn start(vault: Vault, options: Options, notify: Notify) -> Result<Live, MonitorError> {
        if vault.settings.storage == Kind::Pool {
            return Err(MonitorError::Pool);
        }
        let watching = take_watch(&vault, options.command)?;
        let mut mark = begin_mark(&vault, &notify)?;
        Live::watch(vault, options, notify, (&mut mark, watching)).inspect_err(|_| {
            // It saw nothing. A mark that stays is lost after a while: then the tree is scanned.
            let _ = mark.take().map(Mark::finish);
        })
    }

    fn watch(
        vault: Vault,
        options: Options,
        notify: Notify,
        (mark, watching): (&mut Option<Mark>, Lock),
    ) -> Result<Live, MonitorError> {
        refuse_if_moved(&vault)?;
        let (source, instead) = open(&vault, options.source)?;
        let shared = Shared::new(&vault, source.name(), notify)?;
        let unseen = match source.name() {
            "fanotify" => mounts::below(&vault.root)?,
            _ => Vec::new(),
        };
        let unwatched = source.unwatched().to_vec();
        (shared.notify)(&Notice::WatchStarted { source: source.name(), instead, mounts: unseen, unwatched });
        let recorder = recorder::Recorder::new(source, &vault, options, Arc::clone(&shared))?;
        let recorder = thread::Builder::new().name("recorder".to_owned()).spawn(move || recorder.run())?;
        Live::with_keeper(vault, options, shared, Some(recorder), (mark.take(), watching))
    }

    /// Keeps a tree protected whose changes are recorded by another component, for example a mount. Begins with a scan
    /// as well.
    ///
    /// # Errors
    /// See [`MonitorError`].
    pub fn keep(vault: Vault, options: Options, notify: Notify) -> Result<Live, MonitorError> {
        let watching = take_watch(&vault, options.command)?;
        refuse_if_moved(&vault)?;
        let shared = Shared::new(&vault, "mount", notify)?;
        Live::with_keeper(vault, options, shared, None, (None, watching))
    }

    fn with_keeper(
        vault: Vault,
        options: Options,
        shared: Arc<Shared>,
        recorder: Option<JoinHandle<Result<(), MonitorError>>>,
        (mark, watching): (Option<Mark>, Lock),
    ) -> Result<Live, MonitorError> {
        // Other hosts record as well.
        let is_called = recorder.is_some() && !vault.settings.is_shared();
        let keeper = keeper::Keeper::new(vault, options, Arc::clone(&shared), is_called);
        let keeper = thread::Builder::new().name("keeper".to_owned()).spawn(move || keeper.run())?;
        Ok(Live { shared, recorder, keeper, mark, _watching: watching })
    }

    /// Present status.
    pub fn status(&self) -> Status {
        self.shared.status().clone()
    }

    /// Pauses or resumes scans and encoding. Changes are still recorded.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
        let _due = self.shared.due();
        self.shared.wake.notify_all();
    }

    /// True if a thread ended by itself; [`stop`](Live::stop) returns the reason.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed) || self.keeper.is_finished()
    }

    /// Stops the watch: records pending events and finishes the current work. Later entries stay in the changelog.
    ///
    /// # Errors
    /// The reason if a thread had ended before.
    pub fn stop(self) -> Result<Status, MonitorError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            // Taking the lock ensures that a thread about to wait has seen the flag.
            let _due = self.shared.due();
            self.shared.wake.notify_all();
        }
        let recorded = match self.recorder {
            Some(recorder) => recorder.join().map_err(|_| MonitorError::Died("recorder"))?,
            None => Ok(()),
        };
        self.keeper.join().map_err(|_| MonitorError::Died("keeper"))?;
        recorded?;
        let status = self.shared.status().clone();
        if let (Some(mark), None) = (self.mark, &status.unrecorded) {
            // A mark that stays is lost after a while: then the tree is scanned.
            let _ = mark.finish();
        }
        Ok(status)
    }
}

/// Sets the mark of a watch on the server of a deployment.
fn begin_mark(vault: &Vault, notify: &Notify) -> std::io::Result<Option<Mark>> {
    let notify = Arc::clone(notify);
    let notice = Box::new(move |notice: &MarkNotice| notify(&Notice::Trouble(notice.to_string())));
    Mark::begin(&vault.changelog, MonitorKind::Watch, &vault.clock, notice)
}

fn refuse_if_moved(vault: &Vault) -> std::io::Result<()> {
    vault.refuse_if_moved().map_err(std::io::Error::other)
}

/// Takes the lock that allows one watch per vault and host.
fn take_watch(vault: &Vault, command: &str) -> Result<Lock, MonitorError> {
    let watching = vault.lock_to_watch(command)?;
    // Recovers from a crash. If another process holds the vault, it has recovered already.
    match vault.lock(command) {
        Ok(_) | Err(LockError::Held { .. }) => Ok(watching),
        Err(error) => Err(error.into()),
    }
}

/// Opens the event source. Also returns the reason if the preferred source is not available.
fn open(vault: &Vault, choice: Choice) -> Result<(Box<dyn EventSource>, Option<String>), MonitorError> {
    let fanotify = || Fanotify::watch(&vault.root, OWN);
    match choice {
        Choice::Fanotify => Ok((Box::new(fanotify()?), None)),
        Choice::Inotify => Ok((Box::new(Inotify::watch(&vault.root, OWN)?), None)),
        Choice::Auto => match fanotify() {
            Ok(source) => Ok((Box::new(source), None)),
            Err(why) => Ok((Box::new(Inotify::watch(&vault.root, OWN)?), Some(why.to_string()))),
        },
    }
}
