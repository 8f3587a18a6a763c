//! Repair of pool files: writes bytes back into objects, and recreates missing objects, on another target if necessary.
//!
//! An existing object is written in place. A missing one is created under a temporary name and gets its final name only
//! when it is complete, so an interrupted repair never leaves zeros in place of content.

use super::Shared;
use super::config::TargetName;
use super::error::PoolError;
use super::namespace::{NamespaceEntry, TREE, look_up, look_up_file, mirror_path};
use super::objects::{
    create_locked, move_obstacle_aside, object_path, overwrite, unfinished_path, write_sparse,
};
use super::placement::{self, Candidate};
use super::put::new_stub;
use super::stub::{Piece, Stub};
use super::view::{MirrorCopy, View};
use crate::format::Metadata;
use crate::geometry::{Run, merge};
use crate::redundancy::read_up_to;
use crate::retry::{Failure, Retry};
use crate::storage::{IsRight, Repairable};
use crate::tree::{Kind, Stat, Tree, absent_is_none, split};
use crate::world::Timestamp;
use gabion_platform::lock::Lockable;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A file under repair.
#[derive(Debug)]
pub(crate) struct PoolRepair {
    shared: Arc<Shared>,
    path: Vec<u8>,
    stub: Stub,
    /// The version under repair; none for a file that is created anew.
    revision: Option<u64>,
    columns: Vec<Option<RepairColumn>>,
}

/// An object that repair writes to.
#[derive(Debug)]
struct RepairColumn {
    target: TargetName,
    tree: Tree,
    file: Lockable,
    /// Temporary name and written ranges of a new object.
    unfinished: Option<(Vec<u8>, Vec<Range<u64>>)>,
}

impl PoolRepair {
    pub(crate) fn open(shared: &Arc<Shared>, path: &[u8]) -> Result<PoolRepair, PoolError> {
        mirror_path(TREE, path)?;
        let copies = shared.copies()?;
        let view = shared.view();
        let found = match look_up_file(&copies, path) {
            Ok(stub) => Some(stub),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_files_above(&copies, path)?;
                None
            }
            // All copies of the stub are damaged: the file is created anew, and a sweep removes its old objects.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(error),
        };
        if found.as_ref().is_some_and(|stub| !stub.is_file()) {
            let what = "it is not a regular file";
            return Err(PoolError::path(path, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let revision = found.as_ref().map(|stub| stub.revision);
        let stub = match found {
            Some(stub) => stub,
            None => {
                let mut stub =
                    new_stub(&Metadata::default(), Timestamp::EPOCH, Vec::new(), view.config.block)?;
                let taken = placement::domains_of_redundancy(&view, stub.id, path);
                let chosen = placement::data_targets(&view, &stub.id.0, &taken)?;
                stub.targets = chosen.into_iter().map(|candidate| candidate.name).collect();
                stub
            }
        };
        let columns = stub.targets.iter().map(|_| None).collect();
        Ok(PoolRepair { shared: shared.clone(), path: path.to_vec(), stub, revision, columns })
    }

    /// The object of a column, if its target is writable and has it.
    fn existing(&self, view: &View, column: usize) -> io::Result<Option<RepairColumn>> {
        let target = &self.stub.targets[column];
        let Some(online) = view.disk(target.as_bytes()).and_then(|(_, disk)| disk.online_writable().ok())
        else {
            return Ok(None);
        };
        let object = object_path(self.stub.id, column);
        if online.tree.find(&object)?.is_none_or(|found| found.kind != Kind::File) {
            return Ok(None);
        }
        let file = absent_is_none(online.tree.write(&object))?.map(Lockable::from);
        if let Some(file) = &file {
            self.refuse_being_written(file)?;
        }
        let (target, tree) = (target.clone(), online.tree);
        Ok(file.map(|file| RepairColumn { target, tree, file, unfinished: None }))
    }

    /// Locks an object against in-place writes during the repair, or fails if a writer has it.
    fn refuse_being_written(&self, object: &Lockable) -> io::Result<()> {
        let busy = |why: &str| {
            let why = io::Error::new(io::ErrorKind::ResourceBusy, why);
            Err(PoolError::path(&self.path, why).into())
        };
        match object.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return busy("it is open for writing in a mounted pool"),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // A writer that came before the lock has updated the stub first.
        let now = look_up_file(&self.shared.copies()?, &self.path)?;
        match self.revision == Some(now.revision) && now.id == self.stub.id {
            true => Ok(()),
            false => busy("it was changed while it was repaired"),
        }
    }

    /// Targets for a new object: its own, then those in domains that hold nothing of the file.
    fn replacement_targets(&self, view: &View, column: usize) -> Vec<Candidate> {
        let own = &self.stub.targets[column];
        let others = self.stub.targets.iter().enumerate().filter(|(other, _)| *other != column);
        let mut taken: BTreeSet<String> = others.map(|(_, name)| view.domain(name).to_owned()).collect();
        taken.extend(placement::domains_of_redundancy(view, self.stub.id, &self.path));
        let seed = [&self.stub.id.0[..], &column.to_le_bytes()].concat();
        let mut candidates = placement::candidates(view, &seed, 1);
        candidates.retain(|candidate| candidate.name == *own || !taken.contains(&candidate.domain));
        candidates.sort_by_key(|candidate| candidate.name != *own);
        candidates
    }

    /// Copies a column from a target that is readable but not writable. Returns the copied part.
    fn copy_object(&self, view: &View, column: usize, to: &File) -> io::Result<Vec<Range<u64>>> {
        let disk = view.disk(self.stub.targets[column].as_bytes());
        let online = disk.and_then(|(_, disk)| disk.online().ok());
        let Some(online) = online else { return Ok(Vec::new()) };
        let Ok(from) = online.tree.read(&object_path(self.stub.id, column)) else { return Ok(Vec::new()) };
        let (mut piece, mut done) = (vec![0; 1 << 20], 0);
        // An unreadable rest is written by the repair, or the column stays incomplete.
        while let Ok(got @ 1..) = read_up_to(&from, &mut piece, done) {
            write_sparse(to, &piece[..got], done)?;
            done += got as u64;
        }
        to.set_len(done)?;
        Ok(if done > 0 { std::iter::once(0..done).collect() } else { Vec::new() })
    }

    fn create_replacement(&self, view: &View, column: usize) -> io::Result<RepairColumn> {
        let mut failed = None;
        for Candidate { name: target, tree, .. } in self.replacement_targets(view, column) {
            let path = unfinished_path(self.stub.id, column)?;
            match create_locked(&tree, &path) {
                Ok(file) => {
                    let copied = self.copy_object(view, column, &file)?;
                    return Ok(RepairColumn { target, tree, file, unfinished: Some((path, copied)) });
                }
                Err(error) => failed = Some(PoolError::target(&target, "creating an object")(error)),
            }
        }
        let nowhere = || PoolError::Lost {
            path: self.path.clone(),
            column,
            target: self.stub.targets[column].clone(),
            why: Failure::new(
                "it is lost, and no target in a separate failure domain can replace it",
                Retry::Later,
            ),
        };
        Err(failed.unwrap_or_else(nowhere).into())
    }

    fn write_piece(&mut self, piece: Piece, bytes: &[u8]) -> io::Result<()> {
        let column = piece.column;
        if self.columns[column].is_none() {
            let view = self.shared.view();
            let object = match self.existing(&view, column)? {
                Some(object) => object,
                None => self.create_replacement(&view, column)?,
            };
            self.stub.targets[column].clone_from(&object.target);
            self.columns[column] = Some(object);
        }
        let Some(object) = self.columns[column].as_mut() else { return Ok(()) };
        overwrite(&object.file, bytes, piece.offset)?;
        if let Some((_, written)) = &mut object.unfinished {
            written.push(piece.offset..piece.offset + piece.bytes);
            // Cells come in order, so this stays short.
            *written = merge(std::mem::take(written));
        }
        Ok(())
    }

    fn incomplete(&self, column: usize) -> io::Error {
        let why = format!("column {column} was missing and has not been written completely");
        PoolError::path(&self.path, io::Error::new(io::ErrorKind::InvalidInput, why)).into()
    }

    /// Sets lengths and makes all objects durable.
    fn finish_objects(&mut self) -> io::Result<()> {
        let view = self.shared.view();
        for column in 0..self.columns.len() {
            let bytes = self.stub.object_bytes(column, self.stub.size);
            // An object that was not written to may still have a wrong length.
            let object = match self.columns[column].take() {
                Some(object) => Some(object),
                None => self.existing(&view, column)?,
            };
            let Some(object) = object else {
                if self.revision.is_none() && bytes > 0 {
                    return Err(self.incomplete(column));
                }
                continue;
            };
            let whole = |written: &[Range<u64>]| match written {
                [] => bytes == 0,
                [one] => one.start == 0 && one.end >= bytes,
                _ => false,
            };
            if object.unfinished.as_ref().is_some_and(|(_, written)| !whole(written)) {
                self.columns[column] = Some(object);
                return Err(self.incomplete(column));
            }
            if object.file.metadata()?.len() != bytes {
                object.file.set_len(bytes)?;
            }
            object.file.sync_all()?;
            self.columns[column] = Some(object);
        }
        Ok(())
    }

    /// Gives new objects their names. The caller holds the namespace lock and has checked that the file is unchanged:
    /// otherwise another process may have put the same object at the same path, which must not be replaced.
    fn name_objects(&mut self) -> io::Result<()> {
        for (column, object) in self.columns.iter_mut().enumerate() {
            let Some(object) = object else { continue };
            let Some((temporary, _)) = &object.unfinished else { continue };
            let path = object_path(self.stub.id, column);
            object.tree.make_directories(split(&path).0, 0o700)?;
            move_obstacle_aside(&object.tree, &path)?;
            object.tree.rename(temporary, &path)?;
            object.unfinished = None;
            object.tree.sync_directory(split(&path).0)?;
            object.tree.sync_directory(super::objects::OBJECTS)?;
        }
        Ok(())
    }
}

/// A new file needs directories above it, or nothing: no file and no link.
fn refuse_files_above(copies: &[MirrorCopy], path: &[u8]) -> Result<(), PoolError> {
    let above = split(path).0;
    match look_up(copies, above)? {
        Some(NamespaceEntry::File(_)) => Err(PoolError::path(above, io::ErrorKind::NotADirectory)),
        Some(NamespaceEntry::Directory(_)) => Ok(()),
        None => refuse_files_above(copies, above),
    }
}

impl Repairable for PoolRepair {
    fn write(&mut self, run: &Run, row: u64, column: usize, bytes: &[u8]) -> io::Result<()> {
        let cell = run.cell(row, column);
        // A file that has become shorter is as long as what is written to it.
        self.stub.size = self.stub.size.max(cell.end);
        let mut done = 0;
        for piece in self.stub.pieces(cell.start..cell.start + bytes.len() as u64) {
            self.write_piece(piece, &bytes[done..done + piece.bytes as usize])?;
            done += piece.bytes as usize;
        }
        Ok(())
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        self.stub.size = size;
        Ok(())
    }

    /// Nobody else writes to the objects, and another version of the file is refused.
    fn finish(
        &mut self,
        metadata: &Metadata,
        mtime: Option<Timestamp>,
        _is_right: IsRight<'_>,
    ) -> io::Result<(Vec<String>, Stat)> {
        self.finish_objects()?;
        let shared = Arc::clone(&self.shared);
        let mut change = shared.change()?;
        let now = match look_up_file(&change.copies, &self.path) {
            Ok(stub) => Some((stub.id, stub.revision)),
            Err(_) => None,
        };
        if now != self.revision.map(|revision| (self.stub.id, revision)) {
            let why = io::Error::new(io::ErrorKind::ResourceBusy, "it was changed while it was repaired");
            return Err(PoolError::path(&self.path, why).into());
        }
        self.name_objects()?;
        let (metadata, targets) = (metadata.clone(), self.stub.targets.clone());
        let mtime = mtime.unwrap_or(self.stub.mtime);
        let stub = Stub { metadata, mtime, targets, writing: false, ..self.stub.clone() };
        let (stub, _) = change.publish(&self.path, stub)?;
        self.revision = Some(stub.revision);
        self.columns.iter_mut().for_each(|column| *column = None);
        let stat = stub.stat(self.shared.device);
        self.stub = stub;
        let failed = change.faults();
        let failed = failed.iter().map(|fault| format!("namespace on {}: {}", fault.target, fault.source));
        Ok((failed.collect(), stat))
    }
}

impl Drop for PoolRepair {
    fn drop(&mut self) {
        for column in self.columns.iter().flatten() {
            if let Some((temporary, _)) = &column.unfinished {
                // A file that stays is removed by a sweep.
                let _ = column.tree.remove(temporary);
            }
        }
    }
}
