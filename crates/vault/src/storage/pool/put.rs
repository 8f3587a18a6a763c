//! Content comes in: objects first, durably, then the stub. A crash leaves the old file or the new one.

use super::change::MirrorFault;
use super::error::PoolError;
use super::namespace::{Entry, TREE, beneath, look_up};
use super::objects::{create_held, object_path, sync_all, write_sparse};
use super::placement::{self, Candidate};
use super::stub::{Piece, Stub};
use super::{Pool, Shared};
use crate::format::{FileId, Metadata};
use crate::world::{Nanos, unique_id};
use gabion_platform::lock::Lockable;
use std::collections::BTreeSet;
use std::io::{self, Read};

/// What was put.
#[derive(Debug)]
pub struct Written {
    /// The file as it is now.
    pub stub: Stub,
    /// Mirrors that did not take it; the file is there all the same.
    pub faults: Vec<MirrorFault>,
}

/// Objects that nothing refers to yet; dropped, they are gone.
struct Objects<'a> {
    shared: &'a Shared,
    stub: Stub,
    targets: Vec<Candidate>,
    /// Made when the first byte comes: small files do not have all columns. Open files are safe from sweeps.
    files: Vec<Option<Lockable>>,
    published: bool,
}

impl Pool {
    /// Puts a file in place of what is at `path`; directories above it are made where they are missing. Memory for one block
    /// is needed.
    ///
    /// # Errors
    /// See [`PoolError`]; what was at `path` is still there then.
    pub fn put(
        &self,
        path: &[u8],
        content: &mut dyn Read,
        metadata: &Metadata,
        mtime: Nanos,
    ) -> Result<Written, PoolError> {
        beneath(TREE, path)?;
        let mut objects = Objects::new(&self.shared, metadata, mtime)?;
        objects.fill(content)?;
        objects.sync()?;
        objects.publish(path)
    }

    /// Puts a symbolic link in place of what is at `path`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn put_link(
        &self,
        path: &[u8],
        target: &[u8],
        metadata: &Metadata,
        mtime: Nanos,
    ) -> Result<Written, PoolError> {
        let mut stub = new_stub(metadata, mtime, Vec::new(), 0)?;
        stub.link = Some(target.to_vec());
        stub.size = target.len() as u64;
        let mut change = self.shared.change()?;
        let (stub, before) = change.publish(path, stub)?;
        before.map(|old| change.let_go(old)).transpose()?;
        Ok(Written { stub, faults: change.faults() })
    }
}

pub(crate) fn new_stub(
    metadata: &Metadata,
    mtime: Nanos,
    targets: Vec<String>,
    block: u64,
) -> Result<Stub, PoolError> {
    let id = unique_id().map_err(|source| PoolError::Caller { doing: "making an identity", source })?;
    let metadata = metadata.clone();
    Ok(Stub {
        id: FileId(id),
        revision: 0,
        size: 0,
        block,
        mtime,
        changed: 0,
        metadata,
        targets,
        link: None,
        special: None,
        accessed: None,
        names: 0,
        writing: false,
    })
}

impl<'a> Objects<'a> {
    fn new(shared: &'a Shared, metadata: &Metadata, mtime: Nanos) -> Result<Objects<'a>, PoolError> {
        let view = shared.view();
        let mut stub = new_stub(metadata, mtime, Vec::new(), view.config.block)?;
        let targets = placement::data(&view, &stub.id.0, &BTreeSet::new())?;
        stub.targets = targets.iter().map(|target| target.name.clone()).collect();
        let files = targets.iter().map(|_| None).collect();
        Ok(Objects { shared, stub, targets, files, published: false })
    }

    fn fill(&mut self, content: &mut dyn Read) -> Result<(), PoolError> {
        let mut buffer = vec![0; self.stub.block as usize];
        loop {
            let got = read_full(content, &mut buffer)
                .map_err(|source| PoolError::Caller { doing: "reading what shall be put", source })?;
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
                none.insert(create_held(&self.targets[piece.column].tree, &path)?)
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
            open.push((target.name.as_str(), &target.tree, file, object_path(self.stub.id, column)));
        }
        sync_all(&open)
    }

    fn publish(mut self, path: &[u8]) -> Result<Written, PoolError> {
        let mut change = self.shared.change()?;
        change.view.refuse_leaving(&self.stub.targets)?;
        let published = change.publish(path, self.stub.clone());
        if published.is_err() {
            // A mirror may have taken the stub and failed afterwards. Then the objects must stay.
            let there = look_up(&change.copies, path);
            let is_ours = |entry: &Entry| matches!(entry, Entry::File(stub) if stub.id == self.stub.id);
            self.published =
                change.doubtful || there.map_or(true, |entry| entry.as_ref().is_some_and(is_ours));
        }
        let (stub, before) = published?;
        self.published = true;
        before.map(|old| change.let_go(old)).transpose()?;
        Ok(Written { stub, faults: change.faults() })
    }
}

impl Drop for Objects<'_> {
    fn drop(&mut self) {
        if !self.published {
            for (column, target) in
                self.targets.iter().enumerate().filter(|(at, _)| self.files[*at].is_some())
            {
                // What stays is found by a sweep.
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
