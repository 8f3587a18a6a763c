//! Where files end, and what is a hole.

use super::super::error::PoolError;
use super::super::objects::object_path;
use super::file::{LiveFile, Name};
use super::guard::edges;
use super::state::State;
use crate::geometry::MAX_SIZE;
use crate::tree::split;
use gabion_platform::lock::Lockable;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;

impl LiveFile {
    /// Gives all objects the bytes that a file of `size` bytes has in them.
    pub(super) fn stretch(&self, state: &mut State, name: Name<'_>, size: u64) -> Result<(), PoolError> {
        for column in 0..self.columns.len() {
            let bytes = state.stub.object_bytes(column, size);
            if bytes > state.stub.object_bytes(column, state.stub.size) {
                let file = self.writable(state, name, column)?;
                file.set_len(bytes)
                    .map_err(PoolError::target(&state.stub.targets[column], "stretching an object"))?;
            }
        }
        Ok(())
    }

    /// Takes from objects what a file of `size` bytes does not have. The one with the first byte that goes comes first: whoever
    /// looks in between finds the file as long as it was, or as it will be.
    pub(super) fn cut_objects(&self, state: &State, size: u64) {
        let first = (size / state.stub.block % state.stub.stripe()) as usize;
        for step in 0..self.columns.len() {
            let column = (first + step) % self.columns.len();
            // What is on a target that is gone is cut when it is opened again.
            if let Ok(Some(file)) = self.existing(state, column) {
                let bytes = state.stub.object_bytes(column, size);
                if file.metadata().is_ok_and(|metadata| metadata.len() > bytes) {
                    let _ = file.set_len(bytes);
                }
            }
        }
    }

    /// Makes the file shorter or longer.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn set_size(&self, name: Name<'_>, size: u64) -> Result<(), PoolError> {
        if size > MAX_SIZE {
            return Err(PoolError::Caller { doing: "resizing", source: io::ErrorKind::FileTooLarge.into() });
        }
        let mut state = self.change();
        let before = state.stub.size;
        if size < before {
            // The stub first: what is cut off must not be missed.
            self.mend_before(&state, name, &edges(&(size..before), state.stub.block));
            self.mark(&mut state, name, Some(size))?;
            self.cut_objects(&state, size);
            state.stub.size = size;
            self.note_written(&mut state, size..size);
            state.wrote(size..before);
            state.stub.size = size;
        } else {
            self.mark(&mut state, name, None)?;
            if let Err(error) = self.stretch(&mut state, name, size) {
                self.cut_objects(&state, before);
                return Err(error);
            }
            self.note_written(&mut state, before..size);
        }
        Ok(())
    }

    /// Reserves room for a range, and makes the file longer unless that is to stay.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn allocate(
        &self,
        name: Name<'_>,
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
        let mut state = self.change();
        self.mark(&mut state, name, None)?;
        for column in 0..self.columns.len() {
            let (from, to) = (state.stub.object_bytes(column, offset), state.stub.object_bytes(column, end));
            if from < to {
                let file = self.writable(&mut state, name, column)?;
                let done = fallocate(&file, FallocateFlags::KEEP_SIZE, from, to - from);
                let target = &state.stub.targets[column];
                done.map_err(|error| PoolError::target(target, "reserving room")(error.into()))?;
            }
        }
        if end > state.stub.size && !keep_size {
            let before = state.stub.size;
            self.stretch(&mut state, name, end)?;
            self.note_written(&mut state, before..end);
        }
        Ok(())
    }

    /// Makes a hole: the range reads as zeros. The file keeps its size.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn punch(&self, name: Name<'_>, offset: u64, length: u64) -> Result<(), PoolError> {
        let mut state = self.change();
        let end = offset.saturating_add(length).min(state.stub.size);
        if offset >= end {
            return Ok(());
        }
        self.mark(&mut state, name, None)?;
        self.mend_before(&state, name, &edges(&(offset..end), state.stub.block));
        for column in 0..self.columns.len() {
            let (from, to) = (state.stub.object_bytes(column, offset), state.stub.object_bytes(column, end));
            if from < to {
                let file = self.writable(&mut state, name, column)?;
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let done = fallocate(&file, how, from, to - from);
                let target = &state.stub.targets[column];
                done.map_err(|error| PoolError::target(target, "making a hole")(error.into()))?;
            }
        }
        self.note_written(&mut state, offset..end);
        Ok(())
    }

    /// Makes the content durable, all targets at once.
    pub(super) fn sync_objects(&self) -> Result<(), PoolError> {
        let state = self.look();
        let mut open: Vec<(usize, Arc<Lockable>)> = Vec::new();
        for column in 0..self.columns.len() {
            if state.stub.object_bytes(column, state.stub.size) == 0 {
                continue;
            }
            match (self.readable(&state, column), self.begin_sync(column)) {
                (Ok(object), _) => open.push((column, object.file)),
                // What was written is gone with its target.
                (Err(_), true) => {
                    let target = &state.stub.targets[column];
                    return Err(PoolError::target(target, "making an object durable")(Errno::IO.into()));
                }
                // It is made again when it is written.
                (Err(_), false) => {}
            }
        }
        let targets = state.stub.targets.clone();
        drop(state);
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let (last, others) = match open.split_last() {
                Some((last, others)) => (Some(last), others),
                None => (None, &[][..]),
            };
            let running: Vec<_> = others.iter().map(|(_, file)| scope.spawn(|| file.sync_all())).collect();
            let own = last.map(|(_, file)| file.sync_all());
            let ended = |_| Err(io::Error::other("its thread has ended"));
            let theirs = running.into_iter().map(|thread| thread.join().unwrap_or_else(ended));
            theirs.chain(own).collect()
        });
        let view = self.inner.pool.shared.known();
        for ((column, _), result) in open.iter().zip(results) {
            let failed = |doing| PoolError::target(&targets[*column], doing);
            if let Err(error) = result.map_err(failed("making an object durable")) {
                self.inner.gives_up(&error);
                return Err(error);
            }
            // A disk that was pulled out takes what it was given with it.
            let answer = view.disk(targets[*column].as_bytes()).map(|(_, disk)| disk.ask());
            let Some(Ok(answer)) = answer else {
                return Err(failed("making an object durable")(Errno::IO.into()));
            };
            let shelf = object_path(self.id, *column);
            answer.tree.sync_directory(split(&shelf).0).map_err(failed("making an object durable"))?;
        }
        Ok(())
    }
}
