//! Processes that die, and those that meet.

use super::playground::Playground;
use super::seed::Seed;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;
use std::time::Duration;

/// Changes a tree at random: content, names, deletions.
fn storm(ground: &Playground, seed: &mut Seed) {
    for _ in 0..20 {
        let name = format!("storm/{}", seed.below(40));
        match seed.below(5) {
            0 => {
                let _ = std::fs::remove_file(ground.path(&name));
            }
            1 => {
                let to = ground.path(&format!("storm/{}", seed.below(40)));
                let _ = std::fs::rename(ground.path(&name), to);
            }
            _ => {
                let size = 1 << seed.below(20);
                ground.write(&name, &seed.bytes(size));
            }
        }
    }
}

#[test]
fn kill_at_any_moment_loses_nothing() {
    let ground = Playground::new();
    let mut seed = Seed(0xdead);
    for round in 0..25 {
        storm(&ground, &mut seed);
        let content = ground.content();
        let mut child = ground.spawn(&["protect", "tree"]);
        std::thread::sleep(Duration::from_micros(seed.below(60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(ground.content(), content, "round {round}");
        if round % 5 == 4 {
            let report = ground.json(0, &["protect", "tree"]);
            assert_eq!(report["failures"], 0);
            let scrub = ground.json(0, &["scrub", "tree"]);
            assert_eq!(scrub["files"].as_u64(), Some(content.len() as u64));
            assert_eq!(ground.json(0, &["status", "tree"])["pending"]["files"], 0);
            assert_eq!(std::fs::read_dir(ground.path(".gabion/staging")).unwrap().count(), 0);
        }
    }
}

#[test]
fn a_killed_repair_leaves_nothing_worse() {
    let ground = Playground::new();
    let mut seed = Seed(0xbeef);
    let content = seed.bytes(30 << 20);
    ground.write("large", &content);
    ground.expect(0, &["protect", "tree"]);
    for _ in 0..12 {
        let file = std::fs::File::options().write(true).open(ground.path("large")).unwrap();
        // Up to an eighth of the file in one piece: one column or two of many stripes.
        let start = seed.below(content.len() as u64 * 7 / 8);
        file.write_all_at(&seed.bytes(3 << 20), start).unwrap();
        let mut child = ground.spawn(&["repair", "tree", "--yes", "--revert-changes"]);
        std::thread::sleep(Duration::from_micros(seed.below(120_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        ground.expect(0, &["repair", "tree", "--yes", "--revert-changes"]);
        assert!(std::fs::read(ground.path("large")).unwrap() == content);
        ground.expect(0, &["scrub", "tree"]);
    }
}

#[test]
fn two_at_once_do_not_meet() {
    let ground = Playground::new();
    let mut seed = Seed(7);
    for number in 0..60 {
        ground.write(&format!("more/{number}"), &seed.bytes(1 << 20));
    }
    let mut children: Vec<_> = (0..4).map(|_| ground.spawn(&["protect", "tree", "--wait"])).collect();
    for child in &mut children {
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
    ground.expect(0, &["scrub", "tree"]);
    // Without --wait, the second is told who has it.
    ground.write("more/0", &seed.bytes(40 << 20));
    // It waits for a scrub that was quicker.
    let mut first = ground.spawn(&["protect", "tree", "--limit", "20MiB/s", "--wait"]);
    let mut refused = false;
    for _ in 0..200 {
        let output = ground.run(&["scrub", "tree"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if error.contains("in use by") {
            assert!(error.contains("gabion protect") && error.contains(&first.id().to_string()), "{error}");
            refused = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(refused, "the vault was never in use");
    first.kill().unwrap();
    first.wait().unwrap();
    ground.expect(0, &["protect", "tree"]);
}

#[test]
fn workers_share_what_is_due() {
    let ground = Playground::new();
    let mut seed = Seed(9);
    for number in 0..200 {
        ground.write(&format!("more/{number}"), &seed.bytes(100_000));
    }
    let mut first = ground.spawn(&["protect", "tree", "--limit", "100MiB/s"]);
    let mut others: Vec<_> = (0..3).map(|_| ground.spawn(&["work", "tree"])).collect();
    // One dies with claims in its hands.
    std::thread::sleep(Duration::from_millis(30));
    others[0].kill().unwrap();
    for other in &mut others {
        other.wait().unwrap();
    }
    first.wait().unwrap();
    ground.run(&["protect", "tree"]);
    let content = ground.content();
    let scrub = ground.run(&["scrub", "tree", "--json"]);
    assert_eq!(scrub.status.code(), Some(0), "{}", String::from_utf8_lossy(&scrub.stdout));
    assert_eq!(ground.content(), content);
}

/// Runs a command as someone without rights; nothing if that cannot be done here.
fn as_nobody(ground: &Playground, args: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_gabion")]);
    let output = command.current_dir(ground.dir()).args(args).output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (!error.contains("setpriv:")).then_some(output)
}

#[test]
fn what_may_not_be_read_is_named_and_the_rest_protected() {
    let ground = Playground::new();
    for (path, mode) in
        [(ground.dir().to_path_buf(), 0o777), (ground.tree(), 0o777), (ground.path("a"), 0o000)]
    {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(ground.path("sub/deep"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let Some(output) = as_nobody(&ground, &["protect", "tree", "--json"]) else {
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
    ground.expect_trusting(0, &["protect", "tree"]);
    assert!(ground.path(".gabion/redundancy/sub/deep/d").exists());
}

/// A scrub by someone without rights called files lost that he was not allowed to read, and the catalogue remembered that.
#[test]
fn what_may_not_be_looked_at_is_not_lost() {
    let ground = Playground::new();
    for path in [ground.dir().to_path_buf(), ground.tree()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let Some(output) = as_nobody(&ground, &["protect", "tree"]) else {
        gabion_testkit::skip!("what_may_not_be_looked_at_is_not_lost: rights cannot be dropped here");
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    ground.write("secret", &[7; 5000]);
    std::fs::set_permissions(ground.path("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    ground.expect_trusting(0, &["protect", "tree"]);
    // So that user 65534 can read what root wrote.
    let given = Command::new("chown").args(["-R", "65534"]).arg(ground.path(".gabion")).status();
    assert!(given.unwrap().success());
    for args in [&["scrub", "tree", "--json"][..], &["repair", "tree", "--yes", "--json"]] {
        let output = as_nobody(&ground, args).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["failed"][0]["path"], "secret", "{report}");
        assert_eq!(output.status.code(), Some(2), "{report}");
    }
    let status = ground.expect_trusting(0, &["status", "tree", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["lost"].as_array().unwrap().len(), 0);
    // What may not be seen is not called unprotected.
    ground.expect(0, &["protect", "tree/sub"]);
    let output = as_nobody(&ground, &["status", "tree/sub"]).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("Permission denied"), "{error}");
}
