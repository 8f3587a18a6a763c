//! What a thread can have for itself.

use std::cell::Cell;
use std::io;

thread_local!(static MASKS_NOTHING: Cell<bool> = const { Cell::new(false) });

/// Files that this thread makes get the permissions that it asks for, whatever the process masks. Other threads keep the mask of
/// the process. From then on this thread has a working directory of its own, too.
///
/// # Errors
/// What the operating system says.
pub fn mask_nothing() -> io::Result<()> {
    if MASKS_NOTHING.get() {
        return Ok(());
    }
    // SAFETY: the call takes no pointer; the mask and the directories of the other threads stay what they are.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes no pointer and cannot fail.
    unsafe { libc::umask(0) };
    MASKS_NOTHING.set(true);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    #[test]
    fn only_this_thread_masks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mode_of_new = |name: &str| {
            let path = dir.path().join(name);
            std::fs::File::options().write(true).create_new(true).mode(0o666).open(&path).unwrap();
            std::fs::metadata(path).unwrap().permissions().mode() & 0o777
        };
        let before = mode_of_new("before");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                super::mask_nothing().unwrap();
                super::mask_nothing().unwrap();
                assert_eq!(mode_of_new("unmasked"), 0o666);
            });
        });
        assert_eq!(mode_of_new("after"), before);
    }
}
