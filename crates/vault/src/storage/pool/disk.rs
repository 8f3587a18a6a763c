//! One target, as it is now. Nothing on it is believed before its `pool.toml` says that it is the right disk.

use super::config::{CONFIG, Config};
use super::objects::OBJECTS;
use crate::storage::Fault;
use crate::storage::lane::Lane;
use crate::tree::{Generation, Tree, stat_of};
use rustix::fs::{Advice, fadvise};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A target, whether it answers or not.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) uuid: String,
    pub(super) path: PathBuf,
    pool: String,
    known: Mutex<Option<Known>>,
    /// Why it is not asked any more, though its directory is there: reading from its medium failed.
    failing: Mutex<Option<String>>,
    pub(super) lane: Arc<Lane>,
}

/// A target that answers.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) tree: Tree,
    pub(super) config: Arc<Config>,
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
pub(super) enum Absence {
    #[error("it does not answer")]
    Stuck,
    #[error("it cannot be read: {0}")]
    Failing(String),
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
    pub(super) fn new(name: &str, uuid: &str, path: PathBuf, pool: &str, deadline: Duration) -> Disk {
        let lane = Arc::new(Lane::new(name, deadline));
        let (uuid, pool) = (uuid.to_owned(), pool.to_owned());
        Disk { uuid, path, pool, known: Mutex::default(), failing: Mutex::default(), lane }
    }

    /// The target, if it is there and the right one.
    ///
    /// Two calls of `stat` tell that nothing has changed since it was last asked.
    pub(super) fn ask(&self) -> Result<Answer, Absence> {
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

    /// Asks the medium itself, not what the system remembers of it: a disk that died is still listed for a while. From a
    /// disk that fails here nothing is taken until a probe succeeds.
    pub(super) fn probe(&self) {
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

    /// Whether the last probe failed.
    pub(super) fn is_failing(&self) -> bool {
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
pub(super) fn describe(config: &Config) -> String {
    let target = config.member(&config.this).map_or("?", |member| member.name.as_str());
    format!("{target} of pool {} ({})", config.name, config.pool)
}

/// What is at a path, before it is known what should be there.
pub(super) fn look(path: &std::path::Path) -> Result<Config, Absence> {
    let tree = Tree::open_owned(path).map_err(Absence::Directory)?;
    read_config(&tree).map(|(config, _)| config)
}
