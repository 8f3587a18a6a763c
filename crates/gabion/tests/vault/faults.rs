//! Killed and concurrent commands.

use super::fixture::Fixture;
use super::test_rng::TestRng;
use gabion_testkit::kill::{Call, Point, can_kill};
use serde_json::Value;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

/// Changes a tree at random: content, names, deletions.
fn storm(fixture: &Fixture, seed: &mut TestRng) {
    for _ in 0..20 {
        let name = format!("storm/{}", seed.below(40));
        match seed.below(5) {
            0 => {
                let _ = std::fs::remove_file(fixture.path(&name));
            }
            1 => {
                let to = fixture.path(&format!("storm/{}", seed.below(40)));
                let _ = std::fs::rename(fixture.path(&name), to);
            }
            _ => {
                let size = 1 << seed.below(20);
                fixture.write(&name, &seed.bytes(size));
            }
        }
    }
}

/// A moment in the work of a command. The first five rounds take the first call of each kind, which every command
/// that changes something comes to; later ones may lie behind its end.
fn moment(seed: &mut TestRng, round: usize, most: u64) -> Point {
    let call = Call::ALL[round % Call::ALL.len()];
    Point { call, nth: if round < Call::ALL.len() { 1 } else { 1 + seed.below(most) as u32 } }
}

#[test]
fn kill_at_any_moment_loses_nothing() {
    if !can_kill("kill_at_any_moment_loses_nothing") {
        return;
    }
    let mut killed = 0;
    let fixture = Fixture::new();
    let mut seed = TestRng(0xdead);
    for round in 0..25 {
        storm(&fixture, &mut seed);
        let content = fixture.content();
        let most = if round % 2 == 0 { 8 } else { 60 };
        killed += u32::from(fixture.run_killed(moment(&mut seed, round, most), &["protect", "tree"]));
        assert_eq!(fixture.content(), content, "round {round}");
        if round % 5 == 4 {
            let report = fixture.json(0, &["protect", "tree"]);
            assert_eq!(report["failures"], 0);
            let scrub = fixture.json(0, &["scrub", "tree"]);
            assert_eq!(scrub["files"].as_u64(), Some(content.len() as u64));
            assert_eq!(fixture.json(0, &["status", "tree"])["pending"]["files"], 0);
            assert_eq!(std::fs::read_dir(fixture.path(".gabion/staging")).unwrap().count(), 0);
        }
    }
    assert!(killed >= 4, "{killed} of 25 were killed");
}

#[test]
fn a_killed_repair_leaves_nothing_worse() {
    if !can_kill("a_killed_repair_leaves_nothing_worse") {
        return;
    }
    let mut killed = 0;
    let fixture = Fixture::new();
    let mut seed = TestRng(0xbeef);
    let content = seed.bytes(30 << 20);
    fixture.write("large", &content);
    fixture.expect(0, &["protect", "tree"]);
    for round in 0..12 {
        let file = std::fs::File::options().write(true).open(fixture.path("large")).unwrap();
        // Up to an eighth of the file in one piece: one column or two of many stripes.
        let start = seed.below(content.len() as u64 * 7 / 8);
        file.write_all_at(&seed.bytes(3 << 20), start).unwrap();
        drop(file);
        let repair = ["repair", "tree", "--yes", "--revert-changes"];
        killed += u32::from(fixture.run_killed(moment(&mut seed, round, 40), &repair));
        fixture.expect(0, &repair);
        assert!(std::fs::read(fixture.path("large")).unwrap() == content);
        fixture.expect(0, &["scrub", "tree"]);
    }
    assert!(killed >= 3, "{killed} of 12 were killed");
}

#[test]
fn concurrent_commands_exclude_each_other() {
    let fixture = Fixture::new();
    let mut seed = TestRng(7);
    for number in 0..60 {
        fixture.write(&format!("more/{number}"), &seed.bytes(1 << 20));
    }
    let mut children: Vec<_> = (0..4).map(|_| fixture.spawn(&["protect", "tree", "--wait"])).collect();
    for child in &mut children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    fixture.expect(0, &["scrub", "tree"]);
    // Without --wait, the second is told who has it.
    fixture.write("more/0", &seed.bytes(40 << 20));
    // So slow that it is at work until it is killed.
    let mut first = fixture.spawn(&["protect", "tree", "--limit", "64KiB/s"]);
    let process = format!("process {} ", first.id());
    let lock = fixture.path(".gabion/lock");
    gabion_testkit::until("the vault is in use", || {
        std::fs::read_to_string(&lock).unwrap().contains(&process)
    });
    let output = fixture.run(&["scrub", "tree"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("in use by `gabion protect") && error.contains(&process), "{error}");
    first.kill().unwrap();
    first.wait().unwrap();
    fixture.expect(0, &["protect", "tree"]);
}

#[test]
fn workers_share_what_is_due() {
    let fixture = Fixture::new();
    let mut seed = TestRng(9);
    for number in 0..200 {
        fixture.write(&format!("more/{number}"), &seed.bytes(100_000));
    }
    // So slow that nearly all is left to others, and it is at work until it is killed.
    let mut first = fixture.spawn(&["protect", "tree", "--limit", "16KiB/s"]);
    gabion_testkit::until("files are queued", || {
        let output = fixture.run(&["status", "tree", "--json", "--no-scan"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        status["pending"]["queued"].as_u64() >= Some(150)
    });
    // One dies with claims in its hands, while the others are at work.
    let mut others: Vec<_> = (0..2).map(|_| fixture.spawn(&["work", "tree"])).collect();
    if can_kill("workers_share_what_is_due") {
        fixture.run_killed(Point { call: Call::Rename, nth: 2 }, &["work", "tree"]);
    }
    for other in &mut others {
        other.wait().unwrap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    fixture.run(&["protect", "tree"]);
    let content = fixture.content();
    let scrub = fixture.run(&["scrub", "tree", "--json"]);
    assert_eq!(scrub.status.code(), Some(0), "{}", String::from_utf8_lossy(&scrub.stdout));
    assert_eq!(fixture.content(), content);
}

/// Runs a command as someone without rights; nothing if that cannot be done here.
fn as_nobody(fixture: &Fixture, args: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_gabion")]);
    let output = command.current_dir(fixture.dir()).args(args).output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (!error.contains("setpriv:")).then_some(output)
}

#[test]
fn unreadable_files_are_named_and_others_protected() {
    let fixture = Fixture::new();
    for (path, mode) in
        [(fixture.dir().to_path_buf(), 0o777), (fixture.tree(), 0o777), (fixture.path("a"), 0o000)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(fixture.path("sub/deep"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let Some(output) = as_nobody(&fixture, &["protect", "tree", "--json"]) else {
        gabion_testkit::skip!("what_may_not_be_read_is_named: rights cannot be dropped here");
        return;
    };
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["encoded"], 3, "{report}");
    let failed: Vec<&str> =
        report["failed"].as_array().unwrap().iter().filter_map(|it| it["path"].as_str()).collect();
    assert_eq!(failed, ["a", "sub/deep"]);
    // What root protected before does not count as deleted because nobody cannot see it.
    fixture.expect_trusting(0, &["protect", "tree"]);
    assert!(fixture.path(".gabion/redundancy/sub/deep/d").exists());
}

/// A scrub by someone without rights called files lost that he was not allowed to read, and the catalogue remembered
/// that.
#[test]
fn unreadable_directories_are_not_lost() {
    let fixture = Fixture::new();
    for path in [fixture.dir().to_path_buf(), fixture.tree()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let Some(output) = as_nobody(&fixture, &["protect", "tree"]) else {
        gabion_testkit::skip!("unreadable_directories_are_not_lost: rights cannot be dropped here");
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    fixture.write("secret", &[7; 5000]);
    std::fs::set_permissions(fixture.path("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    fixture.expect_trusting(0, &["protect", "tree"]);
    // So that user 65534 can read what root wrote.
    let given = Command::new("chown").args(["-R", "65534"]).arg(fixture.path(".gabion")).status();
    assert!(given.unwrap().success());
    for args in [&["scrub", "tree", "--json"][..], &["repair", "tree", "--yes", "--json"]] {
        let output = as_nobody(&fixture, args).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["failed"][0]["path"], "secret", "{report}");
        assert_eq!(output.status.code(), Some(2), "{report}");
    }
    let status = fixture.expect_trusting(0, &["status", "tree", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["lost"].as_array().unwrap().len(), 0);
    // What may not be seen is not called unprotected.
    fixture.expect(0, &["protect", "tree/sub"]);
    let output = as_nobody(&fixture, &["status", "tree/sub"]).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("Permission denied"), "{error}");
}
