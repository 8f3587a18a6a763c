//! State of an open file that is not in its stub yet.

use super::lease::LeaseNumber;
use crate::geometry::merge;
use crate::storage::pool::stub::Stub;
use crate::tree::Generation;
use std::ops::Range;

/// Maximum number of written ranges that are remembered; beyond that they become one.
const MAX_PIECES: usize = 4096;

/// Maximum number of versions that are remembered.
const MAX_VERSIONS: usize = 64;

/// A previous version of a file, and the ranges written since.
#[derive(Debug, Clone)]
pub(super) struct PastVersion {
    pub(super) generation: Generation,
    written: Vec<Range<u64>>,
}

/// Ranges written since a version; none if the version is not known.
pub(super) fn written_since<'a>(
    versions: &'a [PastVersion],
    version: &Generation,
) -> Option<impl Iterator<Item = &'a Range<u64>>> {
    let mut same = versions.iter().filter(|known| known.generation.is_unwritten_since(version)).peekable();
    same.peek()?;
    Some(same.flat_map(|known| &known.written))
}

/// Whether names lead to an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    /// As far as is known.
    Linked,
    /// No known name leads to it.
    Nameless,
    /// This process removed its last name.
    Removed,
}

/// Present state of an open file.
#[derive(Debug)]
pub(super) struct OpenState {
    /// The stub that the present state corresponds to, size and times included.
    pub(super) stub: Stub,
    /// The stub on the mirrors differs.
    pub(super) dirty: bool,
    /// This process has marked the stub on the mirrors as `writing`.
    pub(super) marked_writing: bool,
    /// It was written since the last check.
    pub(super) recently_written: bool,
    /// Whether names lead to the file.
    pub(super) link: LinkState,
    /// The lease under which the stub was last seen on the mirrors.
    pub(super) seen: LeaseNumber,
    /// Set if another process moved the file: the name that its users know, and the path where it was found.
    pub(super) moved: Option<(Option<Vec<u8>>, Vec<u8>)>,
    versions: Vec<PastVersion>,
}

impl OpenState {
    pub(super) fn new(stub: Stub, marked: bool, seen: LeaseNumber) -> OpenState {
        OpenState {
            stub,
            dirty: false,
            marked_writing: marked,
            recently_written: false,
            link: LinkState::Linked,
            seen,
            moved: None,
            versions: Vec::new(),
        }
    }

    /// True if no known name leads to the file.
    pub(super) fn is_nameless(&self) -> bool {
        self.link != LinkState::Linked
    }

    /// Records that no known name leads to the file.
    pub(super) fn set_nameless(&mut self) {
        if self.link == LinkState::Linked {
            self.link = LinkState::Nameless;
        }
    }

    /// Adds versions that the present content corresponds to.
    pub(super) fn add_versions(&mut self, versions: impl IntoIterator<Item = Generation>) {
        for generation in versions {
            if self.versions.iter().all(|known| known.generation != generation) {
                self.versions.push(PastVersion { generation, written: Vec::new() });
            }
        }
        let surplus = self.versions.len().saturating_sub(MAX_VERSIONS);
        self.versions.drain(..surplus);
    }

    /// Records a written range, for all versions.
    pub(super) fn note_write(&mut self, range: Range<u64>) {
        for PastVersion { written, .. } in &mut self.versions {
            match written.last_mut() {
                Some(last) if last.start <= range.end && range.start <= last.end => {
                    *last = last.start.min(range.start)..last.end.max(range.end);
                }
                _ => written.push(range.clone()),
            }
            if written.len() > MAX_PIECES {
                *written = merge(std::mem::take(written));
            }
            if let (true, Some(first), Some(last)) =
                (written.len() > MAX_PIECES, written.first().cloned(), written.last().cloned())
            {
                *written = std::iter::once(first.start..last.end).collect();
            }
        }
    }

    /// Ranges written since a version; none if the version is not known.
    fn written_since(&self, version: &Generation) -> Option<impl Iterator<Item = &Range<u64>>> {
        written_since(&self.versions, version)
    }

    /// True if any previous version is known.
    pub(super) fn has_versions(&self) -> bool {
        !self.versions.is_empty()
    }

    /// True if the ranges written since a version are known.
    pub(super) fn knows_version(&self, version: &Generation) -> bool {
        self.written_since(version).is_some()
    }

    /// True if a range is unchanged since a version, so that its redundancy covers the range.
    pub(super) fn is_unchanged_since(&self, version: &Generation, range: &Range<u64>) -> bool {
        let untouched = |written: &Range<u64>| written.end <= range.start || range.end <= written.start;
        self.written_since(version).is_some_and(|mut written| written.all(untouched))
    }

    /// Whether anything was written since a version, if that is known.
    pub(super) fn is_written_since(&self, version: &Generation) -> Option<bool> {
        self.written_since(version).map(|mut written| written.next().is_some())
    }

    /// The previous versions, to be remembered. The version of the stub without writes is left out.
    pub(super) fn versions(&self) -> Vec<PastVersion> {
        let now = self.stub.stat(0).generation();
        let is_previous = |version: &&PastVersion| version.generation != now || !version.written.is_empty();
        self.versions.iter().filter(is_previous).cloned().collect()
    }

    /// Restores remembered versions.
    pub(super) fn restore_versions(&mut self, versions: Vec<PastVersion>) {
        self.versions = versions;
    }
}

#[cfg(test)]
mod tests {
    use super::{LeaseNumber, OpenState};
    use crate::format::{FileId, Metadata};
    use crate::storage::pool::stub::Stub;
    use crate::tree::Generation;
    use crate::world::Timestamp;

    #[test]
    fn redundancy_covers_ranges_that_were_not_written_since() {
        let stub = Stub {
            id: FileId([1; 16]),
            revision: 1,
            size: 100,
            block: 64,
            mtime: Timestamp::EPOCH,
            changed: Timestamp::EPOCH,
            metadata: Metadata::default(),
            targets: vec!["d1".parse().unwrap()],
            link: None,
            special: None,
            accessed: None,
            names: 0,
            writing: false,
        };
        let version = |mtime| {
            let (mtime, ctime) = (Timestamp::from_nanoseconds(mtime), Timestamp::EPOCH);
            Generation { size: 100, mtime, ctime, inode: 1 }
        };
        let mut state = OpenState::new(stub, false, LeaseNumber::NONE);
        state.add_versions([version(1)]);
        state.note_write(10..20);
        state.add_versions([version(2)]);
        state.note_write(20..30);
        state.note_write(90..95);
        assert!(
            state.is_unchanged_since(&version(1), &(0..10))
                && !state.is_unchanged_since(&version(1), &(15..16))
        );
        assert!(
            state.is_unchanged_since(&version(2), &(15..16))
                && !state.is_unchanged_since(&version(2), &(25..26))
        );
        assert!(!state.is_unchanged_since(&version(3), &(0..1)));
        assert!(
            state.is_unchanged_since(&version(2), &(30..90))
                && !state.is_unchanged_since(&version(2), &(30..91))
        );
        state.add_versions([version(4)]);
        let known = [1, 2, 3, 4].map(|mtime| state.is_written_since(&version(mtime)));
        assert_eq!(known, [Some(true), Some(true), None, Some(false)]);
        // Other permissions and names leave the content as it is.
        let renamed = Generation { ctime: Timestamp::from_nanoseconds(7), ..version(2) };
        assert!(
            state.is_unchanged_since(&renamed, &(15..16)) && !state.is_unchanged_since(&renamed, &(25..26))
        );
        // The versions survive closing and opening the file.
        let mut later = OpenState::new(state.stub.clone(), false, LeaseNumber::NONE);
        later.restore_versions(state.versions());
        assert!(
            later.is_unchanged_since(&version(2), &(15..16))
                && !later.is_unchanged_since(&version(2), &(25..26))
        );
    }
}
