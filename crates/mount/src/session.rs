//! Mounting and unmounting.

use fuser::{BackgroundSession, Config, Filesystem, MountOption, Session, SessionACL};
use std::io;
use std::path::{Path, PathBuf};

/// How much the kernel reads ahead of a program, in KiB. Its own default of 128 leaves a disk idle between requests.
const READ_AHEAD_KIB: u32 = 4096;

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

/// Mounts a file system.
///
/// # Errors
/// [`MountError::Refused`].
pub fn mount<F: Filesystem>(files: F, at: &Path, options: &Options) -> Result<Mounted, MountError> {
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
    if rustix::process::geteuid().is_root() {
        config.mount_options.extend([MountOption::Dev, MountOption::Suid]);
    }
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    // Files get the permissions that programs ask for, which the kernel has already masked.
    rustix::process::umask(rustix::fs::Mode::empty());
    let session = Session::new(files, at, &config).and_then(Session::spawn).map_err(refused)?;
    read_ahead(at);
    Ok(Mounted { session })
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

    /// Unmounts and waits until all requests are done.
    ///
    /// # Errors
    /// It is in use, or the session ended with an error.
    pub fn unmount(self) -> io::Result<()> {
        match self.session.umount_and_join() {
            // A thread was waiting for a request when the connection ended; all of them are over by now.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
            ended => ended,
        }
    }
}
