//! A file that is open: read and written in place.

use super::Inner;
use super::column::Column;
use super::guard::{Guard, edges};
use super::publish::{CtimeUpdate, Durability, Published};
use super::state::State;
use crate::examine::ProtectedFile;
use crate::format::FileId;
use crate::geometry::MAX_SIZE;
use crate::rescue::rescue;
use crate::storage::Fault;
use crate::storage::pool::error::PoolError;
use crate::storage::pool::stub::Stub;
use crate::tree::{Generation, Stat};
use gabion_platform::lock::Lockable;
use rustix::io::pwritev;
use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Requests of this many bytes are worth a thread per target, where there are processors for them.
const LARGE: usize = 1 << 19;

/// Says which paths a file has now, as far as that is known; none if it has none any more.
pub type Name<'a> = &'a dyn Fn() -> Vec<Vec<u8>>;

/// A file that is open; all who have it open share one.
#[derive(Debug)]
pub struct LiveFile {
    pub(super) inner: Arc<Inner>,
    pub(super) id: FileId,
    pub(super) state: RwLock<State>,
    pub(super) columns: Vec<Mutex<Column>>,
    pub(super) guard: Mutex<Guard>,
}

impl LiveFile {
    fn new(inner: Arc<Inner>, state: State) -> LiveFile {
        let columns = state.stub.targets.iter().map(|_| Mutex::default()).collect();
        let guard = Mutex::default();
        LiveFile { inner, id: state.stub.id, state: RwLock::new(state), columns, guard }
    }

    pub(super) fn made(inner: Arc<Inner>, stub: Stub, first: Lockable, seen: u64) -> LiveFile {
        let target = stub.targets[0].clone();
        let file = LiveFile::new(inner, State::new(stub, true, seen));
        file.hold(0, first, &target);
        file
    }

    pub(super) fn found(inner: Arc<Inner>, stub: Stub) -> LiveFile {
        let mut state = State::new(stub, false, 0);
        state.had(inner.versions_of(state.stub.id));
        state.began_as([state.stub.stat(0).generation()]);
        LiveFile::new(inner, state)
    }

    pub(super) fn look(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names its objects.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// What there is to know of it.
    pub fn stat(&self) -> Stat {
        self.look().stub.stat(self.inner.pool.shared.device)
    }

    /// All of its stub.
    pub fn stub(&self) -> Stub {
        self.look().stub.clone()
    }

    /// Looks at its stub, size and times included.
    pub fn with_stub<T>(&self, look: impl FnOnce(&Stub) -> T) -> T {
        look(&self.look().stub)
    }

    /// Whether it is this version, and nobody writes to it. Whoever writes says so before the first byte changes.
    pub fn rests_as(&self, version: &Generation) -> bool {
        let state = self.look();
        !state.marked && !state.dirty && state.stub.stat(0).generation() == *version
    }

    /// Whether its last name was taken from it.
    pub fn is_nameless(&self) -> bool {
        self.look().removed
    }

    /// Whether something about it is not in its stub yet.
    pub fn is_dirty(&self) -> bool {
        let state = self.look();
        state.dirty || state.marked
    }

    /// Reads up to the end of the file; gives the number of bytes. `checked`: what nobody wrote since it was protected is compared with
    /// its signatures.
    ///
    /// # Errors
    /// [`PoolError::Lost`] if bytes are gone, or found wrong, and cannot be made again.
    pub fn read(
        &self,
        name: Name<'_>,
        offset: u64,
        buffer: &mut [u8],
        checked: bool,
    ) -> Result<usize, PoolError> {
        let mut state = self.look();
        let (mut bytes, mut failed) = self.read_there(&state, offset, buffer);
        if !failed.is_empty() && self.is_overtaken(&state, name)? {
            drop(state);
            self.catch_up(&mut self.change(), name)?;
            state = self.look();
            (bytes, failed) = self.read_there(&state, offset, buffer);
        }
        if !failed.is_empty() {
            self.read_again(&state, name, offset, &mut buffer[..bytes], failed)?;
        }
        if checked {
            self.check_read(&state, name, offset, &mut buffer[..bytes])?;
        }
        Ok(bytes)
    }

    /// Reads up to the end of the file what is where it is known to be. Gives the number of bytes, and what failed.
    fn read_there(&self, state: &State, offset: u64, buffer: &mut [u8]) -> (usize, Vec<(usize, Fault)>) {
        let end = state.stub.size.min(offset.saturating_add(buffer.len() as u64));
        match end.checked_sub(offset) {
            None | Some(0) => (0, Vec::new()),
            Some(bytes) => (bytes as usize, self.read_columns(state, offset, &mut buffer[..bytes as usize])),
        }
    }

    /// Reads what can be read; gives the columns that cannot, and why.
    pub(super) fn read_columns(&self, state: &State, offset: u64, buffer: &mut [u8]) -> Vec<(usize, Fault)> {
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
            match self.readable(state, column) {
                Ok(object) => match object.read_now(start, slices) {
                    Some(got) => done.push((column, Ok(got))),
                    None => waiting.push((column, object, start, slices)),
                },
                Err(fault) => done.push((column, Err(fault))),
            }
        }
        // Disks that one has to wait for are waited for together.
        done.extend(side_by_side(waiting.len() > 1, waiting, |(column, object, start, slices)| {
            (column, object.read_waiting(start, slices))
        }));
        let mut failed = Vec::new();
        for (column, got) in done {
            let want = state.stub.object_bytes(column, end) - state.stub.object_bytes(column, offset);
            match got {
                Ok(got) if got as u64 == want => {}
                Ok(_) => failed.push((column, Fault::Lost(state.stub.targets[column].as_bytes().to_vec()))),
                Err(fault) => failed.push((column, fault)),
            }
        }
        failed
    }

    /// Makes again what could not be read.
    fn read_again(
        &self,
        state: &State,
        name: Name<'_>,
        offset: u64,
        buffer: &mut [u8],
        failed: Vec<(usize, Fault)>,
    ) -> Result<(), PoolError> {
        let Some((column, fault)) = failed.first() else { return Ok(()) };
        let names = name();
        let path = names.first().cloned().unwrap_or_default();
        let lost = |why: String| {
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
        failed.iter().for_each(|(column, _)| self.look_again(*column));
        let is_in = |version: &_, range: &_| state.is_in(version, range);
        let paths = self.inner.places(&names);
        rescue(&self.inner.pool, &self.inner.coders, &paths, &pieces, is_in, |range, made| {
            buffer[(range.start - offset) as usize..][..made.len()].copy_from_slice(made);
            Ok(())
        })
        .map_err(|why| lost(format!("{fault}, and {why}")))
    }

    /// A time that differs from the one that was.
    pub(super) fn now_after(&self, before: i64) -> i64 {
        match self.inner.pool.shared.clock.now() {
            now if now == before => now + 1,
            now => now,
        }
    }

    /// Bytes were written.
    pub(super) fn note_written(&self, state: &mut State, range: Range<u64>) {
        state.stub.size = state.stub.size.max(range.end);
        state.stub.mtime = self.now_after(state.stub.mtime);
        state.stub.changed = state.stub.changed.max(state.stub.mtime);
        state.wrote(range);
        (state.dirty, state.busy) = (true, true);
    }

    /// Writes bytes at a place.
    ///
    /// # Errors
    /// See [`PoolError`]. Part of the bytes may have been written then, but the file is not longer than it was.
    pub fn write(&self, name: Name<'_>, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        if end > MAX_SIZE {
            return Err(PoolError::Caller { doing: "writing", source: io::ErrorKind::FileTooLarge.into() });
        }
        let mut state = self.change();
        self.mark(&mut state, name, None)?;
        let size = state.stub.size;
        self.mend_before(&state, name, &edges(&(offset..end), state.stub.block));
        let written = match offset > size {
            true => self.stretch(&mut state, name, offset),
            false => Ok(()),
        };
        let written = written.and_then(|()| self.write_columns(&mut state, name, offset, bytes));
        match written {
            Ok(()) => {
                self.note_written(&mut state, offset..end);
                Ok(())
            }
            Err(error) => {
                if end > size {
                    self.cut_objects(&state, size);
                }
                if offset < size {
                    self.note_written(&mut state, offset..end.min(size));
                }
                Err(error)
            }
        }
    }

    /// Writes, and again if a target failed meanwhile: what it had is made anew elsewhere then.
    fn write_columns(
        &self,
        state: &mut State,
        name: Name<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.write_once(state, name, offset, bytes) {
                // Each column moves once at most for one disk that fails.
                Err(error) if attempt <= self.columns.len() && self.inner.gives_up(&error) => {
                    let failed = |column: &usize| matches!(&error, PoolError::Target { target, .. } if *target == state.stub.targets[*column]);
                    (0..self.columns.len()).filter(failed).for_each(|column| self.look_again(column));
                }
                written => return written,
            }
        }
    }

    fn write_once(
        &self,
        state: &mut State,
        name: Name<'_>,
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
            let file = self.writable(state, name, column)?;
            work.push((column, file, state.stub.object_bytes(column, offset), slices));
        }
        let together = work.len() > 1 && bytes.len() >= LARGE && self.inner.cores > 2;
        let written = side_by_side(together, work, |(column, file, start, slices)| {
            (column, write_all(&file, slices, start))
        });
        for (column, written) in &written {
            self.note_change(*column, written);
        }
        written.into_iter().try_for_each(|(column, written)| {
            written.map_err(PoolError::target(&state.stub.targets[column], "writing an object"))
        })
    }

    /// Changes something that is not content, and publishes it.
    ///
    /// # Errors
    /// See [`PoolError`]; those of `change`.
    pub fn update(
        &self,
        name: Name<'_>,
        change: impl FnOnce(&mut Stub) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let mut state = self.change();
        let mut stub = state.stub.clone();
        change(&mut stub)?;
        if stub.mtime != state.stub.mtime {
            self.tell_apart(&state, name, &mut stub);
        }
        let before = state.stub.stat(0).generation();
        let Some(mut path) = self.path(&state, name).filter(|_| !state.gone) else {
            (state.stub, state.gone) = (stub, true);
            return Ok(());
        };
        stub.writing = state.marked;
        let durability = if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Atomic };
        match self.inner.publish(&mut path, &mut stub, state.seen, durability, CtimeUpdate::Advance)? {
            Published::As(number) => {
                self.note_path(&mut state, name, path);
                if !state.marked {
                    state.began_as([before, stub.stat(0).generation()]);
                }
                self.take_over(&mut state, stub, number);
            }
            Published::Gone => (state.stub, state.gone) = (stub, true),
        }
        Ok(())
    }

    /// A program set the time of the file. If that makes it look like a version that was written since, it gets a later time, by
    /// a nanosecond: redundancy of that version would count as its own, and what was written as damage.
    fn tell_apart(&self, state: &State, name: Name<'_>, stub: &mut Stub) {
        let places = match self.inner.is_young(self.id) {
            true => Vec::new(),
            false => self.inner.places(&name()),
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
            stub.mtime = stub.mtime.wrapping_add(1);
        }
    }

    /// Nothing leads to it any more. It stays as it is for those who have it open.
    pub fn lose_name(&self) {
        let mut state = self.change();
        (state.gone, state.removed) = (true, true);
        // Locks keep a sweep away from what no stub refers to.
        for column in 0..self.columns.len() {
            if state.stub.object_bytes(column, state.stub.size) > 0 {
                // What cannot be opened now cannot be read later either.
                let _ = self.existing(&state, column);
            }
        }
    }

    /// Publishes what is not in the stub yet. A file that was not written since the last time counts as resting.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn rest(&self, name: Name<'_>) -> Result<(), PoolError> {
        let mut state = self.change();
        let busy = std::mem::take(&mut state.busy);
        if state.gone || !(state.marked && !busy || state.dirty) {
            return Ok(());
        }
        self.publish_now(&mut state, name, busy, None)
    }

    /// Publishes the file as it is.
    fn publish_now(
        &self,
        state: &mut State,
        name: Name<'_>,
        writing: bool,
        durability: Option<Durability>,
    ) -> Result<(), PoolError> {
        let Some(mut path) = self.path(state, name) else {
            state.gone = true;
            return Ok(());
        };
        let young = if self.inner.is_young(self.id) { Durability::Volatile } else { Durability::Atomic };
        let mut stub = state.stub.clone();
        stub.writing = writing;
        // Whoever finds it resting finds what was written to it.
        if !writing {
            self.inner.remember(self.id, state.versions());
        }
        match self.inner.publish(
            &mut path,
            &mut stub,
            state.seen,
            durability.unwrap_or(young),
            CtimeUpdate::Keep,
        )? {
            Published::As(number) => {
                self.note_path(state, name, path);
                self.take_over(state, stub, number);
                state.marked = writing;
            }
            Published::Gone => state.gone = true,
        }
        Ok(())
    }

    /// Makes content and stub durable.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn sync(&self, name: Name<'_>) -> Result<(), PoolError> {
        self.sync_objects()?;
        let mut state = self.change();
        if state.gone || !(state.dirty || self.inner.is_young(self.id)) {
            return Ok(());
        }
        let marked = state.marked;
        self.publish_now(&mut state, name, marked, Some(Durability::Durable))?;
        super::lock(&self.inner.young).remove(&self.id);
        Ok(())
    }

    /// The last one who had it open closes it. Gives its stub if its name was taken from it: it is to be buried.
    ///
    /// # Errors
    /// See [`PoolError`]; it is still as it was then.
    pub fn close(&self, name: Name<'_>) -> Result<Option<Stub>, PoolError> {
        let mut state = self.change();
        if !state.gone && (state.marked || state.dirty) {
            self.publish_now(&mut state, name, false, None)?;
        }
        if !state.gone {
            self.inner.remember(self.id, state.versions());
        }
        self.let_go();
        Ok(state.removed.then(|| state.stub.clone()))
    }
}

/// Does all of `work`, side by side if that is worth the threads.
fn side_by_side<W: Send, T: Send>(together: bool, work: Vec<W>, act: impl Fn(W) -> T + Sync) -> Vec<T> {
    if !together {
        return work.into_iter().map(act).collect();
    }
    std::thread::scope(|scope| {
        let act = &act;
        let running: Vec<_> = work.into_iter().map(|one| scope.spawn(move || act(one))).collect();
        running.into_iter().map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why))).collect()
    })
}

/// Writes several pieces one after the other.
pub(super) fn write_all(file: &File, pieces: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    let mut left = pieces;
    while !left.is_empty() {
        // The kernel takes this many at once.
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
    use super::{side_by_side, write_all};
    use std::io::IoSlice;

    #[test]
    fn pieces_are_written_one_after_the_other_and_objects_together() {
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
            let done = side_by_side(together, work, |(number, file)| {
                // More pieces than the kernel takes at once.
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
