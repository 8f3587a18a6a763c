//! The process of a mount is killed at random times.

use crate::fixture::{Fixture, can_mount};
use crate::test_rng::TestRng;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Writes files with fsync until told to stop or until it fails, and counts them; gives what is known to be durable.
fn write_until(dir: &Path, number: u64, stop: &AtomicBool, count: &AtomicU64) -> BTreeMap<String, Vec<u8>> {
    let mut seed = TestRng(number * 1000 + 7);
    let mut durable = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{number} f{}", seed.below(20));
        let size = seed.below(200_000) as usize;
        let bytes = seed.bytes(size);
        let temporary = dir.join(format!("{name}.new"));
        let written = (|| -> std::io::Result<()> {
            let mut file = std::fs::File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&temporary, dir.join(&name))?;
            std::fs::File::open(dir)?.sync_all()
        })();
        match written {
            Ok(()) => {
                durable.insert(name, bytes);
                count.fetch_add(1, Ordering::Relaxed);
            }
            // From the rename on it may be either.
            Err(_) => {
                durable.remove(&name);
                return durable;
            }
        }
    }
    durable
}

#[test]
fn mounted_kill_at_any_moment_loses_nothing() {
    if !can_mount("kill") {
        return;
    }
    for round in 1..=5 {
        let mut chance = TestRng(round);
        let mut fixture = Fixture::new();
        fixture.mount(&[]);
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        let dir = fixture.at("");
        let durable: Vec<BTreeMap<String, Vec<u8>>> = std::thread::scope(|scope| {
            let (dir, stop, count) = (&dir, &stop, &count);
            let writers: Vec<_> =
                (0..3).map(|number| scope.spawn(move || write_until(dir, number, stop, count))).collect();
            let enough = 5 + chance.below(60);
            gabion_testkit::until("files are durable", || count.load(Ordering::Relaxed) >= enough);
            fixture.die();
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        fixture.clear_away();
        assert!(fixture.source(".gabion/mounted").exists(), "the mark is there until the end");
        fixture.mount(&[]);
        let mut found = 0;
        for (name, bytes) in durable.iter().flatten() {
            assert!(std::fs::read(fixture.at(name)).unwrap() == *bytes, "round {round}: {name}");
            found += 1;
        }
        println!("round {round}: {found} files");
        fixture.wait_until_protected();
        fixture.unmount();
        fixture.assert_protected();
    }
}
