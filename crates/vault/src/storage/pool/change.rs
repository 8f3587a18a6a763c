//! Changes of the namespace: one at a time, on all mirrors, and whoever misses one is no longer believed.
//!
//! 1. Whoever changes something holds `lock` on all mirrors that answer, so any two of them meet.
//! 2. A mirror that does not answer, or fails, is marked stale in `pool.toml` on the others. When it comes back, files
//!    that were removed meanwhile do not come back with it; [`heal`](super::Pool::heal) makes it current again.
//! 3. Nothing is changed unless so many targets answer ([`Config::quorum`](super::config::Config::quorum)) that a later
//!    reader with as many finds one that knows of it. That holds while there are more than 2 × redundancy targets.
//! 4. A rename is written down first: half of one would give a file two names.

use super::Shared;
use super::config::Mirror;
use super::error::PoolError;
use super::exchange::EXCHANGE;
use super::namespace::{
    Entry, TREE, beneath, home, look_at, look_up, look_up_file, make_directories, read_entry, write_stub,
    write_whole,
};
use super::stub::{Stub, hex, unhex};
use super::view::{Copy, View};
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join, split};
use gabion_platform::lock::Lockable;
use std::io::{self, Read};
use std::sync::Arc;

/// The file on every target that is locked during a change.
pub(super) const LOCK: &[u8] = b"lock";

/// Ends the names of renames that are under way.
pub(super) const RENAME: &[u8] = b".rename";

const RENAME_HEAD: &str = "gabion pool rename 1";

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
pub(super) struct Change<'a> {
    pub(super) shared: &'a Shared,
    pub(super) view: Arc<View>,
    pub(super) copies: Vec<Copy>,
    faults: Vec<MirrorFault>,
    // Held, not read: closing them gives the right back.
    _locks: Vec<Lockable>,
}

impl Shared {
    /// Waits for the right to change the namespace.
    pub(super) fn change(&self) -> Result<Change<'_>, PoolError> {
        let mut change = self.turn()?;
        let (online, need) = (change.view.present(), change.view.config.quorum());
        if online < need {
            let offline = change.view.offline();
            return Err(PoolError::Quorum { online, need, offline });
        }
        change.leave_behind_the_silent()?;
        change.finish_renames()?;
        Ok(change)
    }

    /// Waits for the right to change the pool, however few targets answer.
    pub(super) fn turn(&self) -> Result<Change<'_>, PoolError> {
        loop {
            let view = self.view();
            let locks = lock(&view)?;
            // Who held the locks before may have changed who has what.
            self.reload(&view);
            let now = self.view();
            if now.config.epoch != view.config.epoch {
                continue;
            }
            let copies = view.copies()?;
            return Ok(Change { shared: self, view, copies, faults: Vec::new(), _locks: locks });
        }
    }
}

fn lock(view: &View) -> Result<Vec<Lockable>, PoolError> {
    let mut locks = Vec::new();
    let mut refused = None;
    // All in the order of the list, so that no two wait for each other.
    for (member, disk) in view.members().filter(|(member, _)| member.mirror != Mirror::None) {
        let Ok(answer) = disk.ask() else { continue };
        let held = answer.tree.write(LOCK).and_then(Lockable::exclusive);
        // A disk that cannot even be locked will fail the change as well and be stale then; the others go on.
        match held {
            Ok(file) => locks.push(file),
            Err(error) => refused = Some(PoolError::target(&member.name, "locking")(error)),
        }
    }
    match (locks.is_empty(), refused) {
        (true, Some(error)) => Err(error),
        _ => Ok(locks),
    }
}

/// What a change holds, kept for later ones.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) view: Arc<View>,
    pub(super) copies: Vec<Copy>,
    locks: Vec<Lockable>,
}

impl<'a> Change<'a> {
    /// Keeps the right to change the namespace for another time.
    pub(super) fn keep(self) -> Held {
        Held { view: self.view, copies: self.copies, locks: self._locks }
    }

    /// Goes on with a right that was kept.
    pub(super) fn go_on(shared: &'a Shared, held: Held) -> Change<'a> {
        let Held { view, copies, locks } = held;
        Change { shared, view, copies, faults: Vec::new(), _locks: locks }
    }
}

impl Change<'_> {
    fn leave_behind_the_silent(&mut self) -> Result<(), PoolError> {
        let current =
            self.view.members().enumerate().filter(|(_, (member, _))| member.mirror == Mirror::Current);
        let silent: Vec<usize> = current
            .map(|(index, _)| index)
            .filter(|index| self.copies.iter().all(|copy| copy.index != *index))
            .collect();
        self.mark(&silent, Mirror::Stale)
    }

    /// Writes down what some targets know of the namespace.
    pub(super) fn mark(&mut self, targets: &[usize], mirror: Mirror) -> Result<(), PoolError> {
        if targets.is_empty() {
            return Ok(());
        }
        let mut config = self.view.config.clone();
        targets.iter().for_each(|&index| config.target[index].mirror = mirror);
        self.view = self.shared.save(config)?;
        Ok(())
    }

    /// Does the same on all mirrors at once. Those that fail are stale from now on; if all fail, nothing has changed.
    pub(super) fn on_all(
        &mut self,
        path: &[u8],
        act: impl Fn(&Tree) -> io::Result<()> + Sync,
    ) -> Result<(), PoolError> {
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let run = |copy: &Copy| {
                let (tree, act) = (copy.tree.clone(), &act);
                scope.spawn(move || act(&tree))
            };
            let running: Vec<_> = self.copies.iter().map(run).collect();
            let joined = running.into_iter().map(|thread| thread.join());
            joined
                .map(|done| done.unwrap_or_else(|_| Err(io::Error::other("its thread has ended"))))
                .collect()
        });
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
    pub(super) fn publish(&mut self, path: &[u8], mut stub: Stub) -> Result<(Stub, Option<Stub>), PoolError> {
        let before = match look_up(&self.copies, path)? {
            Some(Entry::Directory(_)) => return Err(PoolError::path(path, io::ErrorKind::IsADirectory)),
            Some(Entry::File(stub)) => Some(*stub),
            None => None,
        };
        let (revision, changed) = before.as_ref().map_or((0, i64::MIN), |stub| (stub.revision, stub.changed));
        stub.revision = revision + 1;
        stub.changed = self.shared.clock.now().max(changed.saturating_add(1));
        // Other content takes this name only; the others keep theirs.
        stub.names = before.as_ref().filter(|before| before.id == stub.id).map_or(0, |before| before.names);
        let full = home(&stub, path)?;
        let text = stub.encode();
        self.on_all(path, |tree| {
            make_directories(tree, split(&full).0, 0o755)?;
            write_stub(tree, &full, &text)
        })?;
        Ok((stub, before))
    }

    /// Makes `targets` the places of the columns of a file whose stub is `known`. Content and version stay the same.
    pub(super) fn relocate(
        &mut self,
        path: &[u8],
        known: &Stub,
        targets: Vec<String>,
    ) -> Result<Stub, PoolError> {
        let now = look_up_file(&self.copies, path)?;
        if (now.id, now.revision) != (known.id, known.revision) {
            return Err(PoolError::Changed { path: path.to_vec() });
        }
        let full = home(&now, path)?;
        let stub = Stub { revision: now.revision + 1, targets, ..now };
        let text = stub.encode();
        self.on_all(path, |tree| write_stub(tree, &full, &text))?;
        Ok(stub)
    }

    /// Brings one path to the same state on all mirrors.
    pub(super) fn settle(&mut self, path: &[u8]) -> Result<Option<Entry>, PoolError> {
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

    /// Moves a name on all mirrors; both ends have been looked at.
    pub(super) fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), PoolError> {
        let (old, new) = (beneath(TREE, from)?, beneath(TREE, to)?);
        let name = super::config::new_identity().map_err(|error| PoolError::path(from, error))?;
        let note = join(STAGING, &[name.as_bytes(), RENAME].concat());
        let text = format!("{RENAME_HEAD}\n{}\n{}\n", hex(from), hex(to));
        let text = format!("{text}{}\n", blake3::hash(text.as_bytes()).to_hex());
        self.on_all(from, |tree| {
            write_whole(tree, &note, text.as_bytes(), b".note")?;
            tree.sync_directory(STAGING)
        })?;
        self.on_all(from, |tree| move_durably(tree, &old, &new))?;
        self.on_all(from, |tree| tree.remove(&note))
    }

    /// Finishes what someone began and did not live to see.
    fn finish_renames(&mut self) -> Result<(), PoolError> {
        let mut notes = Vec::new();
        for copy in &self.copies {
            let staging = copy.tree.directory(STAGING).and_then(|directory| directory.names());
            let staging = staging.map_err(PoolError::target(&copy.name, "reading its staging directory"))?;
            let ours = staging.iter().filter(|(name, _)| name.ends_with(RENAME) || name.ends_with(EXCHANGE));
            notes.extend(ours.map(|(name, _)| join(STAGING, name)));
        }
        notes.sort();
        notes.dedup();
        for note in notes {
            if note.ends_with(EXCHANGE) {
                self.finish_exchange(&note)?;
                continue;
            }
            // One that is torn was never acted upon.
            if let Some((from, to)) = self.copies.iter().find_map(|copy| read_rename(&copy.tree, &note)) {
                let (old, new) = (beneath(TREE, &from)?, beneath(TREE, &to)?);
                self.on_all(&from, |tree| match tree.find(&old)? {
                    Some(_) => move_durably(tree, &old, &new),
                    None => Ok(()),
                })?;
            }
            self.on_all(b"", |tree| tree.remove(&note))?;
        }
        Ok(())
    }

    /// Mirrors that failed so far; the change is made, but they did not take it.
    pub(super) fn faults(self) -> Vec<MirrorFault> {
        self.faults
    }
}

fn move_durably(tree: &Tree, old: &[u8], new: &[u8]) -> io::Result<()> {
    tree.rename(old, new)?;
    tree.sync_directory(split(old).0)?;
    if split(old).0 == split(new).0 { Ok(()) } else { tree.sync_directory(split(new).0) }
}

fn read_rename(tree: &Tree, note: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut text = String::new();
    absent_is_none(tree.read(note)).ok()??.take(1 << 16).read_to_string(&mut text).ok()?;
    let body = &text[..text.trim_end().rfind('\n')? + 1];
    if blake3::hash(body.as_bytes()).to_hex().as_str() != text[body.len()..].trim_end() {
        return None;
    }
    let mut lines = body.lines();
    (lines.next()? == RENAME_HEAD).then_some(())?;
    Some((unhex(lines.next()?)?, unhex(lines.next()?)?))
}
