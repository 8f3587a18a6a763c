//! Admission of claims by the guard: mass deletions and mass changes that are recorded while a worker runs.
//!
//! The guard is asked before a worker starts. A worker with a long backlog also claims what is recorded while it runs, and a deleted tree would lose its
//! redundancy without a question. So known files that vanished or changed since the last look are counted as they are claimed. Once they are too
//! many together with what was pending before, the worker gives its claims back and ends, and its caller asks the guard again.

use super::WorkError;
use crate::catalogue::{Catalogue, Class};
use crate::changelog::{self, Changelog, Claim, Entry, Kind, Sequence};
use crate::guard;
use crate::policy::Guard;
use crate::storage::Storage;
use crate::world::{Clock, Nanos};
use std::cell::RefCell;
use std::collections::HashSet;

/// What the guard said of the change-set of the last scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// It is not about what is pending now: other changes were recorded since.
    No,
    /// It let the change-set pass.
    Passed,
    /// A person approved the change-set. The count begins anew.
    Approved,
}

/// Files, and what is known of them.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Where files are.
    pub storage: &'a dyn Storage,
    /// What was protected.
    pub catalogue: &'a Catalogue,
    /// What is pending.
    pub changelog: &'a dyn Changelog,
    /// The bounds of the policy.
    pub guard: &'a Guard,
}

/// Counts known files that vanished or changed, and compares them with the bounds of a policy.
pub struct Admission<'a> {
    known: Known<'a>,
    judged: Judged,
    /// Files that changed since then were counted when that was carried out.
    since: Option<Nanos>,
    counted: RefCell<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Changes up to this one were counted.
    upto: Sequence,
    /// Files that were known.
    known: u64,
    removed: u64,
    changed: u64,
    /// Deletions that were pending, of known files and others.
    deletions: u64,
    /// Files that were counted later.
    paths: HashSet<Vec<u8>>,
}

impl<'a> Admission<'a> {
    /// Counts what is pending and what was carried out within the window of the policy.
    ///
    /// # Errors
    /// The catalogue, the changelog or the storage fails.
    pub fn new(known: Known<'a>, judged: Judged, clock: &Clock) -> Result<Admission<'a>, WorkError> {
        let Known { catalogue, changelog, guard, .. } = known;
        let now = clock.now();
        let since = (guard.window > 0).then(|| now.saturating_sub(guard.window));
        let upto = changelog.sequence()?;
        let (mut removed, mut changed) = (0, 0);
        match (judged, since) {
            (Judged::Approved, _) => {}
            (Judged::Passed, _) => {
                let (recent, found) = (guard::recent(catalogue, guard, now)?, catalogue.count_changes()?);
                removed = recent.removed + found.of(Class::Removed).0;
                changed = recent.changed + found.of(Class::Changed).0;
            }
            (Judged::No, Some(since)) => {
                let recent = catalogue.recent_with_changes(since)?;
                (removed, changed) = (recent.removed, recent.changed);
            }
            (Judged::No, None) => {}
        }
        let pending = changelog.pending()?;
        let (modified, deletions) = (pending.of(Kind::Modify), pending.of(Kind::Delete));
        let counted = Counted {
            upto,
            known: catalogue.count()? + removed,
            removed,
            changed,
            deletions,
            ..Counted::default()
        };
        let admission = Admission { known, judged, since, counted: RefCell::new(counted) };
        // So few that it does not matter which of them are of known files.
        let few = deletions == 0 && modified + changed < guard.at_least;
        let (gone, other) = if few { (0, modified) } else { admission.count_pending()? };
        let mut counted = admission.counted.borrow_mut();
        counted.removed += gone;
        counted.changed += other;
        drop(counted);
        Ok(admission)
    }

    /// True if more files vanished or changed than may without an approval.
    pub fn is_exceeded(&self) -> bool {
        self.exceeds(&self.counted.borrow(), 0)
    }

    fn exceeds(&self, counted: &Counted, more_removed: u64) -> bool {
        self.known.guard.is_exceeded(counted.removed + more_removed, counted.changed, counted.known)
    }

    /// Whether claims may be carried out.
    pub(super) fn admits(&self, claims: &[Claim]) -> Result<bool, WorkError> {
        let counted = &mut *self.counted.borrow_mut();
        let upto = counted.upto;
        let mut fresh =
            claims.iter().map(|claim| &claim.entry).filter(|entry| entry.sequence > upto).peekable();
        // Nothing was protected that could be lost.
        if counted.known == 0 || fresh.peek().is_none() {
            return Ok(!self.exceeds(counted, 0));
        }
        self.known.catalogue.as_of_now(|| -> Result<(), WorkError> {
            for entry in fresh {
                let (removed, changed) = self.count(entry)?;
                if removed + changed > 0 && counted.paths.insert(entry.path.clone()) {
                    counted.removed += removed;
                    counted.changed += changed;
                }
            }
            Ok(())
        })?;
        // A deleted tree may be recorded faster than it is claimed.
        let deletions = match self.judged {
            Judged::No => self.known.changelog.pending()?.of(Kind::Delete),
            Judged::Passed | Judged::Approved => 0,
        };
        Ok(!self.exceeds(counted, deletions.saturating_sub(counted.deletions)))
    }

    /// Known files that vanished and that changed, by all that is pending.
    fn count_pending(&self) -> Result<(u64, u64), WorkError> {
        let (mut removed, mut changed) = (0, 0);
        self.known.catalogue.as_of_now(|| -> Result<(), WorkError> {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = self.known.changelog.entries(after.as_deref(), changelog::MAX_PAGE)?;
                let Some(last) = page.last() else { return Ok(()) };
                after = Some(last.path.clone());
                for entry in &page {
                    let (gone, other) = self.count(entry)?;
                    removed += gone;
                    changed += other;
                }
            }
        })?;
        Ok((removed, changed))
    }

    /// Known files that vanished and that changed, by one entry, without those of a change-set that the guard saw.
    fn count(&self, entry: &Entry) -> Result<(u64, u64), WorkError> {
        let known = self.known.catalogue.find(&entry.path)?;
        Ok(match (entry.kind, known) {
            (Kind::Move | Kind::Gap, _) | (Kind::Modify, None) => (0, 0),
            (Kind::Delete, None) => {
                // It may have got another name before it went.
                let names = entry.origin.iter().chain([&entry.path]);
                let gone: Result<Vec<u64>, WorkError> = names.map(|name| self.count_gone(name)).collect();
                (gone?.iter().sum(), 0)
            }
            // A file that cannot be looked up fails by itself.
            (_, Some(known)) => match self.known.storage.find(&entry.path) {
                Err(_) => (0, 0),
                Ok(None) => (u64::from(!self.is_judged(Class::Removed, &entry.path)?), 0),
                Ok(Some(_)) if self.is_counted(&entry.path)? => (0, 0),
                Ok(Some(stat)) => {
                    let is_changed = known.is_another_version(&stat);
                    (0, u64::from(is_changed && !self.is_judged(Class::Changed, &entry.path)?))
                }
            },
        })
    }

    /// Known files at and beneath a name that no file has any more.
    fn count_gone(&self, name: &[u8]) -> Result<u64, WorkError> {
        let catalogue = self.known.catalogue;
        if !matches!(self.known.storage.find(name), Ok(None)) {
            return Ok(0);
        }
        let known = u64::from(catalogue.find(name)?.is_some()) + catalogue.count_beneath(name)?;
        let judged = match self.judged {
            Judged::No => 0,
            Judged::Passed | Judged::Approved => catalogue.count_changes_beneath(Class::Removed, name)?,
        };
        Ok(known.saturating_sub(judged))
    }

    fn is_judged(&self, class: Class, path: &[u8]) -> Result<bool, WorkError> {
        Ok(self.judged != Judged::No && self.known.catalogue.is_change(class, path)?)
    }

    /// Whether a file is among those that changed within the guard's window.
    fn is_counted(&self, path: &[u8]) -> Result<bool, WorkError> {
        let is_recent = |since| self.known.catalogue.is_recent(path, since);
        Ok(self.judged == Judged::No && self.since.map(is_recent).transpose()?.unwrap_or(false))
    }
}
