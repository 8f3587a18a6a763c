//! Repairs of one file, one after the other.
//!
//! A repair writes in place, so one that was taken for dead must not go on beside its successor: after the successor is
//! done, what it finds in the file may be a user's new content.

use crate::redundancy::{DRAFT_SUFFIX, PATIENCE, STAGING};
use crate::tree::{Tree, join};
use gabion_platform::lock::Lockable;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Holds the right to repair a file until it is dropped. The operating system takes it from a dead process.
pub(super) struct Turn<'a> {
    _name: Place<'a>,
    /// None for a deleted file.
    _inode: Option<Place<'a>>,
}

impl<'a> Turn<'a> {
    /// Takes the right to repair the file with this name and, if it exists, this inode. If another process repairs the
    /// file under another name, waits for its end, which leaves little to do here.
    ///
    /// # Errors
    /// `ResourceBusy` if another process repairs the file; I/O errors.
    pub(super) fn take(repository: &'a Tree, path: &[u8], inode: Option<u64>) -> io::Result<Turn<'a>> {
        Turn::take_within(repository, path, inode, PATIENCE)
    }

    fn take_within(
        repository: &'a Tree,
        path: &[u8],
        inode: Option<u64>,
        patience: Duration,
    ) -> io::Result<Turn<'a>> {
        let name = blake3::hash(path).to_hex();
        let name = Place::lock(repository, name.as_bytes(), Duration::ZERO)?;
        let inode =
            inode.map(|inode| Place::lock(repository, format!("repair-{inode:016x}").as_bytes(), patience));
        Ok(Turn { _name: name, _inode: inode.transpose()? })
    }
}

/// A locked file that is removed as an abandoned draft if this process dies.
struct Place<'a> {
    repository: &'a Tree,
    path: Vec<u8>,
    /// Locked until its name is removed.
    _file: Lockable,
}

impl<'a> Place<'a> {
    fn lock(repository: &'a Tree, name: &[u8], patience: Duration) -> io::Result<Place<'a>> {
        let path = join(STAGING, &[name, DRAFT_SUFFIX].concat());
        loop {
            match Lockable::exclusive_within(repository.write_or_create(&path, 0o600)?, patience) {
                // The process that held it may have removed it since it was opened.
                Ok(file) if file.metadata()?.nlink() == 0 => {}
                Ok(file) => return Ok(Place { repository, path, _file: file }),
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    let why = "another process is repairing it";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // What stays is removed as an abandoned draft.
        let _ = self.repository.remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::Turn;
    use crate::redundancy::STAGING;
    use crate::redundancy::redo::recover;
    use crate::tree::Tree;
    use std::io::ErrorKind;
    use std::time::Duration;

    #[test]
    fn a_file_is_repaired_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let staging = dir.path().join(std::str::from_utf8(STAGING).unwrap());
        std::fs::create_dir(&staging).unwrap();
        let repository = Tree::open(dir.path()).unwrap();
        let turn = Turn::take(&repository, b"a", Some(1)).unwrap();
        let refused = Turn::take(&repository, b"a", Some(1)).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        let refused = Turn::take_within(&repository, b"link", Some(1), Duration::ZERO).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
        let _another = Turn::take(&repository, b"b", Some(2)).unwrap();
        let _deleted = Turn::take(&repository, b"c", None).unwrap();
        // It is in use, so no cleanup removes it.
        assert_eq!(recover(&repository).unwrap(), (0, 0));
        std::thread::scope(|scope| {
            let repository = &repository;
            let waiting = scope.spawn(move || Turn::take(repository, b"link", Some(1)).map(drop));
            drop(turn);
            waiting.join().unwrap().unwrap();
        });
        drop(Turn::take(&repository, b"a", Some(1)).unwrap());
        // Those of `b`, by name and inode, and of `c`.
        assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 3);
    }
}
