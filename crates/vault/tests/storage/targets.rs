//! Targets are added, lost, returned and confused with each other.

use super::fixture::{BLOCK, PoolFixture, bytes, metadata, options};
use gabion_engine::Code;
use gabion_vault::storage::pool::{NewTarget, Pool, PoolError, Registry, Warning};
use gabion_vault::storage::{Fault, LayoutError, Storage, TargetState};
use gabion_vault::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

#[test]
fn a_disk_of_another_pool_is_refused_by_name() {
    let (ours, theirs) = (PoolFixture::new(4, 2, 1), PoolFixture::new(4, 2, 1));
    ours.put("file", &bytes(50_000, 1));
    fs::rename(ours.target(2), ours.root().join("away")).unwrap();
    fs::rename(theirs.target(3), ours.target(2)).unwrap();
    let error = Pool::open_at(&[ours.target(1)], options()).unwrap_err();
    let (ours_id, theirs_id) = (ours.pool.config().pool, theirs.pool.config().pool);
    assert!(matches!(&error, PoolError::Foreign { .. }), "{error}");
    for part in ["d2", "d3", &ours_id, &theirs_id, "was another disk mounted there?"] {
        assert!(error.to_string().contains(part), "no {part} in {error}");
    }
    // An open pool takes nothing from it either.
    assert_eq!(ours.pool.targets()[1].state, TargetState::Offline);
    let status = ours.pool.status();
    assert!(status.targets[1].reason.as_ref().unwrap().contains("d3"), "{status:?}");
}

#[test]
fn exchanged_disks_are_refused() {
    let place = PoolFixture::new(4, 2, 1);
    fs::rename(place.target(1), place.root().join("away")).unwrap();
    fs::rename(place.target(2), place.target(1)).unwrap();
    fs::rename(place.root().join("away"), place.target(2)).unwrap();
    let error = Pool::open_at(&[place.target(3)], options()).unwrap_err();
    assert!(matches!(error, PoolError::Foreign { .. }), "{error}");
    // With the right paths it accepts them.
    let pool = Pool::open_at(&[1, 2, 3, 4].map(|number| place.target(number)), options()).unwrap();
    assert!(pool.targets().iter().all(|target| target.state == TargetState::Online));
}

#[test]
fn a_mount_point_without_its_disk_is_not_an_empty_disk() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("file", &bytes(50_000, 1));
    place.lose(1);
    fs::create_dir(place.target(1)).unwrap();
    assert_eq!(place.pool.targets()[0].state, TargetState::Offline);
    assert_eq!(place.reopened(2).targets()[0].state, TargetState::Offline);
    let reason = place.pool.status().targets[0].reason.clone().unwrap();
    assert!(reason.contains("not mounted"), "{reason}");
    for number in 0..20 {
        place.put(&format!("file {number}"), &bytes(9000, number));
    }
    assert_eq!(fs::read_dir(place.target(1)).unwrap().count(), 0, "nothing is written below a mount point");
    fs::remove_dir(place.target(1)).unwrap();
    place.restore_disk(1);
    assert_eq!(place.pool.targets()[0].state, TargetState::Online);
}

#[test]
fn reading_from_a_lost_target_is_a_fault_with_its_name() {
    let place = PoolFixture::new(4, 3, 1);
    let content = bytes(5 * BLOCK as usize, 1);
    place.put("file", &content);
    let stub = place.pool.stub(b"file").unwrap();
    let number: usize = stub.targets[1][1..].parse().unwrap();
    place.lose(number);
    let error = place.get("file").unwrap_err();
    assert!(error.to_string().contains(stub.targets[1].as_str()), "{error}");
    let code: Code = "3+1".parse().unwrap();
    let layout = place.pool.layout(b"file", &code, 0).unwrap();
    let run = layout.geometry.cut(stub.size).run(0, 1);
    let file = place.pool.open(b"file").unwrap();
    let mut buffer = vec![0; run.block as usize];
    let lost = file.read(&run, 0, 1, &mut buffer).unwrap_err();
    assert!(matches!(&lost, Fault::Lost(name) if *name == stub.targets[1].as_bytes()), "{lost:?}");
    assert_eq!(file.read(&run, 0, 2, &mut buffer).unwrap(), BLOCK as usize, "others are read");
    assert!(buffer == content[2 * BLOCK as usize..3 * BLOCK as usize]);
    place.restore_disk(number);
    // The same file, still open, is readable again.
    assert_eq!(file.read(&run, 0, 1, &mut buffer).unwrap(), BLOCK as usize);
    fs::remove_file(place.object("file", 0)).unwrap();
    let lost = place.pool.open(b"file").unwrap().read(&run, 0, 0, &mut buffer).unwrap_err();
    let why = format!("the object on target {} is missing or too short", stub.targets[0]);
    assert_eq!(lost.to_string(), why, "the target is there");
}

#[test]
fn codes_must_fit_the_stripe() {
    let place = PoolFixture::new(4, 3, 1);
    place.put("file", b"x");
    for k in [1, 2, 4] {
        let code: Code = format!("{k}+1").parse().unwrap();
        let refused = place.pool.layout(b"file", &code, BLOCK).unwrap_err();
        assert!(matches!(refused, LayoutError::Columns { code, storage: 3 } if code == k), "{refused}");
    }
}

#[test]
fn retired_targets_receive_nothing_new_and_new_ones_do() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("old", &bytes(50_000, 1));
    let name = place.pool.add(&NewTarget { path: place.root().join("d5"), domain: None }).unwrap();
    assert_eq!(name, "d5");
    let elsewhere = place.reopened(2);
    place.pool.retire("d1").unwrap();
    let used = |pool: &Pool| {
        let mut used = BTreeSet::new();
        for number in 0..60 {
            let written = pool
                .put(b"file", &mut &bytes(9000, number)[..], &metadata(), Timestamp::from_nanoseconds(5))
                .unwrap();
            used.extend(written.stub.targets);
        }
        used.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(used(&place.pool), ["d2", "d3", "d4", "d5"]);
    assert_eq!(used(&elsewhere), ["d2", "d3", "d4", "d5"], "a pool that was open before learns of it");
    assert!(place.get("old").unwrap() == bytes(50_000, 1), "what is there stays");
    assert_eq!(place.pool.targets()[0].state, TargetState::Retired);
    let unknown = place.pool.retire("d9").unwrap_err();
    assert!(unknown.to_string().contains("d1, d2, d3, d4, d5"), "{unknown}");
    place.pool.retire("d2").unwrap();
    place.pool.retire("d3").unwrap();
    let refused = place.pool.retire("d4").unwrap_err();
    assert!(matches!(refused, PoolError::Domains { need: 2, have: 1, .. }), "{refused}");
}

#[test]
fn directories_with_content_are_refused_as_targets() {
    let place = PoolFixture::new(3, 2, 1);
    let refused = |path: &std::path::Path| {
        let target = NewTarget { path: path.to_owned(), domain: None };
        place.pool.add(&target).unwrap_err().to_string()
    };
    let full = place.root().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("photo"), b"mine").unwrap();
    assert!(refused(&full).contains("not empty"));
    assert!(refused(&place.target(2)).contains("it is the directory of target d2"));
    let other = PoolFixture::new(3, 2, 1);
    assert!(refused(&other.target(1)).contains("d1 of pool tank"));
    let twice = [
        NewTarget { path: place.root().join("x"), domain: None },
        NewTarget { path: place.root().join("x"), domain: None },
    ];
    assert!(Pool::create("p", &twice, 1, BLOCK, 0, options()).is_err());
    let few = [
        NewTarget { path: place.root().join("y"), domain: Some("a".into()) },
        NewTarget { path: place.root().join("z"), domain: Some("a".into()) },
    ];
    let error = Pool::create("p", &few, 2, BLOCK, 0, options()).unwrap_err();
    assert!(matches!(error, PoolError::Domains { need: 2, have: 1, .. }), "{error}");
    assert!(!place.root().join("y").exists(), "nothing is made before all is checked");
}

#[test]
fn domains_are_respected_and_load_is_spread() {
    let domains = ["a", "a", "a", "b", "b", "c", "d", "d", "e", "f"].map(Some);
    let place = PoolFixture::with_domains(&domains, 3, 2);
    let config = place.pool.config();
    let domain = |name: &str| config.target.iter().find(|member| member.name == name).unwrap().domain.clone();
    let mut load: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..100 {
        let path = format!("file {number}").into_bytes();
        let written = place
            .pool
            .put(&path, &mut &bytes(3 * 4096, number)[..], &metadata(), Timestamp::from_nanoseconds(5))
            .unwrap();
        for m in 0..=4 {
            let code: Code = format!("3+{m}").parse().unwrap();
            let layout = place.pool.layout(&path, &code, BLOCK).unwrap();
            let placements = place.pool.parity_placements(&path, &code, &layout).unwrap();
            let names = written.stub.targets.iter().map(ToString::to_string);
            let all: Vec<String> = names
                .chain(
                    placements.iter().map(|placement| String::from_utf8(placement.target.clone()).unwrap()),
                )
                .collect();
            let apart: BTreeSet<String> = all.iter().map(|name| domain(name)).collect();
            assert_eq!(apart.len(), all.len(), "{all:?}");
            assert_eq!(placements.len(), m.min(3), "six domains: three for data, three for redundancy");
            assert!(
                placements.iter().enumerate().all(|(column, placement)| placement.first == column),
                "{placements:?}"
            );
        }
        written.stub.targets.iter().for_each(|name| *load.entry(name.to_string()).or_default() += 1);
    }
    assert_eq!(load.len(), 10, "{load:?}");
    let warned = Warning::FewDomains { domains: 6, required: 3 + 4, missing: 1 };
    assert!(!place.pool.status().warnings.contains(&warned));
    place.lose(9);
    place.lose(10);
    let missing = Warning::FewDomains { domains: 4, required: 5, missing: 1 };
    assert!(place.pool.status().warnings.contains(&missing), "{:?}", place.pool.status().warnings);
}

#[test]
fn a_pool_is_found_by_name_and_by_any_target() {
    let place = PoolFixture::new(3, 2, 1);
    place.put("file", b"x");
    let registry = Registry::new(place.root().join("registry/pools"));
    assert_eq!(registry.find("tank").unwrap(), None);
    assert!(matches!(
        Pool::open("tank".as_ref(), Some(&registry), options()),
        Err(PoolError::NotFound { .. })
    ));
    registry.record("tank", &place.pool.paths()).unwrap();
    place.lose(1);
    let pool = Pool::open("tank".as_ref(), Some(&registry), options()).unwrap();
    assert_eq!(pool.config().pool, place.pool.config().pool);
    let pool = Pool::open(place.target(3).as_os_str(), None, options()).unwrap();
    assert_eq!(pool.config().pool, place.pool.config().pool);
    assert!(registry.find("../tank").is_err(), "names do not lead out of the registry");
    let error = Pool::open(place.root().as_os_str(), Some(&registry), options()).unwrap_err();
    assert!(error.to_string().contains("no pool.toml"), "{error}");
}

/// Programs without change records would change names without recording them, and encode everything again at the former
/// paths of redundancy. They refuse version 2, so a pool of version 1 must be raised by the first change, and not by a
/// reader.
#[test]
fn the_first_change_raises_the_version_of_an_old_pool() {
    let place = PoolFixture::new(4, 2, 1);
    place.put("file", &bytes(50_000, 1));
    let formats = || -> Vec<String> {
        let line = |number: usize| {
            let text = fs::read_to_string(place.target(number).join("pool.toml")).unwrap();
            text.lines().find(|line| line.starts_with("format = ")).unwrap().to_owned()
        };
        (1..=place.count).map(line).collect()
    };
    assert_eq!(formats(), ["format = 2"; 4]);
    for number in 1..=place.count {
        let path = place.target(number).join("pool.toml");
        let text = fs::read_to_string(&path).unwrap().replace("format = 2", "format = 1");
        let body = &text[..text.find("# check ").unwrap()];
        let check = blake3::hash(body.as_bytes()).to_hex();
        fs::write(&path, format!("{body}# check {check}\n")).unwrap();
        for record in ["sequence.0", "sequence.1"] {
            let _ = fs::remove_file(place.target(number).join(record));
        }
    }
    let open = || Pool::open_at(&[place.target(1)], options()).unwrap();
    let pool = open();
    assert_eq!(pool.stub(b"file").unwrap().size, 50_000);
    assert_eq!(formats(), ["format = 1"; 4], "a reader changed the pool");
    pool.put(b"other", &mut &bytes(10, 2)[..], &metadata(), Timestamp::from_nanoseconds(5)).unwrap();
    assert_eq!(formats(), ["format = 2"; 4]);
    assert_eq!(open().stub(b"file").unwrap().size, 50_000);
}
