//! Replies to requests of the kernel.

use fuser::{BackingId, FileAttr, FileHandle, FopenFlags, Generation};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, RwLockReadGuard};
use std::time::Duration;

/// Time for which the kernel caches names and attributes. The source may also be changed directly, so it is short.
pub(crate) const CACHE_TIMEOUT: Duration = Duration::from_secs(1);

/// Result of a request; an error is sent as its error number.
pub(crate) type Answer<T> = io::Result<T>;

/// Reply to a lookup: attributes, and the generation of the inode number.
pub(crate) type EntryReply = (FileAttr, Generation);

/// Registers a file with the kernel for passthrough reads.
pub(crate) type Backing<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<BackingId>;

/// Reply to an open request.
pub(crate) struct Opened {
    pub(crate) handle: FileHandle,
    pub(crate) how: FopenFlags,
    /// Attributes that the kernel may have cached are outdated.
    pub(crate) has_other_times: bool,
    /// Backing file, if the kernel reads it directly.
    pub(crate) passthrough: Option<Arc<BackingId>>,
}

/// A mapped range that the kernel copies from. While this is held, the file cannot be truncated through the mount: the
/// reader would get `EIO` for pages that disappear during the copy.
pub(crate) struct MappedRead<'a> {
    pub(crate) bytes: usize,
    pub(crate) _uncut: RwLockReadGuard<'a, ()>,
}

/// Reply to `statfs`: space in units of `block` bytes, and numbers of files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    pub(crate) blocks: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) files: u64,
    pub(crate) free_files: u64,
    pub(crate) block: u32,
    pub(crate) name: u32,
}
