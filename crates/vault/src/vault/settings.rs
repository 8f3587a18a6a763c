//! Settings of a vault (`vault.toml`) and its location.

use super::pointer::{Pointer, protected_above, protected_below, refuse_url};
use super::shared::{self, reconcile};
use super::{OWN, VaultError, at, parent};
use crate::changelog::server::without_password;
use crate::display_path::DisplayPath;
use crate::policy::Policy;
use crate::private;
use crate::storage::pool::{Document, Pool};
use crate::tree::{self, Stat};
use crate::world::{Timestamp, unique_id};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the settings file.
pub(super) const FILE: &str = "vault.toml";

/// The changelog without a server.
pub(super) const EMBEDDED: &str = "embedded";

const VERSION: u32 = 1;

/// Settings of a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Version of the repository's format.
    pub version: u32,
    /// Identity of the vault.
    pub id: String,
    /// Kind of storage.
    #[serde(default)]
    pub storage: Kind,
    /// The protected tree, or a target of the pool; relative to a repository within it.
    pub root: PathBuf,
    /// `embedded`, or the address of a Redis server.
    pub changelog: String,
}

/// Fields that all versions of the settings have.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Description of a pool's vault that all targets hold: valid wherever the vault lies.
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

/// Kind of storage that a vault protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory.
    #[default]
    Plain,
    /// A pool.
    Pool,
}

/// Location of a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Kind of storage.
    pub storage: Kind,
    /// Root of the protected tree, or any target of the pool.
    pub root: PathBuf,
    /// Repository directory.
    pub repository: PathBuf,
    /// Directory for this host's copies of catalogues that hosts share, in place of the usual one.
    pub cache: Option<PathBuf>,
}

/// Directory of a pool's vault on one of its targets.
const OF_POOL: &str = "vault";

impl Location {
    /// Location for `root`, with its repository within unless another one is named.
    pub fn of(root: &Path, repository: Option<&Path>) -> Location {
        let repository = repository.map_or_else(|| root.join(OWN), Path::to_owned);
        Location { storage: Kind::Plain, root: root.to_owned(), repository, cache: None }
    }

    /// Location of a pool's vault: on the first writable target that has one, otherwise on the first writable target.
    /// While a target was offline, a second vault may have been created; the last one in use is taken.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`] if no target is online.
    pub fn of_pool(pool: &Pool) -> Result<Location, VaultError> {
        let mut paths = pool.paths();
        let unprotected = || VaultError::Unprotected { path: PathBuf::from(pool.config().name) };
        paths.retain(|path| path.join("pool.toml").exists());
        let has_one = |path: &&PathBuf| path.join(OF_POOL).join(FILE).exists();
        let used = |path: &&PathBuf| {
            let of =
                |name: &str| std::fs::metadata(path.join(OF_POOL).join(name)).and_then(|it| it.modified());
            // A later vault outdates the earlier ones.
            (
                shared::known_revision(&path.join(OF_POOL), Document::Vault),
                of("lock").or_else(|_| of(FILE)).ok(),
            )
        };
        // The first of equals.
        let newest = paths.iter().rev().filter(has_one).max_by_key(used);
        // A vault on a read-only target is abandoned like a lost one as long as another target is writable.
        let writable = pool.writable_paths();
        let newest = newest.filter(|path| writable.is_empty() || writable.contains(path));
        let root = newest.or(writable.first()).or(paths.first()).ok_or_else(unprotected)?;
        Ok(Location { storage: Kind::Pool, root: root.clone(), repository: root.join(OF_POOL), cache: None })
    }

    /// The vault of `path`: the nearest parent directory with a repository, or the named repository. The path need not
    /// exist.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`].
    pub fn find(path: &Path, repository: Option<&Path>) -> Result<Location, VaultError> {
        if let Some(repository) = repository {
            refuse_url(repository)?;
            let settings = Settings::load(repository)?;
            let (storage, root) = (settings.storage, settings.root_at(repository));
            return Ok(Location { storage, root, repository: repository.to_owned(), cache: None });
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
                // It may exist but is not readable for this user.
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

    /// The vault of the directory `root`, possibly a new one: with the named repository, or the one that the tree has,
    /// or `.gabion` within.
    ///
    /// # Errors
    /// The directory has another vault or is part of a protected tree, since two vaults for the same files would become
    /// outdated unnoticed; or the repository looks like a URL.
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
                DisplayPath::path(named)
            );
            return Err(VaultError::Settings { path: own, why });
        }
        // A damaged pointer is replaced if the repository is named.
        let pointer = if named.is_some() { Pointer::of(&real).ok().flatten() } else { Pointer::of(&real)? };
        match (named, pointer) {
            (None, Some(pointer)) => pointer.resolve(&real),
            (Some(named), Some(pointer)) => {
                let is_same = Settings::load(named).is_ok_and(|settings| settings.id == pointer.id);
                let why = || {
                    format!(
                        "this tree has its vault in {} already: leave out --repository {}, or remove this file to begin another one",
                        DisplayPath::path(&pointer.repository),
                        DisplayPath::path(named)
                    )
                };
                let is_there = std::path::absolute(named).is_ok_and(|named| named == pointer.repository);
                match is_same {
                    true => Ok(Location::of(root, Some(named))),
                    // The repository is missing, or its disk is not mounted.
                    false if is_there => pointer.resolve(&real),
                    false => Err(VaultError::Settings { path: own, why: why() }),
                }
            }
            (named, None) => match protected_above(&real) {
                None => Ok(Location::of(root, named)),
                Some(above) => {
                    let above = DisplayPath::path(above);
                    let why = format!(
                        "it is part of {above}, which is protected as a whole: `gabion protect {above}` brings it up to date, and a \
                         policy gives parts of a tree other codes"
                    );
                    Err(VaultError::Settings { path: real.clone(), why })
                }
            },
        }
    }

    /// The stored policy, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn policy_text(&self) -> Result<Option<String>, VaultError> {
        let path = self.repository.join(super::POLICY);
        match self.repository.exists() {
            true => private::read(&self.repository, super::POLICY).map_err(at(&path)),
            false => Ok(None),
        }
    }

    /// Refuses a new vault for a tree with parts that have their own vaults, whose files would be in two vaults.
    /// Allowed if the policy protects no file of the part.
    ///
    /// # Errors
    /// [`VaultError::Settings`]: names the part and the remedy.
    pub fn refuse_nested(&self, policy: &Policy, now: Timestamp) -> Result<(), VaultError> {
        use std::os::unix::ffi::OsStrExt;
        if self.storage == Kind::Pool {
            return Ok(());
        }
        let root = std::fs::canonicalize(&self.root).map_err(at(&self.root))?;
        // A sample file that matches rules for the whole part, but none about size, age or owner.
        let is_protected = |part: &PathBuf| {
            let file = part.join("file");
            policy.decide(file.as_os_str().as_bytes(), &ordinary_file(now), now).treatment.is_some()
        };
        let Some(part) = protected_below(&root).into_iter().find(is_protected) else { return Ok(()) };
        let (tree, shown) = (DisplayPath::path(&root), DisplayPath::path(&part));
        let why = format!(
            "it has a vault of its own, so {tree} cannot be protected as a whole: protect the other parts of {tree} by themselves, remove that vault \
             first ({}), or leave the part out by a policy with the rule: [[rule]] paths = [\"{shown}/**\"] protect = false",
            DisplayPath::path(&root.join(&part).join(OWN))
        );
        Err(VaultError::Settings { path: root.join(&part), why })
    }

    /// Finds a vault with missing or damaged settings by its redundancy: in the nearest directory above `path`, or in
    /// the named repository, which then belongs to `path`.
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
    /// Settings of a new vault. In a pool that had a vault, those of the former vault.
    pub(super) fn new(
        location: &Location,
        changelog: Option<&str>,
        pool: Option<&Pool>,
    ) -> Result<Settings, VaultError> {
        let Location { storage, root, repository, .. } = location;
        let root = std::fs::canonicalize(root).map_err(at(root))?;
        let real = std::fs::canonicalize(repository).map_err(at(repository))?;
        let own = root.join(if *storage == Kind::Pool { OF_POOL } else { OWN });
        let within = real == own;
        if !within && real.starts_with(&root) {
            let why = format!("a repository within the tree has to be {}", own.display());
            return Err(VaultError::Settings { path: repository.to_owned(), why });
        }
        if root.starts_with(&real) {
            let why = format!("the tree {} lies within it", DisplayPath::path(&root));
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

    /// Reconciles the settings of a pool's vault with the description on the targets.
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
        // Later versions may have unknown fields.
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

    /// Root of the tree for the repository at `repository`.
    pub(super) fn root_at(&self, repository: &Path) -> PathBuf {
        let joined = repository.join(&self.root);
        std::fs::canonicalize(&joined).unwrap_or(joined)
    }

    /// Checks that the repository belongs to this tree.
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

/// Replaces a small file atomically.
pub(super) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
    private::replace(directory, name, bytes).map_err(at(&directory.join(name)))
}

/// Properties of a small file of this user that was just written.
fn ordinary_file(now: Timestamp) -> Stat {
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
