//! Project quota ids of files (ext4, XFS, f2fs), by which administrators group files across directories and owners.

use crate::tree::Tree;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `FS_IOC_FSGETXATTR`: `_IOR('X', 31, struct fsxattr)`.
const GET: libc::c_ulong = 0x801c_581f;

/// Project id of an open file or directory. 0, the project of files that were given none, also where the file system
/// has no projects.
///
/// # Errors
/// Those of the operating system.
pub fn project(file: BorrowedFd<'_>) -> io::Result<u32> {
    let mut found = Attributes::default();
    // SAFETY: the kernel writes one `struct fsxattr` through the pointer, which is valid for that, and keeps nothing.
    let got = unsafe { libc::ioctl(file.as_raw_fd(), GET as _, &raw mut found) };
    if got == 0 {
        return Ok(found.project);
    }
    let error = io::Error::last_os_error();
    match Errno::from_io_error(&error) {
        Some(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => Ok(0),
        _ => Err(error),
    }
}

impl Tree {
    /// Project id of a regular file; 0 if it has none.
    ///
    /// # Errors
    /// As [`read`](Tree::read).
    pub fn project(&self, path: &[u8]) -> io::Result<u32> {
        project(self.read(path)?.as_fd())
    }
}
