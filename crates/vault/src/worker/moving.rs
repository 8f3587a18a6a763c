//! Redundancy that goes where its file went, and such as goes for good.

use super::{Done, Job, LEASE, WorkError, Worker};
use crate::catalogue::{Catalogue, CatalogueError};
use crate::changelog::{self, Claim, Kind, Refusal};
use crate::encode::EncodeError;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{Place, REDUNDANCY, STAGING, Unknown};
use crate::renamed::{self, Taken};
use crate::repair::forget_repair;
use crate::storage::Repository;
use crate::tree::{self, absent_is_none, join, split};
use std::cell::RefCell;
use std::io;
use std::sync::PoisonError;

impl Worker<'_> {
    /// Moves the redundancy of a file that was moved, if it still is that file's. Whether any was moved.
    pub(super) fn move_redundancy(&self, job: &Job, catalogue: Option<&Catalogue>, done: &mut Done) -> bool {
        let (Some(origin), Some(_)) = (&job.claim.entry.origin, &job.treatment) else { return false };
        let path = &job.claim.entry.path;
        // Redundancy that belongs to the file and not to its name is where it was.
        if self.storage.keeps_by_identity() {
            done.moved += u64::from(job.claim.entry.kind == Kind::Move);
            return false;
        }
        // Another file may have the old name by now, while the redundancy there is still that of this one.
        if !self.is_vacated(origin) {
            return match self.take_along(origin, path) {
                Ok(taken) => {
                    done.moved += u64::from(taken && job.claim.entry.kind == Kind::Move);
                    taken
                }
                Err(source) => {
                    let failed = EncodeError::Write { path: self.storage.shown(path), source };
                    *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(failed));
                    false
                }
            };
        }
        let mut moved = false;
        for repository in self.storage.repositories() {
            if let Some(Unknown { path, source }) = repository.place(path).must_stay(self.coders) {
                let refused = EncodeError::Redundancy { path, source };
                *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(refused));
                return moved;
            }
            let step = || rename_redundancy(&repository, origin, path);
            match self.making_way(path, catalogue, done, step) {
                Ok(renamed) => moved |= renamed,
                // What is in its way may have to stay: a deletion that waits for an approval.
                Err(source) => {
                    let failed =
                        EncodeError::Write { path: repository.tree.shown(&join(REDUNDANCY, path)), source };
                    *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(failed));
                    return moved;
                }
            }
        }
        if moved && job.claim.entry.kind == Kind::Move {
            done.moved += 1;
        }
        moved
    }

    fn take_along(&self, origin: &[u8], path: &[u8]) -> io::Result<bool> {
        let Some(stat) = self.storage.find(path)?.filter(|stat| stat.kind == tree::Kind::File) else {
            return Ok(false);
        };
        let mut taken = false;
        for repository in self.storage.repositories() {
            let went = renamed::take_along(&repository, self.coders, origin, path, &stat.generation())?;
            taken |= matches!(went, Taken::Moved | Taken::Exchanged);
        }
        Ok(taken)
    }

    /// Moves redundancy back to where a claim that is not completed says that it is: the file may get a third name before anybody claims it again,
    /// and its entry still says that it came from the first one. Call it before the claim ends: until then no other worker touches either name.
    pub(super) fn undo_move(
        &self,
        claim: &Claim,
        moved: bool,
        catalogue: Option<&Catalogue>,
    ) -> Result<(), WorkError> {
        if !moved {
            return Ok(());
        }
        match self.changelog.renew(&mut claim.clone(), LEASE, self.clock.now()) {
            // Another worker has the claim, and found the redundancy where it is.
            Err(changelog::Error::Refused { why: Refusal::Lost, .. }) => Ok(()),
            Ok(()) | Err(changelog::Error::Refused { why: Refusal::Overtaken, .. }) => {
                self.put_back(claim, catalogue)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The file was moved on or deleted when its redundancy had just been published under the name that it had: the claim has ended, so what lies there is
    /// moved back only if no other file has taken the name.
    pub(super) fn put_back_overtaken(
        &self,
        claim: &Claim,
        catalogue: Option<&Catalogue>,
    ) -> Result<(), WorkError> {
        match self.storage.keeps_by_identity() || !self.is_vacated(&claim.entry.path) {
            true => Ok(()),
            false => self.put_back(claim, catalogue),
        }
    }

    /// Moves redundancy back to the name that a claim's file had before, if that name is free. The catalogue follows: a scan finds redundancy of files
    /// that are gone by their entries alone.
    fn put_back(&self, claim: &Claim, catalogue: Option<&Catalogue>) -> Result<(), WorkError> {
        let (Some(origin), path) = (&claim.entry.origin, &claim.entry.path) else { return Ok(()) };
        let failed = |source| self.repository_error(source);
        for repository in self.storage.repositories() {
            let is_back = self.has_room_for(&repository, origin).map_err(failed)?
                && rename_redundancy(&repository, path, origin).map_err(failed)?;
            let Some(catalogue) = catalogue else { continue };
            if is_back {
                catalogue.together(|| self.catalogue_under(catalogue, path, origin, true))?;
            } else if repository.tree.find(&join(REDUNDANCY, path)).map_err(failed)?.is_some() {
                catalogue.together(|| self.catalogue_under(catalogue, origin, path, false))?;
            }
        }
        Ok(())
    }

    /// Gives a name that the catalogue does not know the entry of another one.
    fn catalogue_under(
        &self,
        catalogue: &Catalogue,
        known: &[u8],
        name: &[u8],
        forget: bool,
    ) -> Result<(), CatalogueError> {
        let Some(entry) = catalogue.find(known)? else { return Ok(()) };
        if catalogue.find(name)?.is_none() {
            let problems = catalogue.problems(known)?;
            catalogue.put(name, &entry)?;
            catalogue.set_problems(name, &problems, self.clock.now())?;
        }
        match forget {
            true => catalogue.forget(known),
            false => Ok(()),
        }
    }

    /// Whether redundancy of a file that left this name may wait there: no file has the name, and no redundancy lies there.
    fn has_room_for(&self, repository: &Repository, path: &[u8]) -> io::Result<bool> {
        Ok(self.is_vacated(path) && repository.tree.find(&join(REDUNDANCY, path))?.is_none())
    }

    /// Removes redundancy of what is gone: a file, or all files of a directory. What was on its way after a file that has gone on since goes back to
    /// where that file is known to have been.
    pub(super) fn remove_redundancy(
        &self,
        path: &[u8],
        catalogue: Option<&Catalogue>,
        done: &mut Done,
    ) -> Result<(), WorkError> {
        let mut removed = 0;
        forget_repair(self.storage, path).map_err(|source| self.repository_error(source))?;
        if self.storage.keeps_by_identity() {
            return self.remove_owned(path, catalogue, done);
        }
        for repository in self.storage.repositories() {
            let (below, left) = self.remove_vacated(&repository, path, catalogue, &|_| Ok(true))?;
            removed = removed.max(below);
            if let Some(left) = left {
                done.removed += removed;
                return Err(WorkError::Left(left));
            }
        }
        done.removed += removed;
        Ok(())
    }

    /// Removes redundancy at and beneath a path of which the catalogue knows nothing and whose files are gone. What was recorded of the end of a file is
    /// part of a gap once there is one, and a scan compares the catalogue with the tree: neither tells of redundancy that was on its way then.
    pub(super) fn remove_strays(
        &self,
        path: &[u8],
        catalogue: &Catalogue,
        done: &mut Done,
    ) -> Result<(), WorkError> {
        if self.storage.keeps_by_identity() {
            return Ok(());
        }
        let is_unknown =
            |data: &[u8]| catalogue.find(data).map(|known| known.is_none()).map_err(io::Error::other);
        for repository in self.storage.repositories() {
            // What has to stay is of files that nobody recorded: the next gap comes to it again.
            let (removed, _) = self.remove_vacated(&repository, path, Some(catalogue), &is_unknown)?;
            done.removed += removed;
        }
        Ok(())
    }

    /// Removes redundancy at and beneath a path if its file is gone and `may_go` says yes to it. Gives the number of files, and one of those that
    /// must not be removed.
    fn remove_vacated(
        &self,
        repository: &Repository,
        path: &[u8],
        catalogue: Option<&Catalogue>,
        may_go: &dyn Fn(&[u8]) -> io::Result<bool>,
    ) -> Result<(u64, Option<Unknown>), WorkError> {
        let left = RefCell::new(None);
        let is_gone = |found: &[u8]| -> io::Result<bool> {
            let data = found.strip_prefix(&[REDUNDANCY, b"/"].concat()[..]).unwrap_or(found);
            if !self.is_vacated(data) || !may_go(data)? {
                return Ok(false);
            }
            if let Some(unknown) = repository.place(data).must_stay(self.coders) {
                *left.borrow_mut() = Some(unknown);
                return Ok(false);
            }
            let known = catalogue.map(|catalogue| self.known_elsewhere(repository, data, catalogue));
            match known.transpose().map_err(io::Error::other)?.flatten() {
                Some(known) => rename_redundancy(repository, data, &known).map(|renamed| !renamed),
                None => Ok(true),
            }
        };
        let removed = || -> io::Result<u64> {
            if path.is_empty() {
                return remove_below(&repository.tree, REDUNDANCY, &is_gone);
            }
            let place = join(REDUNDANCY, path);
            let removed = remove_below(&repository.tree, &place, &is_gone)?;
            repository.tree.remove_empty(split(&place).0, REDUNDANCY)?;
            Ok(removed)
        };
        let removed = removed().map_err(|source| self.repository_error(source))?;
        Ok((removed, left.take()))
    }

    /// As [`remove_redundancy`](Worker::remove_redundancy), where redundancy belongs to the file: that of a file without names went with its
    /// last name. A file that the policy leaves out loses it, unless another of its names is to be protected.
    fn remove_owned(
        &self,
        path: &[u8],
        catalogue: Option<&Catalogue>,
        done: &mut Done,
    ) -> Result<(), WorkError> {
        let known = catalogue.map(|catalogue| catalogue.find(path)).transpose()?.flatten();
        done.removed += u64::from(known.is_some());
        let failed = |source| self.repository_error(source);
        let Some(stat) = self.storage.find(path).map_err(failed)?.filter(|it| it.kind == tree::Kind::File)
        else {
            return Ok(());
        };
        let names = catalogue.map(|catalogue| catalogue.by_inode(&stat.generation())).transpose()?;
        let is_wanted = |name: &Vec<u8>| {
            let there = self.storage.find(name).ok().flatten();
            name != path && there.is_some_and(|it| it.inode == stat.inode) && !self.is_vacated(name)
        };
        if !self.is_vacated(path) || names.iter().flatten().any(is_wanted) {
            return Ok(());
        }
        for holder in self.storage.holders(path).map_err(failed)? {
            if let Some(left) = holder.place.must_stay(self.coders) {
                return Err(WorkError::Left(left));
            }
            if let Ok(Some(part)) = holder.place.open(self.coders)
                && holder.owns(&part.header)
            {
                holder.place.tree.remove_if_writable(&holder.place.path).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Where the file is known to have been whose redundancy lies at a path that the catalogue does not know, if it could wait there.
    fn known_elsewhere(
        &self,
        repository: &Repository,
        data: &[u8],
        catalogue: &Catalogue,
    ) -> Result<Option<Vec<u8>>, CatalogueError> {
        if catalogue.find(data)?.is_some() {
            return Ok(None);
        }
        let Ok(Some(part)) = repository.place(data).open(self.coders) else { return Ok(None) };
        let mut known = catalogue.by_inode(&part.header.generation)?.into_iter();
        Ok(known.find(|path| path != data && self.has_room_for(repository, path).unwrap_or(false)))
    }
}

/// Gives redundancy of a file the place of another name. Whether there was any.
fn rename_redundancy(repository: &Repository, from: &[u8], to: &[u8]) -> io::Result<bool> {
    let (from, to) = (join(REDUNDANCY, from), join(REDUNDANCY, to));
    // A directory of other files' redundancy stays where it is.
    let found = repository.tree.find(&from)?;
    if found.is_none_or(|found| found.kind != tree::Kind::File) {
        return Ok(false);
    }
    repository.tree.make_directories(split(&to).0, DIRECTORY_MODE)?;
    let renamed = absent_is_none(repository.tree.rename(&from, &to))?.is_some();
    if renamed {
        repository.tree.remove_empty(split(&from).0, REDUNDANCY)?;
    }
    Ok(renamed)
}

/// Removes the files at and below `path` that `is_gone` says yes to, and directories that become empty. Gives their number.
fn remove_below(
    tree: &tree::Tree,
    path: &[u8],
    is_gone: &dyn Fn(&[u8]) -> io::Result<bool>,
) -> io::Result<u64> {
    let Some(stat) = tree.find(path)? else { return Ok(0) };
    if stat.kind != tree::Kind::Directory {
        let place = Place { tree: tree.clone(), path: path.to_vec() };
        let fence = Fence::new(&place);
        if !is_gone(path)? {
            return Ok(0);
        }
        // The file may have come back since, and another worker may have protected it.
        return match fence.pass(&place, |_| tree.remove(path)) {
            Err(error) if is_superseded(&error) => Ok(0),
            removed => removed.map(|()| 1),
        };
    }
    let mut removed = 0;
    for (name, _) in tree.directory(path)?.names()?.iter() {
        removed += remove_below(tree, &join(path, name), is_gone)?;
    }
    if path != REDUNDANCY && path != STAGING {
        tree.remove_empty(path, split(path).0)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::remove_below;
    use crate::tree::Tree;

    /// The file came back, and another worker protected it, between the look that found it gone and the removal of its redundancy.
    #[test]
    fn redundancy_that_was_replaced_meanwhile_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("redundancy/file");
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let tree = Tree::open(directory.path()).unwrap();
        std::fs::write(&path, "of the old file").unwrap();
        let replaced = |_: &[u8]| {
            let draft = directory.path().join("draft");
            std::fs::write(&draft, "of the new file")?;
            std::fs::rename(draft, &path)?;
            Ok(true)
        };
        assert_eq!(remove_below(&tree, b"redundancy/file", &replaced).unwrap(), 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"of the new file");
        assert_eq!(remove_below(&tree, b"redundancy/file", &|_| Ok(true)).unwrap(), 1);
        assert!(!path.exists());
    }
}
