//! A repository of format version 1 is read, verified, repaired, and replaced by version 2.
//!
//! `tests/data/version-1` was made by such a program with the policy in it. Inodes and times in its headers are those
//! of that machine, so each test writes those of its own files into the headers.

use super::fixture::{Fixture, flip, rebuild_catalogue};
use gabion_vault::catalogue::State;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/version-1");
const FILES: [&str; 4] = ["small.txt", "empty", "dir/stripes.bin", "dir/strong.bin"];

/// Offsets of fields in headers of both versions.
const VERSION: usize = 8;
const MTIME: usize = 48;
const CTIME: usize = 56;
const INODE: usize = 64;

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(DATA).join("tree").join(name)).unwrap()
}

/// The tree with its version 1 redundancy and a catalogue.
fn fixture() -> Fixture {
    let policy = std::fs::read_to_string(Path::new(DATA).join("repository/policy.toml")).unwrap();
    let fixture = Fixture::with_policy(&policy);
    for name in FILES {
        fixture.write(name, &golden(name));
        // Before the time of protection.
        let file = std::fs::File::options().write(true).open(fixture.path(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000)).unwrap();
        let stat = file.metadata().unwrap();
        let mut bytes = std::fs::read(Path::new(DATA).join("repository/redundancy").join(name)).unwrap();
        let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
        let nanos = |seconds: i64, nanos: i64| (seconds * 1_000_000_000 + nanos).to_le_bytes();
        bytes[MTIME..][..8].copy_from_slice(&nanos(stat.mtime(), stat.mtime_nsec()));
        bytes[CTIME..][..8].copy_from_slice(&nanos(stat.ctime(), stat.ctime_nsec()));
        bytes[INODE..][..8].copy_from_slice(&stat.ino().to_le_bytes());
        let checksum = blake3::hash(&bytes[..length - 32]);
        bytes[length - 32..length].copy_from_slice(checksum.as_bytes());
        let end = bytes.len() - length;
        bytes.copy_within(..length, end);
        let path = fixture.redundancy(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let rebuilt = rebuild_catalogue(&fixture.vault);
    assert_eq!(rebuilt.files, 4, "{rebuilt:?}");
    fixture
}

fn version(fixture: &Fixture, name: &str) -> u8 {
    std::fs::read(fixture.redundancy(name)).unwrap()[VERSION]
}

#[test]
fn version_1_is_verified_and_repaired_as_it_is() {
    let fixture = fixture();
    fixture.assert_clean();
    for name in ["small.txt", "dir/stripes.bin", "dir/strong.bin"] {
        let pristine = std::fs::read(fixture.redundancy(name)).unwrap();
        flip(&fixture.path(name), 20);
        assert_eq!(fixture.state(name), State::Damaged, "{name}");
        assert_eq!(fixture.repair(name).state, State::Protected, "{name}");
        assert!(fixture.read(name) == golden(name), "{name}");
        flip(&fixture.redundancy(name), 300);
        assert_eq!(fixture.state(name), State::Damaged, "{name}");
        assert_eq!(fixture.repair(name).state, State::Protected, "{name}");
        assert!(std::fs::read(fixture.redundancy(name)).unwrap() == pristine, "{name}");
    }
    fixture.assert_clean();
}

/// Regression: version 1 redundancy stayed as long as its file did not change, for archives for ever.
#[test]
fn protect_replaces_version_1_by_version_2() {
    let fixture = fixture();
    let name = "dir/stripes.bin";
    let mut content = golden(name);
    content[5000] ^= 1;
    fixture.write(name, &content);
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, report.seen.outdated), (4, 3), "{report:?}");
    assert_eq!(FILES.map(|name| version(&fixture, name)), [2; 4]);
    fixture.assert_clean();
    for name in ["small.txt", name, "dir/strong.bin"] {
        let right = fixture.read(name);
        flip(&fixture.path(name), 19);
        assert_eq!(fixture.repair(name).state, State::Protected);
        assert!(fixture.read(name) == right);
    }
    let report = fixture.protect_all();
    assert_eq!((report.done.encoded, report.seen.outdated), (0, 0), "{report:?}");
    assert!(fixture.protect_all().seen.changes.is_empty());
}

/// The second run of a new vault read the headers of all redundancy to learn its version.
#[test]
fn redundancy_of_a_new_vault_is_of_version_2_from_the_beginning() {
    let known = |fixture: &Fixture| fixture.vault.catalogue.note("redundancy format").unwrap();
    let new = Fixture::new("4+2");
    new.write("file", b"content");
    new.protect();
    assert_eq!(known(&new).as_deref(), Some("2"));
    let old = fixture();
    old.protect();
    assert_eq!(known(&old), None, "replaced in this run, looked at in the next one");
    old.protect();
    assert_eq!(known(&old).as_deref(), Some("2"));
}

/// A catalogue that is lost with version 1 makes no difference.
#[test]
fn version_1_without_a_catalogue_is_replaced_as_well() {
    let fixture = fixture();
    fixture.vault.catalogue.clear().unwrap();
    fixture.protect_all();
    assert_eq!(FILES.map(|name| version(&fixture, name)), [2; 4]);
    fixture.assert_clean();
}

/// The step to version 2 encodes everything again. Corruption that version 1 can still detect must not be encoded.
#[test]
fn corruption_is_not_accepted_on_the_way_to_version_2() {
    let fixture = fixture();
    let name = "dir/stripes.bin";
    flip(&fixture.path(name), 12_345);
    std::fs::set_permissions(fixture.path(name), PermissionsExt::from_mode(0o640)).unwrap();
    let report = fixture.protect();
    assert_eq!(report.done.damaged.len(), 1, "{report:?}");
    assert_eq!(version(&fixture, name), 1);
    assert_eq!(fixture.repair(name).state, State::Protected);
    assert!(fixture.read(name) == golden(name));
    fixture.protect_all();
    fixture.assert_clean();
}

/// A policy with another number of columns: version 1 is encoded anew, as for any other change, and later changes keep
/// frames.
#[test]
fn another_number_of_columns_replaces_version_1() {
    let mut fixture = fixture();
    let policy = |m: usize| format!("[default]\ncode = \"4+{m}\"\n\n[guard]\nat_least = 100000\n");
    for (m, again) in [(3, true), (2, false), (4, false), (1, false)] {
        fixture.vault.set_policy(&policy(m)).unwrap();
        let report = fixture.protect_all();
        assert_eq!(report.done.stripes.0 > 0, again, "4+{m}: {report:?}");
        assert_eq!(FILES.map(|name| version(&fixture, name)), [2; 4]);
        fixture.assert_clean();
        for name in FILES {
            assert!(fixture.read(name) == golden(name), "{name}");
        }
    }
}
