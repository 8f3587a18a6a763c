//! What a vault has of its own: settings, policy, catalogue and changelog that are damaged, gone, or put there by a stranger.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::{Entry, State};
use gabion_vault::vault::{Location, Renewed, Vault, VaultError};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const NAMES: [&str; 3] = ["a", "d/b", "d/e/c"];

fn ground() -> Playground {
    let ground = Playground::new("4+2");
    for (seed, name) in NAMES.iter().enumerate() {
        ground.write(name, &Seed(seed as u64).bytes(30_000));
    }
    ground.protect_all();
    ground
}

/// The tree alone, as the next process finds it.
fn close(ground: Playground) -> (tempfile::TempDir, gabion_vault::world::Clock) {
    let Playground { dir, vault, clock } = ground;
    drop(vault);
    (dir, clock)
}

/// Puts something else in the place of a file or directory.
fn spoil(path: &Path, how: &str) {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        _ => std::fs::remove_file(path).unwrap(),
    }
    match how {
        "gone" => {}
        "empty" => std::fs::write(path, b"").unwrap(),
        "garbage" => std::fs::write(path, Seed(77).bytes(9000)).unwrap(),
        "directory" => std::fs::create_dir(path).unwrap(),
        "link" => symlink("/etc/passwd", path).unwrap(),
        "pipe" => mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap(),
        _ => unreachable!("{how}"),
    }
}

/// A damaged catalogue, changelog or `vault.toml` stood in the way of every command, also of the one that makes the catalogue anew.
#[test]
fn what_is_damaged_of_it_is_made_anew() {
    let cases = [
        ("catalogue.sqlite", Renewed::Catalogue),
        ("changelog", Renewed::Changelog),
        ("changelog/log.db", Renewed::Changelog),
        ("changelog/pending.db", Renewed::Changelog),
        ("vault.toml", Renewed::Settings),
    ];
    for (name, what) in cases {
        for how in ["garbage", "directory", "link", "pipe"] {
            // A directory where a directory belongs is nothing to complain about.
            if (name, how) == ("changelog", "directory") {
                continue;
            }
            let ground = ground();
            // Changed and not yet protected: nobody remembers it any more, and yet it is found.
            ground.write("d/b", &Seed(9).bytes(31_000));
            let root = ground.root();
            let (_dir, clock) = close(ground);
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

/// Names in the repository that begin so.
fn named(root: &Path, prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root.join(".gabion")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(prefix)).collect()
}

/// Flips bits of a closed catalogue, rebuilds it, and expects a sound one beside the damaged one.
fn rebuild_after(what: &str, damage: impl Fn(&mut Vec<u8>)) {
    let ground = ground();
    let root = ground.root();
    let (_dir, clock) = close(ground);
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

/// SQLite calls a file of a later format an error of another kind than damage, or read-only: a rebuild refused then, because it
/// opened the file that it was there to replace. Offsets: format to write, format to read, schema format, text encoding.
#[test]
fn a_catalogue_whose_format_numbers_are_damaged_is_rebuilt() {
    for offset in [18, 19, 21, 47, 59] {
        rebuild_after(&format!("byte {offset}"), |bytes| bytes[offset] ^= 0x40);
    }
}

/// An index that contradicts its table was not noticed: rows were removed and put in the same file, and searches by path did not find
/// what was there. Every place with the path of a directory is damaged in turn: one is the table, one its index.
#[test]
fn a_catalogue_with_a_damaged_index_is_rebuilt_as_a_new_file() {
    let ground = ground();
    let root = ground.root();
    let (_dir, _) = close(ground);
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

/// A watch that goes on with the old file would note there what nobody reads.
#[test]
fn a_watched_catalogue_is_not_replaced() {
    let ground = ground();
    let (root, clock) = (ground.root(), ground.clock.clone());
    let watching = ground.vault.lock_to_watch("watch").unwrap();
    let location = Location::of(&root, None);
    let refused = Vault::renew(&location, "test", clock.clone(), QUIET).map(drop).unwrap_err();
    assert!(refused.to_string().contains("`gabion watch`"), "{refused}");
    drop(watching);
    Vault::renew(&location, "test", clock, QUIET).map(drop).unwrap();
}

#[test]
fn errors_say_what_helps() {
    for (name, how) in
        [("catalogue.sqlite", "garbage"), ("changelog/log.db", "garbage"), ("vault.toml", "empty")]
    {
        let ground = ground();
        let root = ground.root();
        let (_dir, clock) = close(ground);
        spoil(&root.join(".gabion").join(name), how);
        let error = Vault::open(&Location::of(&root, None), clock).map(drop).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("`gabion catalogue rebuild`"), "{error}");
    }
}

/// Settings of a later version are not damaged: they are left as they are.
#[test]
fn what_is_newer_is_not_made_anew() {
    let ground = ground();
    let root = ground.root();
    let (_dir, clock) = close(ground);
    let newer = "version = 2\nsomething = \"else\"\n";
    std::fs::write(root.join(".gabion/vault.toml"), newer).unwrap();
    let renewed = Vault::renew(&Location::of(&root, None), "test", clock, QUIET).map(drop);
    assert!(matches!(renewed, Err(VaultError::Settings { .. })), "{renewed:?}");
    assert_eq!(std::fs::read_to_string(root.join(".gabion/vault.toml")).unwrap(), newer);
}

/// Without its catalogue a vault knew of no file: a scrub found no damage, for it looked at nothing.
#[test]
fn a_catalogue_that_is_gone_hides_nothing() {
    for how in ["gone", "empty"] {
        let ground = ground();
        flip(&ground.path("d/b"), 5000);
        let (root, clock) = (ground.root(), ground.clock.clone());
        let (dir, _) = close(ground);
        spoil(&root.join(".gabion/catalogue.sqlite"), how);
        let vault = Vault::open(&Location::of(&root, None), clock.clone()).unwrap();
        let ground = Playground { dir, vault, clock };
        assert_eq!(ground.vault.catalogue.count().unwrap(), 3);
        assert_eq!(ground.state("d/b"), State::Damaged, "{how}");
        // Opened once more, it is the same catalogue, with what was found.
        let ground = ground.reopen();
        assert_eq!(ground.vault.catalogue.find(b"d/b").unwrap().unwrap().state, State::Damaged);
    }
}

/// Whoever may write the tree may prepare a repository in it. Nothing there leads whoever protects the tree to other files.
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
        let mut ground = ground();
        let path = ground.root().join(".gabion").join(name);
        if path.exists() {
            spoil(&path, "gone");
        }
        symlink(&victim, &path).unwrap();
        let (root, clock) = (ground.root(), ground.clock.clone());
        // Refused or replaced, whatever comes first.
        let _ = ground.vault.set_policy("[default]\ncode = \"4+3\"\n");
        drop(ground.vault);
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
    let ground = ground();
    let root = ground.root();
    let (_dir, clock) = close(ground);
    for name in ["policy.toml", "vault.toml"] {
        let file = std::fs::File::create(root.join(".gabion").join(name)).unwrap();
        file.set_len(1 << 40).unwrap();
        let refused = Vault::open(&Location::of(&root, None), clock.clone()).map(drop).unwrap_err();
        assert!(refused.to_string().contains("more than"), "{refused}");
    }
}

/// Names and sizes of files are in the databases: they are for nobody else, whatever the directory lets others see.
#[test]
fn all_of_it_is_for_its_owner_only() {
    let mut ground = ground();
    ground.vault.set_policy("[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n").unwrap();
    let mut ahead = vec![ground.root().join(".gabion")];
    while let Some(directory) = ahead.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let (entry, path) = entry.map(|entry| (entry.metadata().unwrap(), entry.path())).unwrap();
            let mode = if entry.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(entry.permissions().mode() & 0o7777, mode, "{}", path.display());
            ahead.extend(entry.is_dir().then_some(path));
        }
    }
}

/// What is in the journal of a catalogue and not yet in the catalogue counts as well where nobody may write: so a killed process, or a
/// disk that was pulled, leaves it.
#[test]
fn a_read_only_repository_is_read_with_its_journal() {
    let ground = ground();
    let entry = ground.vault.catalogue.find(b"a").unwrap().unwrap();
    ground.vault.catalogue.put(b"a", &Entry { state: State::Lost, ..entry }).unwrap();
    let own = ground.path(".gabion");
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
    let location = Location::of(&ground.root(), None);
    let refused = Vault::open(&location, ground.clock.clone()).err().map(|error| error.to_string());
    let opened = Vault::open_to_examine(&location, ground.clock.clone()).map(|(vault, _)| {
        // What is noted goes nowhere.
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
    assert!(ground.vault.catalogue.find(b"a").unwrap().is_some());
}
