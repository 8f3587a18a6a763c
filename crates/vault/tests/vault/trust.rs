//! Crashes, locks, full and read-only disks: the vault stays consistent.

use super::fixture::{Fixture, QUIET, TestRng};
use gabion_vault::protect;
use gabion_vault::run;
use gabion_vault::vault::LockError;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::Clock;
use gabion_vault::world::Timestamp;

#[test]
fn a_second_command_is_told_the_lock_owner() {
    let fixture = Fixture::new("4+2");
    let lock = fixture.vault.lock("protect").unwrap();
    match fixture.vault.lock("scrub") {
        Err(LockError::Held { holder }) => {
            assert!(
                holder.contains("gabion protect") && holder.contains(&std::process::id().to_string()),
                "{holder}"
            );
        }
        other => panic!("{other:?}"),
    }
    drop(lock);
    fixture.vault.lock("scrub").unwrap();
}

#[test]
fn an_interrupted_update_is_finished_by_whoever_comes_next() {
    let fixture = Fixture::new("4+2");
    let mut content = TestRng(1).bytes(6 << 20);
    fixture.write("file", &content);
    fixture.protect_all();
    let old = std::fs::read(fixture.redundancy("file")).unwrap();
    content[77] ^= 1;
    fixture.write("file", &content);
    fixture.protect_all();
    let new = std::fs::read(fixture.redundancy("file")).unwrap();
    assert_eq!(old.len(), new.len());
    let differs: Vec<usize> = (0..old.len()).filter(|&at| old[at] != new[at]).collect();
    // The pending update before it was removed: everything that differs, in one write.
    let (first, last) = (differs[0], differs[differs.len() - 1] + 1);
    let id: String = new[16..32].iter().map(|byte| format!("{byte:02x}")).collect();
    let mut redo = b"\x89GABRO\r\n".to_vec();
    redo.extend(&new[16..40]);
    let path = b"redundancy/file";
    redo.extend((path.len() as u32).to_le_bytes());
    redo.extend(path);
    redo.extend(1u64.to_le_bytes());
    redo.extend((first as u64).to_le_bytes());
    redo.extend(((last - first) as u64).to_le_bytes());
    redo.extend(&new[first..last]);
    let checksum = blake3::hash(&redo);
    redo.extend(checksum.as_bytes());
    // Writes reached the disk up to some byte, in any order; the frame or a header is torn.
    for torn in [first, first + 1, (first + last) / 2, last - 100, last] {
        let mut mixed = old.clone();
        mixed[first..torn].copy_from_slice(&new[first..torn]);
        let staging = fixture.path(".gabion/staging");
        for reader_finds_it in [true, false] {
            std::fs::write(fixture.redundancy("file"), &mixed).unwrap();
            std::fs::write(staging.join(format!("{id}.0.redo")), &redo).unwrap();
            std::fs::write(staging.join("abandoned.draft"), b"half").unwrap();
            if reader_finds_it && torn != (first + last) / 2 {
                fixture.assert_clean();
            }
            drop(fixture.vault.lock("test").unwrap());
            assert!(std::fs::read(fixture.redundancy("file")).unwrap() == new, "torn at {torn}");
            assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
        }
    }
    // An update for a version that no longer exists is not applied.
    content.truncate(100_000);
    fixture.write("file", &content);
    fixture.protect_all();
    let newer = std::fs::read(fixture.redundancy("file")).unwrap();
    std::fs::write(fixture.path(".gabion/staging").join(format!("{id}.0.redo")), &redo).unwrap();
    drop(fixture.vault.lock("test").unwrap());
    assert!(std::fs::read(fixture.redundancy("file")).unwrap() == newer);
}

#[test]
fn a_stopped_run_goes_on_later() {
    let fixture = Fixture::new("4+2");
    for number in 0..30 {
        fixture.write(&format!("file {number}"), &TestRng(number).bytes(100_000));
    }
    let seen = std::sync::atomic::AtomicU64::new(0);
    let stopped = || seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) > 20;
    {
        let _lock = fixture.vault.lock("test").unwrap();
        let context = run::RunContext { stopped: &stopped, threads: 1, ..QUIET };
        // Stopped at any point, in the scan or between files.
        let _ = protect::protect(&fixture.vault, context);
    }
    let fixture = fixture.reopen();
    fixture.protect_all();
    fixture.assert_clean();
    assert_eq!(fixture.vault.catalogue.count().unwrap(), 30);
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0);
}

#[test]
fn a_repository_belongs_to_one_tree() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let repository = dir.path().join("repository");
    let one = Location::of(&dir.path().join("one"), Some(&repository));
    Vault::create(&one, None, Clock::System).unwrap();
    let two = Location::of(&dir.path().join("two"), Some(&repository));
    let Err(error) = Vault::create(&two, None, Clock::System) else { panic!("two trees in one repository") };
    assert!(error.to_string().contains("one"), "{error}");
    // A repository at an unusual place within the tree would protect itself.
    let inner = Location::of(&dir.path().join("two"), Some(&dir.path().join("two/inner")));
    assert!(Vault::create(&inner, None, Clock::System).is_err());
}

/// Regression: the first run accepted it and every later one refused it.
#[test]
fn a_tree_within_its_repository_is_refused_from_the_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("above/tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), b"content").unwrap();
    let error = Vault::create(&Location::of(&tree, Some(&dir.path().join("above"))), None, Clock::System);
    let error = error.map(drop).unwrap_err().to_string();
    assert!(error.contains("lies within it"), "{error}");
    assert!(!dir.path().join("above/vault.toml").exists());
    assert_eq!(std::fs::read(tree.join("file")).unwrap(), b"content");
}

/// The error names the option. It used to be "No such file" about an internal directory.
#[test]
fn a_moved_tree_works_with_its_named_repository() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, repository) =
        (dir.path().join("old"), dir.path().join("new"), dir.path().join("repository"));
    std::fs::create_dir(&old).unwrap();
    std::fs::write(old.join("file"), b"content").unwrap();
    let vault = Vault::create(&Location::of(&old, Some(&repository)), None, Clock::System).unwrap();
    protect::protect(&vault, QUIET).unwrap();
    drop(vault);
    std::fs::rename(&old, &new).unwrap();
    let opened = |location: &Location| Vault::open(location, Clock::System);
    for location in [Location::find(&new, Some(&repository)).unwrap(), Location::of(&new, Some(&repository))]
    {
        let error = opened(&location).map(drop).unwrap_err().to_string();
        assert!(error.contains("repository/vault.toml"), "{error}");
    }
    let settings = repository.join("vault.toml");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replace(old.to_str().unwrap(), new.to_str().unwrap())).unwrap();
    let vault = opened(&Location::find(&new, Some(&repository)).unwrap()).unwrap();
    assert!(protect::protect(&vault, QUIET).unwrap().seen.changes.is_empty());
}

#[test]
fn a_full_repository_fails_by_name_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, disk) = (dir.path().join("tree"), dir.path().join("disk"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::create_dir(&disk).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs"])
        .arg(&disk)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        gabion_testkit::skip!("a_full_repository_fails_by_name_and_recovers: a tmpfs cannot be mounted here");
        return;
    }
    struct Unmount(std::path::PathBuf);
    impl Drop for Unmount {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let _unmount = Unmount(disk.clone());
    std::fs::write(tree.join("large"), TestRng(1).bytes(40 << 20)).unwrap();
    std::fs::write(tree.join("small"), TestRng(2).bytes(10_000)).unwrap();
    let vault = Vault::create(
        &Location::of(&tree, Some(&disk.join("repository"))),
        None,
        Clock::manual(Timestamp::EPOCH),
    )
    .unwrap();
    let lock = vault.lock("test").unwrap();
    let report = protect::protect(&vault, QUIET).unwrap();
    let [(path, why)] = &report.done.failed[..] else { panic!("{report:?}") };
    assert_eq!(path, b"large");
    assert!(
        why.to_string().contains("redundancy/large") && why.to_string().contains("No space left"),
        "{why}"
    );
    assert_eq!(report.done.encoded, 1);
    // Nothing incomplete is left, and with free space it works.
    assert_eq!(std::fs::read_dir(disk.join("repository/staging")).unwrap().count(), 0);
    drop(lock);
    std::process::Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk).status().unwrap();
    let _lock = vault.lock("test").unwrap();
    vault.clock.set(Timestamp::from_nanoseconds(3_600_000_000_000));
    let report = protect::protect(&vault, QUIET).unwrap();
    assert_eq!((report.done.encoded, report.done.failures), (1, 0), "{report:?}");
}

/// Regression: a mistyped address was stored, and every later command used it.
#[test]
fn a_changelog_that_cannot_be_used_is_not_remembered() {
    let tree = tempfile::tempdir().unwrap();
    let location = Location::of(tree.path(), None);
    for wrong in ["http://localhost", "redis://127.0.0.1:1"] {
        let refused = Vault::create(&location, Some(wrong), Clock::System).map(drop);
        assert!(refused.is_err(), "{wrong}");
        assert!(!location.repository.exists(), "{wrong}");
    }
    let vault = Vault::create(&location, None, Clock::System).unwrap();
    assert_eq!(vault.settings.changelog, "embedded");
}
