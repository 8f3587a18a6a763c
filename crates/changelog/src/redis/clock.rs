//! The clock of the server, as it looks from this host.
//!
//! Callers tell times by the clock of their host, and clocks of hosts differ by any amount. So all times that the
//! server stores, and compares with each other, are by its own clock: they are moved on the way there, and back in
//! answers. Differences up to [`IGNORED`] are left alone.

use gabion_platform::world::{Clock, Nanos, SECOND, Stopwatch};
use redis::{Connection, RedisError};
use std::time::Duration;

/// Largest difference that is ignored. Of two hosts, each may be as far from the server, in either direction:
/// [`CLOCK_TOLERANCE`](crate::CLOCK_TOLERANCE) together.
const IGNORED: Nanos = SECOND / 2;

/// Age from which the server is asked again: its clock may have been set.
const OLD: Duration = Duration::from_secs(10);

/// Drift of this host's clock against its stopwatch from which it counts as set.
const STEP: Nanos = SECOND / 4;

/// How far the server's clock is ahead of this host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shift(Nanos);

impl Shift {
    /// A time of this host by the clock of the server.
    pub(super) fn there(self, time: Nanos) -> Nanos {
        time.saturating_add(self.0)
    }

    /// A time of the server by the clock of this host.
    pub(super) fn here(self, time: Nanos) -> Nanos {
        time.saturating_sub(self.0)
    }

    /// What is known after the server said `time`, asked at `before` and heard at `after`.
    fn between(before: Nanos, time: Nanos, after: Nanos) -> Shift {
        let (least, most) = (time.saturating_sub(after), time.saturating_sub(before));
        // A slow answer says little, and then nothing is ignored that it does not exclude.
        match least <= IGNORED && most >= -IGNORED {
            true => Shift(0),
            false => Shift(least / 2 + most / 2),
        }
    }
}

/// A comparison of both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    pub(super) shift: Shift,
    at: Nanos,
    since: Stopwatch,
}

impl Compared {
    pub(super) fn ask(connection: &mut Connection) -> Result<Compared, RedisError> {
        let before = Clock::System.now();
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(connection)?;
        let (since, at) = (Stopwatch::start(), Clock::System.now());
        let time = seconds.saturating_mul(SECOND).saturating_add(micros.saturating_mul(SECOND / 1_000_000));
        Ok(Compared { shift: Shift::between(before, time, at), at, since })
    }

    /// Whether it may not be true any more.
    pub(super) fn is_old(&self) -> bool {
        let passed = self.since.elapsed();
        let expected = gabion_platform::world::after(self.at, passed);
        passed >= OLD || Clock::System.now().abs_diff(expected) > STEP.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::{SECOND, Shift};

    #[test]
    fn a_difference_counts_if_the_answer_proves_it() {
        let cases = [
            // before, server, after, difference
            (100, 100, 100, 0),
            (1000 * SECOND, 1000 * SECOND + SECOND / 2, 1000 * SECOND, 0),
            (1000 * SECOND, 1000 * SECOND - SECOND / 2, 1000 * SECOND, 0),
            (1000 * SECOND, 1300 * SECOND, 1000 * SECOND, 300 * SECOND),
            (1000 * SECOND, 700 * SECOND, 1000 * SECOND, -300 * SECOND),
            // It was asked at 1000 s and answered by 1004 s: the clocks may be equal.
            (1000 * SECOND, 1004 * SECOND, 1004 * SECOND, 0),
            (1000 * SECOND, 1000 * SECOND, 1004 * SECOND, 0),
            (1000 * SECOND, 1010 * SECOND, 1004 * SECOND, 8 * SECOND),
        ];
        for (before, server, after, difference) in cases {
            assert_eq!(Shift::between(before, server, after), Shift(difference), "{before} {server} {after}");
        }
        let shift = Shift(300 * SECOND);
        assert_eq!(shift.here(shift.there(1)), 1);
        assert_eq!((shift.there(i64::MAX), Shift(-1).there(i64::MIN)), (i64::MAX, i64::MIN));
    }
}
