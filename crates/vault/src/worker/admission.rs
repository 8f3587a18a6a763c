//! Admission of claims by the guard, for mass deletions and mass changes that are recorded while a worker runs.
//!
//! The guard is checked before a worker starts. A worker with a long backlog also claims entries that are recorded
//! later, and a tree deleted at that time would lose its redundancy without an approval. So known files that were
//! deleted or changed since the guard's check are counted as they are claimed. When their number, together with what
//! was pending before, exceeds the policy's bounds, the worker gives its claims back and ends, and its caller runs the
//! guard again.

use super::WorkError;
use crate::catalogue::{Catalogue, Class};
use crate::changelog::{self, Changelog, Claim, Entry, Kind, Sequence};
use crate::guard;
use crate::policy::Guard;
use crate::storage::Storage;
use crate::world::{Clock, Timestamp};
use std::cell::RefCell;
use std::collections::HashSet;

/// Result of the guard for the change-set of the last scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardVerdict {
    /// The result does not cover what is pending now: changes were recorded since.
    Stale,
    /// The guard let the change-set pass.
    Passed,
    /// A person approved the change-set. Counting starts at zero.
    Approved,
}

/// What the counts are read from.
#[derive(Clone, Copy)]
pub struct AdmissionContext<'a> {
    /// Storage of the files.
    pub storage: &'a dyn Storage,
    /// Catalogue of protected files.
    pub catalogue: &'a Catalogue,
    /// Changelog with the pending entries.
    pub changelog: &'a dyn Changelog,
    /// Bounds of the policy.
    pub guard: &'a Guard,
}

/// Counts known files that were deleted or changed, and compares the counts with the policy's bounds.
pub struct Admission<'a> {
    context: AdmissionContext<'a>,
    verdict: GuardVerdict,
    /// Start of the guard's window. Files that changed within it are already counted.
    since: Option<Timestamp>,
    counted: RefCell<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// Entries up to this sequence number are counted.
    upto: Sequence,
    /// Number of protected files.
    known: u64,
    removed: u64,
    changed: u64,
    /// Pending deletions, of known and unknown files.
    deletions: u64,
    /// Files that were counted while claims were admitted.
    paths: HashSet<Vec<u8>>,
}

impl<'a> Admission<'a> {
    /// Counts pending entries, and changes that were carried out within the policy's window.
    ///
    /// # Errors
    /// The catalogue, the changelog or the storage fails.
    pub fn new(
        context: AdmissionContext<'a>,
        verdict: GuardVerdict,
        clock: &Clock,
    ) -> Result<Admission<'a>, WorkError> {
        let AdmissionContext { catalogue, changelog, guard, .. } = context;
        let now = clock.now();
        let since = (!guard.window.is_zero()).then(|| now - guard.window);
        let upto = changelog.sequence()?;
        let (mut removed, mut changed) = (0, 0);
        match (verdict, since) {
            (GuardVerdict::Approved, _) => {}
            (GuardVerdict::Passed, _) => {
                let (recent, found) = (guard::recent(catalogue, guard, now)?, catalogue.count_changes()?);
                removed = recent.removed + found.of(Class::Removed).0;
                changed = recent.changed + found.of(Class::Changed).0;
            }
            (GuardVerdict::Stale, Some(since)) => {
                let recent = catalogue.recent_with_changes(since)?;
                (removed, changed) = (recent.removed, recent.changed);
            }
            (GuardVerdict::Stale, None) => {}
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
        let admission = Admission { context, verdict, since, counted: RefCell::new(counted) };
        // Below the guard's minimum, so the entries need not be looked up.
        let few = deletions == 0 && modified + changed < guard.at_least;
        let (gone, other) = if few { (0, modified) } else { admission.count_pending()? };
        let mut counted = admission.counted.borrow_mut();
        counted.removed += gone;
        counted.changed += other;
        drop(counted);
        Ok(admission)
    }

    /// True if more files were deleted or changed than the policy allows without an approval.
    pub fn is_exceeded(&self) -> bool {
        self.exceeds(&self.counted.borrow(), 0)
    }

    fn exceeds(&self, counted: &Counted, more_removed: u64) -> bool {
        self.context.guard.is_exceeded(counted.removed + more_removed, counted.changed, counted.known)
    }

    /// True if the claims may be carried out.
    pub(super) fn admits(&self, claims: &[Claim]) -> Result<bool, WorkError> {
        let counted = &mut *self.counted.borrow_mut();
        let upto = counted.upto;
        let mut fresh =
            claims.iter().map(|claim| &claim.entry).filter(|entry| entry.sequence > upto).peekable();
        // With an empty catalogue no redundancy can be lost.
        if counted.known == 0 || fresh.peek().is_none() {
            return Ok(!self.exceeds(counted, 0));
        }
        self.context.catalogue.as_of_now(|| -> Result<(), WorkError> {
            for entry in fresh {
                let (removed, changed) = self.count(entry)?;
                if removed + changed > 0 && counted.paths.insert(entry.path.clone()) {
                    counted.removed += removed;
                    counted.changed += changed;
                }
            }
            Ok(())
        })?;
        // Deletions may be recorded faster than they are claimed.
        let deletions = match self.verdict {
            GuardVerdict::Stale => self.context.changelog.pending()?.of(Kind::Delete),
            GuardVerdict::Passed | GuardVerdict::Approved => 0,
        };
        Ok(!self.exceeds(counted, deletions.saturating_sub(counted.deletions)))
    }

    /// Numbers of known files that were deleted and changed, over all pending entries.
    fn count_pending(&self) -> Result<(u64, u64), WorkError> {
        let (mut removed, mut changed) = (0, 0);
        self.context.catalogue.as_of_now(|| -> Result<(), WorkError> {
            let mut after: Option<Vec<u8>> = None;
            loop {
                let page = self.context.changelog.entries(after.as_deref(), changelog::MAX_PAGE)?;
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

    /// Numbers of known files that were deleted and changed by one entry, except those in a change-set that the guard
    /// has checked.
    fn count(&self, entry: &Entry) -> Result<(u64, u64), WorkError> {
        let known = self.context.catalogue.find(&entry.path)?;
        Ok(match (entry.kind, known) {
            (Kind::Move | Kind::Gap, _) | (Kind::Modify, None) => (0, 0),
            (Kind::Delete, None) => {
                // The file may have been renamed before it was deleted.
                let names = entry.origin.iter().chain([&entry.path]);
                let gone: Result<Vec<u64>, WorkError> = names.map(|name| self.count_gone(name)).collect();
                (gone?.iter().sum(), 0)
            }
            // A failing lookup is reported when the file itself is processed.
            (_, Some(known)) => match self.context.storage.find(&entry.path) {
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

    /// Number of known files at and below a name that no longer exists.
    fn count_gone(&self, name: &[u8]) -> Result<u64, WorkError> {
        let catalogue = self.context.catalogue;
        if !matches!(self.context.storage.find(name), Ok(None)) {
            return Ok(0);
        }
        let known = u64::from(catalogue.find(name)?.is_some()) + catalogue.count_beneath(name)?;
        let in_change_set = match self.verdict {
            GuardVerdict::Stale => 0,
            GuardVerdict::Passed | GuardVerdict::Approved => {
                catalogue.count_changes_beneath(Class::Removed, name)?
            }
        };
        Ok(known.saturating_sub(in_change_set))
    }

    fn is_judged(&self, class: Class, path: &[u8]) -> Result<bool, WorkError> {
        Ok(self.verdict != GuardVerdict::Stale && self.context.catalogue.is_change(class, path)?)
    }

    /// True if the file is counted among the changes within the guard's window.
    fn is_counted(&self, path: &[u8]) -> Result<bool, WorkError> {
        let is_recent = |since| self.context.catalogue.is_recent(path, since);
        Ok(self.verdict == GuardVerdict::Stale && self.since.map(is_recent).transpose()?.unwrap_or(false))
    }
}
