//! Paths that live claims touch.
//!
//! Two live claims never touch the same path, nor paths beneath each other: a worker that removes the redundancy of a
//! directory would undo the work of one that writes redundancy beneath it. A claim touches its path and its origin. A
//! scan (gap) touches nothing: it takes long, and records what it finds as changes.

use crate::change::above;
use crate::entry::Kind;
use std::collections::BTreeSet;

/// Most entries that one call of `claim` skips because they conflict with live claims.
pub const MAX_PASSED_OVER: usize = 10_000;

/// The paths that are taken.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    touched: BTreeSet<Vec<u8>>,
    /// Every directory above a touched path.
    around: BTreeSet<Vec<u8>>,
}

impl Busy {
    /// Takes a path.
    pub(crate) fn touch(&mut self, path: &[u8]) {
        if self.touched.insert(path.to_vec()) {
            for directory in above(path) {
                if !self.around.insert(directory.to_vec()) {
                    break;
                }
            }
        }
    }

    /// Takes the paths of a claim; false if one of them was taken already. They are taken even then, so that an entry
    /// that waits keeps its place before later ones.
    pub(crate) fn take(&mut self, kind: Kind, path: &[u8], origin: Option<&[u8]>) -> bool {
        if kind == Kind::Gap {
            return true;
        }
        let free = std::iter::once(path).chain(origin).all(|path| self.is_free(path));
        std::iter::once(path).chain(origin).for_each(|path| self.touch(path));
        free
    }

    fn is_free(&self, path: &[u8]) -> bool {
        !self.touched.contains(path)
            && !self.around.contains(path)
            && !above(path).any(|directory| self.touched.contains(directory))
    }
}

#[cfg(test)]
mod tests {
    use super::Busy;
    use crate::entry::Kind;

    #[test]
    fn a_tree_is_taken_as_a_whole() {
        let mut busy = Busy::default();
        assert!(busy.take(Kind::Modify, b"a/b", None));
        assert!(busy.take(Kind::Modify, b"a/c", None));
        assert!(!busy.take(Kind::Delete, b"a", None));
        assert!(!busy.take(Kind::Modify, b"a/d", None), "the deletion keeps its place");
        assert!(busy.take(Kind::Move, b"b", Some(b"ab")));
        assert!(!busy.take(Kind::Modify, b"ab/x", None));
        assert!(busy.take(Kind::Gap, b"", None));
    }
}
