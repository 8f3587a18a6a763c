//! Targets go for good, or are to go.

use super::playground::{BLOCK, Ground, Seed, files_below, rot};
use gabion_vault::catalogue::State;
use gabion_vault::pool_rebuild::RebuildError;
use gabion_vault::pool_rebuild::survey::Standing;
use gabion_vault::storage::pool::NewTarget;
use gabion_vault::watchdog::TooMany;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_lost_target_is_seen_by_name_read_around_and_rebuilt() {
    for number in [1, 4, 8] {
        let mut ground = Ground::filled(number as u64);
        let told = format!("without d{number}");
        let touched = ground.on(number);
        ground.lose(number);
        assert_eq!(ground.named(Standing::Degraded), touched, "{told}");
        let status = ground.status();
        let named: BTreeSet<String> = status
            .affected
            .iter()
            .map(|it| {
                assert_eq!(it.state, State::Degraded, "{told}");
                String::from_utf8(it.path.clone()).unwrap()
            })
            .collect();
        assert_eq!(named, touched, "{told}");
        ground.assert_right(&told);
        let report = ground.rebuild_all(&told);
        assert_eq!(report.files as usize, touched.len(), "{told}: {report:?}");
        assert!(report.reconstructed > 0 && report.wrong == 0, "{told}: {report:?}");
        // The most exposed first.
        assert!(report.plan.files.is_sorted_by_key(|item| item.spare), "{told}: {report:?}");
        ground.assert_whole(&told);
    }
}

#[test]
fn as_many_as_there_is_redundancy_may_go_at_once() {
    let mut ground = Ground::filled(2);
    ground.lose(2);
    ground.lose(5);
    ground.assert_right("before");
    ground.rebuild_all("without d2 and d5");
    ground.assert_whole("without d2 and d5");
    // And once more: what was rebuilt carries the next loss, without a question.
    ground.lose(7);
    ground.assert_right("without d7 as well");
    let report = ground.rebuild();
    assert!(!report.has_losses() && report.failed.is_empty(), "{report:?}");
    ground.assert_right("five targets for five columns");
}

#[test]
fn one_too_many_waits_for_a_person_and_names_what_is_lost() {
    let mut ground = Ground::filled(3);
    // Where files go is drawn by lot: three targets that some file needs, not all of those with the namespace.
    let triples = (1..7).flat_map(|a| (a + 1..8).flat_map(move |b| (b + 1..9).map(move |c| [a, b, c])));
    let lost =
        triples.filter(|lost| *lost != [1, 2, 3]).find(|lost| !ground.beyond(lost).is_empty()).unwrap();
    let names = lost.map(|number| format!("d{number}"));
    let kept = (1..9).find(|number| !lost.contains(number)).unwrap();
    let beyond = ground.beyond(&lost);
    assert!(beyond.len() < ground.files.len(), "{beyond:?}");
    lost.iter().for_each(|&number| ground.lose(number));
    assert_eq!(ground.named(Standing::Lost), beyond);
    let content = || ["objects", "parity"].map(|top| files_below(&ground.target(kept).join(top)));
    let before = content();
    let Err(RebuildError::Ask { why, gone, agreement }) = ground.try_rebuild(&[], None) else {
        panic!("nothing may be done without a person")
    };
    assert_eq!(why, TooMany::Redundancy { gone: 3, redundancy: 2 });
    assert_eq!(gone, names);
    assert!(ground.try_rebuild(&[], Some("0123456789ab".to_owned())).is_err(), "another agreement");
    assert_eq!(content(), before, "nothing was done");
    let report = ground.try_rebuild(&[], Some(agreement)).unwrap();
    let named: BTreeSet<String> =
        report.plan.lost.iter().map(|item| String::from_utf8(item.path.clone()).unwrap()).collect();
    assert_eq!(named, beyond);
    assert!(report.failed.is_empty(), "{report:?}");
    for (name, content) in &ground.files {
        let read = ground.read(name).0;
        assert!(
            if beyond.contains(name) { read.is_none() } else { read.as_ref() == Some(content) },
            "{name}"
        );
    }
    // What is lost is not gone: with one target back it can be rebuilt.
    ground.bring_back(lost[1]);
    ground.assert_right("one is back");
    let report = ground.rebuild();
    assert!(!report.has_losses(), "{report:?}");
    ground.assert_right("one is back and verified");
    ground.bring_back(lost[0]);
    ground.bring_back(lost[2]);
    ground.rebuild_all("all are back");
    // A catalogue that was made from headers while targets were gone does not know files that had none left.
    ground.protect();
    ground.assert_whole("all are back");
}

#[test]
fn what_was_never_protected_is_named_when_it_is_lost() {
    let mut ground = Ground::filled(4);
    ground.put("new", &Seed(1).bytes(50_000));
    let holder: usize = ground.data("new")[0][1..].parse().unwrap();
    ground.lose(holder);
    assert_eq!(ground.named(Standing::Lost), BTreeSet::from(["new".to_owned()]));
    let status = ground.status();
    let lost: Vec<&[u8]> =
        status.affected.iter().filter(|it| it.state == State::Lost).map(|it| &it.path[..]).collect();
    assert_eq!(lost, [b"new"]);
    let report = ground.rebuild();
    assert!(report.has_losses() && report.plan.lost.len() == 1, "{report:?}");
    ground.bring_back(holder);
    ground.rebuild_all("it is back");
    ground.protect();
    ground.assert_whole("it is back");
}

#[test]
fn a_retired_target_is_emptied_by_copying() {
    let mut ground = Ground::filled(5);
    let touched = ground.on(3);
    ground.put("unprotected", &Seed(9).bytes(60_000));
    ground.pool.retire("d3").unwrap();
    let report = ground.try_rebuild(&["d3"], None).unwrap();
    assert!(report.is_whole() && report.files as usize >= touched.len(), "{report:?}");
    assert_eq!(report.reconstructed, 0, "all of it could be read: {report:?}");
    assert_eq!(files_below(&ground.target(3).join("objects")), Vec::<std::path::PathBuf>::new());
    assert_eq!(files_below(&ground.target(3).join("parity")), Vec::<std::path::PathBuf>::new());
    ground.protect();
    ground.assert_whole("without d3");
    ground.lose(3);
    ground.assert_whole("d3 is taken out");
}

/// Small files have columns without bytes. A stub that names a retired target for one would have the next write go there, and an
/// overview say for good that something is to be moved.
#[test]
fn a_retired_target_is_not_named_by_small_files_either() {
    let mut ground = Ground::new(&[None; 8], 3, 2);
    ground.put("empty", b"");
    for number in 0..20 {
        ground.put(&format!("small{number}"), &Seed(number).bytes(100));
    }
    ground.protect();
    ground.put("unprotected", b"bytes");
    ground.pool.retire("d3").unwrap();
    let names = |ground: &Ground, name: &str| {
        let targets = ground.pool.stub(name.as_bytes()).unwrap().targets;
        targets.contains(&"d3".to_owned())
    };
    let by_nothing = |name: &&String| names(&ground, name) && !ground.on(3).contains(*name);
    assert!(ground.files.keys().any(|name| by_nothing(&name)), "there is such a file");
    ground.rebuild_all("d3 is emptied");
    assert!(!ground.files.keys().any(|name| names(&ground, name)));
    assert_eq!(ground.named(Standing::Leaving), BTreeSet::new());
    assert_eq!(files_below(&ground.target(3).join("objects")), Vec::<std::path::PathBuf>::new());
    ground.protect();
    ground.assert_whole("without d3");
}

#[test]
fn rot_on_sources_is_routed_around() {
    for seed in 0..3 {
        let mut ground = Ground::filled(10 + seed);
        let mut chance = Seed(seed);
        let lost = 1 + chance.below(8) as usize;
        let mut hit = 0;
        // One block of each stripe rots where it is; with the lost target that makes two.
        for name in ground.files.keys() {
            let path = match chance.below(2) {
                0 => ground.object(name, chance.below(3) as usize),
                _ => ground.redundancy(name)[0].1.clone(),
            };
            if path.starts_with(ground.target(lost)) || !path.exists() {
                continue;
            }
            let size = fs::metadata(&path).unwrap().len();
            for at in (0..size).step_by(BLOCK as usize) {
                rot(&path, at + chance.below((size - at).min(BLOCK)));
                hit += 1;
            }
        }
        assert!(hit > 0);
        ground.lose(lost);
        let told = format!("seed {seed}, without d{lost}");
        ground.assert_right(&told);
        let report = ground.rebuild();
        assert!(!report.has_losses() && report.failed.is_empty(), "{told}: {report:?}");
        ground.assert_right(&told);
        let wrong = ground.scrub().damage;
        assert!(wrong.iter().all(|damage| damage.state < State::Lost), "{told}: {wrong:?}");
    }
}

#[test]
fn without_a_domain_of_its_own_nothing_is_called_whole() {
    // Five domains for five columns.
    let domains = ["a", "a", "b", "b", "c", "d", "e"].map(Some);
    let mut ground = Ground::new(&domains, 3, 2);
    ground.fill(6);
    ground.lose(5);
    let report = ground.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert!(!report.unplaced.is_empty(), "{report:?}");
    ground.assert_apart("without c");
    ground.assert_right("without c");
    let status = ground.status();
    assert!(!status.affected.is_empty(), "{status:?}");
    // With one more domain there is room.
    ground.pool.add(&NewTarget { path: ground.target(8), domain: Some("f".to_owned()) }).unwrap();
    ground.count = 8;
    ground.open();
    ground.rebuild_all("with f");
    ground.assert_whole("with f");
}

/// A small file system; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_spare_that_fills_up_is_left_for_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d6");
    fs::create_dir(&path).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=3M,mode=755", "none"]).arg(&path).output();
    if !mount.is_ok_and(|output| output.status.success()) {
        gabion_testkit::skip!("a_spare_that_fills_up_is_left_for_another: no right to mount a tmpfs");
        return;
    }
    let _small = Small(&path);
    // Five columns on five targets; of the two spares one is small.
    let mut ground = Ground::within(dir, &[None; 5], 3, 2);
    for number in 0..12 {
        ground.put(&format!("file {number}"), &Seed(number).bytes(1_500_000));
    }
    ground.protect();
    for number in [6, 7] {
        ground.pool.add(&NewTarget { path: ground.target(number), domain: None }).unwrap();
    }
    ground.count = 7;
    ground.lose(2);
    let report = ground.rebuild_all("two spares");
    assert_eq!(report.files, 12);
    ground.assert_whole("two spares");
    let used = files_below(&ground.target(6).join("objects")).len()
        + files_below(&ground.target(6).join("parity")).len();
    assert!(used < 12, "the small one cannot take all of them: {used}");
}

/// The only redundancy of some files goes with the target that has the catalogue. The new catalogue does not know these files; rebuild finds them in the
/// namespace, and it said that all was in order.
#[test]
fn files_that_lost_all_redundancy_with_the_catalogue_get_it_again() {
    let mut ground = Ground::new(&[None; 6], 3, 1);
    let bare =
        |ground: &Ground| ground.files.keys().filter(|name| ground.redundancy(name).is_empty()).count();
    // Where redundancy goes follows from the ids of files, which are random.
    let is_on_the_first = |ground: &Ground| {
        ground.files.keys().any(|name| ground.redundancy(name).iter().any(|(number, _)| *number == 1))
    };
    for number in 0.. {
        ground.put(&format!("file {number}"), &Seed(number).bytes(40_000));
        ground.protect();
        if number >= 6 && is_on_the_first(&ground) {
            break;
        }
    }
    assert!(ground.vault.repository.path().starts_with(ground.target(1)), "d1 has the catalogue");
    ground.lose(1);
    assert!(bare(&ground) > 0);
    let report = ground.rebuild_all("without d1");
    assert!(report.redundancy as usize >= 1, "{report:?}");
    assert_eq!(bare(&ground), 0, "{report:?}");
    ground.lose(4);
    ground.assert_right("without d4, too");
}

/// Without room for redundancy elsewhere such files are named, and nothing is called whole.
#[test]
fn files_without_redundancy_and_without_room_for_it_are_named() {
    let mut ground = Ground::new(&[None; 4], 3, 1);
    ground.put("file", &Seed(1).bytes(40_000));
    ground.protect();
    let holder = ground.redundancy("file")[0].0;
    ground.lose(holder);
    let report = ground.rebuild();
    assert!(!report.is_whole() && !report.has_losses(), "{report:?}");
    assert_eq!(report.unplaced, [(b"file".to_vec(), 1)], "{report:?}");
}

/// A scrub while a target is gone records files as damaged, since data is missing. `pool rebuild` made the data again and said that all was in order, and
/// `protect` and `status` still called the files damaged until the next scrub. Corruption in other columns is still reported.
#[test]
fn a_rebuild_ends_damage_that_was_only_the_lost_target() {
    let mut ground = Ground::filled(31);
    let name = "dir1/file 9";
    let (gone, other) = (ground.data(name)[0].clone(), "dir0/file 8");
    let number: usize = gone[1..].parse().unwrap();
    ground.lose(number);
    assert!(!ground.scrub().damage.is_empty());
    assert!(!ground.status().affected.is_empty());
    ground.rebuild_all("without a target");
    let status = ground.status();
    assert!(status.affected.is_empty(), "{status:?}");
    // The same with a block that is corrupt where no target was lost.
    let second = ground.data(other)[0].clone();
    ground.lose(second[1..].parse().unwrap());
    rot(&ground.object(other, 1), 10);
    ground.scrub();
    ground.rebuild();
    let still: Vec<_> = ground.status().affected.into_iter().map(|it| it.path).collect();
    assert_eq!(still, [other.as_bytes()]);
}

/// A pool has just as many targets as columns, and one is lost. A file that is protected then has a column less, and its header names no target for that
/// one: `pool rebuild` found nothing missing and said that all was in order, while `status` called the file degraded.
#[test]
fn a_rebuild_is_not_done_while_columns_have_no_place() {
    let mut ground = Ground::new(&[None; 5], 3, 2);
    ground.put("file", &Seed(40).bytes(30_000));
    ground.protect();
    ground.lose(5);
    assert!(!ground.rebuild().is_whole());
    ground.put("file", &Seed(41).bytes(40_000));
    ground.protect();
    let report = ground.rebuild();
    assert!(!report.is_whole(), "{report:?}");
    assert_eq!(report.unplaced, [(b"file".to_vec(), 1)]);
    ground.bring_back(5);
    ground.rebuild_all("it is back");
    ground.assert_whole("it is back");
}

/// Somebody went back to an older program. It took redundancy of the later format for none: files that only that redundancy could bring back were called lost,
/// and others were encoded anew. They are named as unreadable, nothing is touched, and the later program finds all it had.
#[test]
fn redundancy_of_a_later_version_makes_no_file_lost() {
    let mut ground = Ground::filled(40);
    let name = "dir1/file 9";
    let later: Vec<_> = ground
        .redundancy(name)
        .into_iter()
        .map(|(_, path)| {
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, resealed(bytes.clone(), |header| header[8] = 3)).unwrap();
            (path, bytes)
        })
        .collect();
    assert_eq!(later.len(), 2);
    let holders: Vec<usize> = ground.redundancy(name).into_iter().map(|(number, _)| number).collect();
    let lost = (1..=8).find(|number| ground.data(name).contains(&format!("d{number}"))).unwrap();
    assert!(!holders.contains(&lost));
    ground.lose(lost);
    let overview = ground.overview();
    assert!(!ground.named(Standing::Lost).contains(name), "{overview:?}");
    assert!(overview.unreadable.iter().any(|(path, _)| path == name.as_bytes()), "{overview:?}");
    let before: Vec<_> = later.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect();
    let report = ground.rebuild();
    assert!(!report.is_whole() && report.plan.lost.is_empty(), "{report:?}");
    let after: Vec<_> = later.iter().map(|(path, _)| std::fs::read(path).unwrap()).collect();
    assert!(before == after, "{report:?}");
    for (path, bytes) in later {
        std::fs::write(path, bytes).unwrap();
    }
    ground.assert_right("with the later program");
    ground.rebuild_all("with the later program");
}

/// A redundancy file whose header was changed, with the right checksums.
fn resealed(mut bytes: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    change(&mut bytes[..length]);
    let checksum = blake3::hash(&bytes[..length - 32]);
    bytes[length - 32..length].copy_from_slice(checksum.as_bytes());
    let end = bytes.len() - length;
    bytes.copy_within(..length, end);
    bytes
}
