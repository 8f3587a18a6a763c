//! Changes of files, and the minimum of work for each.

mod approvals;

use super::fixture::{Fixture, QUIET, TestRng, live_worker};
use gabion_vault::catalogue::Class;
use gabion_vault::changelog::{Change, When};
use gabion_vault::guard;
use gabion_vault::protect::{self, Approval};
use gabion_vault::worker::Scanned;
use gabion_vault::world::SECOND;
use gabion_vault::world::Timestamp;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn only_what_changed_is_encoded_again() {
    let fixture = Fixture::new("4+2");
    fixture.write("stays", b"");
    fixture.protect_all();
    // Redundancy above 1 MiB is updated in place; smaller redundancy is rewritten with its unchanged frames.
    for size in [200_000, 5_000_000] {
        let mut content = TestRng(1).bytes(size);
        fixture.write("file", &content);
        let first = fixture.protect_all().done;
        assert_eq!((first.encoded, first.stripes.1), (1, 0));
        let inode =
            || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(fixture.redundancy("file")).unwrap());
        let before = inode();
        content[size / 2] ^= 1;
        fixture.write("file", &content);
        let second = fixture.protect_all().done;
        assert_eq!(second.stripes, (1, first.stripes.0 - 1));
        assert_eq!(inode() == before, size > 4_000_000, "in place or not");
        fixture.assert_clean();
        assert!(fixture.protect_all().seen.changes.is_empty());
        std::fs::remove_file(fixture.path("file")).unwrap();
        fixture.protect_all();
    }
}

#[test]
fn a_file_that_grows_keeps_its_full_segments() {
    let policy = "[default]\ncode = \"2+1\"\nblock = \"8MiB\"\n";
    let fixture = Fixture::with_policy(policy);
    // Segments have 2 columns of 2 blocks: 32 MiB.
    let content = TestRng(1).bytes(70 << 20);
    fixture.write("log", &content[..66 << 20]);
    fixture.protect_all();
    fixture.write("log", &content);
    let done = fixture.protect_all().done;
    assert_eq!(done.stripes, (1, 4), "two full segments of two rows stay");
    fixture.assert_clean();
    fixture.write("log", &content[..40 << 20]);
    assert_eq!(fixture.protect_all().done.stripes, (1, 2));
    fixture.assert_clean();
}

#[test]
fn classes_are_told_apart() {
    let fixture = Fixture::new("4+2");
    for name in ["stays", "changes", "moves", "goes", "touched", "restored", "copied from", "dir/a", "dir/b"]
    {
        fixture.write(name, name.as_bytes());
    }
    let report = fixture.protect_all();
    assert_eq!(report.seen.changes.of(Class::Added).0, 9);
    fixture.write("changes", b"something else");
    std::fs::rename(fixture.path("moves"), fixture.path("moved")).unwrap();
    std::fs::rename(fixture.path("dir"), fixture.path("directory")).unwrap();
    std::fs::remove_file(fixture.path("goes")).unwrap();
    std::fs::set_permissions(fixture.path("touched"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let keep_time = |from: &str, to: &str| {
        let time = std::fs::metadata(fixture.path(from)).unwrap().modified().unwrap();
        fixture.write(to, &fixture.read(from));
        std::fs::File::options().write(true).open(fixture.path(to)).unwrap().set_modified(time).unwrap();
    };
    keep_time("restored", "restored.new");
    std::fs::rename(fixture.path("restored.new"), fixture.path("restored")).unwrap();
    keep_time("copied from", "copied to");
    fixture.write("new", b"new");
    let report = fixture.protect_all();
    let counts = Class::ALL.map(|class| (class.word(), report.seen.changes.of(class).0));
    let expected = [
        ("added", 1),
        ("copied", 1),
        ("moved", 3),
        ("changed", 1),
        ("restored", 1),
        ("touched", 1),
        ("recoded", 0),
        ("removed", 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!((report.done.moved, report.done.removed), (3, 1));
    // The moved file was not read; touched and restored files were read, and nothing was encoded.
    assert_eq!((report.done.adopted, report.done.encoded), (0, 5));
    fixture.assert_clean();
    assert!(fixture.protect_all().seen.changes.is_empty());
    assert!(!fixture.redundancy("dir").exists() && !fixture.redundancy("goes").exists());
}

#[test]
fn files_and_directories_take_each_others_names() {
    let fixture = Fixture::new("4+2");
    fixture.write("a", b"a file");
    fixture.write("b/inner", b"a file in a directory");
    fixture.protect_all();
    std::fs::remove_file(fixture.path("a")).unwrap();
    std::fs::remove_dir_all(fixture.path("b")).unwrap();
    fixture.write("a/inner", b"a directory now");
    fixture.write("b", b"a file now");
    fixture.protect_all();
    fixture.assert_clean();
    assert_eq!(fixture.vault.catalogue.count().unwrap(), 2);
}

#[test]
fn files_that_swap_names_keep_the_right_redundancy() {
    let fixture = Fixture::new("4+2");
    fixture.write("a", &TestRng(1).bytes(30_000));
    fixture.write("b", &TestRng(2).bytes(30_000));
    fixture.protect_all();
    std::fs::rename(fixture.path("a"), fixture.path("t")).unwrap();
    std::fs::rename(fixture.path("b"), fixture.path("a")).unwrap();
    std::fs::rename(fixture.path("t"), fixture.path("b")).unwrap();
    fixture.protect_all();
    fixture.assert_clean();
    assert!(fixture.protect_all().seen.changes.is_empty());
}

#[test]
fn another_policy_makes_other_redundancy() {
    let mut fixture = Fixture::new("4+2");
    fixture.write("a", &TestRng(1).bytes(30_000));
    fixture.protect_all();
    fixture.vault.set_policy("[default]\ncode = \"4+3\"\nblock = \"4KiB\"\n").unwrap();
    let report = fixture.protect_all();
    assert_eq!(report.seen.changes.of(Class::Recoded).0, 1);
    assert_eq!(fixture.vault.catalogue.find(b"a").unwrap().unwrap().columns, 3);
    fixture.assert_clean();
    fixture.vault.set_policy("[[rule]]\npaths = [\"a\"]\nprotect = false\n").unwrap();
    assert_eq!(fixture.protect_all().done.removed, 1);
    assert!(!fixture.redundancy("a").exists());
}

#[test]
fn mass_changes_wait_for_an_approval_of_exactly_these() {
    let fixture = Fixture::with_policy("[guard]\nat_least = 5\n");
    for number in 0..20 {
        fixture.write(&format!("file {number}"), &TestRng(number).bytes(100));
    }
    fixture.protect_all();
    for number in 0..10 {
        std::fs::remove_file(fixture.path(&format!("file {number}"))).unwrap();
    }
    fixture.write("new", b"new");
    let held = fixture.protect().held.unwrap();
    assert_eq!((held.removed, held.known), (10, 20));
    // New files are protected nevertheless, and deleted ones keep their redundancy.
    assert!(fixture.redundancy("new").exists() && fixture.redundancy("file 3").exists());
    // One more deletion makes another change-set.
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    std::fs::remove_file(fixture.path("file 11")).unwrap();
    let again = fixture.protect().held.unwrap();
    assert_ne!(again.digest, held.digest);
    guard::approve(&fixture.vault.repository, &again.digest).unwrap();
    assert_eq!(fixture.protect_all().done.removed, 11);
    assert!(!fixture.redundancy("file 3").exists());
}

/// Regression: a file overwritten with the same size and its old mtime, between the review of a change-set and its
/// approval, was approved as well.
#[test]
fn other_content_of_the_same_size_and_time_is_another_change_set() {
    let fixture = Fixture::with_policy("[guard]\nat_least = 5\n");
    let write = |seed: u64, bytes: usize| {
        (0..20).for_each(|number| {
            fixture.write(&format!("file {number}"), &TestRng(seed + number).bytes(bytes))
        });
    };
    write(0, 100);
    fixture.protect_all();
    write(100, 101);
    let held = fixture.protect().held.unwrap();
    assert_eq!(fixture.protect().held.unwrap().digest, held.digest, "nobody wrote meanwhile");
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    let path = fixture.path("file 3");
    let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
    let ctime = || std::fs::metadata(&path).map(|it| (it.ctime(), it.ctime_nsec())).unwrap();
    let before = ctime();
    // Timestamps of the file system may be coarse.
    while ctime() == before {
        std::fs::write(&path, TestRng(900).bytes(101)).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
    }
    let again = fixture.protect().held.unwrap();
    assert_ne!(again.digest, held.digest);
    guard::approve(&fixture.vault.repository, &again.digest).unwrap();
    assert_eq!(fixture.protect_all().done.encoded, 20);
}

/// Regression: a continuously written log made every scan's change-set different, and none could be approved.
#[test]
fn a_continuously_written_file_does_not_block_approvals() {
    let fixture = Fixture::with_policy("[guard]\nat_least = 5\n");
    let write = |seed: u64| {
        (0..20)
            .for_each(|number| fixture.write(&format!("file {number}"), &TestRng(seed + number).bytes(100)));
    };
    write(0);
    fixture.write("log", b"line");
    fixture.protect_all();
    write(100);
    let lines = std::cell::Cell::new(1);
    // The size grows, so the version differs even with coarse timestamps.
    let log = || {
        lines.set(lines.get() + 1);
        fixture.write("log", &b"line".repeat(lines.get()));
    };
    log();
    let first = fixture.protect().held.unwrap();
    log();
    let second = fixture.protect().held.unwrap();
    assert_ne!(first.digest, second.digest, "from one look to the next it was another one");
    log();
    let dry = protect::approval(&fixture.vault, &second.digest, true, QUIET).unwrap();
    assert!(matches!(dry, Approval::Held(_)), "{dry:?}");
    let found = protect::approval(&fixture.vault, &second.digest, false, QUIET).unwrap();
    assert!(matches!(&found, Approval::Held(held) if *held == second), "{found:?}");
    guard::approve(&fixture.vault.repository, &second.digest).unwrap();
    // Other files are still identified by the approved versions.
    fixture.write("file 7", b"somebody wrote this after the approval");
    log();
    let third = fixture.protect().held.unwrap();
    assert_ne!(third.digest, second.digest);
    guard::approve(&fixture.vault.repository, &third.digest).unwrap();
    log();
    assert_eq!(fixture.protect_all().done.encoded, 21);
    assert!(guard::approvals(&fixture.vault.repository).unwrap().is_empty());
    // With the next change-set no file is restless.
    write(200);
    log();
    let [one, other] = [(); 2].map(|()| fixture.protect().held.unwrap().digest);
    assert_eq!(one, other);
}

/// Too many restless files: an approval must not leave their versions open.
#[test]
fn many_files_that_do_not_rest_are_never_excused() {
    let fixture = Fixture::with_policy("[guard]\nat_least = 5\n");
    let write = |bytes: usize| {
        (0..20).for_each(|number| fixture.write(&format!("file {number}"), &TestRng(number).bytes(bytes)));
    };
    write(100);
    fixture.protect_all();
    let mut digests = std::collections::BTreeSet::new();
    for bytes in 101..105 {
        write(bytes);
        let held = fixture.protect().held.unwrap();
        guard::approve(&fixture.vault.repository, &held.digest).unwrap();
        digests.insert(held.digest.to_string());
    }
    write(105);
    assert!(fixture.protect().held.is_some());
    assert_eq!(digests.len(), 4);
}

/// Twenty protected files, and a guard with a window of one hour.
fn guarded_for(window: &str) -> Fixture {
    let fixture = Fixture::with_policy(&format!("[guard]\nat_least = 5\nwindow = \"{window}\"\n"));
    for number in 0..20 {
        fixture.write(&format!("file {number}"), &TestRng(number).bytes(100));
    }
    fixture.protect_all();
    fixture
}

/// One file is rewritten per minute. Each run alone sees one harmless change.
#[test]
fn a_slow_mass_change_waits_for_an_approval() {
    let fixture = guarded_for("1h");
    let change = |number: u64, minute: i64| {
        fixture.clock.set(Timestamp::from_seconds(1_800_000_000 + 60 * minute));
        fixture.write(&format!("file {number}"), &TestRng(100 + number).bytes(101));
    };
    for number in 0..10 {
        change(number, number as i64);
        fixture.protect_all();
    }
    // The same file counts once.
    change(9, 10);
    fixture.protect_all();
    change(10, 11);
    let before = std::fs::read(fixture.redundancy("file 10")).unwrap();
    let held = fixture.protect().held.unwrap();
    assert_eq!((held.changed, held.before.changed, held.known), (1, 10, 20));
    assert_eq!(std::fs::read(fixture.redundancy("file 10")).unwrap(), before);
    // An approval covers all of them.
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    assert_eq!(fixture.protect_all().done.encoded, 1);
    change(11, 12);
    fixture.protect_all();
    // The bound for deletions is a quarter.
    for number in 0..5 {
        std::fs::remove_file(fixture.path(&format!("file {number}"))).unwrap();
        fixture.protect_all();
    }
    std::fs::remove_file(fixture.path("file 5")).unwrap();
    let held = fixture.protect().held.unwrap();
    assert_eq!((held.removed, held.before.removed, held.known), (1, 5, 20));
}

#[test]
fn changes_that_lie_further_apart_than_the_window_do_not_count_together() {
    for (window, minutes) in [("1h", 7), ("0s", 0)] {
        let fixture = guarded_for(window);
        for number in 0..20 {
            fixture.clock.set(Timestamp::from_seconds(1_800_000_000 + 60 * minutes * number as i64));
            fixture.write(&format!("file {number}"), &TestRng(100 + number).bytes(101));
            fixture.protect_all();
        }
        fixture.assert_clean();
    }
}

#[test]
fn write_once_files_keep_their_redundancy() {
    let fixture = Fixture::with_policy("[default]\nwrite_once = true\ncode = \"4+2\"\n");
    fixture.write("a", b"as it was written");
    fixture.protect_all();
    fixture.write("a", b"changed");
    let report = fixture.protect_all();
    assert_eq!(report.seen.write_once, [b"a".to_vec()]);
    assert_eq!(report.done.encoded, 0);
    assert!(fixture.scrub().damage[0].changed);
}

#[test]
fn the_catalogue_is_only_a_cache() {
    let fixture = Fixture::new("4+2");
    for number in 0..50 {
        fixture
            .write(&format!("d{}/file {number}", number % 3), &TestRng(number).bytes(1000 * number as usize));
    }
    fixture.protect_all();
    let all = |fixture: &Fixture| {
        let mut found = Vec::new();
        fixture
            .vault
            .catalogue
            .each_page(b"", |page| -> Result<(), gabion_vault::catalogue::CatalogueError> {
                found.extend(page.into_iter().map(|(path, entry)| {
                    (path, entry.id, entry.generation, entry.code, entry.columns, entry.redundancy)
                }));
                Ok(())
            })
            .unwrap();
        found.sort();
        found
    };
    let before = all(&fixture);
    assert_eq!(before.len(), 50);
    fixture.vault.catalogue.clear().unwrap();
    let rebuilt = super::fixture::rebuild_catalogue(&fixture.vault);
    assert_eq!((rebuilt.files, rebuilt.unusable.len()), (50, 0));
    assert_eq!(all(&fixture), before);
    assert!(fixture.protect_all().seen.changes.is_empty());
    // Existing redundancy is adopted even without a rebuild.
    fixture.vault.catalogue.clear().unwrap();
    let done = fixture.protect_all().done;
    assert_eq!((done.adopted, done.encoded), (50, 0));
    assert_eq!(all(&fixture), before);
}

#[test]
fn a_gap_stays_due_until_someone_scans() {
    use gabion_vault::changelog::{Change, When};
    let fixture = Fixture::new("4+2");
    fixture.write("dir/a", &TestRng(1).bytes(30_000));
    fixture.protect_all();
    // A watch that saw a directory move and then lost events.
    std::fs::rename(fixture.path("dir"), fixture.path("moved")).unwrap();
    fixture.write("moved/b", b"nobody saw this");
    let when = When::now(fixture.clock.now(), 0);
    fixture
        .vault
        .changelog
        .record(&[Change::rename("dir", "moved", when), Change::gap("moved", when)])
        .unwrap();
    gabion_vault::protect::work(&fixture.vault, super::fixture::QUIET).unwrap();
    assert!(fixture.vault.changelog.pending().unwrap().entries() > 0);
    assert!(fixture.redundancy("dir/a").exists(), "redundancy of a moved file was thrown away");
    let report = fixture.protect_all();
    assert_eq!((report.done.moved, report.done.encoded), (1, 1));
    fixture.clock.set(fixture.clock.now() + 3600 * gabion_vault::world::SECOND);
    fixture.protect_all();
    assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0);
    fixture.assert_clean();
}

/// Regression: when a new file took a moved file's old name and was processed first, the move was forgotten.
#[test]
fn a_new_file_at_the_old_name_of_a_moved_one_stays_known() {
    use gabion_vault::changelog::{Change, When};
    let fixture = Fixture::new("4+2");
    fixture.write("a", &TestRng(1).bytes(30_000));
    fixture.protect_all();
    std::fs::rename(fixture.path("a"), fixture.path("b")).unwrap();
    fixture.write("a", &TestRng(2).bytes(20_000));
    let when = |priority| When::now(fixture.clock.now(), priority);
    fixture
        .vault
        .changelog
        .record(&[Change::rename("a", "b", when(0)), Change::modify_whole("a", when(200))])
        .unwrap();
    gabion_vault::protect::work(&fixture.vault, super::fixture::QUIET).unwrap();
    for name in ["a", "b"] {
        assert!(fixture.vault.catalogue.find(name.as_bytes()).unwrap().is_some(), "{name}");
    }
    assert!(fixture.protect_all().seen.changes.is_empty());
    fixture.assert_clean();
}

/// Replaces a file by another one of the same size and mtime.
fn replace(fixture: &Fixture, name: &str, bytes: &[u8]) {
    let path = fixture.path(name);
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    fixture.write("temporary", bytes);
    let file = std::fs::File::options().write(true).open(fixture.path("temporary")).unwrap();
    file.set_modified(time).unwrap();
    std::fs::rename(fixture.path("temporary"), path).unwrap();
}

/// Regression: encrypting a tree file by file, with sizes and mtimes preserved, passed the guard. Restoring a backup
/// legitimately passes.
#[test]
fn other_content_of_the_same_size_and_time_does_not_pass_the_guards() {
    let fixture = Fixture::new("4+2");
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let content = |number: usize| TestRng(number as u64 + 1).bytes(3000);
    for (number, name) in names.iter().enumerate() {
        fixture.write(name, &content(number));
        // A freed inode is reused: with equal mtimes a new file would look like another one that was renamed.
        let file = std::fs::File::options().write(true).open(fixture.path(name)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000 + number as u64);
        file.set_modified(time).unwrap();
    }
    fixture.protect_all();
    names.iter().enumerate().for_each(|(number, name)| replace(&fixture, name, &content(number)));
    let report = fixture.protect_all();
    assert_eq!(report.seen.changes.of(Class::Restored).0, 200);
    assert_eq!(report.done.stripes.0, 0);
    let redundancy = || -> Vec<Vec<u8>> {
        names.iter().map(|name| std::fs::read(fixture.redundancy(name)).unwrap()).collect()
    };
    let before = redundancy();
    names.iter().enumerate().for_each(|(number, name)| replace(&fixture, name, &content(number + 1000)));
    let report = fixture.protect();
    let held = report.held.expect("held");
    assert_eq!((held.changed, held.removed, held.known), (200, 0, 200));
    assert_eq!(report.seen.changes.of(Class::Changed).0, 200);
    assert!(redundancy() == before, "what can bring them back must stay");
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    assert_eq!(fixture.protect_all().done.encoded, 200);
    // Changed one at a time, below the guard's bounds, the files are damaged.
    let before = redundancy();
    for (number, name) in names.iter().enumerate() {
        replace(&fixture, name, &content(number + 2000));
        if number % 10 == 9 {
            let report = fixture.protect();
            assert!(report.held.is_some() || report.done.damaged.len() == 10, "slowly is as bad as at once");
        }
    }
    let records = |files: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        let header = |file: &[u8]| u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
        files.into_iter().map(|file| file[header(&file)..file.len() - header(&file)].to_vec()).collect()
    };
    assert!(records(redundancy()) == records(before), "what can bring them back must stay");
}

/// Regression: an unmounted file system looks like an empty directory, and the redundancy of a few files, below the
/// guard's minimum, was removed.
#[test]
fn an_empty_tree_is_held_however_few_files_there_were() {
    let fixture = Fixture::new("4+2");
    ["one", "a/two", "a/b/three"].iter().for_each(|name| fixture.write(name, name.as_bytes()));
    fixture.protect_all();
    let away = fixture.dir.path().join("away");
    std::fs::create_dir(&away).unwrap();
    for name in ["one", "a"] {
        std::fs::rename(fixture.path(name), away.join(name)).unwrap();
    }
    let held = fixture.protect().held.expect("held");
    assert_eq!((held.removed, held.known), (3, 3));
    assert!(fixture.redundancy("a/b/three").exists());
    // After it is mounted again nothing is lost and nothing has to be done.
    for name in ["one", "a"] {
        std::fs::rename(away.join(name), fixture.path(name)).unwrap();
    }
    let report = fixture.protect_all();
    assert_eq!((report.done.stripes.0, report.done.removed, report.affected.len()), (0, 0, 0));
    fixture.assert_clean();
    // With any file left the guard's usual bounds apply.
    std::fs::remove_dir_all(fixture.path("a")).unwrap();
    assert_eq!(fixture.protect_all().done.removed, 2);
    // An intended deletion can be approved.
    std::fs::remove_file(fixture.path("one")).unwrap();
    let held = fixture.protect().held.expect("held");
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    assert_eq!(fixture.protect_all().done.removed, 1);
    assert_eq!(fixture.vault.catalogue.count().unwrap(), 0);
    assert!(fixture.protect_all().seen.changes.is_empty());
}

/// Regression: a worker processed the old name of a just moved file before the move was recorded, took it for a
/// deletion, and removed redundancy with the only copy of a lost column.
#[test]
fn redundancy_of_a_missing_file_is_kept_until_its_fate_is_known() {
    let fixture = Fixture::new("4+2");
    fixture.write("old", &TestRng(77).bytes(30_000));
    fixture.write("deleted", &TestRng(78).bytes(30_000));
    fixture.write("never heard of again", &TestRng(79).bytes(30_000));
    fixture.protect_all();
    let vault = &fixture.vault;
    let work = || {
        fixture.clock.set(fixture.clock.now() + 10 * SECOND);
        let scanned = Scanned::default();
        let worker = live_worker(vault, &scanned);
        worker.drain(None).unwrap()
    };
    let when = || When::now(fixture.clock.now(), 0);
    std::fs::rename(fixture.path("old"), fixture.path("new")).unwrap();
    std::fs::remove_file(fixture.path("deleted")).unwrap();
    let seen = ["old", "deleted", "never seen"].map(|name| Change::modify_whole(name, when()));
    vault.changelog.record(&seen).unwrap();
    for _ in 0..5 {
        let done = work();
        assert_eq!((done.removed, done.failures, done.for_scan.len()), (0, 0, 0), "{done:?}");
    }
    assert!(fixture.redundancy("old").exists() && fixture.redundancy("deleted").exists());
    vault
        .changelog
        .record(&[Change::rename("old", "new", when()), Change::delete("deleted", when())])
        .unwrap();
    let done = work();
    assert_eq!((done.removed, done.stripes.0), (1, 0), "nothing is made anew: {done:?}");
    assert!(!fixture.redundancy("old").exists() && !fixture.redundancy("deleted").exists());
    assert!(fixture.redundancy("new").exists());
    assert_eq!(vault.changelog.pending().unwrap().entries(), 0);
    fixture.assert_clean();
    // A manual run has scanned everything and does not wait.
    fixture.write("gone", &TestRng(80).bytes(30_000));
    fixture.protect_all();
    std::fs::remove_file(fixture.path("gone")).unwrap();
    vault.changelog.record(&[Change::modify_whole("gone", when())]).unwrap();
    assert_eq!(work().removed, 0);
    let report = fixture.protect_all();
    assert_eq!((report.pending, report.done.removed), (0, 1), "{report:?}");
    // For unrecorded deletions a scan is needed.
    let gone = "never heard of again";
    std::fs::remove_file(fixture.path(gone)).unwrap();
    vault.changelog.record(&[Change::modify_whole(gone, when())]).unwrap();
    let scans: Vec<Vec<u8>> = (0..20).flat_map(|_| work().for_scan).collect();
    assert_eq!(scans, [gone.as_bytes()]);
    assert!(fixture.redundancy(gone).exists());
    assert_eq!(vault.changelog.pending().unwrap().entries(), 0);
}
