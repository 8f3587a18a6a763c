//! Local time: times as people read them, and hours of the day in a zone. The zone is that of `TZ` or `/etc/localtime`;
//! if neither can be read, it is UTC.

use crate::world::{Timestamp, moment};
use jiff::tz::TimeZone;

/// A zone in which hours of the day are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// That of this host.
    #[default]
    Local,
    /// UTC.
    Utc,
}

impl Zone {
    fn zone(self) -> TimeZone {
        match self {
            Zone::Local => TimeZone::system(),
            Zone::Utc => TimeZone::UTC,
        }
    }

    /// Hour of the day, from 0 to 23.
    pub fn hour(self, now: Timestamp) -> u8 {
        hour(now, &self.zone())
    }

    /// The first time at or after `now` at which this hour begins.
    pub fn next_begin(self, hour: u8, now: Timestamp) -> Timestamp {
        next_begin(hour, now, &self.zone())
    }
}

/// Date and time of day in the zone of this host, with the offset from UTC.
pub fn local(time: Timestamp) -> String {
    text(time, &TimeZone::system())
}

fn stamp(time: Timestamp) -> jiff::Timestamp {
    // Each count of nanoseconds in 64 bits is a time within the range of the library.
    jiff::Timestamp::from_nanosecond(i128::from(time.nanoseconds())).unwrap_or_default()
}

fn text(time: Timestamp, zone: &TimeZone) -> String {
    let there = stamp(time).to_zoned(zone.clone());
    match there.offset().seconds() {
        0 => moment(time),
        _ => there.strftime("%Y-%m-%d %H:%M:%S %:z").to_string(),
    }
}

fn hour(now: Timestamp, zone: &TimeZone) -> u8 {
    stamp(now).to_zoned(zone.clone()).hour().unsigned_abs()
}

fn next_begin(hour: u8, now: Timestamp, zone: &TimeZone) -> Timestamp {
    let mut date = stamp(now).to_zoned(zone.clone()).date();
    // The hour has passed on this day at most; where clocks are set forward over it, it begins when they are.
    for _ in 0..3 {
        let begin = date.at(i8::try_from(hour).unwrap_or(0), 0, 0, 0).to_zoned(zone.clone());
        let begin = begin.ok().and_then(|begin| i64::try_from(begin.timestamp().as_nanosecond()).ok());
        if let Some(begin) = begin.map(Timestamp::from_nanoseconds).filter(|begin| *begin >= now) {
            return begin;
        }
        let Ok(next) = date.tomorrow() else { break };
        date = next;
    }
    Timestamp::MAX
}

#[cfg(test)]
mod tests {
    use super::{hour, next_begin, text};
    use crate::world::Timestamp;
    use jiff::tz::TimeZone;
    use std::time::Duration;

    const HOUR: Duration = Duration::from_secs(3600);

    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    #[test]
    fn people_read_their_own_time() {
        // 2026-07-01 00:30 UTC
        let summer = Timestamp::from_seconds(1_782_865_800);
        assert_eq!(text(summer, &berlin()), "2026-07-01 02:30:00 +02:00");
        assert_eq!(text(summer, &TimeZone::UTC), "2026-07-01 00:30:00 UTC");
        let newfoundland = TimeZone::posix("NST3:30").unwrap();
        assert_eq!(text(summer, &newfoundland), "2026-06-30 21:00:00 -03:30");
        for extreme in [Timestamp::MIN, Timestamp::MAX] {
            assert!(text(extreme, &berlin()).contains('-'));
        }
    }

    /// Clocks are set forward on 2026-03-29 at 01:00 UTC, and back on 2026-10-25 at 01:00 UTC.
    #[test]
    fn hours_follow_the_clock_on_the_wall() {
        let zone = berlin();
        let midnight = |day: i64| Timestamp::from_seconds(day * 24 * 3600);
        // 2026-03-28 00:00 UTC
        let before = midnight(20_540);
        assert_eq!((hour(before, &zone), hour(before + 30 * HOUR, &zone)), (1, 8));
        assert_eq!(next_begin(22, before, &zone), before + 21 * HOUR);
        assert_eq!(next_begin(22, before + 22 * HOUR, &zone), before + 44 * HOUR, "a day of 23 hours");
        assert_eq!(next_begin(1, before, &zone), before, "it begins now");
        assert_eq!(next_begin(2, before + 24 * HOUR, &zone), before + 25 * HOUR, "there is no two o'clock");
        // 2026-10-24 22:00 UTC
        let autumn = midnight(20_750) + 22 * HOUR;
        assert_eq!(hour(autumn, &zone), 0);
        assert_eq!(next_begin(22, autumn, &zone), autumn + 23 * HOUR, "a day of 25 hours");
        assert_eq!(next_begin(5, Timestamp::MAX - HOUR, &zone), Timestamp::MAX);
    }
}
