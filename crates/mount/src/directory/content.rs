//! Content of files in a mounted directory: open, read-write, truncate, allocate, copy, attributes.

use super::Directory;
use super::passthrough::OpenMode;
use super::resolve::{Resolved, proc_path, stat_of};
use crate::attributes::{SetAttr, attributes, timespec, without_rights};
use crate::nodes::Known;
use crate::recorder::{NO_CONTENT, Rest};
use crate::replies::{Answer, Backing, Opened};
use fuser::{BackingId, FileAttr, FileHandle, FopenFlags};
use gabion_platform::direct::Direct;
use gabion_platform::sync;
use gabion_vault::changelog::WHOLE;
use gabion_vault::degraded::DegradedReader;
use gabion_vault::tree::Stat;
use gabion_vault::version::is_in_doubt;
use gabion_vault::world::Stopwatch;
use rustix::fs::{
    Advice, AtFlags, FallocateFlags, Gid, Mode, OFlags, SeekFrom, Statx, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{ErrorKind, IoSlice};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) number: u64,
    pub(super) file: File,
    rest: Rest,
    pub(super) writable: bool,
    /// Opened with `O_SYNC` or `O_DSYNC`: each write is durable when it returns.
    synchronous: bool,
    mode: OpenMode,
    /// Held while the descriptor's own position is used.
    position: Mutex<()>,
    /// Bytes written since writeback was last started.
    idle: AtomicU64,
    /// End of the range for which read-ahead was requested.
    pub(super) announced: AtomicU64,
    /// Verified reader; `None` if the file has no current redundancy.
    pub(super) reader: OnceLock<Option<DegradedReader>>,
    /// Reader past the page cache; `None` if the file system does not support it.
    pub(super) direct: OnceLock<Option<Direct>>,
}

/// Writeback is started after every 8 MiB written to a file, so that a later `fsync` has little left to write.
const WRITEBACK: u64 = 8 << 20;

/// Open flags for the source file. The kernel sends `O_TRUNC` as a separate request, and says of each write whether it
/// appends; `O_DIRECT` is dropped because requests need not be aligned.
fn flags_beneath(flags: i32) -> OFlags {
    let flags = OFlags::from_bits_retain(flags as u32);
    let kept = OFlags::ACCMODE | OFlags::SYNC | OFlags::DSYNC;
    flags & kept | OFlags::CLOEXEC
}

/// Direct I/O for write-only files: page cache of the mount would only add a copy. The kernel invalidates cached pages
/// of the written bytes.
pub(super) fn direct_io_flags(mode: OpenMode) -> FopenFlags {
    match mode {
        OpenMode::Direct | OpenMode::DirectBeside => {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
        OpenMode::Cached | OpenMode::Passthrough => FopenFlags::empty(),
    }
}

/// Removes setuid and setgid. True if there were any.
fn drop_rights_of(file: &File) -> Answer<bool> {
    let mode = u32::from(stat_of(file)?.stx_mode);
    let without = without_rights(mode);
    if without != mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(without & 0o7777))?;
    }
    Ok(without != mode)
}

impl Directory {
    pub(crate) fn open(&self, number: u64, flags: i32, backing: Backing<'_>) -> Answer<Opened> {
        let resolved = self.resolve_to_open(number)?;
        let flags = flags_beneath(flags);
        let file = File::from(rustix::fs::open(resolved.proc_path(), flags, Mode::empty())?);
        let stat = stat_of(&file)?;
        let version = Stat::from(stat).generation();
        let known = self.nodes.knows(number, &version);
        if known == Known::Nothing {
            // Somebody else changed the size within the last second. The kernel looks the file up again, and opens it
            // with the size that it is told then; with the old one it would append in the wrong place.
            self.nodes.shows(number, &version);
            return Err(Errno::STALE.into());
        }
        let (open, mode, passthrough) = self.opened(number, file, flags, &stat, backing);
        // Pages stay cached if no write can have given the file the same times since.
        let is_settled = !is_in_doubt(version.mtime.max(version.ctime), self.recorder.now());
        let is_unchanged = self.nodes.caches(number, is_settled.then_some(version));
        // The kernel rejects `KEEP_CACHE` for passthrough files.
        let has_pages = mode == OpenMode::Cached && is_unchanged;
        let keep = if has_pages { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        let how = keep | FopenFlags::FOPEN_NOFLUSH | direct_io_flags(mode);
        Ok(Opened { handle: FileHandle(open), how, has_other_times: known != Known::All, passthrough })
    }

    /// Registers an open file. Returns its handle, its mode, and the backing file of a passthrough.
    pub(super) fn opened(
        &self,
        number: u64,
        file: File,
        flags: OFlags,
        stat: &Statx,
        backing: Backing<'_>,
    ) -> (u64, OpenMode, Option<Arc<BackingId>>) {
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
            mode: if flags & OFlags::ACCMODE == OFlags::WRONLY { OpenMode::Direct } else { OpenMode::Cached },
            position: Mutex::default(),
            idle: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            reader: OnceLock::new(),
            direct: OnceLock::new(),
        };
        let mut backing_id = None;
        if let Some(passthrough) = &self.passthrough {
            // Verifiable files are not passed through: the kernel would read them unverified.
            let unchecked = || open.reader.get_or_init(|| self.reader(&open)).is_none();
            let preferred = if !writable && unchecked() { OpenMode::Passthrough } else { open.mode };
            let (mode, backing) = passthrough.open(number, preferred, || backing(open.file.as_fd()));
            (open.mode, backing_id) = (mode, backing);
        }
        let mode = open.mode;
        (self.files.add(Arc::new(open)), mode, backing_id)
    }

    pub(crate) fn release(&self, handle: u64) {
        let Some(open) = self.files.remove(handle) else { return };
        let number = open.number;
        if let Some(passthrough) = &self.passthrough {
            passthrough.close(open.number, open.mode);
        }
        if let (Some(verified), Some(Some(reader))) = (&self.verified, open.reader.get()) {
            verified.note(&reader.report(), || self.nodes.path(number).unwrap_or_default());
        }
        if open.writable {
            self.pending.flush_file(open.number);
        }
        // Closed before `opened(false)`: a writer that waits for space then finds it free.
        drop(open);
        self.nodes.opened(number, false);
    }

    /// Drops what is kept of a file that the kernel does not know any more.
    pub(crate) fn forget(&self, number: u64) {
        self.source.forget(number);
        self.history.forget(number);
    }

    /// Removes setuid and setgid. True if there were any.
    pub(crate) fn drop_rights(&self, handle: u64) -> Answer<bool> {
        drop_rights_of(&self.files.get(handle)?.file)
    }

    /// Runs an operation that needs disk space. If the disk is full, waits until removed files are closed and unmapped,
    /// and tries again.
    pub(super) fn retry_when_full<T>(&self, mut act: impl FnMut() -> Answer<T>) -> Answer<T> {
        let (since, mut is_last) = (Stopwatch::start(), false);
        loop {
            match act() {
                Err(error)
                    if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
                        && !is_last =>
                {
                    is_last = !self.nodes.wait_for_space(&since);
                    if is_last {
                        self.lengths.wait_until_unmapped();
                    }
                }
                done => return done,
            }
        }
    }

    /// Appends to the end that the file has now, wherever the kernel takes it to be: others may have appended beside
    /// the mount. Returns the bytes written and their offset.
    pub(crate) fn append(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<(usize, u64)> {
        let open = self.files.get(handle)?;
        let place = self.history.append(open.number, &open.file, || {
            let place = self.retry_when_full(|| open.append(data))?;
            self.pending.add(open.number, place.clone(), open.rest);
            Ok::<_, std::io::Error>(place)
        })?;
        let written = (place.end - place.start) as usize;
        // The kernel takes them to be at the offset that it named.
        self.nodes.wrote(open.number, offset + written as u64);
        self.write_back(&open, written as u64, place.end);
        self.end_write(&open);
        Ok((written, place.start))
    }

    pub(crate) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        let mut written = 0;
        let range = |_| offset..offset + data.len() as u64;
        let all = self.history.change(open.number, &open.file, range, || {
            let all = self.retry_when_full(|| write_on(&open.file, data, offset, &mut written));
            // After an error, part of the data may have been written.
            if !data.is_empty() {
                self.pending.add(open.number, offset..offset + data.len() as u64, open.rest);
            }
            all
        });
        // A short write is reported as such, an error only if nothing was written.
        if written == 0 {
            all?;
        }
        let end = offset + written as u64;
        self.nodes.wrote(open.number, end);
        self.write_back(&open, written as u64, end);
        self.end_write(&open);
        Ok(written)
    }

    /// Starts writeback without waiting, when enough was written. The mount's own pages stay cached.
    fn write_back(&self, open: &OpenFile, written: u64, end: u64) {
        if open.idle.fetch_add(written, Ordering::Relaxed) + written >= WRITEBACK {
            open.idle.store(0, Ordering::Relaxed);
            let start = end.saturating_sub(WRITEBACK);
            let _ = rustix::fs::fadvise(&open.file, start, NonZeroU64::new(end - start), Advice::DontNeed);
        }
    }

    /// A write to a file opened with `O_SYNC` returns when the changelog has it.
    fn end_write(&self, open: &OpenFile) {
        if open.synchronous {
            self.pending.flush_file(open.number);
            self.recorder.flush();
        }
    }

    pub(crate) fn sync(&self, handle: u64, data_only: bool) -> Answer<()> {
        let open = self.files.get(handle)?;
        self.pending.flush_file(open.number);
        if data_only { open.file.sync_data() } else { open.file.sync_all() }?;
        self.recorder.flush();
        Ok(())
    }

    pub(crate) fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        let open = self.files.get(handle)?;
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        // Collapsing or inserting a range moves everything behind it.
        let moves = FallocateFlags::COLLAPSE_RANGE | FallocateFlags::INSERT_RANGE;
        let allocate = || rustix::fs::fallocate(&open.file, flags, offset, length);
        let range =
            if flags.intersects(moves) { offset..u64::MAX } else { offset..offset.saturating_add(length) };
        self.history.change(
            open.number,
            &open.file,
            |_| range.clone(),
            || {
                match flags.intersects(moves) {
                    true => self.lengths.change(open.number, allocate)?,
                    false => self.retry_when_full(|| Ok(allocate()?))?,
                }
                self.pending.add(open.number, range.clone(), open.rest);
                Ok(())
            },
        )
    }

    pub(crate) fn seek(&self, handle: u64, offset: i64, whence: i32) -> Answer<i64> {
        let open = self.files.get(handle)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let to = match whence {
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL.into()),
        };
        let _position = sync::lock(&open.position);
        Ok(rustix::fs::seek(&open.file, to)?.cast_signed())
    }

    pub(crate) fn copy(&self, from: (u64, u64), to: (u64, u64), length: u64) -> Answer<u32> {
        let (source, target) = (self.files.get(from.0)?, self.files.get(to.0)?);
        // The kernel then copies by read and write, and the reads are verified.
        if source.reader.get_or_init(|| self.reader(&source)).is_some() {
            return Err(Errno::OPNOTSUPP.into());
        }
        let (mut source_at, mut target_at) = (from.1, to.1);
        // The reply has 32 bits.
        let length = length.min(1 << 30) as usize;
        let range = |_| to.1..to.1.saturating_add(length as u64);
        let copied = self.history.change(target.number, &target.file, range, || {
            let copied = self.retry_when_full(|| {
                let (from, to) = (Some(&mut source_at), Some(&mut target_at));
                Ok(rustix::fs::copy_file_range(&source.file, from, &target.file, to, length)?)
            })?;
            if copied > 0 {
                self.pending.add(target.number, to.1..to.1 + copied as u64, target.rest);
            }
            Ok::<_, std::io::Error>(copied)
        })?;
        self.end_write(&target);
        Ok(copied as u32)
    }

    /// Changes attributes, including the size.
    pub(crate) fn change(
        &self,
        number: u64,
        handle: Option<u64>,
        set: SetAttr,
        uid: u32,
    ) -> Answer<FileAttr> {
        let open = handle.and_then(|handle| self.files.get(handle).ok());
        let resolved = match open {
            Some(open) => Resolved::Open(open),
            None => self.resolve(number)?,
        };
        if let Some(size) = set.size {
            self.resize(number, &resolved, size, uid)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(&resolved, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = set.mode {
            rustix::fs::chmod(resolved.proc_path(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            let generation = || Ok::<_, std::io::Error>(Stat::from(stat_of(&resolved)?).generation());
            let before = generation()?;
            rustix::fs::utimensat(rustix::fs::CWD, resolved.proc_path(), &times, AtFlags::empty())?;
            if set.mtime.is_some() {
                self.history.set_times(number, &before, &generation()?);
            }
        }
        let stat = stat_of(&resolved)?;
        self.nodes.shows(number, &Stat::from(stat).generation());
        if set.size.is_some() {
            self.record_change_of(number, WHOLE, &stat);
        } else if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.mtime.is_some() {
            self.record_change_of(number, NO_CONTENT, &stat);
        }
        Ok(attributes(number, &stat))
    }

    pub(super) fn resize(&self, number: u64, resolved: &Resolved, size: u64, uid: u32) -> Answer<()> {
        let opened;
        let file = match resolved {
            Resolved::Open(open) if open.writable => &open.file,
            other => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                opened = File::from(rustix::fs::open(proc_path(other.as_fd()), flags, Mode::empty())?);
                &opened
            }
        };
        // Bytes that are cut off read as zeros if the file grows again.
        let range = |before: u64| before.min(size)..u64::MAX;
        let path = self.nodes.path(number).unwrap_or_default();
        let rest = self.recorder.rest_of(&path, &stat_of(file)?.into());
        self.history.change(number, file, range, || {
            self.lengths.change(number, || rustix::fs::ftruncate(file, size))?;
            self.pending.add(number, WHOLE, rest);
            Ok::<_, std::io::Error>(())
        })?;
        if uid != 0 {
            drop_rights_of(file)?;
        }
        Ok(())
    }

    pub(crate) fn attribute(&self, number: u64, name: &[u8]) -> Answer<Vec<u8>> {
        let resolved = self.resolve(number)?;
        read_growing(|buffer| rustix::fs::getxattr(resolved.proc_path(), name, buffer))
    }

    pub(crate) fn attribute_names(&self, number: u64) -> Answer<Vec<u8>> {
        let resolved = self.resolve(number)?;
        read_growing(|buffer| rustix::fs::listxattr(resolved.proc_path(), buffer))
    }

    pub(crate) fn set_attribute(
        &self,
        number: u64,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Answer<()> {
        let resolved = self.resolve(number)?;
        self.retry_when_full(|| Ok(rustix::fs::setxattr(resolved.proc_path(), name, value, flags)?))?;
        self.record_change_of(number, NO_CONTENT, &stat_of(&resolved)?);
        Ok(())
    }

    pub(crate) fn remove_attribute(&self, number: u64, name: &[u8]) -> Answer<()> {
        let resolved = self.resolve(number)?;
        rustix::fs::removexattr(resolved.proc_path(), name)?;
        self.record_change_of(number, NO_CONTENT, &stat_of(&resolved)?);
        Ok(())
    }
}

impl OpenFile {
    /// Writes behind the end of the file in one call, perhaps less than `data`. Returns where the system wrote it.
    fn append(&self, data: &[u8]) -> Answer<Range<u64>> {
        /// The system then writes at the position, and moves it.
        const AT_POSITION: u64 = u64::MAX;
        let _position = sync::lock(&self.position);
        let data = [IoSlice::new(data)];
        let append = || rustix::io::pwritev2(&self.file, &data, AT_POSITION, ReadWriteFlags::APPEND);
        let written = rustix::io::retry_on_intr(append)? as u64;
        let end = rustix::fs::tell(&self.file)?;
        Ok(end - written..end)
    }
}

/// Writes the rest of `data` behind the first `written` bytes.
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

/// Calls `ask` with a growing buffer until the result fits.
fn read_growing(ask: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Answer<Vec<u8>> {
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
