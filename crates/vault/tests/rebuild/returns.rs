//! Targets return with their old content.

use super::fixture::{Fixture, QUIET, Seed, files_below, rot};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::protect;
use gabion_vault::storage::pool::config::Mirror;
use gabion_vault::storage::{Storage, TargetState};
use std::fs;

#[test]
fn a_returned_stale_target_is_not_used() {
    for number in [1, 2, 6] {
        let mut fixture = Fixture::filled(20 + number as u64);
        let told = format!("d{number}");
        fixture.lose(number);
        fixture.rebuild_all(&told);
        // Meanwhile files are changed, removed, moved and created.
        fixture.put("dir1/file 7", &Seed(1).bytes(70_000));
        fixture.put("dir0/file 4", &Seed(2).bytes(5000));
        fixture.pool.remove(b"dir0/file 8").unwrap();
        fixture.files.remove("dir0/file 8");
        fixture.pool.rename(b"dir1/file 9", b"moved").unwrap();
        let moved = fixture.files.remove("dir1/file 9").unwrap();
        fixture.files.insert("moved".to_owned(), moved);
        fixture.put("new", &Seed(3).bytes(33_000));
        fixture.protect();
        fixture.restore_disk(number);
        fixture.assert_right(&format!("{told} is back"));
        let state = |fixture: &Fixture| fixture.pool.targets()[number - 1].state;
        assert_eq!(state(&fixture), TargetState::Returned);
        // It receives nothing new before it is verified.
        fixture.put("later", &Seed(4).bytes(60_000));
        assert!(!fixture.data("later").contains(&format!("d{number}")));
        fixture.protect();
        let report = fixture.rebuild_all(&format!("{told} is back"));
        assert_eq!(report.reinstated, [format!("d{number}")], "{report:?}");
        assert_eq!(state(&fixture), TargetState::Online);
        fixture.assert_whole(&format!("{told} is back and verified"));
        // Its old content is gone.
        let stubs: Vec<String> = fixture
            .files
            .keys()
            .map(|name| fixture.pool.stub(name.as_bytes()).unwrap().id.to_string())
            .collect();
        for path in files_below(&fixture.target(number).join("objects")) {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(stubs.iter().any(|id| name.starts_with(id.as_str())), "{told}: {name} is of no file");
        }
        for path in files_below(&fixture.target(number).join("parity")) {
            let id = path.file_name().unwrap().to_str().unwrap().to_owned();
            assert!(stubs.contains(&id), "{told}: redundancy of {id}, which is of no file");
        }
    }
}

#[test]
fn content_of_a_returned_target_is_verified_before_use() {
    let mut fixture = Fixture::filled(30);
    // The target with the most columns: placement is random.
    let large = |number: usize| {
        let tops = ["objects", "parity"].map(|top| files_below(&fixture.target(number).join(top)));
        tops.concat().iter().filter(|path| fs::metadata(path).unwrap().len() > 5000).count()
    };
    let number = (1..9).max_by_key(|&number| large(number)).unwrap();
    // At least one stays valid.
    let most = (large(number) - 1).min(4);
    let touched = fixture.on(number);
    fixture.lose(number);
    // Given up, but nothing was rebuilt yet.
    fixture.pool.give_up(&[format!("d{number}").parse().unwrap()], false).unwrap();
    let mut hit = 0;
    for top in ["objects", "parity"] {
        for path in files_below(&fixture.dir.path().join(format!("away{number}")).join(top)) {
            let size = fs::metadata(&path).unwrap().len();
            if size > 5000 && hit < most {
                rot(&path, size / 2);
                hit += 1;
            }
        }
    }
    assert!(hit > 0 && hit == most, "{hit} of {most}");
    fixture.restore_disk(number);
    let degraded = fixture.status().affected.len();
    assert_eq!(degraded, touched.len(), "unverified, it does not count");
    fixture.assert_right("back and rotten");
    let report = fixture.rebuild_all("back and rotten");
    assert!(report.verified > 0 && report.reconstructed > 0, "{report:?}");
    assert_eq!(report.reinstated, [format!("d{number}")]);
    fixture.assert_whole("back and verified");
}

#[test]
fn a_target_in_service_is_verified_when_it_is_named() {
    let fixture = Fixture::filled(31);
    let report = fixture.try_rebuild(&["d6"], None).unwrap();
    assert!(report.is_whole() && report.verified > 0, "{report:?}");
    assert_eq!((report.data, report.redundancy, report.reinstated), (0, 0, vec!["d6".parse().unwrap()]));
    fixture.assert_whole("d6 was looked at");
}

/// A process that was killed while it recorded a loss leaves targets that have to be verified before they receive
/// anything: these have the only space for the lost columns.
#[test]
fn one_run_reinstates_targets_and_uses_their_space() {
    let mut fixture = Fixture::new(&[None; 6], 3, 2);
    fixture.fill(33);
    // It is on five of the six, and lost columns can only go to the sixth.
    let name = "dir1/file 9";
    let (on, off): (Vec<usize>, Vec<usize>) = (1..=6).partition(|&number| fixture.on(number).contains(name));
    let ([.., lost], [free]) = (&on[..], &off[..]) else { panic!("{on:?} {off:?}") };
    fixture.lose(*lost);
    let doubtful = [lost, free].map(|number| format!("d{number}").parse().unwrap());
    fixture.pool.give_up(&doubtful, false).unwrap();
    let report = fixture.rebuild_all("one is gone, one is to be verified");
    let verified = vec![format!("d{free}").parse().unwrap()];
    assert_eq!((&report.reinstated, &report.plan.returned), (&verified, &verified));
    assert_eq!(report.files, report.plan.files.len() as u64, "each is counted once");
    assert!(fixture.on(*free).contains(name));
    fixture.assert_whole("in one run");
}

/// If the reconstructed columns are damaged when the old ones return, the old ones are kept.
#[test]
fn old_columns_are_kept_while_the_new_ones_are_damaged() {
    let mut fixture = Fixture::filled(32);
    let name = "dir0/file 8";
    let holder: usize = fixture.data(name)[1][1..].parse().unwrap();
    let old = fixture.object(name, 1);
    fixture.lose(holder);
    fixture.rebuild_all("rebuilt");
    let new = fixture.object(name, 1);
    assert_ne!(old, new);
    rot(&new, 10);
    fixture.restore_disk(holder);
    let report = fixture.rebuild();
    assert!(report.wrong > 0, "{report:?}");
    assert!(old.exists(), "it may be needed");
    assert!(!report.is_whole() && report.reinstated.is_empty(), "{report:?}");
    fixture.assert_right("rot in the new one");
    fixture.repair(name);
    let report = fixture.rebuild_all("repaired");
    assert!(report.reinstated.len() == 1 && !old.exists(), "{report:?}");
    fixture.assert_whole("repaired");
}

/// Regression: while the target with the vault is offline, another vault is created. When only the first one is
/// reachable again, its catalogue is outdated: `status` called readable files lost.
#[test]
fn an_outdated_catalogue_is_not_used() {
    let mut fixture = Fixture::filled(60);
    let on = |fixture: &Fixture, number: usize| {
        fixture.vault.repository.path().starts_with(fixture.target(number))
    };
    assert!(on(&fixture, 1));
    let entry = fixture.vault.catalogue.find(b"dir1/file 7").unwrap().unwrap();
    let lost = Entry { state: State::Lost, ..entry };
    fixture.vault.catalogue.put(b"dir1/file 7", &lost).unwrap();
    fixture.lose(1);
    fixture.put("later", &Seed(9).bytes(30_000));
    fixture.protect();
    let begun = (2..=8).find(|number| on(&fixture, *number)).unwrap();
    fixture.restore_disk(1);
    assert!(on(&fixture, begun), "the vault stays where it was begun last");
    fixture.lose(begun);
    assert!(on(&fixture, 1), "the only one that is left");
    let status = fixture.status();
    assert_eq!(status.files(State::Lost), 0, "{status:?}");
    assert!(fixture.vault.catalogue.find(b"later").unwrap().is_some(), "it is made from headers");
    fixture.assert_right("with the first vault again");
}

/// Regression: two of three mirrors were offline while a file was put. They returned, and every later change went to
/// the third one alone without any warning; when that disk was lost, so were the names. `protect` heals reachable
/// mirrors.
#[test]
fn protect_heals_mirrors_that_came_back() {
    let mut fixture = Fixture::filled(33);
    let mirrors = |fixture: &Fixture| -> Vec<usize> {
        let config = fixture.pool.config();
        let current = config.target.iter().filter(|member| member.mirror == Mirror::Current);
        current.map(|member| member.name[1..].parse().unwrap()).collect()
    };
    let [one, two, last] = mirrors(&fixture)[..] else { panic!("three mirrors are wanted") };
    [one, two].into_iter().for_each(|number| fixture.lose(number));
    fixture.put("meanwhile", &Seed(34).bytes(20_000));
    [one, two].into_iter().for_each(|number| fixture.restore_disk(number));
    assert_eq!(mirrors(&fixture), [last]);
    fixture.put("afterwards", &Seed(35).bytes(20_000));
    fixture.protect();
    fixture.open();
    assert_eq!(mirrors(&fixture), [one, two, last]);
    fixture.lose(last);
    fixture.assert_right("without the mirror that was never away");
}

/// `protect` and `status` report a mirror that cannot be healed, and continue.
#[test]
fn a_mirror_that_cannot_be_healed_is_reported() {
    let mut fixture = Fixture::filled(36);
    let is_mirror = |name: &str| {
        fixture.pool.config().target.iter().any(|it| it.name == name && it.mirror == Mirror::Current)
    };
    let number = (1..=8).rev().find(|number| is_mirror(&format!("d{number}"))).unwrap();
    fixture.lose(number);
    fixture.put("meanwhile", &Seed(37).bytes(20_000));
    fixture.restore_disk(number);
    let tree = fixture.target(number).join("tree");
    fs::rename(&tree, fixture.dir.path().join("aside")).unwrap();
    fs::write(&tree, b"in the way").unwrap();
    let protect = |fixture: &Fixture| {
        let _lock = fixture.vault.lock("test").unwrap();
        protect::protect(&fixture.vault, QUIET).unwrap()
    };
    let report = protect(&fixture);
    assert_eq!((report.done.encoded, report.pending), (1, 0), "{report:?}");
    assert!(
        report.unhealed.last().unwrap().ends_with(&format!("could not be healed: d{number}")),
        "{report:?}"
    );
    let mirrors = fixture.status().mirrors.unwrap();
    assert!(!mirrors.are_complete() && mirrors.outdated == [format!("d{number}")], "{mirrors:?}");
    fs::remove_file(&tree).unwrap();
    fs::rename(fixture.dir.path().join("aside"), &tree).unwrap();
    fixture.open();
    assert!(protect(&fixture).unhealed.is_empty());
    assert!(fixture.status().mirrors.unwrap().are_complete());
}
