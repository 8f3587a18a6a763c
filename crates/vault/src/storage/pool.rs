//! A pool of target directories, usually one per disk.
//!
//! The content of a file is striped over k targets in *objects*; the namespace is a tree of small *stubs* that say
//! where the objects are, on several targets at once; redundancy goes to targets in other domains. Every
//! target has `pool.toml`, so any one of them leads to the others and nothing has to be kept elsewhere.
//! `docs/pool.md` has the details.
//!
//! A target that is missing, empty or of another pool counts as offline. What is on it is lost until it comes back; it
//! is never taken for deleted.

mod adapter;
pub(crate) mod browse;
pub(crate) mod change;
pub mod config;
mod content;
pub(crate) mod disk;
pub(crate) mod error;
mod exchange;
pub(crate) mod extent;
pub(crate) mod folder;
mod heal;
mod kept;
mod legacy;
mod membership;
pub(crate) mod namespace;
pub mod naming;
pub(crate) mod objects;
mod parity;
pub(crate) mod placement;
pub(crate) mod put;
mod recovery;
pub mod registry;
mod relocation;
mod repair;
pub(crate) mod sequence;
pub(crate) mod several;
mod status;
pub mod stub;
mod sweep;
pub(crate) mod view;

pub use browse::{Listed, Named};
pub use change::MirrorFault;
pub use error::PoolError;
pub use folder::Extra;
pub use heal::Healed;
pub use kept::{Document, Kept};
pub use membership::NewTarget;
pub(crate) use objects::parity_path;
pub use put::Written;
pub use registry::Registry;
pub(crate) use relocation::{Relocation, Spot};
pub use several::Unnamed;
pub use status::{Mirrors, Status, TargetStatus, Warning};
pub use sweep::{Orphan, Sweep};

use crate::tree::Generation;
use crate::world::Clock;
use config::Config;
use disk::{Absence, Disk, describe, look};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use view::View;

/// What does not belong to the pool but to who uses it.
#[derive(Debug, Clone)]
pub struct Options {
    /// For times of changes.
    pub clock: Clock,
    /// How long a disk may take to answer a read before it counts as gone.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { clock: Clock::System, deadline: Duration::from_secs(30) }
    }
}

/// A pool; cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    deadline: Duration,
    /// Stands for the pool in place of the number of a file system.
    pub(crate) device: u64,
    view: RwLock<Arc<View>>,
    /// The last change that is known to be made on all mirrors.
    settled: Mutex<Option<sequence::Position>>,
    /// This process has the pool mounted.
    pub(crate) is_mounted: AtomicBool,
    /// Mirrors that were found to have made it.
    even: Mutex<Option<recovery::Even>>,
    /// Who writes files in place, if someone does in this process.
    writer: RwLock<Option<Weak<dyn Writer>>>,
}

/// Whoever writes files of a pool in place.
pub trait Writer: Send + Sync {
    /// What was written to a file that rests since it was this version, in order and apart; nothing where that is not known.
    fn written_since(&self, path: &[u8], version: &Generation) -> Option<Vec<Range<u64>>>;

    /// Puts back what was protected of cells that nobody wrote to since, as far as that can be.
    fn mend(&self, path: &[u8], cells: &[Range<u64>]);
}

impl Pool {
    /// Whoever uses this pool, or a clone of it, asks `writer` what was written.
    pub fn is_written_by(&self, writer: Weak<dyn Writer>) {
        *self.shared.writer.write().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    fn writer(&self) -> Option<Arc<dyn Writer>> {
        self.shared.writer.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }
}

impl Shared {
    /// The pool as it is known now.
    pub(crate) fn view(&self) -> Arc<View> {
        let view = self.known();
        if view.is_outdated() {
            self.reload(&view);
            return self.known();
        }
        view
    }

    /// The targets with the current namespace that answer; at least one. They know of later epochs, so they alone are
    /// asked. The last change is finished.
    pub(crate) fn copies(&self) -> Result<Vec<view::Copy>, PoolError> {
        let view = self.known();
        let copies = match view.copies() {
            Ok(copies) if copies.iter().all(|copy| copy.epoch <= view.config.epoch) => copies,
            _ => self.view().copies()?,
        };
        self.believed(copies)
    }

    pub(crate) fn known(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn deadline_ms(&self) -> u64 {
        self.deadline.as_millis() as u64
    }

    /// Takes over what a target says that has a later epoch.
    fn reload(&self, view: &View) {
        let configs = view.answers().into_iter().map(|(_, answer)| answer.config);
        let newest = configs.max_by_key(|config| config.epoch);
        if let Some(newest) = newest.filter(|newest| newest.epoch > view.config.epoch) {
            self.take_over(Config::clone(&newest));
        }
    }

    fn take_over(&self, config: Config) -> Arc<View> {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        if config.epoch > view.config.epoch {
            let known = |uuid: &str| view.disks.iter().find(|disk| disk.uuid == uuid).cloned();
            let disks = config.target.iter().map(|member| {
                known(&member.uuid).unwrap_or_else(|| {
                    let path = PathBuf::from(&member.path);
                    Arc::new(Disk::new(&member.name, &member.uuid, path, &config.pool, self.deadline))
                })
            });
            let disks = disks.collect();
            *view = Arc::new(View { config, disks });
        }
        view.clone()
    }

    /// Writes the next epoch to all targets that answer.
    fn save(&self, mut config: Config) -> Result<Arc<View>, PoolError> {
        let view = self.known();
        config.epoch += 1;
        for (member, disk) in config.target.iter_mut().zip(&view.disks) {
            // Where it is now, if it has moved.
            if let (true, Some(path)) = (disk.ask().is_ok(), disk.path.to_str()) {
                path.clone_into(&mut member.path);
            }
        }
        let mut failed = Vec::new();
        let mut written = 0;
        for (index, answer) in view.answers() {
            match config.write(&answer.tree, &config.target[index].uuid) {
                Ok(()) => written += usize::from(config.target[index].state == config::Standing::Online),
                Err(error) => failed.push((index, error)),
            }
        }
        // Who is new has it already.
        let need = config.quorum().saturating_sub(config.target.len() - view.disks.len());
        if written < need {
            if let Some((index, error)) = failed.pop() {
                return Err(PoolError::target(&config.target[index].name, "writing pool.toml")(error));
            }
            let offline = view.offline();
            return Err(PoolError::Quorum { online: written, need, offline });
        }
        Ok(self.take_over(config))
    }
}

impl Pool {
    /// Opens the pool that directories are targets of. Not all have to be named, and not all have to be there.
    ///
    /// # Errors
    /// [`PoolError::Foreign`] if any directory is not what it should be.
    pub fn open_at(paths: &[PathBuf], options: Options) -> Result<Pool, PoolError> {
        let mut found: BTreeMap<String, (PathBuf, Config)> = BTreeMap::new();
        let mut absent = Vec::new();
        for path in paths {
            match look(path) {
                Ok(config) => {
                    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                    found.insert(config.this.clone(), (path, config));
                }
                Err(absence) => absent.push(absence.to_string()),
            }
        }
        let newest = loop {
            let newest = found.values().map(|(_, config)| config).max_by_key(|config| config.epoch);
            let Some(newest) = newest.cloned() else {
                let paths =
                    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
                return Err(PoolError::NotFound { paths, why: absent.join("; ") });
            };
            let before = found.len();
            for member in &newest.target {
                if found.contains_key(&member.uuid) {
                    continue;
                }
                let path = PathBuf::from(&member.path);
                let Ok(config) = look(&path) else { continue };
                refuse_strangers(&path, &config, &newest, &member.uuid)?;
                found.insert(config.this.clone(), (path, config));
            }
            if found.len() == before {
                break newest;
            }
        };
        for (path, config) in found.values() {
            refuse_strangers(path, config, &newest, &config.this)?;
        }
        let disk = |member: &config::Member| {
            let path = found.get(&member.uuid).map_or_else(|| PathBuf::from(&member.path), |at| at.0.clone());
            Arc::new(Disk::new(&member.name, &member.uuid, path, &newest.pool, options.deadline))
        };
        let disks = newest.target.iter().map(disk).collect();
        let device = u64::from_str_radix(&newest.pool[..16], 16).unwrap_or(0);
        let view = RwLock::new(Arc::new(View { config: newest, disks }));
        let Options { clock, deadline } = options;
        let (settled, even, writer) = (Mutex::default(), Mutex::default(), RwLock::default());
        let is_mounted = AtomicBool::new(false);
        let shared = Shared { clock, deadline, device, view, settled, is_mounted, even, writer };
        Ok(Pool { shared: Arc::new(shared) })
    }

    /// Has mirrors that were found even believed for a moment, as in the process that has the pool mounted: for another handle of the pool there, by
    /// which programs read.
    pub fn serve_mount(&self) {
        self.shared.is_mounted.store(true, Ordering::Release);
    }

    /// What `pool.toml` says now.
    pub fn config(&self) -> Config {
        self.shared.view().config.clone()
    }

    /// Asks every target that answers for bytes from its medium. One that fails counts as gone until it is probed again.
    pub fn probe(&self) {
        let view = self.shared.view();
        std::thread::scope(|scope| {
            for disk in &view.disks {
                scope.spawn(|| {
                    disk.probe();
                    disk.probe_again();
                });
            }
        });
    }

    /// Names of targets that answer and do not know of the latest changes, because they were away.
    pub fn behind(&self) -> Vec<String> {
        let view = self.shared.view();
        let missed = |config: &Config| config.epoch < view.config.epoch;
        // One that takes no writes cannot be told. What it has is looked for only where stubs say so.
        let takes_writes = |index: usize| view.disks[index].ask_to_write().is_ok();
        let answers = view.answers().into_iter();
        let answers = answers.filter(|(index, answer)| missed(&answer.config) && takes_writes(*index));
        answers.map(|(index, _)| view.config.target[index].name.clone()).collect()
    }

    /// Where the targets are that answer and take writes, in their order.
    pub fn writable_paths(&self) -> Vec<PathBuf> {
        let view = self.shared.view();
        let takes_writes = view.disks.iter().filter(|disk| disk.ask_to_write().is_ok());
        takes_writes.map(|disk| disk.path.clone()).collect()
    }

    /// Where the targets are, in their order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.shared.view().disks.iter().map(|disk| disk.path.clone()).collect()
    }
}

/// A directory where `uuid` of `pool` should be must be that.
fn refuse_strangers(path: &Path, found: &Config, pool: &Config, uuid: &str) -> Result<(), PoolError> {
    let wanted = pool.member(uuid);
    if found.pool == pool.pool && found.this == uuid && wanted.is_some() {
        return Ok(());
    }
    let target = wanted.map_or("a target", |member| member.name.as_str());
    let wanted = format!("{target} of pool {} ({})", pool.name, pool.pool);
    Err(PoolError::Foreign { path: path.to_owned(), found: describe(found), wanted })
}

/// Why a target does not answer, for people.
fn reason(disk: &Disk) -> Option<String> {
    disk.ask().err().map(|absence: Absence| absence.to_string())
}
