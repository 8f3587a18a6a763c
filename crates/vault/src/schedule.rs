//! When something is due: scrubs by share and period, tries after failures. Decided from times alone; nothing is read or done
//! here.

use crate::world::{Nanos, SECOND};
use std::fmt;
use std::str::FromStr;

const HOUR: Nanos = 3600 * SECOND;
const DAY: Nanos = 24 * HOUR;

/// Hours of the day, UTC: from the first one up to the second, which is not among them. `22-6` goes over midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hours {
    from: u8,
    to: u8,
}

/// Text that names no hours.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} are no hours of a day: write 22-6, from 0 to 24, UTC")]
pub struct NoHours(String);

impl FromStr for Hours {
    type Err = NoHours;

    fn from_str(text: &str) -> Result<Hours, NoHours> {
        let wrong = || NoHours(text.to_owned());
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let hour = |text: &str| text.trim().parse::<u8>().ok().filter(|&hour| hour <= 24);
        let (from, to) = (hour(from).ok_or_else(wrong)?, hour(to).ok_or_else(wrong)?);
        if from % 24 == to % 24 { Err(wrong()) } else { Ok(Hours { from: from % 24, to }) }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.from, self.to)
    }
}

impl Hours {
    /// Whether a time is within.
    pub fn contain(&self, now: Nanos) -> bool {
        let hour = now.rem_euclid(DAY) / HOUR;
        let (from, to) = (Nanos::from(self.from), Nanos::from(self.to));
        if from < to { (from..to).contains(&hour) } else { hour >= from || hour < to }
    }

    /// The first time from `now` on that is within.
    pub fn next(&self, now: Nanos) -> Nanos {
        if self.contain(now) {
            return now;
        }
        let today = now.div_euclid(DAY).saturating_mul(DAY).saturating_add(Nanos::from(self.from) * HOUR);
        if today >= now { today } else { today.saturating_add(DAY) }
    }
}

/// Everything once in a period, a share of it at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Everything once in this time.
    pub every: Nanos,
    /// The share that one run takes, in percent.
    pub percent: u8,
    /// When a run may be under way; always if nothing is said.
    pub hours: Option<Hours>,
}

/// Shares too small for all to be done in the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// With hours there is one run a day.
    #[error("with hours there is one run a day: in {days} days all is done with {percent} percent or more")]
    Share {
        /// The period, in whole days.
        days: i64,
        /// The least share.
        percent: u8,
    },
    /// Hours come once a day.
    #[error("hours come once a day: everything more often than daily is not possible with them")]
    Often,
    /// A share of nothing, or of more than there is.
    #[error("a share is from 1 to 100 percent")]
    NoShare,
}

impl Rhythm {
    /// Checks that everything is done within the period. Without a share, runs are a day apart, or as long as the period if that
    /// is shorter.
    ///
    /// # Errors
    /// See [`Impossible`].
    pub fn new(every: Nanos, percent: Option<u8>, hours: Option<Hours>) -> Result<Rhythm, Impossible> {
        let every = every.max(SECOND);
        let daily = 100_i128 * i128::from(DAY);
        let daily = u8::try_from((daily + i128::from(every) - 1) / i128::from(every)).unwrap_or(100);
        let daily = daily.clamp(1, 100);
        let percent = percent.unwrap_or(daily);
        if !(1..=100).contains(&percent) {
            return Err(Impossible::NoShare);
        }
        if hours.is_some() && every < DAY {
            return Err(Impossible::Often);
        }
        if hours.is_some() && percent < daily {
            return Err(Impossible::Share { days: every / DAY, percent: daily });
        }
        Ok(Rhythm { every, percent, hours })
    }

    /// The time from the beginning of one run to that of the next.
    pub fn interval(&self) -> Nanos {
        ((i128::from(self.every) * i128::from(self.percent) / 100) as Nanos).max(SECOND)
    }

    /// When the next run begins, `now` or later; `last` is when the last one that came to its end began.
    pub fn next(&self, last: Option<Nanos>, now: Nanos) -> Nanos {
        // One that lies ahead was before a clock was set back: it must not put scrubs off for years.
        let due = last.map_or(now, |last| last.min(now).saturating_add(self.interval())).max(now);
        self.hours.map_or(due, |hours| hours.next(due))
    }

    /// Whether a run may be under way.
    pub fn may_run(&self, now: Nanos) -> bool {
        self.hours.is_none_or(|hours| hours.contain(now))
    }
}

/// When to try again what failed: after a pause that doubles each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: Nanos,
    longest: Nanos,
    failures: u32,
    next: Nanos,
}

impl Backoff {
    /// The first pause and the longest.
    pub fn new(first: Nanos, longest: Nanos) -> Backoff {
        Backoff { first, longest, failures: 0, next: Nanos::MIN }
    }

    /// It failed. When to try again.
    pub fn failed(&mut self, now: Nanos) -> Nanos {
        let pause = self.first.saturating_mul(1 << self.failures.min(30)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        self.next = now.saturating_add(pause);
        self.next
    }

    /// It succeeded: whatever fails next is tried again soon.
    pub fn succeeded(&mut self) {
        (self.failures, self.next) = (0, Nanos::MIN);
    }

    /// Whether the pause is over. A clock that was set back does not make it longer than it is at most.
    pub fn is_over(&self, now: Nanos) -> bool {
        now >= self.next || self.next.saturating_sub(now) > self.longest
    }

    /// How often it failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests;
