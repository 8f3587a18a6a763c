//! Live protection of a directory that applications use directly.
//!
//! Two threads. The *recorder* ([`record`](self)) takes events from the operating system, gathers them for a moment,
//! and records them in the changelog. The *keeper* looks at the whole tree when nobody watched for a while, scans what only a scan
//! can tell, and works off what has rested. Neither holds the vault: other commands go on beside them.
//!
//! Events are hints. A change that was recorded says that a path is to be looked at; what is done there is decided by
//! what is there then. Nothing depends on events being complete: the tree is watched first and scanned then, a gap leads to
//! a scan, and so does the time since the last one. So the memory of this process holds nothing that must not be lost.

mod batch;
mod keeper;
mod mounts;
mod recorder;
pub(crate) mod status;

pub use status::{Notice, Scan, Status};

use crate::policy::Policy;
use crate::storage::plain::OWN;
use crate::vault::{Kind, Lock, LockError, Vault};
use crate::world::{Nanos, SECOND};
use gabion_platform::event::{EventSource, SourceError};
use gabion_platform::fanotify::Fanotify;
use gabion_platform::inotify::Inotify;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Fanotify where it works, inotify otherwise.
    #[default]
    Auto,
    /// Names on the whole file system, content in the tree; needs root.
    Fanotify,
    /// One watch for each directory; for everybody.
    Inotify,
}

/// How to watch.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The command that watches, for others who want to.
    pub command: &'static str,
    /// Where events come from.
    pub source: Choice,
    /// Threads that encode.
    pub threads: usize,
    /// Most bytes read per second, in place of the policy's bound.
    pub rate: Option<u64>,
    /// How long after the last scan of everything the next one begins.
    pub rescan: Nanos,
    /// How long events are left to gather in the kernel, which makes one of many for the same name.
    pub gather: Duration,
    /// How long changes are gathered before they are recorded together.
    pub record: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            command: "watch",
            source: Choice::Auto,
            threads: 1,
            rate: None,
            rescan: 3600 * SECOND,
            gather: Duration::from_millis(20),
            record: Duration::from_secs(1),
        }
    }
}

/// Why a tree is not watched, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// Pools have no directory that applications write to.
    #[error("a pool changes only through `gabion pool`: there is nothing to watch")]
    Pool,
    /// Someone watches already, or the lock fails.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There are no events to be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The operating system refuses.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// One of the two threads died.
    #[error("the {0} ended unexpectedly")]
    Died(&'static str),
}

/// Told what happens, from either thread.
pub type Tell = Arc<dyn Fn(&Notice) + Send + Sync>;

/// What both threads and the owner share.
struct Shared {
    stop: AtomicBool,
    paused: AtomicBool,
    over: AtomicBool,
    status: Mutex<Status>,
    /// When the keeper is to look at the changelog.
    due: Mutex<Option<Nanos>>,
    wake: Condvar,
    /// The number of the last change that was recorded and acknowledged.
    acknowledged: AtomicU64,
    /// What the recorder knows quiet periods from.
    policy: Mutex<Arc<Policy>>,
    tell: Tell,
}

impl Shared {
    fn new(vault: &Vault, source: &'static str, tell: Tell) -> std::io::Result<Arc<Shared>> {
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
            tell,
        }))
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the keeper is to leave files alone for now.
    fn is_resting(&self) -> bool {
        self.is_stopping() || self.paused.load(Ordering::Relaxed)
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn due(&self) -> MutexGuard<'_, Option<Nanos>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the keeper look at the changelog then, or earlier.
    fn call_keeper(&self, at: Nanos) {
        let mut due = self.due();
        if due.is_none_or(|due| at < due) {
            *due = Some(at);
            self.wake.notify_all();
        }
    }
}

/// A tree that is watched and kept protected, until this is stopped.
pub struct Live {
    shared: Arc<Shared>,
    /// Nothing where someone else records.
    recorder: Option<JoinHandle<Result<(), MonitorError>>>,
    keeper: JoinHandle<()>,
    _watching: Lock,
}

impl Live {
    /// Begins to watch: whatever happens after this returns is heard of. Whatever happened before is found by a scan, which
    /// the keeper begins at once.
    ///
    /// # Errors
    /// See [`MonitorError`].
    pub fn start(vault: Vault, options: Options, tell: Tell) -> Result<Live, MonitorError> {
        if vault.settings.storage == Kind::Pool {
            return Err(MonitorError::Pool);
        }
        let watching = take_watch(&vault, options.command)?;
        let (source, instead) = open(&vault, options.source)?;
        let shared = Shared::new(&vault, source.name(), tell)?;
        let unseen = match source.name() {
            "fanotify" => mounts::below(&vault.root)?,
            _ => Vec::new(),
        };
        let unwatched = source.unwatched().to_vec();
        (shared.tell)(&Notice::Armed { source: source.name(), instead, mounts: unseen, unwatched });
        let recorder = recorder::Recorder::new(source, &vault, options, Arc::clone(&shared))?;
        let recorder = thread::Builder::new().name("recorder".to_owned()).spawn(move || recorder.run())?;
        Live::with_keeper(vault, options, shared, Some(recorder), watching)
    }

    /// Keeps a tree protected whose changes someone else records: a mount that sees all of them. It begins with a scan as well.
    ///
    /// # Errors
    /// See [`MonitorError`].
    pub fn keep(vault: Vault, options: Options, tell: Tell) -> Result<Live, MonitorError> {
        let watching = take_watch(&vault, options.command)?;
        let shared = Shared::new(&vault, "mount", tell)?;
        Live::with_keeper(vault, options, shared, None, watching)
    }

    fn with_keeper(
        vault: Vault,
        options: Options,
        shared: Arc<Shared>,
        recorder: Option<JoinHandle<Result<(), MonitorError>>>,
        watching: Lock,
    ) -> Result<Live, MonitorError> {
        let keeper = keeper::Keeper::new(vault, options, Arc::clone(&shared), recorder.is_some());
        let keeper = thread::Builder::new().name("keeper".to_owned()).spawn(move || keeper.run())?;
        Ok(Live { shared, recorder, keeper, _watching: watching })
    }

    /// How it is now.
    pub fn status(&self) -> Status {
        self.shared.status().clone()
    }

    /// Leaves files alone until it is called with `false`: what happens is recorded, and nothing is scanned or encoded.
    pub fn pause(&self, paused: bool) {
        self.shared.paused.store(paused, Ordering::Relaxed);
        let _due = self.shared.due();
        self.shared.wake.notify_all();
    }

    /// Whether it ended by itself; [`stop`](Live::stop) says why.
    pub fn is_over(&self) -> bool {
        self.shared.over.load(Ordering::Relaxed) || self.keeper.is_finished()
    }

    /// Ends: records what was heard of, finishes what is in hand. What is due later stays in the changelog.
    ///
    /// # Errors
    /// Why it had ended before, if it had.
    pub fn stop(self) -> Result<Status, MonitorError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            // Whoever is about to wait has looked at the flag before, or sees this.
            let _due = self.shared.due();
            self.shared.wake.notify_all();
        }
        let recorded = match self.recorder {
            Some(recorder) => recorder.join().map_err(|_| MonitorError::Died("recorder"))?,
            None => Ok(()),
        };
        self.keeper.join().map_err(|_| MonitorError::Died("keeper"))?;
        recorded?;
        Ok(self.shared.status().clone())
    }
}

/// There is one at a time that keeps a tree protected.
fn take_watch(vault: &Vault, command: &str) -> Result<Lock, MonitorError> {
    let watching = vault.lock_to_watch(command)?;
    // What a crash left behind. Whoever has the vault now has seen to that.
    match vault.lock(command) {
        Ok(_) | Err(LockError::Held { .. }) => Ok(watching),
        Err(error) => Err(error.into()),
    }
}

/// The source, and why it is not the better one.
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
