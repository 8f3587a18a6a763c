//! Backlog: log that is not folded yet, and the pauses that keep it bounded.
//!
//! A writer that records faster than folds go has to be slowed down. Stopping it at a limit would make some calls
//! wait for a whole fold. Instead, from [`EASY_LOG_BYTES`] on every commit is followed by a pause that grows with the
//! backlog. Half way to [`MAX_LOG_BYTES`] the pauses balance recording and folding.

use std::time::Duration;

/// Bytes of log after which it is folded although nobody asked, and of one fold. Smaller: every path is written more
/// often; larger: the first claim waits longer.
pub const FOLD_BYTES: usize = 8 << 20;

/// Commits after which the log is folded although it is short: each leaves some pages in SQLite's write-ahead log.
pub const FOLD_COMMITS: usize = 2000;

/// Bytes of log that wait for their fold before commits are slowed down: two folds, one under way and one to come.
pub const EASY_LOG_BYTES: usize = 2 * FOLD_BYTES;

/// Bytes of log that this process lets wait for their fold; recording stops when there are more.
pub const MAX_LOG_BYTES: usize = 64 << 20;

/// Length of the log, as far as this process knows.
#[derive(Default)]
pub(super) struct Backlog {
    /// Bytes that are not folded.
    pub(super) bytes: usize,
    /// Commits since the last fold began.
    pub(super) commits: usize,
    /// Bytes that folds take per second; 0 as long as there was none.
    speed: f64,
    /// The last fold failed, so that nothing waits for the next one.
    pub(super) stuck: bool,
    /// The fold thread has ended.
    pub(super) closed: bool,
}

impl Backlog {
    /// Whether it is time to fold.
    pub(super) fn is_long(&self) -> bool {
        self.bytes >= FOLD_BYTES || self.commits >= FOLD_COMMITS
    }

    /// True if recording has to stop until some of it is folded.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MAX_LOG_BYTES && !self.stuck && !self.closed
    }

    /// How long to wait after so many bytes were committed.
    pub(super) fn pause(&self, bytes: usize) -> Duration {
        let over = self.bytes.saturating_sub(EASY_LOG_BYTES) as f64;
        if over == 0.0 || self.speed == 0.0 || self.stuck || self.closed {
            return Duration::ZERO;
        }
        let share = (over / (MAX_LOG_BYTES - EASY_LOG_BYTES) as f64).min(1.0);
        Duration::from_secs_f64((2.0 * share * bytes as f64 / self.speed).min(1.0))
    }

    /// Notes a fold that went well.
    pub(super) fn folded(&mut self, bytes: usize, time: Duration) {
        self.bytes = self.bytes.saturating_sub(bytes);
        // Short ones say little of long ones.
        if bytes >= FOLD_BYTES / 2 && !time.is_zero() {
            let speed = bytes as f64 / time.as_secs_f64();
            self.speed = if self.speed == 0.0 { speed } else { (self.speed + speed) / 2.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backlog, EASY_LOG_BYTES, FOLD_BYTES, MAX_LOG_BYTES};
    use std::time::Duration;

    #[test]
    fn a_writer_that_is_faster_than_folds_is_slowed_to_their_speed() {
        // Commits of 256 KiB take no time at all, folds go at 16 MiB/s.
        let (batch, mut now, mut fold_ends) = (256 << 10, 0.0, 0.5);
        let mut backlog = Backlog::default();
        backlog.folded(FOLD_BYTES, Duration::from_millis(500));
        let (mut longest, mut let_in) = (0.0f64, 0.0);
        while now < 60.0 {
            let pause = backlog.pause(batch).as_secs_f64().max(1e-4);
            longest = longest.max(pause);
            now += pause;
            backlog.bytes += batch;
            let_in += batch as f64;
            while fold_ends < now && backlog.bytes >= FOLD_BYTES {
                backlog.folded(FOLD_BYTES, Duration::from_millis(500));
                fold_ends += 0.5;
            }
            assert!(!backlog.is_full(), "after {now} s");
        }
        let rate = let_in / now / f64::from(1 << 20);
        assert!((15.0..18.0).contains(&rate), "{rate} MiB/s");
        // 256 KiB at 16 MiB/s are 16 ms; at most twice that.
        assert!(longest < 0.033, "{longest} s");
    }

    #[test]
    fn there_is_no_pause_without_folds() {
        let mut backlog = Backlog { bytes: MAX_LOG_BYTES - 1, ..Backlog::default() };
        assert_eq!(backlog.pause(1 << 20), Duration::ZERO, "nothing is known of folds yet");
        backlog.folded(0, Duration::from_secs(1));
        assert_eq!(backlog.pause(1 << 20), Duration::ZERO);
        backlog.folded(FOLD_BYTES, Duration::from_secs(1));
        assert!(backlog.pause(1 << 20) > Duration::from_millis(50));
        backlog.stuck = true;
        assert_eq!(backlog.pause(1 << 20), Duration::ZERO);
        backlog = Backlog { bytes: EASY_LOG_BYTES, speed: 1.0, ..Backlog::default() };
        assert_eq!(backlog.pause(1 << 20), Duration::ZERO);
    }
}
