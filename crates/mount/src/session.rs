//! Mount session: mounts a file system, and unmounts it.

use crate::served::{FileSystem, Kernel, Served};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use gabion_vault::world::Stopwatch;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Read-ahead window of the kernel, in KiB: 16 requests of 1 MiB are in flight at once. The default of 128 KiB leaves a
/// disk idle between requests.
const READ_AHEAD_KIB: u32 = 16384;

/// Pause between attempts to unmount a busy mount.
const PAUSE: Duration = Duration::from_millis(50);

/// Minimum time for the session to end once the file system is unmounted.
const ENDING: Duration = Duration::from_secs(1);

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// Source that `mount` and `df` show.
    pub name: String,
    /// Threads that serve requests.
    pub threads: usize,
    /// Other users may access it, subject to file permissions.
    pub allow_other: bool,
    /// Read-only mount.
    pub read_only: bool,
    /// `suid`, `dev` and `exec` of the mount.
    pub privileges: Privileges,
}

/// Mount options that restrict the use of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    /// Setuid bits and file capabilities take effect.
    pub suid: bool,
    /// Device nodes can be opened.
    pub dev: bool,
    /// Programs can be executed.
    pub exec: bool,
}

impl Privileges {
    /// Privileges that the file systems of all these paths allow. A disk is mounted `nosuid` or `nodev` because its
    /// content is not trusted, and that must also hold for the same files under another mount. Paths that cannot be
    /// examined are ignored.
    pub fn of(paths: &[PathBuf]) -> Privileges {
        use rustix::fs::StatVfsMountFlags as Flags;
        let found = paths.iter().filter_map(|path| rustix::fs::statvfs(path).ok());
        let flags = found.fold(Flags::empty(), |flags, found| flags | found.f_flag);
        let allowed = |forbidden| !flags.intersects(forbidden);
        Privileges { suid: allowed(Flags::NOSUID), dev: allowed(Flags::NODEV), exec: allowed(Flags::NOEXEC) }
    }
}

/// Error of a mount or unmount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or `fusermount3` refused.
    #[error("cannot mount at {}: {source}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The mount is in use, or the system refused.
    #[error("cannot unmount {}: {source}", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The mount point has files, which the mount would hide.
    #[error("{} is not empty: the mount would hide its files", path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is in the source or the source in the mount point.
    #[error("mount point {} and source {} overlap: choose another mount point", mountpoint.display(), path.display())]
    Overlap {
        /// The mount point.
        mountpoint: PathBuf,
        /// The source.
        path: PathBuf,
    },
}

/// A running mount; dropping it unmounts.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
    is_over: Arc<AtomicBool>,
}

/// Mounts a directory or a pool.
///
/// # Errors
/// [`MountError::Refused`].
pub fn mount(files: impl Into<FileSystem>, at: &Path, options: &Options) -> Result<Mounted, MountError> {
    let refused = |source| MountError::Refused { path: at.to_owned(), source };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("gabion".to_owned()),
        // The kernel checks permissions from the attributes in replies.
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
        MountOption::NoAtime,
    ];
    let Privileges { suid, dev, exec } = options.privileges;
    config.mount_options.extend([
        if suid { MountOption::Suid } else { MountOption::NoSuid },
        if dev { MountOption::Dev } else { MountOption::NoDev },
        if exec { MountOption::Exec } else { MountOption::NoExec },
    ]);
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    let kernel = Kernel::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let served = Served::new(files.into(), Kernel::clone(&kernel), Arc::clone(&is_over));
    let session = Session::new(served, at, &config);
    let session = session.map_err(refused)?;
    kernel.get_or_init(|| session.notifier());
    let session = session.spawn().map_err(refused)?;
    read_ahead(at);
    Ok(Mounted { session, is_over })
}

/// Unmounts a mount of a dead process at `at`. True if there was one.
///
/// # Errors
/// It cannot be unmounted.
pub fn clear_dead_mount(at: &Path) -> io::Result<bool> {
    // `stat` could be answered from the kernel's attribute cache.
    if rustix::fs::statfs(at).err() != Some(Errno::NOTCONN) {
        return Ok(false);
    }
    match rustix::mount::unmount(at, UnmountFlags::DETACH) {
        Err(Errno::PERM) => {
            let ended = std::process::Command::new("fusermount3").arg("-uz").arg(at).status()?;
            if ended.success() { Ok(true) } else { Err(io::Error::other(format!("fusermount3: {ended}"))) }
        }
        ended => ended.map(|()| true).map_err(io::Error::from),
    }
}

/// Sets the kernel's read-ahead. Without root it stays at the default.
fn read_ahead(at: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(stat) = std::fs::metadata(at) else { return };
    let (major, minor) = (rustix::fs::major(stat.dev()), rustix::fs::minor(stat.dev()));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(setting, READ_AHEAD_KIB.to_string());
}

impl Mounted {
    /// True if it was unmounted from outside. What was written may still be on its way to the changelog.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire) || self.session.guard.is_finished()
    }

    /// Waits until everything is on its way to the changelog, once it [is over](Mounted::is_over).
    pub fn wait(&self) {
        while !self.session.guard.is_finished() {
            std::thread::sleep(PAUSE);
        }
    }

    /// What [`is_over`](Mounted::is_over) tells, for others.
    pub fn over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_over)
    }

    /// Unmounts. Waits up to `patience` while programs use the mount, then detaches it: open files stay usable, new
    /// accesses do not find it. So it is with copies of the mount in other mount namespaces. True if it was detached.
    ///
    /// # Errors
    /// It cannot be unmounted.
    pub fn unmount_within(self, at: &Path, patience: Duration) -> io::Result<bool> {
        let since = Stopwatch::start();
        while !self.is_over() {
            match rustix::mount::unmount(at, UnmountFlags::empty()) {
                Ok(()) => break,
                Err(Errno::BUSY) if since.elapsed() < patience => std::thread::sleep(PAUSE),
                Err(Errno::BUSY) => {
                    rustix::mount::unmount(at, UnmountFlags::DETACH)?;
                    return Ok(true);
                }
                // Without root, `fusermount3` unmounts.
                Err(_) => return self.unmount().map(|()| false),
            }
        }
        // The session ends with the last copy of the mount; a mount namespace that was made meanwhile has one.
        let deadline = patience.max(since.elapsed() + ENDING);
        while !self.is_over() {
            if since.elapsed() >= deadline {
                return Ok(true);
            }
            std::thread::sleep(PAUSE);
        }
        // Already unmounted: `umount_and_join` would fail.
        ended(self.session.join()).map(|()| false)
    }

    /// Unmounts, and waits until all requests are done.
    ///
    /// # Errors
    /// It is in use, or the session ended with an error.
    pub fn unmount(self) -> io::Result<()> {
        ended(self.session.umount_and_join())
    }
}

fn ended(session: io::Result<()>) -> io::Result<()> {
    match session {
        // Threads that waited for a request when the connection ended; all have ended by now.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        ended => ended,
    }
}
