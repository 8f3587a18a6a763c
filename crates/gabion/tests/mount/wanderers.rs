//! Files of a pool that are renamed repeatedly while targets are gone: their redundancy is found under any name.

use super::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use gabion_vault::world::Stopwatch;
use std::time::Duration;

const FILES: usize = 24;

const LEFT: [&str; 5] = ["t1", "t2", "t3", "t5", "t6"];

/// Whether the pool has redundancy of the file at `path`: by its identity, which its stub on any target says.
fn has_redundancy(fixture: &Fixture, path: &str) -> bool {
    let stub =
        |target: &&str| std::fs::read_to_string(fixture.path().join(target).join("tree").join(path)).ok();
    let Some(stub) = LEFT.iter().find_map(stub) else { return false };
    let Some(id) = stub.lines().find_map(|line| line.strip_prefix("id = ")) else { return false };
    let place = |target: &&str| fixture.path().join(target).join("parity").join(&id[..2]).join(id);
    LEFT.iter().any(|target| place(target).exists())
}

fn name(directory: &str, number: usize) -> String {
    format!("{directory}/file {number}")
}

/// Waits until the redundancy of all files is in one directory; looks meanwhile.
fn wait_for_redundancy(fixture: &Fixture, at: &str, mut look: impl FnMut()) {
    let started = Stopwatch::start();
    while !(0..FILES).all(|number| has_redundancy(fixture, &name(at, number))) {
        assert!(started.elapsed() < gabion_testkit::PATIENCE, "redundancy does not follow its files to {at}");
        look();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A directory is renamed while two targets are gone; `before` its files leave it, and `after`, something happens.
/// They can be read all the time, until their redundancy has followed them.
fn wander(before: impl FnOnce(&Fixture), after: impl FnOnce(&Fixture)) {
    let mut fixture = Fixture::new();
    let create = ["pool", "create", "tank", "--pools", "pools", "--stripe", "2", "--redundancy", "2"];
    let targets = ["--block", "4KiB", "--targets", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
    fixture.expect(0, &[&create[..], &targets].concat());
    let policy = "[default]\ncode = \"2+2\"\nquiet = \"0s\"\n[guard]\nat_least = 1000000\n";
    std::fs::write(fixture.path().join("policy.toml"), policy).unwrap();
    fixture.mount_source("t1", &[]);
    for directory in ["old", "far"] {
        std::fs::create_dir(fixture.at(directory)).unwrap();
    }
    let contents: Vec<Vec<u8>> = (1..=FILES).map(|number| TestRng(number as u64).bytes(20_000)).collect();
    for (number, content) in contents.iter().enumerate() {
        std::fs::write(fixture.at(&name("old", number)), content).unwrap();
    }
    fixture.wait_until("t1");
    for lost in ["t4", "t7"] {
        std::fs::rename(fixture.path().join(lost), fixture.path().join(format!("{lost} away"))).unwrap();
    }
    std::fs::rename(fixture.at("old"), fixture.at("new")).unwrap();
    before(&fixture);
    for number in 0..FILES {
        std::fs::rename(fixture.at(&name("new", number)), fixture.at(&name("far", number))).unwrap();
    }
    after(&fixture);
    let read_all = || {
        std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
        for (number, content) in contents.iter().enumerate() {
            let found = std::fs::read(fixture.at(&name("far", number)));
            let found = found.unwrap_or_else(|error| panic!("file {number}: {error}"));
            assert!(found == *content, "file {number}");
        }
    };
    wait_for_redundancy(&fixture, "far", read_all);
    // Older redundancy may be left behind at names in between; nothing reads it.
    read_all();
    fixture.unmount();
}

/// Scans of the old and the new directory found the files at neither place, and called them deleted.
#[test]
fn mounted_files_that_leave_a_renamed_directory_keep_their_redundancy() {
    if can_mount("files that leave a renamed directory") {
        wander(|_| {}, |_| {});
    }
}

/// What was beneath the former name of a directory that is gone was removed with it.
#[test]
fn mounted_files_that_left_a_directory_which_is_removed_keep_their_redundancy() {
    if can_mount("files that left a removed directory") {
        wander(|_| {}, |fixture| std::fs::remove_dir(fixture.at("new")).unwrap());
    }
}

/// Redundancy has followed the files to a name at which they cannot be protected, for want of targets; then they go
/// on. By the changelog they come from where they were at first, and what lay at the name in between was removed.
#[test]
fn mounted_files_that_move_on_before_they_are_protected_keep_their_redundancy() {
    if can_mount("files that move on") {
        wander(|fixture| wait_for_redundancy(fixture, "new", || {}), |_| {});
    }
}
