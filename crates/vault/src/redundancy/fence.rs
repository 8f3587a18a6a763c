//! Fence of a redundancy file: what one process replaces or removes is what it saw before, and nothing newer.
//!
//! A worker asks the changelog whether its claim still holds, and then renames its draft into place. If it is stalled in between for
//! longer than its lease, another worker protects a newer version of the file meanwhile, and the rename would put redundancy of
//! the old version over that of the new one. So the change compares what is there with what it saw, and nobody else changes the
//! name meanwhile: whoever replaces or removes a redundancy file locks its directory first, and waits for an update of that file in
//! place. Readers keep nobody waiting. A name that was free is taken without replacing anything.

use super::PartPath;
use crate::tree::{Kind, Stat, absent_is_none, split, stat_of};
use gabion_platform::lock::Lockable;
use std::io;

/// What was at a place when somebody began to work on it.
#[derive(Debug)]
pub(crate) struct Fence {
    seen: Option<Stat>,
    is_absent: bool,
}

/// How a new file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Nothing was there: it must not replace anything.
    New,
    /// It replaces what was there.
    Replacing,
}

impl Fence {
    /// Remembers what is there now. What cannot be looked at (an obstacle on the way) counts as nothing, and is not replaced.
    pub(crate) fn new(place: &PartPath) -> Fence {
        let found = place.tree.find(&place.path);
        Fence { is_absent: matches!(found, Ok(None)), seen: found.unwrap_or(None) }
    }

    /// Whether nothing was there for certain.
    pub(crate) fn saw_nothing(&self) -> bool {
        self.is_absent
    }

    /// Makes a change of the name if what is there is what was seen.
    ///
    /// # Errors
    /// [`superseded`] if it is not; what `change` says.
    pub(crate) fn pass<T>(
        &self,
        place: &PartPath,
        change: impl FnOnce(Way) -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(seen) = self.seen.filter(|seen| seen.kind == Kind::File) else {
            return match place.tree.find(&place.path)?.map(|found| found.kind) {
                None => change(Way::New),
                // It came since, and is not ours to replace.
                Some(Kind::File) => Err(superseded()),
                // An obstacle, which the operating system names.
                Some(_) => change(Way::Replacing),
            };
        };
        // File systems that cannot lock directories (NFS) are left with the comparison.
        let _alone = place.tree.read_directory(split(&place.path).0).and_then(Lockable::exclusive);
        let Some(file) = absent_is_none(place.tree.read(&place.path))? else {
            // It was removed meanwhile, with what it protected, or moved to where its file is now.
            return change(Way::New);
        };
        // Who updates it in place has an exclusive lock.
        let file = Lockable::shared(file)?;
        if !is_same(&seen, &stat_of(&file)?) {
            return Err(superseded());
        }
        change(Way::Replacing)
    }
}

/// An update in place changes its times, a file in the place of another has its own.
fn is_same(one: &Stat, other: &Stat) -> bool {
    let identity = |stat: &Stat| (stat.device, stat.inode, stat.size, stat.mtime, stat.ctime);
    identity(one) == identity(other)
}

/// Another process has made redundancy of this file since.
pub(crate) fn superseded() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "another process replaced it meanwhile")
}

/// Whether an error is [`superseded`].
pub(crate) fn is_superseded(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ResourceBusy
}
