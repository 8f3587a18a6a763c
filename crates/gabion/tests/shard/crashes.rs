//! Signals and sudden ends.

use super::playground::{Playground, bytes, gabion};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

fn split_from_pipe(place: &Playground) -> Child {
    gabion()
        .args([
            "split", "-", "--name", "file", "--code", "4+2", "--block", "1KiB", "--out", "shards", "--force",
        ])
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until the temporary files are there, at most ten seconds.
fn wait_for_temps(place: &Playground) {
    for _ in 0..1000 {
        if place.temps() >= 6 {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("no temporary files appeared");
}

#[test]
fn signals_remove_what_is_unfinished() {
    for signal in [Signal::INT, Signal::TERM] {
        let place = Playground::split(5000, "4+2", "1KiB");
        let before = place.contents();
        let mut child = split_from_pipe(&place);
        child.stdin.as_mut().unwrap().write_all(&bytes(50_000, 5)).unwrap();
        wait_for_temps(&place);
        // Standard input stays open: the command must not wait for it.
        kill_process(Pid::from_child(&child), signal).unwrap();
        let input = child.stdin.take();
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
        assert!(place.contents() == before, "nothing that existed is touched, nothing is left");
    }
}

#[test]
fn a_killed_split_leaves_nothing_that_looks_like_a_shard() {
    for delay in [0, 3, 11, 29] {
        let place = Playground::new();
        let mut child = split_from_pipe(&place);
        let _ = child.stdin.as_mut().unwrap().write_all(&bytes(50_000, 5));
        if delay > 0 {
            wait_for_temps(&place);
        }
        sleep(Duration::from_millis(delay));
        child.kill().unwrap();
        child.wait().unwrap();
        if !place.path("shards").exists() {
            continue;
        }
        let shards = place.contents();
        assert!(shards.iter().all(|(_, bytes)| !bytes.starts_with(b"\x89GABSH")), "{} files", shards.len());
        place.run(&["verify", "shards"]).expect(2).says("no shards");
    }
}

/// Whenever it is killed, also among the renames over an older set, one whole set is there.
#[test]
fn a_kill_during_replacement_loses_no_set() {
    let new = bytes(300_000, 7);
    for delay in 0..12 {
        let place = Playground::split(300_000, "4+2", "1KiB");
        fs::write(place.path("new"), &new).unwrap();
        let mut child = gabion()
            .args([
                "split", "new", "--name", "file", "--code", "4+2", "--block", "1KiB", "--out", "shards",
                "--force",
            ])
            .current_dir(place.path(""))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        sleep(Duration::from_millis(delay * 3));
        let _ = child.kill();
        child.wait().unwrap();
        let ran = place.run(&["join", "shards", "-o", "joined"]);
        if ran.code == 2 {
            // In between, both can be joined and the user is asked.
            assert!(ran.err.contains("choose one with --set"), "{}", ran.err);
            continue;
        }
        let joined = fs::read(place.path("joined")).unwrap();
        assert!(joined == new || joined == bytes(300_000, 1), "{}", ran.err);
    }
}

/// The temporary files of a crash among the renames are complete, and found by their content.
#[test]
fn shards_under_temporary_names_count() {
    let place = Playground::split(5000, "4+2", "100");
    (0..3).for_each(|i| fs::rename(place.shard(i), place.path(format!("shards/.gabion-{i}.tmp"))).unwrap());
    assert_eq!(place.joins().err, "");
}

#[test]
fn a_source_that_changes_is_refused() {
    let place = Playground::new();
    let file = fs::File::create(place.path("file")).unwrap();
    file.set_len(64 << 20).unwrap();
    let child = gabion()
        .args(["split", "file", "--code", "4+2", "--block", "4KiB", "--out", "shards"])
        .current_dir(place.path(""))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_temps(&place);
    file.set_len((64 << 20) + 1).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("file changed while it was read"));
    assert_eq!(fs::read_dir(place.path("shards")).unwrap().count(), 0);
}
