//! Tests of schedules at given times.

use super::{Backoff, DAY, Hours, Impossible, Rhythm};
use crate::world::{SECOND, Timestamp};
use proptest::prelude::{any, prop_assert, prop_assume, proptest};

/// Seconds in an hour.
const HOUR: i64 = 3600;

fn hours(text: &str) -> Option<Hours> {
    text.parse().ok()
}

#[test]
fn hours_go_over_midnight() {
    let night = hours("22-6 UTC").unwrap();
    for (hour, within) in [(21, false), (22, true), (23, true), (0, true), (5, true), (6, false), (12, false)]
    {
        assert_eq!(night.contain(Timestamp::from_seconds((3 * 24 + hour) * HOUR)), within, "{hour}");
    }
    assert_eq!(night.next(Timestamp::from_seconds(7 * HOUR)), Timestamp::from_seconds(22 * HOUR));
    assert_eq!(night.next(Timestamp::from_parts(23 * HOUR, 5)), Timestamp::from_parts(23 * HOUR, 5));
    let morning = hours("1-5UTC").unwrap();
    assert_eq!(morning.next(Timestamp::from_seconds(5 * HOUR)), Timestamp::from_seconds(25 * HOUR));
    let next = morning.next(Timestamp::from_seconds(-HOUR));
    assert_eq!(next, Timestamp::from_seconds(HOUR), "times before 1970 are times");
    let evening = hours("20-24 UTC").unwrap();
    assert!(evening.contain(Timestamp::from_seconds(23 * HOUR)) && !evening.contain(Timestamp::EPOCH));
    assert_eq!(night.to_string(), "22-6 UTC");
    assert_eq!(hours("22-6").unwrap().to_string(), "22-6", "local time");
    for wrong in ["", "UTC", "22-6 CET", "5", "5-5", "0-24", "25-3", "a-b", "3-", "-3", "1-2-3"] {
        assert!(hours(wrong).is_none(), "{wrong}");
    }
}

#[test]
fn shares_add_up_to_everything_within_the_period() {
    for days in 1..400 {
        let rhythm = Rhythm::new(days * DAY, None, hours("2-4")).unwrap();
        let runs = u32::from(100_u8.div_ceil(rhythm.percent));
        assert!(runs <= days, "{days} days: {rhythm:?}");
        assert!(rhythm.interval() * runs <= days * DAY + rhythm.interval());
    }
    assert_eq!(Rhythm::new(10 * DAY, None, None).unwrap().percent, 10);
    assert_eq!(Rhythm::new(6 * SECOND, None, None).unwrap().interval(), 6 * SECOND);
    assert_eq!(Rhythm::new(DAY, Some(0), None), Err(Impossible::NoShare));
    assert_eq!(Rhythm::new(DAY, Some(101), None), Err(Impossible::NoShare));
    assert_eq!(Rhythm::new(DAY / 2, None, hours("1-2")), Err(Impossible::Often));
    let few = Rhythm::new(10 * DAY, Some(5), hours("1-2"));
    assert_eq!(few, Err(Impossible::Share { days: 10, percent: 10 }));
}

#[test]
fn a_run_follows_the_beginning_of_the_last_one() {
    let rhythm = Rhythm::new(10 * DAY, Some(10), None).unwrap();
    assert_eq!(rhythm.next(None, Timestamp::from_nanoseconds(5)), Timestamp::from_nanoseconds(5));
    assert_eq!(
        rhythm.next(Some(Timestamp::from_nanoseconds(5)), Timestamp::from_nanoseconds(6)),
        Timestamp::from_nanoseconds(5) + DAY
    );
    let third = Timestamp::EPOCH + 3 * DAY;
    assert_eq!(
        rhythm.next(Some(Timestamp::from_nanoseconds(5)), third),
        third,
        "one run makes up for several that were missed"
    );
    assert_eq!(
        rhythm.next(Some(Timestamp::EPOCH + 100 * DAY), Timestamp::from_nanoseconds(7)),
        Timestamp::from_nanoseconds(7) + DAY,
        "the clock was set back"
    );
    let night = Rhythm::new(10 * DAY, Some(10), hours("1-5")).unwrap();
    assert_eq!(
        night.next(Some(Timestamp::from_seconds(2 * HOUR)), Timestamp::from_seconds(3 * HOUR)),
        Timestamp::from_seconds(26 * HOUR)
    );
    assert_eq!(night.next(None, Timestamp::from_seconds(6 * HOUR)), Timestamp::from_seconds(25 * HOUR));
    assert!(
        night.may_run(Timestamp::from_seconds(HOUR)) && !night.may_run(Timestamp::from_seconds(5 * HOUR))
    );
}

#[test]
fn pauses_double_up_to_a_bound() {
    let mut backoff = Backoff::new(2 * SECOND, 60 * SECOND);
    assert!(backoff.is_over(Timestamp::EPOCH));
    let failure = Timestamp::from_seconds(1000);
    let pauses: Vec<u64> = (0..7).map(|_| backoff.failed(failure).since(failure).as_secs()).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    assert!(!backoff.is_over(failure + 59 * SECOND) && backoff.is_over(failure + 60 * SECOND));
    assert!(backoff.is_over(Timestamp::EPOCH), "the clock was set back");
    backoff.succeeded();
    assert!(backoff.is_over(Timestamp::EPOCH) && backoff.failures() == 0);
}

proptest! {
    /// For any times the next run is not in the past and is within the hours.
    #[test]
    fn the_next_run_is_when_it_may_be(
        days in 1_u32..500, from in 0_u8..24, to in 0_u8..24, last in any::<Option<i32>>(), now in any::<i32>()
    ) {
        prop_assume!(from != to);
        let rhythm = Rhythm::new(days * DAY, None, hours(&format!("{from}-{to}"))).unwrap();
        let (last, now) = (last.map(|last| Timestamp::from_seconds(last.into())), Timestamp::from_seconds(now.into()));
        let next = rhythm.next(last, now);
        prop_assert!(next >= now && rhythm.may_run(next));
        prop_assert!(next <= now + rhythm.interval() + DAY);
    }
}
