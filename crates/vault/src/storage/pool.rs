//! Pool of target directories, usually one per disk.
//!
//! Content is striped over k targets in *objects*. The namespace is a tree of small *stubs* that say where the
//! objects are, mirrored on several targets. Redundancy goes to targets in other failure domains. Every target has a
//! `pool.toml`, so any target leads to the others and no external state is needed. `docs/reference/pool.md` has the
//! details.
//!
//! A target that is missing, empty or of another pool counts as offline. Its content counts as lost until it returns;
//! missing content is never taken for deleted.

mod adapter;
pub(crate) mod browse;
pub(crate) mod change;
pub mod config;
mod content;
pub(crate) mod disk;
mod documents;
pub(crate) mod error;
mod exchange;
pub(crate) mod extent;
pub(crate) mod folder;
pub(crate) mod hard_links;
mod heal;
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
mod status;
pub mod stub;
mod sweep;
pub(crate) mod view;

pub use browse::{DirectoryEntry, ListedEntry};
pub use change::MirrorFault;
pub use documents::{Document, StoredDocument};
pub use error::PoolError;
pub use folder::DirectoryExtra;
pub use hard_links::Unlinked;
pub use heal::HealReport;
pub use membership::NewTarget;
pub(crate) use objects::parity_path;
pub use put::PutResult;
pub use registry::Registry;
pub(crate) use relocation::{ColumnPlacement, Relocation};
pub(crate) use status::occupied;
pub use status::{Mirrors, Status, TargetStatus, Warning};
pub use sweep::{Orphan, Sweep};

use crate::tree::Generation;
use crate::world::Clock;
use config::Config;
use disk::{Disk, Unavailable, describe, read_target_config};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use view::View;

/// Settings of a process that opens a pool.
#[derive(Debug, Clone)]
pub struct Options {
    /// Clock for timestamps of changes.
    pub clock: Clock,
    /// Deadline for a read of a disk before it counts as unreachable.
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
    /// Device number of the pool in file status, in place of that of a file system.
    pub(crate) device: u64,
    view: RwLock<Arc<View>>,
    /// The last change that is known to be applied on all mirrors.
    completed: Mutex<Option<sequence::Position>>,
    /// This process has the pool mounted.
    pub(crate) is_mounted: AtomicBool,
    /// The last survey that found all mirrors consistent.
    consistent: Mutex<Option<recovery::ConsistentMirrors>>,
    /// Writer of files in place, if this process has one.
    writer: RwLock<Option<Weak<dyn PoolWriter>>>,
}

/// A mount that writes files of a pool in place.
pub trait PoolWriter: Send + Sync {
    /// Ranges of a file at rest written since `version`, sorted and disjoint; none if they are not known.
    fn written_since(&self, path: &[u8], version: &Generation) -> Option<Vec<Range<u64>>>;

    /// Restores protected content of cells that were not written since, as far as possible.
    fn repair_blocks(&self, path: &[u8], cells: &[Range<u64>]);
}

impl Pool {
    /// Sets the in-place writer, for all clones of this pool.
    pub fn set_writer(&self, writer: Weak<dyn PoolWriter>) {
        *self.shared.writer.write().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    fn writer(&self) -> Option<Arc<dyn PoolWriter>> {
        self.shared.writer.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.upgrade()
    }
}

impl Shared {
    /// The present view; reloaded if a target has a later epoch.
    pub(crate) fn view(&self) -> Arc<View> {
        let view = self.cached_view();
        if view.is_outdated() {
            self.reload(&view);
            return self.cached_view();
        }
        view
    }

    /// The reachable targets with the current namespace, at least one. Only these are asked, since they know of later
    /// epochs. The last change is completed first.
    pub(crate) fn copies(&self) -> Result<Vec<view::MirrorCopy>, PoolError> {
        let view = self.cached_view();
        let copies = match view.copies() {
            Ok(copies) if copies.iter().all(|copy| copy.epoch <= view.config.epoch) => copies,
            _ => self.view().copies()?,
        };
        self.readable_mirrors(copies)
    }

    pub(crate) fn cached_view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn deadline_ms(&self) -> u64 {
        self.deadline.as_millis() as u64
    }

    /// Adopts the configuration of a target with a later epoch.
    fn reload(&self, view: &View) {
        let configs = view.online_targets().into_iter().map(|(_, online)| online.config);
        let newest = configs.max_by_key(|config| config.epoch);
        if let Some(newest) = newest.filter(|newest| newest.epoch > view.config.epoch) {
            self.adopt(Config::clone(&newest));
        }
    }

    fn adopt(&self, config: Config) -> Arc<View> {
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

    /// Writes the next epoch to all reachable targets.
    fn save(&self, mut config: Config) -> Result<Arc<View>, PoolError> {
        let view = self.cached_view();
        config.epoch += 1;
        let mut new = 0;
        for member in &mut config.target {
            let Some(disk) = view.disks.iter().find(|disk| disk.uuid == member.uuid) else {
                new += 1;
                continue;
            };
            // Its present path, if it has moved.
            if let (true, Some(path)) = (disk.online().is_ok(), disk.path.to_str()) {
                path.clone_into(&mut member.path);
            }
        }
        let mut failed = Vec::new();
        let mut written = 0;
        for (index, online) in view.online_targets() {
            // A target that is being removed keeps what it has.
            let Some(member) = config.member(&view.disks[index].uuid) else { continue };
            match config.write(&online.tree, &member.uuid) {
                Ok(()) => written += usize::from(member.state == config::MemberState::Online),
                Err(error) => failed.push((member.name.clone(), error)),
            }
        }
        // New targets have the configuration already.
        let need = config.quorum().saturating_sub(new);
        if written < need {
            if let Some((name, error)) = failed.pop() {
                return Err(PoolError::target(&name, "writing pool.toml")(error));
            }
            let offline = view.offline();
            return Err(PoolError::Quorum { online: written, need, offline });
        }
        Ok(self.adopt(config))
    }
}

impl Pool {
    /// Opens the pool that these directories are targets of. Neither all targets have to be named nor all have to
    /// exist.
    ///
    /// # Errors
    /// [`PoolError::Foreign`] if a directory is not the expected target.
    pub fn open_at(paths: &[PathBuf], options: Options) -> Result<Pool, PoolError> {
        let mut found: BTreeMap<String, (PathBuf, Config)> = BTreeMap::new();
        let mut absent = Vec::new();
        for path in paths {
            match read_target_config(path) {
                Ok(config) => {
                    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                    found.insert(config.this.clone(), (path, config));
                }
                Err(unavailable) => absent.push(unavailable.to_string()),
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
                let Ok(config) = read_target_config(&path) else { continue };
                // The disk that replaced it is at the same mount point.
                let replaced_by = newest.member(&config.this).filter(|_| config.pool == newest.pool);
                if replaced_by.is_some_and(|other| other.path == member.path) && config.this != member.uuid {
                    continue;
                }
                check_identity(&path, &config, &newest, &member.uuid)?;
                found.insert(config.this.clone(), (path, config));
            }
            if found.len() == before {
                break newest;
            }
        };
        // A target that was removed from the pool still names it if it was not reachable then.
        let is_removed = |config: &Config| {
            let is_earlier = config.pool == newest.pool && config.epoch < newest.epoch;
            is_earlier && newest.member(&config.this).is_none()
        };
        for (path, config) in found.values().filter(|(_, config)| !is_removed(config)) {
            check_identity(path, config, &newest, &config.this)?;
        }
        let disk = |member: &config::Member| {
            let path = found.get(&member.uuid).map_or_else(|| PathBuf::from(&member.path), |at| at.0.clone());
            Arc::new(Disk::new(&member.name, &member.uuid, path, &newest.pool, options.deadline))
        };
        let disks = newest.target.iter().map(disk).collect();
        let device = u64::from_str_radix(&newest.pool[..16], 16).unwrap_or(0);
        let view = RwLock::new(Arc::new(View { config: newest, disks }));
        let Options { clock, deadline } = options;
        let (completed, consistent, writer) = (Mutex::default(), Mutex::default(), RwLock::default());
        let is_mounted = AtomicBool::new(false);
        let shared = Shared { clock, deadline, device, view, completed, is_mounted, consistent, writer };
        Ok(Pool { shared: Arc::new(shared) })
    }

    /// Uses a survey of mirrors for a short time, as the process that has the pool mounted does: for a second handle
    /// of the pool in that process, through which programs read.
    pub fn serve_mount(&self) {
        self.shared.is_mounted.store(true, Ordering::Release);
    }

    /// The present content of `pool.toml`.
    pub fn config(&self) -> Config {
        self.shared.view().config.clone()
    }

    /// Probes the medium of every reachable target. A target that fails counts as unreachable until it is probed again.
    pub fn probe(&self) {
        let view = self.shared.view();
        std::thread::scope(|scope| {
            for disk in &view.disks {
                scope.spawn(|| {
                    disk.probe();
                    disk.retry();
                });
            }
        });
    }

    /// Names of reachable targets that missed the latest changes because they were offline.
    pub fn outdated_targets(&self) -> Vec<config::TargetName> {
        let view = self.shared.view();
        let missed = |config: &Config| config.epoch < view.config.epoch;
        // A read-only target cannot be updated. Its content is used only where stubs refer to it.
        let takes_writes = |index: usize| view.disks[index].online_writable().is_ok();
        let answers = view.online_targets().into_iter();
        let answers = answers.filter(|(index, online)| missed(&online.config) && takes_writes(*index));
        answers.map(|(index, _)| view.config.target[index].name.clone()).collect()
    }

    /// Paths of the reachable, writable targets, in order.
    pub fn writable_paths(&self) -> Vec<PathBuf> {
        let view = self.shared.view();
        let takes_writes = view.disks.iter().filter(|disk| disk.online_writable().is_ok());
        takes_writes.map(|disk| disk.path.clone()).collect()
    }

    /// Paths of all targets, in order.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.shared.view().disks.iter().map(|disk| disk.path.clone()).collect()
    }
}

/// Checks that a directory is target `uuid` of `pool`.
fn check_identity(path: &Path, found: &Config, pool: &Config, uuid: &str) -> Result<(), PoolError> {
    let expected = pool.member(uuid);
    if found.pool == pool.pool && found.this == uuid && expected.is_some() {
        return Ok(());
    }
    let target = expected.map_or("a target", |member| member.name.as_str());
    let expected = format!("{target} of pool {} ({})", pool.name, pool.pool);
    Err(PoolError::Foreign { path: path.to_owned(), found: describe(found), expected })
}

/// Why a target is unreachable, for messages.
fn reason(disk: &Disk) -> Option<String> {
    disk.online().err().map(|unavailable: Unavailable| unavailable.to_string())
}
