//! Mounting and unmounting.

use crate::served::{Files, Kernel, Served};
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use gabion_vault::world::Stopwatch;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much the kernel reads ahead of a program, in KiB: that many requests of 1 MiB are on their way at once. Its own default of 128
/// leaves a disk idle between requests.
const READ_AHEAD_KIB: u32 = 16384;

/// How long to wait before a mount that is in use is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// How to mount.
#[derive(Debug, Clone)]
pub struct Options {
    /// What `mount` and `df` show as the source.
    pub name: String,
    /// Threads that serve requests.
    pub threads: usize,
    /// Other users than the one who mounts may use it, as far as permissions of files go.
    pub allow_other: bool,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// What programs on it may do.
    pub privileges: Privileges,
}

/// What the files of a mount may be used for besides reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Privileges {
    /// Programs with a setuid bit or capabilities run with them.
    pub suid: bool,
    /// Device nodes can be opened.
    pub dev: bool,
    /// Programs can be run.
    pub exec: bool,
}

impl Privileges {
    /// Privileges that the file systems of all these paths allow. An administrator mounts a disk `nosuid` and `nodev` because he does not
    /// trust what is on it: the same files must not be more elsewhere. A path that does not answer says nothing.
    pub fn of(paths: &[PathBuf]) -> Privileges {
        use rustix::fs::StatVfsMountFlags as Flags;
        let found = paths.iter().filter_map(|path| rustix::fs::statvfs(path).ok());
        let flags = found.fold(Flags::empty(), |flags, found| flags | found.f_flag);
        let allowed = |forbidden| !flags.intersects(forbidden);
        Privileges { suid: allowed(Flags::NOSUID), dev: allowed(Flags::NODEV), exec: allowed(Flags::NOEXEC) }
    }
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel or `fusermount3` refuses.
    #[error("{} cannot be mounted at: {source}", path.display())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// It is in use, or the system refuses.
    #[error("{} cannot be unmounted: {source}", path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
        /// What it says.
        source: io::Error,
    },
    /// The mount would hide what is there.
    #[error("{} is not empty: what is there would be hidden", path.display())]
    NotEmpty {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount would show itself.
    #[error("{} and {} overlap: mount elsewhere", mountpoint.display(), path.display())]
    Overlap {
        /// The mount point.
        mountpoint: PathBuf,
        /// The source.
        path: PathBuf,
    },
}

/// A mount that is alive; it ends when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    session: BackgroundSession,
}

/// What can be mounted.
pub trait Mountable {
    /// Mounts it.
    ///
    /// # Errors
    /// [`MountError::Refused`].
    fn mount(self, at: &Path, options: &Options) -> Result<Mounted, MountError>;
}

impl Mountable for crate::Directory {
    fn mount(self, at: &Path, options: &Options) -> Result<Mounted, MountError> {
        serve(self, at, options)
    }
}

impl Mountable for crate::Pool {
    fn mount(self, at: &Path, options: &Options) -> Result<Mounted, MountError> {
        serve(self, at, options)
    }
}

/// Mounts a file system.
///
/// # Errors
/// [`MountError::Refused`].
pub fn mount(files: impl Mountable, at: &Path, options: &Options) -> Result<Mounted, MountError> {
    files.mount(at, options)
}

fn serve<F: Files>(files: F, at: &Path, options: &Options) -> Result<Mounted, MountError> {
    let refused = |source| MountError::Refused { path: at.to_owned(), source };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("gabion".to_owned()),
        // The kernel checks permissions by what we say of files.
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
    let session = Session::new(Served::new(files, Kernel::clone(&kernel)), at, &config).map_err(refused)?;
    kernel.get_or_init(|| session.notifier());
    let session = session.spawn().map_err(refused)?;
    read_ahead(at);
    Ok(Mounted { session })
}

/// Takes away what a process that died left mounted at `at`, if it was one of ours. Says whether there was something.
///
/// # Errors
/// It cannot be unmounted.
pub fn clear_dead_mount(at: &Path) -> io::Result<bool> {
    // Not its attributes: the kernel believes those of a moment ago.
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

/// Lets the kernel read further ahead. Only an administrator may; for others it stays as it is.
fn read_ahead(at: &Path) {
    use std::os::unix::fs::MetadataExt;
    let Ok(stat) = std::fs::metadata(at) else { return };
    let (major, minor) = (rustix::fs::major(stat.dev()), rustix::fs::minor(stat.dev()));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    let _ = std::fs::write(setting, READ_AHEAD_KIB.to_string());
}

impl Mounted {
    /// Whether someone has unmounted it.
    pub fn is_over(&self) -> bool {
        self.session.guard.is_finished()
    }

    /// Unmounts. While programs use it, they are waited for as long as `patience` lasts; then it is taken from under them, and
    /// nobody new finds it. Says whether that had to be.
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
                // Others than root have a program for it.
                Err(_) => return self.unmount().map(|()| false),
            }
        }
        // It is unmounted: to do that once more would be an error.
        ended(self.session.join()).map(|()| false)
    }

    /// Unmounts and waits until all requests are done.
    ///
    /// # Errors
    /// It is in use, or the session ended with an error.
    pub fn unmount(self) -> io::Result<()> {
        ended(self.session.umount_and_join())
    }
}

fn ended(session: io::Result<()>) -> io::Result<()> {
    match session {
        // A thread was waiting for a request when the connection ended; all of them are over by now.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        ended => ended,
    }
}
