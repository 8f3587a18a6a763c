//! File locks that are released when their owner drops them.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

/// A file whose lock, if any, is released on drop.
///
/// Closing the file is not enough: the lock belongs to all duplicates of the descriptor, and a child process that
/// another thread has just forked holds duplicates until it executes its program. Without the explicit unlock, a later
/// `try_lock` would be refused although no owner is left.
#[derive(Debug)]
pub struct Lockable(File);

impl Lockable {
    /// Waits for an exclusive lock.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn exclusive(file: File) -> io::Result<Lockable> {
        let file = Lockable(file);
        file.lock()?;
        Ok(file)
    }

    /// Waits for a shared lock.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn shared(file: File) -> io::Result<Lockable> {
        let file = Lockable(file);
        file.lock_shared()?;
        Ok(file)
    }
}

/// The file is not locked yet.
impl From<File> for Lockable {
    fn from(file: File) -> Lockable {
        Lockable(file)
    }
}

impl Deref for Lockable {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for Lockable {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Lockable {
    fn drop(&mut self) {
        // If this fails, closing the last descriptor releases the lock.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::TryLockError;

    fn open(path: &std::path::Path) -> File {
        File::options().create(true).truncate(false).read(true).write(true).open(path).unwrap()
    }

    #[test]
    fn a_lock_ends_although_a_copy_of_the_descriptor_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let held = Lockable::exclusive(open(&path)).unwrap();
        // Stands for the duplicate in a forked child.
        let copy = held.try_clone().unwrap();
        assert!(matches!(open(&path).try_lock(), Err(TryLockError::WouldBlock)), "it is held");
        drop(held);
        open(&path).try_lock().unwrap();
        drop(copy);
    }

    #[test]
    fn readers_share_a_lock_and_keep_writers_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let (one, other) = (Lockable::shared(open(&path)).unwrap(), Lockable::shared(open(&path)).unwrap());
        let writer = Lockable::from(open(&path));
        assert!(matches!(writer.try_lock(), Err(TryLockError::WouldBlock)), "two read");
        drop(one);
        assert!(matches!(writer.try_lock(), Err(TryLockError::WouldBlock)), "one reads");
        drop(other);
        writer.try_lock().unwrap();
    }
}
