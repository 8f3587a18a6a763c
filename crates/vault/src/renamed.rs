//! Redundancy of files that were renamed over names of other protected files: log rotation, a swap, `mv new old`.
//!
//! A scan knows a file by its name first, so that a file under the name of another one looks changed. If its inode, size and mtime are
//! known by another name, it is that file: its redundancy and its row in the catalogue follow it before anything is encoded. Otherwise it would be
//! encoded as new content, with the corruption that it may have.

use crate::catalogue::{CatalogueError, Class, Entry, Problem};
use crate::protect::ProtectError;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::storage::{Repository, Storage};
use crate::tree::{Generation, Kind, split};
use crate::vault::Vault;
use std::collections::HashMap;

/// A file that has the name of another one now.
struct Renamed {
    from: Vec<u8>,
    to: Vec<u8>,
    now: Generation,
}

/// Has redundancy follow the files of the last scan that were renamed over others. Gives their number.
///
/// # Errors
/// The catalogue or the operating system fails.
pub(crate) fn follow(vault: &Vault) -> Result<u64, ProtectError> {
    // Redundancy of a pool is found by more than its name.
    if vault.storage.kind() != "plain" {
        return Ok(0);
    }
    let renamed = find(vault)?;
    let mut followed = Vec::new();
    for repository in vault.storage.repositories() {
        // Where the redundancy is now that was at a name before.
        let mut places: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for file in &renamed {
            let at = places.get(&file.from).cloned().unwrap_or_else(|| file.from.clone());
            if !holds(vault, &repository, &file.to, &file.now)? {
                if !holds(vault, &repository, &at, &file.now)? {
                    continue;
                }
                if exchange(&repository, &at, &file.to)? {
                    places.insert(file.to.clone(), at);
                }
            }
            followed.push(file);
        }
        if !followed.is_empty() {
            repository.tree.sync_all()?;
        }
    }
    let catalogue = &vault.catalogue;
    let mut rows: Vec<(&[u8], Entry, Vec<Problem>)> = Vec::new();
    for file in &followed {
        if let Some(entry) = catalogue.find(&file.from)? {
            rows.push((&file.to, entry, catalogue.problems(&file.from)?));
        }
    }
    catalogue.together(|| -> Result<(), CatalogueError> {
        for (path, entry, problems) in &rows {
            catalogue.put(path, entry)?;
            catalogue.set_problems(path, problems, vault.clock.now())?;
        }
        Ok(())
    })?;
    Ok(rows.len() as u64)
}

/// Files under names of others whose inode, size and mtime are known by a name that they no longer have.
fn find(vault: &Vault) -> Result<Vec<Renamed>, CatalogueError> {
    let mut renamed = Vec::new();
    for class in [Class::Changed, Class::Restored] {
        vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
            for change in page {
                let Some(now) = generation(&*vault.storage, &change.path) else { continue };
                let known = vault.catalogue.find(&change.path)?;
                if known.is_none_or(|known| known.generation.inode == now.inode) {
                    continue;
                }
                // Where nobody can say what has the old name, the file may have both.
                let has_left = |from: &Vec<u8>| match vault.storage.find(from) {
                    Ok(found) => found.is_none_or(|found| found.inode != now.inode),
                    Err(_) => false,
                };
                let mut names = vault.catalogue.by_inode(&now)?.into_iter();
                if let Some(from) = names.find(|from| *from != change.path && has_left(from)) {
                    renamed.push(Renamed { from, to: change.path.clone(), now });
                }
            }
            Ok(())
        })?;
    }
    Ok(renamed)
}

fn generation(storage: &dyn Storage, path: &[u8]) -> Option<Generation> {
    let found = storage.find(path).ok().flatten()?;
    (found.kind == Kind::File).then(|| found.generation())
}

/// Whether the redundancy at a name is of this file. What is damaged, or a later program wrote, is not moved.
fn holds(vault: &Vault, repository: &Repository, path: &[u8], now: &Generation) -> std::io::Result<bool> {
    match repository.place(path).open_known(&vault.coders) {
        Ok(part) => Ok(part.is_some_and(|part| now.is_unwritten_since(&part.header.generation))),
        Err(unknown) if unknown.source.is_later() => Ok(false),
        // The file would be encoded as new content, with the corruption that it may have.
        Err(unknown) => Err(std::io::Error::other(unknown)),
    }
}

/// Puts the redundancy at one name in the place of that at the other. Says whether there was any, which is at the first name then: both stay until
/// the files that they are of have been seen to.
fn exchange(repository: &Repository, at: &[u8], to: &[u8]) -> std::io::Result<bool> {
    let (from, place) = (repository.place(at).path, repository.place(to).path);
    if repository.tree.find(&place)?.is_some() {
        repository.tree.exchange(&from, &place)?;
        return Ok(true);
    }
    repository.tree.make_directories(split(&place).0, DIRECTORY_MODE)?;
    repository.tree.rename(&from, &place)?;
    Ok(false)
}
