//! Relocation of columns: the new objects are complete and durable before the stub refers to them.
//!
//! A crash leaves the old stub and at most unreferenced objects, or the new stub and its objects. The version of the
//! file stays the same, so its redundancy stays valid.

use super::config::TargetName;
use super::error::PoolError;
use super::extent::{is_being_written, size_unknown, target_hiding_size};
use super::namespace::{TREE, look_up_file, mirror_path};
use super::objects::{
    OBJECTS, create_locked, move_obstacle_aside, object_path, unfinished_path, write_sparse,
};
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

/// Placement of a column: a target that can receive it.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPlacement {
    pub(crate) target: TargetName,
    pub(crate) tree: Tree,
}

/// New objects for columns of one file.
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
    placement: ColumnPlacement,
    /// None for a column without bytes: only its target name changes.
    file: Option<Lockable>,
    /// Temporary name until the object is complete, then its final one.
    name: Vec<u8>,
    written: AtomicU64,
    published: bool,
}

impl Pool {
    /// Placements for columns of the given lengths, in domains that are neither shared nor those of the targets in
    /// `stay`; none where there is no such domain.
    pub(crate) fn column_placements(
        &self,
        lot: &[u8],
        needs: &[u64],
        stay: &BTreeSet<TargetName>,
        full: &BTreeSet<TargetName>,
    ) -> Vec<Option<ColumnPlacement>> {
        let view = self.shared.view();
        let taken = stay.iter().map(|name| view.domain(name).to_owned()).collect();
        let found = placement::replacement_targets(&view, lot, needs, &taken, full).into_iter();
        found
            .map(|placement| placement.map(|it| ColumnPlacement { target: it.name, tree: it.tree }))
            .collect()
    }

    /// Starts creating objects for columns of the file at `path` with stub `stub`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn relocate(
        &self,
        path: &[u8],
        stub: &Stub,
        columns: &[(usize, ColumnPlacement)],
    ) -> Result<Relocation, PoolError> {
        mirror_path(TREE, path)?;
        let (shared, path) = (self.shared.clone(), path.to_vec());
        let mut made = Relocation { shared, path, stub: stub.clone(), objects: Vec::new() };
        for (column, placement) in columns {
            let failed = |error| PoolError::target(&placement.target, "creating an object")(error);
            let (mut file, mut name) = (None, Vec::new());
            if stub.object_bytes(*column, stub.size) > 0 {
                name = unfinished_path(stub.id, *column).map_err(failed)?;
                file = Some(create_locked(&placement.tree, &name).map_err(failed)?);
            }
            let (column, placement, written) = (*column, placement.clone(), AtomicU64::new(0));
            made.objects.push(Object { column, placement, file, name, written, published: false });
        }
        Ok(made)
    }

    /// Refuses a file that is being written in place: its columns do not move meanwhile.
    pub(crate) fn refuse_being_written(&self, path: &[u8], stub: &Stub) -> Result<(), PoolError> {
        match is_being_written(&self.shared.view(), stub) {
            Ok(false) => match target_hiding_size(&self.shared.view(), stub) {
                Some(target) => Err(PoolError::path(path, size_unknown(target))),
                None => Ok(()),
            },
            Ok(true) => {
                let why = io::Error::new(io::ErrorKind::ResourceBusy, "it is being written");
                Err(PoolError::path(path, why))
            }
            Err(error) => Err(PoolError::path(path, error)),
        }
    }

    /// Columns of a file that a target has an object of, although the stub does not refer to it.
    pub(crate) fn stale_columns(
        &self,
        tree: &Tree,
        target: &TargetName,
        stub: &Stub,
    ) -> io::Result<Vec<usize>> {
        let mut found = Vec::new();
        for column in (0..stub.targets.len()).filter(|&column| stub.targets[column] != *target) {
            if tree.find(&object_path(stub.id, column))?.is_some() {
                found.push(column);
            }
        }
        Ok(found)
    }

    /// Removes objects of a file from a target that its stub does not refer to. Returns their number.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn remove_stale_objects(
        &self,
        path: &[u8],
        target: &TargetName,
        stub: &Stub,
    ) -> Result<u64, PoolError> {
        // The lock keeps columns from moving meanwhile.
        let mut change = self.shared.change()?;
        let now = look_up_file(&change.copies, path)?;
        if (now.id, now.revision) != (stub.id, stub.revision) {
            return Err(PoolError::Changed { path: path.to_vec() });
        }
        change.mark_unreachable_stale()?;
        let Some((_, disk)) = change.view.disk(target.as_bytes()) else { return Ok(0) };
        let Ok(online) = disk.online() else { return Ok(0) };
        let failed =
            |error| PoolError::target(target, "removing an object that was reconstructed elsewhere")(error);
        let mut removed = 0;
        for column in (0..now.targets.len()).filter(|&column| now.targets[column] != *target) {
            let object = object_path(now.id, column);
            if online.tree.find(&object).map_err(failed)?.is_some() {
                removed += u64::from(online.tree.remove_if_writable(&object).map_err(failed)?);
            }
        }
        Ok(removed)
    }

    /// All targets: name, state, and the tree if reachable.
    pub(crate) fn target_states(&self) -> Vec<(TargetName, TargetState, Option<Tree>)> {
        let view = self.shared.view();
        let place = |(member, disk): (&super::config::Member, &Arc<super::disk::Disk>)| {
            let tree = disk.online().ok().map(|online| online.tree);
            (member.name.clone(), super::view::View::state(member, disk), tree)
        };
        view.members().map(place).collect()
    }
}

impl Relocation {
    /// Writes bytes of a column. Different offsets may be written in parallel.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn write(&self, column: usize, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        for object in self.objects.iter().filter(|object| object.column == column) {
            if let Some(file) = &object.file {
                write_sparse(file, bytes, offset)
                    .map_err(PoolError::target(&object.placement.target, "writing an object"))?;
                object.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Makes the objects durable, gives objects and redundancy their names, then publishes the stub. Returns the new
    /// stub.
    ///
    /// # Errors
    /// See [`PoolError`]; the file is unchanged then, though some of its redundancy may exist twice.
    pub(crate) fn finish(mut self, drafts: Vec<(TargetName, Draft)>) -> Result<Stub, PoolError> {
        let mut targets = self.stub.targets.clone();
        for (target, draft) in &drafts {
            draft.sync().map_err(PoolError::target(target, "making redundancy durable"))?;
        }
        for object in &mut self.objects {
            let bytes = self.stub.object_bytes(object.column, self.stub.size);
            targets[object.column].clone_from(&object.placement.target);
            let Some(file) = &object.file else { continue };
            let failed = |error| PoolError::target(&object.placement.target, "finishing an object")(error);
            if *object.written.get_mut() != bytes {
                let why = format!("{} of {bytes} bytes were written", object.written.get_mut());
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, why)));
            }
            file.set_len(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
        }
        // From here on the file cannot be replaced, so its redundancy cannot come too late. Nor can its columns move:
        // under another name of the file the same object may have come to the same path, and must be neither replaced
        // nor removed.
        let shared = self.shared.clone();
        let mut change = shared.change()?;
        // Dropped before the lock: failed objects are removed by a name that another process may use next.
        let mut own = self;
        let now = look_up_file(&change.copies, &own.path)?;
        if (now.id, now.revision) != (own.stub.id, own.stub.revision) {
            return Err(PoolError::Changed { path: own.path.clone() });
        }
        for object in own.objects.iter_mut().filter(|object| object.file.is_some()) {
            let path = object_path(own.stub.id, object.column);
            let tree = &object.placement.tree;
            let name = || -> io::Result<()> {
                tree.make_directories(split(&path).0, 0o700)?;
                move_obstacle_aside(tree, &path)?;
                tree.rename(&object.name, &path)?;
                tree.sync_directory(split(&path).0)?;
                tree.sync_directory(OBJECTS)
            };
            name()
                .map_err(|error| PoolError::target(&object.placement.target, "finishing an object")(error))?;
            object.name = path;
        }
        for (target, draft) in drafts {
            draft.publish_durably().map_err(PoolError::target(&target, "putting redundancy in place"))?;
        }
        if targets == own.stub.targets {
            // A returned target got its own columns back: the stub refers to them already.
            own.objects.iter_mut().for_each(|object| object.published = true);
            return Ok(now);
        }
        let stub = change.relocate(&own.path, &own.stub, targets.clone());
        // A mirror may have taken the stub before it failed. Then the objects must stay.
        let there = look_up_file(&change.copies, &own.path);
        let refers = there.map_or(true, |there| there.targets == targets);
        own.objects.iter_mut().for_each(|object| object.published = refers);
        stub
    }
}

impl Drop for Relocation {
    fn drop(&mut self) {
        for object in self.objects.iter().filter(|object| object.file.is_some() && !object.published) {
            // A file that stays is removed by a sweep.
            let _ = object.placement.tree.remove(&object.name);
        }
    }
}
