//! The clock of the server, as it looks from this host.
//!
//! Callers tell times by the clock of their host, and clocks of hosts differ by any amount. So all times that the
//! server stores, and compares with each other, are by its own clock: they are moved on the way there, and back in
//! answers. Differences up to [`IGNORED`] are left alone.

use gabion_platform::world::{Clock, Stopwatch, Timestamp};
use redis::{Connection, RedisError};
use std::time::Duration;

/// Largest difference in nanoseconds that is ignored. Of two hosts, each may be as far from the server, in either
/// direction: [`CLOCK_TOLERANCE`](crate::CLOCK_TOLERANCE) together.
const IGNORED: i64 = 500_000_000;

/// Age from which the server is asked again: its clock may have been set.
const OLD: Duration = Duration::from_secs(10);

/// Drift of this host's clock against its stopwatch from which it counts as set.
const STEP: Duration = Duration::from_millis(250);

/// Nanoseconds that the server's clock is ahead of this host's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shift(i64);

impl Shift {
    /// A time of this host by the clock of the server.
    pub(super) fn there(self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanoseconds(time.nanoseconds().saturating_add(self.0))
    }

    /// A time of the server by the clock of this host.
    pub(super) fn here(self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanoseconds(time.nanoseconds().saturating_sub(self.0))
    }

    /// What is known after the server said `time`, asked at `before` and heard at `after`.
    fn between(before: Timestamp, time: Timestamp, after: Timestamp) -> Shift {
        let [before, time, after] = [before, time, after].map(Timestamp::nanoseconds);
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
    at: Timestamp,
    since: Stopwatch,
}

impl Compared {
    pub(super) fn ask(connection: &mut Connection) -> Result<Compared, RedisError> {
        let before = Clock::System.now();
        let (seconds, microseconds): (i64, u32) = redis::cmd("TIME").query(connection)?;
        let (since, at) = (Stopwatch::start(), Clock::System.now());
        let time = Timestamp::from_parts(seconds, microseconds.saturating_mul(1000));
        Ok(Compared { shift: Shift::between(before, time, at), at, since })
    }

    /// Whether it may not be true any more.
    pub(super) fn is_old(&self) -> bool {
        let passed = self.since.elapsed();
        let expected = self.at + passed;
        passed >= OLD || Clock::System.now().distance(expected) > STEP
    }
}

#[cfg(test)]
mod tests {
    use super::{Shift, Timestamp};

    const SECOND: i64 = 1_000_000_000;

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
            let [before, server, after] = [before, server, after].map(Timestamp::from_nanoseconds);
            let shift = Shift::between(before, server, after);
            assert_eq!(shift, Shift(difference), "{before:?} {server:?} {after:?}");
        }
        let shift = Shift(300 * SECOND);
        assert_eq!(shift.here(shift.there(Timestamp::EPOCH)), Timestamp::EPOCH);
        assert_eq!(shift.there(Timestamp::MAX), Timestamp::MAX);
        assert_eq!(Shift(-1).there(Timestamp::MIN), Timestamp::MIN);
    }
}
