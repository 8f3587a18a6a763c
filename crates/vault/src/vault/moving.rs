//! The changelog of a vault moved to a server, for several hosts, or back into the repository.
//!
//! The new changelog begins with a gap: the next scan finds what was pending. The settings are written last, so a
//! process that dies before leaves the vault as it was, and one that dies after leaves only what nobody reads.

use super::settings::EMBEDDED;
use super::{
    CHANGELOG, Location, LockError, Settings, Vault, VaultError, at, copies, open_changelog, remove_catalogue,
};
use crate::catalogue::Keeping;
use crate::changelog::server::without_password;
use crate::changelog::{self, Change, When, remember_password};
use crate::tree::{Kind, Tree};
use crate::world::Clock;

/// What was moved.
#[derive(Debug)]
pub struct Moved {
    /// The former changelog, without a password.
    pub from: String,
    /// The present one.
    pub to: String,
    /// Pending entries that the next scan finds again; unknown if the server is away.
    pub pending: Option<u64>,
    /// Why the former server does not answer, if it does not. What it has is left there.
    pub away: Option<changelog::Error>,
}

impl Vault {
    /// Moves the changelog of a vault that nothing else uses. With `force`, those who are only known to the changelog
    /// are ignored: what they record afterwards is lost, until a scan finds it.
    ///
    /// # Errors
    /// See [`VaultError`]. The vault is as it was.
    pub fn move_changelog(
        location: &Location,
        to: &str,
        force: bool,
        command: &str,
        clock: Clock,
    ) -> Result<Moved, VaultError> {
        remember_password(to);
        let to = without_password(to);
        let (vault, away) = Vault::open_to_examine(location, clock)?;
        let path = vault.repository.path().to_owned();
        let refuse = |why: String| VaultError::Settings { path: path.join(super::settings::FILE), why };
        if let Some(why) = &vault.read_only {
            return Err(refuse(why.clone()));
        }
        let from = vault.settings.changelog.clone();
        let settings = Settings { changelog: to.to_owned(), ..vault.settings.clone() };
        match (vault.settings.is_shared(), settings.is_shared()) {
            (true, true) if from != to => {
                return Err(refuse(format!("its changelog is {from}: move it to \"{EMBEDDED}\" first")));
            }
            (was, is) if was == is => return Err(refuse(format!("its changelog is {from} already"))),
            _ => {}
        }
        let _lock = vault.lock(command)?;
        let _no_watch = vault.lock_to_watch(command).map_err(|error| match error {
            LockError::Watched { holder } => VaultError::CatalogueInUse { holder },
            error => error.into(),
        })?;
        if let (Some(error), false) = (&away, force) {
            return Err(VaultError::UsersUnknown(error.clone()));
        }
        vault.refuse_others(force)?;
        let pending = match &away {
            None => Some(vault.changelog.pending()?.entries()),
            Some(_) => None,
        };
        // What an administrator has set for hosts. A server that does not answer keeps it.
        let (draining, limits) = match &away {
            None => (vault.changelog.draining_hosts()?, vault.changelog.limits()?),
            Some(_) => Default::default(),
        };
        // An earlier move may have left something.
        if !settings.is_shared() {
            remove_changelog(&vault.repository)?;
        }
        let changelog = open_changelog(&settings, &path)?;
        changelog.forget_all()?;
        draining.iter().try_for_each(|host| changelog.set_draining(host, true))?;
        limits.iter().try_for_each(|(host, limits)| changelog.set_limits(host, Some(*limits)))?;
        changelog.record(&[Change::gap("", When::now(vault.clock.now(), u8::MAX))])?;
        let databases = match settings.is_shared() {
            true => copies::directory(&settings, location)?,
            false => vault.repository.clone(),
        };
        remove_catalogue(&databases)?;
        let catalogue = copies::open(&settings, databases.path(), &changelog, Keeping::Shared)?;
        vault.catalogue.tell(&catalogue)?;
        catalogue.close()?;
        settings.save(&path)?;
        // Whoever came meanwhile and has not seen that.
        if let Err(refused) = vault.refuse_others(force) {
            vault.settings.save(&path)?;
            return Err(refused);
        }
        // From here on nobody reads the former changelog and catalogue.
        if away.is_none() {
            let _ = vault.changelog.forget_all();
        }
        let former = vault.databases.clone();
        drop(vault);
        remove_catalogue(&former)?;
        if settings.is_shared() {
            remove_changelog(&former)?;
        }
        Ok(Moved { from, to: to.to_owned(), pending, away })
    }
}

/// Removes an embedded changelog.
fn remove_changelog(repository: &Tree) -> Result<(), VaultError> {
    let path = repository.path().join(CHANGELOG);
    match repository.find(CHANGELOG.as_bytes()).map_err(at(&path))? {
        Some(found) if found.kind == Kind::Directory => std::fs::remove_dir_all(&path).map_err(at(&path)),
        _ => Ok(()),
    }
}
