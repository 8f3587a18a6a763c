//! Writing a file as a whole: objects first, durably, then the stub. A crash leaves the old or the new file.

use super::change::MirrorFault;
use super::config::TargetName;
use super::error::PoolError;
use super::namespace::{NamespaceEntry, TREE, look_up, mirror_path};
use super::objects::{create_locked, object_path, sync_all, write_sparse};
use super::placement::{self, Candidate};
use super::stub::{Piece, Stub};
use super::{Pool, Shared};
use crate::format::{FileId, Metadata};
use crate::world::{Timestamp, unique_id};
use gabion_platform::lock::Lockable;
use std::collections::BTreeSet;
use std::io::{self, Read};

/// A file that was put.
#[derive(Debug)]
pub struct PutResult {
    /// The new stub.
    pub stub: Stub,
    /// Mirrors that failed; the file exists all the same.
    pub faults: Vec<MirrorFault>,
}

/// New objects without a stub; removed when dropped.
struct PendingObjects<'a> {
    shared: &'a Shared,
    stub: Stub,
    targets: Vec<Candidate>,
    /// Created with the first byte: small files do not have all columns. Open files are safe from sweeps.
    files: Vec<Option<Lockable>>,
    published: bool,
}

impl Pool {
    /// Puts a file at `path`, replacing what is there; missing directories above it are created. Needs memory for one
    /// block.
    ///
    /// # Errors
    /// See [`PoolError`]; the previous file is kept then.
    pub fn put(
        &self,
        path: &[u8],
        content: &mut dyn Read,
        metadata: &Metadata,
        mtime: Timestamp,
    ) -> Result<PutResult, PoolError> {
        mirror_path(TREE, path)?;
        let mut objects = PendingObjects::new(&self.shared, metadata, mtime)?;
        objects.fill(content)?;
        objects.sync()?;
        objects.publish(path)
    }

    /// Puts a symbolic link at `path`, replacing what is there.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn put_link(
        &self,
        path: &[u8],
        target: &[u8],
        metadata: &Metadata,
        mtime: Timestamp,
    ) -> Result<PutResult, PoolError> {
        let mut stub = new_stub(metadata, mtime, Vec::new(), 0)?;
        stub.link = Some(target.to_vec());
        stub.size = target.len() as u64;
        let mut change = self.shared.change()?;
        let (stub, before) = change.publish(path, stub)?;
        before.map(|old| change.unlink(old)).transpose()?;
        Ok(PutResult { stub, faults: change.faults() })
    }
}

pub(crate) fn new_stub(
    metadata: &Metadata,
    mtime: Timestamp,
    targets: Vec<TargetName>,
    block: u64,
) -> Result<Stub, PoolError> {
    let id = unique_id().map_err(|source| PoolError::Caller { doing: "generating an identity", source })?;
    let metadata = metadata.clone();
    Ok(Stub {
        id: FileId(id),
        revision: 0,
        size: 0,
        block,
        mtime,
        changed: Timestamp::EPOCH,
        metadata,
        targets,
        link: None,
        special: None,
        accessed: None,
        names: 0,
        writing: false,
    })
}

impl<'a> PendingObjects<'a> {
    fn new(
        shared: &'a Shared,
        metadata: &Metadata,
        mtime: Timestamp,
    ) -> Result<PendingObjects<'a>, PoolError> {
        let view = shared.view();
        let mut stub = new_stub(metadata, mtime, Vec::new(), view.config.block)?;
        let targets = placement::data_targets(&view, &stub.id.0, &BTreeSet::new())?;
        stub.targets = targets.iter().map(|target| target.name.clone()).collect();
        let files = targets.iter().map(|_| None).collect();
        Ok(PendingObjects { shared, stub, targets, files, published: false })
    }

    fn fill(&mut self, content: &mut dyn Read) -> Result<(), PoolError> {
        let mut buffer = vec![0; self.stub.block as usize];
        loop {
            let got = read_full(content, &mut buffer)
                .map_err(|source| PoolError::Caller { doing: "reading the input", source })?;
            let end = self.stub.size + got as u64;
            let piece = self.stub.pieces(self.stub.size..end).next();
            if let Some(piece) = piece {
                self.write(piece, &buffer[..got])
                    .map_err(PoolError::target(&self.targets[piece.column].name, "writing an object"))?;
            }
            self.stub.size = end;
            if got < buffer.len() {
                return Ok(());
            }
        }
    }

    fn write(&mut self, piece: Piece, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.files[piece.column] {
            Some(file) => file,
            none => {
                let path = object_path(self.stub.id, piece.column);
                none.insert(create_locked(&self.targets[piece.column].tree, &path)?)
            }
        };
        write_sparse(file, bytes, piece.offset)
    }

    fn sync(&self) -> Result<(), PoolError> {
        let mut open = Vec::new();
        for (column, (target, file)) in self.targets.iter().zip(&self.files).enumerate() {
            let Some(file) = file else { continue };
            file.set_len(self.stub.object_bytes(column, self.stub.size))
                .map_err(PoolError::target(&target.name, "setting the length of an object"))?;
            open.push((&target.name, &target.tree, file, object_path(self.stub.id, column)));
        }
        sync_all(&open)
    }

    fn publish(mut self, path: &[u8]) -> Result<PutResult, PoolError> {
        let mut change = self.shared.change()?;
        change.view.require_in_service(&self.stub.targets)?;
        let published = change.publish(path, self.stub.clone());
        if published.is_err() {
            // A mirror may have taken the stub before it failed. Then the objects must stay.
            let there = look_up(&change.copies, path);
            let is_ours = |entry: &NamespaceEntry| matches!(entry, NamespaceEntry::File(stub) if stub.id == self.stub.id);
            self.published =
                change.outcome_unknown || there.map_or(true, |entry| entry.as_ref().is_some_and(is_ours));
        }
        let (stub, before) = published?;
        self.published = true;
        before.map(|old| change.unlink(old)).transpose()?;
        Ok(PutResult { stub, faults: change.faults() })
    }
}

impl Drop for PendingObjects<'_> {
    fn drop(&mut self) {
        if !self.published {
            for (column, target) in
                self.targets.iter().enumerate().filter(|(at, _)| self.files[*at].is_some())
            {
                // A file that stays is removed by a sweep.
                let _ = target.tree.remove(&object_path(self.stub.id, column));
            }
        }
    }
}

fn read_full(content: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match content.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
