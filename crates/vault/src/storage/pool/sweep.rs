//! Objects and redundancy that nothing refers to: what a crash left, or a target that was away.

use super::Pool;
use super::config::Standing;
use super::error::PoolError;
use super::namespace::{Entry, look_up, names};
use super::objects::{OBJECTS, PARITY, UNFINISHED, object_path, parity_path, parse_name, parse_parity};
use super::several::all_shared;
use super::view::Copy;
use crate::format::FileId;
use crate::redundancy::STAGING;
use crate::tree::{Tree, absent_is_none, join};
use gabion_platform::lock::Lockable;
use std::collections::{HashMap, HashSet};
use std::fs::TryLockError;
use std::io;

/// An object that nothing refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The target it is on.
    pub target: String,
    /// Its path there.
    pub path: Vec<u8>,
    /// Bytes it takes.
    pub bytes: u64,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub struct Sweep {
    /// What nothing refers to; removed, if that was asked for.
    pub orphans: Vec<Orphan>,
    /// Objects of content that is being written now.
    pub busy: u64,
}

/// Endings of our own files in the staging directory. Drafts of redundancy belong to others.
const TEMPORARY: [&[u8]; 3] = [UNFINISHED, b".stub", b".note"];

impl Pool {
    /// Finds what nothing refers to on the targets that answer, and removes it if asked to.
    ///
    /// # Errors
    /// See [`PoolError`]. A stub that cannot be read ends it: its objects would look forgotten.
    pub fn sweep(&self, remove: bool) -> Result<Sweep, PoolError> {
        // In this order: what is put while we look is not in the list, and what is published is in the namespace.
        let mut found = Vec::new();
        let view = self.shared.view();
        for (index, answer) in view.answers() {
            // What is left over on a disk that takes no writes stays there.
            if remove && view.disks[index].ask_to_write().is_err() {
                continue;
            }
            let target = &view.config.target[index].name;
            let listed = list(&answer.tree).map_err(PoolError::target(target, "listing its objects"))?;
            found.extend(listed.into_iter().map(|path| (target.clone(), answer.tree.clone(), path)));
        }
        // Nobody can publish from here on.
        let mut change = self.shared.change()?;
        let (mut used, mut named) = (HashSet::new(), HashMap::new());
        refer(&change.copies, b"", &mut used, &mut named)?;
        if remove {
            for id in all_shared(&change.copies)? {
                change.mend_count(id, named.get(&id).copied().unwrap_or(0))?;
            }
        }
        // What was made anew while a target was away is removed from it when that is known to be whole, not here.
        let away = change.view.config.target.iter().filter(|member| member.state == Standing::Away);
        let away: HashSet<&str> = away.map(|member| member.name.as_str()).collect();
        let living: HashSet<FileId> = used.iter().map(|(_, id, _)| *id).collect();
        let mut sweep = Sweep::default();
        for (target, tree, path) in found {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(&path);
            let is_used = parse_name(name).is_some_and(|(id, column)| {
                path.starts_with(OBJECTS) && used.contains(&(target.clone(), id, column))
            });
            let is_spared = parse_name(name)
                .is_some_and(|(id, _)| away.contains(target.as_str()) && living.contains(&id));
            // Redundancy of earlier versions of a file is replaced by whoever protects it, not here.
            let is_of_a_file =
                path.starts_with(PARITY) && parse_parity(name).is_some_and(|id| living.contains(&id));
            if is_used || is_spared || is_of_a_file {
                continue;
            }
            match take(&tree, &path, remove)
                .map_err(PoolError::target(&target, "removing what is left over"))?
            {
                Some(bytes) => sweep.orphans.push(Orphan { target, path, bytes }),
                None => sweep.busy += 1,
            }
        }
        Ok(sweep)
    }
}

/// Paths of all objects and redundancy files of a target, and of our own temporary files.
fn list(tree: &Tree) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Vec::new();
    for (shelf, _) in tree.directory(OBJECTS)?.names()?.iter() {
        let shelf = join(OBJECTS, shelf);
        for (name, _) in tree.directory(&shelf)?.names()?.iter() {
            // What is not ours stays.
            if parse_name(name).is_some_and(|(id, column)| object_path(id, column) == join(&shelf, name)) {
                paths.push(join(&shelf, name));
            }
        }
    }
    if let Some(shelves) = absent_is_none(tree.directory(PARITY))? {
        for (shelf, _) in shelves.names()?.iter() {
            let shelf = join(PARITY, shelf);
            for (name, _) in tree.directory(&shelf)?.names()?.iter() {
                if parse_parity(name).is_some_and(|id| parity_path(id) == join(&shelf, name)) {
                    paths.push(join(&shelf, name));
                }
            }
        }
    }
    for (name, _) in tree.directory(STAGING)?.names()?.iter() {
        if TEMPORARY.iter().any(|ending| name.ends_with(ending)) {
            paths.push(join(STAGING, name));
        }
    }
    Ok(paths)
}

/// Gathers the objects that files have, and how many names those with several have.
fn refer(
    copies: &[Copy],
    path: &[u8],
    used: &mut HashSet<(String, FileId, usize)>,
    named: &mut HashMap<FileId, u32>,
) -> Result<(), PoolError> {
    for (name, _) in names(copies, path)?.iter() {
        let path = join(path, name);
        match look_up(copies, &path)? {
            Some(Entry::Directory(_)) => refer(copies, &path, used, named)?,
            Some(Entry::File(stub)) => {
                if stub.names > 0 {
                    *named.entry(stub.id).or_default() += 1;
                }
                let columns = stub.targets.iter().enumerate();
                used.extend(columns.map(|(column, target)| (target.clone(), stub.id, column)));
            }
            None => {}
        }
    }
    Ok(())
}

/// Bytes of a file that is left over; nothing if someone is at it.
fn take(tree: &Tree, path: &[u8], remove: bool) -> io::Result<Option<u64>> {
    let Some(file) = absent_is_none(tree.read(path))? else { return Ok(None) };
    let file = Lockable::from(file);
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let bytes = crate::tree::stat_of(&file)?.allocated;
    if remove {
        tree.remove(path)?;
    }
    Ok(Some(bytes))
}
