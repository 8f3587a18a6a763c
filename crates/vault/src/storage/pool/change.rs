//! Changes of the namespace: one at a time, on all mirrors, and whoever misses one is no longer believed.
//!
//! 1. Whoever changes something holds `lock` on all mirrors that answer, so any two of them meet.
//! 2. A mirror that does not answer, or fails, is marked stale in `pool.toml` on the others before the first change that it misses. When it comes
//!    back, files that were removed meanwhile do not come back with it; [`heal`](super::Pool::heal) makes it current again. As long as nothing is
//!    changed nothing is marked: a mirror that missed nothing may be the only one later.
//! 3. Nothing is changed unless so many targets answer ([`Config::quorum`](super::config::Config::quorum)) that a later
//!    reader with as many finds one that knows of it. That holds while there are more than 2 × redundancy targets.
//! 4. Every change is recorded on a mirror before it is made there ([`sequence`](super::sequence)). Whoever takes the locks next, to
//!    change or to read, finishes the last one.

use super::Shared;
use super::config::{Config, Mirror, VERSION};
use super::disk::open_to_lock;
use super::error::PoolError;
use super::namespace::{
    Entry, TREE, beneath, home, look_at, look_up, look_up_file, make_directories, read_entry, write_stub,
};
use super::sequence::{Care, Position, Prepared, Record, Slots, Step, prepare};
use super::stub::Stub;
use super::view::{Copy, View};
use crate::format::FileId;
use crate::tree::{Tree, split};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The file on every target that is locked during a change.
pub(crate) const LOCK: &[u8] = b"lock";

/// A mirror that did not take a change; it is stale now.
#[derive(Debug)]
pub struct MirrorFault {
    /// The target.
    pub target: String,
    /// What it said.
    pub source: io::Error,
}

/// The right to change the namespace, and its state when that began.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) view: Arc<View>,
    pub(crate) copies: Vec<Copy>,
    /// The last change.
    pub(crate) last: Position,
    /// A change that failed everywhere is recorded, and that could not be taken back: it may still be made by the next opener.
    pub(crate) doubtful: bool,
    faults: Vec<MirrorFault>,
    // Held, not read: closing them gives the right back.
    _locks: Vec<Lockable>,
}

/// Whether to wait for the locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Wait,
    /// Nothing is taken if any of the locks is held by another.
    None,
}

impl Shared {
    /// Waits for the right to change the namespace. Mirrors that do not answer are as they were until something is changed.
    pub(crate) fn change(&self) -> Result<Change<'_>, PoolError> {
        let mut change = self.turn()?;
        let (online, need) = (change.view.present(), change.view.config.quorum());
        if online < need {
            let offline = change.view.offline();
            return Err(PoolError::Quorum { online, need, offline });
        }
        change.raise_format()?;
        change.recover()?;
        Ok(change)
    }

    /// The right to change the pool, if nobody has it and all mirrors that answer can be locked.
    pub(crate) fn turn_if_free(&self) -> Result<Change<'_>, PoolError> {
        let view = self.view();
        let locks = lock(&view, Patience::None)?;
        let copies = view.copies()?;
        Ok(Change::new(self, view, copies, locks))
    }

    /// Waits for the right to change the pool, however few targets answer.
    pub(crate) fn turn(&self) -> Result<Change<'_>, PoolError> {
        loop {
            let view = self.view();
            let locks = lock(&view, Patience::Wait)?;
            // Who held the locks before may have changed who has what.
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

/// Mirrors that count as current and are not among `copies`.
fn silent(view: &View, copies: &[Copy]) -> Vec<usize> {
    let members = view.config.target.iter().enumerate();
    let current = members.filter(|(_, member)| member.mirror == Mirror::Current).map(|(index, _)| index);
    current.filter(|index| copies.iter().all(|copy| copy.index != *index)).collect()
}

fn lock(view: &View, patience: Patience) -> Result<Vec<Lockable>, PoolError> {
    let mut locks = Vec::new();
    let mut refused = None;
    // All in the order of the list, so that no two wait for each other.
    for (member, disk) in view.members().filter(|(member, _)| member.mirror != Mirror::None) {
        let Ok(answer) = disk.ask() else { continue };
        let held = open_to_lock(&answer.tree, LOCK).and_then(|file| match patience {
            Patience::Wait => Lockable::exclusive(file),
            Patience::None => {
                let file = Lockable::from(file);
                match file.try_lock() {
                    Ok(()) => Ok(file),
                    Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(TryLockError::Error(error)) => Err(error),
                }
            }
        });
        // A disk that cannot even be locked will fail the change as well and be stale then; the others go on.
        match held {
            Ok(file) => locks.push(file),
            Err(error) => refused = Some(PoolError::target(&member.name, "locking")(error)),
        }
    }
    match (locks.is_empty() || patience == Patience::None, refused) {
        (true, Some(error)) => Err(error),
        _ => Ok(locks),
    }
}

/// What a change holds, kept for later ones.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) view: Arc<View>,
    pub(crate) copies: Vec<Copy>,
    /// Record files by copy.
    pub(crate) slots: Vec<Slots>,
    /// The last change. Held while the next one is recorded and made.
    pub(crate) last: Mutex<Position>,
    locks: Vec<Lockable>,
}

impl Held {
    /// Whether all mirrors that count as current are among `copies`, so that a change leaves none behind.
    pub(crate) fn is_complete(&self) -> bool {
        silent(&self.view, &self.copies).is_empty()
    }
}

impl<'a> Change<'a> {
    /// Keeps the right to change the namespace for another time.
    pub(crate) fn keep(self) -> Held {
        let slots = self.copies.iter().map(|_| Slots::default()).collect();
        Held { view: self.view, copies: self.copies, slots, last: Mutex::new(self.last), locks: self._locks }
    }

    /// Goes on with a right that was kept.
    pub(crate) fn go_on(shared: &'a Shared, held: Held) -> Change<'a> {
        let Held { view, copies, last, locks, slots: _ } = held;
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        Change { last, ..Change::new(shared, view, copies, locks) }
    }

    fn new(shared: &'a Shared, view: Arc<View>, copies: Vec<Copy>, locks: Vec<Lockable>) -> Change<'a> {
        let (last, faults) = (Position::begin(), Vec::new());
        Change { shared, view, copies, last, doubtful: false, faults, _locks: locks }
    }
}

impl Change<'_> {
    /// Marks mirrors stale that do not answer: from now on they may miss something. To be called before anything is changed or removed on the
    /// word of the others.
    pub(crate) fn leave_behind_the_silent(&mut self) -> Result<(), PoolError> {
        let silent = silent(&self.view, &self.copies);
        if silent.is_empty() {
            return Ok(());
        }
        // A process that sees other mirrors than this one shares no lock with it. It has marked those of this one then, on targets of both.
        self.shared.reload(&self.view);
        if self.shared.known().config.epoch != self.view.config.epoch {
            let why = "another process changed meanwhile which targets have the namespace";
            return Err(PoolError::path(b"/", io::Error::new(io::ErrorKind::ResourceBusy, why)));
        }
        self.mark(&silent, Mirror::Stale)
    }

    /// A program that knows version 1 only would change the namespace without records: it must refuse the pool from now on.
    fn raise_format(&mut self) -> Result<(), PoolError> {
        if self.view.config.format < VERSION {
            self.view = self.shared.save(Config { format: VERSION, ..self.view.config.clone() })?;
        }
        Ok(())
    }

    /// Writes down what some targets know of the namespace.
    pub(crate) fn mark(&mut self, targets: &[usize], mirror: Mirror) -> Result<(), PoolError> {
        if targets.is_empty() {
            return Ok(());
        }
        let mut config = self.view.config.clone();
        targets.iter().for_each(|&index| config.target[index].mirror = mirror);
        self.view = self.shared.save(config)?;
        Ok(())
    }

    /// Does the same on all mirrors at once. Those that fail are stale from now on; if all fail, nothing has changed.
    pub(crate) fn on_all(
        &mut self,
        path: &[u8],
        act: impl Fn(&Tree) -> io::Result<()> + Sync,
    ) -> Result<(), PoolError> {
        self.leave_behind_the_silent()?;
        let results = on_each(&self.copies, &act);
        self.leave_behind_those_that_failed(path, results)
    }

    /// Records a change on all mirrors and makes it, durably. Mirrors that fail are stale from now on.
    pub(crate) fn commit(&mut self, path: &[u8], steps: Vec<Step>) -> Result<(), PoolError> {
        self.leave_behind_the_silent()?;
        let record = self.last.next(steps);
        let results = on_each(&self.copies, &|tree: &Tree| {
            let prepared = prepare(tree, record.steps(), Care::Durable, false)?;
            let made = record.make(tree, &prepared, Care::Durable).inspect_err(|_| prepared.discard(tree));
            made.and_then(|()| record.sync(tree))
        });
        if results.iter().all(Result::is_err) {
            let (last, stale, doubtful) = take_back(&self.copies, &self.last, &record);
            (self.last, self.doubtful) = (last, doubtful);
            let source = results.into_iter().find_map(Result::err);
            self.copies.retain(|copy| !stale.contains(&copy.index));
            self.mark(&stale, Mirror::Stale)?;
            return Err(PoolError::path(path, source.unwrap_or_else(|| io::ErrorKind::NotFound.into())));
        }
        self.last = record.position();
        self.shared.settle(self.last);
        self.leave_behind_those_that_failed(path, results)
    }

    pub(crate) fn leave_behind_those_that_failed(
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

    /// Makes `stub` what `path` stands for, as its next revision. Gives it as it was written, and what was there.
    pub(crate) fn publish(&mut self, path: &[u8], mut stub: Stub) -> Result<(Stub, Option<Stub>), PoolError> {
        let before = match look_up(&self.copies, path)? {
            Some(Entry::Directory(_)) => return Err(PoolError::path(path, io::ErrorKind::IsADirectory)),
            Some(Entry::File(stub)) => Some(*stub),
            None => None,
        };
        let changed = before.as_ref().map_or(i64::MIN, |stub| stub.changed);
        stub.revision = self.last.number + 1;
        stub.changed = self.shared.clock.now().max(changed.saturating_add(1));
        // Other content takes this name only; the others keep theirs.
        stub.names = before.as_ref().filter(|before| before.id == stub.id).map_or(0, |before| before.names);
        self.commit(path, vec![Step::Write { full: home(&stub, path)?, text: stub.encode() }])?;
        Ok((stub, before))
    }

    /// Makes `targets` the places of the columns of a file whose stub is `known`. Content and version stay the same.
    pub(crate) fn relocate(
        &mut self,
        path: &[u8],
        known: &Stub,
        targets: Vec<String>,
    ) -> Result<Stub, PoolError> {
        let now = look_up_file(&self.copies, path)?;
        if (now.id, now.revision) != (known.id, known.revision) {
            return Err(PoolError::Changed { path: path.to_vec() });
        }
        let stub = Stub { revision: self.last.number + 1, targets, ..now };
        self.commit(path, vec![Step::Write { full: home(&stub, path)?, text: stub.encode() }])?;
        Ok(stub)
    }

    /// Brings one path to the same state on all mirrors.
    pub(crate) fn settle(&mut self, path: &[u8]) -> Result<Option<Entry>, PoolError> {
        let newest = look_at(&self.copies, TREE, path)?;
        let full = beneath(TREE, path)?;
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

    /// Moves a name on all mirrors; both ends have been looked at. `id` is that of the file, none for a directory.
    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8], id: Option<FileId>) -> Result<(), PoolError> {
        let (old, new) = (beneath(TREE, from)?, beneath(TREE, to)?);
        self.commit(from, vec![Step::Rename { from: old, to: new, id }])
    }

    /// Mirrors that failed so far; the change is made, but they did not take it.
    pub(crate) fn faults(self) -> Vec<MirrorFault> {
        self.faults
    }
}

/// Does the same on mirrors side by side.
pub(crate) fn on_each<T: Send>(
    copies: &[Copy],
    act: &(impl Fn(&Tree) -> io::Result<T> + Sync),
) -> Vec<io::Result<T>> {
    std::thread::scope(|scope| {
        let running: Vec<_> = copies.iter().map(|copy| scope.spawn(|| act(&copy.tree))).collect();
        let ended = |_| Err(io::Error::other("its thread has ended"));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
    })
}

/// A change failed on all mirrors, though some may have recorded it. If one has made it all the same, it is made: the others are
/// stale. Otherwise an empty change is recorded after it, so that nobody makes it later. Gives the position then, mirrors that are
/// stale, and whether the change may still be made later.
pub(crate) fn take_back(copies: &[Copy], last: &Position, record: &Record) -> (Position, Vec<usize>, bool) {
    let is_recorded = |copy: &Copy| {
        super::sequence::read(&copy.tree)
            .map_or(true, |it| it.is_some_and(|it| it.position() == record.position()))
    };
    let recorded: Vec<&Copy> = copies.iter().filter(|copy| is_recorded(copy)).collect();
    if recorded.is_empty() {
        return (*last, Vec::new(), false);
    }
    let made = |copy: &&Copy| record.is_made(&copy.tree).unwrap_or(false);
    let made: Vec<usize> = recorded.into_iter().filter(made).map(|copy| copy.index).collect();
    if !made.is_empty() {
        let stale = copies.iter().map(|copy| copy.index).filter(|index| !made.contains(index));
        return (record.position(), stale.collect(), false);
    }
    let nothing = record.position().next(Vec::new());
    let done =
        copies.iter().map(|copy| (copy.index, nothing.make(&copy.tree, &Prepared::default(), Care::Durable)));
    let failed: Vec<usize> = done.filter(|(_, done)| done.is_err()).map(|(index, _)| index).collect();
    match failed.len() == copies.len() {
        true => (*last, Vec::new(), true),
        false => (nothing.position(), failed, false),
    }
}
