//! Attributes of a single thread: file mode mask, page faults, and the owner of new files.

use rustix::thread::{CapabilitySets, capabilities, set_capabilities};
use std::cell::Cell;
use std::io;

thread_local!(static MASKS_NOTHING: Cell<bool> = const { Cell::new(false) });

/// Clears the umask of this thread, so that new files get exactly the permissions requested. Other threads keep the
/// umask of the process. From then on this thread has its own working directory, too.
///
/// # Errors
/// The error of the operating system.
pub fn mask_nothing() -> io::Result<()> {
    if MASKS_NOTHING.get() {
        return Ok(());
    }
    // SAFETY: the call takes no pointer; the umask and directories of other threads do not change.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes no pointer and cannot fail.
    unsafe { libc::umask(0) };
    MASKS_NOTHING.set(true);
    Ok(())
}

/// Minor page faults of this thread.
pub fn page_faults() -> u64 {
    // SAFETY: all zeros is a valid value, and it outlives the call that writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_minflt.try_into().unwrap_or(0)
}

/// Owner of new files of this thread; restored on drop.
struct Owner {
    before: (u32, u32),
    rights: CapabilitySets,
}

/// Runs `act` so that files it creates belong to this user and group from the start. With a later `chown` another
/// process could replace the file in between. The thread keeps its capabilities; a directory with the setgid bit still
/// sets the group.
///
/// # Errors
/// The process may not set the file owner, or the error of the operating system; `act` does not run then.
pub fn as_owner<T>(uid: u32, gid: u32, act: impl FnOnce() -> T) -> io::Result<T> {
    let before = (file_user(u32::MAX), file_group(u32::MAX));
    if before == (uid, gid) {
        return Ok(act());
    }
    let owner = Owner { before, rights: capabilities(None)? };
    file_group(gid);
    file_user(uid);
    if (file_user(u32::MAX), file_group(u32::MAX)) != (uid, gid) {
        return Err(rustix::io::Errno::PERM.into());
    }
    // A file user other than root loses the file capabilities; they are set again.
    set_capabilities(None, owner.rights)?;
    let done = act();
    drop(owner);
    Ok(done)
}

impl Drop for Owner {
    fn drop(&mut self) {
        file_user(self.before.0);
        file_group(self.before.1);
        // The thread had these capabilities before, so this cannot fail.
        let _ = set_capabilities(None, self.rights);
    }
}

/// Sets the user of new files; returns the previous one. `u32::MAX` is no user id and changes nothing.
fn file_user(uid: u32) -> u32 {
    // SAFETY: the call takes an integer and affects this thread alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// Sets the group of new files, likewise.
fn file_group(gid: u32) -> u32 {
    // SAFETY: the call takes an integer and affects this thread alone.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};

    #[test]
    fn umask_is_cleared_for_this_thread_only() {
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

    /// In a directory that only root may write to: the thread keeps its capabilities while it creates files for another
    /// user.
    #[test]
    fn new_files_belong_to_the_given_owner() {
        let dir = tempfile::tempdir().unwrap();
        let owner = |name: &str| {
            let found = std::fs::symlink_metadata(dir.path().join(name)).unwrap();
            (found.uid(), found.gid())
        };
        let make = |name: &str| std::fs::DirBuilder::new().mode(0o700).create(dir.path().join(name));
        make("own").unwrap();
        let (uid, gid) = owner("own");
        if uid != 0 {
            assert!(super::as_owner(uid + 1, gid, || make("another's")).is_err());
            assert!(!dir.path().join("another's").exists());
            return gabion_testkit::skip!("new_files_belong_to_the_given_owner: we are not root");
        }
        let rights = rustix::thread::capabilities(None).unwrap();
        super::as_owner(4711, 4712, || make("theirs")).unwrap().unwrap();
        assert_eq!(owner("theirs"), (4711, 4712));
        super::as_owner(4711, 0, || std::os::unix::fs::symlink("x", dir.path().join("link")))
            .unwrap()
            .unwrap();
        assert_eq!(owner("link"), (4711, 0));
        std::fs::set_permissions(dir.path().join("own"), PermissionsExt::from_mode(0o2755)).unwrap();
        std::os::unix::fs::chown(dir.path().join("own"), None, Some(4713)).unwrap();
        super::as_owner(4711, 4712, || make("own/handed down")).unwrap().unwrap();
        assert_eq!(owner("own/handed down"), (4711, 4713));
        // A panic in `act` restores the thread as well.
        let failed = std::panic::catch_unwind(|| super::as_owner(4711, 4712, || -> u32 { panic!("meant") }));
        assert!(failed.is_err());
        make("own again").unwrap();
        assert_eq!(owner("own again"), (0, 0));
        assert_eq!(rustix::thread::capabilities(None).unwrap(), rights);
    }
}
