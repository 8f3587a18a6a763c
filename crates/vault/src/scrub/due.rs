//! When the scrub of a file is due: as often as its policy says, counted from its last complete verification.
//!
//! A file that was never scrubbed counts from the time at which its redundancy was made, when all of it was read.

use crate::catalogue::Entry;
use crate::policy::Policy;
use crate::storage::Storage;
use crate::tree::{Kind, Stat};
use crate::world::Nanos;

/// Decides for many files.
pub(crate) struct Due<'a> {
    policy: &'a Policy,
    storage: &'a dyn Storage,
    /// Rules ask for owners, which the catalogue does not know.
    needs_stat: bool,
    now: Nanos,
}

impl<'a> Due<'a> {
    pub(crate) fn new(policy: &'a Policy, storage: &'a dyn Storage, now: Nanos) -> Due<'a> {
        Due { policy, storage, needs_stat: policy.asks_for_owners(), now }
    }

    /// When a file was verified last, if its scrub is due. Never for a file that the policy no longer protects.
    pub(crate) fn since(&self, path: &[u8], entry: &Entry) -> Option<Nanos> {
        let stat = self.needs_stat.then(|| self.storage.find(path).ok().flatten()).flatten();
        let stat = stat.unwrap_or_else(|| as_protected(entry));
        let interval = self.policy.decide(path, &stat, self.now).treatment?.scrub;
        // A time that lies ahead is from before the clock was set back, and says nothing.
        let verified = entry.scrubbed_at.filter(|last| *last <= self.now);
        let verified = verified.unwrap_or_else(|| entry.protected_at.min(self.now));
        (verified.saturating_add(interval) <= self.now).then_some(verified)
    }
}

/// What the catalogue knows of a file.
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
    }
}
