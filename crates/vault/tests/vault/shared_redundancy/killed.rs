//! `protect` killed before each of its changes to the repository, while files begin to share and cease to.

use super::super::fixture::{Fixture, QUIET};
use super::{POLICY, SIZE, amount, body_of, content, damage_and_repair, protect, shared};
use gabion_testkit::chosen;
use gabion_vault::fault;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Timestamp};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What happens to `one` and `two`, which are equal.
#[derive(Debug, Clone, Copy)]
enum Course {
    /// They begin to share.
    Begins,
    /// A third file joins.
    Joins,
    /// They share, and one of them changes.
    Changes,
    /// They share, and one of them is renamed.
    Moves,
    /// They share, and both are removed.
    Ends,
    /// As before, and the body is removed.
    IsRemoved,
}

impl Course {
    /// The state before the run that is killed.
    fn fixture(self) -> Fixture {
        let mut fixture = Fixture::with_policy(&POLICY.replace("true", "false"));
        fixture.write("one", &content(3));
        fixture.write("two", &content(3));
        fixture.write("other", b"so that some file is left");
        protect(&fixture);
        fixture.vault.set_policy(POLICY).unwrap();
        if matches!(self, Course::Begins) {
            return fixture;
        }
        assert_eq!(protect(&fixture).files, 2);
        match self {
            Course::Begins => {}
            Course::Joins => fixture.write("three", &content(3)),
            Course::Changes => fixture.write("one", &content(4)),
            Course::Moves => fs::rename(fixture.path("one"), fixture.path("three")).unwrap(),
            Course::Ends | Course::IsRemoved => {
                ["one", "two"].into_iter().for_each(|name| fs::remove_file(fixture.path(name)).unwrap());
            }
        }
        if matches!(self, Course::IsRemoved) {
            protect(&fixture);
        }
        fixture
    }

    /// Names and seeds of the files in the end, and how many of them share.
    fn end(self) -> (&'static [(&'static str, u64)], u64) {
        match self {
            Course::Begins => (&[("one", 3), ("two", 3)], 2),
            Course::Joins => (&[("one", 3), ("two", 3), ("three", 3)], 3),
            Course::Changes => (&[("one", 4), ("two", 3)], 1),
            Course::Moves => (&[("three", 3), ("two", 3)], 2),
            Course::Ends | Course::IsRemoved => (&[], 0),
        }
    }
}

#[test]
#[ignore = "this is the child, which the other test starts and kills"]
fn child() {
    // Time, change before which the child dies, and tree.
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    let told: Vec<&str> = told.trim_end().splitn(3, ' ').collect();
    let [now, point, tree] = told[..] else { return };
    let clock = Clock::manual(Timestamp::from_nanoseconds(now.parse().unwrap()));
    let vault = Vault::open(&Location::of(Path::new(tree), None), clock).unwrap();
    let _lock = vault.lock("test").unwrap();
    fault::kill_before(point.parse().unwrap());
    drop(gabion_vault::protect::protect(&vault, QUIET).unwrap());
}

/// True if the child was killed, false if it finished.
fn run_child(fixture: &Fixture, point: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shared_redundancy::killed::child", "--ignored"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let told = format!("{} {point} {}\n", fixture.clock.now().nanoseconds(), fixture.root().display());
    child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

fn kill_everywhere(course: Course, first: u64, step: usize) {
    for point in (first..).step_by(step) {
        let fixture = course.fixture();
        let is_killed = run_child(&fixture, point);
        let fixture = fixture.reopen();
        let told = format!("{course:?}, killed before change {point}");
        let (files, sharing) = course.end();
        // Whatever was done: what has redundancy has all of it, and it is of its content.
        let report = fixture.scrub();
        let damaged: Vec<_> = report.damage.iter().filter(|damage| !damage.changed).collect();
        assert!(damaged.is_empty() && report.failed.is_empty(), "{told}: {report:?}");
        protect(&fixture);
        fixture.assert_clean();
        if let Some((name, seed)) = files.first() {
            damage_and_repair(&fixture, name, &content(*seed));
        }
        protect(&fixture);
        protect(&fixture);
        assert_eq!(amount(&fixture).files, sharing, "{told}");
        // One body, and a link for each reference.
        let left = if sharing == 0 { 0 } else { sharing as usize + 1 };
        assert_eq!(shared(&fixture).len(), left, "{told}: {:?}", shared(&fixture));
        let staging = fs::read_dir(fixture.root().join(".gabion/staging")).unwrap();
        let staging: Vec<_> = staging.map(|entry| entry.unwrap().file_name()).collect();
        assert!(staging.is_empty(), "{told}: {staging:?}");
        for (name, seed) in files {
            assert!(fixture.read(name) == content(*seed) && fixture.read(name).len() == SIZE);
            let is_equal = files.iter().filter(|(_, other)| other == seed).count() > 1;
            assert!(!is_equal || body_of(&fixture, name).is_some(), "{told}: {name}");
        }
        if !is_killed {
            assert!(point > 1, "{told}: it ends too early to have changed anything");
            return;
        }
    }
}

/// Every third moment of each course, or all with `GABION_CRASH_STEP=1`.
#[test]
fn killed_while_files_share() {
    let step = chosen("GABION_CRASH_STEP", 3);
    let courses =
        [Course::Begins, Course::Joins, Course::Changes, Course::Moves, Course::Ends, Course::IsRemoved];
    for (number, course) in courses.into_iter().enumerate() {
        kill_everywhere(course, number as u64 % step, step as usize);
    }
}
