//! The watched tree, and the paths of directories that the kernel identifies by handles.

use super::calls::{handle_of, open_by_handle};
use super::wire::{EntryName, Handle};
use crate::event::{SourceError, is_own, join};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Capacity of the path cache; when it is full, it is cleared.
const MAX_REMEMBERED: usize = 1 << 16;

/// Attempts to resolve the path of a directory that is moved at the same time.
const TRIES: u32 = 3;

/// Paths are resolved beneath the root, without symbolic links.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// The watched tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    path: PathBuf,
    /// Directories of this name are excluded at every level.
    own: Vec<u8>,
    /// Paths of directories by handle; `None` for those outside the tree.
    remembered: Remembered,
}

type Remembered = HashMap<Box<[u8]>, Option<Box<[u8]>>>;

/// Location of a directory.
pub(super) enum DirLocation {
    /// Its path within the tree.
    Inside(Vec<u8>),
    /// Elsewhere on the file system, or excluded.
    Outside,
    /// Removed.
    Gone,
    /// It cannot be determined.
    Unknown,
}

/// Reason why the path of a name cannot be determined.
pub(super) enum PathError {
    Gone,
    Unknown,
}

impl Tree {
    pub(super) fn open_root(root: &Path, own: &[u8]) -> Result<Tree, SourceError> {
        // Marks and handles need a descriptor that was opened without `O_PATH`.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(root, flags, Mode::empty())
            .map_err(|error| SourceError::Io { path: root.to_owned(), source: error.into() })?;
        Ok(Tree { root: opened, path: root.to_owned(), own: own.to_vec(), remembered: HashMap::new() })
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The root as the user gave it, for messages.
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

    /// Clears the path cache: paths below a moved directory are stale.
    pub(super) fn forget(&mut self) {
        self.remembered.clear();
    }

    /// Checks that handles can be opened, which would otherwise fail only with the first event.
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

    /// Location of the directory of a handle, cached.
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

    /// Location of an open directory.
    pub(super) fn whereabouts(&self, directory: &OwnedFd) -> DirLocation {
        for _ in 0..TRIES {
            match self.place(directory) {
                Ok(Some(found)) => return found,
                // It was moved meanwhile.
                Ok(None) => {}
                // Its path exceeds the longest that the kernel reports.
                Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                    return self.place_without_path(directory).unwrap_or(DirLocation::Unknown);
                }
                Err(_) => return DirLocation::Unknown,
            }
        }
        // Repeated moves cause events of their own; a directory hidden under a mount is not part of the tree.
        DirLocation::Outside
    }

    /// Location of an open directory; `None` if its path has changed meanwhile.
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
        let name = if below.is_empty() { b"." } else { below };
        let open = |resolve| openat2(&self.root, name, flags, Mode::empty(), resolve);
        match open(BENEATH) {
            Ok(again) => Ok((identity(&again)? == expected).then(|| DirLocation::Inside(below.to_vec()))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN) => Ok(None),
            // A file system that is mounted above the directory may refuse.
            Err(_) if matches!(open(BENEATH | ResolveFlags::NO_XDEV), Err(Errno::XDEV)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Location of an open directory whose path cannot be read; what is in the tree is `Unknown`.
    fn place_without_path(&self, directory: &OwnedFd) -> io::Result<DirLocation> {
        Ok(match self.is_inside(directory)? {
            false => DirLocation::Outside,
            true if identity(directory)?.3 == 0 => DirLocation::Gone,
            true => DirLocation::Unknown,
        })
    }

    /// True if the directory is in the tree, found by walking up its parents.
    fn is_inside(&self, directory: &OwnedFd) -> io::Result<bool> {
        let mut directory = directory.try_clone()?;
        let (root, mut here) = (identity(&self.root)?, identity(&directory)?);
        loop {
            if (here.0, here.1, here.2) == (root.0, root.1, root.2) {
                return Ok(true);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = match rustix::fs::openat(&directory, c"..", flags, Mode::empty()) {
                Ok(parent) => parent,
                // It is outside the part of the file system that is mounted, and the tree is within that part.
                Err(Errno::NOENT) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let above = identity(&directory)?;
            // Only the root directory is its own parent.
            if (above.0, above.1, above.2) == (here.0, here.1, here.2) {
                return Ok(false);
            }
            here = above;
        }
    }

    /// The path of a name; `None` outside the tree, an error if it cannot be determined.
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
