//! Start of in-place writes: objects are locked and the stub is marked, unless another process changed the file
//! meanwhile.

use super::column::Reconstruction;
use super::file::{CurrentPaths, LiveFile};
use super::publish::{Durability, PublishOutcome};
use super::state::OpenState;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::stub::Stub;

/// Attempts if other processes change the file at the same time.
pub(super) const ATTEMPTS: usize = 16;

impl LiveFile {
    /// Marks the stub as `writing`, unless it is. `size` is the size that the file will have.
    pub(super) fn begin_writing(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        size: Option<u64>,
    ) -> Result<(), PoolError> {
        if state.is_nameless() || (state.marked_writing && size.is_none()) {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            self.refresh(state, current_paths)?;
            if self.lock_objects(state, current_paths)? && self.publish_writing(state, current_paths, size)? {
                self.truncate_leftovers(state)?;
                return Ok(());
            }
        }
        Err(PoolError::Changed { path: current_paths().into_iter().next().unwrap_or_default() })
    }

    /// True if another process changed the file since its stub was last seen.
    pub(super) fn is_outdated(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
    ) -> Result<bool, PoolError> {
        match self.current_path(state, current_paths).filter(|_| !state.is_nameless()) {
            Some(path) => self.inner.is_outdated(&path, &state.stub),
            None => Ok(false),
        }
    }

    /// Adopts changes of other processes: columns may have moved since the file was opened.
    pub(super) fn refresh(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
    ) -> Result<(), PoolError> {
        let Some(mut path) = self.current_path(state, current_paths).filter(|_| !state.is_nameless()) else {
            state.set_nameless();
            return Ok(());
        };
        let (mut stub, before) = (state.stub.clone(), state.stub.stat(0).generation());
        match self.inner.refresh(&mut path, &mut stub, state.seen)? {
            PublishOutcome::Published(number) => {
                self.note_path(state, current_paths, path);
                self.set_stub(state, stub, number);
                if !state.marked_writing {
                    let now = state.stub.stat(0).generation();
                    state.add_versions([before, now]);
                }
            }
            PublishOutcome::NotFound => state.set_nameless(),
        }
        Ok(())
    }

    /// Locks the objects of a file that is not marked yet. Repairs and relocations must see the locks before the stub
    /// is marked. Lost columns are then reconstructed while the redundancy is current. Returns false if another process
    /// changed the file meanwhile.
    fn lock_objects(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
    ) -> Result<bool, PoolError> {
        if state.marked_writing || state.is_nameless() {
            return Ok(true);
        }
        let mut lost = Vec::new();
        for column in 0..self.columns.len() {
            let has_bytes = state.stub.object_bytes(column, state.stub.size) > 0;
            if (has_bytes || column == 0) && self.existing_object(state, column)?.is_none() {
                lost.push(column);
            }
        }
        for column in lost {
            // A column that cannot be reconstructed stays lost; writes elsewhere make nothing worse.
            if let Reconstruction::FileChanged = self.reconstruct_column(state, current_paths, column)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Publishes the stub as `writing`. Returns false if another process changed the file meanwhile.
    fn publish_writing(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        size: Option<u64>,
    ) -> Result<bool, PoolError> {
        if state.is_nameless() || (state.marked_writing && size.is_none()) {
            return Ok(true);
        }
        let Some(mut path) = self.current_path(state, current_paths) else {
            state.set_nameless();
            return Ok(true);
        };
        let mut stub = state.stub.clone();
        stub.writing = true;
        stub.size = size.unwrap_or(stub.size);
        stub.mtime = self.now_after(stub.mtime);
        let durability =
            if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Durable };
        match self.inner.publish_if_unchanged(&mut path, &mut stub, state.seen, durability, || Ok(()))? {
            None => return Ok(false),
            Some(PublishOutcome::NotFound) => state.set_nameless(),
            Some(PublishOutcome::Published(number)) => {
                self.note_path(state, current_paths, path);
                if !state.marked_writing {
                    state.add_versions([state.stub.stat(0).generation()]);
                }
                self.set_published(state, stub, number);
                state.marked_writing = true;
            }
        }
        Ok(true)
    }

    /// Records that the stub on the mirrors is this one.
    pub(super) fn set_published(&self, state: &mut OpenState, stub: Stub, seen: u64) {
        self.set_stub(state, stub, seen);
        state.dirty = false;
    }

    /// Adopts a stub; objects of columns that moved are opened again.
    pub(super) fn set_stub(&self, state: &mut OpenState, stub: Stub, seen: u64) {
        for (column, (old, new)) in state.stub.targets.iter().zip(&stub.targets).enumerate() {
            if old != new {
                self.forget_object(column);
            }
        }
        state.stub = stub;
        state.seen = seen;
    }
}
