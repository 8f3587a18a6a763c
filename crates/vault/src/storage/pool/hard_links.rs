//! Files with several names.
//!
//! The stub of a file with one name is at that name. With a second name the stub moves to a path derived from its
//! identity, and counts the names; each name becomes a short text with the identity.
//!
//! 1. Adding a name is one change: the stub gets the higher count, the old name becomes a hard link stub, and so does
//!    the new one.
//! 2. Removing a name is two changes: the name is removed, then the count is lowered. With the last name the stub is
//!    removed, then the objects. A crash in between leaves a count that is too high, or a stub without names.
//!
//! So no name ever refers to a missing file, and no file with a name is removed. A count that is too high keeps a file
//! too long; a sweep counts the names and corrects it.

use super::change::Change;
use super::error::PoolError;
use super::namespace::{
    NamespaceEntry, SHARED, TREE, look_up, look_up_shared, mirror_path, names_below, stub_path,
};
use super::objects::remove_all;
use super::sequence::Step;
use super::stub::{LinkStub, Stub};
use super::view::MirrorCopy;
use crate::format::FileId;
use crate::tree::{join, split};
use std::io;
use std::time::Duration;

/// A file after one of its names was removed.
#[derive(Debug)]
pub enum Unlinked {
    /// It was the last name. The objects still exist.
    Last(Stub),
    /// Other names are left.
    Other(Stub),
}

impl Change<'_> {
    /// The next revision of a stub at its identity path, and the step that writes it.
    fn next_shared(&self, mut stub: Stub) -> Result<(Stub, Step), PoolError> {
        stub.revision = self.last.number + 1;
        stub.changed = self.shared.clock.now().max(stub.changed + Duration::from_nanos(1));
        let step = Step::Write { full: stub_path(&stub, b"")?, text: stub.encode() };
        Ok((stub, step))
    }

    fn publish_shared(&mut self, stub: Stub) -> Result<Stub, PoolError> {
        let (stub, step) = self.next_shared(stub)?;
        self.commit(b"", vec![step])?;
        Ok(stub)
    }

    /// Adds the name `to` to the file of `stub`, which is at `from` if it has one name. Returns the new stub.
    pub(crate) fn add_name(&mut self, from: &[u8], to: &[u8], stub: Stub) -> Result<Stub, PoolError> {
        match self.reconcile(split(to).0)? {
            Some(NamespaceEntry::Directory(_)) => {}
            Some(NamespaceEntry::File(_)) => {
                return Err(PoolError::path(split(to).0, io::ErrorKind::NotADirectory));
            }
            None => return Err(PoolError::path(split(to).0, io::ErrorKind::NotFound)),
        }
        if look_up(&self.copies, to)?.is_some() {
            return Err(PoolError::path(to, io::ErrorKind::AlreadyExists));
        }
        let moves_apart = stub.names == 0;
        let names = stub.names.max(1).checked_add(1);
        let names = names.ok_or_else(|| PoolError::path(to, io::Error::from(rustix::io::Errno::MLINK)))?;
        let (stub, step) = self.next_shared(Stub { names, ..stub })?;
        let name = LinkStub { id: stub.id, revision: stub.revision };
        let mut steps = vec![step];
        for path in [from, to].into_iter().filter(|path| *path == to || moves_apart) {
            steps.push(Step::Write { full: mirror_path(TREE, path)?, text: name.encode() });
        }
        self.commit(to, steps)?;
        Ok(stub)
    }

    /// Lowers the count of a file after one of its names was removed durably. `stub` is what the name referred to.
    pub(crate) fn note_unlinked(&mut self, stub: Stub) -> Result<Unlinked, PoolError> {
        if stub.names == 0 {
            return Ok(Unlinked::Last(stub));
        }
        // The stub may have changed since its name was looked up.
        let stub = look_up_shared(&self.copies, stub.id)?.unwrap_or(stub);
        if stub.names > 1 {
            return Ok(Unlinked::Other(self.publish_shared(Stub { names: stub.names - 1, ..stub })?));
        }
        self.remove_shared_stub(stub.id)?;
        Ok(Unlinked::Last(stub))
    }

    /// As [`note_unlinked`](Change::note_unlinked); removes the objects of a file without names.
    pub(crate) fn unlink(&mut self, stub: Stub) -> Result<(), PoolError> {
        if let Unlinked::Last(stub) = self.note_unlinked(stub)? {
            remove_all(&self.view, &stub);
        }
        Ok(())
    }

    /// Removes a stub that has no names.
    fn remove_shared_stub(&mut self, id: FileId) -> Result<(), PoolError> {
        let full = join(SHARED, &super::namespace::shared_name(id));
        self.commit(b"", vec![Step::Remove { full }])
    }

    /// Sets the count of a stub to the number of names found.
    pub(crate) fn correct_link_count(&mut self, id: FileId, names: u32) -> Result<(), PoolError> {
        match look_up_shared(&self.copies, id)? {
            Some(_) if names == 0 => self.remove_shared_stub(id),
            Some(stub) if stub.names != names => self.publish_shared(Stub { names, ..stub }).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// Identities of files that have, or had, several names.
pub(crate) fn shared_files(copies: &[MirrorCopy]) -> Result<Vec<FileId>, PoolError> {
    let absent = |error: &PoolError| error.kind() == io::ErrorKind::NotFound;
    let shelves = match names_below(copies, SHARED, b"") {
        Err(error) if absent(&error) => return Ok(Vec::new()),
        found => found?,
    };
    let mut found = Vec::new();
    for (shelf, _) in shelves.iter() {
        for (name, _) in names_below(copies, SHARED, shelf)?.iter() {
            let id = std::str::from_utf8(name).ok().and_then(super::stub::unhex);
            found.extend(id.and_then(|id| id.try_into().ok()).map(FileId));
        }
    }
    Ok(found)
}
