//! File systems in images.

use crate::until;
use std::path::Path;
use std::process::Command;

/// Unmounts a file system as soon as nobody uses it.
///
/// A process that another test has just forked holds its files until it executes its program.
///
/// # Panics
/// The file system is still in use after [`PATIENCE`](crate::PATIENCE).
pub fn unmount(point: &Path) {
    until("nobody uses the file system any more", || {
        Command::new("umount").arg(point).output().is_ok_and(|done| done.status.success())
    });
}

/// Unmounts the file system of an image, and waits until the kernel has let go of the image.
///
/// A mount namespace that another process made meanwhile has a copy of the mount. Until it is gone the file system
/// stays in memory, and mounting the image would give that one again, whatever was done to the image. The kernel frees
/// the loop device after the last copy.
///
/// # Panics
/// The file system is still in use after [`PATIENCE`](crate::PATIENCE).
pub fn unmount_image(image: &Path, point: &Path) {
    unmount(point);
    until("no mount namespace holds the disk", || {
        let attached = Command::new("losetup").arg("-j").arg(image).output().unwrap();
        assert!(attached.status.success(), "{attached:?}");
        attached.stdout.is_empty()
    });
}
