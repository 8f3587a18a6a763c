//! A file system in memory that no other program uses: fanotify queues the events of a whole file system.

use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

pub(crate) struct OwnMemory(TempDir);

impl OwnMemory {
    /// Without the right to mount, fanotify is not tested either, and a directory does.
    pub(crate) fn new() -> OwnMemory {
        let dir = tempfile::tempdir().unwrap();
        if rustix::process::geteuid().is_root() {
            let mounted =
                Command::new("mount").args(["-t", "tmpfs", "none"]).arg(dir.path()).status().unwrap();
            assert!(mounted.success());
        }
        OwnMemory(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        if rustix::process::geteuid().is_root() {
            let _ = Command::new("umount").arg("-l").arg(self.path()).status();
        }
    }
}
