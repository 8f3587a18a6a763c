//! Fence: a process replaces or removes only the redundancy file that it saw before, and nothing newer.
//!
//! A worker checks its claim in the changelog, then renames its draft into place. If it stalls in between for longer
//! than its lease, another worker may protect a newer version of the file, and the rename would replace redundancy of
//! the new version by that of the old one. The rename therefore compares the file with the one seen before, and locks:
//! a process that replaces or removes a redundancy file locks its directory first, and waits for in-place updates of
//! the file. Readers block no one. A free name is taken without replacing anything.

use super::{PATIENCE, PartPath};
use crate::tree::{Kind, Stat, absent_is_none, split, stat_of};
use gabion_platform::lock::Lockable;
use std::fs::File;
use std::io;

/// The file at a path when work on it began.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    seen: Option<Stat>,
    is_absent: bool,
}

/// How a new file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameChange {
    /// Nothing was there, and nothing may be replaced.
    Create,
    /// It replaces a file.
    Replace,
}

impl Fence {
    /// Records the present file. An obstacle counts as no file and is not replaced.
    pub(crate) fn new(place: &PartPath) -> Fence {
        let found = place.tree.find(&place.path);
        Fence { is_absent: matches!(found, Ok(None)), seen: found.unwrap_or(None) }
    }

    /// True if nothing was there for certain.
    pub(crate) fn was_absent(&self) -> bool {
        self.is_absent
    }

    /// True if the file is the one that was there.
    pub(crate) fn saw(&self, file: &File) -> io::Result<bool> {
        let now = stat_of(file)?;
        Ok(self.seen.is_some_and(|seen| is_same(&seen, &now)))
    }

    /// Runs `change` if the file is still the one seen.
    ///
    /// # Errors
    /// [`superseded`] if it is not; errors of `change`.
    pub(crate) fn pass<T>(
        &self,
        place: &PartPath,
        change: impl FnOnce(NameChange) -> io::Result<T>,
    ) -> io::Result<T> {
        self.pass_keeping(place, change).map(|(changed, _)| changed)
    }

    /// Like [`pass`](Fence::pass); also returns the file that was there. While it is open, its space is not freed.
    ///
    /// # Errors
    /// Those of `pass`.
    pub(crate) fn pass_keeping<T>(
        &self,
        place: &PartPath,
        change: impl FnOnce(NameChange) -> io::Result<T>,
    ) -> io::Result<(T, Option<Lockable>)> {
        let change = |way, file| change(way).map(|changed| (changed, file));
        let Some(seen) = self.seen.filter(|seen| seen.kind == Kind::File) else {
            return match place.tree.find(&place.path)?.map(|found| found.kind) {
                None => change(NameChange::Create, None),
                // A new file, which this process must not replace.
                Some(Kind::File) => Err(superseded()),
                // An obstacle, which the operating system will name.
                Some(_) => change(NameChange::Replace, None),
            };
        };
        // File systems that cannot lock directories (NFS) rely on the comparison alone.
        let directory = place.tree.read_directory(split(&place.path).0);
        let _alone = match directory.and_then(|it| Lockable::exclusive_within(it, PATIENCE)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            alone => alone.ok(),
        };
        let Some(file) = absent_is_none(place.tree.read(&place.path))? else {
            // It was removed meanwhile, with the file it protected, or moved to the present path of that file.
            return change(NameChange::Create, None);
        };
        // In-place updates hold an exclusive lock.
        let file = Lockable::shared_within(file, PATIENCE)?;
        if !is_same(&seen, &stat_of(&file)?) {
            return Err(superseded());
        }
        let changed = change(NameChange::Replace, Some(file))?;
        // Who waits for the lock looks at the name again. If this fails, they wait until the file is closed.
        let _ = changed.1.as_deref().map(File::unlock);
        Ok(changed)
    }
}

/// An in-place update changes the times; a replacement has other identity.
fn is_same(one: &Stat, other: &Stat) -> bool {
    let identity = |stat: &Stat| (stat.device, stat.inode, stat.size, stat.mtime, stat.ctime);
    identity(one) == identity(other)
}

/// Error: another process has updated the redundancy of this file.
pub(crate) fn superseded() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another process replaced it in the meantime")
}

/// True if an error is [`superseded`].
pub(crate) fn is_superseded(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}
