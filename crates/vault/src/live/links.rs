//! Names that a file of a pool in use has besides its first one.

use super::file::{LiveFile, Name};
use super::state::State;
use super::{Live, lock};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::hard_links::Unlinked;
use crate::storage::pool::namespace::{NamespaceEntry, TREE, look_up, look_up_shared, mirror_path};
use crate::storage::pool::sequence::Step;
use crate::storage::pool::stub::Stub;
use std::io;

impl LiveFile {
    /// Gives the file another name, durably. Whoever calls keeps others from changing names meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it has no name any more; others of [`PoolError`].
    pub fn add_name(&self, name: Name<'_>, to: &[u8]) -> Result<(), PoolError> {
        mirror_path(TREE, to)?;
        let mut state = self.change();
        let absent = || PoolError::path(to, io::ErrorKind::NotFound);
        let path = self.path(&state, name).filter(|_| !state.gone).ok_or_else(absent)?;
        let before = state.stub.stat(0).generation();
        let stub = self.inner.turns.alone(&self.inner.pool.shared, |change| {
            let there = match state.stub.names {
                0 => match look_up(&change.copies, &path)? {
                    Some(NamespaceEntry::File(stub)) => Some(*stub),
                    _ => None,
                },
                _ => look_up_shared(&change.copies, self.id)?,
            };
            let there = there.filter(|there| there.id == self.id).ok_or_else(absent)?;
            let mut stub = Stub { writing: state.marked, ..state.stub.clone() };
            stub.follow(&there);
            change.add_name(&path, to, stub)
        })?;
        // A name that is durable leads to a stub that is.
        lock(&self.inner.young).remove(&self.id);
        if !state.marked {
            state.began_as([before, stub.stat(0).generation()]);
        }
        // The lease is not known: what is there is looked at before the next change.
        self.take_over(&mut state, stub, 0);
        Ok(())
    }

    /// One of several names was taken from it; `stub` is what it is now.
    pub fn has_fewer_names(&self, stub: &Stub) {
        let mut state = self.change();
        let before = state.stub.stat(0).generation();
        state.stub.follow(stub);
        state.seen = 0;
        if !state.marked {
            let now = state.stub.stat(0).generation();
            state.began_as([before, now]);
        }
    }

    /// The path that it is published under: any, if its stub lies apart from its names. Empty if no name is known: then the file is
    /// looked for. Nothing if its last name was taken from it here.
    pub(super) fn path(&self, state: &State, name: Name<'_>) -> Option<Vec<u8>> {
        let known = name().into_iter().next();
        match &state.moved {
            Some((known_as, at)) if *known_as == known => Some(at.clone()),
            _ if state.removed => None,
            _ => Some(known.unwrap_or_default()),
        }
    }

    /// The file was found at `path`.
    pub(super) fn note_path(&self, state: &mut State, name: Name<'_>, path: Vec<u8>) {
        let known = name().into_iter().next();
        let is_elsewhere = state.stub.names == 0 && known.as_ref() != Some(&path);
        state.moved = is_elsewhere.then_some((known, path));
    }
}

impl Stub {
    /// Takes over what others may have changed in the namespace meanwhile.
    pub(super) fn follow(&mut self, there: &Stub) {
        if there.revision > self.revision {
            self.targets.clone_from(&there.targets);
            self.names = there.names;
        }
        self.revision = self.revision.max(there.revision);
        self.changed = self.changed.max(there.changed);
    }
}

impl Live {
    /// Takes one of several names from a file, durably.
    pub(super) fn remove_shared(&self, path: &[u8]) -> Result<Unlinked, PoolError> {
        let full = mirror_path(TREE, path)?;
        self.inner.turns.alone(&self.inner.pool.shared, |change| {
            let stub = match look_up(&change.copies, path)? {
                Some(NamespaceEntry::File(stub)) => *stub,
                Some(NamespaceEntry::Directory(_)) => {
                    return Err(PoolError::path(path, io::ErrorKind::IsADirectory));
                }
                None => return Err(PoolError::path(path, io::ErrorKind::NotFound)),
            };
            change.commit(path, vec![Step::Remove { full: full.clone() }])?;
            change.note_unlinked(stub)
        })
    }
}
