//! Reads in a mounted directory: buffered, mapped or direct; verified where the file has current redundancy.

use super::content::OpenFile;
use super::resolve::stat_of;
use super::{Directory, VerifiedReads};
use crate::replies::{Answer, MappedRead};
use gabion_platform::direct::Direct;
use gabion_platform::sync;
use gabion_platform::window::Window;
use gabion_vault::degraded::{DegradedReader, ReadError};
use gabion_vault::redundancy::read_up_to;
use rustix::fs::Advice;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{RwLock, RwLockReadGuard};

/// Largest read-ahead window, in bytes. The source's own read-ahead does not recognise a sequential reader whose
/// requests arrive on several threads.
const AHEAD: u64 = 32 << 20;

/// Window as a multiple of the bytes read so far. With a factor of 1 the reader waits for the disk at every doubling:
/// one sixth of the time for 512 MiB.
const AHEAD_FACTOR: u64 = 4;

/// Read-ahead is requested in batches of `BATCH` bytes, in calls of `PIECE` bytes: the kernel ignores the part of a
/// call beyond the disk's largest request.
const BATCH: u64 = 4 << 20;
const PIECE: u64 = 512 << 10;

impl OpenFile {
    /// Requests read-ahead for a sequential reader that reads this range: [`AHEAD_FACTOR`] times the bytes read so far,
    /// up to [`AHEAD`]. Not for files read directly: their data would enter the page cache.
    fn announce(&self, range: Range<u64>) {
        if self.direct.get().is_some_and(Option::is_some) {
            return;
        }
        let (announced, end) = (self.announced.load(Ordering::Relaxed), range.end);
        let window = end.saturating_mul(AHEAD_FACTOR).min(AHEAD);
        let goes_on = end <= announced + 2 * AHEAD && announced + window.min(BATCH) <= end + window;
        if goes_on && self.announced.fetch_max(end + window, Ordering::Relaxed) == announced {
            let mut start = announced.max(range.start);
            while let Some(length) = NonZeroU64::new((end + window).saturating_sub(start).min(PIECE)) {
                // Advice only: a read waits for data that is not there yet.
                let _ = rustix::fs::fadvise(&self.file, start, Some(length), Advice::WillNeed);
                start += length.get();
            }
        }
    }
}

/// Locks that prevent truncation of a file while a range of it is mapped: the kernel fails for pages that disappear.
/// Files share 64 locks.
#[derive(Debug)]
pub(super) struct Lengths([RwLock<()>; 64]);

impl Default for Lengths {
    fn default() -> Lengths {
        Lengths(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Lengths {
    fn of(&self, number: u64) -> &RwLock<()> {
        &self.0[number as usize % self.0.len()]
    }

    /// Prevents truncation through this mount while the guard is held.
    fn keep(&self, number: u64) -> RwLockReadGuard<'_, ()> {
        sync::read(self.of(number))
    }

    /// Runs an operation that may truncate the file, while no range of it is mapped.
    pub(super) fn change<T>(&self, number: u64, work: impl FnOnce() -> T) -> T {
        let _unmapped = sync::write(self.of(number));
        work()
    }

    /// Waits until all ranges that are mapped now are unmapped.
    pub(super) fn wait_until_unmapped(&self) {
        for lock in &self.0 {
            drop(sync::write(lock));
        }
    }
}

impl Directory {
    pub(crate) fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        open.announce(offset..offset.saturating_add(buffer.len() as u64));
        match open.reader.get_or_init(|| self.reader(&open)).as_ref().map(|it| it.read(offset, buffer)) {
            Some(Ok(got)) => Ok(got),
            // The redundancy is not of the current version.
            None | Some(Err(ReadError::Open(_) | ReadError::Short(_))) => {
                read_up_to(&open.file, buffer, offset)
            }
            Some(Err(_)) => Err(Errno::IO.into()),
        }
    }

    /// Reads uncached data directly from the disk: the kernel caches the reply, so the source's page cache need not
    /// hold it too. `None` if direct reads are not possible or the data fails verification.
    pub(crate) fn fetch(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let open = self.files.get(handle).ok()?;
        let direct = open.direct.get_or_init(|| Direct::open(open.file.as_fd())).as_ref()?;
        let reader = open.reader.get_or_init(|| self.reader(&open)).as_ref();
        let end = offset.checked_add(buffer.len() as u64)?;
        if reader.is_some_and(DegradedReader::is_suspicious) || !direct.is_mostly_uncached(offset..end) {
            return None;
        }
        let got = direct.read(buffer, offset).ok()?;
        reader.is_none_or(|reader| reader.vouches_for(offset, &buffer[..got])).then_some(got)
    }

    /// Maps a range from the page cache, if it passes verification or cannot be verified.
    pub(crate) fn map_read(
        &self,
        handle: u64,
        offset: u64,
        size: u32,
        window: &mut Window,
    ) -> Option<MappedRead<'_>> {
        let open = self.files.get(handle).ok()?;
        let reader = open.reader.get_or_init(|| self.reader(&open)).as_ref();
        let requested_end = offset.checked_add(u64::from(size))?;
        open.announce(offset..requested_end);
        let uncut = self.lengths.keep(open.number);
        let end = stat_of(&open.file).ok()?.stx_size.min(requested_end);
        let bytes = usize::try_from(end.checked_sub(offset)?).ok()?;
        window.show(&open.file, std::slice::from_ref(&(offset..end))).ok()?;
        window.populate().ok()?;
        if reader.is_some_and(|reader| !reader.vouches_for(offset, window.piece(0))) {
            return None;
        }
        Some(MappedRead { bytes, _uncut: uncut })
    }

    /// Verified reader of a file, under whatever name its redundancy is stored. `None` for files opened for writing:
    /// they read the current bytes.
    pub(super) fn reader(&self, open: &OpenFile) -> Option<DegradedReader> {
        let verified = self.verified.as_ref().filter(|_| !open.writable)?;
        let path = self.nodes.path(open.number);
        let VerifiedReads { storage, coders, names, .. } = verified;
        DegradedReader::of_open(&**storage, coders, &open.file, path.as_deref(), names).ok().flatten()
    }
}
