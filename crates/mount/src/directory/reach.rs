//! How a number of the kernel's becomes a file of the source.

use super::content::OpenFile;
use super::{Answer, Shared};
use crate::nodes::ROOT;
use gabion_vault::tree::open_beneath;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfs, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Directories that are kept open; beyond that all are closed and opened again as they are needed.
const MAX_KEPT: usize = 4096;

/// The directory that is shown.
#[derive(Debug)]
pub(super) struct Source {
    root: Arc<OwnedFd>,
    device: (u32, u32),
    inode: u64,
    hidden: Vec<u8>,
    /// Directories by number. An open one stays what it is, whatever it is called.
    kept: Mutex<HashMap<u64, Arc<OwnedFd>>>,
}

/// A file that was reached: something to call the operating system with.
#[derive(Debug)]
pub(super) enum Reached {
    /// By name; it is not open.
    Named(OwnedFd),
    /// It is kept open for as long as the kernel knows it, to no purpose but this.
    Kept(Arc<OwnedFd>),
    /// It may have no name any more.
    Open(Arc<OpenFile>),
}

impl AsFd for Reached {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Reached::Named(fd) => fd.as_fd(),
            Reached::Kept(fd) => fd.as_fd(),
            Reached::Open(open) => open.file.as_fd(),
        }
    }
}

impl Reached {
    /// A path to this very file, for calls that take no descriptor, or none that is not open.
    pub(super) fn magic(&self) -> String {
        magic(self.as_fd())
    }
}

pub(super) fn magic(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// What the operating system says of an open file.
pub(super) fn stat_of(fd: impl AsFd) -> Answer<Statx> {
    Ok(statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
}

/// What it says of a name.
pub(super) fn stat_at(directory: impl AsFd, name: &[u8]) -> Answer<Statx> {
    Ok(statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?)
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

    /// The number of a file: that of its inode, as long as that is unique.
    pub(super) fn number(&self, stat: &Statx) -> u64 {
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        match stat.stx_ino {
            inode if device == self.device && inode == self.inode => ROOT,
            inode if device == self.device && inode > ROOT && inode >> 63 == 0 => inode,
            // Another file system is mounted within.
            inode => {
                let device = u64::from(device.0) << 20 ^ u64::from(device.1);
                1 << 63 | (inode ^ device.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 1
            }
        }
    }

    /// Whether nobody is to see a name.
    pub(super) fn is_hidden(&self, parent: u64, name: &[u8]) -> bool {
        parent == ROOT && name == self.hidden
    }

    pub(super) fn space(&self) -> Answer<StatVfs> {
        Ok(rustix::fs::fstatvfs(&*self.root)?)
    }

    pub(super) fn forget(&self, number: u64) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }
}

fn stale<T>() -> Answer<T> {
    Err(Errno::STALE.into())
}

impl Shared {
    /// A directory, open for calls that take one.
    pub(super) fn directory(&self, number: u64) -> Answer<Arc<OwnedFd>> {
        let source = &self.source;
        if number == ROOT {
            return Ok(Arc::clone(&source.root));
        }
        if let Some(kept) = source.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Ok(Arc::clone(kept));
        }
        let Some(path) = self.nodes.path(number) else { return stale() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = open_beneath(&source.root, &path, flags, 0)?;
        if source.number(&stat_of(&opened)?) != number {
            return stale();
        }
        let opened = Arc::new(opened);
        let mut kept = source.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(number, Arc::clone(&opened));
        Ok(opened)
    }

    /// A file of any kind.
    pub(super) fn reach(&self, number: u64) -> Answer<Reached> {
        if number == ROOT {
            return Ok(Reached::Kept(self.directory(ROOT)?));
        }
        // Any of its names may have been taken from it in the source.
        for (parent, name) in self.nodes.names(number) {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(&*self.directory(parent)?, &*name, flags, Mode::empty()) {
                Ok(file) if self.source.number(&stat_of(&file)?) == number => {
                    return Ok(Reached::Named(file));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Or it was removed after someone found it.
        match self.files.find(|open| open.number == number) {
            Some(open) => Ok(Reached::Open(open)),
            None => self.nodes.held(number).map_or_else(stale, |held| Ok(Reached::Kept(held))),
        }
    }

    /// What the source says of a file.
    pub(super) fn stat(&self, number: u64, handle: Option<u64>) -> Answer<Statx> {
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
        stat_of(self.reach(number)?)
    }
}
