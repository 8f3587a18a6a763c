//! Content and attributes of files in a mounted pool.

use super::Shared;
use super::acl::{self, ACCESS, Attributes};
use super::errors::ForKernel;
use super::inodes::Inode;
use crate::attributes::{SetAttr, asked_for, without_rights};
use crate::directory::VerifiedReads;
use crate::recorder::{NO_CONTENT, Rest};
use crate::replies::{Answer, Opened};
use fuser::{FileAttr, FileHandle, FopenFlags, TimeOrNow};
use gabion_vault::changelog::WHOLE;
use gabion_vault::degraded::{DegradedReader, ReadError};
use gabion_vault::live::{DirectoryChange, LiveEntry};
use gabion_vault::storage::pool::stub::Stub;
use gabion_vault::storage::pool::{DirectoryExtra, PoolError};
use gabion_vault::world::{Stopwatch, Timestamp};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::sync::{Arc, OnceLock};

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    inode: Arc<Inode>,
    rest: Rest,
    writable: bool,
    /// Opened with `O_SYNC` or `O_DSYNC`: each write is durable when it returns.
    synchronous: bool,
    /// Verified reader; `None` if the file has no current redundancy.
    reader: OnceLock<Option<DegradedReader>>,
}

impl Shared {
    fn timestamp(&self, time: TimeOrNow) -> Timestamp {
        match time {
            TimeOrNow::Now => self.clock.now(),
            TimeOrNow::SpecificTime(time) => {
                let (seconds, nanoseconds) = asked_for(time);
                Timestamp::from_parts(seconds, nanoseconds)
            }
        }
    }

    pub(crate) fn open(&self, number: u64, flags: i32) -> Answer<Opened> {
        let inode = self.hold(number)?;
        let version = inode.file.stat().generation();
        let path = self.nodes.path(number).unwrap_or_default();
        let handle = self.opened_as(inode, &path, flags);
        let is_unchanged = self.nodes.caches(number, Some(version));
        let keep = if is_unchanged { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
        // The content is in several files; the kernel can only read from one.
        Ok(Opened {
            handle,
            how: keep | FopenFlags::FOPEN_NOFLUSH,
            passthrough: None,
            has_other_times: false,
        })
    }

    /// Registers an open file whose inode is already in the table.
    pub(super) fn opened_as(&self, inode: Arc<Inode>, path: &[u8], flags: i32) -> FileHandle {
        let flags = OFlags::from_bits_retain(flags as u32);
        let writable = !(flags & OFlags::ACCMODE).is_empty();
        let synchronous = flags.intersects(OFlags::SYNC | OFlags::DSYNC);
        let rest = self.recorder.rest_of(path, &inode.file.stat());
        self.nodes.opened(inode.number, true);
        FileHandle(self.files.add(Arc::new(OpenFile {
            inode,
            rest,
            writable,
            synchronous,
            reader: OnceLock::new(),
        })))
    }

    pub(crate) fn release(&self, handle: u64) {
        let Some(open) = self.files.remove(handle) else { return };
        let number = open.inode.number;
        if let (Some(verified), Some(Some(reader))) = (&self.verified, open.reader.get()) {
            verified.note(&reader.report(), || self.nodes.path(number).unwrap_or_default());
        }
        self.report_reconstructed(&open.inode, &self.nodes.path(number).unwrap_or_default());
        if open.writable {
            self.pending.flush_file(number);
        }
        self.let_go(&open.inode);
        if open.writable {
            self.nodes.caches(number, Some(open.inode.file.stat().generation()));
        }
        self.nodes.opened(number, false);
    }

    pub(crate) fn read(&self, handle: u64, offset: u64, buffer: &mut [u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        if let Some(checked) = self.read_checked(&open, offset, buffer) {
            return checked;
        }
        let name = || self.nodes.paths(open.inode.number);
        open.inode.file.read(&name, offset, buffer, self.verified.is_some()).for_kernel()
    }

    /// Verified bytes. `None` if the file has no current redundancy or is being written.
    fn read_checked(&self, open: &OpenFile, offset: u64, buffer: &mut [u8]) -> Option<Answer<usize>> {
        let verified = self.verified.as_ref().filter(|_| !open.writable)?;
        let reader = open.reader.get_or_init(|| self.reader(verified, open)).as_ref()?;
        let version = reader.stat().generation();
        let rests = || open.inode.file.is_at_rest_as(&version);
        if !rests() {
            return None;
        }
        let got = reader.read(offset, buffer);
        // Checked again: bytes written meanwhile look like damage to a reader of the old version.
        match got {
            _ if !rests() => None,
            Ok(got) => Some(Ok(got)),
            Err(ReadError::Open(_) | ReadError::Short(_)) => None,
            Err(_) => Some(Err(Errno::IO.into())),
        }
    }

    fn reader(&self, verified: &VerifiedReads, open: &OpenFile) -> Option<DegradedReader> {
        let path = self.nodes.path(open.inode.number)?;
        DegradedReader::open_guarded(&*verified.storage, &verified.coders, &path).ok().flatten()
    }

    /// Runs a change of an open file.
    pub(super) fn work(&self, inode: &Inode, work: impl Fn() -> Result<(), PoolError>) -> Answer<()> {
        let done = self.retry_when_full(|| {
            let _names = self.read_names();
            work().for_kernel()
        });
        // After an error, part of the data may have been written.
        done.inspect_err(|_| self.pending.add(inode.number, NO_CONTENT, self.rest_of(inode)))
    }

    /// Runs an operation that needs disk space. If the pool is full, deletes the objects of removed files and tries
    /// again.
    pub(super) fn retry_when_full<T>(&self, work: impl Fn() -> Answer<T>) -> Answer<T> {
        let (since, mut cleared) = (Stopwatch::start(), false);
        loop {
            match work() {
                Err(error)
                    if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())
                        && (self.nodes.wait_for_space(&since) || !cleared) =>
                {
                    self.live.tick().for_kernel()?;
                    cleared = true;
                }
                done => return done,
            }
        }
    }

    pub(super) fn rest_of(&self, inode: &Inode) -> Rest {
        let path = self.nodes.path(inode.number).unwrap_or_default();
        self.recorder.rest_of(&path, &inode.file.stat())
    }

    /// Removes setuid and setgid. True if there were any.
    pub(crate) fn drop_rights(&self, handle: u64) -> Answer<bool> {
        let open = self.files.get(handle)?;
        let inode = &open.inode;
        let mode = inode.file.stat().mode;
        if without_rights(mode) == mode {
            return Ok(false);
        }
        self.work(inode, || {
            inode.file.update(&|| self.nodes.paths(inode.number), |stub| {
                stub.metadata.mode = without_rights(stub.metadata.mode);
                Ok(())
            })
        })?;
        Ok(true)
    }

    pub(crate) fn write(&self, handle: u64, offset: u64, data: &[u8]) -> Answer<usize> {
        let open = self.files.get(handle)?;
        let OpenFile { inode, rest, synchronous, .. } = &*open;
        let name = || self.nodes.paths(inode.number);
        self.work(inode, || inode.file.write(&name, offset, data))?;
        if !data.is_empty() {
            self.pending.add(inode.number, offset..offset + data.len() as u64, *rest);
        }
        if *synchronous {
            self.sync(handle, true)?;
        }
        Ok(data.len())
    }

    pub(crate) fn sync(&self, handle: u64, _data_only: bool) -> Answer<()> {
        let open = self.files.get(handle)?;
        let inode = &open.inode;
        self.pending.flush_file(inode.number);
        {
            let _names = self.read_names();
            inode.file.sync(&|| self.nodes.paths(inode.number)).for_kernel()?;
        }
        self.recorder.flush();
        Ok(())
    }

    pub(crate) fn allocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Answer<()> {
        let open = self.files.get(handle)?;
        let inode = &open.inode;
        let name = || self.nodes.paths(inode.number);
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let keep = flags.contains(FallocateFlags::KEEP_SIZE);
        match flags - FallocateFlags::KEEP_SIZE {
            FallocateFlags::PUNCH_HOLE => self.work(inode, || inode.file.punch(&name, offset, length))?,
            FallocateFlags::ZERO_RANGE => self.work(inode, || {
                inode.file.punch(&name, offset, length)?;
                inode.file.allocate(&name, offset, length, keep)
            })?,
            flags if flags.is_empty() => {
                self.work(inode, || inode.file.allocate(&name, offset, length, keep))?;
            }
            _ => return Err(Errno::OPNOTSUPP.into()),
        }
        self.pending.add(inode.number, offset..offset.saturating_add(length), open.rest);
        Ok(())
    }

    /// Changes attributes, including the size.
    pub(crate) fn change(&self, number: u64, _: Option<u64>, set: SetAttr, uid: u32) -> Answer<FileAttr> {
        if Shared::is_directory(number) {
            let _names = self.read_names();
            let SetAttr { mode, uid, gid, .. } = set;
            let mtime = set.mtime.map(|time| self.timestamp(time));
            let mode = mode.map(|mode| mode & 0o7777);
            let (path, change) = (self.path(number)?, DirectoryChange { mode, uid, gid, mtime });
            self.live.change_directory(&path, change).for_kernel()?;
            let accessed = set.atime.map(|time| self.timestamp(time));
            let LiveEntry::Directory(_, now) = self.found(number)? else { return Err(Errno::STALE.into()) };
            let listed = mode.is_some() && acl::list_of(&now.attributes, ACCESS).is_some();
            if accessed.is_some() || listed {
                let give = |extra: &mut DirectoryExtra| {
                    extra.accessed = accessed.or(extra.accessed);
                    set_mode(&mut extra.attributes, mode);
                    Ok(())
                };
                self.live.update_directory_extra(&path, give).for_kernel()?;
            }
        } else {
            let inode = self.hold(number)?;
            let changed = self.change_file(&inode, set, uid);
            let attributes = inode.attributes();
            self.let_go(&inode);
            changed?;
            if set.size.is_none() {
                return Ok(attributes);
            }
        }
        self.attributes(number, None)
    }

    fn change_file(&self, inode: &Inode, set: SetAttr, uid: u32) -> Answer<()> {
        let name = || self.nodes.paths(inode.number);
        if let Some(size) = set.size {
            self.work(inode, || inode.file.set_size(&name, size))?;
            self.pending.add(inode.number, WHOLE, self.rest_of(inode));
        }
        let mode_before = inode.file.stat().mode;
        let owned = set.uid.is_some() || set.gid.is_some();
        let cut = set.size.is_some() && uid != 0;
        let mode = match set.mode {
            Some(mode) => Some(mode & 0o7777),
            None if owned || cut => Some(without_rights(mode_before)).filter(|&mode| mode != mode_before),
            None => None,
        };
        let (mtime, accessed) =
            (set.mtime.map(|time| self.timestamp(time)), set.atime.map(|time| self.timestamp(time)));
        if mode.is_none() && !owned && mtime.is_none() && accessed.is_none() {
            return Ok(());
        }
        self.work(inode, || {
            inode.file.update(&name, |stub| {
                stub.metadata.mode = mode.unwrap_or(stub.metadata.mode);
                set_mode(&mut stub.metadata.attributes, mode);
                stub.metadata.uid = set.uid.unwrap_or(stub.metadata.uid);
                stub.metadata.gid = set.gid.unwrap_or(stub.metadata.gid);
                stub.mtime = mtime.unwrap_or(stub.mtime);
                stub.accessed = accessed.or(stub.accessed);
                Ok(())
            })
        })?;
        if inode.file.with_stub(Stub::is_file) {
            self.pending.add(inode.number, NO_CONTENT, self.rest_of(inode));
        }
        Ok(())
    }
}

/// Applies a new mode to the access control list.
fn set_mode(attributes: &mut Attributes, mode: Option<u32>) {
    if let (Some(mode), Some(list)) = (mode, acl::list_of(attributes, ACCESS)) {
        acl::put(attributes, ACCESS, Some(&list.with_mode(mode)));
        attributes.sort();
    }
}
