//! Due times of scrubs: at the interval of the policy, counted from the file's last complete verification.
//!
//! For a file that was never scrubbed, the time counts from its protection, when all of it was read.

use crate::catalogue::{CatalogueError, Entry};
use crate::policy::Policy;
use crate::storage::Storage;
use crate::tree::{Kind, Stat};
use crate::vault::Vault;
use crate::world::Timestamp;

/// Files with an overdue scrub.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overdue {
    /// Number of files.
    pub files: u64,
    /// The file with the oldest verification, and its time.
    pub oldest: Option<(Vec<u8>, Timestamp)>,
}

impl Overdue {
    pub(crate) fn count(&mut self, path: &[u8], verified: Timestamp) {
        self.files += 1;
        if self.oldest.as_ref().is_none_or(|(_, first)| verified < *first) {
            self.oldest = Some((path.to_vec(), verified));
        }
    }
}

/// Reason why counting ended early.
enum Halt {
    Failed(CatalogueError),
    Stopped,
}

impl From<CatalogueError> for Halt {
    fn from(error: CatalogueError) -> Halt {
        Halt::Failed(error)
    }
}

/// Counts the files with an overdue scrub. None if `stopped` returns true meanwhile.
///
/// # Errors
/// The catalogue fails.
pub fn overdue(vault: &Vault, stopped: &dyn Fn() -> bool) -> Result<Option<Overdue>, CatalogueError> {
    let due = Due::new(&vault.policy, &*vault.storage, vault.clock.now());
    let mut overdue = Overdue::default();
    let counted = vault.catalogue.each_page(b"", |page| {
        if stopped() {
            return Err(Halt::Stopped);
        }
        for (path, entry) in page {
            if let Some(verified) = due.since(&path, &entry) {
                overdue.count(&path, verified);
            }
        }
        Ok(())
    });
    match counted {
        Ok(()) => Ok(Some(overdue)),
        Err(Halt::Stopped) => Ok(None),
        Err(Halt::Failed(error)) => Err(error),
    }
}

/// Decides whether files are due.
pub(crate) struct Due<'a> {
    policy: &'a Policy,
    storage: &'a dyn Storage,
    /// Rules depend on owners, which the catalogue does not have.
    needs_stat: bool,
    now: Timestamp,
}

impl<'a> Due<'a> {
    pub(crate) fn new(policy: &'a Policy, storage: &'a dyn Storage, now: Timestamp) -> Due<'a> {
        Due { policy, storage, needs_stat: policy.asks_for_owners(), now }
    }

    /// Last verification of a file whose scrub is due. None for a file that the policy no longer protects.
    pub(crate) fn since(&self, path: &[u8], entry: &Entry) -> Option<Timestamp> {
        let stat = self.needs_stat.then(|| self.storage.find(path).ok().flatten()).flatten();
        let stat = stat.unwrap_or_else(|| as_protected(entry));
        let interval = self.policy.decide(path, &stat, self.now).treatment?.scrub;
        // A time in the future is from before the clock was set back and is ignored.
        let verified = entry.scrubbed_at.filter(|last| *last <= self.now);
        let verified = verified.unwrap_or_else(|| entry.protected_at.min(self.now));
        (verified + interval <= self.now).then_some(verified)
    }
}

/// Properties of a file according to the catalogue.
fn as_protected(entry: &Entry) -> Stat {
    let generation = entry.generation;
    Stat {
        kind: Kind::File,
        size: generation.size,
        mtime: generation.mtime,
        ctime: generation.ctime,
        inode: generation.inode,
        device: 0,
        links: 1,
        mode: 0,
        uid: 0,
        gid: 0,
        allocated: generation.size,
        birth: None,
    }
}
