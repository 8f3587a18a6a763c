//! Storage adapters: where the bytes of protected files and their redundancy lie.
//!
//! An adapter lists files, reads one column of a stripe, writes one back for repair, and says where redundancy may be
//! placed. It knows which files share a failure domain, but no codes, policies or file states. Missing bytes are
//! reported as [`Fault`], so that a reader can reconstruct them instead of failing.

#[cfg(feature = "testing")]
pub mod conformance;
pub mod deadline_io;
pub mod plain;
pub mod pool;

use crate::coder::Coders;
use crate::format::header::MAX_STRIPE;
use crate::format::{Binding, FileId, Header, Metadata};
use crate::geometry::{Geometry, GeometryError, Run};
use crate::redundancy::{PartPath, REDUNDANCY};
use crate::retry::{Retry, Retryable};
use crate::tree::{Generation, Names, Stat, Tree, join};
use crate::world::Timestamp;
use deadline_io::DeadlineIo;
use gabion_engine::Code;
use gabion_platform::window::Window;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Storage that fails as one unit: a disk, or a directory on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Name, unique within the storage.
    pub name: Vec<u8>,
    /// Failure domain: targets of one domain may fail together.
    pub domain: String,
    /// Whether the target is reachable and in service.
    pub state: TargetState,
    /// Free and total bytes, if it is reachable.
    pub space: Option<(u64, u64)>,
}

/// State of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// Readable and writable.
    Online,
    /// Unreachable: its content counts as lost until it is reachable again.
    Offline,
    /// Readable, but receives nothing new.
    Retired,
    /// Reachable again after it was given up: its content counts as lost until it has been verified.
    Returned,
}

impl TargetState {
    /// What it is called.
    pub fn word(self) -> &'static str {
        match self {
            TargetState::Online => "online",
            TargetState::Offline => "offline",
            TargetState::Retired => "retired",
            TargetState::Returned => "returned",
        }
    }

    /// True if the content of the target is valid.
    pub fn has_valid_content(self) -> bool {
        matches!(self, TargetState::Online | TargetState::Retired)
    }
}

/// Why bytes of a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Their target is unreachable.
    #[error("target {} is unreachable", crate::display_path::DisplayPath::bytes(.0))]
    Lost(Vec<u8>),
    /// Their target is reachable and does not have them.
    #[error("the object on target {} is missing or too short", crate::display_path::DisplayPath::bytes(.0))]
    Missing(Vec<u8>),
    /// The target did not answer within the deadline.
    #[error("no answer within {0} ms")]
    Timeout(u64),
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Retryable for Fault {
    fn retry(&self) -> Retry {
        match self {
            Fault::Lost(_) | Fault::Missing(_) | Fault::Timeout(_) => Retry::Later,
            Fault::Io(error) => error.retry(),
        }
    }
}

/// How a file is cut into stripes, and the target of each data column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The cut into stripes.
    pub geometry: Geometry,
    /// Target names of the data columns; empty if the storage has only one target.
    pub targets: Vec<Vec<u8>>,
}

impl Layout {
    /// Refuses stripes that need more memory than the header format allows.
    ///
    /// # Errors
    /// [`LayoutError::Stripe`].
    pub fn check(&self, code: &Code, size: u64) -> Result<(), LayoutError> {
        let bytes = self.geometry.cut(size).block(0).saturating_mul(code.blocks() as u64);
        if bytes > MAX_STRIPE { Err(LayoutError::Stripe { bytes }) } else { Ok(()) }
    }
}

/// Placement of redundancy columns of a file: one redundancy file.
#[derive(Debug, Clone)]
pub struct ParityPlacement {
    /// First redundancy column, counted from 0.
    pub first: usize,
    /// Number of columns.
    pub columns: usize,
    /// Target; empty if the storage has only one.
    pub target: Vec<u8>,
    /// Path of the redundancy file.
    pub place: PartPath,
}

/// Tree that holds redundancy files, at most one per protected file.
#[derive(Debug, Clone)]
pub struct Repository {
    /// Target that holds it; empty if the storage has only one.
    pub target: Vec<u8>,
    /// The tree.
    pub tree: Tree,
}

impl Repository {
    /// Path of the redundancy of `path` where redundancy is kept by name. The file may not exist.
    pub fn place(&self, path: &[u8]) -> PartPath {
        PartPath { tree: self.tree.clone(), path: join(REDUNDANCY, path) }
    }
}

/// A possible location of redundancy of one file.
#[derive(Debug, Clone)]
pub struct RedundancyLocation {
    /// Target; empty if the storage has only one.
    pub target: Vec<u8>,
    /// Path on the target.
    pub place: PartPath,
    /// Identity of the protected file, if storage keeps redundancy by identity.
    pub owner: Option<FileId>,
}

impl RedundancyLocation {
    /// True if a redundancy file found at this location belongs to the file. Format version 1 has no binding; the inode
    /// is compared instead, with half as many bits.
    pub fn owns(&self, header: &Header) -> bool {
        self.owner.is_none_or(|id| match &header.binding {
            Some(binding) => binding.0 == id.0,
            None => header.generation.inode == id.inode(),
        })
    }
}

/// A directory of the namespace.
pub trait Folder {
    /// Sorted names; Gabion's own files are left out.
    fn names(&self) -> &Names;
    /// Status of an entry. Size and times are those of the content.
    ///
    /// # Errors
    /// I/O errors.
    fn stat(&self, name: &[u8]) -> io::Result<Stat>;
}

/// Reconstructs a range of a file from the rest of its stripe. The predicate is true if redundancy of the given version
/// covers the present bytes of a range. Returns no pieces if too few blocks of the stripe are left.
pub type Reconstruct<'a> = &'a dyn Fn(
    &Range<u64>,
    &dyn Fn(&Generation, &Range<u64>) -> bool,
) -> io::Result<Vec<(Range<u64>, Vec<u8>)>>;

/// A file that is open for reading.
pub trait Content: Send + Sync + Debug {
    /// Present status. Readers compare it before and after reading to detect changes.
    ///
    /// # Errors
    /// I/O errors.
    fn stat(&self) -> io::Result<Stat>;

    /// Owner, permissions and attributes.
    ///
    /// # Errors
    /// I/O errors.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Writes the dirty pages of the file to its medium, so that the next store into a mapped page changes its mtime.
    ///
    /// # Errors
    /// I/O errors.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Reads block `row` of `run` in `column` into `buffer` and pads it with zeros. Returns the number of bytes read:
    /// fewer than [`Run::cell`] if the file has become shorter.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// Reads the first blocks of stripe `first + row` of `run`, as many as fit into `buffer`, padded with zeros.
    /// Returns false if the file has become shorter.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read_stripe(&self, run: &Run, row: u64, buffer: &mut [u8]) -> Result<bool, Fault> {
        read_blocks(self, run, row, buffer)
    }

    /// Reads from `offset` until the buffer is full or the file ends. Returns the number of bytes read; it is short if
    /// bytes before the end of the file are missing.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// True if an open file never changes: new content gets a new identity, and this handle keeps the old content.
    fn is_immutable(&self) -> bool {
        false
    }

    /// Maps the pieces that `run` has in its first `columns` columns into `window`, if they are in the page cache and
    /// reading would only copy them. Returns false if they are not, or if a piece is incomplete; the caller reads them
    /// then.
    fn map_columns(&self, _run: &Run, _columns: usize, _window: &mut Window) -> bool {
        false
    }

    /// Announces that all columns of `run` will be read soon.
    fn prefetch(&self, run: &Run);

    /// Drops the content from the page cache, so that the next read comes from the medium.
    fn drop_cache(&self);
}

/// [`Content::read_stripe`] as single block reads.
fn read_blocks<C: Content + ?Sized>(
    content: &C,
    run: &Run,
    row: u64,
    buffer: &mut [u8],
) -> Result<bool, Fault> {
    for (column, block) in buffer.chunks_exact_mut(run.block as usize).enumerate() {
        let cell = run.cell(row, column);
        if content.read(run, row, column, block)? as u64 != cell.end - cell.start {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A file that is open for repair.
pub trait Repairable {
    /// Writes back the bytes of block `row` of `run` in `column`; `bytes` has the length of [`Run::cell`]. A block of
    /// zeros becomes a hole where storage supports holes.
    ///
    /// # Errors
    /// I/O errors.
    fn write(&mut self, run: &Run, row: u64, column: usize, bytes: &[u8]) -> io::Result<()>;

    /// Sets the file size.
    ///
    /// # Errors
    /// I/O errors.
    fn set_size(&mut self, size: u64) -> io::Result<()>;

    /// Called now and then: lets programs go on that wait to open the file.
    fn give_way(&mut self) {}

    /// Restores owner, permissions and attributes, makes everything durable, and then restores the mtime, if there is
    /// one and `is_right` finds the content right. Storage that others can write to past this program asks `is_right`,
    /// and gives back the mtime only if nobody has written since: a write of others must not look like damage. Returns
    /// the metadata that could not be restored, as text, and the new status of the file.
    ///
    /// # Errors
    /// `ResourceBusy` if others write to the file or have written; the mtime is not restored then. I/O errors.
    fn finish(
        &mut self,
        metadata: &Metadata,
        mtime: Option<Timestamp>,
        is_right: IsRight<'_>,
    ) -> io::Result<(Vec<String>, Stat)>;
}

/// Examines a repaired file. Stops, with any result, when the function it is given returns true.
pub type IsRight<'a> = &'a mut dyn FnMut(&(dyn Fn() -> bool + Sync)) -> io::Result<bool>;

/// A file that is open for repair, and the content to read meanwhile; none of a file that did not exist.
pub type OpenForRepair = (Box<dyn Repairable>, Option<Box<dyn Content>>);

/// Contract of a storage adapter.
pub trait Storage: Send + Sync + Debug {
    /// Name of the kind of storage.
    fn kind(&self) -> &'static str;

    /// Opens a directory of the namespace.
    ///
    /// # Errors
    /// I/O errors.
    fn folder(&self, path: &[u8]) -> io::Result<Box<dyn Folder + '_>>;

    /// Status of a path; none if it does not exist.
    ///
    /// # Errors
    /// I/O errors.
    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>>;

    /// Flushes all files at once, as [`Content::flush`] does for one. Returns the device that was flushed; none if
    /// files have to be flushed one by one.
    fn flush(&self) -> Option<u64> {
        None
    }

    /// True if a file is being written in a way that its [`Stat`] does not show until the writer is done.
    ///
    /// # Errors
    /// I/O errors.
    fn is_being_written(&self, _path: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Refuses a file whose size is unknown: it is or was being written in place, and an unreachable target may hold
    /// appended bytes.
    ///
    /// # Errors
    /// The size is unknown; I/O errors.
    fn check_size_known(&self, _path: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Records the size of a file whose writer died during in-place writes. Until then the size follows from the
    /// lengths of all columns, so losing one column would truncate the file.
    ///
    /// # Errors
    /// I/O errors.
    fn finish_abandoned_write(&self, _path: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Ranges written between `version` and the present version `now`, sorted and disjoint. None if they are not known
    /// for certain. Any difference outside these ranges is damage.
    fn written_since(
        &self,
        _path: &[u8],
        _version: &Generation,
        _now: &Generation,
    ) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Announces that version `now` of a file is about to be encoded, replacing the redundancy of `old`.
    /// [`written_since`](Storage::written_since) is called with these versions next.
    fn note_encoding_start(&self, _path: &[u8], _old: Option<&Generation>, _now: &Generation) {}

    /// Repairs damaged blocks that were not written since they were protected. Blocks that cannot be repaired stay as
    /// they are.
    fn repair_blocks(&self, _path: &[u8], _cells: &[Range<u64>], _reconstruct: Reconstruct<'_>) {}

    /// Returns, once, the ranges that [`repair_blocks`](Storage::repair_blocks) repaired in a file: an attempt to
    /// encode the file may have failed after the repair. Empty where storage reports repairs by itself.
    fn take_repaired(&self, _path: &[u8]) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Binding of redundancy to the file at `path`: see [`Binding`].
    ///
    /// # Errors
    /// I/O errors.
    fn binding(&self, path: &[u8]) -> io::Result<Binding> {
        Ok(Binding::of_name(crate::tree::split(path).1))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// I/O errors.
    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>>;

    /// Opens a file for repair; creates it if it does not exist. `content` is the open file, and what is returned for
    /// it is to be read during the repair: a descriptor of its own could keep the storage from excluding others.
    ///
    /// # Errors
    /// `ResourceBusy` if another program has the file open for writing; I/O errors.
    fn open_for_repair(&self, path: &[u8], content: Option<Box<dyn Content>>) -> io::Result<OpenForRepair>;

    /// Path for messages.
    fn shown(&self, path: &[u8]) -> std::path::PathBuf;

    /// Block size for a file of `size` bytes, at most `largest`.
    fn block(&self, _code: &Code, _size: u64, largest: u64) -> u64 {
        largest
    }

    /// Layout of a file for `code`, in blocks of `block` bytes where storage leaves the choice.
    ///
    /// # Errors
    /// Sizes that do not fit the code or the storage.
    fn layout(&self, path: &[u8], code: &Code, block: u64) -> Result<Layout, LayoutError>;

    /// Trees that hold redundancy; those of unreachable targets are left out.
    fn repositories(&self) -> Vec<Repository>;

    /// The [repositories](Storage::repositories) that accept writes: a file system may be read-only after an error.
    fn writable_repositories(&self) -> Vec<Repository> {
        self.repositories()
    }

    /// Identity of a file, if storage keeps redundancy by identity: added and removed names then leave redundancy in
    /// place. None if redundancy is kept by path.
    ///
    /// # Errors
    /// I/O errors.
    fn identity(&self, _path: &[u8]) -> io::Result<Option<FileId>> {
        Ok(None)
    }

    /// True if storage keeps redundancy by file identity.
    fn keeps_by_identity(&self) -> bool {
        false
    }

    /// Possible locations of redundancy of a file on all reachable targets, whether or not a file exists there.
    ///
    /// # Errors
    /// I/O errors.
    fn redundancy_locations(&self, path: &[u8]) -> io::Result<Vec<RedundancyLocation>> {
        let location =
            |it: Repository| RedundancyLocation { place: it.place(path), target: it.target, owner: None };
        Ok(self.repositories().into_iter().map(location).collect())
    }

    /// Moves redundancy of a file from the location of an earlier format to the one that
    /// [`parity_placements`](Storage::parity_placements) uses.
    ///
    /// # Errors
    /// I/O errors.
    fn relocate_former_redundancy(&self, _path: &[u8], _coders: &Coders) -> io::Result<()> {
        Ok(())
    }

    /// Placement of the redundancy of a file with this layout. Columns that no target can take are left out.
    ///
    /// # Errors
    /// I/O errors.
    fn parity_placements(
        &self,
        path: &[u8],
        code: &Code,
        layout: &Layout,
    ) -> io::Result<Vec<ParityPlacement>>;

    /// All targets.
    fn targets(&self) -> Vec<Target>;

    /// Runner with a deadline for I/O on the disk of a redundancy file; none if storage sets no deadline.
    fn io_deadline(&self, _place: &PartPath) -> Option<Arc<DeadlineIo>> {
        None
    }
}

/// Why a file cannot be laid out for a code.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Invalid block sizes.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// The file is striped over another number of targets.
    #[error("the code has {code} data columns, the file is striped over {storage}")]
    Columns {
        /// Data columns of the code.
        code: usize,
        /// Data columns of the file.
        storage: usize,
    },
    /// The blocks of a stripe need too much memory.
    #[error("a stripe has {} MiB, more than {} MiB: choose smaller blocks or fewer columns", bytes >> 20, MAX_STRIPE >> 20)]
    Stripe {
        /// Bytes of all k + m blocks.
        bytes: u64,
    },
    /// The layout cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Retryable for LayoutError {
    fn retry(&self) -> Retry {
        match self {
            LayoutError::Io(error) => error.retry(),
            LayoutError::Geometry(_) | LayoutError::Columns { .. } | LayoutError::Stripe { .. } => {
                Retry::AfterChange
            }
        }
    }
}
