//! Schedules: scrubs by share and period, retries after failures. Computed from times only.

use crate::local_time::Zone;
use crate::world::{SECOND, Timestamp};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Hours of the day, in local time unless `UTC` follows: from the first up to, not including, the second. `22-6`
/// includes midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    from: u8,
    to: u8,
    zone: Zone,
}

/// Error for text that is not a range of hours.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a range of hours: write for example 22-6, from 0 to 24, or 22-6 UTC")]
pub struct NoHours(String);

impl FromStr for Hours {
    type Err = NoHours;

    fn from_str(text: &str) -> Result<Hours, NoHours> {
        let wrong = || NoHours(text.to_owned());
        let (range, zone) = match text.trim().strip_suffix("UTC") {
            Some(range) => (range, Zone::Utc),
            None => (text, Zone::Local),
        };
        let (from, to) = range.split_once('-').ok_or_else(wrong)?;
        let hour = |text: &str| text.trim().parse::<u8>().ok().filter(|&hour| hour <= 24);
        let (from, to) = (hour(from).ok_or_else(wrong)?, hour(to).ok_or_else(wrong)?);
        if from % 24 == to % 24 { Err(wrong()) } else { Ok(Hours { from: from % 24, to, zone }) }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)?;
        if self.zone == Zone::Utc { f.write_str(" UTC") } else { Ok(()) }
    }
}

impl Hours {
    /// True if a time is within the hours.
    pub fn contain(&self, now: Timestamp) -> bool {
        let (hour, from, to) = (self.zone.hour(now), self.from, self.to);
        if from < to { (from..to).contains(&hour) } else { hour >= from || hour < to }
    }

    /// The first time at or after `now` within the hours.
    pub fn next(&self, now: Timestamp) -> Timestamp {
        if self.contain(now) {
            return now;
        }
        self.zone.next_begin(self.from, now)
    }
}

/// Schedule that covers everything once per period, one share at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Period.
    pub every: Duration,
    /// Share of one run in percent.
    pub percent: u8,
    /// Hours in which a run may be active; none for no limit.
    pub hours: Option<Hours>,
}

/// Error for a share that is too small to cover everything within the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// With hours there is one run per day.
    #[error(
        "with hours there is one run per day: for a period of {days} days, a run must cover at least {percent} percent"
    )]
    Share {
        /// Period in whole days.
        days: u64,
        /// Smallest possible share.
        percent: u8,
    },
    /// Hours allow one run per day at most.
    #[error("hours allow one run per day: the period must be at least one day")]
    Often,
    /// A share of 0 or above 100 percent.
    #[error("the share must be from 1 to 100 percent")]
    NoShare,
}

impl Rhythm {
    /// Checks that the period can be met. Without a share, runs are one day apart, or one period if that is shorter.
    ///
    /// # Errors
    /// See [`Impossible`].
    pub fn new(every: Duration, percent: Option<u8>, hours: Option<Hours>) -> Result<Rhythm, Impossible> {
        let every = every.max(SECOND);
        let daily = u8::try_from((100 * DAY.as_nanos()).div_ceil(every.as_nanos())).unwrap_or(100);
        let daily = daily.clamp(1, 100);
        let percent = percent.unwrap_or(daily);
        if !(1..=100).contains(&percent) {
            return Err(Impossible::NoShare);
        }
        if hours.is_some() && every < DAY {
            return Err(Impossible::Often);
        }
        if hours.is_some() && percent < daily {
            return Err(Impossible::Share { days: every.as_secs() / DAY.as_secs(), percent: daily });
        }
        Ok(Rhythm { every, percent, hours })
    }

    /// Time between the starts of two runs.
    pub fn interval(&self) -> Duration {
        (self.every.saturating_mul(u32::from(self.percent)) / 100).max(SECOND)
    }

    /// Start of the next run, `now` or later; `last` is the start of the last completed run.
    pub fn next(&self, last: Option<Timestamp>, now: Timestamp) -> Timestamp {
        // A time in the future is from before the clock was set back and must not defer scrubs.
        let due = last.map_or(now, |last| last.min(now) + self.interval()).max(now);
        self.hours.map_or(due, |hours| hours.next(due))
    }

    /// True if a run may be active.
    pub fn may_run(&self, now: Timestamp) -> bool {
        self.hours.is_none_or(|hours| hours.contain(now))
    }
}

/// Retry times after failures: the pause doubles each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    next: Timestamp,
}

impl Backoff {
    /// With the first and the longest pause.
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff { first, longest, failures: 0, next: Timestamp::MIN }
    }

    /// Records a failure. Returns the time of the retry.
    pub fn failed(&mut self, now: Timestamp) -> Timestamp {
        let pause = self.first.saturating_mul(1 << self.failures.min(30)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        self.next = now + pause;
        self.next
    }

    /// Records a success: the pause starts again with its first length.
    pub fn succeeded(&mut self) {
        (self.failures, self.next) = (0, Timestamp::MIN);
    }

    /// True if the pause has passed. A clock that was set back does not extend it beyond its maximum.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.next || self.next.since(now) > self.longest
    }

    /// Number of consecutive failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests;
