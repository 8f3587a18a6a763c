//! One target, as it is now. Nothing on it is believed before its `pool.toml` says that it is the right disk.
//!
//! A target that can be read may still refuse writes: its file system turned read-only after an error, or its medium fails on writes. This
//! module decides that, in [`Disk::note_failed_write`] and [`Disk::ask_to_write`]; placement, open files and locks ask here. Such a target is
//! read as before and gets nothing new.

use super::change::LOCK;
use super::config::{CONFIG, Config};
use super::objects::OBJECTS;
use super::sequence::temporary_name;
use crate::storage::Fault;
use crate::storage::lane::Lane;
use crate::tree::{Generation, Tree, stat_of};
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A target, whether it answers or not.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) uuid: String,
    pub(crate) path: PathBuf,
    pool: String,
    known: Mutex<Option<Known>>,
    /// Why it is not asked any more, though its directory is there: reading from its medium failed.
    failing: Mutex<Option<String>>,
    /// Why nothing is written to it, though it can be read: a write failed.
    refused: Mutex<Option<String>>,
    pub(crate) lane: Arc<Lane>,
}

/// A target that answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) tree: Tree,
    pub(crate) config: Arc<Config>,
}

#[derive(Debug)]
struct Known {
    answer: Answer,
    /// File system and inode of the directory: another one at the same path is another disk, or the mount point
    /// below it.
    root: (u64, u64),
    /// The `pool.toml` that was read; it is never changed in place.
    config: Generation,
}

/// Why a target does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Absence {
    #[error("it does not answer")]
    Stuck,
    #[error("it cannot be read: {0}")]
    Failing(String),
    #[error("it takes no writes: {0}")]
    Unwritable(String),
    #[error("{0}")]
    Directory(io::Error),
    #[error("no pool.toml: is the disk not mounted?")]
    Empty,
    #[error("its pool.toml: {0}")]
    Config(io::Error),
    #[error("it is target {found} of another pool or place")]
    Foreign { found: String },
}

impl Disk {
    pub(crate) fn new(name: &str, uuid: &str, path: PathBuf, pool: &str, deadline: Duration) -> Disk {
        let lane = Arc::new(Lane::new(name, deadline));
        let (uuid, pool) = (uuid.to_owned(), pool.to_owned());
        Disk {
            uuid,
            path,
            pool,
            known: Mutex::default(),
            failing: Mutex::default(),
            refused: Mutex::default(),
            lane,
        }
    }

    /// The target, if it is there and the right one.
    ///
    /// Two calls of `stat` tell that nothing has changed since it was last asked.
    pub(crate) fn ask(&self) -> Result<Answer, Absence> {
        if self.lane.is_stuck() {
            return Err(Absence::Stuck);
        }
        if let Some(why) = self.failing.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Err(Absence::Failing(why.clone()));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.ask_again(known.take())?;
        Ok(known.insert(found).answer.clone())
    }

    /// The target, if it is there and takes writes as far as that can be told without writing.
    pub(crate) fn ask_to_write(&self) -> Result<Answer, Absence> {
        let answer = self.ask()?;
        if let Some(why) = self.refused.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            return Err(Absence::Unwritable(why.clone()));
        }
        match refusal(&answer.tree) {
            Some(error) => Err(Absence::Unwritable(error.to_string())),
            None => Ok(answer),
        }
    }

    /// Whether writes to it failed: nothing is written to it until a write succeeds again.
    pub(crate) fn refuses_writes(&self) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// A write to the target failed. Asks the medium, and says whether nothing more should be written to it in this process: because it
    /// is gone, or because it takes no writes.
    pub(crate) fn note_failed_write(&self, error: &io::Error) -> bool {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return false;
        }
        self.probe();
        if self.ask().is_ok() && is_of_the_medium(error) {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        self.ask_to_write().is_err()
    }

    /// Writes to a target that refused writes. If that succeeds, it is used again.
    fn probe_writing(&self) {
        let Ok(Answer { tree, .. }) = self.ask() else { return };
        let write = move || -> io::Result<()> {
            let name = temporary_name(".note")?;
            let mut file = tree.create(&name, 0o600)?;
            let written =
                file.write_all(b"gabion writes this to see whether it can").and_then(|()| file.sync_all());
            // A file that stays is found by a sweep.
            tree.remove(&name).and(written)
        };
        if let Ok(Ok(())) = self.lane.run(write) {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    /// Asks the medium itself, not what the system remembers of it: a disk that died is still listed for a while. From a
    /// disk that fails here nothing is taken until a probe succeeds.
    pub(crate) fn probe(&self) {
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let Ok(Answer { tree, .. }) = self.ask() else { return };
        let read = move || -> io::Result<()> {
            let file = tree.read(CONFIG)?;
            // Only advice: without it the answer may come from memory.
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
            Config::read(&tree)?;
            tree.directory(OBJECTS)?.names().map(|_| ())
        };
        let failed = match self.lane.run(read) {
            Ok(Ok(())) | Err(Fault::Timeout(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(fault) => Some(fault.to_string()),
        };
        *self.failing.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// Asks a target again that failed, or refused writes.
    pub(crate) fn probe_again(&self) {
        if self.is_failing() {
            self.probe();
        }
        if self.refuses_writes() {
            self.probe_writing();
        }
    }

    /// Whether the last probe failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn ask_again(&self, known: Option<Known>) -> Result<Known, Absence> {
        let root = std::fs::metadata(&self.path).map_err(Absence::Directory)?;
        let root = (root.dev(), root.ino());
        if let Some(known) = known.filter(|known| known.root == root) {
            let now = known.answer.tree.find(CONFIG).map_err(Absence::Config)?;
            if now.is_some_and(|now| now.generation() == known.config) {
                return Ok(known);
            }
        }
        let tree = Tree::open_owned(&self.path).map_err(Absence::Directory)?;
        let (config, generation) = read_config(&tree)?;
        if config.pool != self.pool || config.this != self.uuid {
            return Err(Absence::Foreign { found: describe(&config) });
        }
        // A directory that was exchanged meanwhile is seen by its number when it is asked next.
        Ok(Known { answer: Answer { tree, config: Arc::new(config) }, root, config: generation })
    }
}

/// Why a file system takes no writes, as far as that can be told without writing. A file that exists is opened for writing: ext4 that found an
/// error refuses that, but `statvfs` does not always call it read-only (seen on Linux 6.18).
fn refusal(tree: &Tree) -> Option<io::Error> {
    match tree.is_read_only() {
        Ok(true) => Some(Errno::ROFS.into()),
        Ok(false) => tree.write(LOCK).err().filter(is_of_the_medium),
        Err(error) => Some(error),
    }
}

/// Whether an error comes from the disk or its file system and not from the one file that was written.
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

/// Opens a file to lock it. On a target that takes no writes it is opened for reading, which locks as well.
pub(crate) fn open_to_lock(tree: &Tree, path: &[u8]) -> io::Result<std::fs::File> {
    match tree.write(path) {
        Err(error) if is_of_the_medium(&error) => tree.read(path),
        opened => opened,
    }
}

fn read_config(tree: &Tree) -> Result<(Config, Generation), Absence> {
    let absent = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Absence::Empty,
        _ => Absence::Config(error),
    };
    // The stat first: a file that replaces this one meanwhile is noticed next time.
    let before = tree.read(CONFIG).and_then(|file| stat_of(&file)).map_err(absent)?;
    let config = Config::read(tree).map_err(absent)?;
    Ok((config, before.generation()))
}

/// Pool and target that a `pool.toml` speaks of, for people.
pub(crate) fn describe(config: &Config) -> String {
    let target = config.member(&config.this).map_or("?", |member| member.name.as_str());
    format!("{target} of pool {} ({})", config.name, config.pool)
}

/// What is at a path, before it is known what should be there.
pub(crate) fn look(path: &std::path::Path) -> Result<Config, Absence> {
    let tree = Tree::open_owned(path).map_err(Absence::Directory)?;
    read_config(&tree).map(|(config, _)| config)
}
