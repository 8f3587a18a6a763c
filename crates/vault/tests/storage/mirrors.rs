//! Mirrors of the namespace: loss, staleness, healing.

use super::fixture::{PoolFixture, all_names, bytes, metadata};
use gabion_vault::storage::pool::config::Mirror;
use gabion_vault::storage::pool::{PoolError, Warning};
use gabion_vault::world::Timestamp;
use std::fs;

fn filled() -> PoolFixture {
    let place = PoolFixture::new(6, 3, 2);
    for number in 0..10 {
        place.put(&format!("dir {}/file {number}", number % 3), &bytes(3000 * number, number as u64));
    }
    place
}

#[test]
fn no_name_is_lost_with_any_two_targets() {
    let place = filled();
    let names = all_names(&place.pool, b"");
    assert_eq!(names.len(), 13);
    for first in 1..=6 {
        for second in first + 1..=6 {
            place.lose(first);
            place.lose(second);
            assert_eq!(all_names(&place.pool, b""), names, "without {first} and {second}");
            let left = (1..=6).find(|left| *left != first && *left != second).unwrap();
            assert_eq!(all_names(&place.reopened(left), b""), names);
            let offline = place.pool.status().warnings;
            let offline = offline.iter().filter(|warning| matches!(warning, Warning::Offline { .. }));
            assert_eq!(offline.count(), 2, "and it is said");
            place.restore_disk(first);
            place.restore_disk(second);
        }
    }
    assert_eq!(place.pool.status().warnings, []);
    for number in 0..10usize {
        let content = place.get(&format!("dir {}/file {number}", number % 3)).unwrap();
        assert!(content == bytes(3000 * number, number as u64));
    }
}

/// A disk that was offline while files were removed, replaced and created must not bring back its old names.
#[test]
fn a_mirror_that_missed_changes_is_not_used() {
    let place = filled();
    let elsewhere = place.reopened(6);
    // The first three targets are the mirrors.
    place.lose(1);
    place.pool.remove(b"dir 0/file 0").unwrap();
    place.put("dir 1/file 1", b"changed");
    place.pool.rename(b"dir 2", b"moved").unwrap();
    place.put("new", b"new");
    let names = all_names(&place.pool, b"");
    place.restore_disk(1);
    let check = |pool: &gabion_vault::storage::pool::Pool| {
        assert_eq!(all_names(pool, b""), names);
        assert_eq!(pool.stub(b"dir 1/file 1").unwrap().size, 7);
    };
    check(&place.pool);
    check(&elsewhere);
    check(&place.reopened(1));
    assert_eq!(place.get("dir 1/file 1").unwrap(), b"changed");
    assert_eq!(place.pool.config().target[0].mirror, Mirror::Stale);
    assert!(place.target(1).join("tree/dir 0/file 0").exists(), "the old name is there, and not believed");
    assert!(place.pool.status().warnings.contains(&Warning::StaleMirror { target: "d1".parse().unwrap() }));
    let healed = place.pool.heal().unwrap();
    assert!(healed.failed.is_empty() && healed.mirrors == ["d1"], "{healed:?}");
    assert_eq!(place.pool.status().warnings, []);
    // Now it may be the only one.
    place.lose(2);
    place.lose(3);
    check(&place.pool);
    check(&place.reopened(1));
}

#[test]
fn healing_replaces_a_lost_mirror() {
    let place = filled();
    let names = all_names(&place.pool, b"");
    place.lose(2);
    let healed = place.pool.heal().unwrap();
    assert!(healed.failed.is_empty() && healed.mirrors.len() == 1, "{healed:?}");
    let fourth = healed.mirrors[0].clone();
    let of =
        |name: &str| place.pool.config().target.iter().find(|member| member.name == name).unwrap().mirror;
    assert_eq!((of(&fourth), of("d2")), (Mirror::Current, Mirror::None));
    place.pool.remove(b"dir 0/file 0").unwrap();
    place.restore_disk(2);
    place.lose(1);
    assert_eq!(all_names(&place.pool, b"").len(), names.len() - 1);
}

#[test]
fn damaged_and_old_stubs_are_outvoted_and_healed() {
    let place = filled();
    let path = "dir 1/file 4";
    let stubs = place.stubs(path);
    assert_eq!(stubs.len(), 3);
    let old = fs::read(&stubs[0]).unwrap();
    place.put(path, b"newer");
    let new = fs::read(&stubs[0]).unwrap();
    // One mirror has an old version, one has garbage, as after a crash and a bad sector.
    fs::write(&stubs[0], &old).unwrap();
    fs::write(&stubs[1], &new[..new.len() / 2]).unwrap();
    assert_eq!(place.get(path).unwrap(), b"newer");
    fs::remove_file(&stubs[0]).unwrap();
    assert_eq!(place.get(path).unwrap(), b"newer");
    let healed = place.pool.heal().unwrap();
    assert_eq!((healed.written, healed.removed, healed.failed.len()), (2, 0, 0), "{healed:?}");
    assert!(stubs.iter().all(|stub| fs::read(stub).unwrap() == new));
    // A write also heals.
    fs::write(&stubs[2], b"").unwrap();
    place.put(path, b"newest");
    assert!(stubs.iter().all(|stub| fs::read(stub).unwrap() == fs::read(&stubs[0]).unwrap()));
}

/// Absence on all mirrors is a result; damage of the only copy is an error.
#[test]
fn a_damaged_stub_is_not_an_absent_file() {
    let place = filled();
    let stubs = place.stubs("dir 0/file 3");
    fs::remove_file(&stubs[0]).unwrap();
    fs::remove_file(&stubs[1]).unwrap();
    fs::write(&stubs[2], b"gabion pool stub 1: torn").unwrap();
    let error = place.get("dir 0/file 3").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
    let error = place.pool.sweep(true).unwrap_err();
    assert!(error.to_string().contains("file 3"), "its objects must not look forgotten: {error}");
}

#[test]
fn changes_are_refused_without_a_quorum() {
    let place = filled();
    for number in [2, 3, 4] {
        place.lose(number);
    }
    assert_eq!(all_names(&place.pool, b"").len(), 13, "names are still read");
    let refused = place.pool.remove(b"dir 0/file 0").unwrap_err();
    assert!(matches!(refused, PoolError::Quorum { online: 3, need: 4, .. }), "{refused}");
    assert!(refused.to_string().contains("d2, d3, d4"), "{refused}");
    place.lose(1);
    let error = place.pool.list(b"").unwrap_err();
    assert!(matches!(error, PoolError::Mirrors { .. }), "{error}");
    for number in 1..=4 {
        place.restore_disk(number);
    }
    place.pool.remove(b"dir 0/file 0").unwrap();
}

#[test]
fn a_mirror_that_refuses_a_change_becomes_stale() {
    let place = filled();
    // A file where the mirror must have a directory.
    fs::write(place.target(2).join("tree/blocked"), b"").unwrap();
    let written =
        place.pool.put(b"blocked/file", &mut &b"x"[..], &metadata(), Timestamp::from_nanoseconds(5));
    let faults = written.unwrap().faults;
    assert_eq!(faults.iter().map(|fault| fault.target.as_str()).collect::<Vec<_>>(), ["d2"]);
    assert_eq!(place.pool.config().target[1].mirror, Mirror::Stale);
    assert_eq!(place.get("blocked/file").unwrap(), b"x");
    assert!(place.pool.heal().unwrap().failed.is_empty());
    assert_eq!(place.pool.status().warnings, []);
}

/// Regression: after a power failure a name may exist whose stub was not durable yet, as an empty file. It was listed,
/// `pool get` of its directory failed, and neither it nor its directory could be removed.
#[test]
fn a_name_without_a_durable_stub_is_absent() {
    for only in [false, true] {
        let place = filled();
        place.put("new/file", b"a moment before the power cut");
        if !only {
            place.put("new/other", b"kept");
        }
        place.stubs("new/file").iter().for_each(|stub| fs::write(stub, b"").unwrap());
        let listed = || place.pool.list(b"new").unwrap();
        assert!(listed().iter().all(|(name, found)| name == b"other" && found.is_ok()), "{:?}", listed());
        if !only {
            let error = place.pool.remove(b"new").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{error}");
            place.pool.remove(b"new/file").unwrap();
            assert!(place.stubs("new/file").is_empty(), "it is gone from all mirrors");
            let again = place.pool.remove(b"new/file").unwrap_err();
            assert_eq!(again.kind(), std::io::ErrorKind::NotFound, "{again}");
            place.pool.remove(b"new/other").unwrap();
        }
        place.pool.remove(b"new").unwrap();
        assert!((1..=3).all(|number| !place.target(number).join("tree/new").exists()));
        place.put("new/file", b"again");
        assert_eq!(place.get("new/file").unwrap(), b"again");
    }
}
