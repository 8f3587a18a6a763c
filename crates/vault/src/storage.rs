//! Storage that people already have, behind one contract.
//!
//! An adapter knows where the bytes of a file are and what fails as one. It does not know codes, policies or states:
//! it lists, reads one column of a stripe, writes one back for repair, and says where redundancy may go. Whatever is not
//! there is data ([`Fault`]), not a reason to stop.

#[cfg(feature = "testing")]
pub mod conformance;
pub mod lane;
pub mod plain;
pub mod pool;

use crate::coder::Coders;
use crate::format::header::MAX_STRIPE;
use crate::format::{Binding, FileId, Header, Metadata};
use crate::geometry::{Geometry, GeometryError, Run};
use crate::redundancy::{Place, REDUNDANCY};
use crate::tree::{Generation, Names, Stat, Tree, join};
use gabion_engine::Code;
use gabion_platform::window::Window;
use lane::Lane;
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// What fails as one: a disk, a directory on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name; unique in its storage.
    pub name: Vec<u8>,
    /// Targets of one domain may fail together.
    pub domain: String,
    /// Whether it answers.
    pub state: TargetState,
    /// Free and total bytes, where it answers.
    pub space: Option<(u64, u64)>,
}

/// Whether a target can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetState {
    /// Reads and writes.
    Online,
    /// It does not answer: what is on it counts as lost until it does.
    Offline,
    /// It answers, but nothing new goes there.
    Retired,
    /// It answers again after it was given up: what is on it counts as lost until it has been verified.
    Returned,
}

impl TargetState {
    /// Whether what is on the target counts.
    pub fn counts(self) -> bool {
        matches!(self, TargetState::Online | TargetState::Retired)
    }
}

/// Why bytes of a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Their target is gone.
    #[error("target {} is gone", crate::shown::Shown::bytes(.0))]
    Lost(Vec<u8>),
    /// The target did not answer in time.
    #[error("no answer within {0} ms")]
    Timeout(u64),
    /// The operating system says so.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where the blocks of a file are: how it is cut, and the target of each data column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// How it is cut into stripes.
    pub geometry: Geometry,
    /// Names of the targets of the data columns; empty where storage has but one.
    pub targets: Vec<Vec<u8>>,
}

impl Layout {
    /// Refuses stripes that take more memory than headers allow.
    ///
    /// # Errors
    /// [`LayoutError::Stripe`].
    pub fn check(&self, code: &Code, size: u64) -> Result<(), LayoutError> {
        let bytes = self.geometry.cut(size).block(0).saturating_mul(code.blocks() as u64);
        if bytes > MAX_STRIPE { Err(LayoutError::Stripe { bytes }) } else { Ok(()) }
    }
}

/// Where redundancy columns of a file go: one redundancy file.
#[derive(Debug, Clone)]
pub struct Home {
    /// The first redundancy column, counted from 0.
    pub first: usize,
    /// How many.
    pub columns: usize,
    /// The target; empty where storage has but one.
    pub target: Vec<u8>,
    /// The file.
    pub place: Place,
}

/// A tree that holds redundancy files, one per protected file at most.
#[derive(Debug, Clone)]
pub struct Repository {
    /// The target it is on; empty where storage has but one.
    pub target: Vec<u8>,
    /// The tree.
    pub tree: Tree,
}

impl Repository {
    /// Where the redundancy of `path` is, if it has some of it and is kept by name.
    pub fn place(&self, path: &[u8]) -> Place {
        Place { tree: self.tree.clone(), path: join(REDUNDANCY, path) }
    }
}

/// A place where redundancy of a file lies, if its target has any.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The target; empty where storage has but one.
    pub target: Vec<u8>,
    /// The place on it.
    pub place: Place,
    /// The identity of the file, where storage keeps redundancy by identity.
    pub owner: Option<FileId>,
}

impl Holder {
    /// Whether a redundancy file that was found here is one of this file. Version 1 of the format is not bound to a file; the inode says as much, with
    /// half as many bits.
    pub fn owns(&self, header: &Header) -> bool {
        self.owner.is_none_or(|id| match &header.binding {
            Some(binding) => binding.0 == id.0,
            None => header.generation.inode == id.inode(),
        })
    }
}

/// A directory of the namespace.
pub trait Folder {
    /// Its names, sorted; files of ours are not among them.
    fn names(&self) -> &Names;
    /// What a name stands for. Sizes and times are those of the content.
    ///
    /// # Errors
    /// What the operating system says.
    fn stat(&self, name: &[u8]) -> io::Result<Stat>;
}

/// Reconstructs a range of a file from the rest of its stripe. The predicate tells whether redundancy of a version has these bytes as they are now. No pieces if
/// too little is left of the stripe.
pub type Reconstruct<'a> = &'a dyn Fn(
    &Range<u64>,
    &dyn Fn(&Generation, &Range<u64>) -> bool,
) -> io::Result<Vec<(Range<u64>, Vec<u8>)>>;

/// A file, open for reading.
pub trait Content: Send + Sync + Debug {
    /// What it is now: asked before and after reading, to know that it stayed the same.
    ///
    /// # Errors
    /// What the operating system says.
    fn stat(&self) -> io::Result<Stat>;

    /// Owner, permissions and attributes.
    ///
    /// # Errors
    /// What the operating system says.
    fn metadata(&self) -> io::Result<Metadata>;

    /// Writes the dirty pages of the file to its medium, so that the next store into a mapped page changes its mtime.
    ///
    /// # Errors
    /// What the operating system says.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Reads what block `row` of `run` has in `column` into `buffer`, and fills it up with zeros. Gives the number of
    /// bytes that were there: fewer than [`Run::cell`] says if the file has become shorter.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// Reads the first blocks of stripe `first + row` of `run`, as many as `buffer` has room for, filled up with zeros. False if the file has become
    /// shorter.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read_stripe(&self, run: &Run, row: u64, buffer: &mut [u8]) -> Result<bool, Fault> {
        read_blocks(self, run, row, buffer)
    }

    /// Reads from `offset` on, until the buffer is full or the file ends. Gives the number of bytes: fewer than there should be
    /// if bytes before the file's end are not there.
    ///
    /// # Errors
    /// See [`Fault`].
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// Whether the bytes of a version never change: storage gives new content a new identity, and this file stays the one that
    /// was opened.
    fn is_frozen(&self) -> bool {
        false
    }

    /// Shows the pieces that `run` has in its first `columns` columns, where they lie in memory anyway and reading would copy them.
    /// False where that is not so, and where a piece is not all there: read then.
    fn show(&self, _run: &Run, _columns: usize, _window: &mut Window) -> bool {
        false
    }

    /// Says that all columns of `run` will be read soon.
    fn will_read(&self, run: &Run);

    /// Forgets what the system keeps of the content in memory, so that the next read comes from the medium.
    fn forget_cached(&self);
}

/// As [`Content::read_stripe`], block by block.
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

/// A file, open for repair.
pub trait Repairable {
    /// Puts back the bytes that block `row` of `run` has in `column`; `bytes` is as long as [`Run::cell`] says. What is all
    /// zeros becomes a hole where storage has holes.
    ///
    /// # Errors
    /// What the operating system says.
    fn write(&mut self, run: &Run, row: u64, column: usize, bytes: &[u8]) -> io::Result<()>;

    /// Makes the file `size` bytes long.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_size(&mut self, size: u64) -> io::Result<()>;

    /// Gives owner, permissions, attributes and times back, and makes all of it durable. What could not be given back is
    /// returned as text. Then the file as it is now.
    ///
    /// # Errors
    /// What the operating system says.
    fn finish(&mut self, metadata: &Metadata, mtime: i64) -> io::Result<(Vec<String>, Stat)>;
}

/// The contract that every adapter fulfils.
pub trait Storage: Send + Sync + Debug {
    /// A word for the kind of storage.
    fn kind(&self) -> &'static str;

    /// Opens a directory of the namespace.
    ///
    /// # Errors
    /// What the operating system says.
    fn folder(&self, path: &[u8]) -> io::Result<Box<dyn Folder + '_>>;

    /// What a path stands for; nothing where nothing is.
    ///
    /// # Errors
    /// What the operating system says.
    fn find(&self, path: &[u8]) -> io::Result<Option<Stat>>;

    /// Flushes all files at once, as [`Content::flush`] does one. Gives the device whose files were; nothing where they have to be flushed
    /// one by one.
    fn flush(&self) -> Option<u64> {
        None
    }

    /// Whether someone is writing to a file in a way that its [`Stat`] does not show until it is done.
    ///
    /// # Errors
    /// What the operating system says.
    fn is_being_written(&self, _path: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Refuses a file of which it is not known where it ends: it is written in place, or was when its writer died, and what was appended may be on a target that does
    /// not answer.
    ///
    /// # Errors
    /// The end is not known; what the operating system says.
    fn check_end(&self, _path: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Records how long a file is whose writer died while it wrote in place. Until then its length is told by all of its columns together, and the loss
    /// of one would shorten it.
    ///
    /// # Errors
    /// What the operating system says.
    fn conclude_writing(&self, _path: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// What was written to a file from one version to the present one, `now`, in order and apart, where that is known for certain: whatever else differs is
    /// damage.
    fn written_since(
        &self,
        _path: &[u8],
        _version: &Generation,
        _now: &Generation,
    ) -> Option<Vec<Range<u64>>> {
        None
    }

    /// Redundancy is about to be made of version `now` of a file, in place of that of `old`: these are the versions that
    /// [`written_since`](Storage::written_since) is asked for next.
    fn begins_encoding(&self, _path: &[u8], _old: Option<&Generation>, _now: &Generation) {}

    /// Puts blocks of a file right that are damaged: nobody wrote to them since they were protected. Those that cannot be put right stay as
    /// they are.
    fn mend(&self, _path: &[u8], _cells: &[Range<u64>], _reconstruct: Reconstruct<'_>) {}

    /// What [`mend`](Storage::mend) put right in a file and nobody was told of yet; an attempt to encode the file may have failed after it. Nothing where storage
    /// reports it by itself.
    fn take_mended(&self, _path: &[u8]) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// What binds redundancy to the file at `path`: see [`Binding`].
    ///
    /// # Errors
    /// What the operating system says.
    fn binding(&self, path: &[u8]) -> io::Result<Binding> {
        Ok(Binding::of_name(crate::tree::split(path).1))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn open(&self, path: &[u8]) -> io::Result<Box<dyn Content>>;

    /// Opens a file for repair; one that is gone is made anew.
    ///
    /// # Errors
    /// What the operating system says.
    fn open_for_repair(&self, path: &[u8]) -> io::Result<Box<dyn Repairable>>;

    /// A path for people.
    fn shown(&self, path: &[u8]) -> std::path::PathBuf;

    /// Bytes of a block for a file of `size` bytes that is to get redundancy, `largest` at most.
    fn block(&self, _code: &Code, _size: u64, largest: u64) -> u64 {
        largest
    }

    /// How a file is cut for `code`, in blocks of `block` bytes where storage leaves the choice.
    ///
    /// # Errors
    /// Sizes that do not fit the code or the storage.
    fn layout(&self, path: &[u8], code: &Code, block: u64) -> Result<Layout, LayoutError>;

    /// The trees that redundancy lies in, those of targets that do not answer left out.
    fn repositories(&self) -> Vec<Repository>;

    /// Those of the [repositories](Storage::repositories) that take writes: a file system may turn read-only after an error.
    fn writable_repositories(&self) -> Vec<Repository> {
        self.repositories()
    }

    /// The identity of a file, where storage keeps redundancy by identity: then a name that a file gets or loses changes nothing about its
    /// redundancy. Nothing where redundancy lies at the name of its file.
    ///
    /// # Errors
    /// What the operating system says.
    fn identity(&self, _path: &[u8]) -> io::Result<Option<FileId>> {
        Ok(None)
    }

    /// Whether storage keeps redundancy by the identity of files.
    fn keeps_by_identity(&self) -> bool {
        false
    }

    /// The places where redundancy of a file lies, on all targets that answer, whether they have any or not.
    ///
    /// # Errors
    /// What the operating system says.
    fn holders(&self, path: &[u8]) -> io::Result<Vec<Holder>> {
        let holder = |it: Repository| Holder { place: it.place(path), target: it.target, owner: None };
        Ok(self.repositories().into_iter().map(holder).collect())
    }

    /// Brings redundancy of a file that lies where an earlier version of the program put it to where [`homes`](Storage::homes) looks for it.
    ///
    /// # Errors
    /// What the operating system says.
    fn bring_home(&self, _path: &[u8], _coders: &Coders) -> io::Result<()> {
        Ok(())
    }

    /// Where the redundancy of a file with this layout goes. Columns that no target can take are left out.
    ///
    /// # Errors
    /// What the operating system says.
    fn homes(&self, path: &[u8], code: &Code, layout: &Layout) -> io::Result<Vec<Home>>;

    /// All targets.
    fn targets(&self) -> Vec<Target>;

    /// What waits no longer than a deadline for the disk that a redundancy file is on; nothing where storage sets none.
    fn patience(&self, _place: &Place) -> Option<Arc<Lane>> {
        None
    }
}

/// Why a file cannot be cut for a code.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Block sizes that cannot be.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Storage is striped over another number of targets.
    #[error("the code has {code} data columns, the file is striped over {storage}")]
    Columns {
        /// The code's k.
        code: usize,
        /// The file's.
        storage: usize,
    },
    /// The blocks of a stripe take too much memory.
    #[error("a stripe has {} MiB, more than {} MiB: choose smaller blocks or fewer columns", bytes >> 20, MAX_STRIPE >> 20)]
    Stripe {
        /// Bytes of all k + m blocks.
        bytes: u64,
    },
    /// The layout is not known now.
    #[error(transparent)]
    Io(#[from] io::Error),
}
