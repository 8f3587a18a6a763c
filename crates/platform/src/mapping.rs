//! Memory mappings: page sizes, reserved address ranges and shared file mappings.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Bytes of a huge page. The page cache of current file systems holds data that is read and written in large pieces in
/// such pages; a mapping uses them if its addresses are aligned.
pub const LARGE_PAGE: usize = 2 << 20;

/// Bytes of a base page.
pub fn page_bytes() -> usize {
    // SAFETY: the call takes no pointer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Calls `mmap`; returns the start of the mapping.
///
/// # Safety
/// With `MAP_FIXED`, nothing uses the memory at these addresses.
pub(crate) unsafe fn map(
    at: usize,
    bytes: usize,
    access: i32,
    flags: i32,
    file: i32,
    offset: i64,
) -> io::Result<usize> {
    // SAFETY: the caller guarantees that the addresses are unused.
    let start = unsafe { libc::mmap(at as *mut libc::c_void, bytes, access, flags, file, offset) };
    if start == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(start as usize) }
}

/// Reserves addresses for `bytes`, a multiple of the page size, without a file. They start at a multiple of
/// [`LARGE_PAGE`].
pub(crate) fn reserve(bytes: usize, access: i32, flags: i32) -> io::Result<usize> {
    let all = bytes.checked_add(LARGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: the kernel chooses unused addresses.
    let given = unsafe { map(0, all, access, flags, -1, 0)? };
    let start = given.next_multiple_of(LARGE_PAGE);
    for spare in [given..start, start + bytes..given + all] {
        if !spare.is_empty() {
            // SAFETY: just reserved and unused. If the call fails, they stay reserved, which is harmless.
            unsafe { libc::munmap(spare.start as *mut libc::c_void, spare.len()) };
        }
    }
    Ok(start)
}

/// A file mapped shared and writable: a writer that the kernel sees only at the first store into a clean page. Tests
/// use it to act as such a program.
#[derive(Debug)]
pub struct SharedMapping {
    start: usize,
    bytes: usize,
}

impl SharedMapping {
    /// Maps the first `bytes` of a file that is open for reading and writing.
    ///
    /// # Errors
    /// `InvalidInput` if the file is shorter, otherwise the error of `mmap`.
    pub fn new(file: &File, bytes: usize) -> io::Result<SharedMapping> {
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses free addresses.
        let start = unsafe { map(0, bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)? };
        Ok(SharedMapping { start, bytes })
    }

    /// Stores one byte. The file must not have been truncated.
    ///
    /// # Panics
    /// `at` lies outside of the mapping.
    pub fn store(&mut self, at: usize, byte: u8) {
        assert!(at < self.bytes, "{at} is not within {} bytes", self.bytes);
        // SAFETY: within the mapping, which is writable and is not unmapped before this value is dropped.
        unsafe { ((self.start + at) as *mut u8).write_volatile(byte) };
    }

    /// `msync`: returns when all stores are in the file.
    ///
    /// # Errors
    /// The error of `msync`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: the range is the mapping.
        match unsafe { libc::msync(self.start as *mut libc::c_void, self.bytes, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: no other value refers to the mapping.
        unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
    }
}
