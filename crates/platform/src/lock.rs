//! File locks that are released when their owner drops them.

use crate::world::Stopwatch;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Longest pause between two looks at a lock that another process holds.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

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

    /// Waits for an exclusive lock, but not for ever: its owner may be suspended, or hang.
    ///
    /// # Errors
    /// `TimedOut`; the error of the operating system.
    pub fn exclusive_within(file: File, patience: Duration) -> io::Result<Lockable> {
        let file = Lockable(file);
        file.wait(patience, File::try_lock)?;
        Ok(file)
    }

    /// Waits for a shared lock, but not for ever.
    ///
    /// # Errors
    /// `TimedOut`; the error of the operating system.
    pub fn shared_within(file: File, patience: Duration) -> io::Result<Lockable> {
        let file = Lockable(file);
        file.wait(patience, File::try_lock_shared)?;
        Ok(file)
    }

    /// Waits for a shared lock, in place of the present one if there is one, but not for ever.
    ///
    /// # Errors
    /// `TimedOut`; the error of the operating system.
    pub fn lock_shared_within(&self, patience: Duration) -> io::Result<()> {
        self.unlock()?;
        self.wait(patience, File::try_lock_shared)
    }

    fn wait(&self, patience: Duration, lock: fn(&File) -> Result<(), TryLockError>) -> io::Result<()> {
        let (waited, mut pause) = (Stopwatch::start(), Duration::from_millis(1));
        loop {
            match lock(&self.0) {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if waited.elapsed() >= patience => {
                    let why = format!("another process has kept it locked for {} s", patience.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
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
        let reader = || Lockable::shared_within(open(&path), Duration::ZERO).unwrap();
        let (one, other) = (reader(), reader());
        let writer = Lockable::from(open(&path));
        assert!(matches!(writer.try_lock(), Err(TryLockError::WouldBlock)), "two read");
        drop(one);
        assert!(matches!(writer.try_lock(), Err(TryLockError::WouldBlock)), "one reads");
        drop(other);
        writer.try_lock().unwrap();
    }

    #[test]
    fn nobody_waits_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let patience = Duration::from_millis(50);
        let reader = Lockable::shared_within(open(&path), patience).unwrap();
        let refused = Lockable::exclusive_within(open(&path), patience).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(Lockable::shared_within(open(&path), patience).unwrap());
        drop(reader);
        let writer = Lockable::exclusive_within(open(&path), patience).unwrap();
        let refused = Lockable::shared_within(open(&path), patience).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        writer.lock_shared_within(patience).unwrap();
        drop(Lockable::shared_within(open(&path), patience).unwrap());
    }
}
