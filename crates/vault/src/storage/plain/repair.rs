//! Repair of a file in a directory that other programs write to.
//!
//! A write of another program must neither be overwritten nor look like damage afterwards. A file that is open for
//! writing is not repaired. During the repair a lease keeps other programs out; if somebody reads the file there is
//! none, and each write is preceded by a look at whether others have written. The mtime of the protected version is
//! given back only after the file was examined again, under a lease that keeps writers out. Where the file system has
//! no leases, and for programs on other hosts, a write within the moment between such a look and the next step goes
//! unnoticed.

use super::content_of;
use crate::format::Metadata;
use crate::geometry::Run;
use crate::metadata;
use crate::storage::{Content, IsRight, Repairable};
use crate::tree::{Stat, Tree, absent_is_none, split, stat_of};
use crate::world::Timestamp;
use gabion_platform::lease::{Lease, LeaseKind, Refused};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Holes consist of whole pages.
const PAGE: u64 = 4096;

/// Time for programs that have just begun to close the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file under repair.
#[derive(Debug)]
pub(super) struct PlainRepair {
    root: Tree,
    path: Vec<u8>,
    file: File,
    /// Keeps other programs out; none if one has the file open for reading.
    lease: Option<Lease>,
    /// Properties after the last write of the repair.
    last: Stat,
}

impl PlainRepair {
    /// Opens a file, or creates it unless it `existed`.
    pub(super) fn open(root: &Tree, path: &[u8], existed: bool) -> io::Result<PlainRepair> {
        let file = match absent_is_none(root.read(path))? {
            Some(reader) => {
                drop(keep_writers_out(&reader)?);
                drop(reader);
                root.write(path)?
            }
            None if existed => return Err(busy("it was renamed or removed since it was examined")),
            None => {
                root.make_directories(split(path).0, 0o700)?;
                root.create(path, 0o600)?
            }
        };
        let lease = Lease::take(&file, LeaseKind::Exclusive).ok();
        let last = stat_of(&file)?;
        Ok(PlainRepair { root: root.clone(), path: path.to_vec(), file, lease, last })
    }

    /// The content, by the same open file.
    pub(super) fn content(&self) -> io::Result<Box<dyn Content>> {
        Ok(content_of(self.file.try_clone()?))
    }

    /// Changes the file, unless others have changed it since the last time.
    fn change(&mut self, change: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
        self.give_way();
        self.refuse_foreign_changes()?;
        change(&self.file)?;
        self.last = stat_of(&self.file)?;
        Ok(())
    }

    fn refuse_foreign_changes(&self) -> io::Result<()> {
        match stat_of(&self.file)?.generation() == self.last.generation() {
            true => Ok(()),
            false => Err(busy("it was changed while it was repaired")),
        }
    }
}

impl Repairable for PlainRepair {
    fn write(&mut self, run: &Run, row: u64, column: usize, bytes: &[u8]) -> io::Result<()> {
        let cell = run.cell(row, column);
        let (first, end) = (cell.start.next_multiple_of(PAGE), cell.end / PAGE * PAGE);
        self.change(|file| {
            if bytes.iter().all(|&byte| byte == 0) && first < end {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                if fallocate(file, punch, first, end - first).is_ok() {
                    file.write_all_at(&bytes[..(first - cell.start) as usize], cell.start)?;
                    return file.write_all_at(&bytes[(end - cell.start) as usize..], end);
                }
            }
            file.write_all_at(bytes, cell.start)
        })
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        self.change(|file| file.set_len(size))
    }

    fn give_way(&mut self) {
        if self.lease.as_ref().is_some_and(|lease| !lease.is_held()) {
            self.lease = None;
        }
    }

    fn finish(
        &mut self,
        metadata: &Metadata,
        mtime: Option<Timestamp>,
        is_right: IsRight<'_>,
    ) -> io::Result<(Vec<String>, Stat)> {
        self.refuse_foreign_changes()?;
        let mut failed = metadata::restore(&self.file, metadata);
        self.file.sync_all()?;
        self.last = stat_of(&self.file)?;
        // Opening it for reading would wait for the end of the lease.
        self.lease = None;
        let reader = absent_is_none(self.root.read(&self.path))?;
        let is_same = |file: &File| stat_of(file).map(|stat| stat.inode == self.last.inode);
        let Some(reader) = reader.filter(|file| is_same(file).unwrap_or(false)) else {
            return Err(busy("it was renamed or removed while it was repaired"));
        };
        self.file = reader;
        let lease = keep_writers_out(&self.file)?;
        let is_awaited = || lease.as_ref().is_some_and(|lease| !lease.is_held());
        self.refuse_foreign_changes()?;
        let is_right = is_right(&is_awaited)?;
        if is_awaited() {
            return Err(busy("another program opened it for writing while it was verified"));
        }
        self.refuse_foreign_changes()?;
        if !is_right {
            return Err(busy("it was changed while it was repaired"));
        }
        if let Some(mtime) = mtime {
            failed.extend(metadata::restore_mtime(&self.file, mtime));
        }
        // Who waits for the lease has not written yet, unless the system ended the lease itself in a long pause here.
        if is_awaited() {
            failed.extend(metadata::restore_mtime(&self.file, self.last.mtime));
            return Err(busy("another program opened it for writing while it was verified"));
        }
        Ok((failed, stat_of(&self.file)?))
    }
}

/// Lease that keeps writers out of a file that is open for reading; none where there are no leases.
fn keep_writers_out(reader: &File) -> io::Result<Option<Lease>> {
    match Lease::take_within(reader, LeaseKind::KeepsWritersOut, PATIENCE) {
        Ok(lease) => Ok(Some(lease)),
        Err(Refused::Unsupported) => Ok(None),
        Err(Refused::InUse) => Err(busy("another program has it open for writing")),
    }
}

fn busy(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}
