//! Repairs of one file, one after the other.
//!
//! A repair writes in place, so one that was taken for dead must not go on beside its successor: after the successor is
//! done, what it finds in the file may be a user's new content.

use crate::redundancy::{DRAFT_SUFFIX, STAGING};
use crate::tree::{Tree, join};
use gabion_platform::lock::Lockable;
use std::fs::TryLockError;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Holds the right to repair a file until it is dropped. The operating system takes it from a dead process.
pub(super) struct Turn<'a> {
    repository: &'a Tree,
    place: Vec<u8>,
    /// Locked until its name is removed.
    _file: Lockable,
}

impl<'a> Turn<'a> {
    /// Locks a file that is removed as an abandoned draft if this process dies.
    ///
    /// # Errors
    /// `ResourceBusy` if another process repairs the file; I/O errors.
    pub(super) fn take(repository: &'a Tree, path: &[u8]) -> io::Result<Turn<'a>> {
        let name = [blake3::hash(path).to_hex().as_bytes(), DRAFT_SUFFIX].concat();
        let place = join(STAGING, &name);
        loop {
            let file = Lockable::from(repository.write_or_create(&place, 0o600)?);
            match file.try_lock() {
                // The process that held it may have removed it since it was opened.
                Ok(()) if file.metadata()?.nlink() == 0 => {}
                Ok(()) => return Ok(Turn { repository, place, _file: file }),
                Err(TryLockError::WouldBlock) => {
                    let why = "another process is repairing it";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // What stays is removed as an abandoned draft.
        let _ = self.repository.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;
    use crate::redundancy::STAGING;
    use crate::redundancy::redo::recover;
    use crate::tree::Tree;
    use std::io::ErrorKind;

    #[test]
    fn a_file_is_repaired_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let staging = dir.path().join(std::str::from_utf8(STAGING).unwrap());
        std::fs::create_dir(&staging).unwrap();
        let repository = Tree::open(dir.path()).unwrap();
        let turn = Turn::take(&repository, b"a").unwrap();
        let refused = Turn::take(&repository, b"a").map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        let _another = Turn::take(&repository, b"b").unwrap();
        // It is in use, so no cleanup removes it.
        assert_eq!(recover(&repository).unwrap(), (0, 0));
        drop(turn);
        drop(Turn::take(&repository, b"a").unwrap());
        assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 1);
    }
}
