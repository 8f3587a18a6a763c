//! Directory tree whose paths cannot lead out of it.
//!
//! Paths are bytes relative to the root. The kernel resolves them beneath the root and refuses symbolic links on the
//! way (`openat2`), so neither a hostile name nor a link that is created meanwhile can lead elsewhere. The length
//! limit of a path counts from the root.

mod durable;
mod ownership;
mod stat;

pub use ownership::{TRUST, Untrusted, check_alone};
use stat::stat_at;
pub use stat::stat_of;

use crate::world::Timestamp;
use ownership::Ownership;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, linkat, mkdirat, openat2, renameat,
    renameat_with, unlinkat,
};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A tree; cheap to clone.
#[derive(Debug, Clone)]
pub struct Tree(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: OwnedFd,
    path: PathBuf,
    /// Set for trees that only this user may be able to change.
    ownership: Option<Ownership>,
    /// Type of the root's file system, once it was read.
    file_system: OnceLock<i64>,
}

/// True if `path` is `below` or beneath it.
pub fn is_below(path: &[u8], below: &[u8]) -> bool {
    match path.strip_prefix(below) {
        Some(rest) => below.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket, a pipe, a device.
    Special,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its type.
    pub kind: Kind,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of its content.
    pub mtime: Timestamp,
    /// Time of the last change of anything in it.
    pub ctime: Timestamp,
    /// Number of its inode.
    pub inode: u64,
    /// The file system it is on.
    pub device: u64,
    /// Number of hard links.
    pub links: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Allocated bytes on the disk.
    pub allocated: u64,
    /// Time of creation, if the file system records it.
    pub birth: Option<Timestamp>,
}

/// Version of a file: equal before and after reading, and later, as long as it is that version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation {
    /// Bytes.
    pub size: u64,
    /// Time of the last change of the content.
    pub mtime: Timestamp,
    /// Time of the last change of anything.
    pub ctime: Timestamp,
    /// Number of the inode.
    pub inode: u64,
}

impl Generation {
    /// True if size, mtime and inode are equal: no write between the two. Renames and chmod change the ctime alone.
    pub fn is_unwritten_since(&self, other: &Generation) -> bool {
        (self.size, self.mtime, self.inode) == (other.size, other.mtime, other.inode)
    }

    /// Whether size and mtime are the same: the version of the content in a plain directory.
    pub fn is_same_content(&self, other: &Generation) -> bool {
        (self.size, self.mtime) == (other.size, other.mtime)
    }
}

impl Stat {
    /// The version that this is.
    pub fn generation(&self) -> Generation {
        Generation { size: self.size, mtime: self.mtime, ctime: self.ctime, inode: self.inode }
    }
}

fn kind(file: FileType) -> Kind {
    match file {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Special,
    }
}

/// The names in a directory, in the order of their bytes. Names lie in one piece, so that a directory with a million
/// of them fits in little memory.
#[derive(Debug, Default)]
pub struct Names {
    bytes: Vec<u8>,
    /// Start, length, and what the directory says the name stands for (it need not say).
    entries: Vec<(u32, u16, Option<Kind>)>,
}

impl Names {
    fn push(&mut self, name: &[u8], kind: Option<Kind>) -> io::Result<()> {
        let start =
            u32::try_from(self.bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.bytes.extend_from_slice(name);
        self.entries.push((start, name.len() as u16, kind));
        Ok(())
    }

    fn name(&self, (start, len, _): (u32, u16, Option<Kind>)) -> &[u8] {
        &self.bytes[start as usize..start as usize + len as usize]
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|&a, &b| self.name(a).cmp(self.name(b)));
        self.entries = entries;
    }

    /// Names from several sources: sorted, each once. Of a name that sources disagree about, nothing is told.
    ///
    /// # Errors
    /// More names than fit.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a [u8], Option<Kind>)>) -> io::Result<Names> {
        let mut names = Names::default();
        for (name, kind) in entries {
            names.push(name, kind)?;
        }
        names.sort();
        let mut entries: Vec<(u32, u16, Option<Kind>)> = Vec::with_capacity(names.entries.len());
        for &entry in &names.entries {
            match entries.last_mut() {
                Some(last) if names.name(*last) == names.name(entry) => {
                    last.2 = last.2.filter(|_| last.2 == entry.2);
                }
                _ => entries.push(entry),
            }
        }
        names.entries = entries;
        Ok(names)
    }

    /// Keeps the names that `wanted` says yes to.
    pub fn retain(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.retain(|&entry| wanted(self.name(entry)));
        self.entries = entries;
    }

    /// The name number `index`.
    pub fn get(&self, index: usize) -> Option<(&[u8], Option<Kind>)> {
        self.entries.get(index).map(|&entry| (self.name(entry), entry.2))
    }

    /// All names in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<Kind>)> {
        self.entries.iter().map(|&entry| (self.name(entry), entry.2))
    }
}

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Bytes of a path that are handed to the kernel at once.
const MAX_AT_ONCE: usize = 2048;

/// Opens a path of any length beneath a directory, without following links.
///
/// # Errors
/// Those of the operating system.
pub fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(mode);
    // The kernel limits the length of one call. A path may be longer, by the prefix within the repository, or because
    // programs created it step by step.
    let mut reached: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > MAX_AT_ONCE {
        let Some(cut) = rest[..MAX_AT_ONCE].iter().rposition(|&byte| byte == b'/') else { break };
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let from = reached.as_ref().unwrap_or(root);
        reached = Some(openat2(from, &rest[..cut], directory, Mode::empty(), BENEATH)?);
        rest = &rest[cut + 1..];
    }
    let rest = if rest.is_empty() { b"." } else { rest };
    let from = reached.as_ref().unwrap_or(root);
    Ok(openat2(from, rest, flags | OFlags::CLOEXEC, mode, BENEATH)?)
}

/// Directory and last name of a path.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// A name in a directory, as a path.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, name].join(&b'/') }
}

/// A directory of a tree, open: names in it are found without walking down to it again.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Directory {
    /// What the file system says of a name in it; a link is not followed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        stat_at(&self.0, name)
    }

    /// Its names, sorted.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn names(&self) -> io::Result<Names> {
        let mut names = Names::default();
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let told = Some(entry.file_type()).filter(|kind| *kind != FileType::Unknown).map(kind);
                names.push(name, told)?;
            }
        }
        names.sort();
        Ok(names)
    }
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(root, flags, Mode::empty())?)
}

impl Tree {
    /// The tree below `root`, which may itself be reached by links.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(root: &Path) -> io::Result<Tree> {
        Ok(Tree::at(open_root(root)?, root, None))
    }

    fn at(root: OwnedFd, path: &Path, ownership: Option<Ownership>) -> Tree {
        Tree(Arc::new(Shared { root, path: path.to_owned(), ownership, file_system: OnceLock::new() }))
    }

    /// Path of the root.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// A path with the root before it, for messages.
    pub fn shown(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        if path.is_empty() {
            self.0.path.clone()
        } else {
            self.0.path.join(std::ffi::OsStr::from_bytes(path))
        }
    }

    fn open_with(&self, path: &[u8], flags: OFlags, mode: u32) -> io::Result<OwnedFd> {
        if let Some(ownership) = &self.0.ownership {
            let directory = if flags.contains(OFlags::DIRECTORY) { path } else { split(path).0 };
            ownership.check_way(&self.0.root, directory)?;
        }
        open_beneath(&self.0.root, path, flags, mode)
    }

    /// The directory that `path` is in, for operations on its last name.
    fn parent(&self, path: &[u8]) -> io::Result<OwnedFd> {
        // Only `openat2` keeps a path beneath the root; the calls that take the last name would follow these.
        if path.starts_with(b"/") || matches!(split(path).1, b"" | b"." | b"..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.open_with(split(path).0, OFlags::PATH | OFlags::DIRECTORY, 0)
    }

    /// Opens a directory of the tree.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn directory(&self, path: &[u8]) -> io::Result<Directory> {
        Ok(Directory(self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?))
    }

    /// Opens a regular file for reading; never blocks on a pipe.
    ///
    /// # Errors
    /// Those of the operating system; [`io::ErrorKind::InvalidInput`] for what is no regular file.
    pub fn read(&self, path: &[u8]) -> io::Result<File> {
        self.regular(path, self.open_with(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, 0)?)
    }

    /// Opens a regular file for reading and writing in place.
    ///
    /// # Errors
    /// As [`read`](Tree::read).
    pub fn write(&self, path: &[u8]) -> io::Result<File> {
        self.regular(path, self.open_with(path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY, 0)?)
    }

    fn regular(&self, path: &[u8], file: OwnedFd) -> io::Result<File> {
        let stat = stat_of(&file)?;
        if stat.kind != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        if let Some(ownership) = &self.0.ownership {
            ownership.check_file(&self.0.root, path, &stat)?;
        }
        Ok(File::from(file))
    }

    /// Opens a regular file for reading and writing; creates it if it is absent.
    ///
    /// # Errors
    /// As [`read`](Tree::read) and [`create`](Tree::create).
    pub fn write_or_create(&self, path: &[u8], mode: u32) -> io::Result<File> {
        match self.create(path, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.write(path),
            made => made,
        }
    }

    /// Creates a file that does not exist.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn create(&self, path: &[u8], mode: u32) -> io::Result<File> {
        crate::fault::point();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        Ok(File::from(self.open_with(path, flags, mode)?))
    }

    /// What the file system says of a path; a link is not followed.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn stat(&self, path: &[u8]) -> io::Result<Stat> {
        if path.is_empty() {
            return stat_of(&self.0.root);
        }
        let (directory, name) = split(path);
        if path.starts_with(b"/") || matches!(name, b"" | b"." | b"..") {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match directory.is_empty() {
            true => stat_at(&self.0.root, name),
            // Where nothing is, this is one call; with the directory opened first it would be three.
            false => stat_of(self.open_with(path, OFlags::PATH | OFlags::NOFOLLOW, 0)?),
        }
    }

    /// As [`stat`](Tree::stat); none if the path is absent.
    ///
    /// # Errors
    /// Other errors of the operating system.
    pub fn find(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        absent_is_none(self.stat(path))
    }

    /// Creates a directory and its parents.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn make_directories(&self, path: &[u8], mode: u32) -> io::Result<()> {
        if path.is_empty() || self.find(path)?.is_some_and(|stat| stat.kind == Kind::Directory) {
            return Ok(());
        }
        let (above, name) = split(path);
        self.make_directories(above, mode)?;
        crate::fault::point();
        match mkdirat(self.parent(path)?, name, Mode::from_raw_mode(mode)) {
            Err(rustix::io::Errno::EXIST) if self.stat(path)?.kind == Kind::Directory => Ok(()),
            made => Ok(made?),
        }
    }

    /// Renames a file or directory within the tree, replacing the target.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        crate::fault::point();
        Ok(renameat(self.parent(from)?, split(from).1, self.parent(to)?, split(to).1)?)
    }

    /// As [`rename`](Tree::rename), for a file that need not survive a crash of the machine: some file systems write
    /// a file out before a rename replaces another. A process that is killed in between leaves the old file at
    /// `from`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn supplant(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        crate::fault::point();
        use rustix::io::Errno;
        let (old, new) = (self.parent(from)?, self.parent(to)?);
        let (from, to) = (split(from).1, split(to).1);
        match renameat_with(&old, from, &new, to, RenameFlags::EXCHANGE) {
            Ok(()) => {
                crate::fault::point();
                Ok(unlinkat(old, from, AtFlags::empty())?)
            }
            // The target is absent, or the file system has no exchange.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => Ok(renameat(old, from, new, to)?),
            Err(error) => Err(error.into()),
        }
    }

    /// As [`rename`](Tree::rename), but never replaces the target.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`], others of the operating system.
    pub fn rename_new(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        crate::fault::point();
        let flags = RenameFlags::NOREPLACE;
        Ok(renameat_with(self.parent(from)?, split(from).1, self.parent(to)?, split(to).1, flags)?)
    }

    /// Exchanges two names in one step.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn exchange(&self, one: &[u8], other: &[u8]) -> io::Result<()> {
        crate::fault::point();
        let flags = RenameFlags::EXCHANGE;
        Ok(renameat_with(self.parent(one)?, split(one).1, self.parent(other)?, split(other).1, flags)?)
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn link(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        crate::fault::point();
        Ok(linkat(self.parent(from)?, split(from).1, self.parent(to)?, split(to).1, AtFlags::empty())?)
    }

    /// Removes a file; an absent one is no error.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn remove(&self, path: &[u8]) -> io::Result<()> {
        crate::fault::point();
        let removed =
            self.parent(path).and_then(|parent| Ok(unlinkat(parent, split(path).1, AtFlags::empty())?));
        absent_is_none(removed).map(|_| ())
    }

    /// Removes a file, unless its file system turned read-only. True if it is gone.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn remove_if_writable(&self, path: &[u8]) -> io::Result<bool> {
        match self.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Removes a directory if it is empty, then its parents that became empty, up to `keep`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn remove_empty(&self, path: &[u8], keep: &[u8]) -> io::Result<()> {
        crate::fault::point();
        use rustix::io::Errno;
        let mut path = path;
        while path != keep && !path.is_empty() {
            let parent = absent_is_none(self.parent(path))?;
            match parent.map(|parent| unlinkat(parent, split(path).1, AtFlags::REMOVEDIR)) {
                Some(Ok(()) | Err(Errno::NOENT)) | None => path = split(path).0,
                // A directory that is not empty, or a file that took its place.
                Some(Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR)) => return Ok(()),
                Some(Err(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Opens a directory as a file, to lock it.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn read_directory(&self, path: &[u8]) -> io::Result<File> {
        Ok(self.open_with(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?.into())
    }

    /// Type of the root's file system, from `statfs`.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn file_system(&self) -> io::Result<i64> {
        if let Some(&known) = self.0.file_system.get() {
            return Ok(known);
        }
        let found = rustix::fs::fstatfs(&self.0.root)?.f_type;
        Ok(*self.0.file_system.get_or_init(|| found))
    }

    /// True if the file system of the root is read-only.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn is_read_only(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstatvfs(&self.0.root)?.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    }

    /// The error that a write to `name` would give, if that can be known without writing; for `.`, creating files in
    /// the root.
    ///
    /// # Errors
    /// Those of the operating system; nothing of that name is no error.
    pub fn refusal_to_write(&self, name: &str) -> io::Result<Option<io::Error>> {
        use rustix::fs::{Access, accessat};
        use rustix::io::Errno;
        match accessat(&self.0.root, name, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) | Err(Errno::NOENT) => Ok(None),
            Err(refusal @ (Errno::ROFS | Errno::ACCESS | Errno::PERM)) => Ok(Some(refusal.into())),
            Err(error) => Err(error.into()),
        }
    }

    /// Free and total bytes of the file system of the root.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn space(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstatvfs(&self.0.root)?;
        Ok((stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize)))
    }
}

/// Turns errors of absence into none.
///
/// # Errors
/// All others.
pub fn absent_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
