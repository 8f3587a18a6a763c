//! Scrubs that are due by policy.

use super::fixture::{Fixture, QUIET, TestRng};
use gabion_vault::scrub::{self, Options, Report, Selection};
use gabion_vault::status::{Status, status};
use gabion_vault::world::Timestamp;

const START: i64 = 1_800_000_000;
const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nscrub = \"30d\"\n\
    [[rule]]\npaths = [\"often/**\"]\nscrub = \"7d\"\n";

fn day(fixture: &Fixture, days: i64) {
    fixture.clock.set(Timestamp::from_seconds(START + days * 86_400));
}

fn due(fixture: &Fixture) -> Report {
    let options = Options { selection: Selection::Due, from_medium: false, resume: false };
    scrub::scrub(&fixture.vault, b"", options, QUIET).unwrap()
}

fn overdue(fixture: &Fixture) -> (u64, Option<String>) {
    let Status { overdue, .. } = status(&fixture.vault, b"", true, 10, QUIET).unwrap();
    // The daemon counts without scanning.
    assert_eq!(scrub::overdue(&fixture.vault, &|| false).unwrap(), Some(overdue.clone()));
    (overdue.files, overdue.oldest.map(|(path, _)| String::from_utf8(path).unwrap()))
}

/// Regression: the policy's `scrub` interval was parsed and shown but not used.
#[test]
fn files_are_due_as_often_as_their_policy_says() {
    let fixture = Fixture::with_policy(POLICY);
    for name in ["seldom/a", "often/b"] {
        fixture.write(name, &TestRng(1).bytes(10_000));
    }
    fixture.protect_all();
    assert_eq!((overdue(&fixture), due(&fixture).files), ((0, None), 0), "all of it was read just now");
    day(&fixture, 7);
    assert_eq!(overdue(&fixture), (1, Some("often/b".to_owned())));
    assert_eq!((due(&fixture).files, overdue(&fixture).0), (1, 0));
    day(&fixture, 13);
    assert_eq!(due(&fixture).files, 0);
    day(&fixture, 30);
    assert_eq!(overdue(&fixture), (2, Some("seldom/a".to_owned())), "the one that was verified first");
    assert_eq!((due(&fixture).files, overdue(&fixture).0), (2, 0));
    // After the clock was set back, a scrub time in the future must not defer the next scrub by years.
    day(&fixture, 20);
    assert_eq!(overdue(&fixture), (1, Some("often/b".to_owned())));
    day(&fixture, 60);
    assert_eq!(overdue(&fixture).0, 2);
}

/// Regression: an update of some stripes reset the scrub time, so a database that is written daily always counted as
/// verified, with stripes that nobody had read.
#[test]
fn a_file_that_is_written_to_every_day_stays_due() {
    for is_scrubbed in [true, false] {
        let fixture = Fixture::with_policy(POLICY);
        let mut content = TestRng(2).bytes(400_000);
        fixture.write("data", &content);
        fixture.protect_all();
        // A file that was never scrubbed was read in full when it was first protected.
        if is_scrubbed {
            fixture.scrub();
        }
        for days in 1..=29 {
            day(&fixture, days);
            content[days as usize * 1000] ^= 1;
            fixture.write("data", &content);
            assert_eq!(fixture.protect_all().done.encoded, 1);
        }
        assert_eq!(overdue(&fixture).0, 0);
        day(&fixture, 30);
        assert_eq!(overdue(&fixture), (1, Some("data".to_owned())));
        // Completely new content was read and encoded in full.
        fixture.write("data", &TestRng(4).bytes(400_000));
        fixture.protect_all();
        assert_eq!(overdue(&fixture).0, 0);
    }
}
