//! Signals and sudden ends.

use super::playground::{Playground, bytes, gabion};
use gabion_testkit::kill::{Call, Point, can_kill, killed_at, was_killed};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};

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

/// Waits until the temporary files are there.
fn wait_for_temps(place: &Playground) {
    gabion_testkit::until("temporary files appear", || place.temps() >= 6);
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

/// Points at which a command is killed, further apart the later they are; the last ones come after its end.
fn points() -> impl Iterator<Item = Point> {
    Call::ALL.into_iter().flat_map(|call| [1, 2, 3, 5, 8, 20].map(|nth| Point { call, nth }))
}

/// Runs a split of `new` that is killed at the point; whether it was.
fn killed_split(place: &Playground, point: Point) -> bool {
    let arguments = [
        "shard", "split", "new", "--name", "file", "--code", "4+2", "--block", "1KiB", "--out", "shards",
        "--force",
    ];
    let status = killed_at(point, env!("CARGO_BIN_EXE_gabion"))
        .args(arguments)
        .current_dir(place.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(was_killed(status) || status.success(), "{point:?}: {status}");
    was_killed(status)
}

#[test]
fn a_killed_split_leaves_nothing_that_looks_like_a_shard_or_a_set() {
    if !can_kill("a_killed_split_leaves_nothing_that_looks_like_a_shard_or_a_set") {
        return;
    }
    let new = bytes(50_000, 5);
    let mut nothing = 0;
    for point in points() {
        let place = Playground::new();
        fs::write(place.path("new"), &new).unwrap();
        killed_split(&place, point);
        let renamed = place.path("shards").exists()
            && place.contents().iter().any(|(path, _)| !path.to_string_lossy().ends_with(".tmp"));
        let ran = place.run(&["join", "shards", "-o", "joined"]);
        // Before the first rename nothing is a shard; from then on all of them are whole.
        match ran.code {
            0 => assert!(fs::read(place.path("joined")).unwrap() == new, "{point:?}"),
            _ => {
                assert!(!renamed, "{point:?}: {}", ran.err);
                nothing += 1;
            }
        }
    }
    assert!(nothing >= 10, "{nothing} were killed before they were done");
}

/// Whenever it is killed, also among the renames over an older set, one whole set is there.
#[test]
fn a_kill_during_replacement_loses_no_set() {
    if !can_kill("a_kill_during_replacement_loses_no_set") {
        return;
    }
    let new = bytes(300_000, 7);
    let mut killed = 0;
    for point in points() {
        let place = Playground::split(300_000, "4+2", "1KiB");
        fs::write(place.path("new"), &new).unwrap();
        killed += u32::from(killed_split(&place, point));
        let ran = place.run(&["join", "shards", "-o", "joined"]);
        if ran.code == 2 {
            // In between, both can be joined and the user is asked.
            assert!(ran.err.contains("choose one with --set"), "{point:?}: {}", ran.err);
            continue;
        }
        let joined = fs::read(place.path("joined")).unwrap();
        assert!(joined == new || joined == bytes(300_000, 1), "{point:?}: {}", ran.err);
    }
    assert!(killed >= 15, "{killed} were killed");
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
