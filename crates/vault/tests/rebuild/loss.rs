//! Targets are lost or retired.

use super::fixture::{BLOCK, Fixture, Seed, files_below, rot};
use gabion_vault::catalogue::State;
use gabion_vault::pool_rebuild::RebuildError;
use gabion_vault::pool_rebuild::survey::FileHealth;
use gabion_vault::storage::pool::NewTarget;
use gabion_vault::watchdog::TooMany;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_lost_target_is_seen_by_name_read_around_and_rebuilt() {
    for number in [1, 4, 8] {
        let mut fixture = Fixture::filled(number as u64);
        let told = format!("without d{number}");
        let touched = fixture.on(number);
        fixture.lose(number);
        assert_eq!(fixture.named(FileHealth::Degraded), touched, "{told}");
        let status = fixture.status();
        let named: BTreeSet<String> = status
            .affected
            .iter()
            .map(|it| {
                assert_eq!(it.state, State::Degraded, "{told}");
                String::from_utf8(it.path.clone()).unwrap()
            })
            .collect();
        assert_eq!(named, touched, "{told}");
        fixture.assert_right(&told);
        let report = fixture.rebuild_all(&told);
        assert_eq!(report.files as usize, touched.len(), "{told}: {report:?}");
        assert!(report.reconstructed > 0 && report.wrong == 0, "{told}: {report:?}");
        // The most exposed first.
        assert!(report.plan.files.is_sorted_by_key(|item| item.spare), "{told}: {report:?}");
        fixture.assert_whole(&told);
    }
}

#[test]
fn as_many_as_there_is_redundancy_may_go_at_once() {
    let mut fixture = Fixture::filled(2);
    fixture.lose(2);
    fixture.lose(5);
    fixture.assert_right("before");
    fixture.rebuild_all("without d2 and d5");
    fixture.assert_whole("without d2 and d5");
    // A second time: rebuilt columns protect against the next loss, without confirmation.
    fixture.lose(7);
    fixture.assert_right("without d7 as well");
    let report = fixture.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{report:?}");
    fixture.assert_right("five targets for five columns");
}

#[test]
fn one_too_many_waits_for_a_person_and_names_what_is_lost() {
    let mut fixture = Fixture::filled(3);
    // Placement is random: three targets that some file needs, but not all mirrors.
    let triples = (1..7).flat_map(|a| (a + 1..8).flat_map(move |b| (b + 1..9).map(move |c| [a, b, c])));
    let lost =
        triples.filter(|lost| *lost != [1, 2, 3]).find(|lost| !fixture.beyond(lost).is_empty()).unwrap();
    let names = lost.map(|number| format!("d{number}"));
    let kept = (1..9).find(|number| !lost.contains(number)).unwrap();
    let beyond = fixture.beyond(&lost);
    assert!(beyond.len() < fixture.files.len(), "{beyond:?}");
    lost.iter().for_each(|&number| fixture.lose(number));
    assert_eq!(fixture.named(FileHealth::Lost), beyond);
    let content = || ["objects", "parity"].map(|top| files_below(&fixture.target(kept).join(top)));
    let before = content();
    let Err(RebuildError::Ask { why, gone, agreement }) = fixture.try_rebuild(&[], None) else {
        panic!("nothing may be done without a person")
    };
    assert_eq!(why, TooMany::Redundancy { gone: 3, redundancy: 2 });
    assert_eq!(gone, names);
    assert!(fixture.try_rebuild(&[], Some("0123456789ab".to_owned())).is_err(), "another agreement");
    assert_eq!(content(), before, "nothing was done");
    let report = fixture.try_rebuild(&[], Some(agreement)).unwrap();
    let named: BTreeSet<String> =
        report.plan.lost.iter().map(|item| String::from_utf8(item.path.clone()).unwrap()).collect();
    assert_eq!(named, beyond);
    assert!(report.failed.is_empty(), "{report:?}");
    for (name, content) in &fixture.files {
        let read = fixture.read(name).0;
        assert!(
            if beyond.contains(name) { read.is_none() } else { read.as_ref() == Some(content) },
            "{name}"
        );
    }
    // Lost files can be rebuilt after one target has returned.
    fixture.restore_disk(lost[1]);
    fixture.assert_right("one is back");
    let report = fixture.rebuild();
    assert!(!report.has_losses(), "{report:?}");
    fixture.assert_right("one is back and verified");
    fixture.restore_disk(lost[0]);
    fixture.restore_disk(lost[2]);
    fixture.rebuild_all("all are back");
    // A catalogue that was rebuilt from headers while targets were lost does not know files without remaining headers.
    fixture.protect();
    fixture.assert_whole("all are back");
}

#[test]
fn unprotected_files_are_named_when_they_are_lost() {
    let mut fixture = Fixture::filled(4);
    fixture.put("new", &Seed(1).bytes(50_000));
    let holder: usize = fixture.data("new")[0][1..].parse().unwrap();
    fixture.lose(holder);
    assert_eq!(fixture.named(FileHealth::Lost), BTreeSet::from(["new".to_owned()]));
    let status = fixture.status();
    let lost: Vec<&[u8]> =
        status.affected.iter().filter(|it| it.state == State::Lost).map(|it| &it.path[..]).collect();
    assert_eq!(lost, [b"new"]);
    let report = fixture.rebuild();
    assert!(report.has_losses() && report.plan.lost.len() == 1, "{report:?}");
    fixture.restore_disk(holder);
    fixture.rebuild_all("it is back");
    fixture.protect();
    fixture.assert_whole("it is back");
}

#[test]
fn a_retired_target_is_emptied_by_copying() {
    let mut fixture = Fixture::filled(5);
    let touched = fixture.on(3);
    fixture.put("unprotected", &Seed(9).bytes(60_000));
    fixture.pool.retire("d3").unwrap();
    let report = fixture.try_rebuild(&["d3"], None).unwrap();
    assert!(report.is_whole() && report.files as usize >= touched.len(), "{report:?}");
    assert_eq!(report.reconstructed, 0, "all of it could be read: {report:?}");
    assert_eq!(files_below(&fixture.target(3).join("objects")), Vec::<std::path::PathBuf>::new());
    assert_eq!(files_below(&fixture.target(3).join("parity")), Vec::<std::path::PathBuf>::new());
    fixture.protect();
    fixture.assert_whole("without d3");
    fixture.lose(3);
    fixture.assert_whole("d3 is taken out");
}

/// Regression: small files have columns without bytes. If a stub names a retired target for one, the next write goes
/// there, and an overview reports forever that something has to be moved.
#[test]
fn a_retired_target_is_not_named_by_small_files_either() {
    let mut fixture = Fixture::new(&[None; 8], 3, 2);
    fixture.put("empty", b"");
    for number in 0..20 {
        fixture.put(&format!("small{number}"), &Seed(number).bytes(100));
    }
    fixture.protect();
    fixture.put("unprotected", b"bytes");
    let named = |fixture: &Fixture, name: &str| fixture.pool.stub(name.as_bytes()).unwrap().targets;
    // The empty file names its targets and has nothing on them.
    let retired = named(&fixture, "empty")[0].clone();
    let number: usize = retired.to_string()[1..].parse().unwrap();
    assert!(!fixture.on(number).contains("empty"));
    fixture.pool.retire(&retired.to_string()).unwrap();
    fixture.rebuild_all("a target is emptied");
    assert!(!fixture.files.keys().any(|name| named(&fixture, name).contains(&retired)));
    assert_eq!(fixture.named(FileHealth::Draining), BTreeSet::new());
    assert_eq!(files_below(&fixture.target(number).join("objects")), Vec::<std::path::PathBuf>::new());
    fixture.protect();
    fixture.assert_whole("without the retired target");
}

#[test]
fn corrupt_source_blocks_are_reconstructed() {
    for seed in 0..3 {
        let mut fixture = Fixture::filled(10 + seed);
        let mut chance = Seed(seed);
        let lost = 1 + chance.below(8) as usize;
        let mut hit = 0;
        // One block of each stripe is corrupt; with the lost target that makes two.
        for name in fixture.files.keys() {
            let path = match chance.below(2) {
                0 => fixture.object(name, chance.below(3) as usize),
                _ => fixture.redundancy(name)[0].1.clone(),
            };
            if path.starts_with(fixture.target(lost)) || !path.exists() {
                continue;
            }
            let size = fs::metadata(&path).unwrap().len();
            for at in (0..size).step_by(BLOCK as usize) {
                rot(&path, at + chance.below((size - at).min(BLOCK)));
                hit += 1;
            }
        }
        assert!(hit > 0);
        fixture.lose(lost);
        let told = format!("seed {seed}, without d{lost}");
        fixture.assert_right(&told);
        let report = fixture.rebuild();
        assert!(!report.has_losses() && report.failed.is_empty(), "{told}: {report:?}");
        fixture.assert_right(&told);
        let wrong = fixture.scrub().damage;
        assert!(wrong.iter().all(|trouble| trouble.state < State::Lost), "{told}: {wrong:?}");
    }
}

#[test]
fn columns_without_a_separate_domain_are_reported() {
    // Five domains for five columns.
    let domains = ["a", "a", "b", "b", "c", "d", "e"].map(Some);
    let mut fixture = Fixture::new(&domains, 3, 2);
    fixture.fill(6);
    fixture.lose(5);
    let report = fixture.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert!(!report.unplaced.is_empty(), "{report:?}");
    fixture.assert_apart("without c");
    fixture.assert_right("without c");
    let status = fixture.status();
    assert!(!status.affected.is_empty(), "{status:?}");
    // With one more domain there is space.
    fixture.pool.add(&NewTarget { path: fixture.target(8), domain: Some("f".to_owned()) }).unwrap();
    fixture.count = 8;
    fixture.open();
    fixture.rebuild_all("with f");
    fixture.assert_whole("with f");
}

/// A small file system; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_spare_is_replaced_by_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d6");
    fs::create_dir(&path).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=3M,mode=755", "none"]).arg(&path).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        gabion_testkit::skip!("a_full_spare_is_replaced_by_another: no right to mount a tmpfs");
        return;
    }
    let _small = Small(&path);
    // Five columns on five targets; of the two spares one is small.
    let mut fixture = Fixture::within(dir, &[None; 5], 3, 2);
    for number in 0..12 {
        fixture.put(&format!("file {number}"), &Seed(number).bytes(1_500_000));
    }
    fixture.protect();
    for number in [6, 7] {
        fixture.pool.add(&NewTarget { path: fixture.target(number), domain: None }).unwrap();
    }
    fixture.count = 7;
    fixture.lose(2);
    let report = fixture.rebuild_all("two spares");
    assert_eq!(report.files, 12);
    fixture.assert_whole("two spares");
    let used = files_below(&fixture.target(6).join("objects")).len()
        + files_below(&fixture.target(6).join("parity")).len();
    assert!(used < 12, "the small one cannot take all of them: {used}");
}

/// Regression: the only redundancy of some files was on the target with the catalogue. The new catalogue does not know
/// these files, and rebuild reported success; it must find them in the namespace.
#[test]
fn files_that_lost_all_redundancy_with_the_catalogue_get_it_again() {
    let mut fixture = Fixture::new(&[None; 6], 3, 1);
    let bare =
        |fixture: &Fixture| fixture.files.keys().filter(|name| fixture.redundancy(name).is_empty()).count();
    // Placement depends on random file ids.
    let is_on_the_first = |fixture: &Fixture| {
        fixture.files.keys().any(|name| fixture.redundancy(name).iter().any(|(number, _)| *number == 1))
    };
    for number in 0.. {
        fixture.put(&format!("file {number}"), &Seed(number).bytes(40_000));
        fixture.protect();
        if number >= 6 && is_on_the_first(&fixture) {
            break;
        }
    }
    assert!(fixture.vault.repository.path().starts_with(fixture.target(1)), "d1 has the catalogue");
    fixture.lose(1);
    assert!(bare(&fixture) > 0);
    let report = fixture.rebuild_all("without d1");
    assert!(report.redundancy as usize >= 1, "{report:?}");
    assert_eq!(bare(&fixture), 0, "{report:?}");
    fixture.lose(4);
    fixture.assert_right("without d4, too");
}

/// Without space for redundancy elsewhere such files are named, and the result is not complete.
#[test]
fn files_without_space_for_redundancy_are_named() {
    let mut fixture = Fixture::new(&[None; 4], 3, 1);
    fixture.put("file", &Seed(1).bytes(40_000));
    fixture.protect();
    let holder = fixture.redundancy("file")[0].0;
    fixture.lose(holder);
    let report = fixture.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert_eq!(report.unplaced, [(b"file".to_vec(), 1)], "{report:?}");
}

/// Regression: a scrub with a lost target records files as damaged. `pool rebuild` restored the data, but `protect` and
/// `status` still called the files damaged until the next scrub. Corruption in other columns must still be reported.
#[test]
fn a_rebuild_ends_damage_that_was_only_the_lost_target() {
    let mut fixture = Fixture::filled(31);
    let name = "dir1/file 9";
    let (gone, other) = (fixture.data(name)[0].clone(), "dir0/file 8");
    let number: usize = gone[1..].parse().unwrap();
    fixture.lose(number);
    assert!(!fixture.scrub().damage.is_empty());
    assert!(!fixture.status().affected.is_empty());
    fixture.rebuild_all("without a target");
    let status = fixture.status();
    assert!(status.affected.is_empty(), "{status:?}");
    // The same with a corrupt block on a target that was not lost.
    let second = fixture.data(other)[0].clone();
    fixture.lose(second[1..].parse().unwrap());
    rot(&fixture.object(other, 1), 10);
    fixture.scrub();
    fixture.rebuild();
    let still: Vec<_> = fixture.status().affected.into_iter().map(|it| it.path).collect();
    assert_eq!(still, [other.as_bytes()]);
}

/// Regression: a pool has as many targets as columns, and one is lost. A file protected then lacks a column, and its
/// header names no target for it: `pool rebuild` found nothing missing while `status` called the file degraded.
#[test]
fn a_rebuild_is_incomplete_while_columns_are_unplaced() {
    let mut fixture = Fixture::new(&[None; 5], 3, 2);
    fixture.put("file", &Seed(40).bytes(30_000));
    fixture.protect();
    fixture.lose(5);
    assert!(!fixture.rebuild().is_whole());
    fixture.put("file", &Seed(41).bytes(40_000));
    fixture.protect();
    let report = fixture.rebuild();
    assert!(!report.is_whole(), "{report:?}");
    assert_eq!(report.unplaced, [(b"file".to_vec(), 1)]);
    fixture.restore_disk(5);
    fixture.rebuild_all("it is back");
    fixture.assert_whole("it is back");
}

/// Regression: an older program took redundancy of a later format for none, called files lost that only it could
/// restore, and encoded others again. Such files must be reported as unreadable and left alone, so that the later
/// program finds its redundancy.
#[test]
fn redundancy_of_a_later_version_makes_no_file_lost() {
    let mut fixture = Fixture::filled(40);
    let name = "dir1/file 9";
    let later: Vec<_> = fixture
        .redundancy(name)
        .into_iter()
        .map(|(_, path)| {
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, resealed(bytes.clone(), |header| header[8] = 3)).unwrap();
            (path, bytes)
        })
        .collect();
    assert_eq!(later.len(), 2);
    let holders: Vec<usize> = fixture.redundancy(name).into_iter().map(|(number, _)| number).collect();
    let lost = (1..=8).find(|number| fixture.data(name).contains(&format!("d{number}"))).unwrap();
    assert!(!holders.contains(&lost));
    fixture.lose(lost);
    let overview = fixture.overview();
    assert!(!fixture.named(FileHealth::Lost).contains(name), "{overview:?}");
    assert!(overview.unreadable.iter().any(|(path, _)| path == name.as_bytes()), "{overview:?}");
    let before: Vec<_> = later.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect();
    let report = fixture.rebuild();
    assert!(!report.is_whole() && report.plan.lost.is_empty(), "{report:?}");
    let after: Vec<_> = later.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect();
    assert!(before == after, "{report:?}");
    for (path, bytes) in later {
        std::fs::write(path, bytes).unwrap();
    }
    fixture.assert_right("with the later program");
    fixture.rebuild_all("with the later program");
}

/// Modifies the header of a redundancy file, with valid checksums.
fn resealed(mut bytes: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    change(&mut bytes[..length]);
    let checksum = blake3::hash(&bytes[..length - 32]);
    bytes[length - 32..length].copy_from_slice(checksum.as_bytes());
    let end = bytes.len() - length;
    bytes.copy_within(..length, end);
    bytes
}
