//! Objects of an open file.

use super::begin::ATTEMPTS;
use super::file::{CurrentPaths, LiveFile};
use super::lock;
use super::publish::{Durability, PublishOutcome};
use super::state::OpenState;
use crate::reconstruct::{ReconstructError, reconstruct_ranges};
use crate::redundancy::read_up_to;
use crate::retry::{Failure, Retry};
use crate::storage::Fault;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::disk::{Disk, Unavailable, is_of_the_medium};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::objects::{create_locked, object_path, unfinished_path, write_sparse};
use crate::storage::pool::placement::{self, Candidate};
use crate::storage::pool::view::View;
use crate::tree::{Tree, absent_is_none, split};
use crate::world::Stopwatch;
use gabion_platform::lock::Lockable;
use rustix::io::{ReadWriteFlags, preadv2};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// How long a target that was reachable is not checked again.
const RECHECK_AFTER: Duration = Duration::from_millis(100);

/// Bytes read at a time when an object is copied.
const COPY_BYTES: u64 = 1 << 20;

/// Type number of tmpfs in `statfs`.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A column of an open file.
#[derive(Debug, Default)]
pub(super) struct Column {
    object: Option<Object>,
    /// When the target was last reachable.
    seen: Option<Stopwatch>,
    /// It has unsynced writes.
    unsynced: bool,
    /// Its target stopped accepting writes before earlier writes were durable. The next `fsync` reports that, once.
    writes_lost: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) file: Arc<Lockable>,
    disk: Arc<Disk>,
    /// Open for writing, and locked.
    writable: bool,
    /// On a file system in memory, where reads never block.
    in_memory: bool,
}

/// Result of reconstructing a column.
pub(super) enum Reconstruction {
    /// The column is on a new target.
    Done(Arc<Lockable>),
    /// Reconstruction is not possible.
    Impossible(ReconstructError),
    /// Another process changed the file meanwhile, and may have reconstructed the column.
    FileChanged,
}

impl Object {
    fn new(file: Lockable, disk: Arc<Disk>, writable: bool) -> Object {
        let in_memory = rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type == TMPFS);
        Object { file: Arc::new(file), disk, writable, in_memory }
    }

    /// Reads into several consecutive buffers what is available without blocking, and so without a deadline. Returns
    /// the number of bytes read; none if the read would block.
    pub(super) fn read_now(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Option<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let how = if self.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let mut vector: Vec<IoSliceMut<'_>> =
            buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        // Limit of one system call; small blocks of large requests exceed it.
        let at_once = vector.len().min(1024);
        let got = preadv2(&*self.file, &mut vector[..at_once], offset, how).unwrap_or(0);
        (got == want || (self.in_memory && at_once == buffers.len())).then_some(got)
    }

    /// Reads as [`read_now`](Object::read_now), but blocks up to the deadline.
    pub(super) fn read_waiting(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize, Fault> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        // An abandoned call keeps its buffer, so it gets a buffer of its own.
        let (mut own, file) = (vec![0; want], Arc::clone(&self.file));
        let (own, got) = self.disk.deadline_io.run(move || {
            let got = read_up_to(&file, &mut own, offset);
            (own, got)
        })?;
        let got = got?;
        let mut rest = &own[..got];
        for buffer in buffers {
            let (now, later) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..now.len()].copy_from_slice(now);
            rest = later;
        }
        Ok(got)
    }
}

impl LiveFile {
    fn target(&self, view: &View, name: &TargetName) -> Result<(Arc<Disk>, Tree), Fault> {
        let lost = || Fault::Lost(name.as_bytes().to_vec());
        let (_, disk) = view.disk(name.as_bytes()).ok_or_else(lost)?;
        match disk.online() {
            Ok(online) => Ok((Arc::clone(disk), online.tree)),
            Err(Unavailable::TimedOut) => Err(Fault::Timeout(self.inner.pool.shared.deadline_ms())),
            Err(_) => Err(lost()),
        }
    }

    /// Checks, at intervals, that the target of a column is reachable.
    fn check_target(&self, state: &OpenState, column: usize, known: &mut Column) -> Result<(), Fault> {
        if known.seen.is_some_and(|seen| seen.elapsed() < RECHECK_AFTER) {
            return Ok(());
        }
        known.seen = None;
        self.target(&self.inner.pool.shared.cached_view(), &state.stub.targets[column])?;
        known.seen = Some(Stopwatch::start());
        Ok(())
    }

    /// The object of a column for reading.
    pub(super) fn readable_object(&self, state: &OpenState, column: usize) -> Result<Object, Fault> {
        let mut known = lock(&self.columns[column]);
        self.check_target(state, column, &mut known)?;
        if let Some(object) = &known.object {
            return Ok(object.clone());
        }
        let name = &state.stub.targets[column];
        let (disk, tree) = self.target(&self.inner.pool.shared.cached_view(), name)?;
        let path = object_path(self.id, column);
        let file = disk.deadline_io.run(move || absent_is_none(tree.read(&path)))??;
        let file = file.ok_or_else(|| Fault::Missing(name.as_bytes().to_vec()))?;
        Ok(known.object.insert(Object::new(file.into(), disk, false)).clone())
    }

    /// The object of a column for writing: locked, and reconstructed on another target if its target is lost.
    pub(super) fn writable_object(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
    ) -> Result<Arc<Lockable>, PoolError> {
        for _ in 0..ATTEMPTS {
            if let Some(file) = self.existing_object(state, column)? {
                return Ok(file);
            }
            match self.reconstruct_column(state, current_paths, column)? {
                Reconstruction::Done(file) => return Ok(file),
                Reconstruction::Impossible(why) => return Err(self.lost(state, current_paths, column, why)),
                Reconstruction::FileChanged => self.refresh(state, current_paths)?,
            }
        }
        Err(PoolError::Changed { path: first_path(current_paths) })
    }

    fn lost(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
        why: ReconstructError,
    ) -> PoolError {
        let (path, target) = (first_path(current_paths), state.stub.targets[column].clone());
        PoolError::Lost { path, column, target, why: why.because("it is lost: ") }
    }

    /// Changes the object of a column. If its target refuses writes, the column is moved and the change is made there.
    pub(super) fn change_object(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
        doing: &'static str,
        act: impl Fn(&File) -> io::Result<()>,
    ) -> Result<(), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let file = self.writable_object(state, current_paths, column)?;
            let done = act(&file);
            self.note_change(column, &done);
            match done.map_err(PoolError::target(&state.stub.targets[column], doing)) {
                Err(error) if attempt < ATTEMPTS && self.inner.is_target_unusable(&error) => {
                    self.forget_object(column)
                }
                done => return done,
            }
        }
    }

    /// The object of a column for writing, if its target is writable. An object without bytes is created.
    pub(super) fn existing_object(
        &self,
        state: &OpenState,
        column: usize,
    ) -> Result<Option<Arc<Lockable>>, PoolError> {
        match self.open_existing_object(state, column) {
            Err(error) if self.inner.is_target_unusable(&error) => {
                self.forget_object(column);
                Ok(None)
            }
            opened => opened,
        }
    }

    fn open_existing_object(
        &self,
        state: &OpenState,
        column: usize,
    ) -> Result<Option<Arc<Lockable>>, PoolError> {
        let mut known = lock(&self.columns[column]);
        if self.check_target(state, column, &mut known).is_err() {
            known.object = None;
            return Ok(None);
        }
        if let Some(object) = known.object.as_ref().filter(|object| object.writable) {
            return Ok((!object.disk.refuses_writes()).then(|| Arc::clone(&object.file)));
        }
        let target = &state.stub.targets[column];
        let failed = |doing| PoolError::target(target, doing);
        let Ok((disk, tree)) = self.target(&self.inner.pool.shared.cached_view(), target) else {
            return Ok(None);
        };
        if disk.refuses_writes() {
            return Ok(None);
        }
        let path = object_path(self.id, column);
        let bytes = state.stub.object_bytes(column, state.stub.size);
        let file = match absent_is_none(tree.write(&path)).map_err(failed("opening an object"))? {
            Some(file) => {
                let file = Lockable::exclusive(file).map_err(failed("locking an object"))?;
                if state.marked_writing || state.is_nameless() {
                    truncate_excess(&file, bytes).map_err(failed("truncating an object"))?;
                }
                file
            }
            None if bytes == 0 => create_locked(&tree, &path).map_err(failed("creating an object"))?,
            None => return Ok(None),
        };
        let object = known.object.insert(Object::new(file, disk, true));
        Ok(Some(Arc::clone(&object.file)))
    }

    /// Targets for a reconstructed object: in domains that hold nothing of the file.
    fn replacement_targets(&self, state: &OpenState, names: &[Vec<u8>], column: usize) -> Vec<Candidate> {
        let view = self.inner.pool.shared.view();
        let others = state.stub.targets.iter().enumerate().filter(|(other, _)| *other != column);
        let mut taken: BTreeSet<String> = others.map(|(_, name)| view.domain(name).to_owned()).collect();
        let former = self.inner.redundancy_paths(names);
        taken.extend(former.iter().flat_map(|path| placement::domains_of_redundancy(&view, self.id, path)));
        let seed = [&self.id.0[..], &column.to_le_bytes()].concat();
        let mut candidates = placement::candidates(&view, &seed, state.stub.block);
        candidates.retain(|candidate| !taken.contains(&candidate.domain));
        candidates
    }

    /// Truncates objects that were locked before the file was marked: leftovers behind their end must not appear when
    /// the file grows.
    pub(super) fn truncate_leftovers(&self, state: &OpenState) -> Result<(), PoolError> {
        for (column, known) in self.columns.iter().enumerate() {
            let known = lock(known);
            if let Some(object) = known.object.as_ref().filter(|object| object.writable)
                && let Err(error) = truncate_excess(&object.file, state.stub.object_bytes(column, state.stub.size))
                    .map_err(PoolError::target(&state.stub.targets[column], "truncating an object"))
                // A column that has to move gets its length on the new target.
                && !self.inner.is_target_unusable(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Reconstructs the object of a column on another target. Targets that fail are not tried again.
    pub(super) fn reconstruct_column(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
    ) -> Result<Reconstruction, PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.reconstruct_column_once(state, current_paths, column) {
                Err(error) if attempt < ATTEMPTS && self.inner.is_target_unusable(&error) => {}
                made => return made,
            }
        }
    }

    fn reconstruct_column_once(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
    ) -> Result<Reconstruction, PoolError> {
        let (path, names) = (first_path(current_paths), current_paths());
        let found = self.replacement_targets(state, &names, column).into_iter().next();
        let Some(Candidate { name: target, tree, .. }) = found else {
            let why = Failure::new(
                "it is lost, and no target in a separate failure domain can replace it",
                Retry::Later,
            );
            let target = state.stub.targets[column].clone();
            return Err(PoolError::Lost { path, column, target, why });
        };
        let failed = |doing| PoolError::target(&target, doing);
        let temporary = unfinished_path(self.id, column).map_err(failed("naming an object"))?;
        let file = create_locked(&tree, &temporary).map_err(failed("creating an object"))?;
        let object = object_path(self.id, column);
        let place = || {
            tree.make_directories(split(&object).0, 0o700)?;
            tree.rename(&temporary, &object)?;
            tree.sync_directory(split(&object).0)?;
            tree.sync_directory(crate::storage::pool::objects::OBJECTS)
        };
        let unsynced = lock(&self.columns[column]).unsynced;
        let writes_lost = match self.fill_column(state, &names, column, &file, unsynced) {
            Ok(Ok(writes_lost)) => writes_lost,
            Ok(Err(why)) => {
                // A file that stays is removed by a sweep.
                let _ = tree.remove(&temporary);
                return Ok(Reconstruction::Impossible(why));
            }
            Err(error) => {
                let _ = tree.remove(&temporary);
                return Err(failed("writing an object")(error));
            }
        };
        let synced = file.sync_all().map_err(failed("making an object durable"));
        let published = synced.and_then(|()| {
            let place = || place().map_err(failed("placing an object"));
            self.publish_column(state, current_paths, column, &target, place)
        });
        if !matches!(published, Ok(true)) {
            let _ = tree.remove(&temporary);
        }
        if !published? {
            return Ok(Reconstruction::FileChanged);
        }
        let view = self.inner.pool.shared.cached_view();
        let disk =
            view.disk(target.as_bytes()).map(|(_, disk)| Arc::clone(disk)).ok_or_else(target_missing)?;
        let mut known = lock(&self.columns[column]);
        known.seen = Some(Stopwatch::start());
        known.writes_lost |= writes_lost;
        known.unsynced = false;
        self.inner.note_unsynced(self.id, column, false);
        Ok(Reconstruction::Done(Arc::clone(&known.object.insert(Object::new(file, disk, true)).file)))
    }

    /// Writes all bytes of a column: copied if its target is readable, otherwise reconstructed. Unsynced writes are
    /// reconstructed if possible, since the kernel may have dropped them. The inner result is true if unsynced writes
    /// had to be copied. The outer error is a write error.
    fn fill_column(
        &self,
        state: &OpenState,
        names: &[Vec<u8>],
        column: usize,
        file: &File,
        unsynced: bool,
    ) -> io::Result<Result<bool, ReconstructError>> {
        let bytes = state.stub.object_bytes(column, state.stub.size);
        if bytes == 0 || (!unsynced && self.copy_object(state, column, file, bytes)?) {
            return Ok(Ok(false));
        }
        let (block, stripe, size) = (state.stub.block, state.stub.stripe(), state.stub.size);
        let blocks = (0..bytes.div_ceil(block)).map(|row| {
            let start = (row * stripe + column as u64) * block;
            start..(start + block).min(size)
        });
        let blocks: Vec<_> = blocks.collect();
        let paths = self.inner.redundancy_paths(names);
        let is_unchanged_since = |version: &_, range: &_| state.is_unchanged_since(version, range);
        let mut failed = None;
        let made = reconstruct_ranges(
            &self.inner.pool,
            &self.inner.coders,
            &paths,
            &blocks,
            is_unchanged_since,
            |range, made| {
                let at = state.stub.object_bytes(column, range.start);
                write_sparse(file, made, at).map_err(|error| {
                    failed = Some(error);
                    ReconstructError::TooLittle
                })
            },
        );
        match (failed, made) {
            (Some(error), _) => Err(error),
            (None, Err(why)) => {
                let copied = unsynced && self.copy_object(state, column, file, bytes)?;
                Ok(if copied { Ok(true) } else { Err(why) })
            }
            (None, Ok(())) => file.set_len(bytes).map(|()| Ok(false)),
        }
    }

    /// Copies an object from a target that is readable but not writable. Returns false if it could not be read
    /// completely.
    fn copy_object(&self, state: &OpenState, column: usize, to: &File, bytes: u64) -> io::Result<bool> {
        let Ok(from) = self.readable_object(state, column) else { return Ok(false) };
        to.set_len(0)?;
        let mut piece = vec![0; COPY_BYTES.min(bytes) as usize];
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(COPY_BYTES) as usize;
            if !from.read_waiting(done, &mut [&mut piece[..now]]).is_ok_and(|got| got == now) {
                to.set_len(0)?;
                return Ok(false);
            }
            write_sparse(to, &piece[..now], done)?;
            done += now as u64;
        }
        to.set_len(bytes)?;
        Ok(true)
    }

    /// Gives a new object its name and publishes the stub. Returns false if another process changed the file meanwhile:
    /// a rebuild may have moved the same column, which must be neither replaced nor forgotten.
    fn publish_column(
        &self,
        state: &mut OpenState,
        current_paths: CurrentPaths<'_>,
        column: usize,
        target: &TargetName,
        place: impl Fn() -> Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let mut stub = state.stub.clone();
        stub.targets[column] = target.clone();
        stub.writing = true;
        stub.mtime = self.now_after(stub.mtime);
        let mut seen = state.seen;
        if let Some(mut path) = self.current_path(state, current_paths).filter(|_| !state.is_nameless()) {
            match self.inner.publish_if_unchanged(&mut path, &mut stub, seen, Durability::Durable, &place)? {
                Some(PublishOutcome::Published(number)) => {
                    self.note_path(state, current_paths, path);
                    if !state.marked_writing {
                        state.add_versions([state.stub.stat(0).generation()]);
                    }
                    (seen, state.marked_writing) = (number, true);
                }
                Some(PublishOutcome::NotFound) => state.set_nameless(),
                None => return Ok(false),
            }
        }
        // Other processes do not know a file without a name.
        if state.is_nameless() {
            place()?;
        }
        self.set_stub(state, stub, seen);
        Ok(true)
    }

    /// Closes all objects, which releases their locks.
    pub(super) fn close_objects(&self) {
        for column in &self.columns {
            *lock(column) = Column::default();
        }
    }

    /// Closes the object of a column; it is opened again at its present target.
    pub(super) fn forget_object(&self, column: usize) {
        let mut known = lock(&self.columns[column]);
        *known = Column { unsynced: known.unsynced, writes_lost: known.writes_lost, ..Column::default() };
    }

    /// Records the result of a change of a column. A disk that refuses writes has changed nothing.
    pub(super) fn note_change(&self, column: usize, done: &io::Result<()>) {
        if !done.as_ref().is_err_and(is_of_the_medium) {
            self.note_unsynced(column);
        }
    }

    /// Records a write to a column.
    pub(super) fn note_unsynced(&self, column: usize) {
        let mut known = lock(&self.columns[column]);
        if !std::mem::replace(&mut known.unsynced, true) {
            self.inner.note_unsynced(self.id, column, true);
        }
    }

    /// Clears the mark for unsynced writes of a column. Returns whether there were any.
    pub(super) fn begin_sync(&self, column: usize) -> bool {
        let mut known = lock(&self.columns[column]);
        let unsynced = std::mem::take(&mut known.unsynced);
        if unsynced {
            self.inner.note_unsynced(self.id, column, false);
        }
        unsynced
    }

    /// Returns, once, whether writes to a column may be lost because its target stopped accepting writes before a sync.
    pub(super) fn take_lost_writes(&self, column: usize) -> bool {
        std::mem::take(&mut lock(&self.columns[column]).writes_lost)
    }

    /// Attaches the object of a column of a new file.
    pub(super) fn attach_object(&self, column: usize, file: Lockable, target: &TargetName) {
        let view = self.inner.pool.shared.cached_view();
        if let Some((_, disk)) = view.disk(target.as_bytes()) {
            let object = Some(Object::new(file, Arc::clone(disk), true));
            *lock(&self.columns[column]) =
                Column { object, seen: Some(Stopwatch::start()), ..Column::default() };
        }
    }
}

/// Truncates bytes that a crash left behind the end of a file: they must not appear when the file grows.
fn truncate_excess(object: &File, bytes: u64) -> io::Result<()> {
    if object.metadata()?.len() > bytes { object.set_len(bytes) } else { Ok(()) }
}

fn first_path(current_paths: CurrentPaths<'_>) -> Vec<u8> {
    current_paths().into_iter().next().unwrap_or_default()
}

fn target_missing() -> PoolError {
    PoolError::Caller {
        doing: "looking up the target of a new object",
        source: io::ErrorKind::NotFound.into(),
    }
}
