//! Columns of a file get other places: their objects are made there, whole and durable, before its stub names them.
//!
//! A crash leaves the stub as it was and at most objects that nothing refers to, or the new stub and objects that it refers to.
//! The version of the file stays the same: what protects it does so as before.

use super::error::PoolError;
use super::extent::{end_unknown, hides_the_end, is_being_written};
use super::namespace::{TREE, beneath, look_up_file};
use super::objects::{OBJECTS, create_held, make_way, object_path, unfinished_path, write_sparse};
use super::placement;
use super::stub::Stub;
use super::{Pool, Shared};
use crate::redundancy::Draft;
use crate::storage::TargetState;
use crate::tree::{Tree, split};
use gabion_platform::lock::Lockable;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A place for a column: a target that can take it.
#[derive(Debug, Clone)]
pub(crate) struct Spot {
    pub(crate) target: String,
    pub(crate) tree: Tree,
}

/// Objects that are being made for columns of one file.
#[derive(Debug)]
pub(crate) struct Relocation {
    shared: Arc<Shared>,
    path: Vec<u8>,
    stub: Stub,
    objects: Vec<Object>,
}

#[derive(Debug)]
struct Object {
    column: usize,
    spot: Spot,
    /// Nothing for a column without bytes: only its name changes.
    file: Option<Lockable>,
    /// Its name until it is whole; its own one afterwards.
    name: Vec<u8>,
    written: AtomicU64,
    published: bool,
}

impl Pool {
    /// Places for columns that take so many bytes, in domains that neither the targets in `stay` are in nor one of the others;
    /// nothing where there is none.
    pub(crate) fn spots(
        &self,
        lot: &[u8],
        needs: &[u64],
        stay: &BTreeSet<String>,
        full: &BTreeSet<String>,
    ) -> Vec<Option<Spot>> {
        let view = self.shared.view();
        let taken = stay.iter().map(|name| view.domain(name).to_owned()).collect();
        let found = placement::spots(&view, lot, needs, &taken, full).into_iter();
        found.map(|spot| spot.map(|it| Spot { target: it.name, tree: it.tree })).collect()
    }

    /// Begins to make objects for columns of the file at `path`, as `stub` has it.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn relocate(
        &self,
        path: &[u8],
        stub: &Stub,
        columns: &[(usize, Spot)],
    ) -> Result<Relocation, PoolError> {
        beneath(TREE, path)?;
        let (shared, path) = (self.shared.clone(), path.to_vec());
        let mut made = Relocation { shared, path, stub: stub.clone(), objects: Vec::new() };
        for (column, spot) in columns {
            let failed = |error| PoolError::target(&spot.target, "making an object anew")(error);
            let (mut file, mut name) = (None, Vec::new());
            if stub.object_bytes(*column, stub.size) > 0 {
                name = unfinished_path(stub.id, *column).map_err(failed)?;
                file = Some(create_held(&spot.tree, &name).map_err(failed)?);
            }
            let (column, spot, written) = (*column, spot.clone(), AtomicU64::new(0));
            made.objects.push(Object { column, spot, file, name, written, published: false });
        }
        Ok(made)
    }

    /// Refuses a file that someone is writing in place: its columns stay where they are as long.
    pub(crate) fn refuse_being_written(&self, path: &[u8], stub: &Stub) -> Result<(), PoolError> {
        match is_being_written(&self.shared.view(), stub) {
            Ok(false) => match hides_the_end(&self.shared.view(), stub) {
                Some(target) => Err(PoolError::path(path, end_unknown(target))),
                None => Ok(()),
            },
            Ok(true) => {
                let why = io::Error::new(io::ErrorKind::ResourceBusy, "it is being written");
                Err(PoolError::path(path, why))
            }
            Err(error) => Err(PoolError::path(path, error)),
        }
    }

    /// Columns of a file that a target has an object of, though the file's stub does not look for it there.
    pub(crate) fn leftovers(&self, tree: &Tree, target: &str, stub: &Stub) -> io::Result<Vec<usize>> {
        let mut found = Vec::new();
        for column in (0..stub.targets.len()).filter(|&column| stub.targets[column] != target) {
            if tree.find(&object_path(stub.id, column))?.is_some() {
                found.push(column);
            }
        }
        Ok(found)
    }

    /// Removes from a target the objects of a file that its stub does not look for there. Gives their number.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn remove_leftovers(&self, path: &[u8], target: &str, stub: &Stub) -> Result<u64, PoolError> {
        // Nobody moves columns meanwhile.
        let mut change = self.shared.change()?;
        let now = look_up_file(&change.copies, path)?;
        if (now.id, now.revision) != (stub.id, stub.revision) {
            return Err(PoolError::Changed { path: path.to_vec() });
        }
        change.leave_behind_the_silent()?;
        let Some((_, disk)) = change.view.disk(target.as_bytes()) else { return Ok(0) };
        let Ok(answer) = disk.ask() else { return Ok(0) };
        let failed =
            |error| PoolError::target(target, "removing an object that was made anew elsewhere")(error);
        let mut removed = 0;
        for column in (0..now.targets.len()).filter(|&column| now.targets[column] != target) {
            let object = object_path(now.id, column);
            if answer.tree.find(&object).map_err(failed)?.is_some() {
                removed += u64::from(answer.tree.remove_if_writable(&object).map_err(failed)?);
            }
        }
        Ok(removed)
    }

    /// All targets with what they are worth: name, domain, state, and the tree of those that answer.
    pub(crate) fn places(&self) -> Vec<(String, TargetState, Option<Tree>)> {
        let view = self.shared.view();
        let place = |(member, disk): (&super::config::Member, &Arc<super::disk::Disk>)| {
            let tree = disk.ask().ok().map(|answer| answer.tree);
            (member.name.clone(), super::view::View::state(member, disk), tree)
        };
        view.members().map(place).collect()
    }
}

impl Relocation {
    /// Writes bytes of a column; those of different places may be written side by side.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn write(&self, column: usize, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        for object in self.objects.iter().filter(|object| object.column == column) {
            if let Some(file) = &object.file {
                write_sparse(file, bytes, offset)
                    .map_err(PoolError::target(&object.spot.target, "writing an object"))?;
                object.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Makes all of it durable and gives objects and redundancy their names, then tells the namespace. Gives the new stub.
    ///
    /// # Errors
    /// See [`PoolError`]; the file is as it was then, though some of its redundancy may be there twice.
    pub(crate) fn finish(mut self, drafts: Vec<(String, Draft)>) -> Result<Stub, PoolError> {
        let mut targets = self.stub.targets.clone();
        for (target, draft) in &drafts {
            draft.sync().map_err(PoolError::target(target, "making redundancy durable"))?;
        }
        for object in &mut self.objects {
            let bytes = self.stub.object_bytes(object.column, self.stub.size);
            targets[object.column].clone_from(&object.spot.target);
            let Some(file) = &object.file else { continue };
            let failed = |error| PoolError::target(&object.spot.target, "finishing an object")(error);
            if *object.written.get_mut() != bytes {
                let why = format!("{} of {bytes} bytes were written", object.written.get_mut());
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            file.set_len(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        // From here on nobody replaces the file, so redundancy of it cannot come too late. Nor does anybody else move its columns:
        // by another name the same object may have come to the same place, and must not be replaced, let alone removed.
        let shared = self.shared.clone();
        let mut change = shared.change()?;
        // Dropped before the lock: what failed is removed by a name that someone else may give next.
        let mut own = self;
        let now = look_up_file(&change.copies, &own.path)?;
        if (now.id, now.revision) != (own.stub.id, own.stub.revision) {
            return Err(PoolError::Changed { path: own.path.clone() });
        }
        for object in own.objects.iter_mut().filter(|object| object.file.is_some()) {
            let path = object_path(own.stub.id, object.column);
            let tree = &object.spot.tree;
            let name = || -> io::Result<()> {
                tree.make_directories(split(&path).0, 0o700)?;
                make_way(tree, &path)?;
                tree.rename(&object.name, &path)?;
                tree.sync_directory(split(&path).0)?;
                tree.sync_directory(OBJECTS)
            };
            name().map_err(|error| PoolError::target(&object.spot.target, "finishing an object")(error))?;
            object.name = path;
        }
        for (target, draft) in drafts {
            draft.publish_durably().map_err(PoolError::target(&target, "putting redundancy in place"))?;
        }
        if targets == own.stub.targets {
            // A target that answers again got what it had: the stub refers to it already.
            own.objects.iter_mut().for_each(|object| object.published = true);
            return Ok(now);
        }
        let stub = change.relocate(&own.path, &own.stub, targets.clone());
        // A mirror may have taken the stub and failed afterwards. Then the objects must stay.
        let there = look_up_file(&change.copies, &own.path);
        let refers = there.map_or(true, |there| there.targets == targets);
        own.objects.iter_mut().for_each(|object| object.published = refers);
        stub
    }
}

impl Drop for Relocation {
    fn drop(&mut self) {
        for object in self.objects.iter().filter(|object| object.file.is_some() && !object.published) {
            // What stays is found by a sweep.
            let _ = object.spot.tree.remove(&object.name);
        }
    }
}
