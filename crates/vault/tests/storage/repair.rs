//! Missing objects are recreated.

use super::fixture::{BLOCK, PoolFixture, bytes, metadata};
use gabion_engine::Code;
use gabion_vault::storage::{Repairable, Storage};
use gabion_vault::world::Timestamp;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Arc;

const COLUMN: usize = 1;

/// Writes the cells of one column, up to a stripe.
fn rewrite(place: &PoolFixture, repair: &mut dyn Repairable, content: &[u8], stripes: u64) {
    let code: Code = "3+2".parse().unwrap();
    let layout = place.pool.layout(b"file", &code, BLOCK).unwrap();
    for run in layout.geometry.cut(content.len() as u64).runs(1).take_while(|run| run.first < stripes) {
        let cell = run.cell(0, COLUMN);
        repair.write(&run, 0, COLUMN, &content[cell.start as usize..cell.end as usize]).unwrap();
    }
}

#[test]
fn a_missing_object_is_recreated_in_place() {
    let place = PoolFixture::new(5, 3, 2);
    let content = bytes(100_000, 1);
    place.put("file", &content);
    let before = place.pool.stub(b"file").unwrap();
    fs::remove_file(place.object("file", COLUMN)).unwrap();
    assert!(place.get("file").is_err());
    let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
    rewrite(&place, &mut *repair, &content, u64::MAX);
    repair.set_size(100_000).unwrap();
    let (failed, _) =
        repair.finish(&metadata(), Some(Timestamp::from_nanoseconds(77)), &mut |_| Ok(true)).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    let after = place.pool.stub(b"file").unwrap();
    assert_eq!(
        (after.id, &after.targets, after.mtime),
        (before.id, &before.targets, Timestamp::from_nanoseconds(77))
    );
    assert!(after.revision == before.revision + 1 && after.changed > before.changed);
    assert!(place.get("file").unwrap() == content);
}

#[test]
fn a_column_of_a_lost_target_moves_to_a_free_domain() {
    let domains = [Some("a"), Some("b"), Some("c"), Some("d"), Some("d"), Some("e"), Some("f")];
    let place = PoolFixture::with_domains(&domains, 3, 2);
    let content = bytes(100_000, 2);
    place.put("file", &content);
    let code: Code = "3+2".parse().unwrap();
    let layout = place.pool.layout(b"file", &code, BLOCK).unwrap();
    let placements = place.pool.parity_placements(b"file", &code, &layout).unwrap();
    for placement in &placements {
        let draft = gabion_vault::redundancy::Draft::new(placement.place.clone()).unwrap();
        draft.write_whole(b"redundancy").unwrap();
        draft.publish().unwrap();
    }
    let before = place.pool.stub(b"file").unwrap();
    let lost: usize = before.targets[COLUMN][1..].parse().unwrap();
    place.lose(lost);
    let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
    rewrite(&place, &mut *repair, &content, u64::MAX);
    repair.finish(&metadata(), Some(Timestamp::from_nanoseconds(5)), &mut |_| Ok(true)).unwrap();
    let after = place.pool.stub(b"file").unwrap();
    let config = place.pool.config();
    let domain = |name: &str| config.target.iter().find(|member| member.name == name).unwrap().domain.clone();
    let placements = placements.iter().map(|placement| String::from_utf8(placement.target.clone()).unwrap());
    let all: Vec<String> = after.targets.iter().map(ToString::to_string).chain(placements).collect();
    assert_eq!(all.iter().map(|name| domain(name)).collect::<BTreeSet<_>>().len(), 5, "{all:?}");
    assert_ne!(after.targets[COLUMN], before.targets[COLUMN]);
    assert!(place.get("file").unwrap() == content);
    // When the disk returns, its object is unreferenced.
    place.restore_disk(lost);
    assert!(place.get("file").unwrap() == content);
    let orphans = place.pool.sweep(true).unwrap().orphans;
    assert_eq!(orphans.iter().map(|orphan| &orphan.target).collect::<Vec<_>>(), [&before.targets[COLUMN]]);
    assert!(place.get("file").unwrap() == content);
}

#[test]
fn without_a_free_domain_nothing_moves() {
    let place = PoolFixture::new(3, 3, 0);
    place.put("file", &bytes(100_000, 3));
    let number: usize = place.pool.stub(b"file").unwrap().targets[COLUMN][1..].parse().unwrap();
    place.lose(number);
    let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
    let code: Code = "3+0".parse().unwrap();
    let run = place.pool.layout(b"file", &code, BLOCK).unwrap().geometry.cut(100_000).run(0, 1);
    let error = repair.write(&run, 0, COLUMN, &[1; BLOCK as usize]).unwrap_err();
    assert!(error.to_string().contains(&format!("d{number}")), "{error}");
}

/// An incomplete object must never be used: its missing half would read as zeros.
#[test]
fn an_incomplete_object_is_not_published() {
    let place = PoolFixture::new(5, 3, 2);
    let content = bytes(100_000, 4);
    place.put("file", &content);
    fs::remove_file(place.object("file", COLUMN)).unwrap();
    let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
    rewrite(&place, &mut *repair, &content, 3);
    let error =
        repair.finish(&metadata(), Some(Timestamp::from_nanoseconds(5)), &mut |_| Ok(true)).unwrap_err();
    assert!(error.to_string().contains("column 1"), "{error}");
    drop(repair);
    assert!(place.get("file").is_err() && !place.object("file", COLUMN).exists());
    assert!(place.pool.sweep(false).unwrap().orphans.is_empty(), "and nothing is left of it");
}

#[test]
fn a_file_that_was_replaced_meanwhile_is_not_overwritten() {
    let place = PoolFixture::new(5, 3, 2);
    let content = bytes(100_000, 5);
    place.put("file", &content);
    let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
    rewrite(&place, &mut *repair, &content, u64::MAX);
    place.put("file", b"new");
    let error =
        repair.finish(&metadata(), Some(Timestamp::from_nanoseconds(5)), &mut |_| Ok(true)).unwrap_err();
    assert!(error.to_string().contains("changed"), "{error}");
    assert_eq!(place.get("file").unwrap(), b"new");
}

/// Programs started by other threads briefly inherit all descriptors, and with them the locks.
#[test]
fn a_program_that_is_being_started_does_not_keep_files_locked() {
    let needed = Arc::new(());
    let still = Arc::downgrade(&needed);
    let starter = std::thread::spawn(move || {
        let mut started = 0;
        while still.strong_count() > 0 {
            assert!(Command::new("true").status().unwrap().success());
            started += 1;
        }
        started
    });
    let place = PoolFixture::new(3, 3, 0);
    for round in 0..200 {
        let content = bytes(20_000, round);
        place.put("file", &content);
        let mut repair = place.pool.open_for_repair(b"file", None).unwrap().0;
        rewrite(&place, &mut *repair, &content, u64::MAX);
        repair.finish(&metadata(), Some(Timestamp::from_nanoseconds(5)), &mut |_| Ok(true)).unwrap();
    }
    drop(needed);
    assert!(starter.join().unwrap() > 0);
}
