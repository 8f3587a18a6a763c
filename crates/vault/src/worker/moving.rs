//! Redundancy that goes where its file went, and such as goes for good.

use super::{Completed, Done, Job, LEASE, WorkError, Worker, is_dead};
use crate::catalogue::{Catalogue, CatalogueError, Entry, Problem};
use crate::changelog::{self, Claim, Kind, Refusal, WorkerId};
use crate::coder::Coders;
use crate::displaced::{Found, is_kept, keeps_any, known, recall, set_aside};
use crate::encode::EncodeError;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{InconclusivePart, Part, PartPath, REDUNDANCY, STAGING};
use crate::repair_mark::forget_repair;
use crate::storage::{Repository, Storage};
use crate::tree::{self, Stat, absent_is_none, join, split};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::sync::PoisonError;

/// What is known of a file by names that it no longer has.
#[derive(Debug, Clone)]
pub(super) struct Former {
    /// The names; what is known is of the first. After a crash there may be several.
    pub(super) names: Vec<Vec<u8>>,
    pub(super) entry: Entry,
    pub(super) problems: Vec<Problem>,
}

impl Worker<'_> {
    /// What is known of the file of a claim by a name that it had before: the one that the claim names, or one by which the catalogue knows its inode.
    pub(super) fn former(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        catalogue: Option<&Catalogue>,
        known: Option<&Entry>,
    ) -> Result<Option<Former>, CatalogueError> {
        let (Some(stat), Some(catalogue)) = (stat, catalogue) else { return Ok(None) };
        let (path, origin) = (&claim.entry.path, claim.entry.origin.as_ref());
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Some(origin) = origin
            && let Some(entry) = catalogue.find(origin)?
            && (entry.generation.inode == stat.inode || self.is_vacated(origin))
        {
            names.push(origin.clone());
        }
        let is_same = |known: &Entry| known.generation.inode == stat.inode;
        if !self.storage.keeps_by_identity() && !known.is_some_and(is_same) {
            let has_left = |name: &Vec<u8>| {
                let found = self.storage.find(name);
                name != path && found.is_ok_and(|found| found.is_none_or(|it| it.inode != stat.inode))
            };
            let known = self.known_by_inode(stat, catalogue)?.into_iter();
            names.extend(known.filter(|name| Some(name) != origin && has_left(name)));
        }
        let Some(first) = names.first() else { return Ok(None) };
        let problems = catalogue.problems(first)?;
        Ok(catalogue.find(first)?.map(|entry| Former { names, entry, problems }))
    }

    /// Sets redundancy aside that a job needs at another name, and such as would be overwritten although its file may exist elsewhere.
    pub(super) fn take_away(&self, job: &Job) {
        let (Some(found), Some(_)) = (&job.found, &job.treatment) else { return };
        let path = &job.claim.entry.path;
        let take_away = || -> io::Result<()> {
            for repository in self.storage.repositories() {
                let former = job.former.iter().flat_map(|former| &former.names);
                for name in former.chain(&job.claim.entry.origin).filter(|name| *name != path) {
                    let has_left = self.storage.find(name)?.is_none_or(|it| it.inode != found.now.inode);
                    set_aside(&repository.place(name), self.coders, |part| has_left && found.is_of(part))?;
                }
                // A copy with the size and time of what was protected is compared with it, unless it is known to be another file.
                set_aside(&repository.place(path), self.coders, |Part { header, .. }| {
                    let version = &header.generation;
                    version.inode != found.now.inode && (job.elsewhere || !found.now.is_same_content(version))
                })?;
            }
            Ok(())
        };
        if let Err(source) = take_away() {
            self.refuse(job, EncodeError::Write { path: self.storage.shown(path), source });
        }
    }

    /// Repositories in which redundancy is kept for files whose name is not known.
    pub(super) fn keeping(&self) -> Vec<Repository> {
        let mut repositories = self.storage.repositories();
        repositories.retain(|repository| keeps_any(repository).unwrap_or(true));
        repositories
    }

    /// Whether redundancy may have to be put in the place of a job's name; it may be in one of the repositories that are `keeping` some.
    pub(super) fn may_move(&self, job: &Job, keeping: &[Repository]) -> bool {
        let (Some(found), Some(_)) = (&job.found, &job.treatment) else { return false };
        let is_kept = |repository: &Repository| is_kept(repository, found).unwrap_or(true);
        job.claim.entry.origin.is_some() || keeping.iter().any(is_kept)
    }

    fn refuse(&self, job: &Job, why: EncodeError) {
        *job.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(why));
    }

    /// Puts redundancy of a file in the place of its name, if it lies elsewhere, as [`may_move`](Worker::may_move) says. Whether any was moved.
    pub(super) fn move_redundancy(
        &self,
        job: &Job,
        may_move: bool,
        catalogue: Option<&Catalogue>,
        done: &mut Done,
    ) -> bool {
        let (entry, Some(_)) = (&job.claim.entry, &job.treatment) else { return false };
        // Redundancy that belongs to the file and not to its name is where it was.
        if self.storage.keeps_by_identity() {
            done.moved += u64::from(entry.kind == Kind::Move && entry.origin.is_some());
            return false;
        }
        let Some(found) = job.found.as_ref().filter(|_| may_move) else { return false };
        if job.result.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return false;
        }
        let origin = entry.origin.as_ref().filter(|origin| self.is_vacated(origin));
        let mut moved = false;
        for repository in self.storage.repositories() {
            let place = repository.place(&entry.path);
            if let Some(InconclusivePart { path, source }) = place.reason_to_keep(self.coders) {
                self.refuse(job, EncodeError::Redundancy { path, source });
                return moved;
            }
            // A file that was written since it was moved has redundancy of another version, at its old name.
            let step = || match (recall(&place, self.coders, found)?, origin) {
                (false, Some(origin)) => self.rename_written(&repository, origin, &place, found),
                (recalled, _) => Ok(recalled),
            };
            match self.making_way(&entry.path, catalogue, done, step) {
                Ok(renamed) => moved |= renamed,
                // What is in its way may have to stay: a deletion that waits for an approval.
                Err(source) => {
                    self.refuse(job, EncodeError::Write { path: place.tree.shown(&place.path), source });
                    return moved;
                }
            }
        }
        done.moved += u64::from(moved && entry.kind == Kind::Move);
        moved
    }

    /// Moves redundancy of an earlier version of a file to its new name: what did not change in the file is not encoded again.
    fn rename_written(
        &self,
        repository: &Repository,
        origin: &[u8],
        place: &PartPath,
        found: &Found,
    ) -> io::Result<bool> {
        let from = repository.place(origin);
        let fence = Fence::new(&from);
        let is_its = |part: &Part| part.header.generation.inode == found.now.inode;
        if !known(&from, self.coders)?.as_ref().is_some_and(is_its) {
            return Ok(false);
        }
        let renamed = fence.pass(&from, |_| {
            place.tree.make_directories(split(&place.path).0, DIRECTORY_MODE)?;
            absent_is_none(place.tree.rename(&from.path, &place.path))
        });
        match renamed {
            Err(error) if is_superseded(&error) => return Ok(false),
            renamed => {
                if renamed?.is_none() {
                    return Ok(false);
                }
            }
        }
        place.tree.remove_empty(split(&from.path).0, REDUNDANCY)?;
        Ok(true)
    }

    /// Sets redundancy aside that was moved for a claim that is not completed: the file may get a third name before anybody claims it again. Call
    /// it before the claim ends: until then no other worker touches either name.
    pub(super) fn undo_move(&self, claim: &Claim, moved: bool) -> Result<(), WorkError> {
        if !moved {
            return Ok(());
        }
        match self.changelog.renew(&mut claim.clone(), LEASE, self.clock.now()) {
            // Another worker has the claim, and found the redundancy where it is.
            Err(changelog::Error::Refused { why: Refusal::Lost, .. }) => Ok(()),
            Ok(()) | Err(changelog::Error::Refused { why: Refusal::Overtaken, .. }) => {
                self.set_aside_at(&claim.entry.path)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn set_aside_at(&self, path: &[u8]) -> Result<(), WorkError> {
        for repository in self.storage.repositories() {
            set_aside(&repository.place(path), self.coders, |_| true)
                .map_err(|source| self.repository_error(source))?;
        }
        Ok(())
    }

    /// The file was moved on or deleted when its redundancy had just been published under the name that it had. The claim has ended, so what lies there is
    /// set aside only if no other file has taken the name. The catalogue knows the file by its former name again: a scan finds files that
    /// are gone by their entries alone.
    pub(super) fn put_back_overtaken(
        &self,
        Completed { claim, former, .. }: &Completed,
        catalogue: Option<&Catalogue>,
    ) -> Result<(), WorkError> {
        let path = &claim.entry.path;
        if self.storage.keeps_by_identity() || !self.is_vacated(path) {
            return Ok(());
        }
        self.set_aside_at(path)?;
        if let (Some(catalogue), Some(Former { names, entry, problems })) = (catalogue, former)
            && let Some(name) = names.first()
        {
            catalogue.together(|| -> Result<(), CatalogueError> {
                if catalogue.find(name)?.is_none() {
                    catalogue.put(name, entry)?;
                    catalogue.set_problems(name, problems, self.clock.now())?;
                }
                catalogue.forget(path)
            })?;
        }
        Ok(())
    }

    /// Sets redundancy aside of what is gone: a file, or all files of a directory. It may have another name.
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
            let (below, left) = self.remove_vacated(&repository, path, &|_| Ok(true))?;
            removed = removed.max(below);
            if let Some(left) = left {
                done.removed += removed;
                return Err(WorkError::Left(left));
            }
        }
        done.removed += removed;
        Ok(())
    }

    /// Sets redundancy aside at and beneath a path of which the catalogue knows nothing and whose files are gone. What was recorded of the end of a file is
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
        let is_inconclusive =
            |data: &[u8]| catalogue.find(data).map(|known| known.is_none()).map_err(io::Error::other);
        for repository in self.storage.repositories() {
            // What has to stay is of files that nobody recorded: the next gap comes to it again.
            let (removed, _) = self.remove_vacated(&repository, path, &is_inconclusive)?;
            done.removed += removed;
        }
        Ok(())
    }

    /// Sets redundancy aside at and beneath a path if its file is gone and `may_go` says yes to it. Gives the number of files, and one of those that
    /// must stay.
    fn remove_vacated(
        &self,
        repository: &Repository,
        path: &[u8],
        may_go: &dyn Fn(&[u8]) -> io::Result<bool>,
    ) -> Result<(u64, Option<InconclusivePart>), WorkError> {
        let left = RefCell::new(None);
        let is_gone = |found: &[u8]| -> io::Result<bool> {
            let data = found.strip_prefix(&[REDUNDANCY, b"/"].concat()[..]).unwrap_or(found);
            if !self.is_vacated(data) || !may_go(data)? {
                return Ok(false);
            }
            if let Some(unknown) = repository.place(data).reason_to_keep(self.coders) {
                *left.borrow_mut() = Some(unknown);
                return Ok(false);
            }
            Ok(true)
        };
        let removed = || -> io::Result<u64> {
            if path.is_empty() {
                return remove_below(&repository.tree, self.coders, REDUNDANCY, &is_gone);
            }
            let place = join(REDUNDANCY, path);
            let removed = remove_below(&repository.tree, self.coders, &place, &is_gone)?;
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
        for holder in self.storage.redundancy_locations(path).map_err(failed)? {
            if let Some(left) = holder.place.reason_to_keep(self.coders) {
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
}

/// Sets redundancy aside that dead workers had moved to the name of a file, if the file has another name by now.
///
/// # Errors
/// What the operating system or the catalogue says.
pub(crate) fn recover(storage: &dyn Storage, coders: &Coders, catalogue: &Catalogue) -> io::Result<()> {
    let mut dead = BTreeSet::new();
    for (worker, path) in catalogue.moving().map_err(io::Error::other)? {
        if !is_dead(&WorkerId(worker.clone())) {
            continue;
        }
        let now = storage.find(&path)?.map(|stat| stat.inode);
        for repository in storage.repositories() {
            set_aside(&repository.place(&path), coders, |part| now != Some(part.header.generation.inode))?;
        }
        dead.insert(worker);
    }
    dead.iter().try_for_each(|worker| catalogue.forget_moving(worker)).map_err(io::Error::other)
}

/// Sets the redundancy files aside at and below `path` that `is_gone` says yes to, and removes what is of no use, and directories that become empty.
/// Gives the number of files.
fn remove_below(
    tree: &tree::Tree,
    coders: &Coders,
    path: &[u8],
    is_gone: &dyn Fn(&[u8]) -> io::Result<bool>,
) -> io::Result<u64> {
    let Some(stat) = tree.find(path)? else { return Ok(0) };
    if stat.kind != tree::Kind::Directory {
        let place = PartPath { tree: tree.clone(), path: path.to_vec() };
        let fence = Fence::new(&place);
        if !is_gone(path)? {
            return Ok(0);
        }
        match set_aside(&place, coders, |_| true) {
            Ok(true) => return Ok(1),
            // Room is made for others.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(error),
            Ok(false) | Err(_) => {}
        }
        // The file may have come back since, and another worker may have protected it.
        return match fence.pass(&place, |_| tree.remove(path)) {
            Err(error) if is_superseded(&error) => Ok(0),
            removed => removed.map(|()| 1),
        };
    }
    let mut removed = 0;
    for (name, _) in tree.directory(path)?.names()?.iter() {
        removed += remove_below(tree, coders, &join(path, name), is_gone)?;
    }
    if path != REDUNDANCY && path != STAGING {
        tree.remove_empty(path, split(path).0)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::{Coders, remove_below};
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
        let coders = Coders::new().unwrap();
        assert_eq!(remove_below(&tree, &coders, b"redundancy/file", &replaced).unwrap(), 0);
        assert_eq!(std::fs::read(&path).unwrap(), b"of the new file");
        assert_eq!(remove_below(&tree, &coders, b"redundancy/file", &|_| Ok(true)).unwrap(), 1);
        assert!(!path.exists());
    }
}
