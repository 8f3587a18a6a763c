//! Membership: creating pools, adding, retiring and giving up targets.

use super::change::LOCK;
use super::config::{
    CONFIG, Config, ConfigError, Member, MemberState, Mirror, TargetName, VERSION, new_identity,
};
use super::disk::{Unavailable, describe, read_target_config};
use super::error::PoolError;
use super::namespace::{NamespaceEntry, TREE, look_up, names};
use super::objects::{OBJECTS, PARITY};
use super::{Options, Pool};
use crate::display_path::DisplayPath;
use crate::redundancy::STAGING;
use crate::tree::{Tree, join};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory that becomes a target.
#[derive(Debug, Clone)]
pub struct NewTarget {
    /// The directory; created if it does not exist.
    pub path: PathBuf,
    /// Failure domain; a domain of its own if none is given.
    pub domain: Option<String>,
}

impl Pool {
    /// The configuration that [`create`](Pool::create) would write.
    ///
    /// # Errors
    /// Invalid numbers and names, unsuitable directories.
    pub fn plan(
        name: &str,
        targets: &[NewTarget],
        stripe: usize,
        block: u64,
        redundancy: usize,
    ) -> Result<Config, PoolError> {
        let identity =
            || new_identity().map_err(|source| PoolError::Caller { doing: "generating an identity", source });
        let mut config = Config {
            format: VERSION,
            pool: identity()?,
            name: name.to_owned(),
            epoch: 1,
            stripe,
            block,
            redundancy,
            this: String::new(),
            target: Vec::new(),
        };
        for target in targets {
            let member = new_member(&config, target, identity()?, None)?;
            config.target.push(member);
        }
        let required = config.required_mirrors();
        choose_mirrors(&mut config, required, |_| true);
        config.validate()?;
        let domains = config.target.iter().map(|member| &member.domain).collect::<BTreeSet<_>>().len();
        if domains < stripe {
            return Err(PoolError::Domains { need: stripe, have: domains, offline: Vec::new() });
        }
        Ok(config)
    }

    /// Creates a pool on empty or missing directories. Files are striped over `stripe` targets in blocks of `block`
    /// bytes, with `redundancy` redundancy columns.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn create(
        name: &str,
        targets: &[NewTarget],
        stripe: usize,
        block: u64,
        redundancy: usize,
        options: Options,
    ) -> Result<Pool, PoolError> {
        let config = Pool::plan(name, targets, stripe, block, redundancy)?;
        // The first directory comes last, since it is looked at first: an unfinished pool has no pool.toml there.
        for member in config.target.iter().rev() {
            initialize_target(Path::new(&member.path), &config, &member.uuid)
                .map_err(PoolError::target(&member.name, "making it a target"))?;
        }
        let paths: Vec<PathBuf> = config.target.iter().map(|member| PathBuf::from(&member.path)).collect();
        Pool::open_at(&paths, options)
    }

    /// Adds a target. Returns its name.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn add(&self, target: &NewTarget) -> Result<TargetName, PoolError> {
        self.add_in_place_of(target, None)
    }

    /// Adds a target. It may be at the mount point of the target `replaced`, which is not there any more. Returns its
    /// name.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn add_in_place_of(
        &self,
        target: &NewTarget,
        replaced: Option<&str>,
    ) -> Result<TargetName, PoolError> {
        let change = self.shared.change()?;
        let mut config = change.view.config.clone();
        let uuid =
            new_identity().map_err(|source| PoolError::Caller { doing: "generating an identity", source })?;
        let member = new_member(&config, target, uuid.clone(), replaced)?;
        let (name, path) = (member.name.clone(), PathBuf::from(&member.path));
        config.target.push(member);
        config.validate()?;
        // The new target comes first: after a crash it is a target unknown to its pool, which can be emptied and added
        // again. In the other order the pool would miss a target.
        let written = Config { epoch: config.epoch + 1, ..config.clone() };
        initialize_target(&path, &written, &uuid).map_err(PoolError::target(&name, "making it a target"))?;
        self.shared.save(config)?;
        Ok(name)
    }

    /// The member that [`add`](Pool::add) would create.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn plan_add(&self, target: &NewTarget, replaced: Option<&str>) -> Result<Member, PoolError> {
        new_member(&self.config(), target, String::new(), replaced)
    }

    /// Stops placing new data on a target. Existing data stays and is read.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn retire(&self, target: &str) -> Result<(), PoolError> {
        let change = self.shared.change()?;
        let mut config = change.view.config.clone();
        let index = config.index_of(target)?;
        config.target[index].state = MemberState::Retired;
        let left: BTreeSet<&String> = in_service(&config).map(|member| &member.domain).collect();
        if left.len() < config.stripe {
            let (need, have, offline) = (config.stripe, left.len(), Vec::new());
            return Err(PoolError::Domains { need, have, offline });
        }
        self.shared.save(config).map(|_| ())
    }
}

impl Pool {
    /// Removes a target from the pool for good. No file may name it, and it may not be in service. If it is reachable,
    /// its `pool.toml` is removed, so that it is no target any more; all else on it stays.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn forget(&self, target: &str) -> Result<TargetName, PoolError> {
        let change = self.shared.change()?;
        let mut config = change.view.config.clone();
        let index = config.index_of(target)?;
        let name = config.target[index].name.clone();
        if config.target[index].state == MemberState::Online {
            return Err(PoolError::InUse { target: name, why: "it is in service".to_owned() });
        }
        let mut ahead = vec![Vec::new()];
        while let Some(directory) = ahead.pop() {
            for (entry, _) in names(&change.copies, &directory)?.iter() {
                let path = join(&directory, entry);
                match look_up(&change.copies, &path)? {
                    Some(NamespaceEntry::Directory(_)) => ahead.push(path),
                    Some(NamespaceEntry::File(stub)) if stub.targets.contains(&name) => {
                        let why = format!("{} is on it", DisplayPath::bytes(&path));
                        return Err(PoolError::InUse { target: name, why });
                    }
                    _ => {}
                }
            }
        }
        let uuid = config.target.remove(index).uuid;
        config.validate()?;
        let disk = change.view.disks.iter().find(|disk| disk.uuid == uuid).cloned();
        self.shared.save(config)?;
        // The others come first: after a crash in between it is a target that the pool does not know.
        if let Some(online) = disk.and_then(|disk| disk.online().ok()) {
            let removed = online.tree.remove(CONFIG).and_then(|_| online.tree.sync_directory(b""));
            removed.map_err(PoolError::target(&name, "removing its pool.toml"))?;
        }
        Ok(name)
    }

    /// The target of a name that a user gave.
    ///
    /// # Errors
    /// [`PoolError::NoTarget`].
    pub fn target(&self, name: &str) -> Result<TargetName, PoolError> {
        let config = self.config();
        config.index_of(name).map(|index| config.target[index].name.clone())
    }

    /// Gives targets up: their content counts as lost, even if they return, until [`reinstate`](Pool::reinstate). They
    /// receive nothing new. If more targets are gone than the pool has redundancy, those left may have missed a change;
    /// then the user must confirm (`agreed`).
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn give_up(&self, targets: &[TargetName], agreed: bool) -> Result<(), PoolError> {
        let change = if agreed { self.shared.lock_namespace()? } else { self.shared.change()? };
        self.set_member_state(change.view.config.clone(), targets, MemberState::Away)
    }

    /// Returns given-up targets to service after all their content was verified.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn reinstate(&self, targets: &[TargetName]) -> Result<(), PoolError> {
        let change = self.shared.change()?;
        self.set_member_state(change.view.config.clone(), targets, MemberState::Online)
    }

    fn set_member_state(
        &self,
        mut config: Config,
        targets: &[TargetName],
        state: MemberState,
    ) -> Result<(), PoolError> {
        let mut changed = false;
        for target in targets {
            let index = config.index_of(target)?;
            let member = &mut config.target[index];
            // A retired target stays retired: it does not return to service by itself.
            if member.state != state && member.state != MemberState::Retired {
                member.state = state;
                changed = true;
            }
        }
        if changed { self.shared.save(config).map(|_| ()) } else { Ok(()) }
    }
}

impl Config {
    /// Position of the target of a name that a user gave.
    fn index_of(&self, name: &str) -> Result<usize, PoolError> {
        self.target.iter().position(|member| member.name == *name).ok_or_else(|| {
            let known: Vec<&str> = self.target.iter().map(|member| member.name.as_str()).collect();
            PoolError::NoTarget { pool: self.name.clone(), target: name.to_owned(), known: known.join(", ") }
        })
    }
}

fn in_service(config: &Config) -> impl Iterator<Item = &Member> {
    config.target.iter().filter(|member| member.state == MemberState::Online)
}

/// A member for a directory, with a unique name.
fn new_member(
    config: &Config,
    target: &NewTarget,
    uuid: String,
    replaced: Option<&str>,
) -> Result<Member, PoolError> {
    let unfit = |why: String| PoolError::Unfit { path: target.path.clone(), why };
    let path = std::path::absolute(&target.path).map_err(|error| unfit(error.to_string()))?;
    let text =
        path.to_str().ok_or_else(|| unfit("its path is not UTF-8, as pool.toml requires".to_owned()))?;
    let there = config.target.iter().find(|member| member.path == text);
    if let Some(member) = there.filter(|member| replaced.is_none_or(|name| member.name != *name)) {
        let name = &member.name;
        return Err(unfit(format!(
            "it is the directory of target {name}; a new disk takes the place of that target with `gabion pool replace`"
        )));
    }
    let place = real(&path);
    for member in &config.target {
        let (name, other) = (&member.name, real(Path::new(&member.path)));
        if place != other && (place.starts_with(&other) || other.starts_with(&place)) {
            let why =
                format!("it and target {name} at {} lie in each other: they fail together", member.path);
            return Err(unfit(why));
        }
    }
    match read_target_config(&path) {
        Ok(found) => return Err(unfit(format!("it is target {}", describe(&found)))),
        Err(Unavailable::NoConfig) => {
            let mut entries = std::fs::read_dir(&path).map_err(|error| unfit(error.to_string()))?;
            // `mkfs` creates this in a new file system.
            if entries.any(|entry| entry.map_or(true, |entry| entry.file_name() != "lost+found")) {
                return Err(unfit("the directory is not empty".to_owned()));
            }
        }
        Err(Unavailable::Directory(error)) if error.kind() == io::ErrorKind::NotFound => {}
        Err(unavailable) => return Err(unfit(unavailable.to_string())),
    }
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let base = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let base: String = base.trim_start_matches('.').chars().map(plain).take(48).collect();
    let base = if base.is_empty() { "target".to_owned() } else { base };
    let is_free = |name: &String| config.target.iter().all(|member| member.name != *name);
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let name = std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base);
    let name = TargetName::try_from(name)?;
    let domain = target.domain.clone().unwrap_or_else(|| name.to_string());
    if !super::config::is_name(&domain) {
        return Err(ConfigError::Name(domain).into());
    }
    let (state, mirror) = (MemberState::Online, Mirror::None);
    Ok(Member { name, uuid, path: text.to_owned(), domain, state, mirror })
}

/// Makes up to `required` targets mirrors, in different domains as long as there are any. Returns the new mirrors.
pub(crate) fn choose_mirrors(
    config: &mut Config,
    required: usize,
    can: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let is_current =
        |member: &Member| member.mirror == Mirror::Current && member.state == MemberState::Online;
    let mut chosen = Vec::new();
    while config.target.iter().filter(|member| is_current(member)).count() < required {
        let taken: BTreeSet<&String> =
            config.target.iter().filter(|member| is_current(member)).map(|member| &member.domain).collect();
        let free = config.target.iter().enumerate().filter(|(index, member)| {
            member.state == MemberState::Online && member.mirror != Mirror::Current && can(*index)
        });
        let Some((index, _)) = free.min_by_key(|(_, member)| taken.contains(&member.domain)) else { break };
        config.target[index].mirror = Mirror::Current;
        chosen.push(index);
    }
    chosen
}

/// Initializes a directory as a target.
fn initialize_target(path: &Path, config: &Config, uuid: &str) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    let tree = Tree::open_owned(path)?;
    for top in [OBJECTS, PARITY, STAGING, TREE] {
        tree.make_directories(top, 0o700)?;
    }
    match tree.create(LOCK, 0o600) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    config.write(&tree, uuid)
}

/// Canonical path; components that do not exist yet are appended.
fn real(path: &Path) -> PathBuf {
    match (std::fs::canonicalize(path), path.parent(), path.file_name()) {
        (Ok(real), ..) => real,
        (Err(_), Some(above), Some(name)) => real(above).join(name),
        (Err(_), ..) => path.to_owned(),
    }
}
