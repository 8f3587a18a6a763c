//! Files that were renamed over names of other protected files: log rotation, a swap, `mv new old`.
//!
//! A scan identifies a file by its name first, so a file under the name of another one looks changed. If the catalogue
//! knows its inode, size and mtime under another name, it is that file: its redundancy and its catalogue entry are
//! moved before anything is encoded. The same applies to a file with a new name whose old name was taken by another
//! file. Otherwise the file would be encoded as new content, together with any corruption that it has.

use crate::catalogue::{CatalogueError, Class, Entry, Problem};
use crate::displaced::{PresentFile, known, recall, set_aside};
use crate::protect::ProtectError;
use crate::storage::Storage;
use crate::tree::{Kind, Stat};
use crate::vault::Vault;
use crate::worker;

/// A file that has taken the name of another one.
struct Renamed {
    /// Known names that the file no longer has. After a crash there may be several.
    from: Vec<Vec<u8>>,
    to: Vec<u8>,
    found: PresentFile,
}

/// Moves redundancy and catalogue entries of the renamed files of the last scan. Returns their number.
///
/// # Errors
/// The catalogue or the operating system fails.
pub(crate) fn follow(vault: &Vault) -> Result<u64, ProtectError> {
    // A pool finds redundancy by inode.
    if vault.storage.kind() != "plain" {
        return Ok(0);
    }
    let renamed = find(vault)?;
    let (catalogue, coders, mut followed) = (&vault.catalogue, &vault.coders, Vec::new());
    let worker = worker::name(0).0;
    catalogue.note_moving(&worker, renamed.iter().map(|file| &file.to))?;
    for repository in vault.storage.repositories() {
        // Names may have been exchanged in a cycle: all redundancy is set aside before any is moved to its new name.
        for file in &renamed {
            for from in &file.from {
                set_aside(&repository.place(from), coders, |part| file.found.is_of(part))?;
            }
        }
        for file in &renamed {
            let place = repository.place(&file.to);
            let is_there = known(&place, coders)?.is_some_and(|part| file.found.is_of(&part));
            if is_there || recall(&place, coders, &file.found)? {
                followed.push(file);
            }
        }
        if !followed.is_empty() {
            repository.tree.sync_all()?;
        }
    }
    let mut rows: Vec<(&[u8], Entry, Vec<Problem>)> = Vec::new();
    for file in &followed {
        if let Some(from) = file.from.first()
            && let Some(entry) = catalogue.find(from)?
        {
            rows.push((&file.to, entry, catalogue.problems(from)?));
        }
    }
    catalogue.together(|| -> Result<(), CatalogueError> {
        for (path, entry, problems) in &rows {
            catalogue.put(path, entry)?;
            catalogue.set_problems(path, problems, vault.clock.now())?;
        }
        catalogue.forget_moving(&worker)
    })?;
    Ok(rows.len() as u64)
}

/// Files under names of others whose inode, size and mtime are known under a name that they no longer have.
fn find(vault: &Vault) -> Result<Vec<Renamed>, CatalogueError> {
    let mut renamed = Vec::new();
    for class in [Class::Changed, Class::Restored, Class::Moved] {
        vault.catalogue.each_change(class, |page| -> Result<(), CatalogueError> {
            for change in page {
                let Some(stat) = file(&*vault.storage, &change.path) else { continue };
                let now = stat.generation();
                let known = vault.catalogue.find(&change.path)?;
                if known.is_some_and(|known| known.generation.inode == now.inode) {
                    continue;
                }
                // If the old name cannot be looked up, the file may have both names. A free old name is handled with
                // the move.
                let has_left = |from: &Vec<u8>| match vault.storage.find(from) {
                    Ok(None) => class != Class::Moved,
                    Ok(Some(found)) => found.inode != now.inode,
                    Err(_) => false,
                };
                let mut from = vault.catalogue.by_inode(&now)?;
                from.retain(|from| *from != change.path && has_left(from));
                if !from.is_empty() {
                    renamed.push(Renamed { from, to: change.path.clone(), found: PresentFile::of(&stat) });
                }
            }
            Ok(())
        })?;
    }
    Ok(renamed)
}

fn file(storage: &dyn Storage, path: &[u8]) -> Option<Stat> {
    storage.find(path).ok().flatten().filter(|found| found.kind == Kind::File)
}
