//! Access to one target. A target is used only after its `pool.toml` has identified it.
//!
//! A readable target may refuse writes: its file system turned read-only after an error, or its medium fails on writes.
//! [`Disk::note_failed_write`] and [`Disk::online_writable`] decide that for placement, open files and locks. Such a
//! target is read as before and receives nothing new.

use super::change::LOCK;
use super::config::{CONFIG, Config};
use super::objects::OBJECTS;
use super::sequence::temporary_name;
use crate::storage::Fault;
use crate::storage::deadline_io::DeadlineIo;
use crate::tree::{Generation, Tree, stat_of};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A target, reachable or not.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) uuid: String,
    pub(crate) path: PathBuf,
    pool: String,
    known: Mutex<Option<CachedTarget>>,
    /// Error of the last failed probe. The target is not used until a probe succeeds.
    read_error: Mutex<Option<String>>,
    /// Error of a failed write. The target is only read until a write succeeds.
    write_error: Mutex<Option<String>>,
    pub(crate) deadline_io: Arc<DeadlineIo>,
}

/// A reachable target.
#[derive(Debug, Clone)]
pub(crate) struct OnlineTarget {
    pub(crate) tree: Tree,
    pub(crate) config: Arc<Config>,
}

#[derive(Debug)]
struct CachedTarget {
    online: OnlineTarget,
    /// Device and inode of the directory. Another directory at the same path is another disk, or the mount point below
    /// it.
    root: (u64, u64),
    /// Version of the `pool.toml` that was read; the file is replaced, never changed in place.
    config: Generation,
}

/// Why a target is unreachable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unavailable {
    #[error("no response within the deadline")]
    TimedOut,
    #[error("it cannot be read: {0}")]
    ReadFailed(String),
    #[error("it is not writable: {0}")]
    Unwritable(String),
    #[error("{0}")]
    Directory(io::Error),
    #[error("no pool.toml: is the disk not mounted?")]
    NoConfig,
    #[error("its pool.toml: {0}")]
    Config(io::Error),
    #[error("it is another target: {found}")]
    Foreign { found: String },
}

impl Disk {
    pub(crate) fn new(name: &str, uuid: &str, path: PathBuf, pool: &str, deadline: Duration) -> Disk {
        let deadline_io = Arc::new(DeadlineIo::new(name, deadline));
        let (uuid, pool) = (uuid.to_owned(), pool.to_owned());
        Disk {
            uuid,
            path,
            pool,
            known: Mutex::default(),
            read_error: Mutex::default(),
            write_error: Mutex::default(),
            deadline_io,
        }
    }

    /// The target, if it is reachable and the right one.
    ///
    /// Two calls of `stat` show whether anything changed since the last check.
    ///
    /// Two calls of `stat` show whether anything changed since the last check.
    pub(crate) fn online(&self) -> Result<OnlineTarget, Unavailable> {
        if self.deadline_io.is_stuck() {
            return Err(Unavailable::TimedOut);
        }
        if let Some(why) = self.read_error.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Err(Unavailable::ReadFailed(why.clone()));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.refresh(known.take())?;
        Ok(known.insert(found).online.clone())
    }

    /// The target, if it is reachable and writable as far as can be determined without writing.
    pub(crate) fn online_writable(&self) -> Result<OnlineTarget, Unavailable> {
        let online = self.online()?;
        if let Some(why) = self.write_error.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Err(Unavailable::Unwritable(why.clone()));
        }
        match write_refusal(&online.tree) {
            Some(error) => Err(Unavailable::Unwritable(error.to_string())),
            None => Ok(online),
        }
    }

    /// True after a failed write, until a write succeeds again.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.write_error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Records a failed write and probes the medium. Returns true if this process must not write to the target any
    /// more, because it is unreachable or refuses writes.
    pub(crate) fn note_failed_write(&self, error: &io::Error) -> bool {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return false;
        }
        self.probe();
        if self.online().is_ok() && is_of_the_medium(error) {
            *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        self.online_writable().is_err()
    }

    /// Writes to a target that refused writes. On success the target is writable again.
    fn probe_writing(&self) {
        let Ok(OnlineTarget { tree, .. }) = self.online() else { return };
        let write = move || -> io::Result<()> {
            let name = temporary_name(".note")?;
            let mut file = tree.create(&name, 0o600)?;
            let written = file.write_all(b"gabion write test").and_then(|()| file.sync_all());
            // A file that stays is removed by a sweep.
            tree.remove(&name).and(written)
        };
        if let Ok(Ok(())) = self.deadline_io.run(write) {
            *self.write_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Reads from the medium, bypassing the page cache: a dead disk is still listed for a while. A target that fails is
    /// not used until a probe succeeds.
    pub(crate) fn probe(&self) {
        *self.read_error.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let Ok(OnlineTarget { tree, .. }) = self.online() else { return };
        let read = move || -> io::Result<()> {
            let file = tree.read(CONFIG)?;
            // Advice only: without it the data may come from the page cache.
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
            Config::read(&tree)?;
            tree.directory(OBJECTS)?.names().map(|_| ())
        };
        let failed = match self.deadline_io.run(read) {
            Ok(Ok(())) | Err(Fault::Timeout(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(fault) => Some(fault.to_string()),
        };
        *self.read_error.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// Probes a target again that failed or refused writes.
    pub(crate) fn retry(&self) {
        if self.is_failing() {
            self.probe();
        }
        if self.refuses_writes() {
            self.probe_writing();
        }
    }

    /// True if the last probe failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.read_error.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn refresh(&self, known: Option<CachedTarget>) -> Result<CachedTarget, Unavailable> {
        let root = std::fs::metadata(&self.path).map_err(Unavailable::Directory)?;
        let root = (root.dev(), root.ino());
        if let Some(known) = known.filter(|known| known.root == root) {
            let now = known.online.tree.find(CONFIG).map_err(Unavailable::Config)?;
            if now.is_some_and(|now| now.generation() == known.config) {
                return Ok(known);
            }
        }
        let tree = Tree::open_owned(&self.path).map_err(Unavailable::Directory)?;
        let (config, generation) = read_config(&tree)?;
        if config.pool != self.pool || config.this != self.uuid {
            return Err(Unavailable::Foreign { found: describe(&config) });
        }
        // If the directory was exchanged meanwhile, the next check detects it by its inode.
        Ok(CachedTarget { online: OnlineTarget { tree, config: Arc::new(config) }, root, config: generation })
    }
}

/// Why a file system is not writable, as far as can be determined without writing. An existing file is opened for
/// writing: ext4 refuses that after an error, although `statvfs` does not always report the file system as read-only
/// (seen on Linux 6.18).
fn write_refusal(tree: &Tree) -> Option<io::Error> {
    match tree.is_read_only() {
        Ok(true) => Some(Errno::ROFS.into()),
        Ok(false) => tree.write(LOCK).err().filter(is_of_the_medium),
        Err(error) => Some(error),
    }
}

/// True if an error comes from the disk or its file system rather than from the one file.
pub(crate) fn is_of_the_medium(error: &io::Error) -> bool {
    const MEDIUM: [Errno; 9] = [
        Errno::ROFS,
        Errno::IO,
        Errno::NODEV,
        Errno::NXIO,
        Errno::UCLEAN,
        Errno::REMOTEIO,
        Errno::SHUTDOWN,
        Errno::STALE,
        Errno::TIMEDOUT,
    ];
    Errno::from_io_error(error).is_some_and(|error| MEDIUM.contains(&error))
}

/// Opens a file for locking. On a read-only target it is opened for reading, which is enough for a lock.
pub(crate) fn open_to_lock(tree: &Tree, path: &[u8]) -> io::Result<std::fs::File> {
    match tree.write(path) {
        Err(error) if is_of_the_medium(&error) => tree.read(path),
        opened => opened,
    }
}

fn read_config(tree: &Tree) -> Result<(Config, Generation), Unavailable> {
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Unavailable::NoConfig,
        _ => Unavailable::Config(error),
    };
    // `stat` comes first, so that a file that replaces this one is noticed at the next check.
    let before = tree.read(CONFIG).and_then(|file| stat_of(&file)).map_err(absent)?;
    let config = Config::read(tree).map_err(absent)?;
    Ok((config, before.generation()))
}

/// Pool and target named by a `pool.toml`, for messages.
pub(crate) fn describe(config: &Config) -> String {
    let target = config.member(&config.this).map_or("?", |member| member.name.as_str());
    format!("{target} of pool {} ({})", config.name, config.pool)
}

/// Reads the `pool.toml` at a path, before the expected target is known.
pub(crate) fn read_target_config(path: &std::path::Path) -> Result<Config, Unavailable> {
    let tree = Tree::open_owned(path).map_err(Unavailable::Directory)?;
    read_config(&tree).map(|(config, _)| config)
}
