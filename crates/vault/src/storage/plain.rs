//! Plain directory storage: columns are cut out of each file, redundancy goes to one repository.
//!
//! It protects against corruption, torn writes, overwritten regions and truncation. A deleted file can only be restored
//! if m ≥ k.

mod block_repair;
mod repair;

use super::{
    Content, Fault, Folder, Layout, LayoutError, OpenForRepair, ParityPlacement, Reconstruct, Repository,
    Storage, Target, TargetState, read_blocks,
};
use crate::format::Metadata;
use crate::geometry::{Geometry, Run, Tail, block_for};
use crate::metadata;
use crate::redundancy::read_up_to;
use crate::tree::{Directory, Generation, Names, Stat, Tree, stat_of};
use gabion_engine::Code;
use gabion_platform::window::Window;
use repair::PlainRepair;
use rustix::fs::{Advice, fadvise, fstatfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::collections::HashMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Bytes of a column in a full segment: with m redundancy columns, up to m times this many adjacent bytes can be
/// overwritten and repaired.
pub const COLUMN_BYTES: u64 = 16 << 20;

/// Rows that a file of one segment is cut into where size and policy allow it.
const WANTED_ROWS: u64 = 16;

/// Name of Gabion's own directory, which is never protected.
pub const OWN: &[u8] = b".gabion";

/// Target name of the tree itself.
pub const DATA: &[u8] = b"data";

/// Target name of the repository.
pub const REPOSITORY: &[u8] = b"repository";

/// Ranges of files, by path.
type RepairedRanges = HashMap<Vec<u8>, Vec<Range<u64>>>;

/// A directory and its repository; cheap to clone.
#[derive(Debug, Clone)]
pub struct Plain {
    root: Tree,
    repository: Tree,
    /// The mount through which programs of this machine write, if this process serves one.
    writer: Arc<RwLock<Option<Weak<dyn DirectoryWriter>>>>,
    /// Repaired ranges by path, until they are reported.
    repaired: Arc<Mutex<RepairedRanges>>,
    /// Ranges of the files that are read which count as lost.
    lost: Arc<[Range<u64>]>,
}

/// A mount of a directory. It knows which bytes were written through it, and whether other programs wrote to a file.
pub trait DirectoryWriter: Send + Sync + Debug {
    /// Ranges of a file written between `version` and the present version `now`, sorted and disjoint. None if another
    /// program may have written to the file.
    fn written_since(&self, version: &Generation, now: &Generation) -> Option<Vec<Range<u64>>>;

    /// Announces that version `now` is about to be encoded in place of `old`: only these two have to be remembered.
    fn note_encoding_start(&self, old: Option<&Generation>, now: &Generation);

    /// Runs `act` on the content of a file at version `now` while writes through the mount are paused. `act` returns
    /// the version that it leaves. Returns false if `now` is no longer the present version, or if `act` returned none.
    fn with_writes_paused(&self, now: &Generation, act: &mut dyn FnMut() -> Option<Generation>) -> bool;
}

impl Plain {
    /// Storage for the files below `root`.
    pub fn new(root: Tree, repository: Tree) -> Plain {
        Plain { root, repository, writer: Arc::default(), repaired: Arc::default(), lost: Arc::default() }
    }

    /// The same storage for one file that has lost these ranges, sorted and disjoint: they are never read.
    pub fn without(self, lost: Vec<Range<u64>>) -> Plain {
        Plain { lost: lost.into(), ..self }
    }

    /// Sets the mount through which programs write. All clones of this storage ask it which ranges were written.
    pub fn set_writer(&self, writer: Weak<dyn DirectoryWriter>) {
        *self.writer.write().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    fn writer(&self) -> Option<Arc<dyn DirectoryWriter>> {
        self.writer.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }
}

struct PlainFolder {
    directory: Directory,
    names: Names,
}

impl Folder for PlainFolder {
    fn names(&self) -> &Names {
        &self.names
    }

    fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        self.directory.stat(name)
    }
}

impl Storage for Plain {
    fn kind(&self) -> &'static str {
        "plain"
    }

    fn folder(&self, path: &[u8]) -> io::Result<Box<dyn Folder + '_>> {
        let directory = self.root.directory(path)?;
        let mut names = directory.names()?;
        names.retain(|name| name != OWN);
        Ok(Box::new(PlainFolder { directory, names }))
    }

    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        self.root.find(path)
    }

    fn flush(&self) -> Option<u64> {
        // `syncfs` does not reach a file system in user space.
        let is_synced = self.root.file_system().is_ok_and(|kind| kind != FUSE);
        let flushed = is_synced && self.root.sync_all().is_ok();
        flushed.then(|| self.root.stat(b"")).and_then(Result::ok).map(|stat| stat.device)
    }

    fn written_since(&self, _: &[u8], version: &Generation, now: &Generation) -> Option<Vec<Range<u64>>> {
        self.writer()?.written_since(version, now)
    }

    fn note_encoding_start(&self, _: &[u8], old: Option<&Generation>, now: &Generation) {
        if let Some(writer) = self.writer() {
            writer.note_encoding_start(old, now);
        }
    }

    fn repair_blocks(&self, path: &[u8], cells: &[Range<u64>], reconstruct: Reconstruct<'_>) {
        if let Some(writer) = self.writer() {
            self.repair_while_paused(&*writer, path, cells, reconstruct);
        }
    }

    fn take_repaired(&self, path: &[u8]) -> Vec<Range<u64>> {
        self.repaired.lock().unwrap_or_else(PoisonError::into_inner).remove(path).unwrap_or_default()
    }

    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>> {
        Ok(Box::new(PlainFile { lost: self.lost.clone(), ..PlainFile::new(self.root.read(path)?) }))
    }

    fn open_for_repair(&self, path: &[u8], content: Option<Box<dyn Content>>) -> io::Result<OpenForRepair> {
        let existed = content.is_some();
        // Its descriptor would count as that of another reader.
        drop(content);
        let repair = PlainRepair::open(&self.root, path, existed)?;
        let content = existed.then(|| repair.content()).transpose()?;
        Ok((Box::new(repair), content))
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        self.root.shown(path)
    }

    fn block(&self, code: &Code, size: u64, largest: u64) -> u64 {
        block_for(size, code.k() as u64, WANTED_ROWS.min(rows(largest)), largest, code.granule() as u64)
    }

    fn layout(&self, _path: &[u8], code: &Code, block: u64) -> Result<Layout, LayoutError> {
        let geometry =
            Geometry::new(code.k() as u64, block, rows(block), Tail::Balanced, code.granule() as u64)?;
        Ok(Layout { geometry, targets: Vec::new() })
    }

    fn repositories(&self) -> Vec<Repository> {
        vec![Repository { target: Vec::new(), tree: self.repository.clone() }]
    }

    fn parity_placements(
        &self,
        path: &[u8],
        code: &Code,
        _layout: &Layout,
    ) -> io::Result<Vec<ParityPlacement>> {
        let repository = Repository { target: Vec::new(), tree: self.repository.clone() };
        Ok(vec![ParityPlacement {
            first: 0,
            columns: code.m(),
            target: Vec::new(),
            place: repository.place(path),
        }])
    }

    fn targets(&self) -> Vec<Target> {
        let target = |name: &[u8], tree: &Tree| {
            let space = tree.space().ok();
            let state = if space.is_some() { TargetState::Online } else { TargetState::Offline };
            // One disk may hold both; then they fail together.
            let device = tree.stat(b"").map_or(0, |stat| stat.device);
            Target { name: name.to_vec(), domain: format!("file system {device:x}"), state, space }
        };
        vec![target(DATA, &self.root), target(REPOSITORY, &self.repository)]
    }
}

/// Rows of a full segment with blocks of this size.
fn rows(block: u64) -> u64 {
    (COLUMN_BYTES / block.max(1)).max(1)
}

/// Content of an open file.
pub(crate) fn content_of(file: File) -> Box<dyn Content> {
    Box::new(PlainFile::new(file))
}

#[derive(Debug)]
struct PlainFile {
    file: File,
    /// Set where the file system does not report cached pages: true if it keeps its files in memory.
    in_memory: OnceLock<bool>,
    /// Ranges that are never read.
    lost: Arc<[Range<u64>]>,
}

impl Content for PlainFile {
    fn stat(&self) -> io::Result<Stat> {
        stat_of(&self.file)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn metadata(&self) -> io::Result<Metadata> {
        metadata::read(&self.file, &stat_of(&self.file)?)
    }

    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault> {
        let cell = run.cell(row, column);
        self.refuse_lost(&cell)?;
        let (there, filling) = buffer.split_at_mut((cell.end - cell.start) as usize);
        let got = read_up_to(&self.file, there, cell.start)?;
        there[got..].fill(0);
        filling.fill(0);
        Ok(got)
    }

    fn read_stripe(&self, run: &Run, row: u64, buffer: &mut [u8]) -> Result<bool, Fault> {
        let block = run.block as usize;
        let Some(range) = run.stripe(row, buffer.len() / block) else {
            return read_blocks(self, run, row, buffer);
        };
        self.refuse_lost(&range)?;
        let (there, filling) = buffer.split_at_mut((range.end - range.start) as usize);
        filling.fill(0);
        Ok(read_up_to(&self.file, there, range.start)? == there.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.refuse_lost(&(offset..offset.saturating_add(buffer.len() as u64)))?;
        Ok(read_up_to(&self.file, buffer, offset)?)
    }

    fn map_columns(&self, run: &Run, columns: usize, window: &mut Window) -> bool {
        if !self.lost.is_empty() {
            return false;
        }
        let pieces: Vec<_> = (0..columns).map(|column| run.piece(column)).collect();
        // Uncached data is read instead, which lets the kernel read ahead.
        let at_hand = pieces.iter().all(|piece| {
            piece.end - piece.start == run.bytes()
                && self.is_cached(piece.start)
                && self.is_cached(piece.end - 1)
        });
        // Some file systems do not support mapping.
        at_hand && window.show(&self.file, &pieces).is_ok()
    }

    fn prefetch(&self, run: &Run) {
        if !self.lost.is_empty() {
            return;
        }
        for column in 0.. {
            let piece = run.piece(column);
            let Some(length) = NonZeroU64::new(piece.end - piece.start) else { break };
            // For cached pages the advice costs as much as looking all of them up.
            if self.is_cached(piece.start) && self.is_cached(piece.end - 1) {
                continue;
            }
            // Advice only: without it reading is slower.
            let _ = fadvise(&self.file, piece.start, Some(length), Advice::WillNeed);
        }
    }

    fn drop_cache(&self) {
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }
}

impl PlainFile {
    fn new(file: File) -> PlainFile {
        PlainFile { file, in_memory: OnceLock::new(), lost: Arc::default() }
    }

    /// Refuses a range with lost bytes.
    fn refuse_lost(&self, range: &Range<u64>) -> Result<(), Fault> {
        let after = self.lost.partition_point(|lost| lost.end <= range.start);
        match self.lost.get(after).is_some_and(|lost| lost.start < range.end) {
            true => Err(Fault::Lost(DATA.to_vec())),
            false => Ok(()),
        }
    }

    /// True if the byte at `offset` is in the page cache; false if the system does not say.
    fn is_cached(&self, offset: u64) -> bool {
        if let Some(&in_memory) = self.in_memory.get() {
            return in_memory;
        }
        let byte = &mut [0];
        match preadv2(&self.file, &mut [IoSliceMut::new(byte)], offset, ReadWriteFlags::NOWAIT) {
            // File systems that keep their files in memory only do not support this call.
            Err(Errno::OPNOTSUPP) => {
                *self.in_memory.get_or_init(|| fstatfs(&self.file).is_ok_and(|about| about.f_type == TMPFS))
            }
            got => got == Ok(1),
        }
    }
}

/// Type number of tmpfs in `statfs`.
const TMPFS: i64 = 0x0102_1994;

/// Type number of FUSE in `statfs`.
const FUSE: i64 = 0x6573_5546;
