//! Claims that a worker must not carry out: those that need a scan, and those that wait for an approval.

use super::{Completed, Done, MAX_LISTED, RETRY, WorkError, WorkedVault, Worker, ignore_refused};
use crate::catalogue::{CatalogueError, Entry};
use crate::changelog::{self, Claim, Sequence, is_within};
use crate::encode::Encoded;
use crate::tree::{self, Stat, join};
use crate::world::Timestamp;
use crate::write_once;
use std::time::Duration;

/// Attempts for an entry whose path is missing. Together they take longer than a running watch needs to record a
/// rename.
const MISSING_RETRIES: u32 = 8;

/// Time that these attempts take.
pub(crate) const MISSING_RETRY_TIME: Duration = RETRY.saturating_mul(MISSING_RETRIES);

/// Maximum number of scanned paths that are remembered. Older ones are scanned again.
const MAX_PARTS: usize = 1024;

/// Paths that were scanned, each with the changelog's sequence number before the scan. Entries that were recorded later
/// may not have been seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Scanned paths, oldest first; the empty path is the whole tree.
    parts: Vec<(Sequence, Vec<u8>)>,
}

impl Scanned {
    /// A scan of the whole tree that began at sequence number `upto`.
    pub fn whole(upto: Sequence) -> Scanned {
        Scanned { parts: vec![(upto, Vec::new())] }
    }

    /// Adds scans of parts of the tree.
    pub(crate) fn note(&mut self, upto: Sequence, within: Vec<Vec<u8>>) {
        self.parts.retain(|(_, known)| !within.iter().any(|top| is_within(known, top)));
        self.parts.extend(within.into_iter().map(|top| (upto, top)));
        let excess = self.parts.len().saturating_sub(MAX_PARTS);
        self.parts.drain(..excess);
    }

    /// True if scans cover all that an entry asks to be scanned for.
    pub fn covers(&self, entry: &changelog::Entry) -> bool {
        let seen = |path: &Vec<u8>| {
            self.parts.iter().any(|(upto, top)| entry.sequence <= *upto && is_within(path, top))
        };
        seen(&entry.path) && entry.origin.iter().all(seen)
    }
}

impl Worker<'_> {
    /// True if the claim is about known files that changed or were deleted. Redundancy of such files is not moved
    /// either: for a new file with such an origin, the origin is removed from the claim.
    pub(super) fn waits_for_approval(
        &self,
        claim: &mut Claim,
        stat: Option<&Stat>,
    ) -> Result<bool, CatalogueError> {
        let path = &claim.entry.path;
        let catalogue = self.vault.catalogue;
        let other = |known: &Entry, stat: &Stat| {
            known.is_another_version(stat) || known.generation.inode != stat.inode
        };
        let differs = |known: &Entry| stat.is_none_or(|stat| other(known, stat));
        if catalogue.find(path)?.as_ref().is_some_and(differs) {
            return Ok(true);
        }
        if stat.is_none() && catalogue.count_beneath(path)? > 0 {
            return Ok(true);
        }
        let origin = claim.entry.origin.as_ref();
        if stat.is_none() && origin.is_some_and(|origin| self.is_vacated(origin)) {
            let beneath = origin.map(|origin| catalogue.count_beneath(origin)).transpose()?;
            if beneath.is_some_and(|files| files > 0) {
                return Ok(true);
            }
        }
        let known = origin.map(|origin| catalogue.find(origin)).transpose()?.flatten();
        if known.as_ref().is_some_and(differs) {
            if stat.is_none() {
                return Ok(true);
            }
            claim.entry.origin = None;
        }
        Ok(false)
    }
}

impl Worker<'_> {
    /// True if the claim is about a changed write-once file. The file keeps its redundancy and is recorded as damaged:
    /// an event must not replace the version that a scan would report.
    pub(super) fn is_write_once_changed(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        known: Option<&Entry>,
        done: &mut Done,
    ) -> Result<bool, WorkError> {
        let (Some(stat), Some(known)) = (stat, known) else { return Ok(false) };
        let WorkedVault { policy, changelog, catalogue, .. } = self.vault;
        let path = &claim.entry.path;
        if !write_once::is_violated(catalogue, policy, path, known, stat, self.vault.clock.now())? {
            return Ok(false);
        }
        // The approval was for another version.
        catalogue.forget_accepted(path)?;
        write_once::note(catalogue, std::slice::from_ref(path))?;
        ignore_refused(changelog.complete(claim).map(|_| ()))?;
        if done.write_once.len() < MAX_LISTED {
            done.write_once.push(path.clone());
        }
        Ok(true)
    }

    /// True if the path is missing, no deletion was recorded, and files are known there: they may have been renamed a
    /// moment ago, which is not recorded yet. Their redundancy has to stay, since it may be all that is left of a
    /// column; an event that follows, or the next scan, decides about it.
    pub(super) fn may_have_moved(&self, claim: &Claim) -> Result<bool, CatalogueError> {
        let entry = &claim.entry;
        if !self.options.live_events || entry.kind == changelog::Kind::Delete {
            return Ok(false);
        }
        let catalogue = self.vault.catalogue;
        for path in entry.origin.iter().chain([&entry.path]) {
            if catalogue.find(path)?.is_some() || catalogue.count_beneath(path)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if the file under this name is known by another name. It is then no copy of the file that had this name
    /// before.
    pub(super) fn is_known_by_another_name(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        known: Option<&Entry>,
    ) -> Result<bool, CatalogueError> {
        let Some(stat) = stat else { return Ok(claim.entry.origin.is_some()) };
        let path = &claim.entry.path;
        if known.is_none_or(|known| known.generation.inode == stat.inode) {
            return Ok(false);
        }
        let known = self.known_by_inode(stat)?;
        Ok(self.options.approved || claim.entry.origin.is_some() || known.iter().any(|known| known != path))
    }

    /// Names under which the catalogue knows the file's inode, size and mtime. A file that was created after that
    /// version was protected is a different one: it reuses the inode, or lies on another file system where a backup was
    /// restored.
    pub(super) fn known_by_inode(&self, stat: &Stat) -> Result<Vec<Vec<u8>>, CatalogueError> {
        let catalogue = self.vault.catalogue;
        let mut names = catalogue.by_inode(&stat.generation())?;
        if let Some(birth) = stat.birth.filter(|_| !names.is_empty()) {
            let mut older = Vec::new();
            for name in names {
                let known = catalogue.find(&name)?;
                older.extend(known.is_some_and(|known| known.protected_at >= birth).then_some(name));
            }
            names = older;
        }
        Ok(names)
    }

    /// Other names under which the file is protected, if it has no entry under the claim's name. Irrelevant for storage
    /// that keeps redundancy by inode.
    pub(super) fn known_names(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        known: Option<&Entry>,
    ) -> Result<Vec<Vec<u8>>, CatalogueError> {
        let Some(stat) = stat.filter(|stat| stat.links > 1) else { return Ok(Vec::new()) };
        let path = &claim.entry.path;
        if self.vault.storage.keeps_by_identity() || self.options.approved || known.is_some() {
            return Ok(Vec::new());
        }
        let mut known = self.known_by_inode(stat)?;
        let has_it = |name: &Vec<u8>| {
            let found = self.vault.storage.find(name).ok().flatten();
            name != path && found.is_some_and(|found| found.inode == stat.inode)
        };
        known.retain(has_it);
        Ok(known)
    }

    /// Releases a claim whose path is missing, for a later attempt. After [`MISSING_RETRIES`] attempts the path is
    /// scanned.
    pub(super) fn retry_missing(&self, claim: &Claim, done: &mut Done) -> Result<(), WorkError> {
        let (now, entry) = (self.vault.clock.now(), &claim.entry);
        if entry.attempts < MISSING_RETRIES {
            return Ok(ignore_refused(self.vault.changelog.release(claim, now + RETRY, now))?);
        }
        done.for_scan.extend(entry.origin.iter().chain([&entry.path]).cloned());
        Ok(ignore_refused(self.vault.changelog.complete(claim).map(|_| ()))?)
    }

    /// Paths where redundancy of a deleted file may lie: its name and its former name. Files of a directory that was
    /// renamed and then deleted may have been moved out before; their redundancy is not removed here.
    pub(super) fn former_paths<'a>(
        &self,
        claim: &'a Claim,
    ) -> Result<impl Iterator<Item = &'a [u8]> + use<'a>, CatalogueError> {
        let origin = claim.entry.origin.as_ref().filter(|origin| self.is_vacated(origin));
        let is_directory = match origin.filter(|_| self.options.live_events) {
            Some(origin) => self.vault.catalogue.count_beneath(origin)? > 0,
            None => false,
        };
        Ok([&claim.entry.path].into_iter().chain(origin.filter(|_| !is_directory)).map(Vec::as_slice))
    }

    /// True if no protected file has this name.
    pub(super) fn is_vacated(&self, path: &[u8]) -> bool {
        matches!(self.vault.storage.find(path), Ok(None)) || self.is_left_out(path)
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        let stat = self.vault.storage.find(path).ok().flatten();
        stat.is_some_and(|stat| {
            stat.kind != tree::Kind::File
                || self.vault.policy.decide(path, &stat, self.vault.clock.now()).treatment.is_none()
        })
    }

    /// If a path that was a directory is now a file, or was one that was renamed again, its entry has replaced that of
    /// the directory's deletion. The files that were in the directory then need a scan.
    pub(super) fn record_former_directories(
        &self,
        claim: &Claim,
        done: &mut Done,
    ) -> Result<(), CatalogueError> {
        let entry = &claim.entry;
        if entry.kind == changelog::Kind::Delete {
            return self.record_vanished(claim, done);
        }
        for path in entry.origin.iter().chain([&entry.path]) {
            let is_directory = |stat: Stat| stat.kind == tree::Kind::Directory;
            // If the lookup fails, the directory counts as present.
            let is_there =
                || self.vault.storage.find(path).map_or(true, |found| found.is_some_and(is_directory));
            if self.vault.catalogue.count_beneath(path)? > 0 && !is_there() {
                done.for_scan.push(path.clone());
            }
        }
        Ok(())
    }

    /// Lists the files of a directory that was renamed and then deleted, since they may have been moved out before.
    fn record_vanished(&self, claim: &Claim, done: &mut Done) -> Result<(), CatalogueError> {
        let Some(origin) = &claim.entry.origin else { return Ok(()) };
        let catalogue = self.vault.catalogue;
        for (number, directory) in catalogue.directories(origin)? {
            catalogue.each(number, |name, _| -> Result<(), CatalogueError> {
                let file = join(&directory, name);
                if self.is_vacated(&file) {
                    done.vanished.push(file);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Lists inodes whose other hard links may be affected: events name only one link.
    pub(super) fn record_other_links(
        &self,
        completed: &[Completed],
        done: &mut Done,
    ) -> Result<(), CatalogueError> {
        let catalogue = self.vault.catalogue;
        for Completed { claim, encoded, .. } in completed.iter().filter(|_| self.options.live_events) {
            let now = encoded.as_ref().map(|encoded| encoded.stat);
            done.inodes.extend(now.filter(|stat| stat.links > 1).map(|stat| stat.inode));
            // The inode that had this name before has lost a link.
            let before = catalogue.find(&claim.entry.path)?.map(|known| known.generation.inode);
            done.inodes.extend(before.filter(|&inode| now.is_none_or(|stat| stat.inode != inode)));
            // A deleted directory takes all its links with it.
            if now.is_none() {
                for path in self.former_paths(claim)? {
                    for (number, _) in catalogue.directories(path)? {
                        catalogue.each(number, |_, known| -> Result<(), CatalogueError> {
                            done.inodes.push(known.generation.inode);
                            Ok(())
                        })?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// True if another file with other content took this name, with the same size and mtime.
pub(super) fn is_replaced(known: &Entry, encoded: &Encoded) -> bool {
    let differs = encoded.encoded > 0 && known.code == encoded.code;
    differs && known.generation.inode != encoded.stat.inode
}

/// Time at which all stripes of the file were last verified. An update that keeps stripes, or adopts redundancy,
/// verifies nothing; otherwise a file that is updated often would never be due for a scrub. A file that was never
/// scrubbed was read in full when it was first protected.
pub(super) fn scrubbed_before(known: &Entry, encoded: &Encoded) -> Option<Timestamp> {
    let first = (encoded.kept > 0).then_some(known.protected_at);
    known.scrubbed_at.or(first).filter(|_| known.id == encoded.id && (encoded.adopted || encoded.kept > 0))
}
