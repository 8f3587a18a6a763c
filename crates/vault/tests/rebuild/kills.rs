//! A rebuild that is killed at counted system calls is continued by the next run.

use super::fixture::{Fixture, QUIET, Seed, options};
use gabion_testkit::kill::{Call, Point, can_kill, killed_at, was_killed};
use gabion_vault::pool_rebuild::{RebuildOptions, rebuild};
use gabion_vault::storage::pool::Pool;
use gabion_vault::vault::Vault;
use gabion_vault::world::Clock;
use std::path::PathBuf;
use std::process::Stdio;

/// A target that is never lost here: the child finds the pool by it.
const KEPT: &str = "d1";

#[test]
#[ignore = "this is the child, which the other test starts and kills"]
fn child() {
    let pool = Pool::open_at(&[PathBuf::from(KEPT)], options()).unwrap();
    let (vault, _) = Vault::of_pool(&pool, Clock::System).unwrap();
    let _lock = vault.lock("child").unwrap();
    let report = rebuild(&vault, &RebuildOptions::default(), QUIET).unwrap();
    assert!(report.is_whole(), "{report:?}");
}

#[test]
fn a_killed_rebuild_goes_on_and_nothing_is_worse() {
    if !can_kill("a_killed_rebuild_goes_on_and_nothing_is_worse") {
        return;
    }
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    let mut chance = Seed(77);
    for number in 0..30 {
        let size = 1000 + chance.below(60_000) as usize;
        fixture.put(&format!("file {number:02}"), &chance.bytes(size));
    }
    fixture.protect();
    let (mut killed, mut finished) = (0, 0);
    for round in 0..6u64 {
        let number = 2 + chance.below(7) as usize;
        fixture.lose(number);
        // Each run is killed a little later until one finishes.
        let call = Call::ALL[round as usize % Call::ALL.len()];
        let mut nth = 1;
        for attempt in 0..60u64 {
            nth += 1 + nth / 4 + chance.below(3) as u32;
            let point = Point { call, nth: if attempt < 20 { nth } else { u32::from(u16::MAX) } };
            let said = std::fs::File::create(fixture.dir.path().join("said")).unwrap();
            let status = killed_at(point, std::env::current_exe().unwrap())
                .args(["--exact", "kills::child", "--ignored"])
                .current_dir(fixture.dir.path())
                .stdout(said)
                .stderr(Stdio::null())
                .status()
                .unwrap();
            fixture.open();
            let told = format!("round {round}, {point:?}, without d{number}");
            if status.success() {
                finished += 1;
                break;
            }
            let said = std::fs::read_to_string(fixture.dir.path().join("said")).unwrap();
            assert!(was_killed(status), "{told}: it was killed, it did not fail: {status}: {said}");
            killed += 1;
            if attempt % 3 == 0 {
                fixture.assert_right(&told);
            }
        }
        fixture.assert_right(&format!("round {round}"));
        if round % 2 == 1 {
            fixture.assert_whole(&format!("round {round}, without d{number}"));
        }
        fixture.restore_disk(number);
        fixture.rebuild_all(&format!("round {round}, d{number} is back"));
    }
    println!("{killed} rebuilds were killed, {finished} came to their end");
    assert!(killed >= 6 && finished == 6, "{killed} {finished}");
    fixture.assert_whole("at the end");
}
