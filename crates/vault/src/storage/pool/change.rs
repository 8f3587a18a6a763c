//! Changes of the namespace: one at a time, on all mirrors; a mirror that misses a change is no longer used.
//!
//! 1. A process that changes the namespace holds `lock` on all reachable mirrors, so any two processes share a lock.
//! 2. A mirror that is unreachable, or fails, is marked stale in `pool.toml` on the others before the first change that
//!    it misses. When it returns, names that were removed meanwhile do not return with it; [`heal`](super::Pool::heal)
//!    makes it current again. Nothing is marked as long as nothing is changed: a mirror that missed nothing may be the
//!    only one left later.
//! 3. Nothing is changed unless enough targets are reachable ([`Config::quorum`](super::config::Config::quorum)) that
//!    any later reader with as many targets finds one with the change. That holds for more than 2 × redundancy targets.
//! 4. Every change is recorded on a mirror before it is applied there ([`sequence`](super::sequence)). The next process
//!    that takes the locks, to change or to read, completes the last change.

use super::Shared;
use super::config::{Config, Mirror, TargetName, VERSION};
use super::disk::open_to_lock;
use super::error::PoolError;
use super::namespace::{
    NamespaceEntry, TREE, look_up, look_up_file, make_directories, mirror_path, read_entry, read_newest,
    stub_path, write_stub,
};
use super::sequence::{Durability, Position, Prepared, Record, RecordFiles, Step, prepare};
use super::stub::Stub;
use super::view::{MirrorCopy, View};
use crate::format::FileId;
use crate::tree::{Tree, split};
use crate::world::Timestamp;
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The file on every target that is locked during a change.
pub(crate) const LOCK: &[u8] = b"lock";

/// A mirror that failed during a change; it is stale now.
#[derive(Debug)]
pub struct MirrorFault {
    /// The target.
    pub target: TargetName,
    /// The error.
    pub source: io::Error,
}

/// Exclusive right to change the namespace, with its state at that time.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) view: Arc<View>,
    pub(crate) copies: Vec<MirrorCopy>,
    /// The last change.
    pub(crate) last: Position,
    /// A change that failed on all mirrors is recorded and could not be rolled back: the next process may still apply
    /// it.
    pub(crate) outcome_unknown: bool,
    faults: Vec<MirrorFault>,
    // Not read: closing them releases the locks.
    _locks: Vec<Lockable>,
}

/// Whether to wait for the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockMode {
    Wait,
    /// Fails if another process holds any of the locks.
    Try,
}

impl Shared {
    /// Waits for the right to change the namespace. Unreachable mirrors are marked stale only once something is
    /// changed.
    pub(crate) fn change(&self) -> Result<Change<'_>, PoolError> {
        let mut change = self.lock_namespace()?;
        let (online, need) = (change.view.online_count(), change.view.config.quorum());
        if online < need {
            let offline = change.view.offline();
            return Err(PoolError::Quorum { online, need, offline });
        }
        change.raise_format()?;
        change.recover()?;
        Ok(change)
    }

    /// Locks the namespace if no other process has it and all reachable mirrors can be locked.
    pub(crate) fn try_lock_namespace(&self) -> Result<Change<'_>, PoolError> {
        let view = self.view();
        let locks = lock(&view, LockMode::Try)?;
        let copies = view.copies()?;
        Ok(Change::new(self, view, copies, locks))
    }

    /// Locks the namespace, whatever the number of reachable targets.
    pub(crate) fn lock_namespace(&self) -> Result<Change<'_>, PoolError> {
        loop {
            let view = self.view();
            let locks = lock(&view, LockMode::Wait)?;
            // The previous owner of the locks may have changed which targets are mirrors.
            self.reload(&view);
            let now = self.view();
            if now.config.epoch != view.config.epoch {
                continue;
            }
            let copies = view.copies()?;
            return Ok(Change::new(self, view, copies, locks));
        }
    }
}

/// Mirrors marked as current that are not among `copies`.
fn unreachable(view: &View, copies: &[MirrorCopy]) -> Vec<usize> {
    let members = view.config.target.iter().enumerate();
    let current = members.filter(|(_, member)| member.mirror == Mirror::Current).map(|(index, _)| index);
    current.filter(|index| copies.iter().all(|copy| copy.index != *index)).collect()
}

fn lock(view: &View, mode: LockMode) -> Result<Vec<Lockable>, PoolError> {
    let mut locks = Vec::new();
    let mut refused = None;
    // All processes lock in the order of the list, so that no two wait for each other.
    for (member, disk) in view.members().filter(|(member, _)| member.mirror != Mirror::None) {
        let Ok(online) = disk.online() else { continue };
        let held = open_to_lock(&online.tree, LOCK).and_then(|file| match mode {
            LockMode::Wait => Lockable::exclusive(file),
            LockMode::Try => {
                let file = Lockable::from(file);
                match file.try_lock() {
                    Ok(()) => Ok(file),
                    Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(TryLockError::Error(error)) => Err(error),
                }
            }
        });
        // A disk that cannot be locked will fail the change as well and become stale; the others go on.
        match held {
            Ok(file) => locks.push(file),
            Err(error) => refused = Some(PoolError::target(&member.name, "locking")(error)),
        }
    }
    match (locks.is_empty() || mode == LockMode::Try, refused) {
        (true, Some(error)) => Err(error),
        _ => Ok(locks),
    }
}

/// Locks and state of a change, kept for later changes.
#[derive(Debug)]
pub(crate) struct HeldLocks {
    pub(crate) view: Arc<View>,
    pub(crate) copies: Vec<MirrorCopy>,
    /// Record files by copy.
    pub(crate) record_files: Vec<RecordFiles>,
    /// The last change. Locked while the next one is recorded and applied.
    pub(crate) last: Mutex<Position>,
    locks: Vec<Lockable>,
}

impl HeldLocks {
    /// True if all mirrors marked as current are among `copies`, so that a change leaves no mirror behind.
    pub(crate) fn is_complete(&self) -> bool {
        unreachable(&self.view, &self.copies).is_empty()
    }
}

impl<'a> Change<'a> {
    /// Keeps the locks for later changes.
    pub(crate) fn into_held(self) -> HeldLocks {
        let record_files = self.copies.iter().map(|_| RecordFiles::default()).collect();
        HeldLocks {
            view: self.view,
            copies: self.copies,
            record_files,
            last: Mutex::new(self.last),
            locks: self._locks,
        }
    }

    /// Resumes with kept locks.
    pub(crate) fn resume(shared: &'a Shared, held: HeldLocks) -> Change<'a> {
        let HeldLocks { view, copies, last, locks, record_files: _ } = held;
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        Change { last, ..Change::new(shared, view, copies, locks) }
    }

    fn new(shared: &'a Shared, view: Arc<View>, copies: Vec<MirrorCopy>, locks: Vec<Lockable>) -> Change<'a> {
        let (last, faults) = (Position::start(), Vec::new());
        Change { shared, view, copies, last, outcome_unknown: false, faults, _locks: locks }
    }
}

impl Change<'_> {
    /// Marks unreachable mirrors stale: from now on they may miss a change. Called before anything is changed or
    /// removed based on the other mirrors.
    pub(crate) fn mark_unreachable_stale(&mut self) -> Result<(), PoolError> {
        let unreachable = unreachable(&self.view, &self.copies);
        if unreachable.is_empty() {
            return Ok(());
        }
        // A process that sees other mirrors than this one shares no lock with it. It has then marked the mirrors of
        // this process stale, on targets that both see.
        self.shared.reload(&self.view);
        if self.shared.cached_view().config.epoch != self.view.config.epoch {
            let why = "another process changed the list of mirrors meanwhile";
            return Err(PoolError::path(b"/", io::Error::new(io::ErrorKind::ResourceBusy, why)));
        }
        self.mark(&unreachable, Mirror::Stale)
    }

    /// Raises the format version: a program for version 1 would change the namespace without records, so it must refuse
    /// the pool.
    fn raise_format(&mut self) -> Result<(), PoolError> {
        if self.view.config.format < VERSION {
            self.view = self.shared.save(Config { format: VERSION, ..self.view.config.clone() })?;
        }
        Ok(())
    }

    /// Records the mirror state of some targets.
    pub(crate) fn mark(&mut self, targets: &[usize], mirror: Mirror) -> Result<(), PoolError> {
        if targets.is_empty() {
            return Ok(());
        }
        let mut config = self.view.config.clone();
        targets.iter().for_each(|&index| config.target[index].mirror = mirror);
        self.view = self.shared.save(config)?;
        Ok(())
    }

    /// Runs `act` on all mirrors in parallel. Mirrors that fail become stale; if all fail, nothing has changed.
    pub(crate) fn on_all(
        &mut self,
        path: &[u8],
        act: impl Fn(&Tree) -> io::Result<()> + Sync,
    ) -> Result<(), PoolError> {
        self.mark_unreachable_stale()?;
        let results = on_each(&self.copies, &act);
        self.mark_failed_stale(path, results)
    }

    /// Records a change on all mirrors and applies it durably. Mirrors that fail become stale.
    pub(crate) fn commit(&mut self, path: &[u8], steps: Vec<Step>) -> Result<(), PoolError> {
        self.mark_unreachable_stale()?;
        let record = self.last.next(steps);
        let results = on_each(&self.copies, &|tree: &Tree| {
            let prepared = prepare(tree, record.steps(), Durability::Durable, false)?;
            let made =
                record.apply(tree, &prepared, Durability::Durable).inspect_err(|_| prepared.discard(tree));
            made.and_then(|()| record.sync(tree))
        });
        if results.iter().all(Result::is_err) {
            let (last, stale, outcome_unknown) = roll_back(&self.copies, &self.last, &record);
            (self.last, self.outcome_unknown) = (last, outcome_unknown);
            let source = results.into_iter().find_map(Result::err);
            self.copies.retain(|copy| !stale.contains(&copy.index));
            self.mark(&stale, Mirror::Stale)?;
            return Err(PoolError::path(path, source.unwrap_or_else(|| io::ErrorKind::NotFound.into())));
        }
        self.last = record.position();
        self.shared.note_completed(self.last);
        self.mark_failed_stale(path, results)
    }

    pub(crate) fn mark_failed_stale(
        &mut self,
        path: &[u8],
        results: Vec<io::Result<()>>,
    ) -> Result<(), PoolError> {
        let all_failed = results.iter().all(Result::is_err);
        let mut stale = Vec::new();
        for (copy, result) in self.copies.iter().zip(results) {
            match result {
                Err(source) if all_failed => return Err(PoolError::path(path, source)),
                Err(source) => {
                    stale.push(copy.index);
                    self.faults.push(MirrorFault { target: copy.name.clone(), source });
                }
                Ok(()) => {}
            }
        }
        self.copies.retain(|copy| !stale.contains(&copy.index));
        self.mark(&stale, Mirror::Stale)
    }

    /// Publishes `stub` at `path` as its next revision. Returns the written stub and the previous one.
    pub(crate) fn publish(&mut self, path: &[u8], mut stub: Stub) -> Result<(Stub, Option<Stub>), PoolError> {
        let before = match look_up(&self.copies, path)? {
            Some(NamespaceEntry::Directory(_)) => {
                return Err(PoolError::path(path, io::ErrorKind::IsADirectory));
            }
            Some(NamespaceEntry::File(stub)) => Some(*stub),
            None => None,
        };
        let changed = before.as_ref().map_or(Timestamp::MIN, |stub| stub.changed);
        stub.revision = self.last.number + 1;
        stub.changed = self.shared.clock.now().max(changed + Duration::from_nanos(1));
        // New content replaces this name only; other names of the previous file stay.
        stub.names = before.as_ref().filter(|before| before.id == stub.id).map_or(0, |before| before.names);
        self.commit(path, vec![Step::Write { full: stub_path(&stub, path)?, text: stub.encode() }])?;
        Ok((stub, before))
    }

    /// Sets the targets of the columns of a file whose stub is `known`. Content and version stay the same.
    pub(crate) fn relocate(
        &mut self,
        path: &[u8],
        known: &Stub,
        targets: Vec<TargetName>,
    ) -> Result<Stub, PoolError> {
        let now = look_up_file(&self.copies, path)?;
        if (now.id, now.revision) != (known.id, known.revision) {
            return Err(PoolError::Changed { path: path.to_vec() });
        }
        let stub = Stub { revision: self.last.number + 1, targets, ..now };
        self.commit(path, vec![Step::Write { full: stub_path(&stub, path)?, text: stub.encode() }])?;
        Ok(stub)
    }

    /// Brings one path to the same state on all mirrors.
    pub(crate) fn reconcile(&mut self, path: &[u8]) -> Result<Option<NamespaceEntry>, PoolError> {
        let newest = read_newest(&self.copies, TREE, path)?;
        let full = mirror_path(TREE, path)?;
        match newest.as_ref().map(|newest| (newest, newest.text())) {
            Some((newest, Some(text))) => self.on_all(path, |tree| match read_entry(tree, &full) {
                Ok(Some(there)) if there == *newest => Ok(()),
                _ => {
                    make_directories(tree, split(&full).0, 0o755)?;
                    write_stub(tree, &full, &text)
                }
            })?,
            Some((_, None)) => self.on_all(path, |tree| make_directories(tree, &full, 0o755))?,
            None => {}
        }
        look_up(&self.copies, path)
    }

    /// Moves a name on all mirrors after both ends were checked. `id` is that of a file, none for a directory.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8], id: Option<FileId>) -> Result<(), PoolError> {
        let (old, new) = (mirror_path(TREE, from)?, mirror_path(TREE, to)?);
        self.commit(from, vec![Step::Rename { from: old, to: new, id }])
    }

    /// Mirrors that failed so far; the change was applied on the others.
    pub(crate) fn faults(self) -> Vec<MirrorFault> {
        self.faults
    }
}

/// Runs `act` on mirrors in parallel.
pub(crate) fn on_each<T: Send>(
    copies: &[MirrorCopy],
    act: &(impl Fn(&Tree) -> io::Result<T> + Sync),
) -> Vec<io::Result<T>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = copies.iter().map(|copy| scope.spawn(|| act(&copy.tree))).collect();
        let ended = |_| Err(io::Error::other("the thread panicked"));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
    })
}

/// Rolls back a change that failed on all mirrors, though some may have recorded it. If any mirror has applied it, it
/// stands, and the others are stale. Otherwise an empty change is recorded after it, so that no process applies it
/// later. Returns the resulting position, the stale mirrors, and whether the change may still be applied later.
pub(crate) fn roll_back(
    copies: &[MirrorCopy],
    last: &Position,
    record: &Record,
) -> (Position, Vec<usize>, bool) {
    let is_recorded = |copy: &MirrorCopy| {
        super::sequence::read(&copy.tree)
            .map_or(true, |it| it.is_some_and(|it| it.position() == record.position()))
    };
    let recorded: Vec<&MirrorCopy> = copies.iter().filter(|copy| is_recorded(copy)).collect();
    if recorded.is_empty() {
        return (*last, Vec::new(), false);
    }
    let made = |copy: &&MirrorCopy| record.is_applied(&copy.tree).unwrap_or(false);
    let made: Vec<usize> = recorded.into_iter().filter(made).map(|copy| copy.index).collect();
    if !made.is_empty() {
        let stale = copies.iter().map(|copy| copy.index).filter(|index| !made.contains(index));
        return (record.position(), stale.collect(), false);
    }
    let nothing = record.position().next(Vec::new());
    let done = copies
        .iter()
        .map(|copy| (copy.index, nothing.apply(&copy.tree, &Prepared::default(), Durability::Durable)));
    let failed: Vec<usize> = done.filter(|(_, done)| done.is_err()).map(|(index, _)| index).collect();
    match failed.len() == copies.len() {
        true => (*last, Vec::new(), true),
        false => (nothing.position(), failed, false),
    }
}
