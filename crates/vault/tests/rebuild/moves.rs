//! Files take each other's names while targets are lost: redundancy belongs to a file, not to a name, and stays with
//! it.

use super::fixture::{Fixture, QUIET, Seed};
use gabion_testkit::rounds;
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::coder::Coders;
use gabion_vault::live::{Live, LiveEntry};
use gabion_vault::repair;

/// Files of three stripes each; every file needs every target that has one of its columns.
const SIZE: usize = 3 * 3 * 4096;

const NAMES: [&str; 8] = ["a", "b", "c", "dir/a", "dir/b", "e", "f", "g"];

/// Two of eight targets are lost: some files need all of their redundancy.
fn degraded(seed: u64) -> Fixture {
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    for (number, name) in (0..).zip(NAMES) {
        fixture.put(name, &Seed(100 * seed + number).bytes(SIZE));
    }
    fixture.protect();
    let first = 4 + seed as usize % 5;
    fixture.lose(first);
    fixture.lose(if first == 8 { 4 } else { first + 1 });
    fixture.assert_right("two targets are gone");
    fixture
}

/// Renames `from` to `to`.
fn rename(fixture: &mut Fixture, from: &str, to: &str) {
    fixture.pool.rename(from.as_bytes(), to.as_bytes()).unwrap();
    let content = fixture.files.remove(from).unwrap();
    fixture.files.insert(to.to_owned(), content);
}

fn remove(fixture: &mut Fixture, name: &str) {
    fixture.pool.remove(name.as_bytes()).unwrap();
    fixture.files.remove(name);
}

fn exchange(fixture: &mut Fixture, one: &str, other: &str) {
    let live = Live::start(fixture.pool.clone(), Coders::new().unwrap()).unwrap();
    live.exchange(one.as_bytes(), other.as_bytes()).unwrap();
    drop(live);
    let content = fixture.files.insert(one.to_owned(), fixture.files[other].clone()).unwrap();
    fixture.files.insert(other.to_owned(), content);
}

fn link(fixture: &mut Fixture, name: &str, to: &str) {
    let live = Live::start(fixture.pool.clone(), Coders::new().unwrap()).unwrap();
    let Some(LiveEntry::File(stub)) = live.find(name.as_bytes()).unwrap() else { panic!("no file") };
    let file = live.open(*stub);
    let names = || vec![name.as_bytes().to_vec()];
    file.add_name(&names, to.as_bytes()).unwrap();
    drop((file, live));
    fixture.files.insert(to.to_owned(), fixture.files[name].clone());
}

/// Files are readable at every point: at once, after `protect`, after `pool rebuild`; and no command calls them lost.
fn assert_kept(seed: u64, told: &str, change: impl Fn(&mut Fixture)) {
    let mut fixture = degraded(seed);
    let told = format!("{told}, seed {seed}");
    change(&mut fixture);
    fixture.assert_right(&format!("{told}: before protect"));
    assert_nothing_is_lost(&fixture, &format!("{told}: before protect"));
    let mut unprotected = degraded(seed);
    change(&mut unprotected);
    let report = unprotected.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{told}: rebuild: {report:?}");
    unprotected.assert_right(&format!("{told}: rebuilt without protect"));
    fixture.protect();
    fixture.assert_right(&format!("{told}: after protect"));
    assert_nothing_is_lost(&fixture, &format!("{told}: after protect"));
    let report = fixture.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{told}: rebuild: {report:?}");
    fixture.assert_right(&format!("{told}: after rebuild"));
    let scrubbed = fixture.scrub();
    assert!(scrubbed.trouble.iter().all(|it| it.problems.is_empty()), "{told}: {scrubbed:?}");
}

fn assert_nothing_is_lost(fixture: &Fixture, told: &str) {
    let status = fixture.status();
    assert_eq!(status.files(gabion_vault::catalogue::State::Lost), 0, "{told}: {status:?}");
    let none = std::collections::BTreeSet::new();
    assert_eq!(fixture.named(gabion_vault::pool_rebuild::survey::FileHealth::Lost), none, "{told}");
}

#[test]
fn a_file_moved_over_a_protected_name_keeps_its_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "over", |fixture| rename(fixture, "a", "dir/b"));
    }
}

#[test]
fn a_file_that_takes_the_name_of_a_removed_one_keeps_its_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "rm and mv", |fixture| {
            remove(fixture, "b");
            rename(fixture, "a", "b");
        });
    }
}

#[test]
fn files_that_exchange_names_keep_their_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "exchange", |fixture| exchange(fixture, "a", "dir/b"));
        assert_kept(seed, "exchange by a third name", |fixture| {
            rename(fixture, "a", "third");
            rename(fixture, "b", "a");
            rename(fixture, "third", "b");
        });
    }
}

/// Log rotation: each file takes the name of the next older one, the oldest is removed, and a new one is created.
#[test]
fn rotated_files_keep_their_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "rotation", |fixture| {
            rename(fixture, "b", "c");
            rename(fixture, "a", "b");
            fixture.put("a", b"new");
        });
    }
}

/// Names of one file share its redundancy, which stays until the last name is removed.
#[test]
fn several_names_have_one_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "a name more", |fixture| link(fixture, "a", "another"));
        assert_kept(seed, "another name in place of the first", |fixture| {
            link(fixture, "a", "another");
            remove(fixture, "a");
        });
    }
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    fixture.put("a", &Seed(1).bytes(SIZE));
    link(&mut fixture, "a", "b");
    fixture.protect();
    assert_eq!(fixture.redundancy("a"), fixture.redundancy("b"));
    assert_eq!(fixture.redundancy("a").len(), 2);
    assert_eq!(fixture.redundancy_files(), 2, "it is encoded once");
    remove(&mut fixture, "a");
    fixture.protect();
    fixture.assert_whole("one name is left");
    remove(&mut fixture, "b");
    fixture.protect();
    assert_eq!(fixture.redundancy_files(), 0, "it goes with the last name");
}

/// Regression: between `pool rm` or `pool mv` and the next `protect`, `scrub` found neither the file nor redundancy at
/// the name in the catalogue, and called it lost; `protect` copied that state to the new name. A removed name is no
/// loss.
#[test]
fn files_that_were_removed_or_renamed_are_not_lost() {
    let mut fixture = Fixture::filled(50);
    fixture.pool.remove(b"dir0/file 8").unwrap();
    fixture.files.remove("dir0/file 8").unwrap();
    fixture.pool.rename(b"dir1/file 9", b"renamed").unwrap();
    let content = fixture.files.remove("dir1/file 9").unwrap();
    fixture.files.insert("renamed".to_owned(), content);
    let scrubbed = fixture.scrub();
    assert!(scrubbed.gone == 2 && scrubbed.trouble.is_empty(), "{scrubbed:?}");
    assert!(scrubbed.failed.is_empty(), "{scrubbed:?}");
    let options = repair::Options { missing: true, ..repair::Options::default() };
    let plan = repair::plan(&fixture.vault, b"", options, QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    fixture.protect();
    fixture.assert_whole("protected again");
}

/// Regression: a lost file was removed, and another protected file got its name while a target was offline. `protect`
/// kept the recorded state of the name, so the healthy file stayed lost, and repair refused it.
#[test]
fn a_file_does_not_inherit_the_loss_of_the_one_that_had_its_name() {
    let mut fixture = Fixture::new(&[None; 6], 1, 2);
    for (name, seed) in [("a", 1), ("b", 2)] {
        fixture.put(name, &Seed(seed).bytes(SIZE));
    }
    fixture.protect();
    let entry = fixture.vault.catalogue.find(b"b").unwrap().unwrap();
    fixture.vault.catalogue.put(b"b", &Entry { state: State::Lost, columns: 0, ..entry }).unwrap();
    fixture.pool.remove(b"b").unwrap();
    fixture.pool.rename(b"a", b"b").unwrap();
    let content = fixture.files.remove("a").unwrap();
    fixture.files.insert("b".to_owned(), content);
    let target = fixture.data("b")[0].clone();
    let number: usize = target[1..].parse().unwrap();
    fixture.lose(number);
    fixture.protect();
    let entry = fixture.vault.catalogue.find(b"b").unwrap().unwrap();
    assert_eq!(entry.id, fixture.pool.stub(b"b").unwrap().id, "{entry:?}");
    assert_ne!(entry.state, State::Lost, "{entry:?}");
    fixture.restore_disk(number);
    fixture.rebuild_all("it is back");
    fixture.protect();
    fixture.assert_whole("it is back");
}

/// Regression: a file got the name of one that was protected later. Until the next `protect` the catalogue's row of
/// that name is of the other file: scrub and repair took the redundancy for outdated, and called the file degraded or
/// lost.
#[test]
fn a_file_under_the_name_of_a_younger_one_is_not_called_degraded() {
    let mut fixture = Fixture::new(&[None; 6], 3, 2);
    fixture.put("a", &Seed(1).bytes(SIZE));
    fixture.protect();
    fixture.put("b", &Seed(2).bytes(SIZE));
    fixture.protect();
    fixture.pool.rename(b"a", b"b").unwrap();
    let content = fixture.files.remove("a").unwrap();
    fixture.files.insert("b".to_owned(), content);
    let scrubbed = fixture.scrub();
    assert!(scrubbed.trouble.is_empty() && scrubbed.failed.is_empty(), "{scrubbed:?}");
    assert_eq!((scrubbed.gone, scrubbed.changing, scrubbed.files), (1, 1, 0), "{scrubbed:?}");
    let plan = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    fixture.protect();
    fixture.assert_whole("protected again");
}
