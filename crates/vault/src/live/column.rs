//! The objects of a file that is open.

use super::begin::ATTEMPTS;
use super::file::{LiveFile, Name};
use super::lock;
use super::publish::{Durability, Published};
use super::state::State;
use crate::redundancy::read_up_to;
use crate::rescue::{RescueError, rescue};
use crate::storage::Fault;
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

/// How long a target that answered is believed to be there.
const BELIEVED: Duration = Duration::from_millis(100);

/// Bytes of an object that are read at once when it is copied.
const COPIED_AT_ONCE: u64 = 1 << 20;

/// The number that `statfs` gives for memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

/// A column of an open file.
#[derive(Debug, Default)]
pub(super) struct Column {
    object: Option<Object>,
    /// When its target answered last.
    seen: Option<Stopwatch>,
    /// Something was written to it and not made durable.
    unsynced: bool,
    /// Its target took no writes any more before what was written to it was durable. The next `fsync` says so, once.
    doubtful: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) file: Arc<Lockable>,
    disk: Arc<Disk>,
    /// Open for writing, and locked.
    writable: bool,
    /// It is in memory, which is always there.
    in_memory: bool,
}

/// What became of a column that was to be made again.
pub(super) enum Anew {
    /// It is there.
    Made(Arc<Lockable>),
    /// That cannot be.
    Beyond(RescueError),
    /// Someone else changed the file meanwhile, and perhaps made it.
    Overtaken,
}

impl Object {
    fn new(file: Lockable, disk: Arc<Disk>, writable: bool) -> Object {
        let in_memory = rustix::fs::fstatfs(&file).is_ok_and(|system| system.f_type == TMPFS);
        Object { file: Arc::new(file), disk, writable, in_memory }
    }

    /// Reads into several buffers, one after the other, what can be had without waiting, and so without a deadline. Gives the
    /// number of bytes that were there; nothing if one has to wait for them.
    pub(super) fn read_now(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Option<usize> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let how = if self.in_memory { ReadWriteFlags::empty() } else { ReadWriteFlags::NOWAIT };
        let mut vector: Vec<IoSliceMut<'_>> =
            buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        // The kernel takes this many at once; small blocks of large requests are more.
        let at_once = vector.len().min(1024);
        let got = preadv2(&*self.file, &mut vector[..at_once], offset, how).unwrap_or(0);
        (got == want || (self.in_memory && at_once == buffers.len())).then_some(got)
    }

    /// Reads as [`read_now`](Object::read_now), and waits for the disk up to the deadline.
    pub(super) fn read_waiting(&self, offset: u64, buffers: &mut [&mut [u8]]) -> Result<usize, Fault> {
        let want: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        // Who is given up keeps its buffer, so it must be one of its own.
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
    fn target(&self, view: &View, name: &str) -> Result<(Arc<Disk>, Tree), Fault> {
        let lost = || Fault::Lost(name.as_bytes().to_vec());
        let (_, disk) = view.disk(name.as_bytes()).ok_or_else(lost)?;
        match disk.online() {
            Ok(online) => Ok((Arc::clone(disk), online.tree)),
            Err(Unavailable::TimedOut) => Err(Fault::Timeout(self.inner.pool.shared.deadline_ms())),
            Err(_) => Err(lost()),
        }
    }

    /// Whether the target of a column still answers; asked now and then.
    fn is_there(&self, state: &State, column: usize, known: &mut Column) -> Result<(), Fault> {
        if known.seen.is_some_and(|seen| seen.elapsed() < BELIEVED) {
            return Ok(());
        }
        known.seen = None;
        self.target(&self.inner.pool.shared.cached_view(), &state.stub.targets[column])?;
        known.seen = Some(Stopwatch::start());
        Ok(())
    }

    /// The object of a column, to read from.
    pub(super) fn readable(&self, state: &State, column: usize) -> Result<Object, Fault> {
        let mut known = lock(&self.columns[column]);
        self.is_there(state, column, &mut known)?;
        if let Some(object) = &known.object {
            return Ok(object.clone());
        }
        let name = &state.stub.targets[column];
        let (disk, tree) = self.target(&self.inner.pool.shared.cached_view(), name)?;
        let path = object_path(self.id, column);
        let file = disk.deadline_io.run(move || absent_is_none(tree.read(&path)))??;
        let file = file.ok_or_else(|| Fault::Lost(name.as_bytes().to_vec()))?;
        Ok(known.object.insert(Object::new(file.into(), disk, false)).clone())
    }

    /// The object of a column, to write to: locked, and made anew elsewhere if its target is gone.
    pub(super) fn writable(
        &self,
        state: &mut State,
        name: Name<'_>,
        column: usize,
    ) -> Result<Arc<Lockable>, PoolError> {
        for _ in 0..ATTEMPTS {
            if let Some(file) = self.existing(state, column)? {
                return Ok(file);
            }
            match self.make_anew(state, name, column)? {
                Anew::Made(file) => return Ok(file),
                Anew::Beyond(why) => return Err(self.lost(state, name, column, why)),
                Anew::Overtaken => self.catch_up(state, name)?,
            }
        }
        Err(PoolError::Changed { path: first_of(name) })
    }

    fn lost(&self, state: &State, name: Name<'_>, column: usize, why: RescueError) -> PoolError {
        let (path, target) = (first_of(name), state.stub.targets[column].clone());
        PoolError::Lost { path, column, target, why: format!("it is gone: {why}") }
    }

    /// Changes the object of a column. If its target turns out to take no writes, that is done to the one that is made elsewhere.
    pub(super) fn change_object(
        &self,
        state: &mut State,
        name: Name<'_>,
        column: usize,
        doing: &'static str,
        act: impl Fn(&File) -> io::Result<()>,
    ) -> Result<(), PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let file = self.writable(state, name, column)?;
            let done = act(&file);
            self.note_change(column, &done);
            match done.map_err(PoolError::target(&state.stub.targets[column], doing)) {
                Err(error) if attempt < ATTEMPTS && self.inner.gives_up(&error) => self.look_again(column),
                done => return done,
            }
        }
    }

    /// The object of a column, to write to, if its target answers and takes writes. What was never written is made.
    pub(super) fn existing(&self, state: &State, column: usize) -> Result<Option<Arc<Lockable>>, PoolError> {
        match self.open_existing(state, column) {
            Err(error) if self.inner.gives_up(&error) => {
                self.look_again(column);
                Ok(None)
            }
            opened => opened,
        }
    }

    fn open_existing(&self, state: &State, column: usize) -> Result<Option<Arc<Lockable>>, PoolError> {
        let mut known = lock(&self.columns[column]);
        if self.is_there(state, column, &mut known).is_err() {
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
                if state.marked || state.gone {
                    cut(&file, bytes).map_err(failed("cutting an object"))?;
                }
                file
            }
            None if bytes == 0 => create_locked(&tree, &path).map_err(failed("making an object"))?,
            None => return Ok(None),
        };
        let object = known.object.insert(Object::new(file, disk, true));
        Ok(Some(Arc::clone(&object.file)))
    }

    /// Targets for an object that is made anew: in domains that have nothing of the file.
    fn replacements(&self, state: &State, names: &[Vec<u8>], column: usize) -> Vec<Candidate> {
        let view = self.inner.pool.shared.view();
        let others = state.stub.targets.iter().enumerate().filter(|(other, _)| *other != column);
        let mut taken: BTreeSet<String> = others.map(|(_, name)| view.domain(name).to_owned()).collect();
        let former = self.inner.places(names);
        taken.extend(former.iter().flat_map(|path| placement::domains_of_redundancy(&view, self.id, path)));
        let seed = [&self.id.0[..], &column.to_le_bytes()].concat();
        let mut candidates = placement::candidates(&view, &seed, state.stub.block);
        candidates.retain(|candidate| !taken.contains(&candidate.domain));
        candidates
    }

    /// Takes from objects that were locked before the file was marked what must not appear when its end moves.
    pub(super) fn cut_leftovers(&self, state: &State) -> Result<(), PoolError> {
        for (column, known) in self.columns.iter().enumerate() {
            let known = lock(known);
            if let Some(object) = known.object.as_ref().filter(|object| object.writable)
                && let Err(error) = cut(&object.file, state.stub.object_bytes(column, state.stub.size))
                    .map_err(PoolError::target(&state.stub.targets[column], "cutting an object"))
                // A column that must move is as long as it should be where it is made.
                && !self.inner.gives_up(&error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Puts the object of a column on another target: what it had is made again first. A target that fails at that is not asked again.
    pub(super) fn make_anew(
        &self,
        state: &mut State,
        name: Name<'_>,
        column: usize,
    ) -> Result<Anew, PoolError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            match self.make_anew_once(state, name, column) {
                Err(error) if attempt < ATTEMPTS && self.inner.gives_up(&error) => {}
                made => return made,
            }
        }
    }

    fn make_anew_once(&self, state: &mut State, name: Name<'_>, column: usize) -> Result<Anew, PoolError> {
        let (path, names) = (first_of(name), name());
        let found = self.replacements(state, &names, column).into_iter().next();
        let Some(Candidate { name: target, tree, .. }) = found else {
            let why = "it is lost, and no target in a separate failure domain can replace it".to_owned();
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
        let doubtful = match self.fill_anew(state, &names, column, &file, unsynced) {
            Ok(Ok(doubtful)) => doubtful,
            Ok(Err(why)) => {
                // What stays is found by a sweep.
                let _ = tree.remove(&temporary);
                return Ok(Anew::Beyond(why));
            }
            Err(error) => {
                let _ = tree.remove(&temporary);
                return Err(failed("writing an object")(error));
            }
        };
        let synced = file.sync_all().map_err(failed("making an object durable"));
        let published = synced.and_then(|()| {
            let place = || place().map_err(failed("placing an object"));
            self.publish_anew(state, name, column, &target, place)
        });
        if !matches!(published, Ok(true)) {
            let _ = tree.remove(&temporary);
        }
        if !published? {
            return Ok(Anew::Overtaken);
        }
        let view = self.inner.pool.shared.cached_view();
        let disk = view.disk(target.as_bytes()).map(|(_, disk)| Arc::clone(disk)).ok_or_else(nowhere_now)?;
        let mut known = lock(&self.columns[column]);
        known.seen = Some(Stopwatch::start());
        known.doubtful |= doubtful;
        known.unsynced = false;
        self.inner.note_unsynced(self.id, column, false);
        Ok(Anew::Made(Arc::clone(&known.object.insert(Object::new(file, disk, true)).file)))
    }

    /// Makes all bytes of a column again: they are copied if its target can be read, or made from redundancy. What was not synced is made from
    /// redundancy if it can be, since the kernel may have dropped it. Says whether it was copied all the same. The outer error is that of
    /// writing.
    fn fill_anew(
        &self,
        state: &State,
        names: &[Vec<u8>],
        column: usize,
        file: &File,
        unsynced: bool,
    ) -> io::Result<Result<bool, RescueError>> {
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
        let paths = self.inner.places(names);
        let is_in = |version: &_, range: &_| state.is_in(version, range);
        let mut failed = None;
        let made = rescue(&self.inner.pool, &self.inner.coders, &paths, &blocks, is_in, |range, made| {
            let at = state.stub.object_bytes(column, range.start);
            write_sparse(file, made, at).map_err(|error| {
                failed = Some(error);
                RescueError::TooLittle
            })
        });
        match (failed, made) {
            (Some(error), _) => Err(error),
            (None, Err(why)) => {
                let copied = unsynced && self.copy_object(state, column, file, bytes)?;
                Ok(if copied { Ok(true) } else { Err(why) })
            }
            (None, Ok(())) => file.set_len(bytes).map(|()| Ok(false)),
        }
    }

    /// Copies an object whose target takes no writes but can be read. Says whether all of it could be read.
    fn copy_object(&self, state: &State, column: usize, to: &File, bytes: u64) -> io::Result<bool> {
        let Ok(from) = self.readable(state, column) else { return Ok(false) };
        to.set_len(0)?;
        let mut piece = vec![0; COPIED_AT_ONCE.min(bytes) as usize];
        let mut done = 0;
        while done < bytes {
            let now = (bytes - done).min(COPIED_AT_ONCE) as usize;
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

    /// Gives a new object its name and tells the namespace of it. Says whether nobody else changed the file meanwhile: a rebuild may
    /// have brought the same column elsewhere, which must be neither replaced nor forgotten.
    fn publish_anew(
        &self,
        state: &mut State,
        name: Name<'_>,
        column: usize,
        target: &str,
        place: impl Fn() -> Result<(), PoolError>,
    ) -> Result<bool, PoolError> {
        let mut stub = state.stub.clone();
        stub.targets[column] = target.to_owned();
        stub.writing = true;
        stub.mtime = self.now_after(stub.mtime);
        let mut seen = state.seen;
        if let Some(mut path) = self.path(state, name).filter(|_| !state.gone) {
            match self.inner.publish_unless_overtaken(
                &mut path,
                &mut stub,
                seen,
                Durability::Durable,
                &place,
            )? {
                Some(Published::As(number)) => {
                    self.note_path(state, name, path);
                    if !state.marked {
                        state.began_as([state.stub.stat(0).generation()]);
                    }
                    (seen, state.marked) = (number, true);
                }
                Some(Published::Gone) => state.gone = true,
                None => return Ok(false),
            }
        }
        // Nobody else knows of a file without a name.
        if state.gone {
            place()?;
        }
        self.follow(state, stub, seen);
        Ok(true)
    }

    /// Lets go of all objects, and of their locks.
    pub(super) fn let_go(&self) {
        for column in &self.columns {
            *lock(column) = Column::default();
        }
    }

    /// Objects are looked for again: someone else may have moved them.
    pub(super) fn look_again(&self, column: usize) {
        let mut known = lock(&self.columns[column]);
        *known = Column { unsynced: known.unsynced, doubtful: known.doubtful, ..Column::default() };
    }

    /// A column was changed, or that failed. A disk that takes no writes has changed nothing.
    pub(super) fn note_change(&self, column: usize, done: &io::Result<()>) {
        if !done.as_ref().is_err_and(is_of_the_medium) {
            self.note_unsynced(column);
        }
    }

    /// Something is written to a column.
    pub(super) fn note_unsynced(&self, column: usize) {
        let mut known = lock(&self.columns[column]);
        if !std::mem::replace(&mut known.unsynced, true) {
            self.inner.note_unsynced(self.id, column, true);
        }
    }

    /// A column is about to be made durable. Says whether there was anything to it.
    pub(super) fn begin_sync(&self, column: usize) -> bool {
        let mut known = lock(&self.columns[column]);
        let unsynced = std::mem::take(&mut known.unsynced);
        if unsynced {
            self.inner.note_unsynced(self.id, column, false);
        }
        unsynced
    }

    /// Whether bytes that were written to a column may be lost, since its target took no writes any more. Told once, to who syncs.
    pub(super) fn take_doubt(&self, column: usize) -> bool {
        std::mem::take(&mut lock(&self.columns[column]).doubtful)
    }

    /// The first column of a file that was just made.
    pub(super) fn hold(&self, column: usize, file: Lockable, target: &str) {
        let view = self.inner.pool.shared.cached_view();
        if let Some((_, disk)) = view.disk(target.as_bytes()) {
            let object = Some(Object::new(file, Arc::clone(disk), true));
            *lock(&self.columns[column]) =
                Column { object, seen: Some(Stopwatch::start()), ..Column::default() };
        }
    }
}

/// What a crash left behind the end of a file must not appear when that moves.
fn cut(object: &File, bytes: u64) -> io::Result<()> {
    if object.metadata()?.len() > bytes { object.set_len(bytes) } else { Ok(()) }
}

fn first_of(name: Name<'_>) -> Vec<u8> {
    name().into_iter().next().unwrap_or_default()
}

fn nowhere_now() -> PoolError {
    PoolError::Caller { doing: "finding the target of a new object", source: io::ErrorKind::NotFound.into() }
}
