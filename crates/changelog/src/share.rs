//! Known workers, and the share of a backlog that each of them may claim.
//!
//! Workers that [attend](Ask::attends) are known to the changelog from their first call until they
//! [leave](crate::Changelog::leave) or give no sign of life for [`WORKER_TERM`]. A worker that only holds claims counts
//! as one more, without rights.
//!
//! While several workers are known, one call grants a fraction of what is due, so that all of them end at about the
//! same time. And no attending worker gets more than its equal share of all that was granted and is due since the
//! backlog began: a worker that looks half a second later finds its share untouched, however fast the first one is. A
//! worker whose share is used up is told so ([`Share::is_reserved`]); it waits a little, and if the others do not come
//! it [insists](Ask::insists). A backlog ends when a worker finds nothing due.

use crate::entry::{Claim, WorkerId};
use gabion_platform::world::Timestamp;
use std::time::Duration;

/// Time after its last sign of life at which a worker is forgotten. Its claims have leases of their own.
pub const WORKER_TERM: Duration = Duration::from_secs(10);

/// Age from which a sign of life is renewed: not every call writes.
const FRESH: Duration = Duration::from_millis(2500);

/// One call grants a known worker at most its equal share of what is due, divided by this.
const PARTS: u64 = 4;

/// Most due entries that are counted; more makes no difference to shares.
pub(crate) const MAX_COUNTED: u64 = 1 << 17;

/// What a worker asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The worker.
    pub worker: &'a WorkerId,
    /// Most entries to claim, as in [`claim`](crate::Changelog::claim). With 0 the call only counts what is due.
    pub limit: usize,
    /// Number of entries that the worker processes side by side: it gets as many if its equal share allows it.
    pub threads: usize,
    /// Time of the lease.
    pub lease: Duration,
    /// Let the changelog know this worker.
    pub attends: bool,
    /// Take more than an equal share: the others did not come for theirs.
    pub insists: bool,
    /// Get nothing while the worker's host is draining, or has as many workers at work as its limits allow.
    pub heeds_drain: bool,
}

/// The answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// The claims.
    pub claims: Vec<Claim>,
    /// Number of unclaimed due entries before this call. Counted only if other workers are known or the limit is 0.
    pub due: u64,
    /// Nothing was granted, because what is due is the share of other workers.
    pub is_reserved: bool,
    /// Nothing was granted, because the worker's host is draining.
    pub is_draining: bool,
    /// Others hold claims.
    pub has_others: bool,
    /// Nothing was granted, because as many workers of the host are at work as its limits allow.
    pub is_limited: bool,
}

/// A worker that is known or holds claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWorker {
    /// Its name.
    pub worker: WorkerId,
    /// Time of its first sign of life, or of its oldest lease.
    pub since: Timestamp,
    /// Number of claims that it holds.
    pub claims: u64,
    /// True if it attends, false if only its claims are known.
    pub attends: bool,
    /// True if its host is draining.
    pub is_draining: bool,
}

/// What is kept of an attending worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) since: Timestamp,
    /// Last sign of life.
    pub(crate) seen: Timestamp,
    /// Entries granted since the backlog began.
    pub(crate) granted: u64,
}

impl Presence {
    pub(crate) fn new(now: Timestamp) -> Presence {
        Presence { since: now, seen: now, granted: 0 }
    }

    /// True if the worker is to be forgotten. A sign of life from further in the future than a term was given before
    /// the clock was set back; a worker that lives gives the next one soon.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.seen + WORKER_TERM <= now || self.seen > now + WORKER_TERM
    }

    /// True if a sign of life is to be stored.
    pub(crate) fn is_stale(&self, now: Timestamp) -> bool {
        self.seen > now || self.seen <= now - FRESH
    }
}

/// For a server: the last time of a sign of life that is over at `now`, the last one that is to be renewed, and the
/// last one that may be true.
#[cfg(feature = "redis")]
pub(crate) fn bounds(now: Timestamp) -> [Timestamp; 3] {
    [now - WORKER_TERM, now - FRESH, now + WORKER_TERM]
}

/// Other workers on hosts that are not draining.
#[derive(Debug, Clone, Default)]
pub(crate) struct Others {
    /// What was granted to each attending one.
    pub(crate) granted: Vec<u64>,
    /// Number of those that only hold claims.
    pub(crate) strangers: u64,
}

impl Others {
    pub(crate) fn is_none(&self) -> bool {
        self.granted.is_empty() && self.strangers == 0
    }

    /// Number of entries that may be claimed out of `due` unclaimed ones by a worker to which `mine` were granted. The
    /// same calculation is in `claims.lua`.
    pub(crate) fn allow(&self, ask: &Ask<'_>, mine: u64, due: u64) -> u64 {
        let limit = ask.limit as u64;
        if self.is_none() || limit == 0 {
            return limit;
        }
        let attending = self.granted.len() as u64 + u64::from(ask.attends);
        let all = self.granted.len() as u64 + self.strangers + 1;
        let side_by_side = due.div_ceil(all).min(ask.threads as u64);
        let part = limit.min(due.div_ceil(all * PARTS).max(side_by_side));
        if ask.insists || !ask.attends {
            return part;
        }
        let granted: u64 = self.granted.iter().sum::<u64>() + mine;
        part.min((granted + due).div_ceil(attending).saturating_sub(mine))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, Others};
    use crate::entry::WorkerId;
    use std::time::Duration;

    fn ask(worker: &WorkerId, limit: usize) -> Ask<'_> {
        Ask {
            worker,
            limit,
            threads: 2,
            lease: Duration::from_secs(1),
            attends: true,
            insists: false,
            heeds_drain: true,
        }
    }

    #[test]
    fn one_worker_takes_all_it_asks_for() {
        let worker = WorkerId("one".to_owned());
        assert_eq!(Others::default().allow(&ask(&worker, 1024), 0, 0), 1024);
    }

    /// However the turns of two to five workers fall, none gets more than its share before all others had theirs, and
    /// somebody may always go on.
    #[test]
    fn shares_are_equal_in_any_order_of_turns() {
        let worker = WorkerId("one".to_owned());
        for (workers, backlog, seed) in (2..6)
            .flat_map(|workers| [20, 21, 100, 601].map(|it| (workers, it)))
            .flat_map(|(workers, it)| [1_usize, 7, 1000].map(|seed| (workers, it, seed)))
        {
            let (mut granted, mut due, mut turn) = (vec![0_u64; workers], backlog, seed);
            while due > 0 {
                let rounds_without = (0..workers).all(|at| {
                    let at = (at + turn) % workers;
                    let others = (0..workers).filter(|&it| it != at).map(|it| granted[it]).collect();
                    let others = Others { granted: others, strangers: 0 };
                    let got = others.allow(&ask(&worker, 16), granted[at], due).min(due);
                    granted[at] += got;
                    due -= got;
                    got == 0
                });
                assert!(!rounds_without, "{granted:?}, {due} left");
                // The same worker first several times in a row.
                turn = turn.wrapping_mul(5).wrapping_add(turn / 3);
            }
            let equal = backlog / workers as u64;
            assert!(granted.iter().all(|&it| it <= equal + 1), "{workers} workers: {granted:?}");
        }
    }

    #[test]
    fn a_worker_that_insists_takes_a_part() {
        let worker = WorkerId("one".to_owned());
        let others = Others { granted: vec![0], strangers: 0 };
        assert_eq!(others.allow(&ask(&worker, 16), 10, 10), 0, "the rest belongs to the other one");
        assert_eq!(others.allow(&Ask { insists: true, ..ask(&worker, 16) }, 10, 10), 2);
        let strangers = Others { granted: Vec::new(), strangers: 1 };
        assert_eq!(
            strangers.allow(&ask(&worker, 16), 10, 80),
            10,
            "one that only holds claims reserves nothing"
        );
    }
}
