//! What commands answer to people and scripts: exit codes that mean the same everywhere, and times.

use super::fixture::Fixture;
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Stdio};

/// Waits until a process catches SIGINT.
fn until_it_listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    gabion_testkit::until("the command catches SIGINT", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        caught & 1 << (Signal::INT.as_raw() - 1) != 0
    });
}

/// Ctrl-C was 2 for `scrub` and 1 for `protect`, as if it had found something.
#[test]
fn an_interrupted_command_ends_with_2() {
    let fixture = Fixture::new();
    let interrupted = |args: &[&str]| {
        let mut command = fixture.command(args);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until_it_listens(&child);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}{output:?}");
        text
    };
    // Slow enough that the signal is earlier than the end on any machine.
    interrupted(&["protect", "tree", "--limit", "1KiB/s"]);
    fixture.expect(0, &["protect", "tree"]);
    interrupted(&["scrub", "tree", "--limit", "1KiB/s"]);
    assert_eq!(fixture.json(0, &["scrub", "tree"])["worst"], "protected");
    fixture.write("a", &[3; 4_000_000]);
    interrupted(&["protect", "tree/a", "--limit", "1KiB/s"]);
    assert_eq!(fixture.json(0, &["protect", "tree"])["stopped"], false);
}

/// "Nothing to do" was 1 for `shard repair` and 0 for `repair`.
#[test]
fn nothing_to_do_is_0() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    for args in [
        &["protect", "tree"][..],
        &["repair", "tree", "--yes"],
        &["work", "tree"],
        &["scrub", "tree", "--due"],
        &["replaced", "list", "tree"],
        &["replaced", "purge", "tree", "--all", "--yes"],
    ] {
        fixture.expect(0, args);
    }
    fixture.expect(0, &["shard", "split", "tree/a", "--code", "2+1", "--out", "shards"]);
    fixture.expect(0, &["shard", "repair", "shards"]);
    assert!(fixture.expect(0, &["replaced", "list", "tree"]).contains("no content"));
}

/// `--workers 0` was all workers for `watch` and none for `mount`.
#[test]
fn no_workers_and_all_workers_are_not_the_same() {
    let fixture = Fixture::new();
    let error = String::from_utf8(fixture.run(&["watch", "tree", "--workers", "0"]).stderr).unwrap();
    assert!(error.contains("nothing would be protected") && error.contains("all"), "{error}");
    assert!(!fixture.path(".gabion").exists());
    for command in ["watch", "mount"] {
        assert!(fixture.expect(0, &[command, "--help"]).contains("`all` for one per processor"));
    }
}

/// Times were UTC, wherever the reader was.
#[test]
fn texts_have_local_times() {
    let fixture = Fixture::new();
    fixture.expect(0, &["protect", "tree"]);
    let status = |zone: &str| {
        let output = fixture.command(&["status", "tree"]).env("TZ", zone).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|line| line.starts_with("protected ")).unwrap().to_owned()
    };
    assert!(status("XYZ-3:30").contains("+03:30)"), "{}", status("XYZ-3:30"));
    assert!(status("UTC0").contains("UTC)"), "{}", status("UTC0"));
}
