//! Buffers in huge pages.

use crate::mapping::{LARGE_PAGE, reserve};
use std::io;
use std::ops::{Deref, DerefMut};

/// A buffer of zeros in pages of 2 MiB, if the system provides them: for disk reads and system calls the kernel then
/// handles one page instead of 512.
#[derive(Debug)]
pub struct Pages {
    start: usize,
    bytes: usize,
}

impl Pages {
    /// Allocates at least `bytes`, rounded up to a multiple of 2 MiB. Memory is used when it is first touched.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(bytes: usize) -> io::Result<Pages> {
        let bytes = bytes.max(1).checked_next_multiple_of(LARGE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let start = reserve(bytes, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        // SAFETY: the range is this mapping; the advice does not change its content.
        unsafe { libc::madvise(start as *mut libc::c_void, bytes, libc::MADV_HUGEPAGE) };
        Ok(Pages { start, bytes })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped and readable until drop, and initialised with zeros.
        unsafe { std::slice::from_raw_parts(self.start as *const u8, self.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, writable, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start as *mut u8, self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and no slice of it is left: this is borrowed exclusively.
        let failed = unsafe { libc::munmap(self.start as *mut libc::c_void, self.bytes) };
        debug_assert_eq!(failed, 0, "memory that was not mapped");
    }
}

#[cfg(test)]
mod tests {
    use super::Pages;
    use crate::mapping::LARGE_PAGE;

    #[test]
    fn memory_is_whole_pages_of_zeros_that_can_be_written() {
        for (asked, given) in [(0, LARGE_PAGE), (1, LARGE_PAGE), (LARGE_PAGE + 1, 2 * LARGE_PAGE)] {
            let mut pages = Pages::new(asked).unwrap();
            assert_eq!((pages.len(), pages.as_ptr() as usize % LARGE_PAGE), (given, 0));
            assert!(pages.iter().all(|&byte| byte == 0));
            pages.fill(7);
            assert!(pages.iter().all(|&byte| byte == 7));
        }
        assert!(Pages::new(usize::MAX).is_err());
        assert!(Pages::new(usize::MAX / 2).is_err());
    }
}
