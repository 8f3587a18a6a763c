//! Catalogue entries of completed claims.

use super::scope::{is_replaced, scrubbed_before};
use super::{Completed, Worker};
use crate::catalogue::{Catalogue, CatalogueError, Entry, Problem, State};
use crate::tree::join;

impl Worker<'_> {
    /// Records what became of claims that are completed, all together.
    pub(super) fn catalogue_results(
        &self,
        catalogue: &Catalogue,
        completed: &[Completed],
    ) -> Result<(), CatalogueError> {
        catalogue.together(|| {
            // Nobody else writes meanwhile, so it is asked once.
            let has_accepted = catalogue.has_accepted()?;
            completed.iter().try_for_each(|it| self.catalogue_result(catalogue, it, has_accepted))
        })
    }

    fn catalogue_result(
        &self,
        catalogue: &Catalogue,
        Completed { claim, encoded, former }: &Completed,
        has_accepted: bool,
    ) -> Result<(), CatalogueError> {
        let path = &claim.entry.path;
        let Some(encoded) = encoded else {
            let mut left = self.left_behind(claim, Some(catalogue))?;
            return left.try_for_each(|path| self.forget(catalogue, path));
        };
        let known = match former {
            Some(former) => Some(former.entry.clone()),
            None => catalogue.find(path)?,
        };
        // Another file may have an old name by now, and may be known already.
        let names = former.iter().flat_map(|former| &former.names).chain(&claim.entry.origin);
        for name in names.filter(|name| *name != path && self.is_vacated(name)) {
            catalogue.forget(name)?;
        }
        if let Some(former) = former {
            catalogue.set_problems(path, &former.problems, self.clock.now())?;
        }
        // What is known of a name may be of the file that had it before.
        let broken =
            |entry: &Entry| entry.id == encoded.id && matches!(entry.state, State::Damaged | State::Lost);
        if let Some(entry) =
            known.clone().filter(broken).filter(|_| encoded.adopted && encoded.trouble.is_none())
        {
            // Nothing was read, so nothing is better than it was.
            return catalogue.put(path, &Entry { generation: encoded.stat.generation(), ..entry });
        }
        let known = known.as_ref();
        if has_accepted {
            catalogue.forget_accepted(path)?;
        }
        if known.is_some_and(|known| known.is_another_version(&encoded.stat) || is_replaced(known, encoded)) {
            self.note_recent(catalogue, path, false)?;
        }
        let thin = encoded.columns < encoded.wanted;
        let state = match (encoded.spoilt.is_empty(), thin) {
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
                state: encoded.trouble.as_ref().map_or(state, |trouble| trouble.state),
            },
        )?;
        let problems: Vec<Problem> = encoded.problems().collect();
        encoded.note_mended(catalogue, self.clock.now())?;
        catalogue.clear_problems(path)?;
        match problems.is_empty() {
            true => Ok(()),
            false => catalogue.set_problems(path, &problems, self.clock.now()),
        }
    }

    /// Forgets a file, or those of a directory that are gone.
    fn forget(&self, catalogue: &Catalogue, path: &[u8]) -> Result<(), CatalogueError> {
        if catalogue.find(path)?.is_some() {
            catalogue.forget(path)?;
            self.note_recent(catalogue, path, true)?;
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
                self.note_recent(catalogue, file, true)?;
            }
        }
        Ok(())
    }

    /// For guards, which count over a time.
    fn note_recent(&self, catalogue: &Catalogue, path: &[u8], removed: bool) -> Result<(), CatalogueError> {
        match self.policy.guard.window {
            0 => Ok(()),
            _ => catalogue.note_recent(path, removed, self.clock.now()),
        }
    }
}
