//! What a worker must leave alone: what only a scan can tell, and what waits for an approval.

use super::{Completed, Done, MAX_LISTED, RETRY, WorkError, Worker, ignore_refused};
use crate::catalogue::{Catalogue, CatalogueError, Entry};
use crate::changelog::{self, Claim, Sequence, is_within};
use crate::encode::Encoded;
use crate::tree::{self, Stat, join};
use crate::world::Nanos;
use crate::write_once;

/// How often something that is absent is looked for: longer than it takes whoever watches to record what became of it.
const LOOKS: u32 = 8;

/// How long that is.
pub(crate) const WORD_COMES: Nanos = LOOKS as Nanos * RETRY;

/// Most parts of the tree that are remembered as scanned; what was in others is scanned again.
const MAX_PARTS: usize = 1024;

/// Which parts of the tree were scanned, and what had been recorded before: what was recorded later may have happened behind the scan's back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scanned {
    /// At and beneath these paths, the oldest first; the empty one is everything.
    parts: Vec<(Sequence, Vec<u8>)>,
}

impl Scanned {
    /// Everything was scanned, after what had been recorded up to then.
    pub fn whole(upto: Sequence) -> Scanned {
        Scanned { parts: vec![(upto, Vec::new())] }
    }

    /// Parts were scanned as well.
    pub(crate) fn note(&mut self, upto: Sequence, within: Vec<Vec<u8>>) {
        self.parts.retain(|(_, known)| !within.iter().any(|top| is_within(known, top)));
        self.parts.extend(within.into_iter().map(|top| (upto, top)));
        let excess = self.parts.len().saturating_sub(MAX_PARTS);
        self.parts.drain(..excess);
    }

    /// Whether scans have seen all that an entry asks to be scanned for.
    pub fn covers(&self, entry: &changelog::Entry) -> bool {
        let seen = |path: &Vec<u8>| {
            self.parts.iter().any(|(upto, top)| entry.sequence <= *upto && is_within(path, top))
        };
        seen(&entry.path) && entry.origin.iter().all(seen)
    }
}

impl Worker<'_> {
    /// Whether a claim is about a known file that changed or vanished, or about some that did. Such redundancy is also
    /// not moved elsewhere: then the origin is taken out of the claim.
    pub(super) fn waits_for_approval(
        &self,
        claim: &mut Claim,
        stat: Option<&Stat>,
        catalogue: &Catalogue,
    ) -> Result<bool, CatalogueError> {
        let path = &claim.entry.path;
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
    /// Whether a claim is about a write-once file that changed. Such a file keeps its redundancy and is recorded as damaged: events must not
    /// make a new version of what a scan reports.
    pub(super) fn is_write_once_changed(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        catalogue: Option<&Catalogue>,
        known: Option<&Entry>,
        done: &mut Done,
    ) -> Result<bool, WorkError> {
        let (Some(stat), Some(catalogue), Some(known)) = (stat, catalogue, known) else { return Ok(false) };
        let path = &claim.entry.path;
        if !write_once::is_violated(catalogue, self.policy, path, known, stat, self.clock.now())? {
            return Ok(false);
        }
        // What a person accepted was another version.
        catalogue.forget_accepted(path)?;
        write_once::note(catalogue, std::slice::from_ref(path))?;
        ignore_refused(self.changelog.complete(claim).map(|_| ()))?;
        if done.write_once.len() < MAX_LISTED {
            done.write_once.push(path.clone());
        }
        Ok(true)
    }

    /// Whether something that is absent, and that nobody said was deleted, may have got another name a moment ago, which is not recorded yet. Then its
    /// redundancy has to stay, which may be all that is left of a column: what becomes of it is ignore_refused of, or found by the next scan.
    pub(super) fn may_be_elsewhere(
        &self,
        claim: &Claim,
        catalogue: Option<&Catalogue>,
    ) -> Result<bool, CatalogueError> {
        let entry = &claim.entry;
        let Some(catalogue) = catalogue.filter(|_| self.links && entry.kind != changelog::Kind::Delete)
        else {
            return Ok(false);
        };
        for path in entry.origin.iter().chain([&entry.path]) {
            if catalogue.find(path)?.is_some() || catalogue.count_beneath(path)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the file that has a name now is known by another one. Then it is no copy of the file that had the name before.
    pub(super) fn is_known_elsewhere(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        catalogue: Option<&Catalogue>,
        known: Option<&Entry>,
    ) -> Result<bool, CatalogueError> {
        let (Some(stat), Some(catalogue)) = (stat, catalogue) else {
            return Ok(claim.entry.origin.is_some());
        };
        let path = &claim.entry.path;
        if known.is_none_or(|known| known.generation.inode == stat.inode) {
            return Ok(false);
        }
        let known = self.known_by_inode(stat, catalogue)?;
        Ok(self.approved || claim.entry.origin.is_some() || known.iter().any(|known| known != path))
    }

    /// Names by which the catalogue knows the inode, size and time of a file. A file that was made after what is known was protected is another one: it has the inode of a
    /// deleted file, or lies on another file system, where a backup was restored.
    pub(super) fn known_by_inode(
        &self,
        stat: &Stat,
        catalogue: &Catalogue,
    ) -> Result<Vec<Vec<u8>>, CatalogueError> {
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

    /// Other names by which a file is protected that is not known by the name of a claim. Where redundancy belongs to the file, names do not matter.
    pub(super) fn known_names(
        &self,
        claim: &Claim,
        stat: Option<&Stat>,
        catalogue: Option<&Catalogue>,
        known: Option<&Entry>,
    ) -> Result<Vec<Vec<u8>>, CatalogueError> {
        let (Some(stat), Some(catalogue)) = (stat.filter(|stat| stat.links > 1), catalogue) else {
            return Ok(Vec::new());
        };
        let path = &claim.entry.path;
        if self.storage.keeps_by_identity() || self.approved || known.is_some() {
            return Ok(Vec::new());
        }
        let mut known = self.known_by_inode(stat, catalogue)?;
        let has_it = |name: &Vec<u8>| {
            let found = self.storage.find(name).ok().flatten();
            name != path && found.is_some_and(|found| found.inode == stat.inode)
        };
        known.retain(has_it);
        Ok(known)
    }

    /// Waits for word of something that is absent, and has it scanned for when there is none.
    pub(super) fn look_again(&self, claim: &Claim, done: &mut Done) -> Result<(), WorkError> {
        let (now, entry) = (self.clock.now(), &claim.entry);
        if entry.attempts < LOOKS {
            return Ok(ignore_refused(self.changelog.release(claim, now.saturating_add(RETRY), now))?);
        }
        done.for_scan.extend(entry.origin.iter().chain([&entry.path]).cloned());
        Ok(ignore_refused(self.changelog.complete(claim).map(|_| ()))?)
    }

    /// Where redundancy of something that is gone may lie: at its name, and at the one that it had before. A directory that got another name and
    /// is gone now may have lost files to other places before: those are waited for.
    pub(super) fn left_behind<'a>(
        &self,
        claim: &'a Claim,
        catalogue: Option<&Catalogue>,
    ) -> Result<impl Iterator<Item = &'a [u8]> + use<'a>, CatalogueError> {
        let origin = claim.entry.origin.as_ref().filter(|origin| self.is_vacated(origin));
        let is_directory = match (origin, catalogue.filter(|_| self.links)) {
            (Some(origin), Some(catalogue)) => catalogue.count_beneath(origin)? > 0,
            _ => false,
        };
        Ok([&claim.entry.path].into_iter().chain(origin.filter(|_| !is_directory)).map(Vec::as_slice))
    }

    /// Whether nothing that is to be protected has a name.
    pub(super) fn is_vacated(&self, path: &[u8]) -> bool {
        matches!(self.storage.find(path), Ok(None)) || self.is_left_out(path)
    }

    fn is_left_out(&self, path: &[u8]) -> bool {
        let stat = self.storage.find(path).ok().flatten();
        stat.is_some_and(|stat| {
            stat.kind != tree::Kind::File
                || self.policy.decide(path, &stat, self.clock.now()).treatment.is_none()
        })
    }

    /// Where a directory was there is a file now, or was one that moved on: that took the place of what was said of the directory's
    /// end, so those who were in it have to be looked for.
    pub(super) fn note_former_directories(
        &self,
        claim: &Claim,
        catalogue: &Catalogue,
        done: &mut Done,
    ) -> Result<(), CatalogueError> {
        let entry = &claim.entry;
        if entry.kind == changelog::Kind::Delete {
            return self.note_vanished(claim, catalogue, done);
        }
        for path in entry.origin.iter().chain([&entry.path]) {
            let is_directory = |stat: Stat| stat.kind == tree::Kind::Directory;
            // Where nobody can say, nobody vanished.
            let is_there = || self.storage.find(path).map_or(true, |found| found.is_some_and(is_directory));
            if catalogue.count_beneath(path)? > 0 && !is_there() {
                done.for_scan.push(path.clone());
            }
        }
        Ok(())
    }

    /// Those who were in a directory that got another name and is gone now may have left it before.
    fn note_vanished(
        &self,
        claim: &Claim,
        catalogue: &Catalogue,
        done: &mut Done,
    ) -> Result<(), CatalogueError> {
        let Some(origin) = &claim.entry.origin else { return Ok(()) };
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

    /// What happened to one name of an inode, other names of it are not told of: such inodes are listed.
    pub(super) fn note_links(
        &self,
        completed: &[Completed],
        catalogue: &Catalogue,
        done: &mut Done,
    ) -> Result<(), CatalogueError> {
        for Completed { claim, encoded, .. } in completed.iter().filter(|_| self.links) {
            let now = encoded.as_ref().map(|encoded| encoded.stat);
            done.inodes.extend(now.filter(|stat| stat.links > 1).map(|stat| stat.inode));
            // The one that had this name before has lost it.
            let before = catalogue.find(&claim.entry.path)?.map(|known| known.generation.inode);
            done.inodes.extend(before.filter(|&inode| now.is_none_or(|stat| stat.inode != inode)));
            // With a directory all names in it are gone, whatever was recorded of each.
            if now.is_none() {
                for path in self.left_behind(claim, Some(catalogue))? {
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

/// Whether another file with other content took the place of one, although size and time are the same.
pub(super) fn is_replaced(known: &Entry, encoded: &Encoded) -> bool {
    let differs = encoded.encoded > 0 && known.code == encoded.code;
    differs && known.generation.inode != encoded.stat.inode
}

/// When all of a file was verified last that has been worked on since. An update that kept stripes, or that found the redundancy in place, proves
/// nothing of those stripes: a file that is updated again and again would never be due for a scrub. All stripes of a file that was never scrubbed
/// were read when it was protected first.
pub(super) fn scrubbed_before(known: &Entry, encoded: &Encoded) -> Option<Nanos> {
    let first = (encoded.kept > 0).then_some(known.protected_at);
    known.scrubbed_at.or(first).filter(|_| known.id == encoded.id && (encoded.adopted || encoded.kept > 0))
}
