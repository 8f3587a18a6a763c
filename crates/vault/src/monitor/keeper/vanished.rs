//! Files that a scan did not find, and that nobody said were deleted.
//!
//! Any of them may have got another name: in a directory that the scan had looked at already, or was not to look at. Whoever hears of it
//! needs a moment to record it. Their redundancy may be all that is left of a lost column, so it stays until word of it would have come; and if
//! the file is among those that are pending by then, everything is scanned to find where it came from.

use super::Keeper;
use crate::catalogue::Class;
use crate::changelog::{Change, Kind, MAX_PAGE, When};
use crate::protect::ProtectError;
use crate::storage::Storage;
use crate::tree;
use crate::vault::Vault;
use crate::worker::WORD_COMES;
use crate::world::Stopwatch;
use std::collections::{HashMap, HashSet};

/// Most files that are waited for at a time. Others are found by the scan that follows when these are gone.
const MAX_WAITED_FOR: usize = 1 << 17;

/// What is waited for, and since when.
#[derive(Debug, Default)]
pub(super) struct Vanished {
    since: HashMap<Vec<u8>, Stopwatch>,
    /// There were more than can be waited for.
    more: bool,
}

/// What became of those that were waited for.
#[derive(Debug, Default)]
struct Fate {
    /// They are gone.
    gone: Vec<Vec<u8>>,
    /// What is at and beneath these paths has to be scanned, to tell what became of others.
    for_scan: Vec<Vec<u8>>,
}

impl Vanished {
    /// A scan did not find these. What a scan of everything does find is waited for no longer.
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
        since.elapsed().as_nanos() as i64 >= WORD_COMES
    }

    /// Whether any was waited for long enough.
    pub(super) fn is_any_late(&self) -> bool {
        self.since.values().any(Vanished::is_late)
    }

    /// Decides on those that were waited for long enough. Others are looked at once more after as long a time.
    fn decide(&mut self, vault: &Vault) -> Result<Fate, ProtectError> {
        let pending = Pending::of(vault)?;
        let late = self.since.iter().filter(|(_, since)| Vanished::is_late(since));
        let late: Vec<Vec<u8>> = late.map(|(path, _)| path.clone()).collect();
        let mut fate = Fate::default();
        for path in late {
            let Some(known) = vault.catalogue.find(&path)? else {
                self.since.remove(&path);
                continue;
            };
            if !is_absent(&*vault.storage, &path) {
                self.since.remove(&path);
                fate.for_scan.push(path);
                continue;
            }
            let is_elsewhere = pending.inodes.contains(&known.generation.inode);
            if is_elsewhere {
                fate.for_scan.push(Vec::new());
            }
            if is_elsewhere || pending.wants_scan || pending.leads_away_from(&path) {
                self.since.insert(path, Stopwatch::start());
            } else {
                self.since.remove(&path);
                fate.gone.push(path);
            }
        }
        if self.more && self.since.is_empty() {
            self.more = false;
            fate.for_scan.push(Vec::new());
        }
        Ok(fate)
    }
}

/// What is not worked off.
#[derive(Debug, Default)]
struct Pending {
    /// Names that were changed to others: redundancy there will follow.
    origins: HashSet<Vec<u8>>,
    /// Files at the names that there is something to do for.
    inodes: HashSet<u64>,
    /// Gaps and directories that were moved have to be scanned first.
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

    /// Whether a path, or a directory above it, was renamed.
    fn leads_away_from(&self, path: &[u8]) -> bool {
        let ends = (1..=path.len()).filter(|&end| end == path.len() || path[end] == b'/');
        ends.map(|end| &path[..end]).any(|place| self.origins.contains(place))
    }
}

impl Keeper {
    /// Waits for word of files that are not where they were, and that nobody said were deleted.
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

    /// Records what has been gone for long enough, unless a scan is still to say more.
    pub(super) fn record_gone(&mut self) -> Result<(), ProtectError> {
        if self.held.is_some() || !self.for_scan.is_empty() || !self.vanished.is_any_late() {
            return Ok(());
        }
        let Fate { gone, for_scan } = self.vanished.decide(&self.vault)?;
        self.for_scan.extend(for_scan);
        let when = When::now(self.vault.clock.now(), u8::MAX);
        for some in gone.chunks(MAX_PAGE) {
            let changes: Vec<Change> = some.iter().map(|path| Change::delete(path.clone(), when)).collect();
            self.vault.changelog.record(&changes)?;
        }
        Ok(())
    }
}

/// Whether nothing has a name. Where something else has it, the file that had it makes room at once.
pub(super) fn is_absent(storage: &dyn Storage, path: &[u8]) -> bool {
    matches!(storage.find(path), Ok(None))
}
