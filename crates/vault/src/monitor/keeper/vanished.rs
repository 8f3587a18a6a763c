//! Files that a scan did not find and for which no deletion was recorded.
//!
//! Such a file may have been renamed, into a directory that the scan had visited already or did not cover, and the
//! rename may not be recorded yet. Its redundancy may be the only copy of a lost column, so it is kept until a rename
//! would have been recorded. If the file's inode is among the pending entries by then, a full scan finds where it came
//! from.

use super::Keeper;
use crate::catalogue::Class;
use crate::changelog::{Change, Kind, MAX_PAGE, When};
use crate::protect::ProtectError;
use crate::storage::Storage;
use crate::tree;
use crate::vault::Vault;
use crate::worker::MISSING_RETRY_TIME;
use crate::world::Stopwatch;
use std::collections::{HashMap, HashSet};

/// Maximum number of missing files that are tracked. Others are found by the scan that follows.
const MAX_WAITED_FOR: usize = 1 << 17;

/// Missing files, and the time since which they are missing.
#[derive(Debug, Default)]
pub(super) struct Vanished {
    since: HashMap<Vec<u8>, Stopwatch>,
    /// More files were missing than can be tracked.
    more: bool,
}

/// Result for the missing files.
#[derive(Debug, Default)]
struct Decision {
    /// Deleted files.
    gone: Vec<Vec<u8>>,
    /// Paths that need a scan to find out about other files.
    for_scan: Vec<Vec<u8>>,
}

impl Vanished {
    /// Adds files that a scan did not find. After a full scan (`whole`) all other files are no longer tracked.
    pub(super) fn seek(&mut self, absent: Vec<Vec<u8>>, whole: bool) {
        let before = if whole { std::mem::take(self) } else { Vanished::default() };
        for path in absent {
            if self.since.len() == MAX_WAITED_FOR {
                self.more = true;
                return;
            }
            let since = before.since.get(&path).copied().unwrap_or_else(Stopwatch::start);
            self.since.entry(path).or_insert(since);
        }
    }

    fn is_late(since: &Stopwatch) -> bool {
        since.elapsed() >= MISSING_RETRY_TIME
    }

    /// True if a file is missing for long enough to decide.
    pub(super) fn is_any_late(&self) -> bool {
        self.since.values().any(Vanished::is_late)
    }

    /// Decides on the files that are missing for long enough. Undecided ones are tracked for another period.
    fn decide(&mut self, vault: &Vault) -> Result<Decision, ProtectError> {
        let pending = Pending::of(vault)?;
        let late = self.since.iter().filter(|(_, since)| Vanished::is_late(since));
        let late: Vec<Vec<u8>> = late.map(|(path, _)| path.clone()).collect();
        let mut decision = Decision::default();
        for path in late {
            let Some(known) = vault.catalogue.find(&path)? else {
                self.since.remove(&path);
                continue;
            };
            if !is_absent(&*vault.storage, &path) {
                self.since.remove(&path);
                decision.for_scan.push(path);
                continue;
            }
            let is_elsewhere = pending.inodes.contains(&known.generation.inode);
            if is_elsewhere {
                decision.for_scan.push(Vec::new());
            }
            if is_elsewhere || pending.wants_scan || pending.leads_away_from(&path) {
                self.since.insert(path, Stopwatch::start());
            } else {
                self.since.remove(&path);
                decision.gone.push(path);
            }
        }
        if self.more && self.since.is_empty() {
            self.more = false;
            decision.for_scan.push(Vec::new());
        }
        Ok(decision)
    }
}

/// Pending entries of the changelog.
#[derive(Debug, Default)]
struct Pending {
    /// Old names of pending renames: redundancy there will be moved.
    origins: HashSet<Vec<u8>>,
    /// Inodes of the files of pending entries.
    inodes: HashSet<u64>,
    /// A gap or a moved directory is pending, which needs a scan first.
    wants_scan: bool,
}

impl Pending {
    fn of(vault: &Vault) -> Result<Pending, ProtectError> {
        let (mut pending, mut after) = (Pending::default(), None::<Vec<u8>>);
        loop {
            let page = vault.changelog.entries(after.as_deref(), MAX_PAGE)?;
            let Some(last) = page.last() else { return Ok(pending) };
            after = Some(last.path.clone());
            for entry in page {
                let stat = vault.storage.find(&entry.path).ok().flatten();
                let is_directory = stat.is_some_and(|stat| stat.kind == tree::Kind::Directory);
                pending.wants_scan |= entry.kind == Kind::Gap || (entry.kind == Kind::Move && is_directory);
                pending.inodes.extend(stat.map(|stat| stat.inode));
                pending.origins.extend(entry.origin);
            }
        }
    }

    /// True if the path or one of its parents was renamed.
    fn leads_away_from(&self, path: &[u8]) -> bool {
        let ends = (1..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
        ends.map(|end| &path[..end]).any(|place| self.origins.contains(place))
    }
}

impl Keeper {
    /// Tracks files that the last scan did not find and for which no deletion was recorded.
    pub(super) fn seek_vanished(&mut self, whole: bool, approved: bool) -> Result<(), ProtectError> {
        let mut absent = Vec::new();
        if self.held.is_none() && !approved {
            self.vault.catalogue.each_change(Class::Removed, |page| -> Result<(), ProtectError> {
                if absent.len() <= MAX_WAITED_FOR {
                    let is_absent = |path: &&Vec<u8>| is_absent(&*self.vault.storage, path);
                    absent.extend(page.iter().map(|found| &found.path).filter(is_absent).cloned());
                }
                Ok(())
            })?;
        }
        self.vanished.seek(absent, whole);
        Ok(())
    }

    /// Records deletions of files that are missing for long enough, unless a scan is pending.
    pub(super) fn record_gone(&mut self) -> Result<(), ProtectError> {
        if self.held.is_some() || !self.for_scan.is_empty() || !self.vanished.is_any_late() {
            return Ok(());
        }
        let Decision { gone, for_scan } = self.vanished.decide(&self.vault)?;
        self.for_scan.extend(for_scan);
        let when = When::now(self.vault.clock.now(), u8::MAX);
        for some in gone.chunks(MAX_PAGE) {
            let changes: Vec<Change> = some.iter().map(|path| Change::delete(path.clone(), when)).collect();
            self.vault.changelog.record(&changes)?;
        }
        Ok(())
    }
}

/// True if nothing has this name. If another object has it, the file is handled at once.
pub(super) fn is_absent(storage: &dyn Storage, path: &[u8]) -> bool {
    matches!(storage.find(path), Ok(None))
}
