//! The number of redundancy columns of files in a pool changes: redundancy files come and go, the others keep their
//! frames.

use super::fixture::{TestRng, flip};
use super::pool::PoolFixture;
use gabion_vault::catalogue::State;
use gabion_vault::coder::Coders;
use gabion_vault::format::Header;
use gabion_vault::redundancy::PartPath;
use gabion_vault::tree::Tree;
use std::collections::BTreeMap;
use std::path::PathBuf;

const TARGETS: usize = 8;

/// With redundancy files that are rewritten and such that are changed in place.
const SIZES: [usize; 8] = [0, 1, 63, 4096, 12_288, 12_289, 100_000, 6_500_000];

fn fixture(m: usize) -> PoolFixture {
    let mut fixture = PoolFixture::new(&[None; TARGETS], 3, m);
    set_columns(&mut fixture, m);
    let mut rng = TestRng(3);
    for size in SIZES {
        fixture.put(&format!("dir{}/file {size}", size % 2), &rng.bytes(size));
    }
    fixture.protect_all();
    fixture
}

fn set_columns(fixture: &mut PoolFixture, m: usize) {
    let policy = format!("[default]\ncode = \"3+{m}\"\n\n[guard]\nat_least = 100000\n");
    fixture.vault.set_policy(&policy).unwrap();
}

/// Headers and frames of all redundancy files of a file, by column.
fn columns(fixture: &PoolFixture, name: &str) -> BTreeMap<usize, (Header, Vec<u8>)> {
    let coders = Coders::new().unwrap();
    let of_file = |(_, path): (usize, PathBuf)| {
        let tree = Tree::open(path.parent().unwrap()).unwrap();
        let place = PartPath { tree, path: path.file_name().unwrap().as_encoded_bytes().to_vec() };
        let file = place.tree.read(&place.path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        drop(file);
        let length = Header::length(&bytes).unwrap();
        let named = |identity: &str, in_use| coders.named(identity, in_use);
        let header = Header::decode(&bytes[..length], named).unwrap();
        assert_eq!(bytes[bytes.len() - length..], bytes[..length], "{name}");
        let frames = bytes[length..bytes.len() - length].to_vec();
        (header.first, (header, frames))
    };
    fixture.redundancy(name).into_iter().map(of_file).collect()
}

fn assert_has(fixture: &PoolFixture, m: usize, told: &str) {
    let status = fixture.status();
    assert!(status.affected.is_empty(), "{told}: {status:?}");
    assert_eq!(status.matrix.keys().collect::<Vec<_>>(), [&(m as u32, m as u32)], "{told}");
    assert_eq!(fixture.redundancy_files(), m * fixture.files.len(), "{told}");
    let report = fixture.scrub();
    assert!(report.damage.is_empty() && report.failed.is_empty(), "{told}: {report:?}");
    fixture.assert_apart(told);
    for (name, content) in &fixture.files {
        assert!(fixture.get(name).as_ref() == Some(content), "{told}: {name}");
    }
}

/// Removes every set of up to m columns of a file, and repairs it.
fn assert_repairs(fixture: &PoolFixture, name: &str, m: usize, told: &str) {
    let redundancy = |column: usize| {
        let files = fixture.redundancy(name).into_iter();
        files.map(|(_, path)| path).find(|path| std::fs::read(path).unwrap()[96] == column as u8).unwrap()
    };
    let paths: Vec<PathBuf> =
        (0..3).map(|column| fixture.object(name, column)).chain((0..m).map(redundancy)).collect();
    for lost in (1u32..1 << (3 + m)).filter(|lost| lost.count_ones() as usize <= m) {
        let gone: Vec<&PathBuf> =
            (0..paths.len()).filter(|at| lost >> at & 1 == 1).map(|at| &paths[at]).collect();
        gone.iter().for_each(|path| std::fs::remove_file(path).unwrap());
        assert_eq!(fixture.repair(), BTreeMap::new(), "{told}, without {lost:b}");
        assert!(fixture.get(name).as_ref() == Some(&fixture.files[name]), "{told}, without {lost:b}");
        fixture.protect_all();
    }
}

#[test]
fn redundancy_files_come_and_go() {
    let mut fixture = fixture(4);
    let names: Vec<String> = fixture.files.keys().cloned().collect();
    let all: BTreeMap<&String, _> = names.iter().map(|name| (name, columns(&fixture, name))).collect();
    let bytes: usize = SIZES.iter().sum();
    let mut before = 4;
    for m in [3, 1, 2, 4, 2, 3] {
        let told = format!("{before} -> {m}");
        set_columns(&mut fixture, m);
        let report = fixture.protect_all();
        assert_eq!(report.done.encoded, names.len() as u64, "{told}: {report:?}");
        assert_eq!(report.done.stripes.0, 0, "{told}: {report:?}");
        assert_eq!(report.done.encoded_bytes, if m > before { bytes as u64 } else { 0 }, "{told}");
        assert_has(&fixture, m, &told);
        for name in &names {
            let found = columns(&fixture, name);
            assert_eq!(found.keys().copied().collect::<Vec<_>>(), (0..m).collect::<Vec<_>>(), "{told}");
            for (column, (header, frames)) in found {
                assert_eq!((header.code.m(), header.code.room()), (m, 4), "{told}: {name}");
                assert_eq!(header.targets.len(), 3 + m, "{told}: {name}");
                assert!(frames == all[name][&column].1, "{told}: {name}, column {column}");
            }
        }
        assert!(fixture.protect_all().seen.changes.is_empty(), "{told}");
        assert_repairs(&fixture, "dir0/file 100000", m, &told);
        before = m;
    }
}

/// A run that ends among the redundancy files of a file leaves some headers with the number of before; the next run
/// makes up for the rest, and the file can be read meanwhile.
#[test]
fn an_interrupted_change_is_made_up_for() {
    for (from, to) in [(2, 3), (3, 2), (1, 3)] {
        for left_behind in 1..1 << from.min(to) {
            let mut fixture = fixture(from);
            let save = |fixture: &PoolFixture| -> Vec<(PathBuf, Vec<u8>)> {
                let names = fixture.files.keys();
                let paths = names.flat_map(|name| fixture.redundancy(name)).map(|(_, path)| path);
                paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
            };
            let before = save(&fixture);
            let names = fixture.files.keys().map(|name| name.as_bytes().to_vec());
            let entries: Vec<_> = names
                .map(|name| (name.clone(), fixture.vault.catalogue.find(&name).unwrap().unwrap()))
                .collect();
            set_columns(&mut fixture, to);
            fixture.protect_all();
            for (path, bytes) in before {
                // The column is at a fixed place of the header.
                let column = u32::from(bytes[96]);
                if column >= to as u32 || left_behind >> column & 1 == 1 {
                    std::fs::write(path, bytes).unwrap();
                }
            }
            let told = format!("{from} -> {to}, left behind {left_behind:b}");
            for (name, content) in &fixture.files {
                assert!(fixture.get(name).as_ref() == Some(content), "{told}: {name}");
            }
            // It was not recorded either.
            for (path, entry) in entries {
                fixture.vault.catalogue.put(&path, &entry).unwrap();
            }
            fixture.protect_all();
            assert_has(&fixture, to, &told);
            assert!(fixture.protect_all().seen.changes.is_empty(), "{told}");
        }
    }
}

/// Corrupt objects are not made part of new columns.
#[test]
fn columns_are_not_made_from_corrupt_objects() {
    let mut fixture = fixture(2);
    let name = "dir0/file 100000";
    flip(&fixture.object(name, 1), 777);
    set_columns(&mut fixture, 3);
    let report = fixture.protect_all();
    assert_eq!(report.done.damaged.len(), 1, "{report:?}");
    assert_eq!(fixture.status().affected.iter().map(|it| it.state).collect::<Vec<_>>(), [State::Damaged]);
    assert_eq!(fixture.repair(), BTreeMap::new());
    fixture.protect_all();
    assert_has(&fixture, 3, "after repair");
}

/// A target that was away while columns were removed returns with one of them.
#[test]
fn a_returning_column_that_is_not_in_use_is_ignored() {
    let mut fixture = fixture(3);
    let name = "dir0/file 100000".to_owned();
    let (target, _) = fixture
        .redundancy(&name)
        .into_iter()
        .find(|(_, path)| std::fs::read(path).unwrap()[96] == 2)
        .unwrap();
    fixture.lose(target);
    set_columns(&mut fixture, 2);
    fixture.protect_all();
    fixture.bring_back(target);
    let report = fixture.protect_all();
    assert_eq!(report.done.failed, []);
    let scrubbed = fixture.scrub();
    assert!(scrubbed.damage.iter().all(|damage| damage.state != State::Damaged), "{scrubbed:?}");
    for (name, content) in &fixture.files {
        assert!(fixture.get(name).as_ref() == Some(content), "{name}");
    }
    set_columns(&mut fixture, 4);
    fixture.protect_all();
    fixture.protect_all();
    assert_has(&fixture, 4, "with the returned one");
}
