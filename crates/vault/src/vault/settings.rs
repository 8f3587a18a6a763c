//! `vault.toml`, and where a vault is.

use super::{OWN, VaultError, at, parent};
use crate::world::unique_id;
use serde::{Deserialize, Serialize};
use std::io::Write;
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
    /// The protected tree; relative to the repository where it lies within.
    pub root: PathBuf,
    /// Where changes are remembered: `embedded`, or the address of a Redis server.
    pub changelog: String,
}

/// Where a vault is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The protected tree.
    pub root: PathBuf,
    /// Its repository.
    pub repository: PathBuf,
}

impl Location {
    /// A vault for `root`, with its repository within unless another one is named.
    pub fn of(root: &Path, repository: Option<&Path>) -> Location {
        let repository = repository.map_or_else(|| root.join(OWN), Path::to_owned);
        Location { root: root.to_owned(), repository }
    }

    /// The vault that `path` is in: the nearest directory above with a repository, or the one whose repository is
    /// named. The path need not exist.
    ///
    /// # Errors
    /// [`VaultError::Unprotected`].
    pub fn find(path: &Path, repository: Option<&Path>) -> Result<Location, VaultError> {
        if let Some(repository) = repository {
            let root = Settings::load(repository)?.root_at(repository);
            return Ok(Location { root, repository: repository.to_owned() });
        }
        let unprotected = || VaultError::Unprotected { path: path.to_owned() };
        let mut start = path;
        while !start.exists() {
            start = if start == parent(start) { return Err(unprotected()) } else { parent(start) };
        }
        let absolute = std::fs::canonicalize(start).map_err(at(path))?;
        let root = absolute.ancestors().find(|above| above.join(OWN).join(FILE).exists());
        Ok(Location::of(root.ok_or_else(unprotected)?, None))
    }
}

impl Settings {
    pub(super) fn new(
        root: &Path,
        repository: &Path,
        changelog: Option<&str>,
    ) -> Result<Settings, VaultError> {
        let root = std::fs::canonicalize(root).map_err(at(root))?;
        let real = std::fs::canonicalize(repository).map_err(at(repository))?;
        let within = real == root.join(OWN);
        if !within && real.starts_with(&root) {
            let why = format!("a repository within the tree has to be {}", root.join(OWN).display());
            return Err(VaultError::Settings { path: repository.to_owned(), why });
        }
        let id = unique_id().map_err(at(repository))?;
        Ok(Settings {
            version: VERSION,
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            root: if within { PathBuf::from("..") } else { root },
            changelog: changelog.unwrap_or(EMBEDDED).to_owned(),
        })
    }

    pub(super) fn load(repository: &Path) -> Result<Settings, VaultError> {
        let path = repository.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(VaultError::Unprotected { path: repository.to_owned() });
            }
            Err(error) => return Err(at(&path)(error)),
        };
        let wrong = |why: String| VaultError::Settings { path: path.clone(), why };
        let settings: Settings = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        match settings.version {
            VERSION => Ok(settings),
            other => Err(wrong(format!("version {other} is not known here (version {VERSION} is)"))),
        }
    }

    pub(super) fn save(&self, repository: &Path) -> Result<(), VaultError> {
        let path = repository.join(FILE);
        let text = toml::to_string(self)
            .map_err(|error| VaultError::Settings { path, why: error.to_string() })?;
        replace(repository, FILE, text.as_bytes())
    }

    fn root_at(&self, repository: &Path) -> PathBuf {
        let joined = repository.join(&self.root);
        std::fs::canonicalize(&joined).unwrap_or(joined)
    }

    /// A repository must not be used for another tree than its own.
    pub(super) fn check_root(&self, root: &Path, repository: &Path) -> Result<(), VaultError> {
        let ours = std::fs::canonicalize(root).map_err(at(root))?;
        let theirs = self.root_at(repository);
        match ours == theirs {
            true => Ok(()),
            false => Err(VaultError::OtherTree { repository: repository.to_owned(), theirs, ours }),
        }
    }
}

/// Replaces a small file, whole or not at all.
pub(super) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), VaultError> {
    let (path, draft) = (directory.join(name), directory.join(format!("{name}.draft")));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::File::create(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)?;
        std::fs::File::open(directory)?.sync_all()
    };
    write().map_err(at(&path))
}
