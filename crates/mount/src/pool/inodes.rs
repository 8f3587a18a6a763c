//! Files that someone has open, and what the kernel is told of files.

use super::content::Version;
use super::errors::ForKernel;
use super::{Answer, Shared, lock};
use crate::attributes::device_number;
use crate::nodes::ROOT;
use fuser::{FileAttr, FileType, Generation, INodeNo};
use gabion_vault::format::FileId;
use gabion_vault::live::{Found, LiveFile};
use gabion_vault::storage::pool::stub::{Special, Stub};
use gabion_vault::storage::pool::{DirectoryExtra, Unlinked};
use gabion_vault::tree::Stat;
use gabion_vault::world::Nanos;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers of directories have this bit, those of files do not.
const DIRECTORY: u64 = 1 << 63;

/// A file that someone has open, or is changing.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) file: LiveFile,
    /// Changed with the table locked.
    users: AtomicUsize,
    /// The path that its name had when it was taken away.
    pub(super) was_at: Mutex<Vec<u8>>,
}

/// The number of a file: it stays the same as long as its content is changed in place.
pub(super) fn number_of(id: FileId) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.0[..8]);
    // Clear of the root's, and of zero.
    (u64::from_le_bytes(bytes) & !DIRECTORY).max(ROOT + 1)
}

pub(super) fn time(nanos: Nanos) -> SystemTime {
    match u64::try_from(nanos) {
        Ok(after) => UNIX_EPOCH + Duration::from_nanos(after),
        Err(_) => UNIX_EPOCH - Duration::from_nanos(nanos.unsigned_abs()),
    }
}

/// What the kernel wants to know of a file.
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

/// What the kernel wants to know of a directory.
pub(super) fn attributes_of_directory(number: u64, stat: &Stat, extra: &DirectoryExtra) -> FileAttr {
    file_attr(number, stat, extra.accessed)
}

fn file_attr(number: u64, stat: &Stat, accessed: Option<Nanos>) -> FileAttr {
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
    /// Names stay what they are while this is held.
    pub(super) fn names_stay(&self) -> RwLockReadGuard<'_, ()> {
        self.order.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names change, and nobody else is at them.
    pub(super) fn names_change(&self) -> RwLockWriteGuard<'_, ()> {
        self.order.write().unwrap_or_else(PoisonError::into_inner)
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

    /// The number of a directory: the one that the kernel knows it by, or one made of its path.
    pub(super) fn directory_number(&self, parent: u64, name: &[u8], path: &[u8]) -> u64 {
        if let Some(known) = self.nodes.number(parent, name).filter(|number| number & DIRECTORY != 0) {
            return known;
        }
        let mut number = fingerprint(path) | DIRECTORY;
        // Another one that was renamed since may still have it.
        while self.nodes.is_known(number) {
            number = fingerprint(&number.to_le_bytes()) | DIRECTORY;
        }
        number
    }

    pub(super) fn is_directory(number: u64) -> bool {
        number == ROOT || number & DIRECTORY != 0
    }

    /// A file that is open already.
    pub(super) fn opened(&self, number: u64) -> Option<Arc<Inode>> {
        lock(&self.inodes).get(&number).cloned()
    }

    /// Tells the kernel of what a name stands for.
    pub(super) fn entry_reply(
        &self,
        parent: u64,
        name: &[u8],
        path: &[u8],
        found: &Found,
    ) -> (FileAttr, Generation) {
        let attr = match found {
            Found::Directory(stat, extra) => {
                attributes_of_directory(self.directory_number(parent, name, path), stat, extra)
            }
            Found::File(stub) => {
                let number = number_of(stub.id);
                // A file has one name, unless it says otherwise: someone else gave it another one.
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

    /// What the kernel is told of a file that has this stub: someone may have it open.
    fn attributes_now(&self, number: u64, stub: &Stub) -> FileAttr {
        self.opened(number).map_or_else(|| attributes_of(number, stub), |inode| inode.attributes())
    }

    pub(super) fn attributes(&self, number: u64) -> Answer<FileAttr> {
        if let Some(inode) = self.opened(number) {
            return Ok(inode.attributes());
        }
        let _stay = self.names_stay();
        match self.found(number)? {
            Found::Directory(stat, extra) => Ok(attributes_of_directory(number, &stat, &extra)),
            Found::File(stub) => Ok(self.attributes_now(number, &stub)),
        }
    }

    /// What a number stands for, by any of its names that still does.
    pub(super) fn found(&self, number: u64) -> Answer<Found> {
        let mut paths = self.nodes.paths(number);
        if number == ROOT {
            paths.push(Vec::new());
        }
        for path in paths {
            match self.live.find(&path).for_kernel()? {
                Some(found @ Found::Directory(..)) if Shared::is_directory(number) => return Ok(found),
                Some(Found::File(stub)) if number_of(stub.id) == number => return Ok(Found::File(stub)),
                Some(_) | None => {}
            }
        }
        // The kernel then looks the name up once more, and finds what stands there now: who opens a name to write to it, and is
        // overtaken by a rename, need not be told that there is nothing.
        Err(Errno::STALE.into())
    }

    /// A file to work with, open or not. To be given back.
    pub(super) fn hold(&self, number: u64) -> Answer<Arc<Inode>> {
        self.hold_by(number, || match self.found(number)? {
            Found::File(stub) => Ok(stub),
            Found::Directory(..) => Err(Errno::STALE.into()),
        })
    }

    /// The same for one whose stub is found otherwise.
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
        // The table stays locked: nobody can change the stub between reading it and having it there.
        let inode = Arc::new(Inode::new(number, self.live.open(*find()?)));
        inodes.insert(number, Arc::clone(&inode));
        Ok(inode)
    }

    /// A file that was just made is open.
    pub(super) fn add(&self, file: LiveFile) -> Arc<Inode> {
        let inode = Arc::new(Inode::new(number_of(file.id()), file));
        lock(&self.inodes).insert(inode.number, Arc::clone(&inode));
        inode
    }

    /// Gives a file back. Whoever is last publishes what it is.
    pub(super) fn let_go(&self, inode: &Arc<Inode>) {
        if inode.users.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let _stay = self.names_stay();
        let closed = inode.file.close(&|| self.nodes.paths(inode.number));
        let mut inodes = lock(&self.inodes);
        if inode.users.load(Ordering::Acquire) > 0 {
            return;
        }
        // What could not be published stays in the table; the beat tries again.
        let Ok(removed) = closed else { return };
        take_out(&mut inodes, inode);
        drop(inodes);
        if let Some(stub) = removed {
            self.live.bury(&lock(&inode.was_at), stub);
        }
    }

    /// Publishes all that is not in stubs yet, and lets go of what nobody has open.
    pub(super) fn rest_all(&self) {
        let all: Vec<Arc<Inode>> = lock(&self.inodes).values().cloned().collect();
        for inode in all {
            let _stay = self.names_stay();
            let rested = inode.file.rest(&|| self.nodes.paths(inode.number));
            let mut inodes = lock(&self.inodes);
            if rested.is_ok() && inode.users.load(Ordering::Acquire) == 0 && !inode.file.is_dirty() {
                take_out(&mut inodes, &inode);
            }
        }
        // What could not be removed now is tried at the next beat.
        let _ = self.live.tick();
    }

    /// The mount is over, and so are all files that were open: the kernel need not have said so of each.
    pub(super) fn close_all(&self) {
        let all: Vec<Arc<Inode>> = lock(&self.inodes).drain().map(|(_, inode)| inode).collect();
        for inode in all {
            // What cannot be published now is as a crash would leave it.
            if let Ok(Some(stub)) = inode.file.close(&|| self.nodes.paths(inode.number)) {
                self.live.bury(&lock(&inode.was_at), stub);
            }
        }
        let _ = self.live.tick();
    }

    /// A file has lost the name that was at `path`.
    pub(super) fn lost_name(&self, path: &[u8], unnamed: Unlinked) {
        match unnamed {
            Unlinked::Other(stub) => {
                if let Some(inode) = self.opened(number_of(stub.id)) {
                    inode.file.has_fewer_names(&stub);
                }
            }
            Unlinked::Last(stub) => match self.opened(number_of(stub.id)) {
                Some(inode) => {
                    *lock(&inode.was_at) = path.to_vec();
                    inode.file.lose_name();
                }
                None => self.live.bury(path, stub),
            },
        }
    }

    pub(super) fn forget(&self, number: u64, count: u64) {
        self.nodes.forget(number, count);
        if !self.nodes.is_known(number) {
            lock(&self.cached).remove(&number);
        }
    }

    /// The version of a file that pages of the kernel are from.
    pub(super) fn version(inode: &Inode) -> Version {
        Version::of(&inode.file.stat())
    }
}

/// Takes a file out of the table that nobody has open. By its number another one may stand there already, opened since by someone who
/// found the table empty: two of one file would not know of each other.
fn take_out(inodes: &mut HashMap<u64, Arc<Inode>>, inode: &Arc<Inode>) {
    if inodes.get(&inode.number).is_some_and(|known| Arc::ptr_eq(known, inode)) {
        inodes.remove(&inode.number);
    }
}

impl Inode {
    fn new(number: u64, file: LiveFile) -> Inode {
        Inode { number, file, users: AtomicUsize::new(1), was_at: Mutex::default() }
    }

    /// What the kernel is told of it.
    pub(super) fn attributes(&self) -> FileAttr {
        let attr = self.file.with_stub(|stub| attributes_of(self.number, stub));
        // Only those who have it open know of a file without names.
        if self.file.is_nameless() { FileAttr { nlink: 0, ..attr } } else { attr }
    }
}

/// A number for some bytes; FNV-1a.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
