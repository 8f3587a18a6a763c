//! The tree that is watched, and where in it a directory is that the kernel names by its handle.

use super::calls::{handle_of, open_by_handle};
use super::wire::{EntryName, Handle};
use crate::event::{SourceError, is_own, join};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories whose paths are remembered; when there are more, all are forgotten and found again.
const MAX_REMEMBERED: usize = 1 << 16;

/// How often a directory is looked for that is moved while we look.
const TRIES: u32 = 3;

/// Paths of the tree are what they seem: no way out of it by a link.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The tree that is watched.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// Directories of this name are not part of the tree, wherever they are.
    own: Vec<u8>,
    /// Paths of directories by their handles; nothing for those outside.
    remembered: Remembered,
}

type Remembered = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Where a directory is.
pub(super) enum DirLocation {
    /// Its path within the tree.
    Inside(Vec<u8>),
    /// Elsewhere on the file system, or of ours.
    Outside,
    /// It is gone.
    Gone,
    /// Nobody can say.
    Unknown,
}

/// Why a name has no path.
pub(super) enum PathError {
    Gone,
    Unknown,
}

impl Tree {
    pub(super) fn open_root(root: &Path, own: &[u8]) -> Result<Tree, SourceError> {
        // Marks and handles need a real descriptor, not one that is only a path.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|error| SourceError::Io { path: root.to_owned(), source: error.into() })?;
        Ok(Tree { root: opened, path: root.to_owned(), own: own.to_vec(), remembered: HashMap::new() })
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The root as the user calls it.
    pub(super) fn shown(&self) -> &Path {
        &self.path
    }

    pub(super) fn own(&self) -> &[u8] {
        &self.own
    }

    /// Opens a directory of the tree that is not under another mount.
    pub(super) fn open(&self, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = if path.is_empty() { b"." } else { path };
        openat2(&self.root, path, flags, Mode::empty(), BENEATH | ResolveFlags::NO_XDEV)
    }

    /// Forgets all paths: those in a directory that was moved are no longer so.
    pub(super) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// Handles that cannot be opened would be heard of only with the first event.
    pub(super) fn check_handles(&self) -> Result<(), SourceError> {
        let call = "open_by_handle_at";
        let check = || {
            let (kind, bytes) = handle_of(&self.root)?;
            open_by_handle(&self.root, Handle { kind, bytes: &bytes }).map(drop)
        };
        check().map_err(|source| match source.raw_os_error() {
            Some(libc::EPERM) => SourceError::Rights { call, source },
            _ => SourceError::Unsupported { call, root: self.path.clone(), source },
        })
    }

    /// Where a directory is.
    fn find(&mut self, handle: Handle<'_>) -> DirLocation {
        let key = handle.key();
        if let Some(known) = self.remembered.get(&*key) {
            return known.as_ref().map_or(DirLocation::Outside, |path| DirLocation::Inside(path.to_vec()));
        }
        let found = self.look(handle);
        let remember = match &found {
            DirLocation::Inside(path) => Some(path.clone().into_boxed_slice()),
            DirLocation::Outside => None,
            DirLocation::Gone | DirLocation::Unknown => return found,
        };
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.clear();
        }
        self.remembered.insert(key, remember);
        found
    }

    fn look(&self, handle: Handle<'_>) -> DirLocation {
        let directory = match open_by_handle(&self.root, handle) {
            Ok(directory) => directory,
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return DirLocation::Gone,
            Err(_) => return DirLocation::Unknown,
        };
        self.whereabouts(&directory)
    }

    /// Where an open directory is.
    pub(super) fn whereabouts(&self, directory: &OwnedFd) -> DirLocation {
        for _ in 0..TRIES {
            match self.place(directory) {
                Ok(Some(found)) => return found,
                // It was moved while we looked.
                Ok(None) => {}
                // Its path is longer than what the system tells. Elsewhere that is nothing to us.
                Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                    let inside = self.is_inside(directory).unwrap_or(true);
                    return if inside { DirLocation::Unknown } else { DirLocation::Outside };
                }
                Err(_) => return DirLocation::Unknown,
            }
        }
        // Whoever moves it all the time is heard of; what is hidden under a mount is not part of the tree.
        DirLocation::Outside
    }

    /// Where an open directory is; nothing if its path is not its own any more.
    fn place(&self, directory: &OwnedFd) -> io::Result<Option<DirLocation>> {
        let (path, root) = (path_of(directory)?, path_of(&self.root)?);
        let expected = identity(directory)?;
        if expected.3 == 0 {
            return Ok(Some(DirLocation::Gone));
        }
        let below = match (path.strip_prefix(&root[..]), &root[..]) {
            (Some(rest), b"/") => rest,
            (Some([]), _) => b"",
            (Some([b'/', rest @ ..]), _) => rest,
            _ => return Ok(Some(DirLocation::Outside)),
        };
        if below.split(|&byte| byte == b'/').any(|name| is_own(name, &self.own)) {
            return Ok(Some(DirLocation::Outside));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let again = if below.is_empty() { b"." } else { below };
        let Ok(again) = openat2(&self.root, again, flags, Mode::empty(), BENEATH) else { return Ok(None) };
        Ok((identity(&again)? == expected).then(|| DirLocation::Inside(below.to_vec())))
    }

    /// Whether the tree has a directory, by those above it.
    fn is_inside(&self, directory: &OwnedFd) -> io::Result<bool> {
        let mut directory = directory.try_clone()?;
        let (root, mut here) = (identity(&self.root)?, identity(&directory)?);
        loop {
            if (here.0, here.1, here.2) == (root.0, root.1, root.2) {
                return Ok(true);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = rustix::fs::openat(&directory, c"..", flags, Mode::empty())?;
            let above = identity(&directory)?;
            // Only the topmost is above itself.
            if (above.0, above.1, above.2) == (here.0, here.1, here.2) {
                return Ok(false);
            }
            here = above;
        }
    }

    /// The path of a name; nothing outside of the tree, nothing at all where nobody can say.
    pub(super) fn path(&mut self, place: EntryName<'_>) -> Result<Option<Vec<u8>>, PathError> {
        match self.find(place.directory) {
            DirLocation::Inside(_) if is_own(place.name, &self.own) => Ok(None),
            DirLocation::Inside(directory) => Ok(Some(join(&directory, place.name))),
            DirLocation::Outside => Ok(None),
            DirLocation::Gone => Err(PathError::Gone),
            DirLocation::Unknown => Err(PathError::Unknown),
        }
    }
}

fn identity(file: &OwnedFd) -> io::Result<(u32, u32, u64, u32)> {
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::INO | StatxFlags::NLINK)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino, stat.stx_nlink))
}

fn path_of(file: &OwnedFd) -> io::Result<Vec<u8>> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    Ok(link.as_os_str().as_bytes().to_vec())
}
