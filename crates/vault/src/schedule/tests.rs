//! Tests of schedules at given times.

use super::{Backoff, DAY, HOUR, Hours, Impossible, Rhythm};
use crate::world::{Nanos, SECOND};
use proptest::prelude::{any, prop_assert, prop_assume, proptest};

fn hours(text: &str) -> Option<Hours> {
    text.parse().ok()
}

#[test]
fn hours_go_over_midnight() {
    let night = hours("22-6 UTC").unwrap();
    for (hour, within) in [(21, false), (22, true), (23, true), (0, true), (5, true), (6, false), (12, false)]
    {
        assert_eq!(night.contain(3 * DAY + hour * HOUR), within, "{hour}");
    }
    assert_eq!(night.next(7 * HOUR), 22 * HOUR);
    assert_eq!(night.next(23 * HOUR + 5), 23 * HOUR + 5);
    let morning = hours("1-5UTC").unwrap();
    assert_eq!(morning.next(5 * HOUR), DAY + HOUR);
    assert_eq!(morning.next(-HOUR), HOUR, "times before 1970 are times");
    assert!(hours("20-24 UTC").is_some_and(|it| it.contain(23 * HOUR) && !it.contain(0)));
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
        let runs = i64::from(100_u8.div_ceil(rhythm.percent));
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
    assert_eq!(rhythm.next(None, 5), 5);
    assert_eq!(rhythm.next(Some(5), 6), DAY + 5);
    assert_eq!(rhythm.next(Some(5), 3 * DAY), 3 * DAY, "one run makes up for several that were missed");
    assert_eq!(rhythm.next(Some(100 * DAY), 7), DAY + 7, "the clock was set back");
    let night = Rhythm::new(10 * DAY, Some(10), hours("1-5")).unwrap();
    assert_eq!(night.next(Some(2 * HOUR), 3 * HOUR), DAY + 2 * HOUR);
    assert_eq!(night.next(None, 6 * HOUR), DAY + HOUR);
    assert!(night.may_run(HOUR) && !night.may_run(5 * HOUR));
}

#[test]
fn pauses_double_up_to_a_bound() {
    let mut backoff = Backoff::new(2, 60);
    assert!(backoff.is_over(0));
    let pauses: Vec<Nanos> = (0..7).map(|_| backoff.failed(1000) - 1000).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    assert!(!backoff.is_over(1059) && backoff.is_over(1060));
    assert!(backoff.is_over(0), "the clock was set back");
    backoff.succeeded();
    assert!(backoff.is_over(0) && backoff.failures() == 0);
}

proptest! {
    /// For any times the next run is not in the past and is within the hours.
    #[test]
    fn the_next_run_is_when_it_may_be(
        days in 1_i64..500, from in 0_u8..24, to in 0_u8..24, last in any::<Option<i32>>(), now in any::<i32>()
    ) {
        prop_assume!(from != to);
        let rhythm = Rhythm::new(days * DAY, None, hours(&format!("{from}-{to}"))).unwrap();
        let (last, now) = (last.map(|last| i64::from(last) * SECOND), i64::from(now) * SECOND);
        let next = rhythm.next(last, now);
        prop_assert!(next >= now && rhythm.may_run(next));
        prop_assert!(next <= now + rhythm.interval() + DAY);
    }
}
