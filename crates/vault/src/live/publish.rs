//! Stubs in place of others, on all mirrors, with as much durability as they need.

use super::turns::Lease;
use super::{Inner, lock};
use crate::format::FileId;
use crate::storage::pool::change::{Change, on_each, roll_back};
use crate::storage::pool::config::Mirror;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::namespace::{
    MirrorEntry, NamespaceEntry, TREE, look_up, look_up_shared, make_directories, mirror_path, names,
    read_newest, stub_path,
};
use crate::storage::pool::objects::object_path;
use crate::storage::pool::sequence::{Prepared, Step, prepare, sync_records};
use crate::storage::pool::stub::Stub;
use crate::storage::pool::view::MirrorCopy;
use crate::tree::{Kind, Tree, join, split};
use std::collections::BTreeSet;
use std::io;

pub(super) use crate::storage::pool::sequence::Durability;

/// Whether programs were told already of what a stub says: then its time of change stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CtimeUpdate {
    /// They see it from now on.
    Advance,
    /// They saw it when it happened.
    Keep,
}

/// What became of a stub that was to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Published {
    /// It is what its path stands for, under the lease of this number.
    As(u64),
    /// Its path stands for something else by now, or for nothing.
    Gone,
}

/// Directories up to this number are synced one by one; if there are more, everything is.
const MAX_DIRECTORIES: usize = 8;

impl Inner {
    /// Does something on all mirrors; side by side, if it waits for disks. Those that fail are no longer believed; if all fail,
    /// nothing has changed.
    pub(super) fn on_all(
        &self,
        lease: &Lease,
        path: &[u8],
        waits: bool,
        act: impl Fn(&Tree) -> io::Result<()> + Sync,
    ) -> Result<Vec<usize>, PoolError> {
        let copies = &lease.held.copies;
        let results: Vec<io::Result<()>> = match waits && copies.len() > 1 {
            false => copies.iter().map(|copy| act(&copy.tree)).collect(),
            true => std::thread::scope(|scope| {
                let act = &act;
                let running: Vec<_> = copies.iter().map(|copy| scope.spawn(|| act(&copy.tree))).collect();
                let ended = |_| Err(io::Error::other("the thread panicked"));
                running.into_iter().map(|thread| thread.join().unwrap_or_else(ended)).collect()
            }),
        };
        let all_failed = results.iter().all(Result::is_err);
        let mut failed = Vec::new();
        for (copy, result) in copies.iter().zip(results) {
            match result {
                Err(source) if all_failed => return Err(PoolError::path(path, source)),
                // A mirror that never had the directory gets it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let above = mirror_path(TREE, split(path).0)?;
                    let again = make_directories(&copy.tree, &above, 0o755).and_then(|()| act(&copy.tree));
                    failed.extend(again.is_err().then_some(copy.index));
                }
                Err(_) => failed.push(copy.index),
                Ok(()) => {}
            }
        }
        Ok(failed)
    }

    /// Mirrors that failed are stale from now on.
    pub(super) fn mark_stale(&self, failed: &[usize]) -> Result<(), PoolError> {
        if failed.is_empty() {
            return Ok(());
        }
        self.turns.alone(&self.pool.shared, |change: &mut Change<'_>| {
            change.copies.retain(|copy| !failed.contains(&copy.index));
            change.mark(failed, Mirror::Stale)
        })
    }

    /// Records a change on all mirrors and makes it; gives those that failed. Stubs are written before, and directories synced
    /// after others may go on: only the change itself is made one at a time. The record is synced where the change is. `is_new`: a stub that is written
    /// is that of a new name.
    pub(super) fn commit(
        &self,
        lease: &Lease,
        path: &[u8],
        steps: Vec<Step>,
        durability: Durability,
        is_new: bool,
    ) -> Result<Vec<usize>, PoolError> {
        let copies = &lease.held.copies;
        let prepare = |tree: &Tree| prepare(tree, &steps, durability, is_new);
        let mut prepared: Vec<io::Result<Prepared>> =
            match durability != Durability::Volatile && copies.len() > 1 {
                false => copies.iter().map(|copy| prepare(&copy.tree)).collect(),
                true => on_each(copies, &prepare),
            };
        if prepared.iter().all(Result::is_err) {
            let source = prepared.drain(..).find_map(Result::err);
            return Err(PoolError::path(path, source.unwrap_or_else(|| io::ErrorKind::NotFound.into())));
        }
        let mut last = lock(&lease.held.last);
        let record = last.next(steps);
        let (encoded, position) = record.encode_with_position();
        // Others are shut out meanwhile: what waits for disks is done before or after.
        let unsynced =
            if durability == Durability::Volatile { Durability::Volatile } else { Durability::Atomic };
        let mut results: Vec<io::Result<()>> = Vec::new();
        for ((copy, record_files), prepared) in copies.iter().zip(&lease.held.record_files).zip(prepared) {
            results.push(prepared.and_then(|prepared| {
                record
                    .apply_with(&copy.tree, record_files, &encoded, &prepared, unsynced)
                    .inspect_err(|_| prepared.discard(&copy.tree))
            }));
        }
        if results.iter().all(Result::is_err) {
            let (now, _, _) = roll_back(copies, &last, &record);
            *last = now;
            drop(last);
            // What became stale is found behind when the locks are taken next.
            let source = results.into_iter().find_map(Result::err);
            return Err(PoolError::path(path, source.unwrap_or_else(|| io::ErrorKind::NotFound.into())));
        }
        *last = position;
        self.pool.shared.note_completed(position);
        drop(last);
        if durability == Durability::Durable {
            let synced = on_each(copies, &|tree: &Tree| sync_records(tree).and_then(|()| record.sync(tree)));
            for (result, synced) in results.iter_mut().zip(synced).filter(|(result, _)| result.is_ok()) {
                *result = synced;
            }
        }
        match results.iter().all(Result::is_err) {
            true => {
                let source = results.into_iter().find_map(Result::err);
                Err(PoolError::path(path, source.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
            }
            false => {
                let failed = copies.iter().zip(results).filter(|(_, result)| result.is_err());
                Ok(failed.map(|(copy, _)| copy.index).collect())
            }
        }
    }

    /// The directory of a new name must be there.
    pub(super) fn refuse_without_directory(lease: &Lease, path: &[u8]) -> Result<(), PoolError> {
        let above = mirror_path(TREE, split(path).0)?;
        let is_directory = |copy: &MirrorCopy| {
            copy.tree.find(&above).is_ok_and(|found| found.is_some_and(|stat| stat.kind == Kind::Directory))
        };
        match lease.held.copies.iter().any(is_directory) {
            true => Ok(()),
            false => Err(PoolError::path(path, io::ErrorKind::NotFound)),
        }
    }

    /// The text of a stub, as long as stubs may be.
    fn text(path: &[u8], stub: &Stub) -> Result<String, PoolError> {
        let text = stub.encode();
        match text.len() as u64 > crate::storage::pool::stub::MAX_BYTES {
            true => Err(PoolError::path(path, io::Error::from(rustix::io::Errno::NOSPC))),
            false => Ok(text),
        }
    }

    /// Writes a stub, its revision and time of change set, on all mirrors.
    fn spread(
        &self,
        lease: &Lease,
        path: &[u8],
        stub: &Stub,
        durability: Durability,
    ) -> Result<Vec<usize>, PoolError> {
        let (full, text) = (stub_path(stub, path)?, Inner::text(path, stub)?);
        if durability == Durability::Durable {
            self.sync_above(lease, path)?;
        }
        self.commit(lease, path, vec![Step::Write { full, text }], durability, false)
    }

    /// Makes directories above a path durable that are not.
    fn sync_above(&self, lease: &Lease, path: &[u8]) -> Result<(), PoolError> {
        let mut above = split(path).0;
        let mut made = lock(&self.new_directories);
        while !above.is_empty() {
            if made.remove(above) {
                let full = mirror_path(TREE, split(above).0)?;
                self.on_all(lease, path, true, |tree| tree.sync_directory(&full))?;
            }
            above = split(above).0;
        }
        Ok(())
    }

    /// The next revision of a stub: higher than the number of every change so far, and not higher than that of its own.
    pub(super) fn advance(&self, lease: &Lease, stub: &mut Stub) {
        stub.revision = lock(&lease.held.last).number + 1;
        stub.changed = self.pool.shared.clock.now().max(stub.changed.saturating_add(1));
    }

    /// Publishes a file that was not there before.
    pub(super) fn publish_new(&self, path: &[u8], stub: &mut Stub) -> Result<u64, PoolError> {
        let (number, failed) = self.turns.with(&self.pool.shared, |lease| {
            if look_up(&lease.held.copies, path)?.is_some() {
                return Err(PoolError::path(path, io::ErrorKind::AlreadyExists));
            }
            lease.held.view.require_in_service(&stub.targets)?;
            self.advance(lease, stub);
            Inner::refuse_without_directory(lease, path)?;
            let (full, text) = (stub_path(stub, path)?, Inner::text(path, stub)?);
            let steps = vec![Step::Write { full, text }];
            Ok((lease.number, self.commit(lease, path, steps, Durability::Volatile, true)?))
        })?;
        self.mark_stale(&failed)?;
        Ok(number)
    }

    /// The stub that a file has on the mirrors; nothing if its path stands for something else.
    fn there(copies: &[MirrorCopy], path: &[u8], stub: &Stub) -> Result<Option<Stub>, PoolError> {
        let there = match stub.names {
            0 => match look_up(copies, path)? {
                Some(NamespaceEntry::File(there)) => Some(*there),
                _ => None,
            },
            _ => look_up_shared(copies, stub.id)?,
        };
        Ok(there.filter(|there| there.id == stub.id))
    }

    /// Where a file is that was seen at `path`: its stub on the mirrors. Another process may have moved it; then `path` is its new one. Nothing
    /// if it has no name any more.
    fn locate(
        &self,
        copies: &[MirrorCopy],
        path: &mut Vec<u8>,
        stub: &Stub,
    ) -> Result<Option<Stub>, PoolError> {
        if let Some(there) = Inner::there(copies, path, stub)? {
            return Ok(Some(there));
        }
        // Its objects go with the last name, so only a file that was moved is looked for everywhere.
        if stub.names > 0 || !stub.is_file() || self.is_removed(stub) {
            return Ok(None);
        }
        let Some(found) = find_by_id(copies, b"", stub.id)? else { return Ok(None) };
        let there = Inner::there(copies, &found, stub)?;
        *path = found;
        Ok(there)
    }

    /// Whether a file that has bytes has no objects.
    fn is_removed(&self, stub: &Stub) -> bool {
        let view = self.pool.shared.cached_view();
        let has_object =
            |column: usize| match view.disk(stub.targets[column].as_bytes()).map(|(_, disk)| disk.online()) {
                Some(Ok(online)) => {
                    online.tree.find(&object_path(stub.id, column)).map_or(true, |found| found.is_some())
                }
                Some(Err(_)) | None => true,
            };
        stub.size > 0
            && !(0..stub.targets.len())
                .filter(|&column| stub.object_bytes(column, stub.size) > 0)
                .any(has_object)
    }

    /// Whether the path of a file has to be looked at: others may have changed names since it was seen under the lease `seen`.
    fn is_doubtful(lease: &Lease, path: &[u8], stub: &Stub, seen: u64) -> bool {
        lease.number != seen || (path.is_empty() && stub.names == 0)
    }

    /// Whether the stub of a file on the mirrors is a later one.
    pub(super) fn is_overtaken(&self, path: &[u8], stub: &Stub) -> Result<bool, PoolError> {
        self.turns.read(&self.pool.shared, |copies| {
            let there = self.locate(copies, &mut path.to_vec(), stub)?;
            Ok(there.is_some_and(|there| there.revision > stub.revision))
        })
    }

    /// Takes over what others changed about a file that was seen at `path` under the lease `seen`.
    pub(super) fn catch_up(
        &self,
        path: &mut Vec<u8>,
        stub: &mut Stub,
        seen: u64,
    ) -> Result<Published, PoolError> {
        self.turns.look(&self.pool.shared, |lease| {
            if Inner::is_doubtful(lease, path, stub, seen) {
                match self.locate(&lease.held.copies, path, stub)? {
                    Some(there) => stub.follow(&there),
                    None => return Ok(Published::Gone),
                }
            }
            Ok(Published::As(lease.number))
        })
    }

    /// Publishes a file that was seen at `path` under the lease `seen`. If someone else changed it meanwhile, where its objects are
    /// is taken from there.
    pub(super) fn publish(
        &self,
        path: &mut Vec<u8>,
        stub: &mut Stub,
        seen: u64,
        durability: Durability,
        ctime: CtimeUpdate,
    ) -> Result<Published, PoolError> {
        let (published, failed) = self.turns.with(&self.pool.shared, |lease| {
            if Inner::is_doubtful(lease, path, stub, seen) {
                match self.locate(&lease.held.copies, path, stub)? {
                    Some(there) => stub.follow(&there),
                    None => return Ok((Published::Gone, Vec::new())),
                }
            }
            let changed = stub.changed;
            self.advance(lease, stub);
            if ctime == CtimeUpdate::Keep {
                stub.changed = changed;
            }
            Ok((Published::As(lease.number), self.spread(lease, path, stub, durability)?))
        })?;
        self.mark_stale(&failed)?;
        Ok(published)
    }

    /// Publishes a file unless someone else changed it since it was seen at `path` under the lease `seen`: then nothing is done, and
    /// nothing given. `prepare` is done just before, and nobody else changes the namespace meanwhile.
    pub(super) fn publish_unless_overtaken(
        &self,
        path: &mut Vec<u8>,
        stub: &mut Stub,
        seen: u64,
        durability: Durability,
        prepare: impl FnOnce() -> Result<(), PoolError>,
    ) -> Result<Option<Published>, PoolError> {
        let (published, failed) = self.turns.with(&self.pool.shared, |lease| {
            if Inner::is_doubtful(lease, path, stub, seen) {
                match self.locate(&lease.held.copies, path, stub)? {
                    Some(there) if there.revision == stub.revision => {}
                    Some(_) => return Ok((None, Vec::new())),
                    None => return Ok((Some(Published::Gone), Vec::new())),
                }
            }
            prepare()?;
            self.advance(lease, stub);
            Ok((Some(Published::As(lease.number)), self.spread(lease, path, stub, durability)?))
        })?;
        self.mark_stale(&failed)?;
        Ok(published)
    }

    /// Makes names in some directories durable.
    pub(super) fn sync_names(&self, directories: &BTreeSet<&[u8]>) -> Result<(), PoolError> {
        let failed = self.turns.with(&self.pool.shared, |lease| {
            self.on_all(lease, b"", true, |tree| {
                sync_records(tree)?;
                if directories.len() > MAX_DIRECTORIES {
                    return tree.sync_beneath(TREE);
                }
                directories.iter().try_for_each(|directory| {
                    match tree.sync_directory(&join(TREE, directory)) {
                        // One that is gone has nothing to be kept.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => tree.sync_beneath(TREE),
                        synced => synced,
                    }
                })
            })
        })?;
        self.mark_stale(&failed)
    }

    /// Makes all names durable, and what stands for them.
    pub(super) fn sync_all_names(&self) -> Result<(), PoolError> {
        let failed = self.turns.with(&self.pool.shared, |lease| {
            self.on_all(lease, b"", true, |tree| {
                sync_records(tree)?;
                tree.sync_beneath(TREE)
            })
        })?;
        lock(&self.new_directories).clear();
        lock(&self.young).clear();
        self.mark_stale(&failed)
    }
}

/// A path below `path` that leads to a file, if there is one. Reads every stub until then.
fn find_by_id(copies: &[MirrorCopy], path: &[u8], id: FileId) -> Result<Option<Vec<u8>>, PoolError> {
    for (name, _) in names(copies, path)?.iter() {
        let path = join(path, name);
        // A stub that cannot be read may be the one; another mirror or name may still tell.
        let found = match read_newest(copies, TREE, &path) {
            Ok(Some(MirrorEntry::Directory(_))) => find_by_id(copies, &path, id)?,
            Ok(Some(MirrorEntry::File(stub))) => (stub.id == id).then_some(path),
            Ok(Some(MirrorEntry::Name(name))) => (name.id == id).then_some(path),
            Ok(None) | Err(_) => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
