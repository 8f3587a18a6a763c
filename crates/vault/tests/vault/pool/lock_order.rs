//! Redundancy files of one file are locked in one order by everybody, whatever they make of the targets: otherwise two
//! processes, each with a lock that the other one wants, wait until one gives up.

use super::PoolFixture;
use crate::fixture::QUIET;
use gabion_platform::lock::Lockable;
use gabion_testkit::until;
use gabion_vault::encode::{EncodeOptions, Encoder};
use gabion_vault::pool_rebuild::survey::overview;
use gabion_vault::repair::repair;
use gabion_vault::scrub::{Options, Selection, scrub};
use gabion_vault::storage::pool::{self, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::whatif::what_if;
use gabion_vault::world::Clock;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// A pool with one file, three redundancy files, and the target of the first one retired: what is there comes last
/// where targets in service are preferred. Also returns the redundancy files in the order of their locks.
fn fixture() -> (PoolFixture, Vec<PathBuf>) {
    let mut fixture = PoolFixture::new(&[None; 6], 3, 3);
    fixture.put("file", &[7; 400_000]);
    fixture.protect_all();
    let mut redundancy = fixture.redundancy("file");
    redundancy.sort();
    assert_eq!(redundancy.len(), 3);
    fixture.pool().retire(&format!("d{}", redundancy[0].0)).unwrap();
    (fixture, redundancy.into_iter().map(|(_, path)| path).collect())
}

fn exclusive(path: &PathBuf) -> Lockable {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Lockable::exclusive_within(file, Duration::from_secs(60)).unwrap()
}

/// Number of locks of a file.
fn locks(path: &PathBuf) -> usize {
    let inode = format!(":{} ", std::fs::metadata(path).unwrap().ino());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    locks.lines().filter(|line| line.contains(" FLOCK ") && line.contains(&inode)).count()
}

#[test]
fn redundancy_is_locked_in_one_order() {
    let (fixture, redundancy) = fixture();
    let first = fixture.pool().paths()[0].clone();
    let pool = || Pool::open_at(std::slice::from_ref(&first), pool::Options::default()).unwrap();
    let vault = || Vault::open(&Location::of_pool(&pool()).unwrap(), Clock::System).unwrap();
    let encode = || {
        let vault = vault();
        let encoder = Encoder { storage: &*vault.storage, coders: &vault.coders, clock: &vault.clock };
        let coder = vault.coders.get("3+3").unwrap();
        let options = EncodeOptions {
            threads: 1,
            moved: false,
            known_elsewhere: false,
            known: None,
            recorded: None,
            flushed: None,
            progress: &|_| {},
            team: None,
            elsewhere: &|_| {},
            stopped: &|| false,
        };
        encoder.encode(b"file", &coder, 4096, options).unwrap();
    };
    let scrub = || {
        let options = Options { selection: Selection::All, from_medium: false, resume: false };
        assert!(scrub(&vault(), b"", options, QUIET).unwrap().damage.is_empty());
    };
    let survey = || drop(overview(&pool(), &vault().coders, 1).unwrap());
    let what_if = || drop(what_if(&vault(), b"", &[b"d1".to_vec()], 1, QUIET).unwrap());
    let all: [(&str, &(dyn Fn() + Sync)); 4] =
        [("encode", &encode), ("scrub", &scrub), ("survey", &survey), ("what if", &what_if)];
    for (name, work) in all {
        let last = exclusive(&redundancy[2]);
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            until(&format!("{name} has locked the ones before"), || {
                assert!(!working.is_finished(), "{name}");
                redundancy[..2].iter().all(|path| locks(path) == 1)
            });
            drop(last);
            working.join().unwrap();
        });
    }
}

/// A repair changes redundancy that it has locked, like others, for reading. It waits with nothing locked.
#[test]
fn a_repair_does_not_keep_those_it_waits_for() {
    let (fixture, redundancy) = fixture();
    crate::fixture::flip(&redundancy[0], 2000);
    let location = Location::of_pool(fixture.pool()).unwrap();
    let last = exclusive(&redundancy[2]);
    std::thread::scope(|scope| {
        let repairing =
            scope.spawn(|| repair(&Vault::open(&location, Clock::System).unwrap(), b"file", QUIET));
        until("it has locked the ones before", || redundancy[..2].iter().all(|path| locks(path) == 1));
        // A reader of the one that it has to change, and then somebody who has the second one and wants the first.
        let file = File::open(&redundancy[0]).unwrap();
        let reader = Lockable::shared_within(file, Duration::ZERO).unwrap();
        drop(last);
        let second = exclusive(&redundancy[1]);
        drop(reader);
        let first = exclusive(&redundancy[0]);
        drop((first, second));
        repairing.join().unwrap().unwrap();
    });
    assert!(fixture.scrub().damage.is_empty());
}
