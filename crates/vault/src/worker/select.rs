//! Selection of the claims of a batch that need encoding, with all that is known of their files.

use super::{Done, Job, RETRY, UNFINISHED, WorkError, Worker, ignore_refused};
use crate::catalogue::{Catalogue, CatalogueError, Entry};
use crate::changelog::{Claim, Kind};
use crate::displaced::Found;
use crate::policy::Treatment;
use crate::repair_mark::Interrupted;
use crate::tree::{self, Stat};
use std::collections::HashSet;
use std::sync::Mutex;

/// A claim that needs encoding or removal of redundancy.
pub(super) struct Selected {
    claim: Claim,
    /// The file; nothing if it is gone.
    stat: Option<Stat>,
    /// Its entry of the catalogue.
    known: Option<Entry>,
    /// What the policy gives it.
    wanted: Option<(Stat, Treatment)>,
}

impl Selected {
    /// Bytes that have to be read.
    pub(super) fn size(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |(stat, _)| stat.size)
    }
}

impl Worker<'_> {
    /// Sorts out claims that need no encoding: those for a scan, held back, refused, or already in this batch.
    pub(super) fn select(
        &self,
        claims: Vec<Claim>,
        catalogue: Option<&Catalogue>,
        done: &mut Done,
    ) -> Result<Vec<Selected>, WorkError> {
        let mut selected = Vec::new();
        let mut several = HashSet::new();
        let interrupted = Interrupted::of(self.storage).map_err(|source| self.repository_error(source))?;
        // In one transaction: to begin one costs as much as to find an entry.
        let find = |catalogue: &Catalogue| {
            let find = |claim: &Claim| catalogue.find(&claim.entry.path);
            catalogue.as_of_now(|| claims.iter().map(find).collect::<Result<Vec<_>, CatalogueError>>())
        };
        let known = catalogue.map(find).transpose()?.unwrap_or_else(|| vec![None; claims.len()]);
        for (mut claim, known) in claims.into_iter().zip(known) {
            if self.is_for_a_scan(&claim, catalogue, done)? {
                continue;
            }
            let path = &claim.entry.path;
            let found = self.storage.find(path);
            if matches!(found, Ok(None)) && self.may_be_elsewhere(&claim, catalogue)? {
                self.look_again(&claim, done)?;
                continue;
            }
            let stat = match found {
                Ok(stat) => stat.filter(|stat| stat.kind == tree::Kind::File),
                Err(error) => {
                    self.fail(&claim, &error.to_string(), false, done)?;
                    continue;
                }
            };
            let is_begun = interrupted.has(path, stat.as_ref());
            if stat.is_some() && is_begun.map_err(|source| self.repository_error(source))? {
                self.fail(&claim, UNFINISHED, false, done)?;
                continue;
            }
            if self.is_write_once_changed(&claim, stat.as_ref(), catalogue, known.as_ref(), done)? {
                continue;
            }
            if let Some(catalogue) = catalogue.filter(|_| self.hold)
                && self.waits_for_approval(&mut claim, stat.as_ref(), catalogue)?
            {
                // The next scan finds it again, as long as it is not carried out.
                ignore_refused(self.changelog.complete(&claim).map(|_| ()))?;
                done.held += 1;
                continue;
            }
            // Who protects by hand has scanned, and does not hear of what happens meanwhile.
            if let Some(catalogue) = catalogue.filter(|_| self.links && !self.hold) {
                self.note_former_directories(&claim, catalogue, done)?;
            }
            // Names of one file share its redundancy: it is encoded under one of them, and the next batch finds that under the others.
            let shares = stat.filter(|stat| self.storage.keeps_by_identity() && stat.links > 1);
            if shares.is_some_and(|stat| !several.insert(stat.inode)) {
                ignore_refused(self.changelog.release(&claim, self.clock.now(), self.clock.now()))?;
                continue;
            }
            let path = &claim.entry.path;
            let wanted = stat.and_then(|stat| {
                let decision = self.policy.decide(path, &stat, self.clock.now());
                decision.treatment.map(|treatment| (stat, treatment.clone()))
            });
            selected.push(Selected { claim, stat, known, wanted });
        }
        Ok(selected)
    }

    /// Adds what the catalogue knows of a file by its inode.
    pub(super) fn describe(
        &self,
        file: Selected,
        catalogue: Option<&Catalogue>,
    ) -> Result<Job, CatalogueError> {
        let Selected { claim, stat, known, wanted } = file;
        let treatment = wanted.map(|(_, treatment)| treatment);
        let (stat, known) = (stat.as_ref(), known.as_ref());
        let former = self.former(&claim, stat, catalogue, known)?;
        let elsewhere = self.is_known_elsewhere(&claim, stat, catalogue, known)?;
        let names = self.known_names(&claim, stat, catalogue, known)?;
        let found = stat.filter(|_| !self.storage.keeps_by_identity()).map(Found::of);
        let (moved, result) = (false, Mutex::new(None));
        Ok(Job { claim, treatment, elsewhere, names, found, former, moved, result })
    }

    /// Sees to gaps, and to directories that were moved, which a scan tells apart by their files: they stay due until there
    /// was one.
    fn is_for_a_scan(
        &self,
        claim: &Claim,
        catalogue: Option<&Catalogue>,
        done: &mut Done,
    ) -> Result<bool, WorkError> {
        let entry = &claim.entry;
        if !matches!(entry.kind, Kind::Gap | Kind::Move) {
            return Ok(false);
        }
        // A file is seen to by itself, whatever happened to it; the gap may be younger than the scan.
        let found = self.storage.find(&entry.path).ok().flatten().map(|stat| stat.kind);
        let (file, moved) = (found == Some(tree::Kind::File), found == Some(tree::Kind::Directory));
        if file || (entry.kind == Kind::Move && !moved) {
            return Ok(false);
        }
        let now = self.clock.now();
        if self.scanned.covers(entry) {
            if let Some(catalogue) = catalogue {
                let mut parts = entry.origin.iter().chain([&entry.path]);
                parts.try_for_each(|part| self.remove_strays(part, catalogue, done))?;
            }
            ignore_refused(self.changelog.complete(claim).map(|_| ()))?;
        } else {
            ignore_refused(self.changelog.release(claim, now.saturating_add(RETRY), now))?;
            done.for_scan.extend(entry.origin.iter().chain([&entry.path]).cloned());
        }
        Ok(true)
    }
}
