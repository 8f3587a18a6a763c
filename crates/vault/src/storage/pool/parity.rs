//! Redundancy files of a pool: `parity/XX/ID` on every target that has a redundancy column of file ID.
//!
//! A file keeps its ID when it is renamed, linked or written in place, and new content gets a new one. So a change of names never touches
//! redundancy, and redundancy of one file cannot be taken for that of another.
//!
//! Earlier versions of the program kept redundancy at `redundancy/PATH`. It is read there, and moved to its new place by `protect`: a rename
//! within one target, which a crash leaves done or not done.

use super::Pool;
use super::error::PoolError;
use super::namespace::{Entry, look_up};
use super::objects::parity_path;
use super::stub::Stub;
use crate::coder::Coders;
use crate::redundancy::{Place, REDUNDANCY};
use crate::storage::{Holder, Repository, Storage};
use crate::tree::{Kind, Tree, absent_is_none, join, split};
use std::collections::HashMap;
use std::io;

/// Former redundancy files that are looked for under other names in one go.
const MAX_STRANGERS: usize = 1 << 16;

/// Directories of `parity/` are for the owner alone, as those of objects.
const DIRECTORY_MODE: u32 = 0o700;

/// What a former redundancy file is.
enum Former {
    /// Redundancy of the file with this inode.
    Of(u64),
    /// No headers are left: nothing can use it.
    Broken,
    /// It cannot be read now, or is of a later version of the program.
    Unknown,
}

impl Pool {
    /// See [`Storage::holders`]. Redundancy at a former place is among them, if there is any.
    pub(crate) fn holders_of(&self, path: &[u8], stub: &Stub) -> Vec<Holder> {
        let owner = Some(stub.id);
        let mut holders = Vec::new();
        for Repository { target, tree } in self.repositories() {
            let place = Place { tree: tree.clone(), path: parity_path(stub.id) };
            holders.push(Holder { target: target.clone(), place, owner });
            let former = Place { tree, path: join(REDUNDANCY, path) };
            if is_file(&former.tree, &former.path) {
                holders.push(Holder { target, place: former, owner });
            }
        }
        holders
    }

    /// See [`Storage::bring_home`].
    pub(crate) fn bring_redundancy_home(
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
            if matches!(former(&place, coders), Former::Of(inode) if inode == stub.stat(0).inode) {
                move_home(&place, stub).map_err(|error| failed(&repository, error))?;
            }
        }
        Ok(())
    }

    /// Moves all redundancy that lies at former places to where it belongs, and removes what belongs to no file. Gives the number of files
    /// that were moved or removed. Nothing is removed unless the whole namespace could be read.
    ///
    /// # Errors
    /// See [`PoolError`].
    pub(crate) fn settle_former_redundancy(&self, coders: &Coders) -> Result<u64, PoolError> {
        let (mut settled, mut strangers) = (0, Vec::new());
        for repository in self.writable_repositories() {
            let failed = |error| failed(&repository, error);
            if repository.tree.find(REDUNDANCY).map_err(failed)?.is_none() {
                continue;
            }
            let copies = self.shared.copies()?;
            each_former(&repository.tree, &mut |path| {
                let place = repository.place(path);
                let found = former(&place, coders);
                match (look_up(&copies, path), &found) {
                    (Ok(Some(Entry::File(stub))), Former::Of(inode)) if stub.stat(0).inode == *inode => {
                        settled += u64::from(move_home(&place, &stub)?);
                    }
                    _ if matches!(found, Former::Unknown) || strangers.len() == MAX_STRANGERS => {}
                    _ => strangers.push((place, found)),
                }
                Ok(())
            })
            .map_err(failed)?;
        }
        settled += self.settle_strangers(strangers)?;
        for repository in self.writable_repositories() {
            // What is not empty stays.
            let _ = remove_empty_below(&repository.tree, REDUNDANCY);
        }
        Ok(settled)
    }

    /// Former redundancy files whose names stand for other files, or for nothing: their files got other names, or are gone.
    fn settle_strangers(&self, strangers: Vec<(Place, Former)>) -> Result<u64, PoolError> {
        if strangers.is_empty() {
            return Ok(0);
        }
        let mut by_inode: HashMap<u64, Vec<&Place>> = HashMap::new();
        for (place, found) in &strangers {
            if let Former::Of(inode) = found {
                by_inode.entry(*inode).or_default().push(place);
            }
        }
        // A file that gets another name while the namespace is read could be missed, so nobody changes it meanwhile.
        let mut change = match self.shared.change() {
            Err(PoolError::Quorum { .. }) => return Ok(0),
            change => change?,
        };
        change.leave_behind_the_silent()?;
        let (mut settled, mut complete, mut failed) = (0, true, None);
        self.each_file(&mut |_, stub| match stub {
            Err(_) => complete = false,
            Ok(stub) => {
                for place in by_inode.remove(&stub.stat(0).inode).into_iter().flatten() {
                    match move_home(place, &stub) {
                        Ok(moved) => settled += u64::from(moved),
                        Err(error) => failed = Some(error),
                    }
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(PoolError::path(b"", error));
        }
        for (place, found) in strangers.iter().filter(|_| complete) {
            let nobodys = match found {
                Former::Of(inode) => by_inode.contains_key(inode),
                Former::Broken => true,
                Former::Unknown => false,
            };
            if nobodys {
                place.tree.remove(&place.path).map_err(|error| PoolError::path(&place.path, error))?;
                settled += 1;
            }
        }
        Ok(settled)
    }

    /// Visits every file of the namespace, with what it stands for or why that is not known.
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
                // Gone since its parent was read.
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
    let target = String::from_utf8_lossy(&repository.target);
    PoolError::target(&target, "moving redundancy to its place")(source)
}

fn is_file(tree: &Tree, path: &[u8]) -> bool {
    tree.find(path).is_ok_and(|found| found.is_some_and(|stat| stat.kind == Kind::File))
}

fn former(place: &Place, coders: &Coders) -> Former {
    match place.open(coders) {
        Ok(Some(part)) => Former::Of(part.header.generation.inode),
        Err(error) if error.is_beyond_use() => Former::Broken,
        _ => Former::Unknown,
    }
}

/// Gives a redundancy file its place by identity. False if there is one already.
fn move_home(place: &Place, stub: &Stub) -> io::Result<bool> {
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
