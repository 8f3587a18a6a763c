//! Further names (hard links) of files in a mounted pool.

use super::file::{CurrentPaths, LiveFile};
use super::state::{LinkState, OpenState};
use super::{Live, lock};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::hard_links::Unlinked;
use crate::storage::pool::namespace::{NamespaceEntry, TREE, look_up, look_up_shared, mirror_path};
use crate::storage::pool::sequence::Step;
use crate::storage::pool::stub::Stub;
use std::io;

impl LiveFile {
    /// Adds a name to the file, durably. The caller keeps other threads from changing names meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if the file has no name any more; others of [`PoolError`].
    pub fn add_name(&self, current_paths: CurrentPaths<'_>, to: &[u8]) -> Result<(), PoolError> {
        mirror_path(TREE, to)?;
        let mut state = self.lock_state();
        let absent = || PoolError::path(to, io::ErrorKind::NotFound);
        let path =
            self.current_path(&state, current_paths).filter(|_| !state.is_nameless()).ok_or_else(absent)?;
        let before = state.stub.stat(0).generation();
        let stub = self.inner.lease.exclusive(&self.inner.pool.shared, |change| {
            let there = match state.stub.names {
                0 => match look_up(&change.copies, &path)? {
                    Some(NamespaceEntry::File(stub)) => Some(*stub),
                    _ => None,
                },
                _ => look_up_shared(&change.copies, self.id)?,
            };
            let there = there.filter(|there| there.id == self.id).ok_or_else(absent)?;
            let mut stub = Stub { writing: state.marked_writing, ..state.stub.clone() };
            stub.merge_newer(&there);
            change.add_name(&path, to, stub)
        })?;
        // A durable name needs a durable stub.
        lock(&self.inner.young).remove(&self.id);
        if !state.marked_writing {
            state.add_versions([before, stub.stat(0).generation()]);
        }
        // The lease number is unknown, so the stub is read again before the next change.
        self.set_published(&mut state, stub, 0);
        Ok(())
    }

    /// Records that one of several names was removed; `stub` is the new stub.
    pub fn note_removed_link(&self, stub: &Stub) {
        let mut state = self.lock_state();
        let before = state.stub.stat(0).generation();
        state.stub.merge_newer(stub);
        state.seen = 0;
        if !state.marked_writing {
            let now = state.stub.stat(0).generation();
            state.add_versions([before, now]);
        }
    }

    /// The path for publishing: any name, if the stub lies apart from the names. Empty if no name is known: the file is
    /// searched for then. None if its last name was removed here.
    pub(super) fn current_path(&self, state: &OpenState, current_paths: CurrentPaths<'_>) -> Option<Vec<u8>> {
        let known = current_paths().into_iter().next();
        match &state.moved {
            Some((known_as, at)) if *known_as == known => Some(at.clone()),
            _ if state.link == LinkState::Removed => None,
            _ => Some(known.unwrap_or_default()),
        }
    }

    /// Records the path where the file was found.
    pub(super) fn note_path(&self, state: &mut OpenState, current_paths: CurrentPaths<'_>, path: Vec<u8>) {
        let known = current_paths().into_iter().next();
        let is_elsewhere = state.stub.names == 0 && known.as_ref() != Some(&path);
        state.moved = is_elsewhere.then_some((known, path));
    }
}

impl Stub {
    /// Adopts changes of other processes from a newer stub.
    pub(super) fn merge_newer(&mut self, there: &Stub) {
        if there.revision > self.revision {
            self.targets.clone_from(&there.targets);
            self.names = there.names;
        }
        self.revision = self.revision.max(there.revision);
        self.changed = self.changed.max(there.changed);
    }
}

impl Live {
    /// Removes one of several names of a file, durably.
    pub(super) fn remove_shared(&self, path: &[u8]) -> Result<Unlinked, PoolError> {
        let full = mirror_path(TREE, path)?;
        self.inner.lease.exclusive(&self.inner.pool.shared, |change| {
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
