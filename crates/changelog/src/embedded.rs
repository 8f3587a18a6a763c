//! The embedded engine: SQLite in one directory, for any number of processes of one host.
//!
//! Recording appends a whole group to a log (`log.db`), so its cost hardly depends on the number of changes. Every
//! operation that needs the table of pending entries (`pending.db`) folds the log into it first; a thread folds it as
//! well when it has grown to [`FOLD_BYTES`], so that it stays short even without claims. There are two files because
//! SQLite locks by file, and recording must not wait for a fold.
//!
//! A commit returns when it is on stable storage (`synchronous = FULL`). The table stores, in the same transaction,
//! up to which sequence number the log was folded; only then is the log cut. After a crash at any point a change
//! therefore counts once, from one of the files.

mod backlog;
mod claims;
mod codec;
mod database;
mod fold;
mod log;
mod state;
mod store;
mod workers;

use crate::change::Change;
use crate::codec::put_change;
use crate::entry::{Claim, Completion, Durability, Entry, Sequence, Summary, WorkerId};
use crate::error::{Error, Result};
use crate::limits::{Allowance, Limits};
use crate::queue::{Batch, Queue, Ticket};
use crate::share::{Ask, KnownWorker, Share};
use crate::{Changelog, MAX_PAGE};
use backlog::Backlog;
pub use backlog::{EASY_LOG_BYTES, FOLD_BYTES, FOLD_COMMITS, MAX_LOG_BYTES};
use database::Database;
use gabion_platform::world::{Stopwatch, Timestamp};
use log::Log;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::Store;

/// Groups that are cut off the log before appending threads get the lock: at most a millisecond or two.
const CUT_GROUPS: usize = 4;

/// Least time between two cuts, for appending threads.
const AFTER_CUT: Duration = Duration::from_micros(200);

/// The files of a changelog. A copy is whole if the log is copied first: what was folded meanwhile is in both, and
/// counts once.
pub const DATABASES: [&str; 2] = ["log.db", "pending.db"];

/// A changelog in a directory.
pub struct Embedded {
    queue: Option<Queue>,
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

/// State that callers, the commit thread and the fold thread share.
struct Shared {
    log_file: PathBuf,
    pending_file: PathBuf,
    /// Connections for reading and cutting the log, and for the pending table. One thread of this process writes at a
    /// time: SQLite has locks of its own, but a thread that finds those taken sleeps for milliseconds.
    open: Mutex<Open>,
    /// Held while the log is written.
    log_turn: Mutex<()>,
    backlog: Mutex<Backlog>,
    grown: Condvar,
    folded: Condvar,
}

struct Open {
    log: Connection,
    pending: Connection,
    /// Bytes folded since the log was last cut.
    uncut: usize,
}

impl Embedded {
    /// Opens the changelog in a directory, or creates it there.
    ///
    /// # Errors
    /// The files are no changelog, or of another version, or damaged, or do not belong together; the file
    /// system refuses.
    pub fn open(directory: &Path) -> Result<Embedded> {
        create(directory).map_err(|reason| Error::System {
            doing: "create the directory of the changelog",
            reason: Arc::new(reason),
        })?;
        let [log_file, pending_file] = DATABASES.map(|name| directory.join(name));
        let log = database::open(&log_file, &log::SCHEMA)?;
        let appender = database::open(&log_file, &log::SCHEMA)?;
        let pending = database::open(&pending_file, &store::SCHEMA)?;
        let shared = Arc::new(Shared {
            log_file,
            pending_file,
            open: Mutex::new(Open { log, pending, uncut: FOLD_BYTES }),
            log_turn: Mutex::new(()),
            backlog: Mutex::new(Backlog::default()),
            grown: Condvar::new(),
            folded: Condvar::new(),
        });
        shared.pair()?;
        shared.log(&appender).commit_only()?;
        let [committing, resting, keeping] = [(); 3].map(|()| Arc::clone(&shared));
        let keeper = thread::Builder::new()
            .name("changelog-fold".to_owned())
            .spawn(move || keeping.keep())
            .map_err(|reason| Error::System { doing: "start a thread", reason: Arc::new(reason) })?;
        let mut embedded = Embedded { queue: None, shared, keeper: Some(keeper) };
        let commit = Box::new(move |batch: &Batch| committing.append(&appender, batch));
        let rest = Box::new(move |batch: &Batch| resting.wait_for_folds(batch.bytes.len()));
        embedded.queue = Some(Queue::start(commit, rest)?);
        Ok(embedded)
    }
}

/// Creates a directory durably: its name is on stable storage, like the files in it later.
fn create(directory: &Path) -> std::io::Result<()> {
    // A symbolic link is refused: it may lead anywhere.
    if !std::fs::symlink_metadata(directory).is_ok_and(|found| found.is_dir()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        if std::fs::symlink_metadata(directory)?.is_symlink() {
            return Err(std::io::ErrorKind::NotADirectory.into());
        }
        if let Some(parent) = directory.canonicalize()?.parent() {
            std::fs::File::open(parent)?.sync_all()?;
        }
    }
    Ok(())
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // Commits what is queued.
        self.queue = None;
        lock(&self.shared.backlog).closed = true;
        self.shared.grown.notify_all();
        if let Some(keeper) = self.keeper.take() {
            // If the fold thread panicked, the log still has everything.
            let _ = keeper.join();
        }
    }
}

impl Shared {
    fn log<'a>(&'a self, connection: &'a Connection) -> Log<'a> {
        Log(Database { connection, file: &self.log_file })
    }

    fn store<'a>(&'a self, connection: &'a Connection) -> Store<'a> {
        Store(Database { connection, file: &self.pending_file })
    }

    /// Checks that both files belong together. Files of two changelogs, or one that was lost or restored from a
    /// backup, would lose changes.
    fn pair(&self) -> Result<()> {
        let open = lock(&self.open);
        let (log, store) = (self.log(&open.log), self.store(&open.pending));
        log.commit_only()?;
        log.cut_without_waiting()?;
        store.enlarge_cache()?;
        store.0.write_transaction("open", || {
            store.0.run(workers::TABLES)?;
            let (identity, sequence) = (log.identity()?, log.sequence()?);
            let folded = store.folded()?;
            match store.identity()? {
                None if sequence == Sequence::default() => store.set_identity(&identity),
                Some(other) if other == identity && folded <= sequence => Ok(()),
                Some(other) if other == identity => Err(store.0.damaged(format!(
                    "it knows change {folded}, but the log beside it ends with {sequence}"
                ))),
                _ => Err(store.0.damaged("it does not belong to the log beside it")),
            }
        })
    }

    fn append(&self, connection: &Connection, batch: &Batch) -> Result<Sequence> {
        let last = {
            let _turn = lock(&self.log_turn);
            self.log(connection).append(&batch.bytes, batch.count)?
        };
        let mut backlog = lock(&self.backlog);
        backlog.bytes += batch.bytes.len();
        backlog.commits += 1;
        if backlog.is_long() {
            self.grown.notify_one();
        }
        Ok(last)
    }

    /// Waits for folds after so many bytes were committed, as long as [`Backlog::pause`] says.
    fn wait_for_folds(&self, bytes: usize) {
        let mut backlog = lock(&self.backlog);
        let (pause, waited) = (backlog.pause(bytes), Stopwatch::start());
        while let left @ 1.. = backlog.pause(bytes).min(pause).saturating_sub(waited.elapsed()).as_micros() {
            let left = Duration::from_micros(left as u64);
            let woken = self.folded.wait_timeout(backlog, left);
            backlog = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        while backlog.is_full() {
            backlog = self.folded.wait(backlog).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Folds the log whenever it has grown.
    fn keep(&self) {
        let _guard = CloseGuard(self);
        loop {
            let mut backlog = lock(&self.backlog);
            while (!backlog.is_long() || backlog.stuck) && !backlog.closed {
                backlog = self.grown.wait(backlog).unwrap_or_else(PoisonError::into_inner);
            }
            if backlog.closed {
                return;
            }
            backlog.commits = 0;
            drop(backlog);
            self.move_pages();
            // If it fails, the log stays, and the next claim returns the error.
            let _ = self.fold_some("fold", false, |_| Ok(()));
        }
    }

    /// Moves pages from SQLite's log to the file, so that fewer are left when that log begins anew.
    fn move_pages(&self) {
        let open = lock(&self.open);
        // If it fails, the next one moves them.
        let _ = self.log(&open.log).checkpoint();
    }

    /// Runs `work` in a transaction in which everything that was recorded before is folded.
    fn with_all_folded<T>(
        &self,
        doing: &'static str,
        work: impl FnOnce(Store<'_>) -> Result<T>,
    ) -> Result<T> {
        self.fold_some(doing, true, work)
    }

    /// Runs `work` in a transaction without a fold, for tables that no change concerns.
    fn with_pending<T>(&self, doing: &'static str, work: impl FnOnce(Store<'_>) -> Result<T>) -> Result<T> {
        let open = lock(&self.open);
        let store = self.store(&open.pending);
        store.0.write_transaction(doing, || work(store))
    }

    fn fold_some<T>(
        &self,
        doing: &'static str,
        all: bool,
        work: impl FnOnce(Store<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut open = lock(&self.open);
        let (log, store) = (self.log(&open.log), self.store(&open.pending));
        let mut bytes = 0;
        let began = Stopwatch::start();
        let result = store.0.write_transaction(doing, || {
            // Up to this number only: others may record faster than folds go.
            let last = log.sequence()?;
            while store.folded()? < last {
                bytes += fold::fold(log, store)?;
                if !all {
                    break;
                }
            }
            Ok((work(store)?, store.folded()?))
        });
        let mut backlog = lock(&self.backlog);
        backlog.stuck = result.is_err();
        if result.is_ok() {
            backlog.folded(bytes, began.elapsed());
        }
        drop(backlog);
        self.folded.notify_all();
        let (value, folded) = result?;
        open.uncut += bytes;
        // If it fails, the rest is skipped by its number and cut next time.
        if (open.uncut >= FOLD_BYTES || !all) && self.cut(self.log(&open.log), folded).is_ok() {
            open.uncut = 0;
        }
        Ok(value)
    }

    /// Cuts the log up to a change, some groups at a time, and lets SQLite write its own log from the beginning
    /// again: that takes a moment at which all of it is in the file. So most is moved while others append, and the
    /// rest while they wait.
    fn cut(&self, log: Log<'_>, folded: Sequence) -> Result<()> {
        let some = || {
            let _turn = lock(&self.log_turn);
            log.cut(folded, CUT_GROUPS)
        };
        while some()? {
            // Threads that wait to append are awake by now and get the lock first.
            thread::sleep(AFTER_CUT);
        }
        log.checkpoint()?;
        let _turn = lock(&self.log_turn);
        log.checkpoint()
    }
}

/// Ends the waits of callers when the fold thread ends, even by a panic.
struct CloseGuard<'a>(&'a Shared);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        lock(&self.0.backlog).closed = true;
        self.0.folded.notify_all();
    }
}

impl Changelog for Embedded {
    fn record_later(&self, changes: &[Change]) -> Result<Ticket> {
        let queue = self.queue.as_ref().ok_or(Error::Closed)?;
        queue.submit(changes, put_change)
    }

    fn claim(&self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Result<Vec<Claim>> {
        self.shared.with_all_folded("claim", |store| claims::claim(store, worker, limit, lease, now))
    }

    fn claim_paths(
        &self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
        self.shared.with_all_folded("claim", |store| claims::claim_paths(store, worker, paths, lease, now))
    }

    fn claim_share(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Share> {
        self.shared.with_all_folded("claim", |store| workers::claim_share(store, ask, now))
    }

    fn attend(&self, worker: &WorkerId, now: Timestamp) -> Result<bool> {
        self.shared.with_pending("note a worker", |store| {
            workers::attend(store, worker, now)?;
            Ok(workers::draining_hosts(store)?.contains(worker.host()))
        })
    }

    fn is_draining(&self, worker: &WorkerId) -> Result<bool> {
        Ok(workers::draining_hosts(self.shared.store(&lock(&self.shared.open).pending))?
            .contains(worker.host()))
    }

    fn leave(&self, worker: &WorkerId) -> Result<()> {
        self.shared.with_pending("forget a worker", |store| workers::forget(store, &worker.0))
    }

    fn workers(&self, now: Timestamp) -> Result<Vec<KnownWorker>> {
        self.shared.with_pending("list workers", |store| workers::workers(store, now))
    }

    fn set_draining(&self, host: &str, is_draining: bool) -> Result<()> {
        self.shared.with_pending("drain", |store| workers::set_draining(store, host, is_draining))
    }

    fn draining_hosts(&self) -> Result<Vec<String>> {
        let open = lock(&self.shared.open);
        Ok(workers::draining_hosts(self.shared.store(&open.pending))?.into_iter().collect())
    }

    fn set_limits(&self, host: &str, limits: Option<Limits>) -> Result<()> {
        self.shared.with_pending("set limits", |store| workers::set_limits(store, host, limits))
    }

    fn limits(&self) -> Result<BTreeMap<String, Limits>> {
        workers::all_limits(self.shared.store(&lock(&self.shared.open).pending))
    }

    fn allowance(&self, worker: &WorkerId) -> Result<Allowance> {
        workers::allowance(self.shared.store(&lock(&self.shared.open).pending), worker)
    }

    fn renew(&self, claim: &mut Claim, lease: Duration, now: Timestamp) -> Result<()> {
        let expires = now + lease;
        let done = self.shared.with_all_folded("renew", |store| claims::renew(store, claim, now, expires))?;
        done.map_err(|why| Error::Refused { token: claim.token, why })?;
        claim.expires = expires;
        Ok(())
    }

    fn renew_all(&self, claims: &[Claim], lease: Duration, now: Timestamp) -> Result<Vec<u64>> {
        let expires = now + lease;
        self.shared.with_all_folded("renew", |store| {
            let mut refused = Vec::new();
            for claim in claims {
                if claims::renew(store, claim, now, expires)?.is_err() {
                    refused.push(claim.token);
                }
            }
            Ok(refused)
        })
    }

    fn give_back(&self, claims: &[&Claim], _now: Timestamp) -> Result<()> {
        self.shared.with_all_folded("give back", |store| {
            // A refused claim belongs to another worker already.
            for claim in claims {
                if claims::give_back_untouched(store, claim)?.is_ok() {
                    workers::take_back(store, &claim.worker, 1)?;
                }
            }
            Ok(())
        })
    }

    fn still_mine(&self, claim: &Claim) -> Result<bool> {
        self.shared.with_all_folded("look up", |store| Ok(claims::find(store, claim)?.is_ok()))
    }

    fn complete(&self, claim: &Claim) -> Result<Completion> {
        let done = self.shared.with_all_folded("complete", |store| claims::complete(store, claim))?;
        done.map_err(|why| Error::Refused { token: claim.token, why })
    }

    fn which_are_mine(&self, claims: &[&Claim]) -> Result<Vec<bool>> {
        self.shared.with_all_folded("look up", |store| {
            claims.iter().map(|claim| Ok(claims::find(store, claim)?.is_ok())).collect()
        })
    }

    fn complete_all(&self, claims: &[&Claim]) -> Result<Vec<Result<Completion>>> {
        let done = self.shared.with_all_folded("complete", |store| {
            claims.iter().map(|claim| claims::complete(store, claim)).collect::<Result<Vec<_>>>()
        })?;
        let refused = claims
            .iter()
            .zip(done)
            .map(|(claim, done)| done.map_err(|why| Error::Refused { token: claim.token, why }));
        Ok(refused.collect())
    }

    fn expire_dead_workers(&self, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
        self.shared.with_all_folded("end leases", |store| {
            workers::forget_dead(store, is_dead)?;
            claims::expire_dead_workers(store, is_dead)
        })
    }

    fn release(&self, claim: &Claim, retry_at: Timestamp, now: Timestamp) -> Result<()> {
        let done =
            self.shared.with_all_folded("release", |store| claims::release(store, claim, retry_at, now))?;
        done.map_err(|why| Error::Refused { token: claim.token, why })
    }

    fn pending(&self) -> Result<Summary> {
        self.shared.with_all_folded("count", |store| store.summary())
    }

    fn has_claims(&self) -> Result<bool> {
        self.shared.with_all_folded("look up", |store| store.has_claims())
    }

    fn entries(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Entry>> {
        let rows = self.shared.with_all_folded("list", |store| store.page(after, limit.min(MAX_PAGE)))?;
        Ok(rows.into_iter().map(|(path, slot)| slot.entry(path)).collect())
    }

    fn sequence(&self) -> Result<Sequence> {
        self.shared.log(&lock(&self.shared.open).log).sequence()
    }

    fn durability(&self) -> Durability {
        Durability::Stable
    }
}

/// A panic under these locks leaves at most a transaction that was never committed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
