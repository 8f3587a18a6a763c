//! Where files end, and what is a hole.

use super::file::{LiveFile, Name};
use super::guard::edges;
use super::state::State;
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
    /// Gives all objects the bytes that a file of `size` bytes has in them.
    pub(super) fn stretch(&self, state: &mut State, name: Name<'_>, size: u64) -> Result<(), PoolError> {
        for column in 0..self.columns.len() {
            let bytes = state.stub.object_bytes(column, size);
            if bytes > state.stub.object_bytes(column, state.stub.size) {
                self.change_object(state, name, column, "stretching an object", |file| file.set_len(bytes))?;
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
                    let cut = file.set_len(bytes);
                    self.note_change(column, &cut);
                    if let Err(error) = cut {
                        self.inner.note_failed_write(&state.stub.targets[column], &error);
                    }
                }
            }
        }
    }

    /// Moves columns that are longer than a file of the size in its stub has them, since their targets take no writes and cannot cut
    /// them: as long as the file is being written, its end is told by the lengths of its objects.
    fn move_what_stays_long(&self, state: &mut State, name: Name<'_>) -> Result<(), PoolError> {
        for column in 0..self.columns.len() {
            let bytes = state.stub.object_bytes(column, state.stub.size);
            let is_longer = |file: &Lockable| file.metadata().is_ok_and(|metadata| metadata.len() > bytes);
            if self.readable(state, column).is_ok_and(|object| is_longer(&object.file))
                && self.existing(state, column)?.is_none()
            {
                self.writable(state, name, column)?;
            }
        }
        Ok(())
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
            self.move_what_stays_long(&mut state, name)?;
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
                let reserve = |file: &File| Ok(fallocate(file, FallocateFlags::KEEP_SIZE, from, to - from)?);
                self.change_object(&mut state, name, column, "reserving room", reserve)?;
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
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let punch = |file: &File| Ok(fallocate(file, how, from, to - from)?);
                self.change_object(&mut state, name, column, "making a hole", punch)?;
            }
        }
        self.note_written(&mut state, offset..end);
        Ok(())
    }

    /// Makes the content durable, all targets at once. Every result is looked at: the kernel tells of a failed write once.
    ///
    /// A column that was not written to needs nothing from a target that takes no writes: what it has was durable before, and it moves
    /// when it is written next.
    pub(super) fn sync_objects(&self) -> Result<(), PoolError> {
        let state = self.look();
        let mut open: Vec<(usize, bool, Arc<Lockable>)> = Vec::new();
        let mut lost = None;
        for column in 0..self.columns.len() {
            let (unsynced, doubtful) = (self.begin_sync(column), self.take_doubt(column));
            let is_empty = state.stub.object_bytes(column, state.stub.size) == 0;
            if doubtful {
                lost = Some(column);
            }
            match self.readable(&state, column) {
                _ if is_empty => {}
                Ok(object) => open.push((column, unsynced, object.file)),
                // What was written is gone with its target.
                Err(_) if unsynced => lost = Some(column),
                // It is made again when it is written.
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
            // A disk that was pulled out takes what it was given with it.
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
            let theirs = running.into_iter().map(|thread| thread.join().unwrap_or_else(ended));
            theirs.chain(own).collect()
        });
        for ((column, unsynced, _), result) in open.iter().zip(results) {
            let Err(error) = result.map_err(failed(*column)) else { continue };
            if !self.inner.gives_up(&error) || *unsynced {
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(()), Err)
    }
}
