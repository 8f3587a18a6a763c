//! An open file, read and written in place.

use super::Inner;
use super::column::Column;
use super::guard::{BlockGuard, edges};
use super::lease::LeaseNumber;
use super::publish::{CtimeUpdate, Durability, PublishOutcome};
use super::state::{LinkState, OpenState};
use crate::examine::ProtectedFile;
use crate::format::FileId;
use crate::geometry::MAX_SIZE;
use crate::reconstruct::reconstruct_ranges;
use crate::retry::Failure;
use crate::storage::Fault;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::stub::Stub;
use crate::tree::{Generation, Stat};
use crate::world::Timestamp;
use gabion_platform::lock::Lockable;
use rustix::io::pwritev;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Requests from this size on use one thread per target, if there are enough processors.
const PARALLEL_BYTES: usize = 1 << 19;

/// Returns the present paths of a file as far as they are known; none if it has none any more.
pub type CurrentPaths<'a> = &'a dyn Fn() -> Vec<Vec<u8>>;

/// An open file, shared by all programs that have it open.
#[derive(Debug)]
pub struct LiveFile {
    pub(super) inner: Arc<Inner>,
    pub(super) id: FileId,
    pub(super) state: RwLock<OpenState>,
    pub(super) columns: Vec<Mutex<Column>>,
    pub(super) guard: Mutex<BlockGuard>,
}

impl LiveFile {
    fn new(inner: Arc<Inner>, state: OpenState) -> LiveFile {
        let columns = state.stub.targets.iter().map(|_| Mutex::default()).collect();
        let guard = Mutex::default();
        LiveFile { inner, id: state.stub.id, state: RwLock::new(state), columns, guard }
    }

    pub(super) fn made(inner: Arc<Inner>, stub: Stub, first: Lockable, seen: LeaseNumber) -> LiveFile {
        let target = stub.targets[0].clone();
        let file = LiveFile::new(inner, OpenState::new(stub, true, seen));
        file.attach_object(0, first, &target);
        file
    }

    pub(super) fn found(inner: Arc<Inner>, stub: Stub) -> LiveFile {
        let mut state = OpenState::new(stub, false, LeaseNumber::NONE);
        state.restore_versions(inner.versions_of(state.stub.id));
        state.add_versions([state.stub.stat(0).generation()]);
        LiveFile::new(inner, state)
    }

    pub(super) fn read_state(&self) -> RwLockReadGuard<'_, OpenState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock_state(&self) -> RwLockWriteGuard<'_, OpenState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Identity; names its objects.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Status of the file.
    pub fn stat(&self) -> Stat {
        self.read_state().stub.stat(self.inner.pool.shared.device)
    }

    /// The stub with the present state.
    pub fn stub(&self) -> Stub {
        self.read_state().stub.clone()
    }

    /// Reads from the stub, size and times included.
    pub fn with_stub<T>(&self, look: impl FnOnce(&Stub) -> T) -> T {
        look(&self.read_state().stub)
    }

    /// True if it has this version and is not being written. The stub is marked before the first byte changes.
    pub fn is_at_rest_as(&self, version: &Generation) -> bool {
        let state = self.read_state();
        !state.marked_writing && !state.dirty && state.stub.stat(0).generation() == *version
    }

    /// True if its last name was removed.
    pub fn is_unlinked(&self) -> bool {
        self.read_state().link == LinkState::Removed
    }

    /// True if its state differs from the stub on the mirrors.
    pub fn is_dirty(&self) -> bool {
        let state = self.read_state();
        state.dirty || state.marked_writing
    }

    /// Reads up to the end of the file; returns the number of bytes. If `checked`, blocks that were not written since
    /// they were protected are compared with their signatures.
    ///
    /// # Errors
    /// [`PoolError::Lost`] if bytes are missing or corrupt and cannot be reconstructed.
    pub fn read(
        &self,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        buffer: &mut [u8],
        checked: bool,
    ) -> Result<usize, PoolError> {
        let mut state = self.read_state();
        let (mut bytes, mut failed) = self.read_available(&state, offset, buffer);
        if !failed.is_empty() && self.is_outdated(&state, current_paths)? {
            drop(state);
            self.refresh(&mut self.lock_state(), current_paths)?;
            state = self.read_state();
            (bytes, failed) = self.read_available(&state, offset, buffer);
        }
        if !failed.is_empty() {
            self.read_reconstructed(&state, current_paths, offset, &mut buffer[..bytes], failed)?;
        }
        if checked {
            self.check_read(&state, current_paths, offset, &mut buffer[..bytes])?;
        }
        Ok(bytes)
    }

    /// Reads up to the end of the file from the known targets. Returns the number of bytes, and the columns that
    /// failed.
    fn read_available(
        &self,
        state: &OpenState,
        offset: u64,
        buffer: &mut [u8],
    ) -> (usize, Vec<(usize, Fault)>) {
        let end = state.stub.size.min(offset.saturating_add(buffer.len() as u64));
        match end.checked_sub(offset) {
            None | Some(0) => (0, Vec::new()),
            Some(bytes) => (bytes as usize, self.read_columns(state, offset, &mut buffer[..bytes as usize])),
        }
    }

    /// Reads what is readable; returns the columns that failed, with the fault.
    pub(super) fn read_columns(
        &self,
        state: &OpenState,
        offset: u64,
        buffer: &mut [u8],
    ) -> Vec<(usize, Fault)> {
        let end = offset + buffer.len() as u64;
        let mut slices: Vec<Vec<&mut [u8]>> = self.columns.iter().map(|_| Vec::new()).collect();
        let mut rest = buffer;
        for piece in state.stub.pieces(offset..end) {
            let (now, later) = rest.split_at_mut(piece.bytes as usize);
            slices[piece.column].push(now);
            rest = later;
        }
        let (mut done, mut waiting) = (Vec::new(), Vec::new());
        for (column, slices) in slices.iter_mut().enumerate().filter(|(_, slices)| !slices.is_empty()) {
            let start = state.stub.object_bytes(column, offset);
            match self.readable_object(state, column) {
                Ok(object) => match object.read_now(start, slices) {
                    Some(got) => done.push((column, Ok(got))),
                    None => waiting.push((column, object, start, slices)),
                },
                Err(fault) => done.push((column, Err(fault))),
            }
        }
        // Blocking reads of several disks run in parallel.
        done.extend(run_parallel(waiting.len() > 1, waiting, |(column, object, start, slices)| {
            (column, object.read_waiting(start, slices))
        }));
        let mut failed = Vec::new();
        for (column, got) in done {
            let want = state.stub.object_bytes(column, end) - state.stub.object_bytes(column, offset);
            match got {
                Ok(got) if got as u64 == want => {}
                Ok(_) => {
                    failed.push((column, Fault::Missing(state.stub.targets[column].as_bytes().to_vec())))
                }
                Err(fault) => failed.push((column, fault)),
            }
        }
        failed
    }

    /// Reconstructs what could not be read.
    fn read_reconstructed(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        buffer: &mut [u8],
        failed: Vec<(usize, Fault)>,
    ) -> Result<(), PoolError> {
        let Some((column, fault)) = failed.first() else { return Ok(()) };
        let names = current_paths();
        let path = names.first().cloned().unwrap_or_default();
        let lost = |why: Failure| {
            let target = state.stub.targets[*column].clone();
            PoolError::Lost { path: path.clone(), column: *column, target, why }
        };
        let (block, stripe) = (state.stub.block, state.stub.stripe());
        let end = offset + buffer.len() as u64;
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for number in offset / block..end.div_ceil(block) {
            if failed.iter().any(|(column, _)| *column as u64 == number % stripe) {
                pieces.push((number * block).max(offset)..((number + 1) * block).min(end));
            }
        }
        failed.iter().for_each(|(column, _)| self.forget_object(*column));
        let is_unchanged_since = |version: &_, range: &_| state.is_unchanged_since(version, range);
        let paths = self.inner.redundancy_paths(&names);
        reconstruct_ranges(
            &self.inner.pool,
            &self.inner.coders,
            &paths,
            &pieces,
            is_unchanged_since,
            |range, made| {
                buffer[(range.start - offset) as usize..][..made.len()].copy_from_slice(made);
                Ok(())
            },
        )
        .map_err(|why| lost(why.because(&format!("{fault}, and "))))
    }

    /// The present time, made distinct from `before`.
    pub(super) fn now_after(&self, before: Timestamp) -> Timestamp {
        match self.inner.pool.shared.clock.now() {
            now if now == before => now + Duration::from_nanos(1),
            now => now,
        }
    }

    /// Records that bytes were written.
    pub(super) fn note_written(&self, state: &mut OpenState, range: Range<u64>) {
        state.stub.size = state.stub.size.max(range.end);
        state.stub.mtime = self.now_after(state.stub.mtime);
        state.stub.changed = state.stub.changed.max(state.stub.mtime);
        state.note_write(range);
        (state.dirty, state.recently_written) = (true, true);
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// See [`PoolError`]. Part of the bytes may have been written, but the file has not grown.
    pub fn write(&self, current_paths: CurrentPaths<'_>, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        if end > MAX_SIZE {
            return Err(PoolError::Caller { doing: "writing", source: io::ErrorKind::FileTooLarge.into() });
        }
        let mut state = self.lock_state();
        self.begin_writing(&mut state, current_paths, None)?;
        let size = state.stub.size;
        self.repair_before_write(&state, current_paths, &edges(&(offset..end), state.stub.block));
        let written = match offset > size {
            true => self.extend_objects(&mut state, current_paths, offset),
            false => Ok(()),
        };
        let written = written.and_then(|()| self.write_columns(&mut state, current_paths, offset, bytes));
        match written {
            Ok(()) => {
                self.note_written(&mut state, offset..end);
                Ok(())
            }
            Err(error) => {
                if end > size {
                    self.truncate_objects(&state, size);
                }
                if offset < size {
                    self.note_written(&mut state, offset..end.min(size));
                }
                Err(error)
            }
        }
    }

    /// Writes, and retries if a target fails meanwhile: its column is reconstructed elsewhere then.
    fn write_columns(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.write_once(state, current_paths, offset, bytes) {
                // Each failing disk moves each column at most once.
                Err(error) if attempt <= self.columns.len() && self.inner.is_target_unusable(&error) => {
                    let failed = |column: &usize| matches!(&error, PoolError::Target { target, .. } if *target == state.stub.targets[*column]);
                    (0..self.columns.len()).filter(failed).for_each(|column| self.forget_object(column));
                }
                written => return written,
            }
        }
    }

    fn write_once(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        let end = offset + bytes.len() as u64;
        let mut slices: Vec<Vec<IoSlice<'_>>> = self.columns.iter().map(|_| Vec::new()).collect();
        let mut rest = bytes;
        for piece in state.stub.pieces(offset..end) {
            let (now, later) = rest.split_at(piece.bytes as usize);
            slices[piece.column].push(IoSlice::new(now));
            rest = later;
        }
        let mut work = Vec::new();
        for (column, slices) in slices.iter_mut().enumerate().filter(|(_, slices)| !slices.is_empty()) {
            let file = self.writable_object(state, current_paths, column)?;
            work.push((column, file, state.stub.object_bytes(column, offset), slices));
        }
        let together = work.len() > 1 && bytes.len() >= PARALLEL_BYTES && self.inner.cores > 2;
        let written = run_parallel(together, work, |(column, file, start, slices)| {
            (column, write_all(&file, slices, start))
        });
        for (column, written) in &written {
            self.note_change(*column, written);
        }
        written.into_iter().try_for_each(|(column, written)| {
            written.map_err(PoolError::target(&state.stub.targets[column], "writing an object"))
        })
    }

    /// Changes metadata of the file and publishes it.
    ///
    /// # Errors
    /// See [`PoolError`]; those of `change`.
    pub fn update(
        &self,
        current_paths: CurrentPaths<'_>,
        change: impl FnOnce(&mut Stub) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let mut state = self.lock_state();
        let mut stub = state.stub.clone();
        change(&mut stub)?;
        if stub.mtime != state.stub.mtime {
            self.make_mtime_distinct(&state, current_paths, &mut stub);
        }
        let before = state.stub.stat(0).generation();
        let Some(mut path) = self.current_path(&state, current_paths).filter(|_| !state.is_nameless()) else {
            state.stub = stub;
            state.set_nameless();
            return Ok(());
        };
        stub.writing = state.marked_writing;
        let durability = if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Atomic };
        match self.inner.publish(&mut path, &mut stub, state.seen, durability, CtimeUpdate::Advance)? {
            PublishOutcome::Published(number) => {
                self.note_path(&mut state, current_paths, path);
                if !state.marked_writing {
                    state.add_versions([before, stub.stat(0).generation()]);
                }
                self.set_published(&mut state, stub, number);
            }
            PublishOutcome::NotFound => {
                state.stub = stub;
                state.set_nameless();
            }
        }
        Ok(())
    }

    /// A program set the mtime of the file. If the file would then look like a version that was overwritten since, its
    /// mtime is increased by nanoseconds: redundancy of that version would count as its own, and the new bytes as
    /// damage.
    fn make_mtime_distinct(&self, state: &OpenState, current_paths: CurrentPaths<'_>, stub: &mut Stub) {
        let places = match self.inner.is_young(self.id) {
            true => Vec::new(),
            false => self.inner.redundancy_paths(&current_paths()),
        };
        let protected = |path: &Vec<u8>| ProtectedFile::open(&self.inner.pool, &self.inner.coders, path).ok();
        let protected: Vec<Generation> =
            places.iter().filter_map(protected).map(|protected| protected.header.generation).collect();
        let is_mistaken = |stub: &Stub| {
            let now = stub.stat(0).generation();
            let written = state.is_written_since(&now);
            written.unwrap_or_else(|| protected.iter().any(|version| now.is_unwritten_since(version)))
        };
        while is_mistaken(stub) {
            stub.mtime = Timestamp::from_nanoseconds(stub.mtime.nanoseconds().wrapping_add(1));
        }
    }

    /// Records that the last name was removed. The file stays available to programs that have it open.
    pub fn unlink(&self) {
        let mut state = self.lock_state();
        state.link = LinkState::Removed;
        // Locks keep a sweep from removing unreferenced objects.
        for column in 0..self.columns.len() {
            if state.stub.object_bytes(column, state.stub.size) > 0 {
                // What cannot be opened now cannot be read later either.
                let _ = self.existing_object(&state, column);
            }
        }
    }

    /// Publishes state that is not in the stub yet. A file that was not written since the last call counts as at rest.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn rest(&self, current_paths: CurrentPaths<'_>) -> Result<(), PoolError> {
        let mut state = self.lock_state();
        let busy = std::mem::take(&mut state.recently_written);
        if state.is_nameless() || !(state.marked_writing && !busy || state.dirty) {
            return Ok(());
        }
        self.publish_now(&mut state, current_paths, busy, None)
    }

    /// Publishes the present state of the file.
    fn publish_now(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        writing: bool,
        durability: Option<Durability>,
    ) -> Result<(), PoolError> {
        let Some(mut path) = self.current_path(state, current_paths) else {
            state.set_nameless();
            return Ok(());
        };
        let young = if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Atomic };
        let mut stub = state.stub.clone();
        stub.writing = writing;
        // Recorded before the stub shows the file at rest, so that readers of the stub find the written ranges.
        if !writing {
            self.inner.remember_versions(self.id, state.versions());
        }
        match self.inner.publish(
            &mut path,
            &mut stub,
            state.seen,
            durability.unwrap_or(young),
            CtimeUpdate::Keep,
        )? {
            PublishOutcome::Published(number) => {
                self.note_path(state, current_paths, path);
                self.set_published(state, stub, number);
                state.marked_writing = writing;
            }
            PublishOutcome::NotFound => state.set_nameless(),
        }
        Ok(())
    }

    /// Makes content and stub durable.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn sync(&self, current_paths: CurrentPaths<'_>) -> Result<(), PoolError> {
        self.sync_objects()?;
        let mut state = self.lock_state();
        if state.is_nameless() || !(state.dirty || self.inner.is_young(self.id)) {
            return Ok(());
        }
        let marked = state.marked_writing;
        self.publish_now(&mut state, current_paths, marked, Some(Durability::Durable))?;
        super::lock(&self.inner.young).remove(&self.id);
        Ok(())
    }

    /// Closes the file for its last user. Returns the stub of a file without names, which is to be removed.
    ///
    /// # Errors
    /// See [`PoolError`]; the state is unchanged then.
    pub fn close(&self, current_paths: CurrentPaths<'_>) -> Result<Option<Stub>, PoolError> {
        let mut state = self.lock_state();
        if !state.is_nameless() && (state.marked_writing || state.dirty) {
            self.publish_now(&mut state, current_paths, false, None)?;
        }
        if !state.is_nameless() {
            self.inner.remember_versions(self.id, state.versions());
        }
        self.close_objects();
        Ok((state.link == LinkState::Removed).then(|| state.stub.clone()))
    }
}

/// Runs `act` on all of `work`, in parallel if `together`.
fn run_parallel<W: Send, T: Send>(together: bool, work: Vec<W>, act: impl Fn(W) -> T + Sync) -> Vec<T> {
    if !together {
        return work.into_iter().map(act).collect();
    }
    std::thread::scope(|scope| {
        let act = &act;
        let running: Vec<_> = work.into_iter().map(|one| scope.spawn(move || act(one))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    })
}

/// Writes several consecutive pieces.
pub(super) fn write_all(file: &File, pieces: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    let mut left = pieces;
    while !left.is_empty() {
        // Limit of one system call.
        let at_once = left.len().min(1024);
        match pwritev(file, &left[..at_once], offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(bytes) => {
                offset += bytes as u64;
                IoSlice::advance_slices(&mut left, bytes);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{run_parallel, write_all};
    use std::io::IoSlice;

    #[test]
    fn pieces_are_written_in_order_and_objects_in_parallel() {
        let dir = tempfile::tempdir().unwrap();
        for together in [false, true] {
            let file = |number| {
                let path = dir.path().join(format!("{together}{number}"));
                std::fs::File::options()
                    .create(true)
                    .truncate(true)
                    .read(true)
                    .write(true)
                    .open(path)
                    .unwrap()
            };
            let work: Vec<_> = (0..3u8).map(|number| (number, file(number))).collect();
            let done = run_parallel(together, work, |(number, file)| {
                // More pieces than one system call takes.
                let pieces = vec![[number; 3]; 3000];
                let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
                write_all(&file, &mut slices, 5).map(|()| number)
            });
            assert_eq!(done.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2]);
            for number in 0..3u8 {
                let content = std::fs::read(dir.path().join(format!("{together}{number}"))).unwrap();
                assert!(content[..5] == [0; 5] && content[5..] == vec![number; 9000]);
            }
        }
    }
}
