//! Size changes, allocation, holes and sync of open files.

use super::file::{CurrentPaths, LiveFile};
use super::guard::edges;
use super::state::OpenState;
use crate::geometry::MAX_SIZE;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::objects::object_path;
use crate::tree::split;
use gabion_platform::lock::Lockable;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::sync::Arc;

impl LiveFile {
    /// Extends all objects to the length for a file of `size` bytes.
    pub(super) fn extend_objects(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        size: u64,
    ) -> Result<(), PoolError> {
        for column in 0..self.columns.len() {
            let bytes = state.stub.object_bytes(column, size);
            if bytes > state.stub.object_bytes(column, state.stub.size) {
                self.change_object(state, current_paths, column, "extending an object", |file| {
                    file.set_len(bytes)
                })?;
            }
        }
        Ok(())
    }

    /// Truncates all objects to the length for a file of `size` bytes. The object with the first removed byte comes
    /// first, so that a concurrent reader sees the old or the new size.
    pub(super) fn truncate_objects(&self, state: &OpenState, size: u64) {
        let first = (size / state.stub.block % state.stub.stripe()) as usize;
        for step in 0..self.columns.len() {
            let column = (first + step) % self.columns.len();
            // An object on an unreachable target is truncated when it is opened again.
            if let Ok(Some(file)) = self.existing_object(state, column) {
                let bytes = state.stub.object_bytes(column, size);
                if file.metadata().is_ok_and(|metadata| metadata.len() > bytes) {
                    let cut = file.set_len(bytes);
                    self.note_change(column, &cut);
                    if let Err(error) = cut {
                        self.inner.note_failed_write(&state.stub.targets[column], &error);
                    }
                }
            }
        }
    }

    /// Moves columns that are too long because their targets refuse writes: while a file is being written, its size
    /// follows from the lengths of its objects.
    fn move_overlong_columns(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
    ) -> Result<(), PoolError> {
        for column in 0..self.columns.len() {
            let bytes = state.stub.object_bytes(column, state.stub.size);
            let is_longer = |file: &Lockable| file.metadata().is_ok_and(|metadata| metadata.len() > bytes);
            if self.readable_object(state, column).is_ok_and(|object| is_longer(&object.file))
                && self.existing_object(state, column)?.is_none()
            {
                self.writable_object(state, current_paths, column)?;
            }
        }
        Ok(())
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn set_size(&self, current_paths: CurrentPaths<'_>, size: u64) -> Result<(), PoolError> {
        if size > MAX_SIZE {
            return Err(PoolError::Caller { doing: "resizing", source: io::ErrorKind::FileTooLarge.into() });
        }
        let mut state = self.lock_state();
        let before = state.stub.size;
        if size < before {
            // The stub comes first, so that the truncated bytes are not missed.
            self.repair_before_write(&state, current_paths, &edges(&(size..before), state.stub.block));
            self.begin_writing(&mut state, current_paths, Some(size))?;
            self.truncate_objects(&state, size);
            state.stub.size = size;
            self.move_overlong_columns(&mut state, current_paths)?;
            self.note_written(&mut state, size..size);
            state.note_write(size..before);
            state.stub.size = size;
        } else {
            self.begin_writing(&mut state, current_paths, None)?;
            if let Err(error) = self.extend_objects(&mut state, current_paths, size) {
                self.truncate_objects(&state, before);
                return Err(error);
            }
            self.note_written(&mut state, before..size);
        }
        Ok(())
    }

    /// Allocates space for a range, and extends the file unless `keep_size`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn allocate(
        &self,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        length: u64,
        keep_size: bool,
    ) -> Result<(), PoolError> {
        let end = offset.saturating_add(length);
        if end > MAX_SIZE {
            return Err(PoolError::Caller {
                doing: "allocating",
                source: io::ErrorKind::FileTooLarge.into(),
            });
        }
        let mut state = self.lock_state();
        self.begin_writing(&mut state, current_paths, None)?;
        for column in 0..self.columns.len() {
            let (from, to) = (state.stub.object_bytes(column, offset), state.stub.object_bytes(column, end));
            if from < to {
                let reserve = |file: &File| Ok(fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from)?);
                self.change_object(&mut state, current_paths, column, "allocating space", reserve)?;
            }
        }
        if end > state.stub.size && !keep_size {
            let before = state.stub.size;
            self.extend_objects(&mut state, current_paths, end)?;
            self.note_written(&mut state, before..end);
        }
        Ok(())
    }

    /// Punches a hole: the range reads as zeros. The file keeps its size.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn punch(&self, current_paths: CurrentPaths<'_>, offset: u64, length: u64) -> Result<(), PoolError> {
        let mut state = self.lock_state();
        let end = offset.saturating_add(length).min(state.stub.size);
        if offset >= end {
            return Ok(());
        }
        self.begin_writing(&mut state, current_paths, None)?;
        self.repair_before_write(&state, current_paths, &edges(&(offset..end), state.stub.block));
        for column in 0..self.columns.len() {
            let (from, to) = (state.stub.object_bytes(column, offset), state.stub.object_bytes(column, end));
            if from < to {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let punch = |file: &File| Ok(fallocate(file, how, from, to - from)?);
                self.change_object(&mut state, current_paths, column, "punching a hole", punch)?;
            }
        }
        self.note_written(&mut state, offset..end);
        Ok(())
    }

    /// Makes the content durable, on all targets in parallel. Every result is checked: the kernel reports a failed
    /// write once.
    ///
    /// An unwritten column needs nothing from a read-only target: its content is durable, and it moves with the next
    /// write.
    ///
    /// A column that was not written to needs nothing from a target that takes no writes: what it has was durable
    /// before, and it moves when it is written next.
    pub(super) fn sync_objects(&self) -> Result<(), PoolError> {
        let state = self.read_state();
        let mut open: Vec<(usize, bool, Arc<Lockable>)> = Vec::new();
        let mut lost = None;
        for column in 0..self.columns.len() {
            let (unsynced, writes_lost) = (self.begin_sync(column), self.take_lost_writes(column));
            let is_empty = state.stub.object_bytes(column, state.stub.size) == 0;
            if writes_lost {
                lost = Some(column);
            }
            match self.readable_object(&state, column) {
                _ if is_empty => {}
                Ok(object) => open.push((column, unsynced, object.file)),
                // Written bytes were lost with the target.
                Err(_) if unsynced => lost = Some(column),
                // It is reconstructed with the next write.
                Err(_) => {}
            }
        }
        let targets = state.stub.targets.clone();
        drop(state);
        let failed = |column: usize| PoolError::target(&targets[column], "making an object durable");
        let mut first = lost.map(|column| failed(column)(Errno::IO.into()));
        let view = self.inner.pool.shared.cached_view();
        let sync = |column: usize, file: &Lockable| -> io::Result<()> {
            file.sync_all()?;
            // The sync of a disk that was removed may have succeeded in vain.
            let online = view.disk(targets[column].as_bytes()).and_then(|(_, disk)| disk.online().ok());
            let online = online.ok_or(Errno::IO)?;
            online.tree.sync_directory(split(&object_path(self.id, column)).0)
        };
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let sync = &sync;
            let (last, others) = match open.split_last() {
                Some((last, others)) => (Some(last), others),
                None => (None, &[][..]),
            };
            let start = |(column, _, file): &(usize, bool, Arc<Lockable>)| {
                let (column, file) = (*column, Arc::clone(file));
                scope.spawn(move || sync(column, &file))
            };
            let running: Vec<_> = others.iter().map(start).collect();
            let own = last.map(|(column, _, file)| sync(*column, file));
            let ended = |_| Err(io::Error::other("the thread panicked"));
            let others = running.into_iter().map(|thread| thread.join().unwrap_or_else(ended));
            others.chain(own).collect()
        });
        for ((column, unsynced, _), result) in open.iter().zip(results) {
            let Err(error) = result.map_err(failed(*column)) else { continue };
            if !self.inner.is_target_unusable(&error) || *unsynced {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}
