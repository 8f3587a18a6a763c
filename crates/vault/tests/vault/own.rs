//! Files of the vault itself that are damaged, missing or planted: settings, policy, catalogue and changelog.

use super::fixture::{Fixture, QUIET, TestRng, flip};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::vault::{Location, Renewed, Vault, VaultError};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const NAMES: [&str; 3] = ["a", "d/b", "d/e/c"];

fn fixture() -> Fixture {
    let fixture = Fixture::new("4+2");
    for (seed, name) in NAMES.iter().enumerate() {
        fixture.write(name, &TestRng(seed as u64).bytes(30_000));
    }
    fixture.protect_all();
    fixture
}

/// The closed tree, as the next process finds it.
fn close(fixture: Fixture) -> (tempfile::TempDir, gabion_vault::world::Clock) {
    let Fixture { dir, vault, clock } = fixture;
    drop(vault);
    (dir, clock)
}

/// Replaces a file or directory by something else.
fn spoil(path: &Path, how: &str) {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        _ => std::fs::remove_file(path).unwrap(),
    }
    match how {
        "gone" => {}
        "empty" => std::fs::write(path, b"").unwrap(),
        "garbage" => std::fs::write(path, TestRng(77).bytes(9000)).unwrap(),
        "directory" => std::fs::create_dir(path).unwrap(),
        "link" => symlink("/etc/passwd", path).unwrap(),
        "pipe" => mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap(),
        _ => unreachable!("{how}"),
    }
}

/// Regression: a damaged catalogue, changelog or `vault.toml` made every command fail, including the rebuild.
#[test]
fn damaged_parts_of_a_repository_are_renewed() {
    let cases = [
        ("catalogue.sqlite", Renewed::Catalogue),
        ("changelog", Renewed::Changelog),
        ("changelog/log.db", Renewed::Changelog),
        ("changelog/pending.db", Renewed::Changelog),
        ("vault.toml", Renewed::Settings),
    ];
    for (name, what) in cases {
        for how in ["garbage", "directory", "link", "pipe"] {
            // For the changelog a directory is correct.
            if (name, how) == ("changelog", "directory") {
                continue;
            }
            let fixture = fixture();
            // Changed and unprotected: the record is lost, and the scan finds it.
            fixture.write("d/b", &TestRng(9).bytes(31_000));
            let root = fixture.root();
            let (_dir, clock) = close(fixture);
            let location = Location::of(&root, None);
            spoil(&location.repository.join(name), how);
            let refused = Vault::open(&location, clock.clone()).map(drop);
            assert!(refused.is_err(), "{name} {how}");
            let renewal = Vault::renew(&location, "test", clock, QUIET).unwrap_or_else(|error| {
                panic!("{name} {how}: {error}");
            });
            assert_eq!(renewal.renewed, [what], "{name} {how}");
            assert_eq!(renewal.rebuilt.files, 3, "{name} {how}");
            let vault = renewal.vault;
            let report = gabion_vault::protect::protect(&vault, QUIET).unwrap();
            assert_eq!((report.done.encoded, report.pending), (1, 0), "{name} {how}: {report:?}");
            let all = vault.catalogue.matrix(b"").unwrap();
            assert_eq!(all.iter().map(|row| row.2).sum::<u64>(), 3, "{name} {how}");
        }
    }
}

/// Names in the repository with this prefix.
fn named(root: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root.join(".gabion")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Damages a closed catalogue, rebuilds it, and expects a sound one next to the damaged one.
fn rebuild_after(what: &str, damage: impl Fn(&mut Vec<u8>)) {
    let fixture = fixture();
    let root = fixture.root();
    let (_dir, clock) = close(fixture);
    let file = root.join(".gabion/catalogue.sqlite");
    let mut bytes = std::fs::read(&file).unwrap();
    damage(&mut bytes);
    std::fs::write(&file, &bytes).unwrap();
    let location = Location::of(&root, None);
    let renewal = Vault::renew(&location, "test", clock.clone(), QUIET)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!((renewal.renewed.as_slice(), renewal.rebuilt.files), (&[Renewed::Catalogue][..], 3), "{what}");
    drop(renewal);
    let vault = Vault::open(&location, clock).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(vault.catalogue.count().unwrap(), 3, "{what}");
    for name in NAMES {
        assert!(vault.catalogue.find(name.as_bytes()).unwrap().is_some(), "{what}: {name}");
    }
    assert_eq!(named(&root, "catalogue.sqlite.damaged-").len(), 1, "{what}: the old file is kept");
    assert!(named(&root, "catalogue.sqlite.draft").is_empty(), "{what}");
}

/// Regression: SQLite reports a file of a newer format as another error than damage, or as read-only, and a rebuild
/// refused to replace it. Offsets: format to write, format to read, schema format, text encoding.
#[test]
fn a_catalogue_whose_format_numbers_are_damaged_is_rebuilt() {
    for offset in [18, 19, 21, 47, 59] {
        rebuild_after(&format!("byte {offset}"), |bytes| bytes[offset] ^= 0x40);
    }
}

/// Regression: an index that contradicted its table was not detected; a rebuild in place left rows that searches by
/// path did not find. Each occurrence of the directory's path is damaged in turn: one is in the table, one in its
/// index.
#[test]
fn a_catalogue_with_a_damaged_index_is_rebuilt_as_a_new_file() {
    let fixture = fixture();
    let root = fixture.root();
    let (_dir, _) = close(fixture);
    let bytes = std::fs::read(root.join(".gabion/catalogue.sqlite")).unwrap();
    let places = bytes.windows(3).filter(|window| window == b"d/e").count();
    assert!(places >= 2, "in the table and in its index");
    for place in 0..places {
        rebuild_after(&format!("place {place}"), |bytes| {
            let mut found = bytes.windows(3).enumerate().filter(|(_, window)| window == b"d/e");
            let (at, _) = found.nth(place).unwrap();
            bytes[at + 2] ^= 1;
        });
    }
}

/// A running watch would continue to write to the old file.
#[test]
fn a_watched_catalogue_is_not_replaced() {
    let fixture = fixture();
    let (root, clock) = (fixture.root(), fixture.clock.clone());
    let watching = fixture.vault.lock_to_watch("watch").unwrap();
    let location = Location::of(&root, None);
    let refused = Vault::renew(&location, "test", clock.clone(), QUIET).map(drop).unwrap_err();
    assert!(refused.to_string().contains("`gabion watch`"), "{refused}");
    drop(watching);
    Vault::renew(&location, "test", clock, QUIET).map(drop).unwrap();
}

#[test]
fn errors_name_a_remedy() {
    for (name, how) in
        [("catalogue.sqlite", "garbage"), ("changelog/log.db", "garbage"), ("vault.toml", "empty")]
    {
        let fixture = fixture();
        let root = fixture.root();
        let (_dir, clock) = close(fixture);
        spoil(&root.join(".gabion").join(name), how);
        let error = Vault::open(&Location::of(&root, None), clock).map(drop).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("`gabion catalogue rebuild`"), "{error}");
    }
}

/// Settings of a newer version are not damaged and are kept.
#[test]
fn settings_of_a_newer_version_are_kept() {
    let fixture = fixture();
    let root = fixture.root();
    let (_dir, clock) = close(fixture);
    let newer = "version = 2\nsomething = \"else\"\n";
    std::fs::write(root.join(".gabion/vault.toml"), newer).unwrap();
    let renewed = Vault::renew(&Location::of(&root, None), "test", clock, QUIET).map(drop);
    assert!(matches!(renewed, Err(VaultError::Settings { .. })), "{renewed:?}");
    assert_eq!(std::fs::read_to_string(root.join(".gabion/vault.toml")).unwrap(), newer);
}

/// Regression: without its catalogue a vault knew no file, so a scrub found no damage.
#[test]
fn a_missing_catalogue_is_rebuilt() {
    for how in ["gone", "empty"] {
        let fixture = fixture();
        flip(&fixture.path("d/b"), 5000);
        let (root, clock) = (fixture.root(), fixture.clock.clone());
        let (dir, _) = close(fixture);
        spoil(&root.join(".gabion/catalogue.sqlite"), how);
        let vault = Vault::open(&Location::of(&root, None), clock.clone()).unwrap();
        let fixture = Fixture { dir, vault, clock };
        assert_eq!(fixture.vault.catalogue.count().unwrap(), 3);
        assert_eq!(fixture.state("d/b"), State::Damaged, "{how}");
        // Opened again, the catalogue is complete.
        let fixture = fixture.reopen();
        assert_eq!(fixture.vault.catalogue.find(b"d/b").unwrap().unwrap().state, State::Damaged);
    }
}

/// A user with write access to the tree may plant a repository. It must not lead to other files.
#[test]
fn links_in_a_repository_lead_nowhere() {
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    let content = b"not ours".to_vec();
    for name in [
        "policy.toml.draft",
        "vault.toml.draft",
        "policy.toml",
        "vault.toml",
        "catalogue.sqlite",
        "changelog",
    ] {
        std::fs::write(&victim, &content).unwrap();
        let mut fixture = fixture();
        let path = fixture.root().join(".gabion").join(name);
        if path.exists() {
            spoil(&path, "gone");
        }
        symlink(&victim, &path).unwrap();
        let (root, clock) = (fixture.root(), fixture.clock.clone());
        // Refused or replaced.
        let _ = fixture.vault.set_policy("[default]\ncode = \"4+3\"\n");
        drop(fixture.vault);
        let _ = Vault::create(&Location::of(&root, None), None, clock.clone()).map(drop);
        let _ = Vault::renew(&Location::of(&root, None), "test", clock, QUIET).map(drop);
        assert_eq!(std::fs::read(&victim).unwrap(), content, "{name}");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "{name}");
    }
    let tree = outside.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    symlink("..", tree.join(".gabion")).unwrap();
    let clock = gabion_vault::world::Clock::System;
    let refused = Vault::create(&Location::of(&tree, None), None, clock).map(drop).unwrap_err();
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
}

#[test]
fn settings_and_policies_without_end_are_refused() {
    let fixture = fixture();
    let root = fixture.root();
    let (_dir, clock) = close(fixture);
    for name in ["policy.toml", "vault.toml"] {
        let file = std::fs::File::create(root.join(".gabion").join(name)).unwrap();
        file.set_len(1 << 40).unwrap();
        let refused = Vault::open(&Location::of(&root, None), clock.clone()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("more than"), "{refused}");
    }
}

/// Databases contain names and sizes of files and are private, whatever the directory's mode.
#[test]
fn repository_files_are_private() {
    let mut fixture = fixture();
    fixture.vault.set_policy("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n").unwrap();
    let mut ahead = vec![fixture.root().join(".gabion")];
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let (entry, path) = entry.map(|entry| (entry.metadata().unwrap(), entry.path())).unwrap();
            let mode = if entry.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(entry.permissions().mode() & 0o7777, mode, "{}", path.display());
            ahead.extend(entry.is_dir().then_some(path));
        }
    }
}

/// Transactions in a catalogue's journal are read from a read-only repository as well: a killed process or a removed
/// disk leaves them there.
#[test]
fn a_read_only_repository_is_read_with_its_journal() {
    let fixture = fixture();
    let entry = fixture.vault.catalogue.find(b"a").unwrap().unwrap();
    fixture.vault.catalogue.put(b"a", &Entry { state: State::Lost, ..entry }).unwrap();
    let own = fixture.path(".gabion");
    assert!(std::fs::metadata(own.join("catalogue.sqlite-wal")).unwrap().len() > 0);
    let mount = |args: &[&std::ffi::OsStr]| {
        std::process::Command::new("mount").args(args).arg(&own).status().is_ok_and(|status| status.success())
    };
    let sealed =
        mount(&["--bind".as_ref(), own.as_os_str()]) && mount(&["-o".as_ref(), "remount,bind,ro".as_ref()]);
    if !sealed {
        gabion_testkit::skip!("a_read_only_repository_is_read_with_its_journal: nothing can be mounted here");
        return;
    }
    let names =
        || std::fs::read_dir(&own).unwrap().map(|it| it.unwrap().file_name()).collect::<BTreeSet<_>>();
    let before = names();
    let location = Location::of(&fixture.root(), None);
    let refused = Vault::open(&location, fixture.clock.clone()).err().map(|error| error.to_string());
    let opened = Vault::open_to_examine(&location, fixture.clock.clone()).map(|(vault, _)| {
        // Nothing is recorded.
        let seen = vault.catalogue.find(b"a").unwrap().unwrap();
        vault.catalogue.forget(b"a").unwrap();
        let locked = vault.lock("test").is_ok();
        (vault.read_only.is_some(), seen.state, locked, vault.changelog.pending().unwrap().entries())
    });
    let after = names();
    let _ = std::process::Command::new("umount").arg("-l").arg(&own).status();
    assert!(refused.is_some_and(|why| why.contains("ead-only") && why.contains(".gabion")));
    assert_eq!(opened.map_err(|error| error.to_string()), Ok((true, State::Lost, true, 0)));
    assert_eq!(before, after);
    assert!(fixture.vault.catalogue.find(b"a").unwrap().is_some());
}
