//! A mounted pool: many changes of names per second, and files that are written in place.
//!
//! `put` makes every step durable before the next. Here durability is guaranteed only after `fsync`, so:
//!
//! 1. The locks of the namespace are kept for many changes (`lease`).
//! 2. A stub is replaced without a sync only while it is *young*: created less than `YOUNG` ago and never synced, so
//!    no program can rely on it after a crash. An older stub is replaced by one that is synced first.
//! 3. Before the first in-place write the stub of a file is marked as `writing`, durably, with a new time and revision:
//!    from then on no redundancy is of the present version, and no repair restores old bytes.
//! 4. Objects of removed files are removed after the removal is durable.
//!
//! `docs/reference/pool.md` has the rules that other processes rely on.

mod begin;
mod column;
mod file;
mod guard;
mod lease;
mod links;
mod names;
mod publish;
mod sizes;
mod state;

pub use file::{CurrentPaths, LiveFile};
pub use names::{DirectoryChange, LiveEntry, RenameOutcome};

use crate::coder::Coders;
use crate::format::FileId;
use crate::geometry::merge;
use crate::storage::pool::Pool;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::disk::{is_of_the_medium, open_to_lock};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::objects::remove_all;
use crate::storage::pool::placement::{Candidate, rank};
use crate::storage::pool::stub::Stub;
use crate::storage::pool::view::View;
use crate::tree::Generation;
use crate::world::Stopwatch;
use gabion_platform::lock::Lockable;
use lease::SharedLease;
use state::PastVersion;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::TryLockError;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a file that was never synced counts as young: kernels do not write it back by themselves before that.
const YOUNG: Duration = Duration::from_secs(5);

/// Maximum age of cached free space.
const FREE_SPACE_MAX_AGE: Duration = Duration::from_millis(100);

/// Maximum number of files whose previous versions are remembered; beyond that all are forgotten until they are
/// protected again.
const MAX_REMEMBERED: usize = 1 << 16;

/// Maximum number of renames that are remembered; redundancy of earlier ones has been moved.
const MAX_MOVES: usize = 4096;

/// File on every target that is locked by the process that has the pool mounted.
const LIVE: &[u8] = b"live";

/// A mounted pool. One process at a time has it.
#[derive(Debug)]
pub struct Live {
    inner: Arc<Inner>,
    expiry_thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    coders: Coders,
    lease: SharedLease,
    /// Files created here and never synced.
    young: Mutex<HashMap<FileId, Stopwatch>>,
    /// Previous versions of files, with the ranges written since.
    versions: Mutex<HashMap<FileId, Vec<PastVersion>>>,
    /// Columns that were written and not synced, also by programs that have closed the file.
    unsynced: Mutex<HashMap<FileId, BTreeSet<usize>>>,
    /// Renames, the last one at the end: redundancy may still be at the old paths.
    moves: Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>,
    /// Files without names that are to be removed, with the directory of their last name.
    removed: Mutex<Vec<(Vec<u8>, Stub)>>,
    /// New directories that are not durable yet.
    new_directories: Mutex<BTreeSet<Vec<u8>>>,
    free_space: Mutex<Option<FreeSpace>>,
    /// Number of processors.
    cores: usize,
    // Held, not read.
    _mounted: Vec<Lockable>,
}

/// Targets that can receive new data, with their free space.
#[derive(Debug)]
struct FreeSpace {
    seen: Stopwatch,
    epoch: u64,
    targets: Vec<(String, Candidate)>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent whenever the lock is free.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Takes the pool for this process.
    ///
    /// # Errors
    /// [`PoolError::Mounted`] if another process has it; others of [`PoolError`].
    pub fn start(pool: Pool, coders: Coders) -> Result<Live, PoolError> {
        let caller = |doing| move |source| PoolError::Caller { doing, source };
        let mounted = lock_targets(&pool.shared.view())?;
        // Completes the last change before the first lookup. With too few targets for changes, readers use consistent
        // mirrors.
        match pool.shared.change() {
            Ok(_) | Err(PoolError::Quorum { .. }) => {}
            Err(error) => return Err(error),
        }
        let inner = Arc::new(Inner {
            pool,
            coders,
            lease: SharedLease::default(),
            young: Mutex::default(),
            versions: Mutex::default(),
            unsynced: Mutex::default(),
            moves: Mutex::default(),
            removed: Mutex::default(),
            new_directories: Mutex::default(),
            free_space: Mutex::default(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            _mounted: mounted,
        });
        let shared = Arc::clone(&inner);
        let expiry_thread = std::thread::Builder::new().name("pool locks".to_owned());
        let expiry_thread =
            expiry_thread.spawn(move || shared.lease.expire_leases()).map_err(caller("starting a thread"))?;
        inner.pool.shared.is_mounted.store(true, Ordering::Release);
        Ok(Live { inner, expiry_thread: Some(expiry_thread) })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Ranges of a file at rest written since `version`, sorted and disjoint; none if they are not known.
    pub fn written_since(&self, id: FileId, version: &Generation) -> Option<Vec<Range<u64>>> {
        let versions = self.inner.versions_of(id);
        state::written_since(&versions, version).map(|written| merge(written.cloned().collect()))
    }

    /// Removes files without names, forgets expired data, and probes failed targets again. To be called every few
    /// seconds and at the end.
    ///
    /// # Errors
    /// See [`PoolError`]; what could not be removed is tried again, or found by a sweep.
    pub fn tick(&self) -> Result<(), PoolError> {
        lock(&self.inner.young).retain(|_, since| since.elapsed() < YOUNG);
        let view = self.inner.pool.shared.cached_view();
        view.disks.iter().for_each(|disk| disk.retry());
        self.inner.remove_queued()?;
        self.inner.invalidate_free_space();
        Ok(())
    }

    /// Total and free bytes for files, without redundancy.
    pub fn space(&self) -> (u64, u64) {
        let view = self.inner.pool.shared.cached_view();
        let (k, m) = (view.config.stripe as u64, view.config.redundancy as u64);
        let usable = |bytes: u64| (u128::from(bytes) * u128::from(k) / u128::from(k + m)) as u64;
        // Targets on one file system share its space, which counts once.
        let mut devices = BTreeMap::new();
        for (_, online) in view.online_targets() {
            if let (Ok(stat), Ok(space)) = (online.tree.stat(b""), online.tree.space()) {
                devices.insert(stat.device, space);
            }
        }
        let (free, total) = devices.values().fold((0, 0), |sum, space| (sum.0 + space.0, sum.1 + space.1));
        (usable(total), usable(free))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.inner.pool.shared.is_mounted.store(false, Ordering::Release);
        // What is not removed here is found by a sweep.
        let _ = self.inner.remove_queued();
        self.inner.lease.end();
        self.expiry_thread.take().map(JoinHandle::join);
    }
}

/// Locks a file on every reachable target.
fn lock_targets(view: &View) -> Result<Vec<Lockable>, PoolError> {
    let mut held = Vec::new();
    for (index, online) in view.online_targets() {
        let name = &view.config.target[index].name;
        let locking = |error: io::Error| PoolError::target(name, "locking it for a mount")(error);
        let file = match online.tree.create(LIVE, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_to_lock(&online.tree, LIVE),
            // A read-only target needs no lock, since nothing is written there.
            Err(error) if is_of_the_medium(&error) => continue,
            made => made,
        };
        let file = Lockable::from(file.map_err(locking)?);
        match file.try_lock() {
            Ok(()) => held.push(file),
            Err(TryLockError::WouldBlock) => return Err(PoolError::Mounted { target: name.clone() }),
            Err(TryLockError::Error(error)) => return Err(locking(error)),
        }
    }
    Ok(held)
}

impl Inner {
    fn is_young(&self, id: FileId) -> bool {
        lock(&self.young).get(&id).is_some_and(|since| since.elapsed() < YOUNG)
    }

    /// Previous versions of a file.
    fn versions_of(&self, id: FileId) -> Vec<PastVersion> {
        lock(&self.versions).get(&id).cloned().unwrap_or_default()
    }

    /// True if a column was written and not synced.
    fn is_unsynced(&self, id: FileId, column: usize) -> bool {
        lock(&self.unsynced).get(&id).is_some_and(|columns| columns.contains(&column))
    }

    /// Records whether a column has unsynced writes. Beyond a number of files all are forgotten, since the kernel has
    /// written back most of them by then.
    fn note_unsynced(&self, id: FileId, column: usize, unsynced: bool) {
        let mut known = lock(&self.unsynced);
        if unsynced {
            if known.len() >= MAX_REMEMBERED {
                known.clear();
            }
            known.entry(id).or_default().insert(column);
        } else if let Some(columns) = known.get_mut(&id) {
            columns.remove(&column);
            if columns.is_empty() {
                known.remove(&id);
            }
        }
    }

    /// Records the previous versions of a file.
    fn remember_versions(&self, id: FileId, versions: Vec<PastVersion>) {
        let mut known = lock(&self.versions);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        match versions.is_empty() {
            true => known.remove(&id),
            false => known.insert(id, versions),
        };
    }

    /// Records a rename.
    fn record_rename(&self, from: &[u8], to: &[u8]) {
        let mut moves = lock(&self.moves);
        if moves.len() >= MAX_MOVES {
            moves.pop_front();
        }
        moves.push_back((from.to_vec(), to.to_vec()));
    }

    /// Paths where redundancy of a file with these names may be: present paths first, if it has any.
    fn redundancy_paths(&self, names: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut redundancy_paths: Vec<Vec<u8>> = names.to_vec();
        for path in names.iter().flat_map(|name| self.former_paths(name)) {
            if !redundancy_paths.contains(&path) {
                redundancy_paths.push(path);
            }
        }
        redundancy_paths
    }

    /// Paths that a file may have had, the present one first.
    fn former_paths(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let (mut paths, mut now) = (vec![path.to_vec()], path.to_vec());
        for (from, to) in lock(&self.moves).iter().rev() {
            let rest = match now.strip_prefix(to.as_slice()) {
                Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
                _ => continue,
            };
            now = [from.as_slice(), rest].concat();
            paths.push(now.clone());
        }
        paths
    }

    /// Queues a file for removal that has no names and is not open.
    fn queue_removal(&self, directory: Vec<u8>, stub: Stub) {
        lock(&self.young).remove(&stub.id);
        lock(&self.versions).remove(&stub.id);
        lock(&self.unsynced).remove(&stub.id);
        lock(&self.removed).push((directory, stub));
    }

    /// Makes removals durable, then removes the objects.
    fn remove_queued(&self) -> Result<(), PoolError> {
        let removed = std::mem::take(&mut *lock(&self.removed));
        if removed.is_empty() {
            return Ok(());
        }
        let directories: BTreeSet<&[u8]> =
            removed.iter().map(|(directory, _)| directory.as_slice()).collect();
        if let Err(error) = self.sync_names(&directories) {
            lock(&self.removed).extend(removed);
            return Err(error);
        }
        let view = self.pool.shared.cached_view();
        removed.iter().for_each(|(_, stub)| remove_all(&view, stub));
        Ok(())
    }

    /// Targets for the columns of a new file.
    fn choose_targets(&self, id: FileId) -> Result<Vec<Candidate>, PoolError> {
        let view = self.pool.shared.cached_view();
        let mut free_space = lock(&self.free_space);
        let is_old = |free_space: &FreeSpace| {
            free_space.seen.elapsed() > FREE_SPACE_MAX_AGE || free_space.epoch != view.config.epoch
        };
        if free_space.as_ref().is_none_or(is_old) {
            *free_space = Some(FreeSpace::measure(&self.pool.shared.view()));
        }
        let targets = free_space.as_ref().map_or(&[][..], |free_space| &free_space.targets);
        let mut ranked: Vec<(f64, &Candidate)> = targets
            .iter()
            .filter(|(_, candidate)| candidate.free >= view.config.block)
            .map(|(uuid, candidate)| (rank(&id.0, uuid, candidate.free), candidate))
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut taken = BTreeSet::new();
        let mut chosen = ranked.into_iter().map(|(_, candidate)| candidate);
        let chosen: Vec<Candidate> = chosen
            .by_ref()
            .filter(|candidate| taken.insert(candidate.domain.as_str()))
            .take(view.config.stripe)
            .cloned()
            .collect();
        match chosen.len() < view.config.stripe {
            true => {
                let (need, have, offline) = (view.config.stripe, chosen.len(), view.offline());
                Err(PoolError::Domains { need, have, offline })
            }
            false => Ok(chosen),
        }
    }

    /// True if an error was a write error of a target that must not be written to any more.
    fn is_target_unusable(&self, error: &PoolError) -> bool {
        match error {
            PoolError::Target { target, source, .. } => self.note_failed_write(target, source),
            _ => false,
        }
    }

    /// Records a failed write to a target; true if it must not be written to any more.
    fn note_failed_write(&self, target: &TargetName, error: &io::Error) -> bool {
        let view = self.pool.shared.cached_view();
        let given_up = view.disk(target.as_bytes()).is_none_or(|(_, disk)| disk.note_failed_write(error));
        self.invalidate_free_space();
        given_up
    }

    /// Drops the cached free space.
    fn invalidate_free_space(&self) {
        *lock(&self.free_space) = None;
    }
}

impl FreeSpace {
    fn measure(view: &View) -> FreeSpace {
        let uuid = |name: &str| view.disk(name.as_bytes()).map(|(member, _)| member.uuid.clone());
        let targets = crate::storage::pool::placement::candidates(view, b"", 1).into_iter();
        let targets = targets.filter_map(|candidate| Some((uuid(&candidate.name)?, candidate))).collect();
        FreeSpace { seen: Stopwatch::start(), epoch: view.config.epoch, targets }
    }
}
