//! Reading files: large pieces from the disk, or from where the system keeps them; checked by signatures where there are any.

use super::content::OpenFile;
use super::reach::stat_of;
use super::{Answer, Shared, VerifiedReads};
use crate::served::MappedRead;
use gabion_platform::direct::Direct;
use gabion_platform::window::Window;
use gabion_vault::degraded::{DegradedReader, ReadError};
use gabion_vault::redundancy::read_up_to;
use rustix::fs::Advice;
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// How far ahead of a sequential reader the source is read. Its own reading ahead is confused by pieces that come from several threads.
const AHEAD: u64 = 32 << 20;

/// As far ahead as somebody has read would be a wait for the disk with every doubling, in a file of 512 MiB one sixth of the time.
const EAGER: u64 = 4;

/// So much of it is announced together, and in pieces of this size: what is beyond that, the kernel would leave out. It takes as much at a time as
/// a disk reads at once.
const TOGETHER: u64 = 4 << 20;
const PIECE: u64 = 512 << 10;

impl OpenFile {
    /// Has the source read ahead of who reads this range and goes on: [`EAGER`] times as far as he has come, up to a bound. What can be
    /// fetched from the disk is not to be in memory only because we said that it will be read.
    fn announce(&self, range: Range<u64>) {
        if self.direct.get().is_some_and(Option::is_some) {
            return;
        }
        let (announced, end) = (self.announced.load(Ordering::Relaxed), range.end);
        let window = end.saturating_mul(EAGER).min(AHEAD);
        let goes_on = end <= announced + 2 * AHEAD && announced + window.min(TOGETHER) <= end + window;
        if goes_on && self.announced.fetch_max(end + window, Ordering::Relaxed) == announced {
            let mut start = announced.max(range.start);
            while let Some(length) = NonZeroU64::new((end + window).saturating_sub(start).min(PIECE)) {
                // Only advice: what is not there yet is waited for.
                let _ = rustix::fs::fadvise(&self.file, start, Some(length), Advice::WillNeed);
                start += length.get();
            }
        }
    }
}

/// Keeps files as long as they are while bytes of them are shown: the kernel would be at a loss for pages that go. A few locks do for
/// all files.
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

    /// Nobody cuts the file through this mount as long as the guard is kept.
    fn keep(&self, number: u64) -> RwLockReadGuard<'_, ()> {
        self.of(number).read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what may cut the file, while nothing of it is shown.
    pub(super) fn change<T>(&self, number: u64, work: impl FnOnce() -> T) -> T {
        let _nothing_is_shown = self.of(number).write().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// Returns when all that is shown now is no longer.
    pub(super) fn wait_until_nothing_is_shown(&self) {
        for lock in &self.0 {
            drop(lock.write().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Shared {
    pub(super) fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        open.announce(offset..offset.saturating_add(buffer.len() as u64));
        match open.reader.get_or_init(|| self.reader(&open)).as_ref().map(|it| it.read(offset, buffer)) {
            Some(Ok(got)) => Ok(got),
            // What it was opened for is not what is there now.
            None | Some(Err(ReadError::Open(_) | ReadError::Short(_))) => {
                read_up_to(&open.file, buffer, offset)
            }
            Some(Err(_)) => Err(Errno::IO.into()),
        }
    }

    /// Reads from the disk what is there alone: the kernel keeps what it is answered, so that the system need not keep it once more. Nothing
    /// where that cannot be, or what is there is wrong.
    pub(super) fn fetch(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let open = self.files.get(handle).ok()?;
        let direct = open.direct.get_or_init(|| Direct::open(open.file.as_fd())).as_ref()?;
        let reader = open.reader.get_or_init(|| self.reader(&open)).as_ref();
        let end = offset.checked_add(buffer.len() as u64)?;
        if reader.is_some_and(DegradedReader::is_suspicious) || !direct.is_worth_it(offset..end) {
            return None;
        }
        let got = direct.read(buffer, offset).ok()?;
        reader.is_none_or(|reader| reader.vouches_for(offset, &buffer[..got])).then_some(got)
    }

    /// What is right as it is, or cannot be checked, shown where the system keeps it.
    pub(super) fn map_read(
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

    /// A reader that knows which blocks of a file are right, whatever name its redundancy lies under. Who writes a file sees what is there.
    pub(super) fn reader(&self, open: &OpenFile) -> Option<DegradedReader> {
        let verified = self.verified.as_ref().filter(|_| !open.writable)?;
        let path = self.nodes.path(open.number);
        let VerifiedReads { storage, coders, names, .. } = verified;
        DegradedReader::of_open(&**storage, coders, &open.file, path.as_deref(), names).ok().flatten()
    }
}
