//! Redundancy files of a pool: `parity/XX/ID` on every target that has a redundancy column of file ID.
//!
//! A file keeps its ID when it is renamed, linked or written in place, and new content gets a new one. Changes of names
//! thus leave redundancy in place, and redundancy of one file cannot be mistaken for that of another.
//!
//! Earlier versions kept redundancy at `redundancy/PATH`. It is read there, and `protect` moves it: a rename within one
//! target, which is atomic.

use super::Pool;
use super::config::TargetName;
use super::error::PoolError;
use super::namespace::{NamespaceEntry, look_up};
use super::objects::parity_path;
use super::stub::Stub;
use crate::coder::Coders;
use crate::redundancy::{PartPath, REDUNDANCY};
use crate::storage::{RedundancyLocation, Repository, Storage};
use crate::tree::{Kind, Tree, absent_is_none, join, split};
use std::collections::HashMap;
use std::io;

/// Maximum number of former redundancy files that are matched with other names in one run.
const MAX_UNMATCHED: usize = 1 << 16;

/// Like object directories, accessible to the owner only.
const DIRECTORY_MODE: u32 = 0o700;

/// Owner of a former redundancy file.
enum FormerOwner {
    /// Redundancy of the file with this inode.
    Of(u64),
    /// No valid headers are left, so the file is useless.
    Broken,
    /// Unreadable now, or written by a later version of the program.
    Unknown,
}

impl Pool {
    /// See [`Storage::redundancy_locations`]. A former location is included if a file exists there.
    pub(crate) fn redundancy_locations_of(&self, path: &[u8], stub: &Stub) -> Vec<RedundancyLocation> {
        let owner = Some(stub.id);
        let mut locations = Vec::new();
        for Repository { target, tree } in self.repositories() {
            let place = PartPath { tree: tree.clone(), path: parity_path(stub.id) };
            locations.push(RedundancyLocation { target: target.clone(), place, owner });
            let former_owner = PartPath { tree, path: join(REDUNDANCY, path) };
            if is_file(&former_owner.tree, &former_owner.path) {
                locations.push(RedundancyLocation { target, place: former_owner, owner });
            }
        }
        locations
    }

    /// See [`Storage::relocate_former_redundancy`].
    pub(crate) fn relocate_former_redundancy_of(
        &self,
        path: &[u8],
        stub: &Stub,
        coders: &Coders,
    ) -> Result<(), PoolError> {
        for repository in self.writable_repositories() {
            let place = repository.place(path);
            if !is_file(&place.tree, &place.path) {
                continue;
            }
            if matches!(former_owner(&place, coders), FormerOwner::Of(inode) if inode == stub.stat(0).inode) {
                move_to_identity(&place, stub).map_err(|error| failed(&repository, error))?;
            }
        }
        Ok(())
    }

    /// Moves all redundancy at former paths to its identity path, and removes redundancy without a file. Returns the
    /// number of files moved or removed. Nothing is removed unless the whole namespace could be read.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn relocate_all_former_redundancy(&self, coders: &Coders) -> Result<u64, PoolError> {
        let (mut relocated, mut unmatched) = (0, Vec::new());
        for repository in self.writable_repositories() {
            let failed = |error| failed(&repository, error);
            if repository.tree.find(REDUNDANCY).map_err(failed)?.is_none() {
                continue;
            }
            let copies = self.shared.copies()?;
            each_former(&repository.tree, &mut |path| {
                let place = repository.place(path);
                let found = former_owner(&place, coders);
                match (look_up(&copies, path), &found) {
                    (Ok(Some(NamespaceEntry::File(stub))), FormerOwner::Of(inode))
                        if stub.stat(0).inode == *inode =>
                    {
                        relocated += u64::from(move_to_identity(&place, &stub)?);
                    }
                    _ if matches!(found, FormerOwner::Unknown) || unmatched.len() == MAX_UNMATCHED => {}
                    _ => unmatched.push((place, found)),
                }
                Ok(())
            })
            .map_err(failed)?;
        }
        relocated += self.relocate_unmatched(unmatched)?;
        for repository in self.writable_repositories() {
            // Directories that are not empty stay.
            let _ = remove_empty_below(&repository.tree, REDUNDANCY);
        }
        Ok(relocated)
    }

    /// Handles former redundancy files whose paths lead to other files, or to nothing: their files were renamed or
    /// removed.
    fn relocate_unmatched(&self, unmatched: Vec<(PartPath, FormerOwner)>) -> Result<u64, PoolError> {
        if unmatched.is_empty() {
            return Ok(0);
        }
        let mut by_inode: HashMap<u64, Vec<&PartPath>> = HashMap::new();
        for (place, found) in &unmatched {
            if let FormerOwner::Of(inode) = found {
                by_inode.entry(*inode).or_default().push(place);
            }
        }
        // Under the lock: a file that is renamed while the namespace is read could be missed.
        let mut change = match self.shared.change() {
            Err(PoolError::Quorum { .. }) => return Ok(0),
            change => change?,
        };
        change.mark_unreachable_stale()?;
        let (mut relocated, mut complete, mut failed) = (0, true, None);
        self.each_file(&mut |_, stub| match stub {
            Err(_) => complete = false,
            Ok(stub) => {
                for place in by_inode.remove(&stub.stat(0).inode).into_iter().flatten() {
                    match move_to_identity(place, &stub) {
                        Ok(moved) => relocated += u64::from(moved),
                        Err(error) => failed = Some(error),
                    }
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(PoolError::path(b"", error));
        }
        for (place, found) in unmatched.iter().filter(|_| complete) {
            let is_orphan = match found {
                FormerOwner::Of(inode) => by_inode.contains_key(inode),
                FormerOwner::Broken => true,
                FormerOwner::Unknown => false,
            };
            if is_orphan {
                place.tree.remove(&place.path).map_err(|error| PoolError::path(&place.path, error))?;
                relocated += 1;
            }
        }
        Ok(relocated)
    }

    /// Visits every file of the namespace with its stub, or with the error.
    ///
    /// # Errors
    /// The root of the namespace cannot be read.
    pub fn each_file(
        &self,
        visit: &mut dyn FnMut(Vec<u8>, Result<Stub, PoolError>),
    ) -> Result<(), PoolError> {
        let mut ahead = vec![Vec::new()];
        while let Some(directory) = ahead.pop() {
            let listed = match self.list(&directory) {
                Ok(listed) => listed,
                // Removed since its parent was read.
                Err(error) if !directory.is_empty() && error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) if directory.is_empty() => return Err(error),
                Err(error) => {
                    visit(directory, Err(error));
                    continue;
                }
            };
            for (name, found) in listed {
                let path = join(&directory, &name);
                match found {
                    Ok(found) => match found.stub {
                        None => ahead.push(path),
                        Some(stub) if stub.is_file() => visit(path, Ok(stub)),
                        Some(_) => {}
                    },
                    Err(error) => visit(path, Err(error)),
                }
            }
        }
        Ok(())
    }
}

fn failed(repository: &Repository, source: io::Error) -> PoolError {
    let doing = "moving redundancy to its place";
    match TargetName::from_bytes(&repository.target) {
        Some(target) => PoolError::Target { target, doing, source },
        None => PoolError::Caller { doing, source },
    }
}

fn is_file(tree: &Tree, path: &[u8]) -> bool {
    tree.find(path).is_ok_and(|found| found.is_some_and(|stat| stat.kind == Kind::File))
}

fn former_owner(place: &PartPath, coders: &Coders) -> FormerOwner {
    match place.open(coders) {
        Ok(Some(part)) => FormerOwner::Of(part.header.generation.inode),
        Err(error) if error.is_unusable() => FormerOwner::Broken,
        _ => FormerOwner::Unknown,
    }
}

/// Moves a redundancy file to its identity path. Returns false if one exists there already.
fn move_to_identity(place: &PartPath, stub: &Stub) -> io::Result<bool> {
    let to = parity_path(stub.id);
    place.tree.make_directories(split(&to).0, DIRECTORY_MODE)?;
    match absent_is_none(place.tree.rename_new(&place.path, &to)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        renamed => Ok(renamed?.is_some()),
    }
}

/// Visits the paths of all former redundancy files of a target.
fn each_former(tree: &Tree, visit: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut ahead = vec![Vec::new()];
    while let Some(path) = ahead.pop() {
        let place = if path.is_empty() { REDUNDANCY.to_vec() } else { join(REDUNDANCY, &path) };
        let Some(directory) = absent_is_none(tree.directory(&place))? else { continue };
        for (name, kind) in directory.names()?.iter() {
            let kind = match kind {
                Some(kind) => kind,
                None => directory.stat(name)?.kind,
            };
            match kind {
                Kind::Directory => ahead.push(join(&path, name)),
                Kind::File => visit(&join(&path, name))?,
                _ => {}
            }
        }
    }
    Ok(())
}

/// Removes empty directories at and below a path.
fn remove_empty_below(tree: &Tree, path: &[u8]) -> io::Result<()> {
    let Some(directory) = absent_is_none(tree.directory(path))? else { return Ok(()) };
    for (name, kind) in directory.names()?.iter() {
        if kind.is_none_or(|kind| kind == Kind::Directory) {
            remove_empty_below(tree, &join(path, name))?;
        }
    }
    tree.remove_empty(path, split(path).0)
}
