//! Pools are made, and targets come and go.

use super::change::LOCK;
use super::config::{Config, ConfigError, Member, Mirror, Standing, VERSION, new_identity};
use super::disk::{Absence, describe, look};
use super::error::PoolError;
use super::namespace::TREE;
use super::objects::{OBJECTS, PARITY};
use super::{Options, Pool};
use crate::redundancy::STAGING;
use crate::tree::Tree;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory that shall become a target.
#[derive(Debug, Clone)]
pub struct NewTarget {
    /// The directory; made if it is missing.
    pub path: PathBuf,
    /// What it fails together with; alone if not said.
    pub domain: Option<String>,
}

impl Pool {
    /// What [`create`](Pool::create) would write, without writing it.
    ///
    /// # Errors
    /// Numbers and names that cannot be, directories that cannot become targets.
    pub fn plan(
        name: &str,
        targets: &[NewTarget],
        stripe: usize,
        block: u64,
        redundancy: usize,
    ) -> Result<Config, PoolError> {
        let identity =
            || new_identity().map_err(|source| PoolError::Caller { doing: "making an identity", source });
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
            let member = new_member(&config, target, identity()?)?;
            config.target.push(member);
        }
        let wanted = config.wanted_mirrors();
        choose_mirrors(&mut config, wanted, |_| true);
        config.validate()?;
        let domains = config.target.iter().map(|member| &member.domain).collect::<BTreeSet<_>>().len();
        if domains < stripe {
            return Err(PoolError::Domains { need: stripe, have: domains, offline: Vec::new() });
        }
        Ok(config)
    }

    /// Makes a pool of directories that are empty or not there yet. Files are striped over `stripe` of them in blocks of `block`
    /// bytes, and `redundancy` more columns are wanted.
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
        // Last where people look first: a pool that was not finished has no pool.toml in the first directory.
        for member in config.target.iter().rev() {
            furnish(Path::new(&member.path), &config, &member.uuid)
                .map_err(PoolError::target(&member.name, "making it a target"))?;
        }
        let paths: Vec<PathBuf> = config.target.iter().map(|member| PathBuf::from(&member.path)).collect();
        Pool::open_at(&paths, options)
    }

    /// Adds a target. Gives the name it got.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn add(&self, target: &NewTarget) -> Result<String, PoolError> {
        let change = self.shared.change()?;
        let mut config = change.view.config.clone();
        let uuid =
            new_identity().map_err(|source| PoolError::Caller { doing: "making an identity", source })?;
        let member = new_member(&config, target, uuid.clone())?;
        let (name, path) = (member.name.clone(), PathBuf::from(&member.path));
        config.target.push(member);
        config.validate()?;
        // The new target first: should we die here, it is a target that its pool does not know, and can be added again
        // once it is emptied. The other way round the pool would miss a target.
        let written = Config { epoch: config.epoch + 1, ..config.clone() };
        furnish(&path, &written, &uuid).map_err(PoolError::target(&name, "making it a target"))?;
        self.shared.save(config)?;
        Ok(name)
    }

    /// What [`add`](Pool::add) would call a target.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn plan_add(&self, target: &NewTarget) -> Result<Member, PoolError> {
        new_member(&self.config(), target, String::new())
    }

    /// Lets nothing new go to a target. What is there stays, and is read as before.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn retire(&self, target: &str) -> Result<(), PoolError> {
        let change = self.shared.change()?;
        let mut config = change.view.config.clone();
        let known = config.target.iter().map(|member| member.name.clone()).collect::<Vec<_>>().join(", ");
        let pool = config.name.clone();
        match config.target.iter_mut().find(|member| member.name == target) {
            Some(member) => member.state = Standing::Retired,
            None => return Err(PoolError::NoTarget { pool, target: target.to_owned(), known }),
        }
        let left: BTreeSet<&String> = in_service(&config).map(|member| &member.domain).collect();
        if left.len() < config.stripe {
            let (need, have, offline) = (config.stripe, left.len(), Vec::new());
            return Err(PoolError::Domains { need, have, offline });
        }
        self.shared.save(config).map(|_| ())
    }
}

impl Pool {
    /// Gives targets up: what is on them counts as lost from now on, also if they answer again, until
    /// [`take_back`](Pool::take_back). Nothing new goes there. With more targets gone than the pool has redundancy, the rest may be the ones
    /// that missed a change: then only a person can decide that there are no others, `agreed`.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn give_up(&self, targets: &[String], agreed: bool) -> Result<(), PoolError> {
        let change = if agreed { self.shared.turn()? } else { self.shared.change()? };
        self.set_standing(change.view.config.clone(), targets, Standing::Away)
    }

    /// Takes targets back that were given up, now that all that is on them has been verified.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub fn take_back(&self, targets: &[String]) -> Result<(), PoolError> {
        let change = self.shared.change()?;
        self.set_standing(change.view.config.clone(), targets, Standing::Online)
    }

    fn set_standing(
        &self,
        mut config: Config,
        targets: &[String],
        standing: Standing,
    ) -> Result<(), PoolError> {
        let mut changed = false;
        for target in targets {
            let known = || config.target.iter().map(|member| member.name.clone()).collect::<Vec<_>>();
            let (pool, list) = (config.name.clone(), known().join(", "));
            let member = config.target.iter_mut().find(|member| member.name == *target);
            let Some(member) = member else {
                return Err(PoolError::NoTarget { pool, target: target.clone(), known: list });
            };
            // Who was retired stays so: it is not to come back into service by itself.
            if member.state != standing && member.state != Standing::Retired {
                member.state = standing;
                changed = true;
            }
        }
        if changed { self.shared.save(config).map(|_| ()) } else { Ok(()) }
    }
}

fn in_service(config: &Config) -> impl Iterator<Item = &Member> {
    config.target.iter().filter(|member| member.state == Standing::Online)
}

/// A member for a directory, under a name that no other has.
fn new_member(config: &Config, target: &NewTarget, uuid: String) -> Result<Member, PoolError> {
    let unfit = |why: String| PoolError::Unfit { path: target.path.clone(), why };
    let path = std::path::absolute(&target.path).map_err(|error| unfit(error.to_string()))?;
    let text = path.to_str().ok_or_else(|| unfit("its path is not UTF-8, and pool.toml is".to_owned()))?;
    if config.target.iter().any(|member| member.path == text) {
        return Err(ConfigError::Twice { field: "directory", value: text.to_owned() }.into());
    }
    match look(&path) {
        Ok(found) => return Err(unfit(format!("it is target {}", describe(&found)))),
        Err(Absence::Empty) => {
            let mut entries = std::fs::read_dir(&path).map_err(|error| unfit(error.to_string()))?;
            // What mkfs leaves in a new file system.
            if entries.any(|entry| entry.map_or(true, |entry| entry.file_name() != "lost+found")) {
                return Err(unfit("it is not empty".to_owned()));
            }
        }
        Err(Absence::Directory(error)) if error.kind() == io::ErrorKind::NotFound => {}
        Err(absence) => return Err(unfit(absence.to_string())),
    }
    let plain =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let base = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let base: String = base.trim_start_matches('.').chars().map(plain).take(48).collect();
    let base = if base.is_empty() { "target".to_owned() } else { base };
    let is_free = |name: &String| config.target.iter().all(|member| member.name != *name);
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let name = std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base);
    let domain = target.domain.clone().unwrap_or_else(|| name.clone());
    if !super::config::is_name(&domain) {
        return Err(ConfigError::Name(domain).into());
    }
    let (state, mirror) = (Standing::Online, Mirror::None);
    Ok(Member { name, uuid, path: text.to_owned(), domain, state, mirror })
}

/// Makes up to `wanted` targets mirrors, in different domains as long as there are any. Gives those that became one.
pub(crate) fn choose_mirrors(config: &mut Config, wanted: usize, can: impl Fn(usize) -> bool) -> Vec<usize> {
    let is_current = |member: &Member| member.mirror == Mirror::Current && member.state == Standing::Online;
    let mut chosen = Vec::new();
    while config.target.iter().filter(|member| is_current(member)).count() < wanted {
        let taken: BTreeSet<&String> =
            config.target.iter().filter(|member| is_current(member)).map(|member| &member.domain).collect();
        let free = config.target.iter().enumerate().filter(|(index, member)| {
            member.state == Standing::Online && member.mirror != Mirror::Current && can(*index)
        });
        let Some((index, _)) = free.min_by_key(|(_, member)| taken.contains(&member.domain)) else { break };
        config.target[index].mirror = Mirror::Current;
        chosen.push(index);
    }
    chosen
}

/// Makes a directory a target.
fn furnish(path: &Path, config: &Config, uuid: &str) -> io::Result<()> {
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
