//! Targets come back, with what they had when they went.

use super::playground::{Ground, QUIET, Seed, files_below, rot};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::protect;
use gabion_vault::storage::pool::config::Mirror;
use gabion_vault::storage::{Storage, TargetState};
use std::fs;

#[test]
fn a_target_that_comes_back_stale_is_not_believed() {
    for number in [1, 2, 6] {
        let mut ground = Ground::filled(20 + number as u64);
        let told = format!("d{number}");
        ground.lose(number);
        ground.rebuild_all(&told);
        // Meanwhile files are changed, removed, moved and made.
        ground.put("dir1/file 7", &Seed(1).bytes(70_000));
        ground.put("dir0/file 4", &Seed(2).bytes(5000));
        ground.pool.remove(b"dir0/file 8").unwrap();
        ground.files.remove("dir0/file 8");
        ground.pool.rename(b"dir1/file 9", b"moved").unwrap();
        let moved = ground.files.remove("dir1/file 9").unwrap();
        ground.files.insert("moved".to_owned(), moved);
        ground.put("new", &Seed(3).bytes(33_000));
        ground.protect();
        ground.bring_back(number);
        ground.assert_right(&format!("{told} is back"));
        let state = |ground: &Ground| ground.pool.targets()[number - 1].state;
        assert_eq!(state(&ground), TargetState::Returned);
        // Nothing new goes there before it is verified.
        ground.put("later", &Seed(4).bytes(60_000));
        assert!(!ground.data("later").contains(&format!("d{number}")));
        ground.protect();
        let report = ground.rebuild_all(&format!("{told} is back"));
        assert_eq!(report.taken_back, [format!("d{number}")], "{report:?}");
        assert_eq!(state(&ground), TargetState::Online);
        ground.assert_whole(&format!("{told} is back and verified"));
        // Of old it has nothing left.
        let stubs: Vec<String> = ground
            .files
            .keys()
            .map(|name| ground.pool.stub(name.as_bytes()).unwrap().id.to_string())
            .collect();
        for path in files_below(&ground.target(number).join("objects")) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(stubs.iter().any(|id| name.starts_with(id.as_str())), "{told}: {name} is of no file");
        }
        for path in files_below(&ground.target(number).join("parity")) {
            let id = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(stubs.contains(&id), "{told}: redundancy of {id}, which is of no file");
        }
    }
}

#[test]
fn what_it_still_has_is_verified_before_it_counts() {
    let mut ground = Ground::filled(30);
    // The one that has most: where files go is drawn by lot.
    let large = |number: usize| {
        let tops = ["objects", "parity"].map(|top| files_below(&ground.target(number).join(top)));
        tops.concat().iter().filter(|path| fs::metadata(path).unwrap().len() > 5000).count()
    };
    let number = (1..9).max_by_key(|&number| large(number)).unwrap();
    // One at least stays right.
    let most = (large(number) - 1).min(4);
    let touched = ground.on(number);
    ground.lose(number);
    // Given up, but nothing was rebuilt yet.
    ground.pool.give_up(&[format!("d{number}")], false).unwrap();
    let mut hit = 0;
    for top in ["objects", "parity"] {
        for path in files_below(&ground.dir.path().join(format!("away{number}")).join(top)) {
            let size = fs::metadata(&path).unwrap().len();
            if size > 5000 && hit < most {
                rot(&path, size / 2);
                hit += 1;
            }
        }
    }
    assert!(hit > 0 && hit == most, "{hit} of {most}");
    ground.bring_back(number);
    let degraded = ground.status().affected.len();
    assert_eq!(degraded, touched.len(), "unverified, it does not count");
    ground.assert_right("back and rotten");
    let report = ground.rebuild_all("back and rotten");
    assert!(report.verified > 0 && report.reconstructed > 0, "{report:?}");
    assert_eq!(report.taken_back, [format!("d{number}")]);
    ground.assert_whole("back and verified");
}

#[test]
fn a_target_in_service_is_verified_when_it_is_named() {
    let ground = Ground::filled(31);
    let report = ground.try_rebuild(&["d6"], None).unwrap();
    assert!(report.is_whole() && report.verified > 0, "{report:?}");
    assert_eq!((report.data, report.redundancy, report.taken_back), (0, 0, vec!["d6".to_owned()]));
    ground.assert_whole("d6 was looked at");
}

/// Someone who was killed while it told targets of a loss leaves some that have to be verified before they take anything: they
/// have the only room that there is for what was lost.
#[test]
fn one_run_takes_targets_back_and_uses_their_room() {
    let mut ground = Ground::new(&[None; 6], 3, 2);
    ground.fill(33);
    // It is on five of the six, and what it loses can only go to the sixth.
    let name = "dir1/file 9";
    let (on, off): (Vec<usize>, Vec<usize>) = (1..=6).partition(|&number| ground.on(number).contains(name));
    let ([.., lost], [free]) = (&on[..], &off[..]) else { panic!("{on:?} {off:?}") };
    ground.lose(*lost);
    let doubtful = [lost, free].map(|number| format!("d{number}"));
    ground.pool.give_up(&doubtful, false).unwrap();
    let report = ground.rebuild_all("one is gone, one is to be verified");
    let verified = vec![format!("d{free}")];
    assert_eq!((&report.taken_back, &report.plan.returned), (&verified, &verified));
    assert_eq!(report.files, report.plan.files.len() as u64, "each is counted once");
    assert!(ground.on(*free).contains(name));
    ground.assert_whole("in one run");
}

/// What was made anew is damaged when the old one comes back: then that is not thrown away.
#[test]
fn the_old_is_kept_while_the_new_is_not_whole() {
    let mut ground = Ground::filled(32);
    let name = "dir0/file 8";
    let holder: usize = ground.data(name)[1][1..].parse().unwrap();
    let old = ground.object(name, 1);
    ground.lose(holder);
    ground.rebuild_all("rebuilt");
    let new = ground.object(name, 1);
    assert_ne!(old, new);
    rot(&new, 10);
    ground.bring_back(holder);
    let report = ground.rebuild();
    assert!(report.wrong > 0, "{report:?}");
    assert!(old.exists(), "it may be needed");
    assert!(!report.is_whole() && report.taken_back.is_empty(), "{report:?}");
    ground.assert_right("rot in the new one");
    ground.repair(name);
    let report = ground.rebuild_all("repaired");
    assert!(report.taken_back.len() == 1 && !old.exists(), "{report:?}");
    ground.assert_whole("repaired");
}

/// While the target with the vault is away, another vault is begun. When only the first one answers again, its catalogue is outdated: `status` called files
/// lost by it that could be read.
#[test]
fn an_outdated_catalogue_is_not_believed() {
    let mut ground = Ground::filled(60);
    let on =
        |ground: &Ground, number: usize| ground.vault.repository.path().starts_with(ground.target(number));
    assert!(on(&ground, 1));
    let entry = ground.vault.catalogue.find(b"dir1/file 7").unwrap().unwrap();
    let lost = Entry { state: State::Lost, ..entry };
    ground.vault.catalogue.put(b"dir1/file 7", &lost).unwrap();
    ground.lose(1);
    ground.put("later", &Seed(9).bytes(30_000));
    ground.protect();
    let begun = (2..=8).find(|number| on(&ground, *number)).unwrap();
    ground.bring_back(1);
    assert!(on(&ground, begun), "the vault stays where it was begun last");
    ground.lose(begun);
    assert!(on(&ground, 1), "the only one that is left");
    let status = ground.status();
    assert_eq!(status.files(State::Lost), 0, "{status:?}");
    assert!(ground.vault.catalogue.find(b"later").unwrap().is_some(), "it is made from headers");
    ground.assert_right("with the first vault again");
}

/// Two of three mirrors of the namespace were away while a file was put. They came back, and every later change of names went to the third one alone, with
/// `protect`, `scrub` and `status` all green: when that disk went, the names went with it, or older ones were served. `protect` brings mirrors that
/// answer again up to date.
#[test]
fn protect_heals_mirrors_that_came_back() {
    let mut ground = Ground::filled(33);
    let mirrors = |ground: &Ground| -> Vec<usize> {
        let config = ground.pool.config();
        let current = config.target.iter().filter(|member| member.mirror == Mirror::Current);
        current.map(|member| member.name[1..].parse().unwrap()).collect()
    };
    let [one, two, last] = mirrors(&ground)[..] else { panic!("three mirrors are wanted") };
    [one, two].into_iter().for_each(|number| ground.lose(number));
    ground.put("meanwhile", &Seed(34).bytes(20_000));
    [one, two].into_iter().for_each(|number| ground.bring_back(number));
    assert_eq!(mirrors(&ground), [last]);
    ground.put("afterwards", &Seed(35).bytes(20_000));
    ground.protect();
    ground.open();
    assert_eq!(mirrors(&ground), [one, two, last]);
    ground.lose(last);
    ground.assert_right("without the mirror that was never away");
}

/// A mirror that cannot be healed is said to be behind, by `protect` and by `status`; nothing else is in its way.
#[test]
fn a_mirror_that_cannot_be_healed_is_reported() {
    let mut ground = Ground::filled(36);
    let is_mirror = |name: &str| {
        ground.pool.config().target.iter().any(|it| it.name == name && it.mirror == Mirror::Current)
    };
    let number = (1..=8).rev().find(|number| is_mirror(&format!("d{number}"))).unwrap();
    ground.lose(number);
    ground.put("meanwhile", &Seed(37).bytes(20_000));
    ground.bring_back(number);
    let tree = ground.target(number).join("tree");
    fs::rename(&tree, ground.dir.path().join("aside")).unwrap();
    fs::write(&tree, b"in the way").unwrap();
    let protect = |ground: &Ground| {
        let _lock = ground.vault.lock("test").unwrap();
        protect::protect(&ground.vault, QUIET).unwrap()
    };
    let report = protect(&ground);
    assert_eq!((report.done.encoded, report.pending), (1, 0), "{report:?}");
    assert!(
        report.unhealed.last().unwrap().ends_with(&format!("could not be healed: d{number}")),
        "{report:?}"
    );
    let mirrors = ground.status().mirrors.unwrap();
    assert!(!mirrors.are_complete() && mirrors.behind == [format!("d{number}")], "{mirrors:?}");
    fs::remove_file(&tree).unwrap();
    fs::rename(ground.dir.path().join("aside"), &tree).unwrap();
    ground.open();
    assert!(protect(&ground).unhealed.is_empty());
    assert!(ground.status().mirrors.unwrap().are_complete());
}
