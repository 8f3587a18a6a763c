//! Table of open files of a mounted pool, and attribute replies.
//!
//! While a file is open, its `Inode` has the current attributes; its stub in the namespace may be older. The last user
//! publishes the stub and removes the entry.

use super::Shared;
use super::errors::ForKernel;
use crate::attributes::device_number;
use crate::nodes::ROOT;
use crate::replies::Answer;
use fuser::{FileAttr, FileType, Generation, INodeNo};
use gabion_platform::sync;
use gabion_platform::sync::lock;
use gabion_vault::format::FileId;
use gabion_vault::live::{LiveEntry, LiveFile};
use gabion_vault::storage::pool::stub::{Special, Stub};
use gabion_vault::storage::pool::{DirectoryExtra, Unlinked};
use gabion_vault::tree::Stat;
use gabion_vault::world::Timestamp;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bit that is set in inode numbers of directories and clear in those of files.
const DIRECTORY: u64 = 1 << 63;

/// A file that is open or being changed.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) file: LiveFile,
    /// Number of users; changed with the table locked.
    users: AtomicUsize,
    /// Path of its last name when that was removed.
    pub(super) was_at: Mutex<Vec<u8>>,
}

/// Inode number of a file, from its identifier: stable while the content is changed in place.
pub(super) fn number_of(id: FileId) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.0[..8]);
    // Not 0, and not the root's number.
    (u64::from_le_bytes(bytes) & !DIRECTORY).max(ROOT + 1)
}

pub(super) fn time(time: Timestamp) -> SystemTime {
    match time >= Timestamp::EPOCH {
        true => UNIX_EPOCH + time.since(Timestamp::EPOCH),
        false => UNIX_EPOCH - Timestamp::EPOCH.since(time),
    }
}

/// FUSE attributes of a file.
pub(super) fn attributes_of(number: u64, stub: &Stub) -> FileAttr {
    let (kind, (major, minor)) = match (&stub.link, stub.special) {
        (Some(_), _) => (FileType::Symlink, (0, 0)),
        (None, None) => (FileType::RegularFile, (0, 0)),
        (None, Some(Special::Pipe)) => (FileType::NamedPipe, (0, 0)),
        (None, Some(Special::Socket)) => (FileType::Socket, (0, 0)),
        (None, Some(Special::Character(major, minor))) => (FileType::CharDevice, (major, minor)),
        (None, Some(Special::Block(major, minor))) => (FileType::BlockDevice, (major, minor)),
    };
    let rdev = device_number(major, minor);
    FileAttr { kind, rdev, ..file_attr(number, &stub.stat(0), stub.accessed) }
}

/// FUSE attributes of a directory.
pub(super) fn attributes_of_directory(number: u64, stat: &Stat, extra: &DirectoryExtra) -> FileAttr {
    file_attr(number, stat, extra.accessed)
}

fn file_attr(number: u64, stat: &Stat, accessed: Option<Timestamp>) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: stat.size,
        blocks: stat.allocated.div_ceil(512),
        atime: time(accessed.unwrap_or(stat.mtime)),
        mtime: time(stat.mtime),
        ctime: time(stat.ctime),
        crtime: UNIX_EPOCH,
        kind: FileType::Directory,
        perm: stat.mode as u16 & 0o7777,
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: 1 << 17,
        flags: 0,
    }
}

impl Shared {
    /// Shared lock on all names: no name changes while it is held.
    pub(super) fn read_names(&self) -> RwLockReadGuard<'_, ()> {
        sync::read(&self.order)
    }

    /// Exclusive lock on all names.
    pub(super) fn change_names(&self) -> RwLockWriteGuard<'_, ()> {
        sync::write(&self.order)
    }

    pub(super) fn path(&self, number: u64) -> Answer<Vec<u8>> {
        self.nodes.path(number).ok_or_else(|| Errno::STALE.into())
    }

    pub(super) fn path_of(&self, parent: u64, name: &[u8]) -> Answer<Vec<u8>> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        self.nodes.path_of(parent, name).ok_or_else(|| Errno::STALE.into())
    }

    /// Inode number of a directory: the known one, or a hash of its path.
    pub(super) fn directory_number(&self, parent: u64, name: &[u8], path: &[u8]) -> u64 {
        if let Some(known) = self.nodes.number(parent, name).filter(|number| number & DIRECTORY != 0) {
            return known;
        }
        let mut number = fingerprint(path) | DIRECTORY;
        // A directory that was renamed since may still have it.
        while self.nodes.is_known(number) {
            number = fingerprint(&number.to_le_bytes()) | DIRECTORY;
        }
        number
    }

    pub(super) fn is_directory(number: u64) -> bool {
        number == ROOT || number & DIRECTORY != 0
    }

    /// The inode of an open file.
    pub(super) fn opened(&self, number: u64) -> Option<Arc<Inode>> {
        lock(&self.inodes).get(&number).cloned()
    }

    /// Reply to a lookup of `name`; counts it as known to the kernel.
    pub(super) fn entry_reply(
        &self,
        parent: u64,
        name: &[u8],
        path: &[u8],
        found: &LiveEntry,
    ) -> (FileAttr, Generation) {
        let attr = match found {
            LiveEntry::Directory(stat, extra) => {
                attributes_of_directory(self.directory_number(parent, name, path), stat, extra)
            }
            LiveEntry::File(stub) => {
                let number = number_of(stub.id);
                // A file without hard links has one name: it was renamed by another process.
                if let Some((old, its_name)) = self
                    .nodes
                    .name(number)
                    .filter(|known| stub.names == 0 && (known.0, &*known.1) != (parent, name))
                {
                    self.nodes.removed(old, &its_name);
                }
                self.attributes_now(number, stub)
            }
        };
        let generation = self.nodes.found(parent, name, attr.ino.0);
        (attr, Generation(generation))
    }

    /// Attributes of the open file if there is one, of the stub otherwise.
    fn attributes_now(&self, number: u64, stub: &Stub) -> FileAttr {
        self.opened(number).map_or_else(|| attributes_of(number, stub), |inode| inode.attributes())
    }

    pub(crate) fn attributes(&self, number: u64, _: Option<u64>) -> Answer<FileAttr> {
        if let Some(inode) = self.opened(number) {
            return Ok(inode.attributes());
        }
        let _names = self.read_names();
        match self.found(number)? {
            LiveEntry::Directory(stat, extra) => Ok(attributes_of_directory(number, &stat, &extra)),
            LiveEntry::File(stub) => Ok(self.attributes_now(number, &stub)),
        }
    }

    /// The file or directory of an inode number, by any of its names.
    pub(super) fn found(&self, number: u64) -> Answer<LiveEntry> {
        let mut paths = self.nodes.paths(number);
        if number == ROOT {
            paths.push(Vec::new());
        }
        for path in paths {
            match self.live.find(&path).for_kernel()? {
                Some(found @ LiveEntry::Directory(..)) if Shared::is_directory(number) => return Ok(found),
                Some(LiveEntry::File(stub)) if number_of(stub.id) == number => {
                    return Ok(LiveEntry::File(stub));
                }
                Some(_) | None => {}
            }
        }
        // With `ESTALE` the kernel looks the name up again, so that an open that races with a rename finds the file
        // that has the name now.
        Err(Errno::STALE.into())
    }

    /// The inode of a file, which is added to the table if it is not open. The caller ends with
    /// [`let_go`](Shared::let_go).
    pub(super) fn hold(&self, number: u64) -> Answer<Arc<Inode>> {
        self.hold_by(number, || match self.found(number)? {
            LiveEntry::File(stub) => Ok(stub),
            LiveEntry::Directory(..) => Err(Errno::STALE.into()),
        })
    }

    /// The same with another way to find the stub.
    pub(super) fn hold_by(
        &self,
        number: u64,
        find: impl FnOnce() -> Answer<Box<Stub>>,
    ) -> Answer<Arc<Inode>> {
        let mut inodes = lock(&self.inodes);
        if let Some(inode) = inodes.get(&number) {
            inode.users.fetch_add(1, Ordering::Relaxed);
            return Ok(Arc::clone(inode));
        }
        // The table stays locked, so that the stub cannot change between reading it and inserting it.
        let inode = Arc::new(Inode::new(number, self.live.open(*find()?)));
        inodes.insert(number, Arc::clone(&inode));
        Ok(inode)
    }

    /// Adds a file that was just created.
    pub(super) fn add(&self, file: LiveFile) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(number_of(file.id()), file));
        lock(&self.inodes).insert(inode.number, Arc::clone(&inode));
        inode
    }

    /// Ends the use of an inode. The last user publishes its stub.
    pub(super) fn let_go(&self, inode: &Arc<Inode>) {
        if inode.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let _names = self.read_names();
        let closed = inode.file.close(&|| self.nodes.paths(inode.number));
        let mut inodes = lock(&self.inodes);
        if inode.users.load(Ordering::Acquire) > 0 {
            return;
        }
        // A stub that could not be published stays in the table; the flush thread tries again.
        let Ok(removed) = closed else { return };
        remove_from_table(&mut inodes, inode);
        drop(inodes);
        if let Some(stub) = removed {
            self.live.queue_removal(&lock(&inode.was_at), stub);
        }
    }

    /// Publishes the stubs of all files in the table, and removes those without users.
    pub(super) fn publish_all(&self) {
        let all: Vec<Arc<Inode>> = lock(&self.inodes).values().cloned().collect();
        for inode in all {
            let _names = self.read_names();
            let rested = inode.file.rest(&|| self.nodes.paths(inode.number));
            let mut inodes = lock(&self.inodes);
            if rested.is_ok() && inode.users.load(Ordering::Acquire) == 0 && !inode.file.is_dirty() {
                remove_from_table(&mut inodes, &inode);
            }
        }
        // Objects that could not be removed now are tried again in the next round.
        let _ = self.live.tick();
    }

    /// Closes all files after the end of the mount; the kernel does not release each of them.
    pub(super) fn close_all(&self) {
        let all: Vec<Arc<Inode>> = lock(&self.inodes).drain().map(|(_, inode)| inode).collect();
        for inode in all {
            // A failure here leaves the same state as a crash.
            if let Ok(Some(stub)) = inode.file.close(&|| self.nodes.paths(inode.number)) {
                self.live.queue_removal(&lock(&inode.was_at), stub);
            }
        }
        let _ = self.live.tick();
    }

    /// Notes that the name at `path` was removed from its file.
    pub(super) fn name_removed(&self, path: &[u8], unnamed: Unlinked) {
        match unnamed {
            Unlinked::Other(stub) => {
                if let Some(inode) = self.opened(number_of(stub.id)) {
                    inode.file.note_removed_link(&stub);
                }
            }
            Unlinked::Last(stub) => match self.opened(number_of(stub.id)) {
                Some(inode) => {
                    *lock(&inode.was_at) = path.to_vec();
                    inode.file.unlink();
                }
                None => self.live.queue_removal(path, stub),
            },
        }
    }
}

/// Removes an unused inode from the table, unless another inode with its number was inserted since.
fn remove_from_table(inodes: &mut HashMap<u64, Arc<Inode>>, inode: &Arc<Inode>) {
    if inodes.get(&inode.number).is_some_and(|known| Arc::ptr_eq(known, inode)) {
        inodes.remove(&inode.number);
    }
}

impl Inode {
    fn new(number: u64, file: LiveFile) -> Inode {
        Inode { number, file, users: AtomicUsize::new(1), was_at: Mutex::default() }
    }

    /// FUSE attributes.
    pub(crate) fn attributes(&self) -> FileAttr {
        let attr = self.file.with_stub(|stub| attributes_of(self.number, stub));
        // A file without names is known only by its open handles.
        if self.file.is_unlinked() { FileAttr { nlink: 0, ..attr } } else { attr }
    }
}

/// FNV-1a hash.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
