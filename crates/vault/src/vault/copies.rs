//! Where this host keeps its copies of catalogues that several hosts share.
//!
//! A database may not lie on storage that several hosts write, so the copy is in a cache directory of this host:
//! `GABION_CACHE`, or `/var/cache/gabion` for root, or `gabion` in the cache directory of the user. It may be removed
//! at any time when nothing uses it.

use super::{CATALOGUE, Location, Settings, VaultError, at, make_private, settings};
use crate::catalogue::{Catalogue, Keeping};
use crate::changelog::Changelog;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names a directory for copies.
const VARIABLE: &str = "GABION_CACHE";

impl Settings {
    /// Whether several hosts share the vault: its changelog is on a server.
    pub fn is_shared(&self) -> bool {
        self.changelog != settings::EMBEDDED
    }
}

/// The directory of this host's copy for a vault, created if it is not there.
pub(super) fn directory(settings: &Settings, location: &Location) -> Result<Tree, VaultError> {
    let path = location.cache.clone().map_or_else(place, Ok)?.join(&settings.id);
    make_private(&path)?;
    Tree::open_owned(&path).map_err(at(&path))
}

fn place() -> Result<PathBuf, VaultError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(place) = variable(VARIABLE) {
        return Ok(place);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/gabion"));
    }
    let home = || variable("HOME").map(|home| home.join(".cache"));
    let cache = variable("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(home);
    cache.map(|cache| cache.join("gabion")).ok_or(VaultError::NoCache { variable: VARIABLE })
}

/// Opens the catalogue of a vault; `directory` is that of its databases.
pub(super) fn open(
    settings: &Settings,
    directory: &Path,
    changelog: &Arc<dyn Changelog>,
    keeping: Keeping,
) -> Result<Catalogue, VaultError> {
    let path = directory.join(CATALOGUE);
    Ok(match settings.is_shared() {
        true => Catalogue::open_copy(&path, Arc::clone(changelog), keeping)?,
        false => Catalogue::open(&path)?,
    })
}
