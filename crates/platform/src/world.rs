//! Clock, random identities and names of host and process: the only access to time and randomness, so that tests can
//! set the clock.

use std::cell::RefCell;
use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);

/// A point in time, in nanoseconds since 1970, UTC; files may be older. Arithmetic saturates. Two points have no sum,
/// and their difference is a [`Duration`]; units appear only where bytes, SQL or other programs need a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The begin of 1970.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Before all others.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// After all others.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// From nanoseconds since 1970.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Timestamp {
        Timestamp(nanoseconds)
    }

    /// From seconds since 1970.
    pub const fn from_seconds(seconds: i64) -> Timestamp {
        Timestamp::from_parts(seconds, 0)
    }

    /// From seconds since 1970 and nanoseconds after them.
    pub const fn from_parts(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp(seconds.saturating_mul(NANOSECONDS).saturating_add(nanoseconds as i64))
    }

    /// Nanoseconds since 1970.
    pub const fn nanoseconds(self) -> i64 {
        self.0
    }

    /// Seconds since 1970, rounded down, and nanoseconds after them.
    pub const fn parts(self) -> (i64, u32) {
        (self.0.div_euclid(NANOSECONDS), self.0.rem_euclid(NANOSECONDS) as u32)
    }

    /// Time that has passed since an earlier point; zero if that is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        if self > earlier { self.distance(earlier) } else { Duration::ZERO }
    }

    /// Time between two points, whichever is earlier.
    pub fn distance(self, other: Timestamp) -> Duration {
        Duration::from_nanos(self.0.abs_diff(other.0))
    }
}

/// Nanoseconds in a second.
const NANOSECONDS: i64 = 1_000_000_000;

fn saturating_nanoseconds(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(saturating_nanoseconds(span)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(saturating_nanoseconds(span)))
    }
}

#[cfg(feature = "sqlite")]
impl rusqlite::ToSql for Timestamp {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

#[cfg(feature = "sqlite")]
impl rusqlite::types::FromSql for Timestamp {
    fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Timestamp> {
        i64::column_result(value).map(Timestamp)
    }
}

/// A clock; cheap to clone.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The time of day. It may jump in either direction, so nothing that must not be lost may depend on it.
    #[default]
    System,
    /// Stands still until it is set; all clones show the same time.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `now` until it is [set](Clock::set).
    pub fn manual(now: Timestamp) -> Clock {
        Clock::Manual(Arc::new(AtomicI64::new(now.0)))
    }

    /// The current time.
    #[expect(clippy::disallowed_methods, reason = "all other code takes a `Clock`")]
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
                Ok(since) => Timestamp::EPOCH + since,
                Err(before) => Timestamp::EPOCH - before.duration(),
            },
            Clock::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Sets a manual clock; the time of day cannot be set.
    pub fn set(&self, now: Timestamp) {
        if let Clock::Manual(clock) = self {
            clock.store(now.0, Ordering::SeqCst);
        }
    }
}

/// Monotonic clock for durations.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch(Instant::now())
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    /// Seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

/// Sixteen random bytes, for identities that are unique across machines.
///
/// # Errors
/// Those of the operating system's random source.
pub fn unique_id() -> std::io::Result<[u8; 16]> {
    /// Random numbers of a thread: some are fetched at once, since each small file takes two.
    struct Stock([u8; 512], usize);
    thread_local! {
        static STOCK: RefCell<Stock> = const { RefCell::new(Stock([0; 512], 512)) };
    }
    STOCK.with_borrow_mut(|Stock(bytes, used)| {
        if *used == bytes.len() {
            getrandom::fill(bytes).map_err(std::io::Error::from)?;
            *used = 0;
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[*used..*used + 16]);
        *used += id.len();
        Ok(id)
    })
}

/// Host name of this machine.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's identifier of this boot; empty if it gives none.
pub fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    let read = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    BOOT.get_or_init(|| read().trim_end().to_owned())
}

/// Id of this process.
pub fn process() -> u32 {
    std::process::id()
}

/// A time as text: date and time of day, UTC.
pub fn moment(time: Timestamp) -> String {
    let (seconds, _) = time.parts();
    let (days, second) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    // Days since 0000-03-01, so that the leap day ends the year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Parses a time from the name of a directory: [`moment`] with dashes, and optionally a number after it.
pub fn moment_from(name: &[u8]) -> Option<Timestamp> {
    let parts: Vec<&str> = std::str::from_utf8(name).ok()?.split('-').collect();
    let number = |at: usize| parts.get(at).and_then(|part| part.parse::<i64>().ok());
    let (year, month, day) = (number(0)?, number(1)?, number(2)?);
    let (hour, minute, second) = (number(3)?, number(4)?, number(5)?);
    if parts.get(6) != Some(&"UTC") || !(1..=9999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    let (year, shifted) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * shifted + 2) / 5 + day - 1 - 719_468;
    Some(Timestamp::from_seconds(
        ((days * 24 + hour) * 60 + minute).saturating_mul(60).saturating_add(second),
    ))
}

#[cfg(test)]
mod tests {
    use super::{SECOND, Timestamp, moment, moment_from};
    use std::time::Duration;

    #[test]
    fn names_of_moments_are_read_back() {
        for day in 0..40_000 {
            let time = Timestamp::from_seconds(day * 86_400 + day % 86_400);
            let name = moment(time).replace([' ', ':'], "-");
            assert_eq!(moment_from(name.as_bytes()), Some(time), "{name}");
            assert_eq!(moment_from(format!("{name}-2").as_bytes()), Some(time), "{name}");
        }
        for name in ["", "notes", "2026-11-15", "2026-13-15-12-20-47-UTC"] {
            assert_eq!(moment_from(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment(Timestamp::EPOCH), "1970-01-01 00:00:00 UTC");
        assert_eq!(moment(Timestamp::from_seconds(951_782_400)), "2000-02-29 00:00:00 UTC");
        assert_eq!(moment(Timestamp::from_seconds(1_709_251_199)), "2024-02-29 23:59:59 UTC");
        assert_eq!(moment(Timestamp::from_seconds(-1)), "1969-12-31 23:59:59 UTC");
        assert_eq!(moment(Timestamp::from_seconds(4_107_542_400)), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn arithmetic_saturates_and_spans_are_never_negative() {
        let time = Timestamp::from_nanoseconds;
        assert_eq!((time(5) + SECOND, time(5) - SECOND), (time(1_000_000_005), time(-999_999_995)));
        assert_eq!(
            (time(7).since(time(5)), time(5).since(time(7))),
            (Duration::from_nanos(2), Duration::ZERO)
        );
        assert_eq!(time(5).distance(time(7)), Duration::from_nanos(2));
        assert_eq!(Timestamp::MAX.since(Timestamp::MIN), Duration::from_nanos(u64::MAX));
        assert_eq!(
            (Timestamp::MAX + SECOND, Timestamp::MIN - Duration::MAX),
            (Timestamp::MAX, Timestamp::MIN)
        );
        assert_eq!(Timestamp::from_seconds(i64::MAX), Timestamp::MAX);
    }

    #[test]
    fn parts_are_those_of_a_timespec() {
        for (nanoseconds, parts) in [(0, (0, 0)), (-1, (-1, 999_999_999)), (1_500_000_000, (1, 500_000_000))]
        {
            let time = Timestamp::from_nanoseconds(nanoseconds);
            assert_eq!((time.parts(), Timestamp::from_parts(parts.0, parts.1)), (parts, time));
        }
    }
}
