//! A pool in use like a disk: names come and go by the thousand, and files are written in place.
//!
//! `put` makes every step durable before the next. Here nothing is promised before someone asks for it (`fsync`), so:
//!
//! 1. The namespace's locks are kept for many changes (`turns`).
//! 2. A stub is replaced without being synced only while it is young (`YOUNG`): what a crash then takes with it was
//!    never promised. An older one is replaced by one that is synced first.
//! 3. Before the first byte of a file is written in place its stub says so, durably, with another time and revision:
//!    from then on no redundancy is that of this version, and nobody takes new bytes back to the old ones.
//! 4. Objects of files that were removed go when the removal is durable.
//!
//! `docs/reference/pool.md` has the rules that others rely on.

mod begin;
mod column;
mod file;
mod guard;
mod links;
mod names;
mod publish;
mod sizes;
mod state;
mod turns;

pub use file::{LiveFile, Name};
pub use names::{DirectoryChange, Found, Moved};

use crate::coder::Coders;
use crate::format::FileId;
use crate::geometry::merge;
use crate::storage::pool::Pool;
use crate::storage::pool::disk::{is_of_the_medium, open_to_lock};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::objects::remove_all;
use crate::storage::pool::placement::{Candidate, rank};
use crate::storage::pool::stub::Stub;
use crate::storage::pool::view::View;
use crate::tree::Generation;
use crate::world::Stopwatch;
use gabion_platform::lock::Lockable;
use state::Version;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::TryLockError;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use turns::Turns;

/// How long a file that was never synced counts as young: before that, kernels have not written it out by themselves.
const YOUNG: Duration = Duration::from_secs(5);

/// How long the free space of targets is believed.
const ROOM_BELIEVED: Duration = Duration::from_millis(100);

/// Most files whose earlier versions are remembered; beyond that they are forgotten until they are protected again.
const MAX_REMEMBERED: usize = 1 << 16;

/// Most changes of names that are remembered; redundancy of files that moved before has long followed them.
const MAX_MOVES: usize = 4096;

/// The file on every target that is locked by the process that has the pool mounted.
const LIVE: &[u8] = b"live";

/// A pool in use. One process at a time has it.
#[derive(Debug)]
pub struct Live {
    inner: Arc<Inner>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    coders: Coders,
    turns: Turns,
    /// Files that were made here and never synced.
    young: Mutex<HashMap<FileId, Stopwatch>>,
    /// Versions that files had, and what was written to them since.
    versions: Mutex<HashMap<FileId, Vec<Version>>>,
    /// Columns of files that were written to and not synced, also by programs that closed them since.
    unsynced: Mutex<HashMap<FileId, BTreeSet<usize>>>,
    /// Names that were changed, the last one at the end: redundancy follows them later.
    moves: Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>,
    /// Files that no name leads to any more, with the directory that their name was in.
    removed: Mutex<Vec<(Vec<u8>, Stub)>>,
    /// Directories that were made and are not durable.
    new_directories: Mutex<BTreeSet<Vec<u8>>>,
    room: Mutex<Option<Room>>,
    /// Processors that there are.
    cores: usize,
    // HeldLocks, not read.
    _mounted: Vec<Lockable>,
}

/// Targets that can take something new, as they were a moment ago.
#[derive(Debug)]
struct Room {
    seen: Stopwatch,
    epoch: u64,
    targets: Vec<(String, Candidate)>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    // All of them are whole whenever the lock is free.
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Takes the pool for this process.
    ///
    /// # Errors
    /// [`PoolError::Mounted`] if another one has it; others of [`PoolError`].
    pub fn start(pool: Pool, coders: Coders) -> Result<Live, PoolError> {
        let caller = |doing| move |source| PoolError::Caller { doing, source };
        let mounted = take(&pool.shared.view())?;
        // The last change is finished before the first name is looked up. With too few targets for changes, readers do what they can.
        match pool.shared.change() {
            Ok(_) | Err(PoolError::Quorum { .. }) => {}
            Err(error) => return Err(error),
        }
        let inner = Arc::new(Inner {
            pool,
            coders,
            turns: Turns::default(),
            young: Mutex::default(),
            versions: Mutex::default(),
            unsynced: Mutex::default(),
            moves: Mutex::default(),
            removed: Mutex::default(),
            new_directories: Mutex::default(),
            room: Mutex::default(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            _mounted: mounted,
        });
        let theirs = Arc::clone(&inner);
        let keeper = std::thread::Builder::new().name("pool locks".to_owned());
        let keeper = keeper.spawn(move || theirs.turns.keep_time()).map_err(caller("starting a thread"))?;
        inner.pool.shared.is_mounted.store(true, Ordering::Release);
        Ok(Live { inner, keeper: Some(keeper) })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// What was written to a file that rests since it was this version, in order and apart; nothing if that is not known.
    pub fn written_since(&self, id: FileId, version: &Generation) -> Option<Vec<Range<u64>>> {
        let versions = self.inner.versions_of(id);
        state::written_since(&versions, version).map(|written| merge(written.cloned().collect()))
    }

    /// Removes what no name leads to any more, forgets what is old, and asks targets again that failed. To be called every few
    /// seconds and at the end.
    ///
    /// # Errors
    /// See [`PoolError`]; what could not be removed now is tried again, or found by a sweep.
    pub fn tick(&self) -> Result<(), PoolError> {
        lock(&self.inner.young).retain(|_, since| since.elapsed() < YOUNG);
        let view = self.inner.pool.shared.cached_view();
        view.disks.iter().for_each(|disk| disk.retry());
        self.inner.clear_away()?;
        self.inner.forget_room();
        Ok(())
    }

    /// Bytes that files can take and those they can still take, redundancy left out.
    pub fn space(&self) -> (u64, u64) {
        let view = self.inner.pool.shared.cached_view();
        let (k, m) = (view.config.stripe as u64, view.config.redundancy as u64);
        let usable = |bytes: u64| (u128::from(bytes) * u128::from(k) / u128::from(k + m)) as u64;
        // Targets on one file system share its space: it counts once.
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
        // Who ends without a tick leaves something to a sweep, nothing else.
        let _ = self.inner.clear_away();
        self.inner.turns.end();
        self.keeper.take().map(JoinHandle::join);
    }
}

/// Locks a file on every target that answers.
fn take(view: &View) -> Result<Vec<Lockable>, PoolError> {
    let mut held = Vec::new();
    for (index, online) in view.online_targets() {
        let name = &view.config.target[index].name;
        let locking = |error: io::Error| PoolError::target(name, "locking it for a mount")(error);
        let file = match online.tree.create(LIVE, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => open_to_lock(&online.tree, LIVE),
            // Nothing is written there, so nobody needs to be kept away.
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

    /// Versions that a file had.
    fn versions_of(&self, id: FileId) -> Vec<Version> {
        lock(&self.versions).get(&id).cloned().unwrap_or_default()
    }

    /// Whether a column was written to and not synced.
    fn is_unsynced(&self, id: FileId, column: usize) -> bool {
        lock(&self.unsynced).get(&id).is_some_and(|columns| columns.contains(&column))
    }

    /// Keeps in mind whether a column was written to and not synced. Beyond a number of files all are forgotten: kernels have written most
    /// of them out by themselves then.
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

    /// Keeps in mind which versions a file had.
    fn remember(&self, id: FileId, versions: Vec<Version>) {
        let mut known = lock(&self.versions);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        match versions.is_empty() {
            true => known.remove(&id),
            false => known.insert(id, versions),
        };
    }

    /// A name is another one now.
    fn note_move(&self, from: &[u8], to: &[u8]) {
        let mut moves = lock(&self.moves);
        if moves.len() >= MAX_MOVES {
            moves.pop_front();
        }
        moves.push_back((from.to_vec(), to.to_vec()));
    }

    /// Where redundancy of a file with these names may lie. The first place is one that the file has now, if it has any.
    fn places(&self, names: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut places: Vec<Vec<u8>> = names.to_vec();
        for place in names.iter().flat_map(|name| self.former_paths(name)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Paths that a file may have had, the one that it has first: redundancy may still lie there.
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

    /// No name leads to a file any more, and nobody has it open.
    fn bury(&self, directory: Vec<u8>, stub: Stub) {
        lock(&self.young).remove(&stub.id);
        lock(&self.versions).remove(&stub.id);
        lock(&self.unsynced).remove(&stub.id);
        lock(&self.removed).push((directory, stub));
    }

    /// Makes removals durable, then removes the objects.
    fn clear_away(&self) -> Result<(), PoolError> {
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
    fn place(&self, id: FileId) -> Result<Vec<Candidate>, PoolError> {
        let view = self.pool.shared.cached_view();
        let mut room = lock(&self.room);
        let is_old = |room: &Room| room.seen.elapsed() > ROOM_BELIEVED || room.epoch != view.config.epoch;
        if room.as_ref().is_none_or(is_old) {
            *room = Some(Room::look(&self.pool.shared.view()));
        }
        let targets = room.as_ref().map_or(&[][..], |room| &room.targets);
        let mut drawn: Vec<(f64, &Candidate)> = targets
            .iter()
            .filter(|(_, candidate)| candidate.free >= view.config.block)
            .map(|(uuid, candidate)| (rank(&id.0, uuid, candidate.free), candidate))
            .collect();
        drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut taken = BTreeSet::new();
        let mut chosen = drawn.into_iter().map(|(_, candidate)| candidate);
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

    /// Something failed. If it was a write to a target, says whether nothing more goes there: it is gone, or takes no writes.
    fn gives_up(&self, error: &PoolError) -> bool {
        match error {
            PoolError::Target { target, source, .. } => self.note_failed_write(target, source),
            _ => false,
        }
    }

    /// A write to a target failed; whether nothing more goes there.
    fn note_failed_write(&self, target: &str, error: &io::Error) -> bool {
        let view = self.pool.shared.cached_view();
        let given_up = view.disk(target.as_bytes()).is_none_or(|(_, disk)| disk.note_failed_write(error));
        self.forget_room();
        given_up
    }

    /// What is known of free space is wrong.
    fn forget_room(&self) {
        *lock(&self.room) = None;
    }
}

impl Room {
    fn look(view: &View) -> Room {
        let uuid = |name: &str| view.disk(name.as_bytes()).map(|(member, _)| member.uuid.clone());
        let targets = crate::storage::pool::placement::candidates(view, b"", 1).into_iter();
        let targets = targets.filter_map(|candidate| Some((uuid(&candidate.name)?, candidate))).collect();
        Room { seen: Stopwatch::start(), epoch: view.config.epoch, targets }
    }
}
