//! Redundancy of files that were renamed, where names of protected files have other files now: log rotation, a swap, `mv new old`.
//!
//! A scan knows a file by its name first, so that a file under the name of another one looks changed. If its inode, size and mtime are
//! known by another name, it is that file: its redundancy and its row in the catalogue follow it before anything is encoded. The same holds for a file with
//! a new name whose old one was taken by another file. Otherwise it would be encoded as new content, with the corruption that it may have.

use crate::catalogue::{CatalogueError, Class, Entry, Problem};
use crate::coder::Coders;
use crate::protect::ProtectError;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{Part, Place};
use crate::storage::{Repository, Storage};
use crate::tree::{Generation, Kind, split};
use crate::vault::Vault;
use std::collections::HashMap;
use std::io;

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
            match take_along(&repository, &vault.coders, &at, &file.to, &file.now)? {
                Taken::No => continue,
                Taken::Exchanged => drop(places.insert(file.to.clone(), at)),
                Taken::Moved | Taken::Before => {}
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

/// Whether redundancy went with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// There is none of this file.
    No,
    /// It had gone there before.
    Before,
    /// It went.
    Moved,
    /// It went, and what was there is at the former name: it stays until the file that it is of has been seen to.
    Exchanged,
}

/// Puts redundancy at the name `at` in the place of `to`, if it is of the file that has this name now. Nobody else works on it meanwhile.
pub(crate) fn take_along(
    repository: &Repository,
    coders: &Coders,
    at: &[u8],
    to: &[u8],
    now: &Generation,
) -> io::Result<Taken> {
    let (from, place) = (repository.place(at), repository.place(to));
    let fence = Fence::new(&from);
    // Whoever updates what is at the new name is waited for, and waits.
    let there = known(&place, coders)?;
    if there.as_ref().is_some_and(|part| is_of(part, now)) {
        return Ok(Taken::Before);
    }
    if !known(&from, coders)?.is_some_and(|part| is_of(&part, now)) {
        return Ok(Taken::No);
    }
    let taken = fence.pass(&from, |_| {
        if repository.tree.find(&place.path)?.is_some() {
            repository.tree.exchange(&from.path, &place.path)?;
            return Ok(Taken::Exchanged);
        }
        repository.tree.make_directories(split(&place.path).0, DIRECTORY_MODE)?;
        repository.tree.rename(&from.path, &place.path)?;
        Ok(Taken::Moved)
    });
    match taken {
        Err(error) if is_superseded(&error) => Ok(Taken::No),
        taken => taken,
    }
}

fn is_of(part: &Part, now: &Generation) -> bool {
    now.is_unwritten_since(&part.header.generation)
}

/// What is at a place. What is damaged, or a later program wrote, is not moved.
fn known(place: &Place, coders: &Coders) -> io::Result<Option<Part>> {
    match place.open_known(coders) {
        Ok(part) => Ok(part),
        Err(unknown) if unknown.source.is_later() => Ok(None),
        // The file would be encoded as new content, with the corruption that it may have.
        Err(unknown) => Err(io::Error::other(unknown)),
    }
}

/// Files under names of others whose inode, size and mtime are known by a name that they no longer have.
fn find(vault: &Vault) -> Result<Vec<Renamed>, CatalogueError> {
    let mut renamed = Vec::new();
    for class in [Class::Changed, Class::Restored, Class::Moved] {
        vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
            for change in page {
                let Some(now) = generation(&*vault.storage, &change.path) else { continue };
                let known = vault.catalogue.find(&change.path)?;
                if known.is_some_and(|known| known.generation.inode == now.inode) {
                    continue;
                }
                // Where nobody can say what has the old name, the file may have both. A free name is seen to with the move.
                let has_left = |from: &Vec<u8>| match vault.storage.find(from) {
                    Ok(None) => class != Class::Moved,
                    Ok(Some(found)) => found.inode != now.inode,
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
