//! Leases on open files: other programs are kept out of a file, or noticed when they open it.
//!
//! A lease is granted only while nobody else has the file open in a way that contradicts it. An open that contradicts
//! a lease that was granted waits until its holder gives it up, 45 seconds at most. Leases exclude programs of this
//! machine only.

use crate::world::Stopwatch;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Pause between two attempts to get a lease.
const PAUSE: Duration = Duration::from_millis(2);

/// Kind of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseKind {
    /// Nobody else has the file open or mapped, and nobody can open it.
    Exclusive,
    /// Nobody has the file open for writing, and nobody can open or truncate it so. The file must be open for reading
    /// only.
    KeepsWritersOut,
}

/// Reason why there is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The file is open elsewhere.
    InUse,
    /// The file system has no leases, or this user may not have one for the file.
    Unsupported,
}

/// A lease on a file, given up on drop.
#[derive(Debug)]
pub struct Lease {
    /// Another descriptor of the same open file, to which the lease belongs.
    file: File,
    kind: LeaseKind,
}

/// Not in all versions of the C library's headers.
const F_SETSIG: libc::c_int = 10;

impl LeaseKind {
    fn of_kernel(self) -> libc::c_int {
        match self {
            LeaseKind::Exclusive => libc::F_WRLCK,
            LeaseKind::KeepsWritersOut => libc::F_RDLCK,
        }
    }
}

impl Lease {
    /// Takes a lease on an open file.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take(file: &File, kind: LeaseKind) -> Result<Lease, Refused> {
        let Ok(file) = file.try_clone() else { return Err(Refused::Unsupported) };
        // The signal that announces the end of a lease would end this process; this one is ignored unless handled.
        control(&file, F_SETSIG, libc::SIGURG).map_err(|_| Refused::Unsupported)?;
        match control(&file, libc::F_SETLEASE, kind.of_kernel()) {
            Ok(_) => Ok(Lease { file, kind }),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Refused::InUse),
            Err(_) => Err(Refused::Unsupported),
        }
    }

    /// As [`take`](Lease::take), but waits so long for others to close the file: some have just begun to.
    ///
    /// # Errors
    /// See [`Refused`].
    pub fn take_within(file: &File, kind: LeaseKind, patience: Duration) -> Result<Lease, Refused> {
        let waited = Stopwatch::start();
        loop {
            match Lease::take(file, kind) {
                Err(Refused::InUse) if waited.elapsed() < patience => std::thread::sleep(PAUSE),
                taken => return taken,
            }
        }
    }

    /// True while nobody waits for the end of the lease.
    pub fn is_held(&self) -> bool {
        control(&self.file, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == self.kind.of_kernel())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // If this fails, the lease ends with the last descriptor.
        let _ = control(&self.file, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: the descriptor is open while it is borrowed, and these commands take integers only.
    let got = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if got < 0 { Err(io::Error::last_os_error()) } else { Ok(got) }
}

#[cfg(test)]
mod tests {
    use super::{Lease, LeaseKind, Refused};
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::time::Duration;

    fn reader(path: &Path) -> File {
        File::open(path).unwrap()
    }

    fn writer(path: &Path) -> File {
        File::options().read(true).write(true).open(path).unwrap()
    }

    /// Takes a lease that must be granted. A process that another test has just forked may hold a copy of a descriptor
    /// that was closed here.
    fn granted(file: &File, kind: LeaseKind) -> Lease {
        Lease::take_within(file, kind, Duration::from_secs(600)).unwrap()
    }

    /// A file in a file system with leases.
    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "content").unwrap();
        (dir, path)
    }

    #[test]
    fn no_lease_on_a_file_that_is_open_elsewhere() {
        let (_dir, path) = file();
        let own = writer(&path);
        let other = reader(&path);
        assert_eq!(Lease::take(&own, LeaseKind::Exclusive).unwrap_err(), Refused::InUse);
        assert_eq!(Lease::take(&other, LeaseKind::KeepsWritersOut).unwrap_err(), Refused::InUse);
        drop(own);
        let another = reader(&path);
        assert!(granted(&other, LeaseKind::KeepsWritersOut).is_held());
        drop((other, another));
        let own = writer(&path);
        // Descriptors of one open file are one user.
        let _copy = own.try_clone().unwrap();
        assert!(granted(&own, LeaseKind::Exclusive).is_held());
        assert!(granted(&own, LeaseKind::Exclusive).is_held(), "the first was given up");
    }

    #[test]
    fn who_opens_the_file_waits_for_the_end_of_the_lease() {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::io::Errno;
        let (_dir, path) = file();
        let at_once = |flags: OFlags| -> Result<OwnedFd, Errno> {
            open(&path, flags | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
        };
        let own = reader(&path);
        let lease = granted(&own, LeaseKind::KeepsWritersOut);
        drop(at_once(OFlags::RDONLY).unwrap());
        assert!(lease.is_held(), "readers do not matter");
        assert_eq!(at_once(OFlags::WRONLY).unwrap_err(), Errno::WOULDBLOCK);
        assert!(!lease.is_held(), "somebody waits");
        drop(lease);
        drop(at_once(OFlags::WRONLY).unwrap());

        drop(own);
        let own = writer(&path);
        let lease = granted(&own, LeaseKind::Exclusive);
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || std::fs::read(path).unwrap()
        });
        while lease.is_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(lease);
        assert_eq!(waiting.join().unwrap(), b"content");
    }
}
