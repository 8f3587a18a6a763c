//! Files read past the memory that the system keeps them in.
//!
//! What is read once, in large pieces, by someone who keeps it himself, need not be kept by the system as well: the disk writes it to the
//! reader's memory. That saves a copy, and the room.

use crate::mapping::page_bytes;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// An open file that is read that way.
#[derive(Debug)]
pub struct Direct {
    file: File,
    /// Offsets and lengths are multiples of it.
    unit: u64,
}

impl Direct {
    /// Opens a file that is open once more, to read it this way. Nothing where the file system cannot, or the system does not say what it
    /// asks for (Linux 6.1) or what it keeps in memory (6.5, and not of everybody's files).
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

    /// Whether the disk is the place to read a range from: most of it is not in memory, and nothing there is newer than on the disk.
    pub fn is_worth_it(&self, range: Range<u64>) -> bool {
        let fits = range.start.is_multiple_of(self.unit) && range.end.is_multiple_of(self.unit);
        fits && kept(self.file.as_fd(), &range).is_ok_and(|kept| {
            let in_memory = kept.pages.saturating_mul(page_bytes() as u64);
            kept.dirty + kept.writeback == 0 && in_memory <= (range.end - range.start) / 2
        })
    }

    /// Reads all of `buffer`, or up to the end of the file.
    ///
    /// # Errors
    /// What the disk says; offsets, lengths and addresses that it cannot read at.
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

/// What the system keeps of a part of a file, in pages; as the kernel writes it.
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
