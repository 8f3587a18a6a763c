//! Batch size of a worker.
//!
//! A batch is the number of entries that the worker processes in [`BATCH`] at the rate of its last batch. Workers
//! thereby share a backlog of any size, a dead worker leaves few claims behind, and many small files still become
//! durable together.

use crate::changelog::MAX_CLAIM;
use crate::world::{Clock, Nanos, SECOND};

/// Target time of a batch: a fraction of a lease.
const BATCH: Nanos = 2 * SECOND;

/// Size of the first batch, before a rate is known.
const FIRST: usize = 16;

/// Maximum growth from one batch to the next, since the next files may be larger.
const GROWTH: usize = 4;

/// While other workers are active, a batch is at most this fraction of the backlog, so that all end at about the same
/// time.
const SHARE: u64 = 8;

/// Batch size of one worker.
pub(super) struct Pace {
    limit: usize,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { limit: FIRST }
    }

    /// Number of entries to claim, given the `unclaimed` entries and those `claimed` by others.
    pub(super) fn limit(&self, threads: usize, unclaimed: u64, claimed: u64) -> usize {
        let share = match claimed {
            0 => MAX_CLAIM,
            _ => usize::try_from(unclaimed / SHARE).unwrap_or(MAX_CLAIM),
        };
        self.limit.min(share).max(threads).clamp(1, MAX_CLAIM)
    }

    /// Updates the rate: `entries` took `time`.
    pub(super) fn took(&mut self, entries: usize, time: Nanos) {
        let most = self.limit.saturating_mul(GROWTH).min(MAX_CLAIM);
        let fits = match time {
            // A clock that stands still or was set back gives no rate.
            ..=0 => most as i128,
            time => entries as i128 * i128::from(BATCH) / i128::from(time),
        };
        self.limit = usize::try_from(fits).unwrap_or(most).clamp(1, most);
    }
}

/// Time limit of one batch.
pub(super) struct Budget<'a> {
    clock: &'a Clock,
    began: Nanos,
}

impl<'a> Budget<'a> {
    pub(super) fn new(clock: &'a Clock) -> Budget<'a> {
        Budget { clock, began: clock.now() }
    }

    pub(super) fn used(&self) -> Nanos {
        self.clock.now().saturating_sub(self.began)
    }

    /// True if jobs that have not begun are to be given back.
    pub(super) fn is_spent(&self) -> bool {
        self.used() > BATCH
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Pace};
    use crate::changelog::MAX_CLAIM;
    use crate::world::SECOND;

    /// Regression: the first worker claimed up to 1024 files, so that with 600 due the second one had nothing to do.
    #[test]
    fn a_batch_is_what_fits_in_its_time() {
        let mut pace = Pace::new();
        assert!(pace.limit(2, 600, 0) <= 16);
        // Fast: the batch grows step by step.
        (0..6).for_each(|_| pace.took(pace.limit(2, 100_000, 0), SECOND / 100));
        assert_eq!(pace.limit(2, 100_000, 0), MAX_CLAIM);
        assert_eq!(pace.limit(2, 80, 1), 10, "others get their share of what is left");
        // Ten files a second.
        pace.took(1024, 1024 * SECOND / 10);
        assert_eq!(pace.limit(2, 100_000, 0) as i64, 10 * BATCH / SECOND);
        // One hour per file: at least one entry per thread.
        pace.took(1, 3600 * SECOND);
        assert_eq!((pace.limit(1, 9, 0), pace.limit(4, 9, 5)), (1, 4));
        // A clock that was set back changes nothing.
        pace.took(1, -SECOND);
        assert_eq!(pace.limit(1, 9, 0), 4);
    }
}
