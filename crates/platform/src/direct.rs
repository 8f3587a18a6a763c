//! Direct I/O reads of a file (`O_DIRECT`), past the page cache.
//!
//! A large file that is read once gains nothing from the page cache: the disk writes straight to the reader's buffer,
//! which saves a copy and the memory of the cache.

use crate::mapping::page_bytes;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// A file opened with `O_DIRECT`.
#[derive(Debug)]
pub struct Direct {
    file: File,
    /// Alignment of offsets and lengths, in bytes.
    unit: u64,
}

impl Direct {
    /// Opens an open file a second time, for direct reads. `None` if the file system has no direct I/O, if the kernel
    /// does not report its alignment (before Linux 6.1), or if the cached ranges of the file cannot be queried (before
    /// 6.5, or a file of another user).
    pub fn open(file: BorrowedFd<'_>) -> Option<Direct> {
        let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        let unit = u64::from(stat.stx_dio_offset_align);
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 || unit == 0 {
            return None;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
        kept(file.as_fd(), &(0..unit)).is_ok().then_some(Direct { file, unit })
    }

    /// True if a direct read of this range pays: at most half of it is cached, and no cached page is dirty or under
    /// writeback.
    pub fn is_mostly_uncached(&self, range: Range<u64>) -> bool {
        let fits = range.start.is_multiple_of(self.unit) && range.end.is_multiple_of(self.unit);
        fits && kept(self.file.as_fd(), &range).is_ok_and(|kept| {
            let in_memory = kept.pages.saturating_mul(page_bytes() as u64);
            kept.dirty + kept.writeback == 0 && in_memory <= (range.end - range.start) / 2
        })
    }

    /// Reads all of `buffer`, or up to the end of the file.
    ///
    /// # Errors
    /// I/O errors of the disk; misaligned offsets, lengths or buffers.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(got) => {
                    done += got;
                    // Less than a unit is read only where the file ends.
                    if got == 0 || !(got as u64).is_multiple_of(self.unit) {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}

/// Page-cache state of a range of a file, in pages (`struct cachestat`).
#[derive(Debug, Default, Clone, Copy)]
#[repr(C)]
struct CacheStat {
    pages: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// `cachestat` of Linux 6.5.
fn kept(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<CacheStat> {
    // Calls that came after Linux 5.1 have one number on all architectures that Rust is on.
    const CACHESTAT: libc::c_long = 451;
    let part = [range.start, range.end.saturating_sub(range.start)];
    let mut kept = CacheStat::default();
    // SAFETY: two words are read, five are written, and no pointer is kept.
    let failed = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), part.as_ptr(), &raw mut kept, 0u32) };
    if failed == 0 { Ok(kept) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
