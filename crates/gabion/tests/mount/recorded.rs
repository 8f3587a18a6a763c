//! Workers of another process read what was written through a mount, and no more where that is certain.

use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Size of the file: its redundancy is larger than what is written anew as a whole.
const SIZE: u64 = 8 << 20;
/// A stripe of the fixture's code, 4+2 with blocks of 4 KiB.
const STRIPE: u64 = 4 * 4096;

/// A protected file `large` in a mount without workers.
fn protected() -> Fixture {
    let mut fixture = Fixture::new();
    std::fs::write(fixture.source("large"), TestRng(3).bytes(SIZE as usize)).unwrap();
    fixture.mount(&["--workers", "0"]);
    fixture.expect(0, &["protect", "source"]);
    fixture
}

fn open(fixture: &Fixture) -> File {
    File::options().write(true).open(fixture.at("large")).unwrap()
}

/// The mount knows half a second after a write that no other one belongs to the same version.
fn rest() {
    std::thread::sleep(Duration::from_millis(1500));
}

/// Lets another process do what is due. Says how many bytes it read; what it protected is what is there.
fn work(fixture: &Fixture) -> u64 {
    let done = fixture.expect(0, &["work", "source", "--json"]);
    let done: serde_json::Value = serde_json::from_str(done.lines().last().unwrap()).unwrap();
    fixture.expect(0, &["scrub", "source"]);
    done["encoded_bytes"].as_u64().unwrap_or_else(|| panic!("{done}"))
}

#[test]
fn mounted_small_writes_are_read_alone_by_other_processes() {
    if !can_mount("small writes") {
        return;
    }
    let mut fixture = protected();
    // On a busy machine the last version may be recorded later than the worker looks: it reads all then.
    for round in 0..3 {
        gabion_testkit::until("the range alone is read", || {
            let file = open(&fixture);
            file.write_all_at(&[7; 4096], 1_000_000 + round * 500_000).unwrap();
            if round == 1 {
                file.sync_all().unwrap();
                file.write_all_at(&[8; 10], 9000).unwrap();
            }
            drop(file);
            rest();
            (1..=4 * STRIPE).contains(&work(&fixture))
        });
    }
    // Ranges of the mount before this one.
    gabion_testkit::until("the ranges of both mounts are read", || {
        open(&fixture).write_all_at(&[9; 100], 77).unwrap();
        fixture.unmount();
        fixture.mount(&["--workers", "0"]);
        open(&fixture).write_all_at(&[9; 100], 5_000_000).unwrap();
        rest();
        (1..=4 * STRIPE).contains(&work(&fixture))
    });
    fixture.unmount();
    fixture.assert_protected();
}

#[test]
fn writes_beside_a_mount_are_protected_by_other_processes() {
    if !can_mount("writes beside") {
        return;
    }
    let mut fixture = protected();
    let direct = File::options().write(true).open(fixture.source("large")).unwrap();
    for order in 0..3 {
        let ours = |byte: u8| open(&fixture).write_all_at(&[byte; 4096], 4_000_000).unwrap();
        if order != 0 {
            ours(order);
            rest();
        }
        // Nobody records this one.
        direct.write_all_at(&[order; 10], 2_000_000 + u64::from(order) * 100_000).unwrap();
        rest();
        if order != 1 {
            ours(order + 10);
            rest();
        }
        assert!(work(&fixture) >= SIZE, "order {order}");
    }
    fixture.unmount();
}

#[test]
fn writes_that_a_killed_mount_did_not_record_are_protected_by_other_processes() {
    if !can_mount("killed") {
        return;
    }
    for is_recorded in [false, true] {
        let mut fixture = protected();
        let file = open(&fixture);
        file.write_all_at(&[1; 4096], 4_000_000).unwrap();
        file.sync_all().unwrap();
        if is_recorded {
            rest();
        }
        // A range that touches no other one stays in memory for a while.
        file.write_all_at(&[2; 4096], 6_000_000).unwrap();
        fixture.die();
        fixture.clear_away();
        drop(file);
        assert!(work(&fixture) >= SIZE, "{is_recorded}");
        fixture.assert_protected();
    }
}

#[test]
fn random_writes_are_protected_by_other_processes() {
    if !can_mount("random writes") {
        return;
    }
    let mut fixture = protected();
    let mut seed = TestRng(41);
    let direct = File::options().write(true).open(fixture.source("large")).unwrap();
    for round in 0..12 {
        let file = open(&fixture);
        for _ in 0..1 + seed.below(8) {
            let (offset, length) = (seed.below(SIZE), 1 + seed.below(20_000) as usize);
            let bytes = seed.bytes(length);
            match seed.below(12) {
                0 => file.set_len(SIZE / 2 + offset / 2).unwrap(),
                1 => direct.write_all_at(&bytes, offset).unwrap(),
                2 => file.sync_data().unwrap(),
                3 => std::fs::rename(fixture.at("large"), fixture.at("large")).unwrap(),
                _ => file.write_all_at(&bytes, offset).unwrap(),
            }
        }
        if round % 3 == 0 {
            rest();
        }
        drop(file);
        // What is not recorded yet is done in another round.
        fixture.expect(0, &["work", "source", "--json"]);
    }
    rest();
    work(&fixture);
    fixture.unmount();
    fixture.assert_protected();
}
