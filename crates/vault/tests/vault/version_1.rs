//! A repository that a program of format version 1 wrote: read, verified, repaired, and replaced by version 2.
//!
//! `tests/data/version-1` was made by that program with the policy that lies in it. Inodes and change times in the headers are those of
//! the machine where it was made, so each test puts those of its own files there.

use super::playground::{Playground, flip, rebuild_catalogue};
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

/// The tree with its version 1 redundancy and a catalogue of it.
fn ground() -> Playground {
    let policy = std::fs::read_to_string(Path::new(DATA).join("repository/policy.toml")).unwrap();
    let ground = Playground::with_policy(&policy);
    for name in FILES {
        ground.write(name, &golden(name));
        // Before the time at which the redundancy was made.
        let file = std::fs::File::options().write(true).open(ground.path(name)).unwrap();
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
        let path = ground.redundancy(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let rebuilt = rebuild_catalogue(&ground.vault);
    assert_eq!(rebuilt.files, 4, "{rebuilt:?}");
    ground
}

fn version(ground: &Playground, name: &str) -> u8 {
    std::fs::read(ground.redundancy(name)).unwrap()[VERSION]
}

#[test]
fn version_1_is_verified_and_repaired_as_it_is() {
    let ground = ground();
    ground.assert_clean();
    for name in ["small.txt", "dir/stripes.bin", "dir/strong.bin"] {
        let pristine = std::fs::read(ground.redundancy(name)).unwrap();
        flip(&ground.path(name), 20);
        assert_eq!(ground.state(name), State::Damaged, "{name}");
        assert_eq!(ground.repair(name).state, State::Protected, "{name}");
        assert!(ground.read(name) == golden(name), "{name}");
        flip(&ground.redundancy(name), 300);
        assert_eq!(ground.state(name), State::Damaged, "{name}");
        assert_eq!(ground.repair(name).state, State::Protected, "{name}");
        assert!(std::fs::read(ground.redundancy(name)).unwrap() == pristine, "{name}");
    }
    ground.assert_clean();
}

/// Redundancy of version 1 stayed as long as its file did not change, which for an archive is for ever.
#[test]
fn protect_replaces_version_1_by_version_2() {
    let ground = ground();
    let name = "dir/stripes.bin";
    let mut content = golden(name);
    content[5000] ^= 1;
    ground.write(name, &content);
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, report.seen.outdated), (4, 3), "{report:?}");
    assert_eq!(FILES.map(|name| version(&ground, name)), [2; 4]);
    ground.assert_clean();
    for name in ["small.txt", name, "dir/strong.bin"] {
        let right = ground.read(name);
        flip(&ground.path(name), 19);
        assert_eq!(ground.repair(name).state, State::Protected);
        assert!(ground.read(name) == right);
    }
    let report = ground.protect_all();
    assert_eq!((report.done.encoded, report.seen.outdated), (0, 0), "{report:?}");
    assert!(ground.protect_all().seen.changes.is_empty());
}

/// The second run of a new vault read the headers of all redundancy to learn its version.
#[test]
fn redundancy_of_a_new_vault_is_of_version_2_from_the_beginning() {
    let known = |ground: &Playground| ground.vault.catalogue.note("redundancy format").unwrap();
    let new = Playground::new("4+2");
    new.write("file", b"content");
    new.protect();
    assert_eq!(known(&new).as_deref(), Some("2"));
    let old = ground();
    old.protect();
    assert_eq!(known(&old), None, "replaced in this run, looked at in the next one");
    old.protect();
    assert_eq!(known(&old).as_deref(), Some("2"));
}

/// A catalogue that is lost with version 1 makes no difference.
#[test]
fn version_1_without_a_catalogue_is_replaced_as_well() {
    let ground = ground();
    ground.vault.catalogue.clear().unwrap();
    ground.protect_all();
    assert_eq!(FILES.map(|name| version(&ground, name)), [2; 4]);
    ground.assert_clean();
}

/// The step to version 2 has to encode everything again. Corruption that version 1 still knows about must not become part of it.
#[test]
fn corruption_is_not_accepted_on_the_way_to_version_2() {
    let ground = ground();
    let name = "dir/stripes.bin";
    flip(&ground.path(name), 12_345);
    std::fs::set_permissions(ground.path(name), PermissionsExt::from_mode(0o640)).unwrap();
    let report = ground.protect();
    assert_eq!(report.done.damaged.len(), 1, "{report:?}");
    assert_eq!(version(&ground, name), 1);
    assert_eq!(ground.repair(name).state, State::Protected);
    assert!(ground.read(name) == golden(name));
    ground.protect_all();
    ground.assert_clean();
}
