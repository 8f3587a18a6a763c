//! What is known of a file that is open, and not all in its stub yet.

use crate::geometry::merge;
use crate::storage::pool::stub::Stub;
use crate::tree::Generation;
use std::ops::Range;

/// Most pieces of a file that are remembered as written; beyond that they become one.
const MAX_PIECES: usize = 4096;

/// Most versions that are remembered.
const MAX_VERSIONS: usize = 64;

/// A version of the file, and what was written since.
#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) generation: Generation,
    written: Vec<Range<u64>>,
}

/// What was written since a version, piece by piece; nothing if that version is not known.
pub(super) fn written_since<'a>(
    versions: &'a [Version],
    version: &Generation,
) -> Option<impl Iterator<Item = &'a Range<u64>>> {
    let mut same = versions.iter().filter(|known| known.generation.is_unwritten_since(version)).peekable();
    same.peek()?;
    Some(same.flat_map(|known| &known.written))
}

/// A file as it is now.
#[derive(Debug)]
pub(super) struct State {
    /// What its stub would say, size and times included.
    pub(super) stub: Stub,
    /// The stub on the mirrors says something else.
    pub(super) dirty: bool,
    /// The stub on the mirrors says that it is being written, and we said so.
    pub(super) marked: bool,
    /// It was written since someone looked.
    pub(super) busy: bool,
    /// No name that we know leads to it.
    pub(super) gone: bool,
    /// We took its last name from it.
    pub(super) removed: bool,
    /// The lease under which the stub was last seen on the mirrors.
    pub(super) seen: u64,
    /// Another process moved the file: the name that its users know, and the path where it was found.
    pub(super) moved: Option<(Option<Vec<u8>>, Vec<u8>)>,
    versions: Vec<Version>,
}

impl State {
    pub(super) fn new(stub: Stub, marked: bool, seen: u64) -> State {
        State {
            stub,
            dirty: false,
            marked,
            busy: false,
            gone: false,
            removed: false,
            seen,
            moved: None,
            versions: Vec::new(),
        }
    }

    /// The content is that of these versions so far.
    pub(super) fn began_as(&mut self, versions: impl IntoIterator<Item = Generation>) {
        for generation in versions {
            if self.versions.iter().all(|known| known.generation != generation) {
                self.versions.push(Version { generation, written: Vec::new() });
            }
        }
        let surplus = self.versions.len().saturating_sub(MAX_VERSIONS);
        self.versions.drain(..surplus);
    }

    /// Bytes are other ones now.
    pub(super) fn wrote(&mut self, range: Range<u64>) {
        for Version { written, .. } in &mut self.versions {
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

    /// What was written since a version, piece by piece; nothing if that version is not known.
    fn written_since(&self, version: &Generation) -> Option<impl Iterator<Item = &Range<u64>>> {
        written_since(&self.versions, version)
    }

    /// Whether anything is known of versions that it had.
    pub(super) fn has_versions(&self) -> bool {
        !self.versions.is_empty()
    }

    /// Whether it is known what was written since a version.
    pub(super) fn is_known(&self, version: &Generation) -> bool {
        self.written_since(version).is_some()
    }

    /// Whether redundancy of a version has these bytes as they are now.
    pub(super) fn is_in(&self, version: &Generation, range: &Range<u64>) -> bool {
        let untouched = |written: &Range<u64>| written.end <= range.start || range.end <= written.start;
        self.written_since(version).is_some_and(|mut written| written.all(untouched))
    }

    /// Whether anything was written since a version, if that is known.
    pub(super) fn is_written_since(&self, version: &Generation) -> Option<bool> {
        self.written_since(version).map(|mut written| written.next().is_some())
    }

    /// The versions that it had, to be remembered. The one that its stub tells is not among them.
    pub(super) fn versions(&self) -> Vec<Version> {
        let now = self.stub.stat(0).generation();
        let told = |version: &&Version| version.generation != now || !version.written.is_empty();
        self.versions.iter().filter(told).cloned().collect()
    }

    /// It had these versions before.
    pub(super) fn had(&mut self, versions: Vec<Version>) {
        self.versions = versions;
    }
}

#[cfg(test)]
mod tests {
    use super::State;
    use crate::format::{FileId, Metadata};
    use crate::storage::pool::stub::Stub;
    use crate::tree::Generation;

    #[test]
    fn redundancy_counts_for_what_was_not_written_since() {
        let stub = Stub {
            id: FileId([1; 16]),
            revision: 1,
            size: 100,
            block: 64,
            mtime: 0,
            changed: 0,
            metadata: Metadata::default(),
            targets: vec!["d1".to_owned()],
            link: None,
            special: None,
            accessed: None,
            names: 0,
            writing: false,
        };
        let version = |mtime| Generation { size: 100, mtime, ctime: 0, inode: 1 };
        let mut state = State::new(stub, false, 0);
        state.began_as([version(1)]);
        state.wrote(10..20);
        state.began_as([version(2)]);
        state.wrote(20..30);
        state.wrote(90..95);
        assert!(state.is_in(&version(1), &(0..10)) && !state.is_in(&version(1), &(15..16)));
        assert!(state.is_in(&version(2), &(15..16)) && !state.is_in(&version(2), &(25..26)));
        assert!(!state.is_in(&version(3), &(0..1)));
        assert!(state.is_in(&version(2), &(30..90)) && !state.is_in(&version(2), &(30..91)));
        state.began_as([version(4)]);
        let known = [1, 2, 3, 4].map(|mtime| state.is_written_since(&version(mtime)));
        assert_eq!(known, [Some(true), Some(true), None, Some(false)]);
        // Other rights and other names are no other content.
        let renamed = Generation { ctime: 7, ..version(2) };
        assert!(state.is_in(&renamed, &(15..16)) && !state.is_in(&renamed, &(25..26)));
        // Another one who has it open later knows as much.
        let mut later = State::new(state.stub.clone(), false, 0);
        later.had(state.versions());
        assert!(later.is_in(&version(2), &(15..16)) && !later.is_in(&version(2), &(25..26)));
    }
}
