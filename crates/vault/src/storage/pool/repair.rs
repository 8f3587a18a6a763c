//! Repair puts bytes back into objects; what is gone is made anew, on another target where it must.
//!
//! An object that is there is written in place. One that is gone is made under a temporary name and takes its place
//! when all of it has been written: whatever a repair leaves behind, zeros never pass for content.

use super::Shared;
use super::error::PoolError;
use super::namespace::{Entry, TREE, beneath, look_up, look_up_file};
use super::objects::{create_held, make_way, object_path, overwrite, unfinished_path, write_sparse};
use super::placement::{self, Candidate};
use super::put::new_stub;
use super::stub::{Piece, Stub};
use super::view::{Copy, View};
use crate::format::Metadata;
use crate::geometry::{Run, merge};
use crate::redundancy::read_up_to;
use crate::storage::Repairable;
use crate::tree::{Kind, Stat, Tree, absent_is_none, split};
use gabion_platform::lock::Lockable;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A file that is being repaired.
#[derive(Debug)]
pub(crate) struct PoolRepair {
    shared: Arc<Shared>,
    path: Vec<u8>,
    stub: Stub,
    /// The version that is repaired; nothing for a file that is made anew.
    revision: Option<u64>,
    columns: Vec<Option<Column>>,
}

/// An object that repair writes to.
#[derive(Debug)]
struct Column {
    target: String,
    tree: Tree,
    file: Lockable,
    /// Its temporary name, and what has been written of it, if it is made anew.
    unfinished: Option<(Vec<u8>, Vec<Range<u64>>)>,
}

impl PoolRepair {
    pub(crate) fn open(shared: &Arc<Shared>, path: &[u8]) -> Result<PoolRepair, PoolError> {
        beneath(TREE, path)?;
        let copies = shared.copies()?;
        let view = shared.view();
        let found = match look_up_file(&copies, path) {
            Ok(stub) => Some(stub),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_files_above(&copies, path)?;
                None
            }
            // All copies of the stub are damaged: the file is made anew, and its objects are left to a sweep.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
            Err(error) => return Err(error),
        };
        if found.as_ref().is_some_and(|stub| !stub.is_file()) {
            let what = "it is no file with content";
            return Err(PoolError::path(path, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let revision = found.as_ref().map(|stub| stub.revision);
        let stub = match found {
            Some(stub) => stub,
            None => {
                let mut stub = new_stub(&Metadata::default(), 0, Vec::new(), view.config.block)?;
                let taken = placement::domains_of_redundancy(&view, stub.id, path);
                let chosen = placement::data(&view, &stub.id.0, &taken)?;
                stub.targets = chosen.into_iter().map(|candidate| candidate.name).collect();
                stub
            }
        };
        let columns = stub.targets.iter().map(|_| None).collect();
        Ok(PoolRepair { shared: shared.clone(), path: path.to_vec(), stub, revision, columns })
    }

    /// The object of a column, if its target answers, takes writes and has it.
    fn existing(&self, view: &View, column: usize) -> io::Result<Option<Column>> {
        let target = &self.stub.targets[column];
        let Some(answer) = view.disk(target.as_bytes()).and_then(|(_, disk)| disk.ask_to_write().ok()) else {
            return Ok(None);
        };
        let object = object_path(self.stub.id, column);
        if answer.tree.find(&object)?.is_none_or(|found| found.kind != Kind::File) {
            return Ok(None);
        }
        let file = absent_is_none(answer.tree.write(&object))?.map(Lockable::from);
        if let Some(file) = &file {
            self.refuse_being_written(file)?;
        }
        let (target, tree) = (target.clone(), answer.tree);
        Ok(file.map(|file| Column { target, tree, file, unfinished: None }))
    }

    /// Keeps others from writing to an object in place while it is repaired, or leaves it to them.
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
        // Whoever wrote before we had the lock said so in the stub first.
        let now = look_up_file(&self.shared.copies()?, &self.path)?;
        match self.revision == Some(now.revision) && now.id == self.stub.id {
            true => Ok(()),
            false => busy("it was changed while it was repaired"),
        }
    }

    /// Targets for an object that is made anew: its own, then those in domains that have nothing of the file.
    fn replacements(&self, view: &View, column: usize) -> Vec<Candidate> {
        let own = &self.stub.targets[column];
        let others = self.stub.targets.iter().enumerate().filter(|(other, _)| *other != column);
        let mut taken: BTreeSet<String> = others.map(|(_, name)| view.domain(name).to_owned()).collect();
        taken.extend(placement::domains_of_redundancy(view, self.stub.id, &self.path));
        let lot = [&self.stub.id.0[..], &column.to_le_bytes()].concat();
        let mut candidates = placement::candidates(view, &lot, 1);
        candidates.retain(|candidate| candidate.name == *own || !taken.contains(&candidate.domain));
        candidates.sort_by_key(|candidate| candidate.name != *own);
        candidates
    }

    /// Copies what a target has of a column that it takes no writes for. Gives the part that could be copied.
    fn copy_object(&self, view: &View, column: usize, to: &File) -> io::Result<Vec<Range<u64>>> {
        let disk = view.disk(self.stub.targets[column].as_bytes());
        let answer = disk.and_then(|(_, disk)| disk.ask().ok());
        let Some(answer) = answer else { return Ok(Vec::new()) };
        let Ok(from) = answer.tree.read(&object_path(self.stub.id, column)) else { return Ok(Vec::new()) };
        let (mut piece, mut done) = (vec![0; 1 << 20], 0);
        // What cannot be read is written by who repairs, or the column is not whole.
        while let Ok(got @ 1..) = read_up_to(&from, &mut piece, done) {
            write_sparse(to, &piece[..got], done)?;
            done += got as u64;
        }
        to.set_len(done)?;
        Ok(if done > 0 { std::iter::once(0..done).collect() } else { Vec::new() })
    }

    fn make_anew(&self, view: &View, column: usize) -> io::Result<Column> {
        let mut failed = None;
        for Candidate { name: target, tree, .. } in self.replacements(view, column) {
            let path = unfinished_path(self.stub.id, column)?;
            match create_held(&tree, &path) {
                Ok(file) => {
                    let copied = self.copy_object(view, column, &file)?;
                    return Ok(Column { target, tree, file, unfinished: Some((path, copied)) });
                }
                Err(error) => failed = Some(PoolError::target(&target, "making an object anew")(error)),
            }
        }
        let nowhere = || PoolError::Lost {
            path: self.path.clone(),
            column,
            target: self.stub.targets[column].clone(),
            why: "it is gone, and no target in a domain of its own can take its place".to_owned(),
        };
        Err(failed.unwrap_or_else(nowhere).into())
    }

    fn write_piece(&mut self, piece: Piece, bytes: &[u8]) -> io::Result<()> {
        let column = piece.column;
        if self.columns[column].is_none() {
            let view = self.shared.view();
            let object = match self.existing(&view, column)? {
                Some(object) => object,
                None => self.make_anew(&view, column)?,
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
        let why = format!("column {column} was gone, and not all of it was written");
        PoolError::path(&self.path, io::Error::new(io::ErrorKind::InvalidInput, why)).into()
    }

    /// Sets lengths and makes all durable.
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

    /// Gives new objects their names. The caller has the right to change the namespace and knows that the file is as it was: by
    /// another hand the same object may have come to the same place, and must not be replaced.
    fn name_objects(&mut self) -> io::Result<()> {
        for (column, object) in self.columns.iter_mut().enumerate() {
            let Some(object) = object else { continue };
            let Some((temporary, _)) = &object.unfinished else { continue };
            let path = object_path(self.stub.id, column);
            object.tree.make_directories(split(&path).0, 0o700)?;
            make_way(&object.tree, &path)?;
            object.tree.rename(temporary, &path)?;
            object.unfinished = None;
            object.tree.sync_directory(split(&path).0)?;
            object.tree.sync_directory(super::objects::OBJECTS)?;
        }
        Ok(())
    }
}

/// What is made anew must find directories above it, or none: not a file, nor a link.
fn refuse_files_above(copies: &[Copy], path: &[u8]) -> Result<(), PoolError> {
    let above = split(path).0;
    match look_up(copies, above)? {
        Some(Entry::File(_)) => Err(PoolError::path(above, io::ErrorKind::NotADirectory)),
        Some(Entry::Directory(_)) => Ok(()),
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

    fn finish(&mut self, metadata: &Metadata, mtime: i64) -> io::Result<(Vec<String>, Stat)> {
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
                // What stays is found by a sweep.
                let _ = column.tree.remove(temporary);
            }
        }
    }
}
