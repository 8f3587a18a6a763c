//! `vault.toml`, and where a vault is.

use super::pointer::{Pointer, protected_above, protected_below, refuse_url};
use super::shared::{self, reconcile};
use super::{OWN, VaultError, at, parent};
use crate::changelog::server::without_password;
use crate::policy::Policy;
use crate::private;
use crate::shown::Shown;
use crate::storage::pool::{Document, Pool};
use crate::tree::{self, Stat};
use crate::world::{Nanos, unique_id};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file with the settings.
pub(super) const FILE: &str = "vault.toml";

/// The changelog that needs no server.
pub(super) const EMBEDDED: &str = "embedded";

const VERSION: u32 = 1;

/// How a vault is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of the repository's layout.
    pub version: u32,
    /// Identity of the vault.
    pub id: String,
    /// What is protected.
    #[serde(default)]
    pub storage: Kind,
    /// The protected tree, or a target of the pool; relative to the repository where that lies within.
    pub root: PathBuf,
    /// Where changes are remembered: `embedded`, or the address of a Redis server.
    pub changelog: String,
}

/// What settings of all versions have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// What all targets of a pool know of its vault: the same wherever that lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u32,
    id: String,
    changelog: String,
}

impl Description {
    fn parse(text: &str, repository: &Path) -> Result<Description, VaultError> {
        let wrong = |why: String| VaultError::Settings {
            path: repository.join(FILE),
            why: format!("the copy that the targets of the pool have: {why}"),
        };
        let found: Description = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let is_id = found.id.len() == 32 && found.id.bytes().all(|byte| byte.is_ascii_hexdigit());
        match found.version {
            VERSION if is_id => Ok(found),
            VERSION => Err(wrong(format!("{:?} is no identity", found.id))),
            other => Err(wrong(format!("version {other} is not known here (version {VERSION} is)"))),
        }
    }
}

/// What a vault protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory.
    #[default]
    Plain,
    /// A pool of targets.
    Pool,
}

/// Where a vault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// What kind of storage it protects.
    pub storage: Kind,
    /// The protected tree, or any target of the pool.
    pub root: PathBuf,
    /// Its repository.
    pub repository: PathBuf,
}

/// The vault of a pool lies in this directory of one of its targets.
const OF_POOL: &str = "vault";

impl Location {
    /// A vault for `root`, with its repository within unless another one is named.
    pub fn of(root: &Path, repository: Option<&Path>) -> Location {
        let repository = repository.map_or_else(|| root.join(OWN), Path::to_owned);
        Location { storage: Kind::Plain, root: root.to_owned(), repository }
    }

    /// The vault of a pool: on the target that has one and takes writes; otherwise, on the first that does. While a target was away, another vault may
    /// have been begun: the one that was worked with last counts.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`] where no target answers.
    pub fn of_pool(pool: &Pool) -> Result<Location, VaultError> {
        let mut paths = pool.paths();
        let unprotected = || VaultError::Unprotected { path: PathBuf::from(pool.config().name) };
        paths.retain(|path| path.join("pool.toml").exists());
        let has_one = |path: &&PathBuf| path.join(OF_POOL).join(FILE).exists();
        let used = |path: &&PathBuf| {
            let of =
                |name: &str| std::fs::metadata(path.join(OF_POOL).join(name)).and_then(|it| it.modified());
            // One that was begun later outdates those before it.
            (
                shared::known_revision(&path.join(OF_POOL), Document::Vault),
                of("lock").or_else(|_| of(FILE)).ok(),
            )
        };
        // The first of equals.
        let newest = paths.iter().rev().filter(has_one).max_by_key(used);
        // A vault that cannot be written to is left behind like one that is gone, as long as any target takes writes.
        let writable = pool.writable_paths();
        let newest = newest.filter(|path| writable.is_empty() || writable.contains(path));
        let root = newest.or(writable.first()).or(paths.first()).ok_or_else(unprotected)?;
        Ok(Location { storage: Kind::Pool, root: root.clone(), repository: root.join(OF_POOL) })
    }

    /// The vault that `path` is in: the nearest directory above with a repository, or the one whose repository is
    /// named. The path need not exist.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`].
    pub fn find(path: &Path, repository: Option<&Path>) -> Result<Location, VaultError> {
        if let Some(repository) = repository {
            refuse_url(repository)?;
            let settings = Settings::load(repository)?;
            let (storage, root) = (settings.storage, settings.root_at(repository));
            return Ok(Location { storage, root, repository: repository.to_owned() });
        }
        let unprotected = || VaultError::Unprotected { path: path.to_owned() };
        let mut start = path;
        while !start.exists() {
            start = if start == parent(start) { return Err(unprotected()) } else { parent(start) };
        }
        let absolute = std::fs::canonicalize(start).map_err(at(path))?;
        for above in absolute.ancestors() {
            let settings = above.join(OWN).join(FILE);
            match settings.try_exists() {
                Ok(true) => return Ok(Location::of(above, None)),
                // It may be there, and is not for us to see.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return Err(at(&settings)(error));
                }
                _ => {}
            }
            if let Some(pointer) = Pointer::of(above)? {
                return pointer.resolve(above);
            }
        }
        Err(unprotected())
    }

    /// The vault of the directory `root`, which is begun if it has none yet: with the repository that is named, or that the tree has
    /// already, or `.gabion` within.
    ///
    /// # Errors
    /// The directory has another vault, or is part of a tree that has one: two vaults for the same files would each go stale without
    /// notice. A repository that looks like a URL.
    pub fn to_protect(root: &Path, repository: Option<&Path>) -> Result<Location, VaultError> {
        repository.map(refuse_url).transpose()?;
        let real = std::fs::canonicalize(root).map_err(at(root))?;
        let own = real.join(OWN);
        let is_own = |path: &&Path| std::fs::canonicalize(path).is_ok_and(|path| path == own);
        let named = repository.filter(|repository| !is_own(repository));
        if own.join(FILE).exists() {
            let Some(named) = named else { return Ok(Location::of(root, None)) };
            let why = format!(
                "this tree has its vault here already: leave out --repository {}, or remove this one first",
                Shown::path(named)
            );
            return Err(VaultError::Settings { path: own, why });
        }
        // A damaged pointer is written again where the repository is named.
        let pointer = if named.is_some() { Pointer::of(&real).ok().flatten() } else { Pointer::of(&real)? };
        match (named, pointer) {
            (None, Some(pointer)) => pointer.resolve(&real),
            (Some(named), Some(pointer)) => {
                let is_same = Settings::load(named).is_ok_and(|settings| settings.id == pointer.id);
                let why = || {
                    format!(
                        "this tree has its vault in {} already: leave out --repository {}, or remove this file to begin another one",
                        Shown::path(&pointer.repository),
                        Shown::path(named)
                    )
                };
                let is_there = std::path::absolute(named).is_ok_and(|named| named == pointer.repository);
                match is_same {
                    true => Ok(Location::of(root, Some(named))),
                    // It is gone, or its disk is not mounted.
                    false if is_there => pointer.resolve(&real),
                    false => Err(VaultError::Settings { path: own, why: why() }),
                }
            }
            (named, None) => match protected_above(&real) {
                None => Ok(Location::of(root, named)),
                Some(above) => {
                    let above = Shown::path(above);
                    let why = format!(
                        "it is part of {above}, which is protected as a whole: `gabion protect {above}` brings it up to date, and a \
                         policy gives parts of a tree other codes"
                    );
                    Err(VaultError::Settings { path: real.clone(), why })
                }
            },
        }
    }

    /// Refuses a new vault for a tree with parts that have vaults of their own: their files would be in two vaults. A part that no rule of the policy
    /// protects may have one.
    ///
    /// # Errors
    /// [`VaultError::Settings`]: which part, and what to do.
    pub fn refuse_nested(&self, policy: &Policy, now: Nanos) -> Result<(), VaultError> {
        use std::os::unix::ffi::OsStrExt;
        if self.storage == Kind::Pool {
            return Ok(());
        }
        let root = std::fs::canonicalize(&self.root).map_err(at(&self.root))?;
        // A file that a rule for the whole part, and none about size, age or owner, is about.
        let is_protected = |part: &PathBuf| {
            let file = part.join("file");
            policy.decide(file.as_os_str().as_bytes(), &ordinary_file(now), now).treatment.is_some()
        };
        let Some(part) = protected_below(&root).into_iter().find(is_protected) else { return Ok(()) };
        let (tree, shown) = (Shown::path(&root), Shown::path(&part));
        let why = format!(
            "it has a vault of its own, so {tree} cannot be protected as a whole: protect the other parts of {tree} by themselves, remove that vault \
             first ({}), or leave the part out by a policy with the rule: [[rule]] paths = [\"{shown}/**\"] protect = false",
            Shown::path(&root.join(&part).join(OWN))
        );
        Err(VaultError::Settings { path: root.join(&part), why })
    }

    /// A vault whose settings are gone or damaged, by the redundancy that is left: in the nearest directory above `path`, or in
    /// the repository that is named, which then is that of `path`.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`]: there is none.
    pub fn find_remains(path: &Path, repository: Option<&Path>) -> Result<Location, VaultError> {
        let unprotected = || VaultError::Unprotected { path: path.to_owned() };
        let has_redundancy = |repository: &Path| repository.join("redundancy").is_dir();
        if let Some(repository) = repository {
            let found = has_redundancy(repository) && path.is_dir();
            return found.then(|| Location::of(path, Some(repository))).ok_or_else(unprotected);
        }
        let absolute = std::fs::canonicalize(path).map_err(at(path))?;
        for above in absolute.ancestors() {
            if has_redundancy(&above.join(OWN)) {
                return Ok(Location::of(above, None));
            }
            let pointer = Pointer::of(above)?.filter(|pointer| has_redundancy(&pointer.repository));
            if let Some(pointer) = pointer {
                return Ok(Location::of(above, Some(&pointer.repository)));
            }
        }
        Err(unprotected())
    }
}

impl Settings {
    /// Settings of a vault that is begun; those that its pool had before, if it is one of a pool that had a vault.
    pub(super) fn new(
        location: &Location,
        changelog: Option<&str>,
        pool: Option<&Pool>,
    ) -> Result<Settings, VaultError> {
        let Location { storage, root, repository } = location;
        let root = std::fs::canonicalize(root).map_err(at(root))?;
        let real = std::fs::canonicalize(repository).map_err(at(repository))?;
        let own = root.join(if *storage == Kind::Pool { OF_POOL } else { OWN });
        let within = real == own;
        if !within && real.starts_with(&root) {
            let why = format!("a repository within the tree has to be {}", own.display());
            return Err(VaultError::Settings { path: repository.to_owned(), why });
        }
        if root.starts_with(&real) {
            let why = format!("the tree {} lies within it", Shown::path(&root));
            return Err(VaultError::Settings { path: repository.to_owned(), why });
        }
        let root = if within { PathBuf::from("..") } else { root };
        if let Some(kept) = pool.and_then(|pool| pool.document(Document::Vault)) {
            let Description { version, id, changelog } = Description::parse(&kept.text, repository)?;
            return Ok(Settings { version, id, storage: *storage, root, changelog });
        }
        let id = unique_id().map_err(at(repository))?;
        Ok(Settings {
            version: VERSION,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            storage: *storage,
            root,
            changelog: without_password(changelog.unwrap_or(EMBEDDED)),
        })
    }

    /// Brings the settings of a pool's vault and what the targets know of them together.
    pub(super) fn reconcile(&mut self, repository: &Path, pool: &Pool) -> Result<(), VaultError> {
        let Settings { version, id, changelog, .. } = self.clone();
        let own = toml::to_string(&Description { version, id, changelog })
            .map_err(|error| VaultError::Settings { path: repository.join(FILE), why: error.to_string() })?;
        reconcile(repository, pool, Document::Vault, Some(own.clone()), &mut |text| {
            if text == own {
                return Ok(());
            }
            let Description { version, id, changelog } = Description::parse(text, repository)?;
            *self = Settings { version, id, changelog, ..self.clone() };
            self.save(repository)
        })
    }

    pub(super) fn load(repository: &Path) -> Result<Settings, VaultError> {
        let path = repository.join(FILE);
        let damaged = |why: String| VaultError::Damaged { path: path.clone(), why };
        let text = match private::read(repository, FILE) {
            Ok(text) => text.ok_or_else(|| VaultError::Unprotected { path: repository.to_owned() })?,
            Err(error) if error.kind() == ErrorKind::InvalidData => return Err(damaged(error.to_string())),
            Err(error) => return Err(at(&path)(error)),
        };
        // What a later version has in it besides may be unknown here.
        match toml::from_str::<Versioned>(&text) {
            Ok(Versioned { version }) if version != VERSION => {
                let why = format!("version {version} is not known here (version {VERSION} is)");
                Err(VaultError::Settings { path, why })
            }
            _ => toml::from_str(&text).map_err(|error| damaged(error.to_string())),
        }
    }

    pub(super) fn save(&self, repository: &Path) -> Result<(), VaultError> {
        let path = repository.join(FILE);
        let text =
            toml::to_string(self).map_err(|error| VaultError::Settings { path, why: error.to_string() })?;
        replace(repository, FILE, text.as_bytes())
    }

    /// The tree that the repository at `repository` is for.
    pub(super) fn root_at(&self, repository: &Path) -> PathBuf {
        let joined = repository.join(&self.root);
        std::fs::canonicalize(&joined).unwrap_or(joined)
    }

    /// A repository must not be used for another tree than its own.
    pub(super) fn check_root(&self, root: &Path, repository: &Path) -> Result<(), VaultError> {
        let ours = std::fs::canonicalize(root).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                VaultError::NoTree { repository: repository.to_owned(), root: root.to_owned() }
            }
            _ => at(root)(error),
        })?;
        let theirs = self.root_at(repository);
        match ours == theirs {
            true => Ok(()),
            false => Err(VaultError::OtherTree { repository: repository.to_owned(), theirs, ours }),
        }
    }
}

/// Replaces a small file, whole or not at all.
pub(super) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
    private::replace(directory, name, bytes).map_err(at(&directory.join(name)))
}

/// A small file of ours that was written just now.
fn ordinary_file(now: Nanos) -> Stat {
    let user = rustix::process::geteuid().as_raw();
    Stat {
        kind: tree::Kind::File,
        size: 1,
        mtime: now,
        ctime: now,
        inode: 0,
        device: 0,
        links: 1,
        mode: 0o644,
        uid: user,
        gid: 0,
        allocated: 0,
        birth: None,
    }
}
