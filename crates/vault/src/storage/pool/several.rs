//! Files with several names.
//!
//! A file with one name has its stub there. When it gets a second one, its stub moves to a place of its own, named by its
//! identity, and counts the names; at each name there is a short text that says which file it is.
//!
//! 1. A new name is one change: the stub in its own place says one name more, the name that it had leads there, and so does the new
//!    one.
//! 2. A name less is two: the name goes, then the stub says one less. When none is left the stub goes, and then the objects. A crash
//!    in between leaves a count that is too high, or a stub that no name leads to.
//!
//! So no name ever leads to nothing, and nothing goes that has a name. A count that is too high keeps a file too long; a sweep
//! counts names and mends it.

use super::change::Change;
use super::error::PoolError;
use super::namespace::{Entry, SHARED, TREE, beneath, home, look_up, look_up_shared, names_below};
use super::objects::remove_all;
use super::sequence::Step;
use super::stub::{NameOfShared, Stub};
use super::view::Copy;
use crate::format::FileId;
use crate::tree::{join, split};
use std::io;

/// A file that has lost a name.
#[derive(Debug)]
pub enum Unnamed {
    /// It was the last one. The objects are still there.
    Last(Stub),
    /// It has others.
    Other(Stub),
}

impl Change<'_> {
    /// The next revision of a stub in its place of its own, and the step that writes it.
    fn next_shared(&self, mut stub: Stub) -> Result<(Stub, Step), PoolError> {
        stub.revision = self.last.number + 1;
        stub.changed = self.shared.clock.now().max(stub.changed.saturating_add(1));
        let step = Step::Write { full: home(&stub, b"")?, text: stub.encode() };
        Ok((stub, step))
    }

    fn publish_shared(&mut self, stub: Stub) -> Result<Stub, PoolError> {
        let (stub, step) = self.next_shared(stub)?;
        self.commit(b"", vec![step])?;
        Ok(stub)
    }

    /// The file of `stub`, which is at `from` if it has one name, gets `to` as well. Gives its stub as it is then.
    pub(crate) fn add_name(&mut self, from: &[u8], to: &[u8], stub: Stub) -> Result<Stub, PoolError> {
        match self.settle(split(to).0)? {
            Some(Entry::Directory(_)) => {}
            Some(Entry::File(_)) => return Err(PoolError::path(split(to).0, io::ErrorKind::NotADirectory)),
            None => return Err(PoolError::path(split(to).0, io::ErrorKind::NotFound)),
        }
        if look_up(&self.copies, to)?.is_some() {
            return Err(PoolError::path(to, io::ErrorKind::AlreadyExists));
        }
        let moves_apart = stub.names == 0;
        let names = stub.names.max(1).checked_add(1);
        let names = names.ok_or_else(|| PoolError::path(to, io::Error::from(rustix::io::Errno::MLINK)))?;
        let (stub, step) = self.next_shared(Stub { names, ..stub })?;
        let name = NameOfShared { id: stub.id, revision: stub.revision };
        let mut steps = vec![step];
        for path in [from, to].into_iter().filter(|path| *path == to || moves_apart) {
            steps.push(Step::Write { full: beneath(TREE, path)?, text: name.encode() });
        }
        self.commit(to, steps)?;
        Ok(stub)
    }

    /// A name of a file is gone, durably: tells the file. `stub` is what it stood for.
    pub(crate) fn lose_name(&mut self, stub: Stub) -> Result<Unnamed, PoolError> {
        if stub.names == 0 {
            return Ok(Unnamed::Last(stub));
        }
        // The stub may have changed since its name was looked up.
        let stub = look_up_shared(&self.copies, stub.id)?.unwrap_or(stub);
        if stub.names > 1 {
            return Ok(Unnamed::Other(self.publish_shared(Stub { names: stub.names - 1, ..stub })?));
        }
        self.forget_shared(stub.id)?;
        Ok(Unnamed::Last(stub))
    }

    /// As [`lose_name`](Change::lose_name); the objects of a file without names go at once.
    pub(crate) fn let_go(&mut self, stub: Stub) -> Result<(), PoolError> {
        if let Unnamed::Last(stub) = self.lose_name(stub)? {
            remove_all(&self.view, &stub);
        }
        Ok(())
    }

    /// Removes a stub that no name leads to.
    fn forget_shared(&mut self, id: FileId) -> Result<(), PoolError> {
        let full = join(SHARED, &super::namespace::shared_name(id));
        self.commit(b"", vec![Step::Remove { full }])
    }

    /// Makes a stub count the names that there are.
    pub(crate) fn mend_count(&mut self, id: FileId, names: u32) -> Result<(), PoolError> {
        match look_up_shared(&self.copies, id)? {
            Some(_) if names == 0 => self.forget_shared(id),
            Some(stub) if stub.names != names => self.publish_shared(Stub { names, ..stub }).map(|_| ()),
            _ => Ok(()),
        }
    }
}

/// Files that have, or had, several names.
pub(crate) fn all_shared(copies: &[Copy]) -> Result<Vec<FileId>, PoolError> {
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
