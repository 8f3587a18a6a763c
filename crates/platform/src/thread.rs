//! What a thread can have for itself.

use rustix::thread::{CapabilitySets, capabilities, set_capabilities};
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

/// How often this thread touched a page of memory that the system had at hand and did not show yet.
pub fn page_faults() -> u64 {
    // SAFETY: all zeros is a valid value, and the pointer is to it, for as long as the call takes.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    usage.ru_minflt.try_into().unwrap_or(0)
}

/// Whom new files of this thread belong to, until it is dropped.
struct Owner {
    before: (u32, u32),
    rights: CapabilitySets,
}

/// Does something, and what it makes in directories belongs to this user and group from the beginning: nobody can put another file
/// in its place before it is given away. The thread keeps all rights that it has; a directory that hands down its group does so.
///
/// # Errors
/// The process has no right to act for others, or what the operating system says; then nothing is done.
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
    // Who acts for another than root loses the rights that count for files.
    set_capabilities(None, owner.rights)?;
    let done = act();
    drop(owner);
    Ok(done)
}

impl Drop for Owner {
    fn drop(&mut self) {
        file_user(self.before.0);
        file_group(self.before.1);
        // These are the rights that it had, so nobody can refuse them.
        let _ = set_capabilities(None, self.rights);
    }
}

/// Sets the user that files are made for; gives the one before. The largest number is nobody's, and changes nothing.
fn file_user(uid: u32) -> u32 {
    // SAFETY: the call takes a number; it is about this thread alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// Sets the group that files are made for, likewise.
fn file_group(gid: u32) -> u32 {
    // SAFETY: the call takes a number; it is about this thread alone.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};

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

    /// In a directory that only root may write to: who makes something for another keeps its own rights.
    #[test]
    fn new_files_belong_to_whom_they_are_made_for() {
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
            return gabion_testkit::skip!("new_files_belong_to_whom_they_are_made_for: we are not root");
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
        // Whatever happens meanwhile, the thread is then as it was.
        let failed = std::panic::catch_unwind(|| super::as_owner(4711, 4712, || -> u32 { panic!("meant") }));
        assert!(failed.is_err());
        make("own again").unwrap();
        assert_eq!(owner("own again"), (0, 0));
        assert_eq!(rustix::thread::capabilities(None).unwrap(), rights);
    }
}
