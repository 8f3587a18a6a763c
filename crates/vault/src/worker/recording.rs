//! Catalogue entries of completed claims.

use super::scope::{is_replaced, scrubbed_before};
use super::{Completed, Worker};
use crate::catalogue::{CatalogueError, Entry, Problem, State};
use crate::tree::join;
use std::time::Duration;

impl Worker<'_> {
    /// Records what became of claims that are completed, all together.
    pub(super) fn catalogue_results(&self, completed: &[Completed]) -> Result<(), CatalogueError> {
        let catalogue = self.vault.catalogue;
        catalogue.together(|| {
            // Nobody else writes meanwhile, so it is asked once.
            let has_accepted = catalogue.has_accepted()?;
            completed.iter().try_for_each(|it| self.catalogue_result(it, has_accepted))
        })
    }

    fn catalogue_result(
        &self,
        Completed { claim, encoded, former, .. }: &Completed,
        has_accepted: bool,
    ) -> Result<(), CatalogueError> {
        let (path, catalogue) = (&claim.entry.path, self.vault.catalogue);
        let Some(encoded) = encoded else {
            let mut left = self.former_paths(claim)?;
            return left.try_for_each(|path| self.forget(path));
        };
        let known = match former {
            Some(former) => Some(former.entry.clone()),
            None => catalogue.find(path)?,
        };
        // Another file may have taken the old name and may already have an entry.
        let names = former.iter().flat_map(|former| &former.names).chain(&claim.entry.origin);
        for name in names.filter(|name| *name != path && self.is_vacated(name)) {
            catalogue.forget(name)?;
        }
        if let Some(former) = former {
            catalogue.set_problems(path, &former.problems, self.vault.clock.now())?;
        }
        // The entry may belong to the file that had this name before.
        let broken =
            |entry: &Entry| entry.id == encoded.id && matches!(entry.state, State::Damaged | State::Lost);
        if let Some(entry) =
            known.clone().filter(broken).filter(|_| encoded.adopted && encoded.damage.is_none())
        {
            // Nothing was read, so the recorded damage still holds.
            return catalogue.put(path, &Entry { generation: encoded.stat.generation(), ..entry });
        }
        let known = known.as_ref();
        if has_accepted {
            catalogue.forget_accepted(path)?;
        }
        if known.is_some_and(|known| known.is_another_version(&encoded.stat) || is_replaced(known, encoded)) {
            self.record_recent(path, false)?;
        }
        let is_reduced = encoded.columns < encoded.wanted;
        let state = match (encoded.unrecoverable.is_empty(), is_reduced) {
            (false, _) => State::Damaged,
            (true, true) => State::Degraded,
            (true, false) => State::Protected,
        };
        catalogue.put(
            path,
            &Entry {
                id: encoded.id,
                generation: encoded.stat.generation(),
                code: encoded.code.clone(),
                wanted: encoded.wanted as u32,
                columns: encoded.columns as u32,
                redundancy: encoded.redundancy_bytes,
                protected_at: encoded.protected_at,
                scrubbed_at: known.and_then(|known| scrubbed_before(known, encoded)),
                state: encoded.damage.as_ref().map_or(state, |damage| damage.state),
            },
        )?;
        let problems: Vec<Problem> = encoded.problems().collect();
        encoded.count_reconstructed(catalogue, self.vault.clock.now())?;
        catalogue.clear_problems(path)?;
        match problems.is_empty() {
            true => Ok(()),
            false => catalogue.set_problems(path, &problems, self.vault.clock.now()),
        }
    }

    /// Forgets a deleted file, or the deleted files of a directory.
    fn forget(&self, path: &[u8]) -> Result<(), CatalogueError> {
        let catalogue = self.vault.catalogue;
        if catalogue.find(path)?.is_some() {
            catalogue.forget(path)?;
            self.record_recent(path, true)?;
        }
        for (number, directory) in catalogue.directories(path)? {
            let mut gone = Vec::new();
            catalogue.each(number, |name, _| -> Result<(), CatalogueError> {
                let file = join(&directory, name);
                if self.is_vacated(&file) {
                    gone.push(file);
                }
                Ok(())
            })?;
            for file in &gone {
                catalogue.forget(file)?;
                self.record_recent(file, true)?;
            }
        }
        Ok(())
    }

    /// Records the change for the guard, which counts over a window of time.
    fn record_recent(&self, path: &[u8], removed: bool) -> Result<(), CatalogueError> {
        match self.vault.policy.guard.window {
            Duration::ZERO => Ok(()),
            _ => self.vault.catalogue.note_recent(path, removed, self.vault.clock.now()),
        }
    }
}
