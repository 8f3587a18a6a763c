//! The number of redundancy columns changes: columns are added and removed, and the others stay.

use super::fixture::{Fixture, TestRng, flip, rot};
use gabion_vault::catalogue::State;
use gabion_vault::coder::Coders;
use gabion_vault::format::{Header, Records};
use gabion_vault::redundancy::PartPath;
use gabion_vault::tree::Tree;
use std::collections::BTreeMap;

const BLOCK: u64 = 4096;

fn policy(code: &str) -> String {
    // Small segments: one row of 64 KiB blocks would be 16 MiB.
    format!("[default]\ncode = \"{code}\"\nblock = \"4KiB\"\n\n[guard]\nat_least = 100000\n")
}

fn set_code(fixture: &mut Fixture, code: &str) {
    fixture.vault.set_policy(&policy(code)).unwrap();
}

fn fixture(code: &str) -> Fixture {
    Fixture::with_policy(&policy(code))
}

/// Sizes around the bounds of blocks, rows and segments of k = 3, from nothing to a file that is changed in place.
const SIZES: [u64; 12] = [
    0,
    1,
    100,
    BLOCK - 1,
    BLOCK,
    3 * BLOCK,
    3 * BLOCK + 1,
    48 * BLOCK - 1,
    300_000,
    4_000_000,
    3 * (16 << 20) + 12_345,
    6 * (16 << 20) + 1,
];

fn fill(fixture: &Fixture, sizes: &[u64]) -> BTreeMap<String, Vec<u8>> {
    let mut rng = TestRng(7);
    let file = |&size: &u64| (format!("dir{}/{size}", size % 2), rng.bytes(size as usize));
    let files: BTreeMap<String, Vec<u8>> = sizes.iter().map(file).collect();
    files.iter().for_each(|(name, bytes)| fixture.write(name, bytes));
    files
}

/// The header of a redundancy file, and the frames of its columns.
fn redundancy(fixture: &Fixture, name: &str) -> (Header, Vec<Vec<u8>>) {
    let tree = Tree::open(&fixture.root().join(".gabion")).unwrap();
    let place = PartPath { tree, path: format!("redundancy/{name}").into_bytes() };
    let mut part = place.open(&Coders::new().unwrap()).unwrap().unwrap();
    part.check_trailer(&Coders::new().unwrap()).unwrap();
    assert_eq!((&part.head_damage, &part.trailer_damage), (&None, &None), "{name}");
    let bytes = std::fs::read(fixture.redundancy(name)).unwrap();
    let records: Records = part.records;
    let section =
        |column| records.frame_offset(column, 0) as usize..records.frame_offset(column + 1, 0) as usize;
    let sections = (0..records.columns()).map(|column| bytes[section(column)].to_vec()).collect();
    (part.header.clone(), sections)
}

fn states(fixture: &Fixture) -> Vec<(State, u32, u32)> {
    let mut found = Vec::new();
    fixture
        .vault
        .catalogue
        .each_page(b"", |page| -> Result<(), gabion_vault::catalogue::CatalogueError> {
            found.extend(page.into_iter().map(|(_, entry)| (entry.state, entry.columns, entry.wanted)));
            Ok(())
        })
        .unwrap();
    found
}

/// Damages the first block of every set of up to m data columns, and repairs it.
fn assert_repairs(fixture: &Fixture, name: &str, content: &[u8], k: u64, m: usize) {
    let (header, _) = redundancy(fixture, name);
    let cut = header.geometry.cut(header.generation.size);
    if cut.stripes() == 0 {
        return;
    }
    for lost in 1u32..1 << k {
        if lost.count_ones() as usize > m {
            continue;
        }
        let run = cut.run(cut.stripes() - 1, 1);
        let cells =
            (0..k as usize).filter(|column| lost >> column & 1 == 1).map(|column| run.cell(0, column));
        let cells: Vec<_> = cells.filter(|cell| !cell.is_empty()).collect();
        for cell in &cells {
            let wrong: Vec<u8> =
                content[cell.start as usize..cell.end as usize].iter().map(|byte| !byte).collect();
            rot(&fixture.path(name), cell.start, &wrong);
        }
        let told = format!("{name}, {m} columns, lost {lost:b}");
        let repaired = fixture.repair(name);
        assert_eq!(repaired.state, State::Protected, "{told}");
        assert!(fixture.read(name) == content, "{told}");
    }
}

/// From one number to another and back: the frames of the other columns stay, new ones are those that the wider code
/// has from the beginning, removal reads nothing, and whatever the columns in use can repair is repaired.
#[test]
fn columns_come_and_go() {
    let mut fixture = fixture("3+4");
    let files = fill(&fixture, &SIZES);
    fixture.protect_all();
    let all: BTreeMap<&String, Vec<Vec<u8>>> =
        files.keys().map(|name| (name, redundancy(&fixture, name).1)).collect();
    let bytes: u64 = SIZES.iter().sum();
    let mut before = 4;
    for m in [1, 2, 3, 4, 2, 1, 3] {
        set_code(&mut fixture, &format!("3+{m}"));
        let report = fixture.protect_all();
        assert_eq!(report.done.encoded, files.len() as u64, "3+{m}: {report:?}");
        assert_eq!(report.done.encoded_bytes, if m > before { bytes } else { 0 }, "3+{m}");
        assert_eq!(report.done.stripes.0, 0, "3+{m}: nothing was encoded again");
        assert!(states(&fixture).iter().all(|&state| state == (State::Protected, m, m)), "3+{m}");
        for (name, content) in &files {
            let (header, sections) = redundancy(&fixture, name);
            assert_eq!((header.code.m(), header.columns, header.code.room()), (m as usize, m as usize, 4));
            assert_eq!(header.coding(), format!("subspace:3+{m}:w8"));
            assert!(sections == all[name][..m as usize], "{name} with {m} columns");
            if content.len() < 1 << 20 {
                assert_repairs(&fixture, name, content, 3, m as usize);
            }
        }
        fixture.assert_clean();
        let again = fixture.protect_all();
        assert!(again.seen.changes.is_empty(), "3+{m}: {again:?}");
        before = m;
    }
    let large = SIZES[10].to_string();
    let name = files.keys().find(|name| name.ends_with(&large)).unwrap();
    assert_repairs(&fixture, name, &files[name], 3, 3);
}

/// A catalogue that is made from headers says the same as before.
#[test]
fn the_catalogue_is_rebuilt_with_the_columns_in_use() {
    let mut fixture = fixture("3+2");
    fill(&fixture, &[10, 100_000]);
    fixture.protect_all();
    set_code(&mut fixture, "3+1");
    fixture.protect_all();
    let before = states(&fixture);
    super::fixture::rebuild_catalogue(&fixture.vault);
    assert_eq!(states(&fixture), before);
    assert!(fixture.protect_all().seen.changes.is_empty());
}

/// Families whose columns depend on m, and more columns than there is room for.
#[test]
fn where_columns_depend_on_m_files_are_encoded_again() {
    for (from, to, again) in [
        ("cauchy:3+2", "cauchy:3+3", true),
        ("cauchy-good:8+2", "cauchy-good:8+3", true),
        ("3+4", "3+5", true),
        ("3+2", "4+2", true),
        // What is removed needs no formula.
        ("cauchy-good:8+3", "cauchy-good:8+2", false),
        ("cauchy:3+3", "cauchy:3+1", false),
        ("3+5", "3+4", false),
        ("3+5", "3+8", false),
        ("rs-isal:3+2", "rs-isal:3+3", false),
        ("rs-vandermonde:3+3", "rs-vandermonde:3+1", false),
        ("cauchy-isal:3+2", "cauchy-isal:3+4", false),
        ("raidz:3+1", "raidz:3+3", false),
    ] {
        let mut fixture = fixture(from);
        let files = fill(&fixture, &[0, 1, 100_000, 8_000_000]);
        fixture.protect_all();
        set_code(&mut fixture, to);
        let report = fixture.protect_all();
        assert_eq!(report.done.stripes.0 > 0, again, "{from} -> {to}: {report:?}");
        assert!(states(&fixture).iter().all(|state| state.0 == State::Protected), "{from} -> {to}");
        fixture.assert_clean();
        for (name, content) in files.iter().filter(|(_, content)| content.len() == 100_000) {
            let (header, _) = redundancy(&fixture, name);
            assert_repairs(&fixture, name, content, header.code.k() as u64, header.code.m());
        }
    }
}

/// Corruption that nobody has found yet is not made part of new columns, and not accepted.
#[test]
fn columns_are_not_made_from_corrupt_data() {
    for size in [100_000, 8_000_000] {
        let mut fixture = fixture("3+2");
        let files = fill(&fixture, &[size]);
        let (name, content) = files.first_key_value().unwrap();
        fixture.protect_all();
        let before = std::fs::read(fixture.redundancy(name)).unwrap();
        flip(&fixture.path(name), size / 2);
        set_code(&mut fixture, "3+3");
        let report = fixture.protect();
        assert_eq!(report.done.damaged.len(), 1, "{size}: {report:?}");
        assert!(std::fs::read(fixture.redundancy(name)).unwrap() == before, "{size}");
        assert_eq!(states(&fixture)[0].0, State::Damaged);
        assert_eq!(fixture.repair(name).state, State::Protected);
        assert!(fixture.read(name) == *content);
        fixture.protect_all();
        assert_eq!(states(&fixture), [(State::Protected, 3, 3)]);
        fixture.assert_clean();
        // Known damage keeps the columns that may be needed for it.
        flip(&fixture.path(name), size / 3);
        fixture.scrub();
        set_code(&mut fixture, "3+1");
        fixture.protect();
        let (header, sections) = redundancy(&fixture, name);
        assert_eq!((states(&fixture)[0].0, header.code.m(), sections.len()), (State::Damaged, 3, 3));
        assert_eq!(fixture.repair(name).state, State::Protected);
        fixture.protect_all();
        assert_eq!(states(&fixture), [(State::Protected, 1, 1)]);
        fixture.assert_clean();
    }
}

/// A frame of the present columns is damaged when the number changes: it is found afterwards as before, or the file is
/// encoded again; in no case is the result worse.
#[test]
fn damaged_redundancy_does_not_spread() {
    for size in [100_000u64, 8_000_000] {
        for (from, to) in [("3+2", "3+3"), ("3+3", "3+2")] {
            for part in 0..6 {
                let mut fixture = fixture(from);
                let files = fill(&fixture, &[size]);
                let (name, content) = files.first_key_value().unwrap();
                fixture.protect_all();
                let length = std::fs::metadata(fixture.redundancy(name)).unwrap().len();
                // Headers at both ends, blocks and tables between.
                let offset = [30, length / 5, length / 2, length * 4 / 5, length - 400, length - 30][part];
                let damage = vec![0xa5; 16];
                rot(&fixture.redundancy(name), offset.min(length - 16), &damage);
                set_code(&mut fixture, to);
                fixture.protect_all();
                let told = format!("{from} -> {to}, {size} bytes, damage {part}");
                let repaired = fixture.repair(name);
                assert_eq!(repaired.state, State::Protected, "{told}");
                fixture.assert_clean();
                let (header, sections) = redundancy(&fixture, name);
                assert_eq!(format!("3+{}", sections.len()), to, "{told}");
                assert_eq!(header.code.m(), sections.len(), "{told}");
                if size == 100_000 {
                    assert_repairs(&fixture, name, content, 3, sections.len());
                }
            }
        }
    }
}

/// A file that changed, or lost times, together with the policy.
#[test]
fn a_changed_file_is_encoded_with_the_new_number() {
    let mut fixture = fixture("3+3");
    let files = fill(&fixture, &[0, 5000, 100_000, 8_000_000]);
    fixture.protect_all();
    for (name, content) in &files {
        fixture.write(name, &[&content[..], b"more"].concat());
    }
    set_code(&mut fixture, "3+2");
    let report = fixture.protect_all();
    assert!(report.done.encoded_bytes > 8_000_000, "{report:?}");
    fixture.assert_clean();
    for (name, content) in files.iter().filter(|(_, content)| content.len() < 1 << 20) {
        assert_repairs(&fixture, name, &[&content[..], b"more"].concat(), 3, 2);
    }
}

/// Blocks with BLAKE3.
#[test]
fn columns_of_strong_redundancy_have_hashes() {
    let strong = |code: &str| format!("{}\n", policy(code).replace("block =", "strong = true\nblock ="));
    let mut fixture = Fixture::with_policy(&strong("3+1"));
    let files = fill(&fixture, &[100_000, 8_000_000]);
    fixture.protect_all();
    for (m, read) in [(3, true), (2, false)] {
        fixture.vault.set_policy(&strong(&format!("3+{m}"))).unwrap();
        let report = fixture.protect_all();
        assert_eq!((report.done.stripes.0, report.done.encoded_bytes > 0), (0, read), "{report:?}");
        fixture.assert_clean();
    }
    for (name, content) in files.iter().filter(|(_, content)| content.len() < 1 << 20) {
        assert_repairs(&fixture, name, content, 3, 2);
    }
}
