//! Redundancy of files that were renamed (moved to the new name) or deleted (set aside).

use super::{Completed, Done, Job, LEASE, WorkError, Worker, is_dead};
use crate::catalogue::{Catalogue, CatalogueError, Entry, Problem};
use crate::changelog::{self, Claim, Kind, Refusal, WorkerId};
use crate::coder::Coders;
use crate::displaced::{PresentFile, is_kept, keeps_any, known, recall, set_aside};
use crate::encode::EncodeError;
use crate::redundancy::draft::DIRECTORY_MODE;
use crate::redundancy::fence::{Fence, is_superseded};
use crate::redundancy::{InconclusivePart, Part, PartPath, REDUNDANCY, STAGING};
use crate::repair_mark::forget_deleted;
use crate::storage::{Repository, Storage};
use crate::tree::{self, Stat, absent_is_none, join, split};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;

/// Catalogue entry of a file under names that it no longer has.
#[derive(Debug, Clone)]
pub(super) struct Former {
    /// The former names; the entry is that of the first. After a crash there may be several.
    pub(super) names: Vec<Vec<u8>>,
    pub(super) entry: Entry,
    pub(super) problems: Vec<Problem>,
}

impl Worker<'_> {
    /// Entry of the claim's file under a former name: the claim's origin, or a name by which the catalogue knows the
    /// inode.
    pub(super) fn former(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        known: Option<&Entry>,
    ) -> Result<Option<Former>, CatalogueError> {
        let Some(stat) = stat else { return Ok(None) };
        let catalogue = self.vault.catalogue;
        let (path, origin) = (&claim.entry.path, claim.entry.origin.as_ref());
        let mut names: Vec<Vec<u8>> = Vec::new();
        if let Some(origin) = origin
            && let Some(entry) = catalogue.find(origin)?
            && (entry.generation.inode == stat.inode || self.is_vacated(origin))
        {
            names.push(origin.clone());
        }
        let is_same = |known: &Entry| known.generation.inode == stat.inode;
        if !self.vault.storage.keeps_by_identity() && !known.is_some_and(is_same) {
            let has_left = |name: &Vec<u8>| {
                let found = self.vault.storage.find(name);
                name != path && found.is_ok_and(|found| found.is_none_or(|it| it.inode != stat.inode))
            };
            let known = self.known_by_inode(stat)?.into_iter();
            names.extend(known.filter(|name| Some(name) != origin && has_left(name)));
        }
        let Some(first) = names.first() else { return Ok(None) };
        let problems = catalogue.problems(first)?;
        Ok(catalogue.find(first)?.map(|entry| Former { names, entry, problems }))
    }

    /// Moves redundancy of renamed files to their new names. Returns true if the catalogue notes such moves, until they
    /// are concluded.
    pub(super) fn move_all(&self, jobs: &mut [&mut Job], done: &mut Done) -> Result<bool, CatalogueError> {
        // Moves come before encoding, because moved redundancy may occupy the place of new redundancy. Names may have
        // been exchanged in a cycle, so all redundancy is set aside before any is moved to its new name.
        jobs.iter().for_each(|job| self.set_aside_at_other_names(job));
        let keeping = self.keeping();
        let may_move: Vec<bool> = jobs.iter().map(|job| self.may_move(job, &keeping)).collect();
        let moving = jobs.iter().zip(&may_move).filter(|(_, may_move)| **may_move);
        self.vault.catalogue.note_moving(&self.name.0, moving.map(|(job, _)| job.path()))?;
        for (job, may_move) in jobs.iter_mut().zip(&may_move) {
            job.moved = self.move_redundancy(job, *may_move, done);
        }
        Ok(may_move.contains(&true))
    }

    /// Sets redundancy aside that the job needs under another name, and redundancy that the job would overwrite
    /// although its file may exist elsewhere.
    fn set_aside_at_other_names(&self, job: &Job) {
        let (Some(found), Some(_)) = (&job.found, &job.treatment) else { return };
        let path = &job.claim.entry.path;
        let set_aside_at_other_names = || -> io::Result<()> {
            for repository in self.vault.storage.repositories() {
                let former = job.former.iter().flat_map(|former| &former.names);
                for name in former.chain(&job.claim.entry.origin).filter(|name| *name != path) {
                    let has_left =
                        self.vault.storage.find(name)?.is_none_or(|it| it.inode != found.now.inode);
                    set_aside(&repository.place(name), self.vault.coders, |part| {
                        has_left && found.is_of(part)
                    })?;
                }
                // A copy with the size and mtime of the protected version is compared with its redundancy, unless it is
                // known to be another file.
                set_aside(&repository.place(path), self.vault.coders, |Part { header, .. }| {
                    let version = &header.generation;
                    version.inode != found.now.inode
                        && (job.known_elsewhere || !found.now.is_same_content(version))
                })?;
            }
            Ok(())
        };
        if let Err(source) = set_aside_at_other_names() {
            *job.result() = Some(Err(EncodeError::Write { path: self.vault.storage.shown(path), source }));
        }
    }

    /// Repositories in which redundancy is kept for files whose name is not known.
    fn keeping(&self) -> Vec<Repository> {
        let mut repositories = self.vault.storage.repositories();
        repositories.retain(|repository| keeps_any(repository).unwrap_or(true));
        repositories
    }

    /// True if redundancy may have to be moved to the job's name, for example from one of the repositories that are
    /// `keeping` some.
    fn may_move(&self, job: &Job, keeping: &[Repository]) -> bool {
        let (Some(found), Some(_)) = (&job.found, &job.treatment) else { return false };
        let is_kept = |repository: &Repository| is_kept(repository, found).unwrap_or(true);
        job.claim.entry.origin.is_some() || keeping.iter().any(is_kept)
    }

    /// Moves a file's redundancy to its current name if [`may_move`](Worker::may_move) allows it. Returns true if any
    /// was moved.
    fn move_redundancy(&self, job: &Job, may_move: bool, done: &mut Done) -> bool {
        let (entry, Some(_)) = (&job.claim.entry, &job.treatment) else { return false };
        // Redundancy that belongs to the inode needs no move.
        if self.vault.storage.keeps_by_identity() {
            done.moved += u64::from(entry.kind == Kind::Move && entry.origin.is_some());
            return false;
        }
        let Some(found) = job.found.as_ref().filter(|_| may_move) else { return false };
        if job.result().is_some() {
            return false;
        }
        let origin = entry.origin.as_ref().filter(|origin| self.is_vacated(origin));
        let mut moved = false;
        for repository in self.vault.storage.repositories() {
            let place = repository.place(&entry.path);
            if let Some(InconclusivePart { path, source }) = place.reason_to_keep(self.vault.coders) {
                *job.result() = Some(Err(EncodeError::Redundancy { path, source }));
                return moved;
            }
            // A file that was written after the move has redundancy of an older version under its old name.
            let step = || match (recall(&place, self.vault.coders, found)?, origin) {
                (false, Some(origin)) => self.rename_written(&repository, origin, &place, found),
                (recalled, _) => Ok(recalled),
            };
            match self.clearing_obstacles(&entry.path, done, step) {
                Ok(renamed) => moved |= renamed,
                // The obstacle may be redundancy of a deletion that waits for an approval.
                Err(source) => {
                    let path = place.tree.shown(&place.path);
                    *job.result() = Some(Err(EncodeError::Write { path, source }));
                    return moved;
                }
            }
        }
        done.moved += u64::from(moved && entry.kind == Kind::Move);
        moved
    }

    /// Moves redundancy of an older version to the file's new name, so that unchanged stripes are not encoded again.
    fn rename_written(
        &self,
        repository: &Repository,
        origin: &[u8],
        place: &PartPath,
        found: &PresentFile,
    ) -> io::Result<bool> {
        let from = repository.place(origin);
        let fence = Fence::new(&from);
        let is_its = |part: &Part| part.header.generation.inode == found.now.inode;
        if !known(&from, self.vault.coders)?.as_ref().is_some_and(is_its) {
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

    /// Sets moved redundancy aside when its claim is not completed, since the file may be renamed again before the next
    /// claim. Must run before the claim is released: until then no other worker touches either name.
    pub(super) fn undo_move(&self, claim: &Claim, moved: bool) -> Result<(), WorkError> {
        if !moved {
            return Ok(());
        }
        match self.vault.changelog.renew(&mut claim.clone(), LEASE, self.vault.clock.now()) {
            // Another worker has the claim and finds the redundancy in its place.
            Err(changelog::Error::Refused { why: Refusal::Lost, .. }) => Ok(()),
            Ok(()) | Err(changelog::Error::Refused { why: Refusal::Overtaken, .. }) => {
                self.set_aside_at(&claim.entry.path)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn set_aside_at(&self, path: &[u8]) -> Result<(), WorkError> {
        for repository in self.vault.storage.repositories() {
            set_aside(&repository.place(path), self.vault.coders, |_| true)
                .map_err(|source| self.repository_error(source))?;
        }
        Ok(())
    }

    /// Reverts a publication that was overtaken: the file was renamed or deleted just after its redundancy was
    /// published under the old name. The claim has ended, so the redundancy is set aside only if no other file has
    /// taken the name. The catalogue entry returns to the former name, because a scan finds deleted files by their
    /// entries.
    pub(super) fn put_back_overtaken(
        &self,
        Completed { claim, former, .. }: &Completed,
    ) -> Result<(), WorkError> {
        let path = &claim.entry.path;
        if self.vault.storage.keeps_by_identity() || !self.is_vacated(path) {
            return Ok(());
        }
        self.set_aside_at(path)?;
        if let Some(Former { names, entry, problems }) = former
            && let Some(name) = names.first()
        {
            let catalogue = self.vault.catalogue;
            catalogue.together(|| -> Result<(), CatalogueError> {
                if catalogue.find(name)?.is_none() {
                    catalogue.put(name, entry)?;
                    catalogue.set_problems(name, problems, self.vault.clock.now())?;
                }
                catalogue.forget(path)
            })?;
        }
        Ok(())
    }

    /// Sets the redundancy of a deleted file or directory aside. The file may still exist under another name.
    pub(super) fn remove_redundancy(&self, path: &[u8], done: &mut Done) -> Result<(), WorkError> {
        let mut removed = 0;
        forget_deleted(self.vault.storage, path).map_err(|source| self.repository_error(source))?;
        if self.vault.storage.keeps_by_identity() {
            return self.remove_owned(path, done);
        }
        for repository in self.vault.storage.repositories() {
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

    /// Sets redundancy aside at and below a path if its files are deleted and not in the catalogue. A gap replaces
    /// recorded deletions, and a scan compares only the catalogue with the tree; neither covers redundancy that was
    /// being published at that time.
    pub(super) fn remove_strays(&self, path: &[u8], done: &mut Done) -> Result<(), WorkError> {
        if self.vault.storage.keeps_by_identity() {
            return Ok(());
        }
        let catalogue = self.vault.catalogue;
        let is_inconclusive =
            |data: &[u8]| catalogue.find(data).map(|known| known.is_none()).map_err(io::Error::other);
        for repository in self.vault.storage.repositories() {
            // What has to stay is of files that nobody recorded: the next gap comes to it again.
            let (removed, _) = self.remove_vacated(&repository, path, &is_inconclusive)?;
            done.removed += removed;
        }
        Ok(())
    }

    /// Sets redundancy aside at and below a path if its file is deleted and `may_go` returns true. Returns the number
    /// of files, and one that must stay if there is any.
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
            if let Some(unknown) = repository.place(data).reason_to_keep(self.vault.coders) {
                *left.borrow_mut() = Some(unknown);
                return Ok(false);
            }
            Ok(true)
        };
        let removed = || -> io::Result<u64> {
            if path.is_empty() {
                return remove_below(&repository.tree, self.vault.coders, REDUNDANCY, &is_gone);
            }
            let place = join(REDUNDANCY, path);
            let removed = remove_below(&repository.tree, self.vault.coders, &place, &is_gone)?;
            repository.tree.remove_empty(split(&place).0, REDUNDANCY)?;
            Ok(removed)
        };
        let removed = removed().map_err(|source| self.repository_error(source))?;
        Ok((removed, left.take()))
    }

    /// As [`remove_redundancy`](Worker::remove_redundancy), for storage that keeps redundancy by inode. There the
    /// redundancy of a deleted file was removed with its last name. A file that the policy excludes loses its
    /// redundancy, unless another of its names is protected.
    fn remove_owned(&self, path: &[u8], done: &mut Done) -> Result<(), WorkError> {
        done.removed += u64::from(self.vault.catalogue.find(path)?.is_some());
        let failed = |source| self.repository_error(source);
        let Some(stat) =
            self.vault.storage.find(path).map_err(failed)?.filter(|it| it.kind == tree::Kind::File)
        else {
            return Ok(());
        };
        let names = self.vault.catalogue.by_inode(&stat.generation())?;
        let is_wanted = |name: &Vec<u8>| {
            let there = self.vault.storage.find(name).ok().flatten();
            name != path && there.is_some_and(|it| it.inode == stat.inode) && !self.is_vacated(name)
        };
        if !self.is_vacated(path) || names.iter().any(is_wanted) {
            return Ok(());
        }
        for holder in self.vault.storage.redundancy_locations(path).map_err(failed)? {
            if let Some(left) = holder.place.reason_to_keep(self.vault.coders) {
                return Err(WorkError::Left(left));
            }
            if let Ok(Some(part)) = holder.place.open(self.vault.coders)
                && holder.owns(&part.header)
            {
                holder.place.tree.remove_if_writable(&holder.place.path).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Sets redundancy aside that dead workers had moved to a name that the file no longer has.
///
/// # Errors
/// The operating system or the catalogue fails.
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

/// Sets the redundancy files at and below `path` aside for which `is_gone` returns true. Removes unusable files and
/// directories that become empty. Returns the number of files.
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
            // A full disk: remove the file, which also frees space.
            Err(error) if error.kind() != io::ErrorKind::StorageFull => return Err(error),
            Ok(false) | Err(_) => {}
        }
        // The file may exist again, and another worker may have protected it.
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

    /// Race: the file was recreated and protected by another worker after the check that found it deleted.
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
