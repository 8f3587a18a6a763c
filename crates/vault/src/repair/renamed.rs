//! Files that were renamed after their repair was interrupted.
//!
//! Their redundancy lies under the former name or is displaced, and workers leave both alone, since the content is no
//! version of the file. The next repair finds the file by its inode, brings its redundancy to its name and finishes.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::catalogue_rebuild::{RebuildError, entry_by_headers, walk_files};
use crate::displaced::{bring, displaced_of};
use crate::repair_mark::{Interrupted, Mark};
use crate::retry::{Failure, Retryable};
use crate::tree::Stat;
use crate::vault::Vault;
use std::io;

/// A file that was renamed.
struct Renamed {
    former: Vec<u8>,
    path: Vec<u8>,
    stat: Stat,
}

/// Moves redundancy and catalogue entries of files with an interrupted repair to their present names. Returns the files
/// for which that fails, with reasons.
///
/// # Errors
/// The marks, the tree or the catalogue cannot be read.
pub fn follow_renamed(vault: &Vault) -> Result<Vec<(Vec<u8>, Failure)>, RebuildError> {
    let storage = &*vault.storage;
    let failed = |source| RebuildError::Io { path: vault.repository.path().to_owned(), source };
    let interrupted = Interrupted::of(storage).map_err(failed)?;
    let mut left = interrupted.elsewhere(storage);
    if left.is_empty() || storage.keeps_by_identity() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    walk_files(storage, &mut |path| {
        let stat = storage.find(path).ok().flatten();
        let is_it = |mark: &Mark| mark.is_of(stat.as_ref());
        if let (Some(at), Some(stat)) = (left.iter().position(|(_, mark)| is_it(mark)), stat) {
            let (former, _) = left.swap_remove(at);
            found.push(Renamed { former: former.to_vec(), path: path.to_vec(), stat });
        }
        Ok(())
    })?;
    let mut failures = Vec::new();
    for renamed in found {
        match renamed.bring_redundancy(vault) {
            Ok(was_brought) => renamed.note(vault, was_brought)?,
            Err(error) => failures.push((renamed.path, Failure::new(&error, error.retry()))),
        }
    }
    Ok(failures)
}

impl Renamed {
    /// Moves redundancy to the file's name. Returns true if there was any.
    fn bring_redundancy(&self, vault: &Vault) -> io::Result<bool> {
        let mut was_brought = false;
        for repository in vault.storage.writable_repositories() {
            let places = [repository.place(&self.former), displaced_of(&repository.tree, self.stat.inode)];
            for from in places {
                was_brought =
                    was_brought || bring(&from, &repository.place(&self.path), &vault.coders, &self.stat)?;
            }
        }
        Ok(was_brought)
    }

    /// Gives the catalogue entry to the new name, or makes one from the redundancy.
    fn note(&self, vault: &Vault, was_brought: bool) -> Result<(), CatalogueError> {
        let Vault { storage, catalogue, coders, clock, .. } = vault;
        let is_its = |entry: &Entry| entry.generation.inode == self.stat.inode;
        let known = catalogue.find(&self.former)?.filter(is_its);
        let is_new = known.is_none();
        let from_headers = || was_brought.then(|| entry_by_headers(&**storage, coders, &self.path)).flatten();
        let Some(entry) = known.or_else(from_headers) else { return Ok(()) };
        let problems = if is_new { Vec::new() } else { catalogue.problems(&self.former)? };
        catalogue.together(|| {
            catalogue.put(&self.path, &Entry { state: State::Damaged, ..entry })?;
            catalogue.set_problems(&self.path, &problems, clock.now())?;
            if is_new { Ok(()) } else { catalogue.forget(&self.former) }
        })
    }
}
