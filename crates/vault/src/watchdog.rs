//! What to do about targets that are gone: a decision, made from what was seen and when. Nothing is read or done here.
//!
//! A target that does not answer is noticed at once. It may come back: a cable, a reboot. Only after a delay it is given up and
//! rebuilt. If many are gone at once, something else is the matter (a controller, a power supply, the wrong machine), and moving
//! terabytes about would make it worse: then a person is asked. The answer is bound to the very set of targets that was shown.

use crate::world::Nanos;
use std::collections::{BTreeMap, BTreeSet};

/// When to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// How long a target may be gone before it is given up.
    pub delay: Nanos,
    /// m: so many targets may be gone at once without a question.
    pub redundancy: usize,
    /// The share of all targets, in percent, that may be gone at once without a question.
    pub share: u8,
}

/// How a target looks now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It answers, and what is on it counts.
    Present,
    /// It does not answer.
    Gone,
    /// It does not answer and was given up, and files still miss what it had.
    GivenUp,
    /// It does not answer and was given up, and no file misses it any more.
    Replaced,
    /// It answers again after it was given up or missed changes.
    Back,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// All is well, or everything that can be done was.
    Nothing,
    /// Targets are gone; they are given up at the time that is said unless they come back.
    Notice {
        /// Which.
        gone: Vec<String>,
        /// When the first of them is given up.
        until: Nanos,
    },
    /// Give these targets up, and make anew what they had.
    Rebuild {
        /// Which.
        targets: Vec<String>,
    },
    /// Too many are gone for a machine to decide.
    Ask {
        /// All that are gone.
        gone: Vec<String>,
        /// What a person has to agree to.
        agreement: String,
        /// Why.
        why: TooMany,
    },
    /// Verify what is on targets that came back.
    Reconcile {
        /// Which.
        targets: Vec<String>,
    },
}

/// Why a person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// More are gone than there are redundancy columns.
    #[error("{gone} targets are gone, and files have redundancy for {redundancy}")]
    Redundancy {
        /// How many.
        gone: usize,
        /// m.
        redundancy: usize,
    },
    /// A large share of all is gone.
    #[error("{gone} of {all} targets are gone, more than {share} percent")]
    Share {
        /// How many.
        gone: usize,
        /// Of how many.
        all: usize,
        /// The share that needs no question.
        share: u8,
    },
}

impl Policy {
    /// Whether so many of all targets are gone that a person has to be asked.
    pub fn too_many(&self, gone: usize, all: usize) -> Option<TooMany> {
        if gone > self.redundancy {
            return Some(TooMany::Redundancy { gone, redundancy: self.redundancy });
        }
        let beyond = gone * 100 > all * usize::from(self.share);
        beyond.then_some(TooMany::Share { gone, all, share: self.share })
    }
}

/// What a person agrees to: a short digest of the pool's identity and the names of the targets that are gone. Another target
/// gone is another digest.
pub fn agreement<'a>(pool: &str, gone: impl IntoIterator<Item = &'a str>) -> String {
    let gone: BTreeSet<&str> = gone.into_iter().collect();
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"gabion lost targets 1").update(pool.as_bytes());
    for name in gone {
        hasher.update(&[0]).update(name.as_bytes());
    }
    hasher.finalize().to_hex()[..12].to_owned()
}

/// Watches the targets of one pool. It remembers since when each is gone, and what a person agreed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watchdog {
    pool: String,
    policy: Policy,
    gone_since: BTreeMap<String, Nanos>,
    agreed: Option<String>,
}

impl Watchdog {
    /// For the pool of this identity.
    pub fn new(pool: &str, policy: Policy) -> Watchdog {
        Watchdog { pool: pool.to_owned(), policy, gone_since: BTreeMap::new(), agreed: None }
    }

    /// A person agreed to what [`Decision::Ask`] showed.
    pub fn agree(&mut self, agreement: &str) {
        self.agreed = Some(agreement.to_owned());
    }

    /// What to do, given how all targets look at `now`. Retired targets are not among them.
    pub fn look(&mut self, now: Nanos, targets: &[(String, Sight)]) -> Decision {
        let of = |wanted: Sight| -> Vec<String> {
            targets.iter().filter(|(_, sight)| *sight == wanted).map(|(name, _)| name.clone()).collect()
        };
        let (gone, given_up, back) = (of(Sight::Gone), of(Sight::GivenUp), of(Sight::Back));
        self.gone_since.retain(|name, _| gone.contains(name));
        for name in &gone {
            // A clock that was set back must not shorten the delay, nor make it endless.
            let since = self.gone_since.entry(name.clone()).or_insert(now);
            *since = (*since).min(now);
        }
        let due_at = |name: &String| {
            self.gone_since.get(name).map_or(now, |since| since.saturating_add(self.policy.delay))
        };
        let due: Vec<String> = gone.iter().filter(|name| due_at(name) <= now).cloned().collect();
        if !due.is_empty() {
            let all_gone: Vec<String> = gone.iter().chain(&given_up).cloned().collect();
            let agreement = agreement(&self.pool, all_gone.iter().map(String::as_str));
            return match self.policy.too_many(all_gone.len(), targets.len()) {
                Some(why) if self.agreed.as_ref() != Some(&agreement) => {
                    Decision::Ask { gone: all_gone, agreement, why }
                }
                _ => Decision::Rebuild { targets: due },
            };
        }
        // Who is back may have just what is missing elsewhere.
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
