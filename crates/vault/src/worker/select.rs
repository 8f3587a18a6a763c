//! Selection of the claims of a batch that need encoding, with what is known of their files.

use super::{Done, Job, RETRY, WorkError, Worker, ignore_refused};
use crate::catalogue::{CatalogueError, Entry, State};
use crate::changelog::{Claim, Kind};
use crate::displaced::PresentFile;
use crate::encode::Known;
use crate::policy::Treatment;
use crate::repair_mark::Interrupted;
use crate::retry::{Failure, Retry};
use crate::tree::{self, Stat};
use gabion_engine::Code;
use std::collections::HashSet;
use std::sync::Mutex;

/// Reason that is reported for a file with an interrupted repair.
const UNFINISHED: &str = "an interrupted repair of it has to be finished first: run `gabion repair` for it. \
    Later changes of the file are kept";

/// A claim that needs encoding or removal of redundancy.
pub(super) struct Selected {
    claim: Claim,
    /// Present state of the file; none if it is deleted.
    stat: Option<Stat>,
    /// Catalogue entry.
    known: Option<Entry>,
    /// Treatment by the policy; none if the file is not to be protected.
    wanted: Option<(Stat, Treatment)>,
}

impl Selected {
    /// Bytes of data to read.
    pub(super) fn size(&self) -> u64 {
        match &self.wanted {
            Some((stat, treatment)) if !self.loses_columns_only(stat, treatment) => stat.size,
            _ => 0,
        }
    }

    /// True if the file is protected as it is, with more redundancy columns than are wanted now. Then nothing is read,
    /// unless the redundancy turns out to be damaged.
    fn loses_columns_only(&self, stat: &Stat, treatment: &Treatment) -> bool {
        let Some(known) = self.known.as_ref().filter(|known| known.code != treatment.identity) else {
            return false;
        };
        let same = known.state == State::Protected && known.generation == stat.generation();
        let code = same.then(|| known.code.split(' ').next().unwrap_or_default().parse::<Code>());
        code.and_then(Result::ok).is_some_and(|was| {
            let fewer = treatment.code.m() < was.m();
            fewer && (was.family(), was.k()) == (treatment.code.family(), treatment.code.k())
        })
    }
}

impl Worker<'_> {
    /// Removes claims that need no encoding: those that need a scan, are held, are refused, or repeat an inode of this
    /// batch.
    pub(super) fn select(&self, claims: Vec<Claim>, done: &mut Done) -> Result<Vec<Selected>, WorkError> {
        let catalogue = self.vault.catalogue;
        let mut selected = Vec::new();
        let mut several = HashSet::new();
        let interrupted =
            Interrupted::of(self.vault.storage).map_err(|source| self.repository_error(source))?;
        // In one transaction: beginning one costs as much as a lookup.
        let find = |claim: &Claim| catalogue.find(&claim.entry.path);
        let known =
            catalogue.as_of_now(|| claims.iter().map(find).collect::<Result<Vec<_>, CatalogueError>>())?;
        for (mut claim, known) in claims.into_iter().zip(known) {
            if self.needs_scan(&claim, done)? {
                continue;
            }
            let path = &claim.entry.path;
            let found = self.vault.storage.find(path);
            if matches!(found, Ok(None)) && self.may_have_moved(&claim)? {
                self.retry_missing(&claim, done)?;
                continue;
            }
            let stat = match found {
                Ok(stat) => stat.filter(|stat| stat.kind == tree::Kind::File),
                Err(error) => {
                    self.fail(&claim, error.into(), done)?;
                    continue;
                }
            };
            if stat.is_some() && interrupted.has(path, stat.as_ref()) {
                self.fail(&claim, Failure::new(UNFINISHED, Retry::AfterChange), done)?;
                continue;
            }
            if self.is_write_once_changed(&claim, stat.as_ref(), known.as_ref(), done)? {
                continue;
            }
            if self.options.hold && self.waits_for_approval(&mut claim, stat.as_ref())? {
                // The next scan finds the change again until it is carried out.
                ignore_refused(self.vault.changelog.complete(&claim).map(|_| ()))?;
                done.held += 1;
                continue;
            }
            // Only with live events: a manual run has just scanned.
            if self.options.live_events && !self.options.hold {
                self.record_former_directories(&claim, done)?;
            }
            // Hard links share their redundancy: it is encoded under one name, and the next batch adopts it under the
            // others.
            let has_links = stat.filter(|stat| stat.links > 1);
            let shares = match has_links {
                Some(stat) if !self.vault.storage.keeps_by_identity() => {
                    // Only one new name gets the redundancy of a name that is gone. The content under the others is
                    // then compared with it.
                    known.is_none() && self.known_by_inode(&stat)?.iter().any(|name| self.is_vacated(name))
                }
                has_links => has_links.is_some(),
            };
            if shares && has_links.is_some_and(|stat| !several.insert(stat.inode)) {
                self.release_now(&claim)?;
                continue;
            }
            let path = &claim.entry.path;
            let wanted = stat.and_then(|stat| {
                let decision = self.vault.policy.decide(path, &stat, self.vault.clock.now());
                decision.treatment.map(|treatment| (stat, treatment.into_owned()))
            });
            selected.push(Selected { claim, stat, known, wanted });
        }
        Ok(selected)
    }

    /// Adds what the catalogue knows of the file's inode.
    pub(super) fn describe(&self, file: Selected) -> Result<Job, CatalogueError> {
        let Selected { claim, stat, known, wanted } = file;
        let treatment = wanted.map(|(_, treatment)| treatment);
        let (stat, known) = (stat.as_ref(), known.as_ref());
        let former = self.former(&claim, stat, known)?;
        let known_elsewhere = self.is_known_by_another_name(&claim, stat, known)?;
        let of_entry = |known: &Entry| {
            let is_damaged = matches!(known.state, State::Damaged | State::Lost);
            Known { generation: known.generation, is_damaged }
        };
        let names = self.known_names(&claim, stat, known)?;
        let found = stat.filter(|_| !self.vault.storage.keeps_by_identity()).map(PresentFile::of);
        let (moved, fenced, result, known) = (false, None, Mutex::new(None), known.map(of_entry));
        Ok(Job { claim, treatment, known_elsewhere, known, names, found, former, moved, fenced, result })
    }

    /// Gaps and moved directories need a scan and stay pending until a scan covers them. Returns true if the claim was
    /// such an entry.
    fn needs_scan(&self, claim: &Claim, done: &mut Done) -> Result<bool, WorkError> {
        let entry = &claim.entry;
        if !matches!(entry.kind, Kind::Gap | Kind::Move) {
            return Ok(false);
        }
        // A file is processed by itself, even if the entry is a gap newer than the last scan.
        let found = self.vault.storage.find(&entry.path).ok().flatten().map(|stat| stat.kind);
        let (file, moved) = (found == Some(tree::Kind::File), found == Some(tree::Kind::Directory));
        if file || (entry.kind == Kind::Move && !moved) {
            return Ok(false);
        }
        let now = self.vault.clock.now();
        if self.options.scanned.covers(entry) {
            let mut parts = entry.origin.iter().chain([&entry.path]);
            parts.try_for_each(|part| self.remove_strays(part, done))?;
            ignore_refused(self.vault.changelog.complete(claim).map(|_| ()))?;
        } else {
            ignore_refused(self.vault.changelog.release(claim, now + RETRY, now))?;
            done.for_scan.extend(entry.origin.iter().chain([&entry.path]).cloned());
        }
        Ok(true)
    }
}
