//! Other processes that use the changelog of a vault, on any host.
//!
//! A changelog moves only while nobody records in it or works on it. Whoever does is known: a mount or watch by its
//! mark on the server, or by a lock in the repository of one host; a worker by its signs of life and its claims; the
//! owner of shared work by its task. They become known first and then look whether the changelog is still where they
//! opened it ([`Vault::refuse_if_moved`]); a move writes the settings first and then looks once more who is known. So
//! one of the two notices the other.

use super::lock::mount_of;
use super::{Settings, Vault, VaultError, at};
use crate::changelog::WorkerId;
use crate::changelog::monitors::MonitorState;
use crate::changelog::server::without_password;
use crate::identity::is_dead;
use crate::mark::described;
use std::collections::BTreeMap;

impl Vault {
    /// Refuses a vault whose changelog was moved since it was opened. For those that stay, once others know of them.
    ///
    /// # Errors
    /// [`VaultError::Moved`]. The settings cannot be read.
    pub fn refuse_if_moved(&self) -> Result<(), VaultError> {
        let now = Settings::load(self.repository.path())?;
        if now.changelog == self.settings.changelog {
            return Ok(());
        }
        Err(VaultError::Moved { to: without_password(&now.changelog).to_owned() })
    }

    /// Refuses while a mount holds its lock in the repository, and, unless `locks_only`, while others are known to the
    /// changelog.
    pub(super) fn refuse_others(&self, locks_only: bool) -> Result<(), VaultError> {
        let mount = mount_of(&self.repository).map_err(at(self.repository.path()))?;
        let known = if locks_only { Vec::new() } else { self.known_others()? };
        let who: Vec<String> = mount.into_iter().chain(known).collect();
        if who.is_empty() { Ok(()) } else { Err(VaultError::Attended { who: who.join("; ") }) }
    }

    /// Everybody who is known to the changelog, each process once. The dead of this host are forgotten.
    fn known_others(&self) -> Result<Vec<String>, VaultError> {
        let changelog = &*self.changelog;
        changelog.expire_dead_workers(&is_dead)?;
        self.give_up_lost_monitors()?;
        let mut known: BTreeMap<(String, Option<u32>), String> = BTreeMap::new();
        let process = |name: &WorkerId| (name.host().to_owned(), name.process());
        let worker = |name: &WorkerId| {
            let number = name.process().map_or(String::new(), |process| format!(", process {process}"));
            format!("worker on {}{number}", name.host())
        };
        for it in changelog.monitors().map_or(Ok(Vec::new()), |it| it.known_monitors())? {
            if it.state != MonitorState::Lost {
                known.insert(process(&it.monitor.name), described(&it.monitor));
            }
        }
        let mut names: Vec<WorkerId> =
            changelog.workers(self.clock.now())?.into_iter().map(|it| it.worker).collect();
        for task in changelog.tasks().map_or(Ok(Vec::new()), |it| it.known_tasks())? {
            names.push(task.owner);
            names.extend(task.workers);
        }
        for name in names {
            known.entry(process(&name)).or_insert_with(|| worker(&name));
        }
        Ok(known.into_values().collect())
    }
}
