//! Changes that a monitor records.

use crate::error::{Error, PathFault, Result};
use crate::ranges::WHOLE;
use gabion_platform::world::Timestamp;
use std::ops::Range;
use std::time::Duration;

/// Longest path in bytes, as in Linux.
pub const MAX_PATH: usize = 4096;

/// A change of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of change.
    pub what: What,
    /// Its times and priority.
    pub when: When,
}

/// Kind of a change. Paths are bytes relative to the protected root, their parts separated by one `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Bytes were written, or the file was created or truncated ([`WHOLE`]).
    Modify {
        /// The file.
        path: Vec<u8>,
        /// The bytes.
        range: Range<u64>,
        /// Versions between which nothing else was written, if they are known.
        span: Option<Span>,
        /// A window in which this was written, in a deployment of several hosts.
        window: Option<Window>,
    },
    /// A file or a directory was renamed, over whatever had the new name.
    Rename {
        /// The old path.
        from: Vec<u8>,
        /// The new path.
        to: Vec<u8>,
    },
    /// A file, or a directory with everything beneath it, was deleted. An empty path: everything was.
    Delete {
        /// The path.
        path: Vec<u8>,
    },
    /// Events were lost: everything at and beneath this path must be reconciled by a scan.
    Gap {
        /// The path; empty for everything.
        root: Vec<u8>,
    },
}

/// Name of a version of a file, which no other version has. The changelog only compares them.
pub type VersionName = [u8; 16];

/// Two versions of a file, all bytes written between them being in the ranges of the change or entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The version before the first write.
    pub from: VersionName,
    /// The version after the last write.
    pub to: VersionName,
}

impl Span {
    /// The span of an entry after a change: both, if the second begins where the first one ends, otherwise the later
    /// one. The ranges of an entry are those of all its changes, so either is true of them.
    pub(crate) fn join(before: Option<Span>, change: Option<Span>) -> Option<Span> {
        match (before, change) {
            (Some(before), Some(change)) if before.to == change.from => {
                Some(Span { from: before.from, to: change.to })
            }
            (before, change) => change.or(before),
        }
    }
}

/// Versions that a mount saw before and after it wrote to a file ([`windows`](crate::windows)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The version before the first write.
    pub from: VersionName,
    /// The version after the last write.
    pub to: VersionName,
    /// The last tick of which the mount had heard before the first write.
    pub since: u64,
}

/// Times of a change, all from the clock of the host that saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When {
    /// When it happened.
    pub at: Timestamp,
    /// Not claimed before: the file has to rest first.
    pub due: Timestamp,
    /// Due by then, however often the file changes again.
    pub latest: Timestamp,
    /// Higher goes first.
    pub priority: u8,
}

impl When {
    /// Due at once.
    pub fn now(at: Timestamp, priority: u8) -> When {
        When { at, due: at, latest: at, priority }
    }

    /// Due when the file has rested for `quiet`, but no later than after `cap`.
    pub fn after_rest(at: Timestamp, quiet: Duration, cap: Duration, priority: u8) -> When {
        When { at, due: at + quiet, latest: at + cap, priority }
    }
}

impl Change {
    /// Bytes of a file changed.
    pub fn modify(path: impl Into<Vec<u8>>, range: Range<u64>, when: When) -> Change {
        Change { what: What::Modify { path: path.into(), range, span: None, window: None }, when }
    }

    /// The same modification with the versions before and after it.
    #[must_use]
    pub fn between(mut self, versions: Option<Span>) -> Change {
        if let What::Modify { span, .. } = &mut self.what {
            *span = versions;
        }
        self
    }

    /// The same modification in a window.
    #[must_use]
    pub fn within(mut self, seen: Window) -> Change {
        if let What::Modify { window, .. } = &mut self.what {
            *window = Some(seen);
        }
        self
    }

    /// A file appeared, or changed as a whole.
    pub fn modify_whole(path: impl Into<Vec<u8>>, when: When) -> Change {
        Change::modify(path, WHOLE, when)
    }

    /// A file or directory was renamed.
    pub fn rename(from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>, when: When) -> Change {
        Change { what: What::Rename { from: from.into(), to: to.into() }, when }
    }

    /// A file or directory was deleted.
    pub fn delete(path: impl Into<Vec<u8>>, when: When) -> Change {
        Change { what: What::Delete { path: path.into() }, when }
    }

    /// Events were lost at and beneath a path.
    pub fn gap(root: impl Into<Vec<u8>>, when: When) -> Change {
        Change { what: What::Gap { root: root.into() }, when }
    }

    /// # Errors
    /// A path that no file can have, an empty range, a rename into itself.
    pub fn check(&self) -> Result<()> {
        match &self.what {
            What::Modify { path, range, .. } => {
                check_file(path)?;
                if range.is_empty() {
                    return Err(Error::Range { start: range.start, end: range.end });
                }
            }
            What::Rename { from, to } => {
                check_file(from)?;
                check_file(to)?;
                if from != to && (is_within(from, to) || is_within(to, from)) {
                    return Err(Error::Nested { from: from.len(), to: to.len() });
                }
            }
            What::Delete { path } | What::Gap { root: path } => check_path(path)?,
        }
        Ok(())
    }
}

fn check_file(path: &[u8]) -> Result<()> {
    if path.is_empty() {
        return Err(Error::Path { length: 0, why: PathFault::Root });
    }
    check_path(path)
}

/// True if no part of a path leads elsewhere. Paths of entries may be longer than those of changes.
pub(crate) fn is_plain(path: &[u8]) -> bool {
    let plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    path.is_empty() || !path.contains(&0) && path.split(|&byte| byte == b'/').all(plain)
}

fn check_path(path: &[u8]) -> Result<()> {
    let why = if path.len() > MAX_PATH {
        PathFault::TooLong
    } else if path.contains(&0) {
        PathFault::Zero
    } else if !is_plain(path) {
        PathFault::NotPlain
    } else {
        return Ok(());
    };
    Err(Error::Path { length: path.len(), why })
}

/// True if `path` is `tree` or lies beneath it.
pub fn is_within(path: &[u8], tree: &[u8]) -> bool {
    match path.strip_prefix(tree) {
        Some(rest) => tree.is_empty() || rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// The directories above `path`, the nearest first, the root (the empty path) last.
pub(crate) fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => Some(&path[..slash]),
        None if path.is_empty() => None,
        None => Some(&path[..0]),
    })
    .skip(1)
}

#[cfg(test)]
mod tests {
    use super::{Change, MAX_PATH, When, above, is_within};
    use crate::error::{Error, PathFault};
    use gabion_platform::world::Timestamp;

    #[test]
    fn within_goes_by_parts() {
        assert!(is_within(b"a/b", b"a") && is_within(b"a", b"a") && is_within(b"a", b""));
        assert!(!is_within(b"ab", b"a") && !is_within(b"a", b"a/b"));
    }

    #[test]
    fn above_ends_with_the_root() {
        assert_eq!(above(b"a/b/c").collect::<Vec<_>>(), [&b"a/b"[..], b"a", b""]);
        assert_eq!(above(b"").count(), 0);
    }

    #[test]
    fn paths_that_no_file_can_have_are_refused() {
        let when = When::now(Timestamp::EPOCH, 0);
        let long = vec![b'x'; MAX_PATH + 1];
        let cases: &[(&[u8], PathFault)] = &[
            (b"", PathFault::Root),
            (b"/a", PathFault::NotPlain),
            (b"a/", PathFault::NotPlain),
            (b"a//b", PathFault::NotPlain),
            (b"a/../b", PathFault::NotPlain),
            (b"a\0", PathFault::Zero),
            (&long, PathFault::TooLong),
        ];
        for &(path, fault) in cases {
            match Change::modify_whole(path, when).check() {
                Err(Error::Path { length, why }) => assert_eq!((length, why), (path.len(), fault)),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(Change::modify("a", 4..4, when).check(), Err(Error::Range { start: 4, end: 4 })));
        assert!(matches!(Change::rename("a", "a/b", when).check(), Err(Error::Nested { from: 1, to: 3 })));
        assert!(Change::gap("", when).check().is_ok());
        assert!(Change::modify_whole(&b"\xff\n ..a"[..], when).check().is_ok());
    }
}
