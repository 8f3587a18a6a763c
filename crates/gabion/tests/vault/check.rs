//! `gabion check`: files before they are used.

use super::corruption::rot;
use super::fixture::Fixture;
use gabion_testkit::kill::{Call, Point, can_kill};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// A job's input that looks unchanged costs a look, not a read; damage that is known, or found with `--read`, is
/// repaired before the job starts.
#[test]
fn unchanged_files_are_not_read_and_known_damage_is_repaired() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    let before = fixture.content();
    let report = fixture.json(0, &["check", "tree"]);
    assert_eq!(report["verdicts"], serde_json::json!({ "unchanged": 5 }), "{report}");
    assert_eq!((&report["bytes"], &report["files"]), (&0.into(), &serde_json::json!([])));
    rot(&fixture.path("a"), 1_000_000, 5000);
    // Bit rot is for scrubs, or for who asks.
    assert_eq!(fixture.json(0, &["check", "tree/a"])["verdicts"]["unchanged"], 1);
    let report = fixture.json(1, &["check", "tree", "--read"]);
    assert_eq!(report["verdicts"], serde_json::json!({ "damaged": 1, "verified": 4 }), "{report}");
    assert_eq!(report["files"][0]["path"], fixture.path("a").to_str().unwrap());
    // Known from now on.
    assert_eq!(fixture.json(1, &["check", "tree/a", "tree/sub"])["verdicts"]["damaged"], 1);
    fixture.expect(1, &["status", "tree"]);
    fixture.expect(1, &["scrub", "tree"]);
    assert_eq!(fixture.json(1, &["check", "tree/a", "tree/sub"])["verdicts"]["damaged"], 1);
    let report = fixture.json(0, &["check", "tree", "--repair"]);
    assert_eq!(report["verdicts"], serde_json::json!({ "repaired": 1, "unchanged": 4 }), "{report}");
    assert_eq!(fixture.content(), before);
    assert_eq!(fixture.json(0, &["check", "tree", "--read"])["verdicts"]["verified"], 5);
}

/// A file that was written since it was protected is newer than its redundancy: it is reported and never reverted.
#[test]
fn what_was_written_is_reported_and_stays() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    fixture.write("sub/b", &[7; 300_000]);
    fixture.write("new", b"no redundancy yet");
    let touched = File::options().write(true).open(fixture.path("sub/c")).unwrap();
    let modified = touched.metadata().unwrap().modified().unwrap();
    touched.set_modified(modified - Duration::from_secs(3600)).unwrap();
    let before = fixture.content();
    for repair in [&[][..], &["--repair"]] {
        let report = fixture.json(1, &[&["check", "tree"], repair].concat());
        let expected = serde_json::json!({ "changed": 1, "unprotected": 1, "unchanged": 3, "verified": 1 });
        assert_eq!(report["verdicts"], expected, "{report}");
        assert!(report["bytes"].as_u64().unwrap() >= 300_000, "{report}");
        assert_eq!(fixture.content(), before);
    }
    // Damage in a file that was written is not told from what was written.
    rot(&fixture.path("sub/b"), 100_000, 10);
    assert_eq!(fixture.json(1, &["check", "tree/sub/b", "--repair"])["verdicts"]["changed"], 1);
    assert_eq!(std::fs::read(fixture.path("sub/b")).unwrap()[100_000], !7);
}

#[test]
fn missing_and_lost_files_have_their_exit_codes() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree", "--code", "2+2"]);
    let before = fixture.content();
    std::fs::remove_file(fixture.path("sub/b")).unwrap();
    let report = fixture.json(2, &["check", "tree/sub/b", "tree/a", "tree/none"]);
    assert_eq!(report["verdicts"], serde_json::json!({ "missing": 2, "unchanged": 1 }), "{report}");
    // m = k: the redundancy alone restores it.
    assert_eq!(fixture.json(0, &["check", "tree/sub/b", "--repair"])["verdicts"]["repaired"], 1);
    assert_eq!(fixture.content(), before);
    rot(&fixture.path("a"), 0, 5_000_000);
    let redundancy = fixture.tree().join(".gabion/redundancy/a");
    let length = std::fs::metadata(&redundancy).unwrap().len();
    rot(&redundancy, length / 2, 1_000_000);
    for repair in [&[][..], &["--repair"]] {
        let report = fixture.json(3, &[&["check", "tree", "--read"], repair].concat());
        assert_eq!(report["verdicts"]["lost"], 1, "{report}");
    }
}

/// A job's list names whatever the job reads, wherever that lies.
#[test]
fn a_list_may_name_files_of_several_vaults_and_of_none() {
    let fixture = Fixture::new();
    let other = fixture.dir().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("x"), [1; 10_000]).unwrap();
    std::fs::write(fixture.dir().join("loose"), b"in no vault").unwrap();
    fixture.expect(0, &["protect", "tree"]);
    fixture.expect(0, &["protect", "other", "--repository", "far"]);
    rot(&other.join("x"), 5000, 10);
    let mut child = fixture
        .command(&["check", "--files-from", "-", "--from0", "--repair", "--read", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"tree/a\0other/x\0loose\0tree/sub\0nowhere/y").unwrap();
    let output = child.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({ "missing": 1, "repaired": 1, "unprotected": 1, "verified": 4 });
    assert_eq!(report["verdicts"], expected, "{report}");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read(other.join("x")).unwrap(), [1; 10_000]);
    // A vault that cannot be opened fails, and the others are checked.
    std::fs::write(fixture.dir().join("far/vault.toml"), b"version = ").unwrap();
    let report = fixture.json(2, &["check", "tree/a", "other/x"]);
    assert_eq!(report["verdicts"], serde_json::json!({ "unchanged": 1 }), "{report}");
    assert_eq!(report["unchecked"], serde_json::json!([{ "path": "other/x" }]), "{report}");
    assert_eq!(report["failed"].as_array().unwrap().len(), 1, "{report}");
}

#[test]
fn files_of_pools_are_checked_with_targets_gone() {
    let fixture = Fixture::new();
    for target in ["d1", "d2", "d3", "d4"] {
        std::fs::create_dir(fixture.dir().join(target)).unwrap();
    }
    let create = ["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "2"];
    fixture.expect(0, &[&create[..], &["--targets", "d1", "d2", "d3", "d4"]].concat());
    fixture.expect(0, &["pool", "put", "tank", "tree", "/", "--pools", "pools"]);
    fixture.expect(0, &["protect", "tank", "--pools", "pools", "--code", "2+2"]);
    let files = ["check", "tank/tree/a", "tank/tree/sub", "--pools", "pools"];
    assert_eq!(fixture.json(0, &files)["verdicts"], serde_json::json!({ "unchanged": 4 }));
    std::fs::rename(fixture.dir().join("d2"), fixture.dir().join("away")).unwrap();
    let report = fixture.json(1, &files);
    let verdicts = report["verdicts"].as_object().unwrap();
    let all: u64 = verdicts.values().map(|number| number.as_u64().unwrap()).sum();
    assert_eq!(all, 4, "{report}");
    assert!(verdicts.keys().any(|word| word == "degraded" || word == "damaged"), "{report}");
    assert!(verdicts.keys().all(|word| word != "lost" && word != "missing"), "{report}");
}

/// A prolog must not wait for ever: here for a vault that somebody else has locked.
#[test]
fn at_the_deadline_the_rest_is_listed_as_unchecked() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    let vault = Vault::open(&Location::find(&fixture.tree(), None).unwrap(), Clock::System).unwrap();
    let _lock = vault.lock("test").unwrap();
    let report = fixture.json(2, &["check", "tree/a", "tree/sub", "--repair", "--deadline", "1s"]);
    assert_eq!(
        report["unchecked"],
        serde_json::json!([{ "path": "tree/a" }, { "path": "tree/sub" }]),
        "{report}"
    );
    assert_eq!(report["verdicts"], serde_json::json!({}), "{report}");
    // Without a repair the lock is not needed.
    assert_eq!(fixture.json(0, &["check", "tree"])["verdicts"]["unchanged"], 5);
}

/// A repair that is killed at any change is finished by the next check.
#[test]
fn a_check_that_is_killed_in_a_repair_is_repeated() {
    if !can_kill("a_check_that_is_killed_in_a_repair_is_repeated") {
        return;
    }
    for nth in 1..=3 {
        for call in [Call::Write, Call::Sync] {
            let fixture = Fixture::new();
            fixture.expect(0, &["protect", "tree"]);
            let before = fixture.content();
            rot(&fixture.path("a"), 1_000_000, 300_000);
            fixture.expect(1, &["scrub", "tree"]);
            fixture.run_killed(Point { call, nth }, &["check", "tree", "--repair"]);
            fixture.expect(0, &["check", "tree", "--repair"]);
            assert_eq!(fixture.content(), before, "killed at {call:?} {nth}");
            fixture.expect(0, &["scrub", "tree"]);
        }
    }
}
