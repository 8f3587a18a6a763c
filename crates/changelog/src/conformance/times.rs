//! When entries are due, and what a clock that jumps does to them.

use super::{Site, T0, all, at, claim, claim_one, paths, record};
use crate::change::{Change, When};
use crate::entry::Sequence;
use gabion_platform::world::SECOND;
use std::time::Duration;

pub(super) fn a_file_has_to_rest_but_not_for_ever(site: Site<'_>, name: &str) {
    let log = site(name);
    let write = |time| Change::modify("a", 0..9, When::after_rest(time, 10 * SECOND, 25 * SECOND, 0));
    record(&*log, &[write(T0)]);
    assert_eq!(claim(&*log, "w", 9, T0 + 10 * SECOND - Duration::from_nanos(1)), []);
    record(&*log, &[write(T0 + 8 * SECOND)]);
    assert_eq!(claim(&*log, "w", 9, T0 + 18 * SECOND - Duration::from_nanos(1)), [], "it has to rest again");
    record(&*log, &[write(T0 + 16 * SECOND), write(T0 + 24 * SECOND)]);
    assert_eq!(claim(&*log, "w", 9, T0 + 25 * SECOND - Duration::from_nanos(1)), []);
    let claimed = claim_one(&*log, "w", T0 + 25 * SECOND);
    assert_eq!(
        (claimed.entry.first, claimed.entry.due, claimed.entry.sequence),
        (T0, T0 + 25 * SECOND, Sequence(4))
    );
    // What comes after the claim has its own rest and its own cap.
    record(&*log, &[write(T0 + 30 * SECOND)]);
    log.complete(&claimed).expect("completed");
    let newer = all(&*log).remove(0);
    assert_eq!((newer.first, newer.due), (T0 + 30 * SECOND, T0 + 40 * SECOND));
    // A new name does not disturb the rest.
    record(&*log, &[Change::rename("a", "b", at(T0 + 31 * SECOND))]);
    let moved = all(&*log).remove(0);
    assert_eq!((moved.first, moved.due), (T0 + 30 * SECOND, T0 + 40 * SECOND));
}

pub(super) fn order(site: Site<'_>, name: &str) {
    let log = site(name);
    let write = |path: &str, due, priority| {
        Change::modify(path, 0..9, When { at: T0, due: T0 + due, latest: T0 + due, priority })
    };
    record(
        &*log,
        &[
            write("low-late", Duration::from_nanos(2), 1),
            write("high-late", Duration::from_nanos(5), 200),
            write("low-early", Duration::from_nanos(1), 1),
            write("not-yet", Duration::from_nanos(100), 255),
            write("high-early", Duration::from_nanos(3), 200),
            write("same-1", Duration::from_nanos(4), 100),
            write("same-2", Duration::from_nanos(4), 100),
        ],
    );
    let expected = ["high-early", "high-late", "same-1", "same-2", "low-early", "low-late"];
    let first = claim(&*log, "v", 2, T0 + Duration::from_nanos(50));
    assert_eq!(paths(&first), expected[..2]);
    assert_eq!(paths(&claim(&*log, "w", 9, T0 + Duration::from_nanos(50))), expected[2..]);
    assert_eq!(claim(&*log, "w", 0, T0 + Duration::from_nanos(100)), []);
    assert_eq!(paths(&claim(&*log, "w", 9, T0 + Duration::from_nanos(100))), ["not-yet"]);
    // A path keeps the highest priority it was given.
    record(&*log, &[write("x", Duration::from_nanos(1), 7), write("x", Duration::from_nanos(1), 3)]);
    assert_eq!(all(&*log).pop().expect("x").priority, 7);
}

pub(super) fn a_clock_set_back_delays_by_one_lease(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify_whole("a", at(T0))]);
    let ahead = T0 + 1_000_000 * SECOND;
    let lost = claim_one(&*log, "lost", ahead);
    assert_eq!(claim(&*log, "w", 9, T0), [], "the lease counts from now on");
    assert_eq!(claim(&*log, "w", 9, T0 + 10 * SECOND - Duration::from_nanos(1)), []);
    let taken = claim_one(&*log, "w", T0 + 10 * SECOND);
    assert!(taken.token > lost.token && log.complete(&lost).is_err());
    // Set forward: leases end early, and the number tells who may go on.
    let early = claim_one(&*log, "v", ahead);
    assert!(!log.still_mine(&taken).expect("an answer") && log.still_mine(&early).expect("an answer"));
}

pub(super) fn an_entry_from_the_future_is_pulled_back(site: Site<'_>, name: &str) {
    let log = site(name);
    let ahead = T0 + 1_000_000 * SECOND;
    let rest = |time| When::after_rest(time, 10 * SECOND, 60 * SECOND, 0);
    record(&*log, &[Change::modify("a", 0..9, rest(ahead)), Change::modify("near", 0..9, rest(T0 + SECOND))]);
    assert_eq!(claim(&*log, "w", 9, T0), []);
    let pulled = all(&*log).remove(0);
    assert_eq!((pulled.first, pulled.due), (T0, T0 + 10 * SECOND));
    assert_eq!(all(&*log)[1].due, T0 + 11 * SECOND, "clocks differ by a second");
    let claimed = claim_one(&*log, "w", T0 + 10 * SECOND);
    // The same for one that was given back.
    log.release(&claimed, ahead + 5 * SECOND, ahead).expect("released");
    assert_eq!(paths(&claim(&*log, "w", 9, T0 + 20 * SECOND)), ["near"]);
    assert_eq!(paths(&claim(&*log, "w", 9, T0 + 25 * SECOND)), ["a"]);
}
