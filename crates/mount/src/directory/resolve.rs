//! Resolves inode numbers of the kernel to files of the source directory.

use super::Directory;
use super::content::OpenFile;
use crate::attributes::attributes;
use crate::nodes::ROOT;
use crate::pending::IsAt;
use crate::replies::Answer;
use fuser::FileAttr;
use gabion_platform::sync;
use gabion_vault::tree::{Stat, open_beneath};
use rustix::fs::{AtFlags, Mode, OFlags, StatVfs, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Most directories kept open; when reached, all are closed and reopened on demand.
const MAX_KEPT: usize = 4096;

/// The mounted directory.
#[derive(Debug)]
pub(super) struct Source {
    root: Arc<OwnedFd>,
    device: (u32, u32),
    inode: u64,
    hidden: Vec<u8>,
    /// Open directories by number. A descriptor stays valid across renames.
    kept: Mutex<HashMap<u64, Arc<OwnedFd>>>,
}

/// A resolved file: a descriptor for system calls.
#[derive(Debug)]
pub(super) enum Resolved {
    /// Found by name; an `O_PATH` descriptor.
    Named(OwnedFd),
    /// A pinned file or the root.
    Kept(Arc<OwnedFd>),
    /// Opened by a program; it may have no name any more.
    Open(Arc<OpenFile>),
}

impl AsFd for Resolved {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Resolved::Named(fd) => fd.as_fd(),
            Resolved::Kept(fd) => fd.as_fd(),
            Resolved::Open(open) => open.file.as_fd(),
        }
    }
}

impl Resolved {
    /// `/proc/self/fd` path, for system calls that take no `O_PATH` descriptor.
    pub(super) fn proc_path(&self) -> String {
        proc_path(self.as_fd())
    }
}

pub(super) fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// `statx` of a descriptor.
pub(super) fn stat_of(fd: impl AsFd) -> Answer<Statx> {
    Ok(statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
}

/// `statx` of a name, without following a symbolic link.
pub(super) fn stat_at(directory: impl AsFd, name: &[u8]) -> Answer<Statx> {
    Ok(statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
}

fn number_of(stat: &Statx, root_device: (u32, u32), root: u64) -> u64 {
    let device = (stat.stx_dev_major, stat.stx_dev_minor);
    match stat.stx_ino {
        inode if device == root_device && inode == root => ROOT,
        inode if device == root_device && inode > ROOT && inode >> 63 == 0 => inode,
        // On another file system that is mounted in the source: mixed with its device number.
        inode => {
            let device = u64::from(device.0) << 20 ^ u64::from(device.1);
            1 << 63 | (inode ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 1
        }
    }
}

impl Source {
    pub(super) fn open(path: &Path, hidden: &[u8]) -> io::Result<Source> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = stat_of(&root)?;
        Ok(Source {
            root: Arc::new(root),
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            hidden: hidden.to_vec(),
            kept: Mutex::default(),
        })
    }

    /// Inode number for the kernel: the source's own, if it is unique.
    pub(super) fn number(&self, stat: &Statx) -> u64 {
        number_of(stat, self.device, self.inode)
    }

    /// Says whether a path is that of a file with a number.
    pub(super) fn finder(&self) -> IsAt {
        let (root, device, inode) = (Arc::clone(&self.root), self.device, self.inode);
        Box::new(move |path, number| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = open_beneath(&root, path, flags, 0);
            let stat = opened.and_then(stat_of);
            stat.is_ok_and(|stat| number_of(&stat, device, inode) == number)
        })
    }

    /// True for the name that the mount hides (the repository).
    pub(super) fn is_hidden(&self, parent: u64, name: &[u8]) -> bool {
        parent == ROOT && name == self.hidden
    }

    pub(crate) fn space(&self) -> Answer<StatVfs> {
        Ok(rustix::fs::fstatvfs(&*self.root)?)
    }

    pub(crate) fn forget(&self, number: u64) {
        sync::lock(&self.kept).remove(&number);
    }
}

fn stale<T>() -> Answer<T> {
    Err(Errno::STALE.into())
}

impl Directory {
    /// A directory as an `O_PATH` descriptor.
    pub(super) fn directory(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        let source = &self.source;
        if number == ROOT {
            return Ok(Arc::clone(&source.root));
        }
        if let Some(kept) = sync::lock(&source.kept).get(&number) {
            return Ok(Arc::clone(kept));
        }
        let Some(path) = self.nodes.path(number) else { return stale() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = open_beneath(&source.root, &path, flags, 0)?;
        if source.number(&stat_of(&opened)?) != number {
            return stale();
        }
        let opened = Arc::new(opened);
        let mut kept = sync::lock(&source.kept);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(number, Arc::clone(&opened));
        Ok(opened)
    }

    /// A file of any kind, by any of its names, an open handle or a pin.
    pub(super) fn resolve(&self, number: u64) -> Answer<Resolved> {
        if number == ROOT {
            return Ok(Resolved::Kept(self.directory(ROOT)?));
        }
        match self.find_by_name(number)? {
            Some(found) => Ok(found),
            // It was removed after the lookup.
            None => self.held(number),
        }
    }

    /// As [`resolve`](Directory::resolve), for an open request. A file whose names belong to other files by now is
    /// refused: the kernel looks the name up again and opens what is there. The file itself may be open here, and would
    /// be opened instead of the new one.
    pub(super) fn resolve_to_open(&self, number: u64) -> Answer<Resolved> {
        match self.find_by_name(number)? {
            Some(found) => Ok(found),
            None if self.nodes.name(number).is_some() => stale(),
            None => self.held(number),
        }
    }

    /// Each name may have been given to another file in the source.
    fn find_by_name(&self, number: u64) -> Answer<Option<Resolved>> {
        for (parent, name) in self.nodes.names(number) {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&*self.directory(parent)?, &*name, flags, Mode::empty()) {
                Ok(file) if self.source.number(&stat_of(&file)?) == number => {
                    return Ok(Some(Resolved::Named(file)));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// A file without a name that is open or pinned.
    fn held(&self, number: u64) -> Answer<Resolved> {
        match self.files.find(|open| open.number == number) {
            Some(open) => Ok(Resolved::Open(open)),
            None => self.nodes.pinned(number).map_or_else(stale, |held| Ok(Resolved::Kept(held))),
        }
    }

    pub(crate) fn attributes(&self, number: u64, handle: Option<u64>) -> Answer<FileAttr> {
        let stat = self.stat(number, handle)?;
        self.nodes.shows(number, &Stat::from(stat).generation());
        Ok(attributes(number, &stat))
    }

    /// `statx` of a file.
    fn stat(&self, number: u64, handle: Option<u64>) -> Answer<Statx> {
        if let Some(open) = handle.and_then(|handle| self.files.get(handle).ok()) {
            return stat_of(&open.file);
        }
        if number != ROOT
            && let Some((parent, name)) = self.nodes.name(number)
            && let Ok(stat) = stat_at(&*self.directory(parent)?, &name)
            && self.source.number(&stat) == number
        {
            return Ok(stat);
        }
        stat_of(self.resolve(number)?)
    }
}
