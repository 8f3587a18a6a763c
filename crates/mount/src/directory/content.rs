//! What is in files.

use super::passing::Way;
use super::reach::{Reached, magic, stat_of};
use super::{Answer, Shared};
use crate::attributes::{SetAttr, timespec};
use crate::recorder::Rest;
use crate::served::{Backing, Opened};
use fuser::{BackingId, FileHandle, FopenFlags};
use gabion_platform::direct::Direct;
use gabion_vault::changelog::WHOLE;
use gabion_vault::degraded::DegradedReader;
use gabion_vault::tree::Stat;
use gabion_vault::world::Stopwatch;
use rustix::fs::{
    Advice, AtFlags, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Statx, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::ErrorKind;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

/// A file that a program has open.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) number: u64,
    pub(super) file: File,
    rest: Rest,
    pub(super) writable: bool,
    /// Every write is to be durable when it returns.
    synchronous: bool,
    way: Way,
    /// Bytes written since the disk was last set to work.
    idle: AtomicU64,
    /// Up to where the source was told that it will be read.
    pub(super) announced: AtomicU64,
    /// Reads blocks that are known to be right; nothing where there is nothing to know that from.
    pub(super) reader: OnceLock<Option<DegradedReader>>,
    /// The same file read past the memory of the system; nothing where that cannot be.
    pub(super) direct: OnceLock<Option<Direct>>,
}

/// The disk is set to work whenever so much of a file was written: an fsync at the end then finds most of it done.
const EARLY: u64 = 8 << 20;

/// What tells one content of a file from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    size: u64,
    mtime: (i64, u32),
}

impl Version {
    fn of(stat: &Statx) -> Version {
        Version { size: stat.stx_size, mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec) }
    }
}

/// The flags of a program that count for the file beneath. The kernel cuts the file itself, says where appended bytes go, and
/// sends pieces that need not be aligned.
fn flags_beneath(flags: i32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags as u32);
    let kept = OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC;
    flags & kept | OFlags::CLOEXEC
}

/// Who only writes needs no pages of the mount: they would be copied once more and read by nobody. The kernel drops those that
/// others have of the same bytes.
pub(super) fn past_the_cache(way: Way) -> FopenFlags {
    match way {
        Way::Direct | Way::Beside => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        Way::Cached | Way::Passing => FopenFlags::empty(),
    }
}

/// Permissions after someone who is not privileged has written: nobody gets rights by a content that its owner did not write.
fn without_rights(stat: &Statx) -> Option<Mode> {
    let mode = u32::from(stat.stx_mode);
    let group = if mode & 0o010 != 0 { 0o2000 } else { 0 };
    (mode & (0o4000 | group) != 0).then(|| Mode::from_raw_mode(mode & 0o7777 & !(0o4000 | group)))
}

impl Shared {
    pub(super) fn open(&self, number: u64, flags: i32, backing: Backing<'_>) -> Answer<Opened> {
        let reached = self.reach(number)?;
        let flags = flags_beneath(flags);
        let file = File::from(rustix::fs::open(reached.magic(), flags, Mode::empty())?);
        let stat = stat_of(&file)?;
        let (open, way, passes) = self.opened(number, file, flags, &stat, backing);
        let version = Version::of(&stat);
        let before = self.cached.lock().unwrap_or_else(PoisonError::into_inner).insert(number, version);
        // The kernel refuses to be told of pages where it reads by itself.
        let has_pages = way == Way::Cached && before == Some(version);
        let keep = if has_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let how = keep | FopenFlags::FOPEN_NOFLUSH | past_the_cache(way);
        Ok(Opened { handle: FileHandle(open), how, passes })
    }

    /// Notes that a file is open. Gives its handle, and how it is open.
    pub(super) fn opened(
        &self,
        number: u64,
        file: File,
        flags: OFlags,
        stat: &Statx,
        backing: Backing<'_>,
    ) -> (u64, Way, Option<Arc<BackingId>>) {
        let path = self.nodes.path(number).unwrap_or_default();
        let writable = !(flags & OFlags::ACCMODE).is_empty();
        let synchronous = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
        let rest = self.recorder.rest_of(&path, &(*stat).into());
        self.nodes.opened(number, true);
        let mut open = OpenFile {
            number,
            file,
            rest,
            writable,
            synchronous,
            way: if flags & OFlags::ACCMODE == OFlags::WRONLY { Way::Direct } else { Way::Cached },
            idle: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            reader: OnceLock::new(),
            direct: OnceLock::new(),
        };
        let mut passes = None;
        if let Some(passing) = &self.passing {
            // What can be checked is read through us.
            let unchecked = || open.reader.get_or_init(|| self.reader(&open)).is_none();
            let preferred = if !writable && unchecked() { Way::Passing } else { open.way };
            let (way, backing) = passing.open(number, preferred, || backing(open.file.as_fd()));
            (open.way, passes) = (way, backing);
        }
        let way = open.way;
        (self.files.add(Arc::new(open)), way, passes)
    }

    pub(super) fn release(&self, handle: u64) {
        let Some(open) = self.files.remove(handle) else { return };
        let number = open.number;
        if let Some(passing) = &self.passing {
            passing.close(open.number, open.way);
        }
        if let (Some(verified), Some(Some(reader))) = (&self.verified, open.reader.get()) {
            let report = reader.report();
            if report.is_degraded() {
                (verified.note)(&self.nodes.path(open.number).unwrap_or_default(), &report);
            }
        }
        if open.writable {
            self.record_written(open.number);
            if let Ok(stat) = stat_of(&open.file) {
                let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
                cached.insert(number, Version::of(&stat));
            }
        }
        // Who waits for this looks for the room that it took.
        drop(open);
        self.nodes.opened(number, false);
    }

    pub(super) fn forget(&self, number: u64, count: u64) {
        self.nodes.forget(number, count);
        if !self.nodes.is_known(number) {
            self.cached.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
            self.source.forget(number);
        }
    }

    /// Takes the rights of a file away that go with its content. Says whether there were any.
    pub(super) fn drop_rights(&self, file: &File) -> Answer<bool> {
        let Some(mode) = without_rights(&stat_of(file)?) else { return Ok(false) };
        rustix::fs::fchmod(file, mode)?;
        Ok(true)
    }

    /// Does something that takes room. Files that were removed take some while they are open or held, and then while they are shown:
    /// if there is none, their end is waited for.
    pub(super) fn in_room<T>(&self, mut act: impl FnMut() -> Answer<T>) -> Answer<T> {
        let (since, mut is_last) = (Stopwatch::start(), false);
        loop {
            match act() {
                Err(error)
                    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
                        && !is_last =>
                {
                    is_last = !self.nodes.wait_for_room(&since);
                    if is_last {
                        self.lengths.wait_until_nothing_is_shown();
                    }
                }
                done => return done,
            }
        }
    }

    pub(super) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        let mut written = 0;
        let range = |_| offset..offset + data.len() as u64;
        let all = self.history.change(open.number, &open.file, range, || {
            self.in_room(|| write_on(&open.file, data, offset, &mut written))
        });
        // Part of it may have been written all the same.
        if !data.is_empty() {
            self.note_written(open.number, offset..offset + data.len() as u64, open.rest);
        }
        // Programs are told of what is in the file.
        if written == 0 {
            all?;
        }
        let end = offset + written as u64;
        if open.idle.fetch_add(written as u64, Ordering::Relaxed) + written as u64 >= EARLY {
            open.idle.store(0, Ordering::Relaxed);
            // Begins to write what is dirty, without waiting. The kernel keeps the mount's own pages of it.
            let start = end.saturating_sub(EARLY);
            let _ = rustix::fs::fadvise(&open.file, start, NonZeroU64::new(end - start), Advice::DontNeed);
        }
        if open.synchronous {
            self.record_written(open.number);
            self.recorder.flush();
        }
        Ok(written)
    }

    pub(super) fn sync(&self, handle: u64, data_only: bool) -> Answer<()> {
        let open = self.files.get(handle)?;
        self.record_written(open.number);
        if data_only { open.file.sync_data() } else { open.file.sync_all() }?;
        self.recorder.flush();
        Ok(())
    }

    pub(super) fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        let open = self.files.get(handle)?;
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        // Pieces taken out or put in move all that follows.
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let allocate = || rustix::fs::fallocate(&open.file, flags, offset, length);
        let range =
            if flags.intersects(moves) { offset..u64::MAX } else { offset..offset.saturating_add(length) };
        self.history.change(
            open.number,
            &open.file,
            |_| range.clone(),
            || match flags.intersects(moves) {
                true => Ok(self.lengths.change(open.number, allocate)?),
                false => self.in_room(|| Ok(allocate()?)),
            },
        )?;
        self.note_written(open.number, range, open.rest);
        Ok(())
    }

    pub(super) fn seek(&self, handle: u64, offset: i64, whence: i32) -> Answer<i64> {
        let open = self.files.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let to = match whence {
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL.into()),
        };
        Ok(rustix::fs::seek(&open.file, to)?.cast_signed())
    }

    pub(super) fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Answer<u32> {
        let (source, target) = (self.files.get(from.0)?, self.files.get(to.0)?);
        // The kernel then reads and writes instead, and what it reads is verified.
        if source.reader.get_or_init(|| self.reader(&source)).is_some() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (mut source_at, mut target_at) = (from.1, to.1);
        // The answer has 32 bits.
        let length = length.min(1 << 30) as usize;
        let range = |_| to.1..to.1.saturating_add(length as u64);
        let copied = self.history.change(target.number, &target.file, range, || {
            self.in_room(|| {
                let (from, to) = (Some(&mut source_at), Some(&mut target_at));
                Ok(rustix::fs::copy_file_range(&source.file, from, &target.file, to, length)?)
            })
        })?;
        if copied > 0 {
            self.note_written(target.number, to.1..to.1 + copied as u64, target.rest);
        }
        if target.synchronous {
            self.record_written(target.number);
            self.recorder.flush();
        }
        Ok(copied as u32)
    }

    /// Changes attributes, the size among them.
    pub(super) fn change(&self, number: u64, handle: Option<u64>, set: SetAttr, uid: u32) -> Answer<Statx> {
        let open = handle.and_then(|handle| self.files.get(handle).ok());
        let reached = match open {
            Some(open) => Reached::Open(open),
            None => self.reach(number)?,
        };
        if let Some(size) = set.size {
            self.resize(number, &reached, size, uid)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(&reached, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = set.mode {
            rustix::fs::chmod(reached.magic(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            let generation = || Ok::<_, std::io::Error>(Stat::from(stat_of(&reached)?).generation());
            let before = generation()?;
            rustix::fs::utimensat(rustix::fs::CWD, reached.magic(), &times, AtFlags::empty())?;
            if set.mtime.is_some() {
                self.history.set_times(number, &before, &generation()?);
            }
        }
        let stat = stat_of(&reached)?;
        if set.size.is_some() {
            self.record_change_of(number, WHOLE, &stat);
        } else if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.mtime.is_some() {
            self.record_change_of(number, ANYTHING, &stat);
        }
        Ok(stat)
    }

    pub(super) fn resize(&self, number: u64, reached: &Reached, size: u64, uid: u32) -> Answer<()> {
        let opened;
        let file = match reached {
            Reached::Open(open) if open.writable => &open.file,
            other => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                opened = File::from(rustix::fs::open(magic(other.as_fd()), flags, Mode::empty())?);
                &opened
            }
        };
        // What is cut off and comes back is zeros.
        let range = |before: u64| before.min(size)..u64::MAX;
        self.history.change(number, file, range, || {
            self.lengths.change(number, || rustix::fs::ftruncate(file, size))
        })?;
        if uid != 0 {
            self.drop_rights(file)?;
        }
        Ok(())
    }

    pub(super) fn attribute(&self, number: u64, name: &OsStr) -> Answer<Vec<u8>> {
        let reached = self.reach(number)?;
        grown(|buffer| rustix::fs::getxattr(reached.magic(), name, buffer))
    }

    pub(super) fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        let reached = self.reach(number)?;
        grown(|buffer| rustix::fs::listxattr(reached.magic(), buffer))
    }

    pub(super) fn set_attribute(
        &self,
        number: u64,
        name: &OsStr,
        value: &[u8],
        flags: XattrFlags,
    ) -> Answer<()> {
        let reached = self.reach(number)?;
        self.in_room(|| Ok(rustix::fs::setxattr(reached.magic(), name, value, flags)?))?;
        self.record_change_of(number, ANYTHING, &stat_of(&reached)?);
        Ok(())
    }

    pub(super) fn remove_attribute(&self, number: u64, name: &OsStr) -> Answer<()> {
        let reached = self.reach(number)?;
        rustix::fs::removexattr(reached.magic(), name)?;
        self.record_change_of(number, ANYTHING, &stat_of(&reached)?);
        Ok(())
    }
}

/// Writes what is not `written` yet.
fn write_on(file: &File, data: &[u8], offset: u64, written: &mut usize) -> Answer<()> {
    while *written < data.len() {
        match file.write_at(&data[*written..], offset + *written as u64) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(more) => *written += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The range of a change that is not one of the content: it has to be looked at.
const ANYTHING: std::ops::Range<u64> = 0..1;

/// Asks for bytes whose number is not known before.
fn grown(ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; 256];
    loop {
        match ask(&mut bytes) {
            Ok(got) => {
                bytes.truncate(got);
                return Ok(bytes);
            }
            Err(Errno::RANGE) if bytes.len() < 1 << 20 => bytes.resize(bytes.len() * 8, 0),
            Err(error) => return Err(error.into()),
        }
    }
}
