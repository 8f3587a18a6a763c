//! Ownership check of repositories and pool targets.
//!
//! A repository decides what repair writes into files, with which owner and mode. A process must therefore not use a
//! repository that another user can change: it would write that user's bytes with its own rights. The rule for a
//! directory or file of a repository: its owner is the effective user or root, and neither its group nor others can
//! write to it.
//!
//! A directory that only its owner can enter (mode `0700`, as Gabion makes them) seals everything beneath: other
//! users cannot reach it, so nothing beneath is checked. This also covers the directories of a pool's namespace,
//! which have the owners and modes of the user's own directories. Where the root is not sealed, each directory on the
//! way to a file is checked when it is first used.
//!
//! The environment variable [`TRUST`] names repositories that are used whoever owns them.

use super::{BENEATH, Kind, Stat, Tree, open_root, stat_of};
use rustix::fs::{Mode, OFlags, openat2};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Environment variable with paths, separated by `:`, of repositories and pool targets that are used whoever owns them.
pub const TRUST: &str = "GABION_TRUST_REPOSITORY";

/// Permission to write for the group and for others.
const WRITE_BY_OTHERS: u32 = 0o022;

/// Permission to enter a directory for the group and for others.
const ENTER_BY_OTHERS: u32 = 0o011;

/// Directories whose check is remembered; if there are more, the memory begins again.
const MOST_REMEMBERED: usize = 4096;

/// Why a directory or file of a repository is not used. Inside an [`io::Error`] of kind `PermissionDenied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untrusted {
    /// The repository or target.
    pub root: PathBuf,
    /// The directory or file: the root or something beneath.
    pub path: PathBuf,
    /// Its owner.
    pub uid: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Effective user of this process.
    pub user: u32,
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Untrusted { root, path, uid, mode, user } = self;
        let (root, path) = (root.display(), path.display());
        let remedy = if is_owner(*uid, *user) {
            write!(f, "{path} can be changed by other users (owner {uid}, mode {mode:04o})")?;
            format!("`chmod go-w '{path}'`")
        } else {
            write!(f, "{path} belongs to user {uid} (mode {mode:04o}), this process runs as user {user}")?;
            format!("`chown -R {user} '{root}'`")
        };
        write!(
            f,
            ". A repository decides what repair writes, so one that others control is not used. If you trust what is in it: {remedy}, \
             or set {TRUST}='{root}'"
        )
    }
}

impl std::error::Error for Untrusted {}

impl Untrusted {
    /// The refusal in an error, if it is one.
    pub fn of(error: &io::Error) -> Option<&Untrusted> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }
}

fn is_owner(uid: u32, user: u32) -> bool {
    // Root can change everything anyway.
    uid == user || uid == 0
}

/// Checks what is opened beneath one root.
#[derive(Debug)]
pub(super) struct Ownership {
    root: PathBuf,
    user: u32,
    /// The root is sealed: nothing beneath needs a check.
    sealed: bool,
    /// Directories that passed, and whether they or one above them are sealed. Only their owner could change that
    /// since.
    passed: Mutex<HashMap<Vec<u8>, bool>>,
}

impl Ownership {
    /// Checks a root. Nothing is returned for a root that the environment declares trusted.
    pub(super) fn of(root: &OwnedFd, path: &Path) -> io::Result<Option<Ownership>> {
        let user = rustix::process::geteuid().as_raw();
        let mut ownership =
            Ownership { root: path.to_owned(), user, sealed: false, passed: Mutex::default() };
        match ownership.check(b"", &stat_of(root)?) {
            Ok(sealed) => ownership.sealed = sealed,
            Err(_) if is_declared_trusted(path) => return Ok(None),
            Err(untrusted) => return Err(untrusted),
        }
        Ok(Some(ownership))
    }

    /// Whether `stat` is that of a sealed directory; an error if others can change it.
    fn check(&self, path: &[u8], stat: &Stat) -> io::Result<bool> {
        use std::os::unix::ffi::OsStrExt;
        let Stat { uid, mode, .. } = *stat;
        if !is_owner(uid, self.user) || mode & WRITE_BY_OTHERS != 0 {
            let root = self.root.clone();
            let path =
                if path.is_empty() { root.clone() } else { root.join(std::ffi::OsStr::from_bytes(path)) };
            let untrusted = Untrusted { root, path, uid, mode, user: self.user };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, untrusted));
        }
        Ok(stat.kind == Kind::Directory && mode & ENTER_BY_OTHERS == 0)
    }

    /// Checks the directories that lead to `directory`, which is a path beneath the root. True if one of them is
    /// sealed. A directory that is absent is no error here.
    pub(super) fn check_way(&self, root: &OwnedFd, directory: &[u8]) -> io::Result<bool> {
        if self.sealed || directory.is_empty() {
            return Ok(self.sealed);
        }
        let is_known =
            |part: &[u8]| self.passed.lock().unwrap_or_else(PoisonError::into_inner).get(part).copied();
        // Those above it passed before it did.
        if let Some(sealed) = is_known(directory) {
            return Ok(sealed);
        }
        let ends = (0..directory.len()).filter(|&at| directory[at] == b'/').chain([directory.len()]);
        for end in ends {
            let part = &directory[..end];
            let sealed = match is_known(part) {
                Some(sealed) => sealed,
                None => {
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    // What is absent or no directory is reported by the call that wants it.
                    let Ok(found) = openat2(root, part, flags, Mode::empty(), BENEATH) else {
                        return Ok(false);
                    };
                    let sealed = self.check(part, &stat_of(&found)?)?;
                    self.remember(part, sealed);
                    sealed
                }
            };
            if sealed {
                self.remember(directory, true);
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn remember(&self, directory: &[u8], sealed: bool) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        if passed.len() >= MOST_REMEMBERED {
            passed.clear();
        }
        passed.insert(directory.to_vec(), sealed);
    }

    /// Checks a file that was opened, unless a sealed directory leads to it.
    pub(super) fn check_file(&self, root: &OwnedFd, path: &[u8], stat: &Stat) -> io::Result<()> {
        match self.check_way(root, super::split(path).0)? {
            true => Ok(()),
            false => self.check(path, stat).map(drop),
        }
    }
}

impl Tree {
    /// As [`open`](Tree::open), for a repository or a target of a pool: no other user may be able to change the root,
    /// nor any directory or file that is opened beneath it.
    ///
    /// # Errors
    /// Those of the operating system; [`Untrusted`] within an error of kind `PermissionDenied`.
    pub fn open_owned(root: &Path) -> io::Result<Tree> {
        let opened = open_root(root)?;
        let ownership = Ownership::of(&opened, root)?;
        Ok(Tree::at(opened, root, ownership))
    }

    /// As [`stat`](Tree::stat), for a file that no other user may be able to change, if this is a tree of that kind.
    ///
    /// # Errors
    /// Those of the operating system; [`Untrusted`].
    pub fn stat_owned(&self, path: &[u8]) -> io::Result<Stat> {
        let stat = self.stat(path)?;
        if let Some(ownership) = &self.0.ownership {
            ownership.check_file(&self.0.root, path, &stat)?;
        }
        Ok(stat)
    }
}

/// Checks a file or directory that is trusted like a repository and is no part of one, such as the pointer of a tree
/// to its repository: no other user may be able to change it, unless the environment declares it trusted.
///
/// # Errors
/// [`Untrusted`] within an error of kind `PermissionDenied`.
pub fn check_alone(path: &Path, uid: u32, mode: u32) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    if (is_owner(uid, user) && mode & WRITE_BY_OTHERS == 0) || is_declared_trusted(path) {
        return Ok(());
    }
    let untrusted =
        Untrusted { root: path.to_owned(), path: path.to_owned(), uid, mode: mode & 0o7777, user };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, untrusted))
}

fn is_declared_trusted(root: &Path) -> bool {
    let Some(declared) = std::env::var_os(TRUST) else { return false };
    let Ok(root) = std::fs::canonicalize(root) else { return false };
    // A vault lies beneath its target.
    std::env::split_paths(&declared)
        .filter_map(|path| std::fs::canonicalize(path).ok())
        .any(|trusted| root.starts_with(trusted))
}
