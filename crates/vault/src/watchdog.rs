//! Watchdog of the targets of a pool: decides what to do about lost targets, from observations over time. It performs
//! no I/O.
//!
//! An unreachable target is reported at once, but it may return (a cable, a reboot), so it is given up and rebuilt only
//! after a delay. If many targets disappear together, the cause is probably elsewhere (a controller, a power supply,
//! the wrong machine), and moving terabytes would do harm: then the user must confirm. The confirmation is bound to the
//! exact set of targets that was shown.

use crate::storage::pool::config::TargetName;
use crate::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Time for which a target may be unreachable before it is given up.
    pub delay: Duration,
    /// Number of targets (m) that may be lost at once without confirmation.
    pub redundancy: usize,
    /// Share of all targets, in percent, that may be lost at once without confirmation.
    pub share: u8,
}

/// Presence of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetPresence {
    /// Reachable, with valid content.
    Present,
    /// Unreachable.
    Gone,
    /// Unreachable and given up; files still miss its columns.
    GivenUp,
    /// Unreachable and given up; no file misses its columns any more.
    Replaced,
    /// Reachable again after it was given up or missed changes.
    Returned,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Nothing,
    /// Targets are unreachable, and are given up at the given time unless they return.
    Notice {
        /// Targets.
        gone: Vec<TargetName>,
        /// Time at which the first of them is given up.
        until: Timestamp,
    },
    /// Give up these targets, and reconstruct their columns.
    Rebuild {
        /// Targets.
        targets: Vec<TargetName>,
    },
    /// Too many targets are lost: the user must confirm.
    Ask {
        /// All lost targets.
        gone: Vec<TargetName>,
        /// Digest to confirm.
        agreement: String,
        /// Reason.
        why: TooMany,
    },
    /// Verify the content of returned targets.
    Reconcile {
        /// Targets.
        targets: Vec<TargetName>,
    },
}

/// Why the user must confirm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// More targets are lost than there are redundancy columns.
    #[error("{gone} targets are lost, and files have redundancy for {redundancy}")]
    Redundancy {
        /// Lost targets.
        gone: usize,
        /// m.
        redundancy: usize,
    },
    /// A large share of all targets is lost.
    #[error("{gone} of {all} targets are lost, more than {share} percent")]
    Share {
        /// Lost targets.
        gone: usize,
        /// All targets.
        all: usize,
        /// Share that needs no confirmation, in percent.
        share: u8,
    },
}

impl Policy {
    /// Whether so many targets are lost that the user must confirm.
    pub fn too_many(&self, gone: usize, all: usize) -> Option<TooMany> {
        if gone > self.redundancy {
            return Some(TooMany::Redundancy { gone, redundancy: self.redundancy });
        }
        let beyond = gone * 100 > all * usize::from(self.share);
        beyond.then_some(TooMany::Share { gone, all, share: self.share })
    }
}

/// Digest that the user confirms: of the pool's identity and the names of the lost targets. Any other set has another
/// digest.
pub fn agreement<'a>(pool: &str, gone: impl IntoIterator<Item = &'a TargetName>) -> String {
    let gone: BTreeSet<&TargetName> = gone.into_iter().collect();
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"gabion lost targets 1").update(pool.as_bytes());
    for name in gone {
        hasher.update(&[0]).update(name.as_bytes());
    }
    hasher.finalize().to_hex()[..12].to_owned()
}

/// Watchdog of one pool. Remembers since when each target is unreachable, and the user's confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watchdog {
    pool: String,
    policy: Policy,
    gone_since: BTreeMap<TargetName, Timestamp>,
    agreed: Option<String>,
}

impl Watchdog {
    /// For the pool of this identity.
    pub fn new(pool: &str, policy: Policy) -> Watchdog {
        Watchdog { pool: pool.to_owned(), policy, gone_since: BTreeMap::new(), agreed: None }
    }

    /// Records the user's confirmation of [`Decision::Ask`].
    pub fn agree(&mut self, agreement: &str) {
        self.agreed = Some(agreement.to_owned());
    }

    /// Decides at time `now`, given the presence of all targets except retired ones.
    pub fn decide(&mut self, now: Timestamp, targets: &[(TargetName, TargetPresence)]) -> Decision {
        let of = |wanted: TargetPresence| -> Vec<TargetName> {
            targets.iter().filter(|(_, presence)| *presence == wanted).map(|(name, _)| name.clone()).collect()
        };
        let (gone, given_up, back) =
            (of(TargetPresence::Gone), of(TargetPresence::GivenUp), of(TargetPresence::Returned));
        self.gone_since.retain(|name, _| gone.contains(name));
        for name in &gone {
            // A clock that was set back must neither shorten nor extend the delay.
            let since = self.gone_since.entry(name.clone()).or_insert(now);
            *since = (*since).min(now);
        }
        let due_at =
            |name: &TargetName| self.gone_since.get(name).map_or(now, |since| *since + self.policy.delay);
        let due: Vec<TargetName> = gone.iter().filter(|name| due_at(name) <= now).cloned().collect();
        if !due.is_empty() {
            let all_gone: Vec<TargetName> = gone.iter().chain(&given_up).cloned().collect();
            let agreement = agreement(&self.pool, &all_gone);
            return match self.policy.too_many(all_gone.len(), targets.len()) {
                Some(why) if self.agreed.as_ref() != Some(&agreement) => {
                    Decision::Ask { gone: all_gone, agreement, why }
                }
                _ => Decision::Rebuild { targets: due },
            };
        }
        // Returned targets may have columns that others lost.
        if !back.is_empty() {
            return Decision::Reconcile { targets: back };
        }
        match gone.iter().map(due_at).min() {
            Some(until) => Decision::Notice { gone, until },
            None => Decision::Nothing,
        }
    }
}

#[cfg(test)]
mod tests;
