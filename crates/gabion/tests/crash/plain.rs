//! `gabion protect` of a directory is killed.

use crate::fixture::{Files, Fixture, assert_same, bytes, files_below, rot};
use gabion_testkit::kill::can_kill;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;

const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n\n[guard]\nat_least = 100000\n\n\
    [[rule]]\nname = \"large\"\npaths = [\"large\"]\ncode = \"2+1\"\nblock = \"64KiB\"\n";

/// A directory whose redundancy is in it.
fn begin() -> Fixture {
    let fixture = Fixture::new();
    for directory in ["tree", "tree/sub", "tree/deep1", "tree/deep1/er"] {
        fs::create_dir(fixture.path(directory)).unwrap();
    }
    fs::write(fixture.path("policy.toml"), POLICY).unwrap();
    // Redundancy over 1 MiB is updated in place.
    let files = [
        ("quiet", 30_000),
        ("large", 2_300_000),
        ("log", 3000),
        ("log.1", 4000),
        ("x", 20_000),
        ("y", 20_000),
        ("sub/changed", 20_000),
        ("sub/appended", 5000),
        ("deep1/er/file", 9000),
        ("new0", 9000),
        ("new1", 9000),
    ];
    for (number, (name, size)) in files.into_iter().enumerate() {
        fs::write(fixture.path("tree").join(name), bytes(size, number as u64)).unwrap();
    }
    fs::hard_link(fixture.path("tree/sub/changed"), fixture.path("tree/linked")).unwrap();
    fixture.expect("at first", &["protect", "tree", "--policy", "policy.toml"]);
    fixture
}

/// New, changed, removed, renamed and exchanged files, and a renamed directory.
fn change(fixture: &Fixture, round: u64) {
    let at = |name: &str| fixture.path("tree").join(name);
    // Rounds 0 and 1 are what the directory begins with.
    let round = round + 2;
    fs::remove_file(at(&format!("new{}", round - 2))).unwrap();
    fs::rename(at(&format!("new{}", round - 1)), at(&format!("moved{}", round % 3))).unwrap();
    fs::write(at(&format!("new{}", round - 1)), bytes(7000, round * 10)).unwrap();
    fs::write(at(&format!("new{round}")), bytes(11_000, round * 10 + 1)).unwrap();
    fs::write(at("sub/changed"), bytes(10_000 + round as usize % 7 * 3000, round * 10 + 2)).unwrap();
    let mut appended = fs::File::options().append(true).open(at("sub/appended")).unwrap();
    appended.write_all(&bytes(100, round)).unwrap();
    fs::rename(at("log"), at("log.1")).unwrap();
    fs::write(at("log"), bytes(3000, round * 10 + 3)).unwrap();
    for (from, to) in [("x", "z"), ("y", "x"), ("z", "y")] {
        fs::rename(at(from), at(to)).unwrap();
    }
    fs::rename(at(&format!("deep{}", (round + 1) % 2)), at(&format!("deep{}", round % 2))).unwrap();
    let large = fs::File::options().write(true).open(at("large")).unwrap();
    large.write_all_at(&bytes(10, round), round * 70_001 % 2_000_000).unwrap();
}

/// Nothing but the redundancy of the files that are there.
fn assert_no_strays(fixture: &Fixture, told: &str, files: &Files) {
    let redundancy = files_below(&fixture.path("tree/.gabion/redundancy"));
    let (found, wanted): (Vec<_>, Vec<_>) = (redundancy.keys().collect(), files.keys().collect());
    assert_eq!(found, wanted, "{told}: redundancy");
    for directory in ["staging", "repairing"] {
        let left = files_below(&fixture.path("tree/.gabion").join(directory));
        assert!(left.is_empty(), "{told}: {directory} has {:?}", left.keys());
    }
}

fn converge(fixture: &Fixture, told: &str) {
    fixture.expect(told, &["protect", "tree"]);
    let scrubbed = fixture.json(told, &["scrub", "tree"]);
    let files = files_below(&fixture.path("tree"));
    assert_eq!(scrubbed["files"].as_u64(), Some(files.len() as u64), "{told}: {scrubbed}");
    let status = fixture.json(told, &["status", "tree"]);
    assert_eq!(status["pending"]["queued"], 0, "{told}: {status}");
    assert_no_strays(fixture, told, &files);
}

/// For whoever protects a directory: wherever a run was killed, files that nobody wrote keep redundancy that brings
/// them back, the next run makes up for the rest, and nothing stays in the repository that belongs to no file.
#[test]
#[ignore = "takes minutes: `cargo xtask test --full` runs it"]
fn protect_killed_at_any_change_is_made_up_for_by_the_next_run() {
    let test = "protect_killed_at_any_change_is_made_up_for_by_the_next_run";
    if !can_kill(test) {
        return;
    }
    let fixture = begin();
    fixture.kill_everywhere(
        test,
        10,
        &["protect", "tree"],
        &mut Files::new(),
        |files, round| {
            change(&fixture, round);
            *files = files_below(&fixture.path("tree"));
        },
        |files, round, told| {
            assert_same(told, &files_below(&fixture.path("tree")), files);
            // What comes next is not always protect.
            if round % 3 == 1 {
                rot(&fixture.path("tree/quiet"), 5000 + round % 20_000, 3000);
                // Files that are not protected as they are now may be named. None of them is lost: all are there, as
                // their owner wrote them.
                let repaired = fixture.run(&["repair", "tree", "--yes"]);
                assert!(matches!(repaired.status.code(), Some(0 | 1)), "{told}, then repair: {repaired:?}");
                assert_same(told, &files_below(&fixture.path("tree")), files);
            }
            converge(&fixture, told);
            if round % 3 == 2 {
                // What was protected is worth something.
                for name in ["sub/changed", "log", "log.1", "x", "y", "quiet"] {
                    rot(&fixture.path("tree").join(name), 100, 200);
                }
                fixture.expect(told, &["repair", "tree", "--yes"]);
                assert_same(told, &files_below(&fixture.path("tree")), files);
            }
        },
    );
}

/// The first `protect` of a directory is killed: no vault yet, or half of one.
#[test]
fn the_first_protect_killed_at_any_change_is_made_up_for() {
    let test = "the_first_protect_killed_at_any_change_is_made_up_for";
    if !can_kill(test) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("tree/sub")).unwrap();
    fs::write(fixture.path("policy.toml"), POLICY).unwrap();
    fs::write(fixture.path("tree/file"), bytes(9000, 1)).unwrap();
    fs::write(fixture.path("tree/sub/other"), bytes(9000, 2)).unwrap();
    let files = files_below(&fixture.path("tree"));
    fixture.kill_everywhere(
        test,
        6,
        &["protect", "tree", "--policy", "policy.toml"],
        &mut (),
        |(), _| {
            let _ = fs::remove_dir_all(fixture.path("tree/.gabion"));
        },
        |(), _, told| {
            assert_same(told, &files_below(&fixture.path("tree")), &files);
            fixture.expect(told, &["protect", "tree", "--policy", "policy.toml"]);
            converge(&fixture, told);
        },
    );
}
