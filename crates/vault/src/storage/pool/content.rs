//! Reading the content of a pool file, block by block, from the reachable targets.

use super::config::TargetName;
use super::disk::{Disk, Unavailable};
use super::error::PoolError;
use super::extent::with_current_size;
use super::namespace::look_up_file;
use super::objects::object_path;
use super::stub::{Piece, Stub};
use super::{Pool, Shared};
use crate::format::Metadata;
use crate::geometry::Run;
use crate::retry::{Failure, Retry};
use crate::storage::{Content, Fault, Storage};
use crate::tree::{Stat, absent_is_none};
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

/// A file of a pool that is open for reading, at the version it had when it was opened.
#[derive(Debug)]
pub(crate) struct PoolContent {
    shared: Arc<Shared>,
    path: Vec<u8>,
    stub: Stub,
    columns: Vec<ColumnObject>,
}

/// A column of the file: its target, if the pool still has it, and its object, once opened.
#[derive(Debug)]
struct ColumnObject {
    disk: Option<Arc<Disk>>,
    object: Mutex<Option<Arc<File>>>,
}

impl PoolContent {
    pub(crate) fn open(shared: &Arc<Shared>, path: &[u8]) -> Result<PoolContent, PoolError> {
        let stub = look_up_file(&shared.copies()?, path)?;
        if !stub.is_file() {
            let what = "it is not a regular file";
            return Err(PoolError::path(path, io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let view = shared.cached_view();
        let stub = with_current_size(&view, stub);
        let disk = |target: &TargetName| view.disk(target.as_bytes()).map(|(_, disk)| disk.clone());
        let column = |target: &TargetName| ColumnObject { disk: disk(target), object: Mutex::default() };
        let columns = stub.targets.iter().map(column).collect();
        Ok(PoolContent { shared: shared.clone(), path: path.to_vec(), stub, columns })
    }

    fn target(&self, column: usize) -> Vec<u8> {
        self.stub.targets[column].as_bytes().to_vec()
    }

    /// The target of a column and its object. The object is opened with a deadline, since a dying disk may never
    /// return.
    fn object(&self, column: usize) -> Result<(&Disk, Arc<File>), Fault> {
        let ColumnObject { disk, object } = &self.columns[column];
        let disk = disk.as_ref().ok_or_else(|| Fault::Lost(self.target(column)))?;
        let tree = match disk.online() {
            Ok(online) => online.tree,
            Err(Unavailable::TimedOut) => return Err(Fault::Timeout(self.shared.deadline_ms())),
            Err(_) => return Err(Fault::Lost(self.target(column))),
        };
        let mut object = object.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = object.as_ref() {
            return Ok((disk, file.clone()));
        }
        let path = object_path(self.stub.id, column);
        let opened = disk.deadline_io.run(move || absent_is_none(tree.read(&path)))??;
        let opened = opened.ok_or_else(|| Fault::Missing(self.target(column)))?;
        Ok((disk, object.insert(Arc::new(opened)).clone()))
    }

    /// Reads part of an object.
    fn read_piece(&self, piece: &Piece, buffer: &mut [u8]) -> Result<usize, Fault> {
        let (disk, object) = self.object(piece.column)?;
        disk.deadline_io.read(&object, buffer, piece.offset)
    }

    /// Reads a range of the file. Returns the number of bytes before the first missing one.
    fn read_range(&self, start: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        for piece in self.stub.pieces(start..start + buffer.len() as u64) {
            let part = &mut buffer[done..done + piece.bytes as usize];
            let got = self.read_piece(&piece, part)?;
            done += got;
            if (got as u64) < piece.bytes {
                break;
            }
        }
        Ok(done)
    }

    fn advise(&self, piece: Piece, advice: Advice) {
        let Ok((_, object)) = self.object(piece.column) else { return };
        let Some(length) = NonZeroU64::new(piece.bytes) else { return };
        // Advice only: without it reading is slower.
        let _ = fadvise(&object, piece.offset, Some(length), advice);
    }
}

impl Content for PoolContent {
    fn stat(&self) -> io::Result<Stat> {
        let now = look_up_file(&self.shared.copies()?, &self.path)?;
        Ok(with_current_size(&self.shared.cached_view(), now).stat(self.shared.device))
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.stub.metadata.clone())
    }

    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault> {
        let cell = run.cell(row, column);
        let (there, filling) = buffer.split_at_mut((cell.end - cell.start) as usize);
        let end = (there.len() as u64).min(self.stub.size.saturating_sub(cell.start)) as usize;
        let got = self.read_range(cell.start, &mut there[..end])?;
        there[got..].fill(0);
        filling.fill(0);
        Ok(got)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let want = (buffer.len() as u64).min(self.stub.size.saturating_sub(offset)) as usize;
        self.read_range(offset, &mut buffer[..want])
    }

    fn is_immutable(&self) -> bool {
        true
    }

    fn prefetch(&self, run: &Run) {
        for column in 0..self.stub.targets.len() {
            let range = run.piece(column);
            self.stub.pieces(range).for_each(|piece| self.advise(piece, Advice::WillNeed));
        }
    }

    fn drop_cache(&self) {
        for column in 0..self.stub.targets.len() {
            let bytes = self.stub.object_bytes(column, self.stub.size);
            self.advise(Piece { column, offset: 0, bytes }, Advice::DontNeed);
        }
    }
}

impl Pool {
    /// Writes the content of a file to `output`. Returns the number of bytes.
    ///
    /// # Errors
    /// [`PoolError::Lost`] at the first missing byte: all bytes written before are valid.
    pub fn get(&self, path: &[u8], output: &mut dyn Write) -> Result<u64, PoolError> {
        self.check_size_known(path).map_err(|source| PoolError::path(path, source))?;
        let content = PoolContent::open(&self.shared, path)?;
        let (size, block) = (content.stub.size, content.stub.block);
        let mut buffer = vec![0; block as usize];
        let mut at = 0;
        while at < size {
            // Prefetches one block on every target.
            let ahead = at + block * content.stub.stripe();
            let next = content.stub.pieces(ahead.min(size)..(ahead + block).min(size)).next();
            next.into_iter().for_each(|piece| content.advise(piece, Advice::WillNeed));
            let want = block.min(size - at) as usize;
            let got = content.read_range(at, &mut buffer[..want]);
            let column = (at / block % content.stub.stripe()) as usize;
            let lost = |why: Failure| {
                let target = content.stub.targets[column].clone();
                PoolError::Lost { path: path.to_vec(), column, target, why }
            };
            match got {
                Ok(got) if got == want => {}
                Ok(got) => {
                    return Err(lost(Failure::new(
                        format_args!("its object is {} bytes too short", want - got),
                        Retry::Never,
                    )));
                }
                Err(Fault::Lost(_) | Fault::Missing(_)) => {
                    return Err(lost(Failure::new("it is gone", Retry::Later)));
                }
                Err(fault) => return Err(lost(fault.into())),
            }
            output
                .write_all(&buffer[..want])
                .map_err(|source| PoolError::Caller { doing: "writing the output", source })?;
            at += want as u64;
        }
        Ok(size)
    }
}
