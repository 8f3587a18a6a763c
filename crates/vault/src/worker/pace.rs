//! Batch size of a worker.
//!
//! A batch is the number of entries that the worker processes in [`BATCH`] at the rate of its last batch. Workers
//! thereby share a backlog of any size, a dead worker leaves few claims behind, and many small files still become
//! durable together. While other workers are known, the changelog grants a share of that.

use crate::changelog::MAX_CLAIM;
use crate::world::{Clock, Stopwatch, Timestamp};
use std::time::Duration;

/// Target time of a batch: a fraction of a lease.
const BATCH: Duration = Duration::from_secs(2);

/// Size of the first batch, before a rate is known.
const FIRST: usize = 16;

/// Size of the first batch of an attending worker: another one may be about to start.
const FIRST_ATTENDING: usize = 4;

/// Maximum growth from one batch to the next, since the next files may be larger.
const GROWTH: usize = 4;

/// Batch size of one worker.
pub(super) struct Pace {
    limit: usize,
}

impl Pace {
    pub(super) fn new(attends: bool) -> Pace {
        Pace { limit: if attends { FIRST_ATTENDING } else { FIRST } }
    }

    /// Number of entries to ask for.
    pub(super) fn limit(&self, threads: usize) -> usize {
        self.limit.max(threads).clamp(1, MAX_CLAIM)
    }

    /// Updates the rate: `entries` took `time`.
    pub(super) fn took(&mut self, entries: usize, time: Duration) {
        let most = self.limit.saturating_mul(GROWTH).min(MAX_CLAIM);
        let fits = match time.as_nanos() {
            // A clock that stands still or was set back gives no rate.
            0 => most as u128,
            time => entries as u128 * BATCH.as_nanos() / time,
        };
        self.limit = usize::try_from(fits).unwrap_or(most).clamp(1, most);
    }
}

/// Time limit of one batch.
pub(super) struct Budget<'a> {
    clock: &'a Clock,
    began: Timestamp,
}

impl<'a> Budget<'a> {
    pub(super) fn new(clock: &'a Clock) -> Budget<'a> {
        Budget { clock, began: clock.now() }
    }

    pub(super) fn used(&self) -> Duration {
        self.clock.now().since(self.began)
    }

    /// True if jobs that have not begun are to be given back.
    pub(super) fn is_spent(&self) -> bool {
        self.used() > BATCH
    }
}

/// How long a worker leaves the shares of others alone, at least two rounds of a worker that follows.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Interval at which it asks again meanwhile.
const RESERVED_POLL: Duration = Duration::from_millis(50);

/// Patience with workers that do not come for their shares, once per backlog.
#[derive(Default)]
pub(super) struct Patience {
    since: Option<Stopwatch>,
    is_over: bool,
}

impl Patience {
    /// With a manual clock nobody waits.
    pub(super) fn is_over(&self, clock: &Clock) -> bool {
        self.is_over || matches!(clock, Clock::Manual(_))
    }

    /// True if this wait has just begun.
    pub(super) fn is_new(&self) -> bool {
        self.since.is_none()
    }

    pub(super) fn wait(&mut self) {
        let since = self.since.get_or_insert_with(Stopwatch::start);
        std::thread::sleep(RESERVED_POLL);
        self.is_over = since.elapsed() >= PATIENCE;
    }

    /// Claims were granted.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, Pace};
    use crate::changelog::MAX_CLAIM;
    use crate::world::SECOND;
    use std::time::Duration;

    /// Regression: the first worker claimed up to 1024 files, so that with 600 due the second one had nothing to do.
    #[test]
    fn a_batch_is_what_fits_in_its_time() {
        let mut pace = Pace::new(false);
        assert!(pace.limit(2) <= 16);
        // Fast: the batch grows step by step.
        (0..6).for_each(|_| pace.took(pace.limit(2), SECOND / 100));
        assert_eq!(pace.limit(2), MAX_CLAIM);
        // Ten files a second.
        pace.took(1024, 1024 * SECOND / 10);
        assert_eq!(pace.limit(2) as u64, 10 * BATCH.as_secs());
        // One hour per file: at least one entry per thread.
        pace.took(1, 3600 * SECOND);
        assert_eq!((pace.limit(1), pace.limit(4)), (1, 4));
        // A clock that was set back changes nothing.
        pace.took(1, Duration::ZERO);
        assert_eq!(pace.limit(1), 4);
    }
}
