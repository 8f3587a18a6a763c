//! Scrubs that are due by the policy of their files.

use super::playground::{Playground, QUIET, Seed};
use gabion_vault::scrub::{self, Options, Report, Selection};
use gabion_vault::status::{Status, status};
use gabion_vault::world::SECOND;

const START: i64 = 1_800_000_000;
const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\nscrub = \"30d\"\n\
    [[rule]]\npaths = [\"often/**\"]\nscrub = \"7d\"\n";

fn day(ground: &Playground, days: i64) {
    ground.clock.set((START + days * 86_400) * SECOND);
}

fn due(ground: &Playground) -> Report {
    let options = Options { selection: Selection::Due, from_medium: false, resume: false };
    scrub::scrub(&ground.vault, b"", options, QUIET).unwrap()
}

fn overdue(ground: &Playground) -> (u64, Option<String>) {
    let Status { overdue, .. } = status(&ground.vault, b"", true, 10, QUIET).unwrap();
    // The daemon counts without a look at everything else.
    assert_eq!(scrub::overdue(&ground.vault, &|| false).unwrap(), Some(overdue.clone()));
    (overdue.files, overdue.oldest.map(|(path, _)| String::from_utf8(path).unwrap()))
}

/// `scrub = "30d"` was parsed and shown, and nothing read it: no command knew which files were due, and status said nothing when a scrub was years
/// overdue.
#[test]
fn files_are_due_as_often_as_their_policy_says() {
    let ground = Playground::with_policy(POLICY);
    for name in ["seldom/a", "often/b"] {
        ground.write(name, &Seed(1).bytes(10_000));
    }
    ground.protect_all();
    assert_eq!((overdue(&ground), due(&ground).files), ((0, None), 0), "all of it was read just now");
    day(&ground, 7);
    assert_eq!(overdue(&ground), (1, Some("often/b".to_owned())));
    assert_eq!((due(&ground).files, overdue(&ground).0), (1, 0));
    day(&ground, 13);
    assert_eq!(due(&ground).files, 0);
    day(&ground, 30);
    assert_eq!(overdue(&ground), (2, Some("seldom/a".to_owned())), "the one that was verified first");
    assert_eq!((due(&ground).files, overdue(&ground).0), (2, 0));
    // After a clock was set back, a scrub that lies ahead says nothing: it must not hide a file for years.
    day(&ground, 20);
    assert_eq!(overdue(&ground), (1, Some("often/b".to_owned())));
    day(&ground, 60);
    assert_eq!(overdue(&ground).0, 2);
}

/// An update of some stripes forgot when the file was scrubbed, so that a database that is written to every day counted as verified every day, with all the stripes that
/// nobody had read against their redundancy.
#[test]
fn a_file_that_is_written_to_every_day_stays_due() {
    for is_scrubbed in [true, false] {
        let ground = Playground::with_policy(POLICY);
        let mut content = Seed(2).bytes(400_000);
        ground.write("data", &content);
        ground.protect_all();
        // A file that was never scrubbed was read as a whole when it was protected first.
        if is_scrubbed {
            ground.scrub();
        }
        for days in 1..=29 {
            day(&ground, days);
            content[days as usize * 1000] ^= 1;
            ground.write("data", &content);
            assert_eq!(ground.protect_all().done.encoded, 1);
        }
        assert_eq!(overdue(&ground).0, 0);
        day(&ground, 30);
        assert_eq!(overdue(&ground), (1, Some("data".to_owned())));
        // Content that has nothing in common with the old one was all read and encoded.
        ground.write("data", &Seed(4).bytes(400_000));
        ground.protect_all();
        assert_eq!(overdue(&ground).0, 0);
    }
}
