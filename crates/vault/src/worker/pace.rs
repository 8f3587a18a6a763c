//! How much a worker claims at once.
//!
//! A batch is what the worker does in [`BATCH`] at the rate at which it did the last one, so that workers share a backlog of any size, and what a
//! worker that dies leaves behind is little. Many small files still become durable together.

use super::Worker;
use crate::changelog::MAX_CLAIM;
use crate::world::{Nanos, SECOND};

/// Time that a batch shall take: a fraction of a lease.
const BATCH: Nanos = 2 * SECOND;

/// Entries of the first batch, when no rate is known.
const FIRST: usize = 16;

/// Most by which a batch is larger than the one before: its files may be larger as well.
const GROWTH: usize = 4;

/// While others work, a batch is at most this part of what is left: the last ones end at about the same time.
const SHARE: u64 = 8;

/// The pace of one worker.
pub(super) struct Pace {
    limit: usize,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { limit: FIRST }
    }

    /// Entries to claim, if `unclaimed` are left beside the `claimed` ones of others.
    pub(super) fn limit(&self, threads: usize, unclaimed: u64, claimed: u64) -> usize {
        let share = match claimed {
            0 => MAX_CLAIM,
            _ => usize::try_from(unclaimed / SHARE).unwrap_or(MAX_CLAIM),
        };
        self.limit.min(share).max(threads).clamp(1, MAX_CLAIM)
    }

    /// So many entries took so long.
    pub(super) fn took(&mut self, entries: usize, time: Nanos) {
        let most = self.limit.saturating_mul(GROWTH).min(MAX_CLAIM);
        let fits = match time {
            // By a clock that stands still or was set back, it took no time.
            ..=0 => most as i128,
            time => entries as i128 * i128::from(BATCH) / i128::from(time),
        };
        self.limit = usize::try_from(fits).unwrap_or(most).clamp(1, most);
    }
}

/// The time of one batch.
pub(super) struct Budget<'a> {
    worker: &'a Worker<'a>,
    began: Nanos,
}

impl<'a> Budget<'a> {
    pub(super) fn new(worker: &'a Worker<'a>) -> Budget<'a> {
        Budget { worker, began: worker.clock.now() }
    }

    pub(super) fn used(&self) -> Nanos {
        self.worker.clock.now().saturating_sub(self.began)
    }

    /// Whether what is not begun yet is left to others.
    pub(super) fn is_spent(&self) -> bool {
        self.used() > BATCH
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Pace};
    use crate::changelog::MAX_CLAIM;
    use crate::world::SECOND;

    /// The first worker claimed up to 1024 files, so with 600 due the second one had nothing to do.
    #[test]
    fn a_batch_is_what_fits_in_its_time() {
        let mut pace = Pace::new();
        assert!(pace.limit(2, 600, 0) <= 16);
        // Fast: larger step by step.
        (0..6).for_each(|_| pace.took(pace.limit(2, 100_000, 0), SECOND / 100));
        assert_eq!(pace.limit(2, 100_000, 0), MAX_CLAIM);
        assert_eq!(pace.limit(2, 80, 1), 10, "others get their share of what is left");
        // Ten files a second.
        pace.took(1024, 1024 * SECOND / 10);
        assert_eq!(pace.limit(2, 100_000, 0) as i64, 10 * BATCH / SECOND);
        // A file of an hour: at least one for each thread.
        pace.took(1, 3600 * SECOND);
        assert_eq!((pace.limit(1, 9, 0), pace.limit(4, 9, 5)), (1, 4));
        // A clock that was set back says nothing.
        pace.took(1, -SECOND);
        assert_eq!(pace.limit(1, 9, 0), 4);
    }
}
