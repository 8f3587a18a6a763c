//! Files get each other's names while targets are gone: redundancy belongs to a file, not to a name, and stays with it.

use super::playground::{Ground, QUIET, Seed};
use gabion_testkit::rounds;
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::coder::Coders;
use gabion_vault::live::{Found, Live};
use gabion_vault::repair;

/// Files of three stripes each; every one of them needs every target that has a column of it.
const SIZE: usize = 3 * 3 * 4096;

const NAMES: [&str; 8] = ["a", "b", "c", "dir/a", "dir/b", "e", "f", "g"];

/// Two of eight targets are gone: all redundancy of some files is needed.
fn degraded(seed: u64) -> Ground {
    let mut ground = Ground::new(&[None; 8], 3, 2);
    for (number, name) in (0..).zip(NAMES) {
        ground.put(name, &Seed(100 * seed + number).bytes(SIZE));
    }
    ground.protect();
    let first = 4 + seed as usize % 5;
    ground.lose(first);
    ground.lose(if first == 8 { 4 } else { first + 1 });
    ground.assert_right("two targets are gone");
    ground
}

/// `from` takes the name `to`.
fn rename(ground: &mut Ground, from: &str, to: &str) {
    ground.pool.rename(from.as_bytes(), to.as_bytes()).unwrap();
    let content = ground.files.remove(from).unwrap();
    ground.files.insert(to.to_owned(), content);
}

fn remove(ground: &mut Ground, name: &str) {
    ground.pool.remove(name.as_bytes()).unwrap();
    ground.files.remove(name);
}

fn exchange(ground: &mut Ground, one: &str, other: &str) {
    let live = Live::start(ground.pool.clone(), Coders::new().unwrap()).unwrap();
    live.exchange(one.as_bytes(), other.as_bytes()).unwrap();
    drop(live);
    let content = ground.files.insert(one.to_owned(), ground.files[other].clone()).unwrap();
    ground.files.insert(other.to_owned(), content);
}

fn link(ground: &mut Ground, name: &str, to: &str) {
    let live = Live::start(ground.pool.clone(), Coders::new().unwrap()).unwrap();
    let Some(Found::File(stub)) = live.find(name.as_bytes()).unwrap() else { panic!("no file") };
    let file = live.open(*stub);
    let names = || vec![name.as_bytes().to_vec()];
    file.add_name(&names, to.as_bytes()).unwrap();
    drop((file, live));
    ground.files.insert(to.to_owned(), ground.files[name].clone());
}

/// Files can be read at every moment: at once, after `protect`, after `pool rebuild`; and no command calls them lost.
fn assert_kept(seed: u64, told: &str, change: impl Fn(&mut Ground)) {
    let mut ground = degraded(seed);
    let told = format!("{told}, seed {seed}");
    change(&mut ground);
    ground.assert_right(&format!("{told}: before protect"));
    assert_nothing_is_lost(&ground, &format!("{told}: before protect"));
    let mut unprotected = degraded(seed);
    change(&mut unprotected);
    let report = unprotected.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{told}: rebuild: {report:?}");
    unprotected.assert_right(&format!("{told}: rebuilt without protect"));
    ground.protect();
    ground.assert_right(&format!("{told}: after protect"));
    assert_nothing_is_lost(&ground, &format!("{told}: after protect"));
    let report = ground.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{told}: rebuild: {report:?}");
    ground.assert_right(&format!("{told}: after rebuild"));
    let scrubbed = ground.scrub();
    assert!(scrubbed.damage.iter().all(|it| it.problems.is_empty()), "{told}: {scrubbed:?}");
}

fn assert_nothing_is_lost(ground: &Ground, told: &str) {
    let status = ground.status();
    assert_eq!(status.files(gabion_vault::catalogue::State::Lost), 0, "{told}: {status:?}");
    let none = std::collections::BTreeSet::new();
    assert_eq!(ground.named(gabion_vault::pool_rebuild::survey::Standing::Lost), none, "{told}");
}

#[test]
fn a_file_moved_over_a_protected_name_keeps_its_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "over", |ground| rename(ground, "a", "dir/b"));
    }
}

#[test]
fn a_file_that_takes_the_name_of_a_removed_one_keeps_its_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "rm and mv", |ground| {
            remove(ground, "b");
            rename(ground, "a", "b");
        });
    }
}

#[test]
fn files_that_exchange_names_keep_their_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "exchange", |ground| exchange(ground, "a", "dir/b"));
        assert_kept(seed, "exchange by a third name", |ground| {
            rename(ground, "a", "third");
            rename(ground, "b", "a");
            rename(ground, "third", "b");
        });
    }
}

/// As logs are rotated: each takes the name of the next older one, the oldest goes, and there is a new one.
#[test]
fn rotated_files_keep_their_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "rotation", |ground| {
            rename(ground, "b", "c");
            rename(ground, "a", "b");
            ground.put("a", b"new");
        });
    }
}

/// Names of one file share its redundancy. It stays until the last of them is gone.
#[test]
fn several_names_have_one_redundancy() {
    for seed in 0..rounds(5) as u64 {
        assert_kept(seed, "a name more", |ground| link(ground, "a", "another"));
        assert_kept(seed, "another name in place of the first", |ground| {
            link(ground, "a", "another");
            remove(ground, "a");
        });
    }
    let mut ground = Ground::new(&[None; 8], 3, 2);
    ground.put("a", &Seed(1).bytes(SIZE));
    link(&mut ground, "a", "b");
    ground.protect();
    assert_eq!(ground.redundancy("a"), ground.redundancy("b"));
    assert_eq!(ground.redundancy("a").len(), 2);
    assert_eq!(ground.redundancy_files(), 2, "it is encoded once");
    remove(&mut ground, "a");
    ground.protect();
    ground.assert_whole("one name is left");
    remove(&mut ground, "b");
    ground.protect();
    assert_eq!(ground.redundancy_files(), 0, "it goes with the last name");
}

/// Between `pool rm` or `pool mv` and the next `protect`, `scrub` found neither the file nor redundancy at the name that the catalogue knows, and called it
/// lost; `protect` carried that on to the new name, for good. A name that is gone is no loss.
#[test]
fn files_that_were_removed_or_renamed_are_not_lost() {
    let mut ground = Ground::filled(50);
    ground.pool.remove(b"dir0/file 8").unwrap();
    ground.files.remove("dir0/file 8").unwrap();
    ground.pool.rename(b"dir1/file 9", b"renamed").unwrap();
    let content = ground.files.remove("dir1/file 9").unwrap();
    ground.files.insert("renamed".to_owned(), content);
    let scrubbed = ground.scrub();
    assert!(scrubbed.gone == 2 && scrubbed.damage.is_empty(), "{scrubbed:?}");
    assert!(scrubbed.failed.is_empty(), "{scrubbed:?}");
    let options = repair::Options { missing: true, ..repair::Options::default() };
    let plan = repair::plan(&ground.vault, b"", options, QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    ground.protect();
    ground.assert_whole("protected again");
}

/// A file was lost, removed, and another protected file got its name while a target was gone. Nothing could be read of that one, so `protect` kept what it knew of the
/// name: the healthy file was called lost for good, and repair refused to mend it.
#[test]
fn a_file_does_not_inherit_the_loss_of_the_one_that_had_its_name() {
    let mut ground = Ground::new(&[None; 6], 1, 2);
    for (name, seed) in [("a", 1), ("b", 2)] {
        ground.put(name, &Seed(seed).bytes(SIZE));
    }
    ground.protect();
    let entry = ground.vault.catalogue.find(b"b").unwrap().unwrap();
    ground.vault.catalogue.put(b"b", &Entry { state: State::Lost, columns: 0, ..entry }).unwrap();
    ground.pool.remove(b"b").unwrap();
    ground.pool.rename(b"a", b"b").unwrap();
    let content = ground.files.remove("a").unwrap();
    ground.files.insert("b".to_owned(), content);
    let target = ground.data("b")[0].clone();
    let number: usize = target[1..].parse().unwrap();
    ground.lose(number);
    ground.protect();
    let entry = ground.vault.catalogue.find(b"b").unwrap().unwrap();
    assert_eq!(entry.id, ground.pool.stub(b"b").unwrap().id, "{entry:?}");
    assert_ne!(entry.state, State::Lost, "{entry:?}");
    ground.bring_back(number);
    ground.rebuild_all("it is back");
    ground.protect();
    ground.assert_whole("it is back");
}

/// A file got the name of one that was protected later. Until the next `protect` the catalogue's row of that name is about the other file: scrub and repair took
/// the redundancy of this one for outdated, and called it degraded or lost.
#[test]
fn a_file_under_the_name_of_a_younger_one_is_not_called_degraded() {
    let mut ground = Ground::new(&[None; 6], 3, 2);
    ground.put("a", &Seed(1).bytes(SIZE));
    ground.protect();
    ground.put("b", &Seed(2).bytes(SIZE));
    ground.protect();
    ground.pool.rename(b"a", b"b").unwrap();
    let content = ground.files.remove("a").unwrap();
    ground.files.insert("b".to_owned(), content);
    let scrubbed = ground.scrub();
    assert!(scrubbed.damage.is_empty() && scrubbed.failed.is_empty(), "{scrubbed:?}");
    assert_eq!((scrubbed.gone, scrubbed.changing, scrubbed.files), (1, 1, 0), "{scrubbed:?}");
    let plan = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    ground.protect();
    ground.assert_whole("protected again");
}
