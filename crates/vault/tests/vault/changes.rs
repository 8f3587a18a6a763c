//! What changes, and how little is done about it.

use super::playground::{Playground, QUIET, Seed};
use gabion_vault::catalogue::Class;
use gabion_vault::changelog::{Change, When};
use gabion_vault::guard;
use gabion_vault::protect::{self, Approval};
use gabion_vault::worker::{self, Scanned, Worker};
use gabion_vault::world::SECOND;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn only_what_changed_is_encoded_again() {
    let ground = Playground::new("4+2");
    ground.write("stays", b"");
    ground.protect_all();
    // Redundancy over 1 MiB is updated in place; below, it is made anew with the frames that stay.
    for size in [200_000, 5_000_000] {
        let mut content = Seed(1).bytes(size);
        ground.write("file", &content);
        let first = ground.protect_all().done;
        assert_eq!((first.encoded, first.stripes.1), (1, 0));
        let inode =
            || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(ground.redundancy("file")).unwrap());
        let before = inode();
        content[size / 2] ^= 1;
        ground.write("file", &content);
        let second = ground.protect_all().done;
        assert_eq!(second.stripes, (1, first.stripes.0 - 1));
        assert_eq!(inode() == before, size > 4_000_000, "in place or not");
        ground.assert_clean();
        assert!(ground.protect_all().seen.changes.is_empty());
        std::fs::remove_file(ground.path("file")).unwrap();
        ground.protect_all();
    }
}

#[test]
fn a_file_that_grows_keeps_its_full_segments() {
    let policy = "[default]\ncode = \"2+1\"\nblock = \"8MiB\"\n";
    let ground = Playground::with_policy(policy);
    // Segments have 2 columns of 2 blocks: 32 MiB.
    let content = Seed(1).bytes(70 << 20);
    ground.write("log", &content[..66 << 20]);
    ground.protect_all();
    ground.write("log", &content);
    let done = ground.protect_all().done;
    assert_eq!(done.stripes, (1, 4), "two full segments of two rows stay");
    ground.assert_clean();
    ground.write("log", &content[..40 << 20]);
    assert_eq!(ground.protect_all().done.stripes, (1, 2));
    ground.assert_clean();
}

#[test]
fn classes_are_told_apart() {
    let ground = Playground::new("4+2");
    for name in ["stays", "changes", "moves", "goes", "touched", "restored", "copied from", "dir/a", "dir/b"]
    {
        ground.write(name, name.as_bytes());
    }
    let report = ground.protect_all();
    assert_eq!(report.seen.changes.of(Class::Added).0, 9);
    ground.write("changes", b"something else");
    std::fs::rename(ground.path("moves"), ground.path("moved")).unwrap();
    std::fs::rename(ground.path("dir"), ground.path("directory")).unwrap();
    std::fs::remove_file(ground.path("goes")).unwrap();
    std::fs::set_permissions(ground.path("touched"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let keep_time = |from: &str, to: &str| {
        let time = std::fs::metadata(ground.path(from)).unwrap().modified().unwrap();
        ground.write(to, &ground.read(from));
        std::fs::File::options().write(true).open(ground.path(to)).unwrap().set_modified(time).unwrap();
    };
    keep_time("restored", "restored.new");
    std::fs::rename(ground.path("restored.new"), ground.path("restored")).unwrap();
    keep_time("copied from", "copied to");
    ground.write("new", b"new");
    let report = ground.protect_all();
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
    // What was moved was not read; what was touched or restored was, and nothing of it encoded.
    assert_eq!((report.done.adopted, report.done.encoded), (0, 5));
    ground.assert_clean();
    assert!(ground.protect_all().seen.changes.is_empty());
    assert!(!ground.redundancy("dir").exists() && !ground.redundancy("goes").exists());
}

#[test]
fn files_and_directories_take_each_others_names() {
    let ground = Playground::new("4+2");
    ground.write("a", b"a file");
    ground.write("b/inner", b"a file in a directory");
    ground.protect_all();
    std::fs::remove_file(ground.path("a")).unwrap();
    std::fs::remove_dir_all(ground.path("b")).unwrap();
    ground.write("a/inner", b"a directory now");
    ground.write("b", b"a file now");
    ground.protect_all();
    ground.assert_clean();
    assert_eq!(ground.vault.catalogue.count().unwrap(), 2);
}

#[test]
fn files_that_swap_names_keep_the_right_redundancy() {
    let ground = Playground::new("4+2");
    ground.write("a", &Seed(1).bytes(30_000));
    ground.write("b", &Seed(2).bytes(30_000));
    ground.protect_all();
    std::fs::rename(ground.path("a"), ground.path("t")).unwrap();
    std::fs::rename(ground.path("b"), ground.path("a")).unwrap();
    std::fs::rename(ground.path("t"), ground.path("b")).unwrap();
    ground.protect_all();
    ground.assert_clean();
    assert!(ground.protect_all().seen.changes.is_empty());
}

#[test]
fn another_policy_makes_other_redundancy() {
    let mut ground = Playground::new("4+2");
    ground.write("a", &Seed(1).bytes(30_000));
    ground.protect_all();
    ground.vault.set_policy("[default]\ncode = \"4+3\"\nblock = \"4KiB\"\n").unwrap();
    let report = ground.protect_all();
    assert_eq!(report.seen.changes.of(Class::Recoded).0, 1);
    assert_eq!(ground.vault.catalogue.find(b"a").unwrap().unwrap().columns, 3);
    ground.assert_clean();
    ground.vault.set_policy("[[rule]]\npaths = [\"a\"]\nprotect = false\n").unwrap();
    assert_eq!(ground.protect_all().done.removed, 1);
    assert!(!ground.redundancy("a").exists());
}

#[test]
fn mass_changes_wait_for_an_approval_of_exactly_these() {
    let ground = Playground::with_policy("[guard]\nat_least = 5\n");
    for number in 0..20 {
        ground.write(&format!("file {number}"), &Seed(number).bytes(100));
    }
    ground.protect_all();
    for number in 0..10 {
        std::fs::remove_file(ground.path(&format!("file {number}"))).unwrap();
    }
    ground.write("new", b"new");
    let held = ground.protect().held.unwrap();
    assert_eq!((held.removed, held.known), (10, 20));
    // What is new is protected all the same, and what vanished keeps its redundancy.
    assert!(ground.redundancy("new").exists() && ground.redundancy("file 3").exists());
    // One more, and it is another change-set.
    guard::approve(&ground.vault.repository, &held.digest).unwrap();
    std::fs::remove_file(ground.path("file 11")).unwrap();
    let again = ground.protect().held.unwrap();
    assert_ne!(again.digest, held.digest);
    guard::approve(&ground.vault.repository, &again.digest).unwrap();
    assert_eq!(ground.protect_all().done.removed, 11);
    assert!(!ground.redundancy("file 3").exists());
}

/// Whoever writes over a file between a look at the change-set and its approval, with as many bytes and the old time, would have had
/// that approved as well.
#[test]
fn other_content_of_the_same_size_and_time_is_another_change_set() {
    let ground = Playground::with_policy("[guard]\nat_least = 5\n");
    let write = |seed: u64, bytes: usize| {
        (0..20).for_each(|number| ground.write(&format!("file {number}"), &Seed(seed + number).bytes(bytes)));
    };
    write(0, 100);
    ground.protect_all();
    write(100, 101);
    let held = ground.protect().held.unwrap();
    assert_eq!(ground.protect().held.unwrap().digest, held.digest, "nobody wrote meanwhile");
    guard::approve(&ground.vault.repository, &held.digest).unwrap();
    let path = ground.path("file 3");
    let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
    let ctime = || std::fs::metadata(&path).map(|it| (it.ctime(), it.ctime_nsec())).unwrap();
    let before = ctime();
    // Clocks of file systems may be coarse.
    while ctime() == before {
        std::fs::write(&path, Seed(900).bytes(101)).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
    }
    let again = ground.protect().held.unwrap();
    assert_ne!(again.digest, held.digest);
    guard::approve(&ground.vault.repository, &again.digest).unwrap();
    assert_eq!(ground.protect_all().done.encoded, 20);
}

/// A log that is written without a pause made every look another change-set, and none of them could be approved in time.
#[test]
fn what_is_written_without_a_pause_can_be_approved_and_nothing_else_with_it() {
    let ground = Playground::with_policy("[guard]\nat_least = 5\n");
    let write = |seed: u64| {
        (0..20).for_each(|number| ground.write(&format!("file {number}"), &Seed(seed + number).bytes(100)));
    };
    write(0);
    ground.write("log", b"line");
    ground.protect_all();
    write(100);
    let lines = std::cell::Cell::new(1);
    // Longer each time, so another one whatever clocks say.
    let log = || {
        lines.set(lines.get() + 1);
        ground.write("log", &b"line".repeat(lines.get()));
    };
    log();
    let first = ground.protect().held.unwrap();
    log();
    let second = ground.protect().held.unwrap();
    assert_ne!(first.digest, second.digest, "from one look to the next it was another one");
    log();
    let dry = protect::approval(&ground.vault, &second.digest, true, QUIET).unwrap();
    assert!(matches!(dry, Approval::Held(_)), "{dry:?}");
    let found = protect::approval(&ground.vault, &second.digest, false, QUIET).unwrap();
    assert!(matches!(&found, Approval::Held(held) if *held == second), "{found:?}");
    guard::approve(&ground.vault.repository, &second.digest).unwrap();
    // What rested is still what was approved and nothing else.
    ground.write("file 7", b"somebody wrote this after the approval");
    log();
    let third = ground.protect().held.unwrap();
    assert_ne!(third.digest, second.digest);
    guard::approve(&ground.vault.repository, &third.digest).unwrap();
    log();
    assert_eq!(ground.protect_all().done.encoded, 21);
    assert!(!guard::is_any_approved(&ground.vault.repository));
    // The next change-set begins anew: nothing is restless.
    write(200);
    log();
    let [one, other] = [(); 2].map(|()| ground.protect().held.unwrap().digest);
    assert_eq!(one, other);
}

/// Where very many files are others at each look somebody is at work, and no approval may leave open what they will be.
#[test]
fn many_files_that_do_not_rest_are_never_excused() {
    let ground = Playground::with_policy("[guard]\nat_least = 5\n");
    let write = |bytes: usize| {
        (0..20).for_each(|number| ground.write(&format!("file {number}"), &Seed(number).bytes(bytes)));
    };
    write(100);
    ground.protect_all();
    let mut digests = std::collections::BTreeSet::new();
    for bytes in 101..105 {
        write(bytes);
        let held = ground.protect().held.unwrap();
        guard::approve(&ground.vault.repository, &held.digest).unwrap();
        digests.insert(held.digest.to_string());
    }
    write(105);
    assert!(ground.protect().held.is_some());
    assert_eq!(digests.len(), 4);
}

/// Twenty protected files, and a guard that counts over an hour.
fn guarded_for(window: &str) -> Playground {
    let ground = Playground::with_policy(&format!("[guard]\nat_least = 5\nwindow = \"{window}\"\n"));
    for number in 0..20 {
        ground.write(&format!("file {number}"), &Seed(number).bytes(100));
    }
    ground.protect_all();
    ground
}

/// Someone rewrites one file a minute. Each run sees one change, which is harmless by itself.
#[test]
fn a_slow_mass_change_waits_for_an_approval() {
    let ground = guarded_for("1h");
    let change = |number: u64, minute: i64| {
        ground.clock.set((1_800_000_000 + 60 * minute) * SECOND);
        ground.write(&format!("file {number}"), &Seed(100 + number).bytes(101));
    };
    for number in 0..10 {
        change(number, number as i64);
        ground.protect_all();
    }
    // The same file once more is not one more file.
    change(9, 10);
    ground.protect_all();
    change(10, 11);
    let before = std::fs::read(ground.redundancy("file 10")).unwrap();
    let held = ground.protect().held.unwrap();
    assert_eq!((held.changed, held.before.changed, held.known), (1, 10, 20));
    assert_eq!(std::fs::read(ground.redundancy("file 10")).unwrap(), before);
    // An approval is for all of that.
    guard::approve(&ground.vault.repository, &held.digest).unwrap();
    assert_eq!(ground.protect_all().done.encoded, 1);
    change(11, 12);
    ground.protect_all();
    // Deletions have a bound of their own: more than a quarter.
    for number in 0..5 {
        std::fs::remove_file(ground.path(&format!("file {number}"))).unwrap();
        ground.protect_all();
    }
    std::fs::remove_file(ground.path("file 5")).unwrap();
    let held = ground.protect().held.unwrap();
    assert_eq!((held.removed, held.before.removed, held.known), (1, 5, 20));
}

#[test]
fn changes_that_lie_further_apart_than_the_window_do_not_count_together() {
    for (window, minutes) in [("1h", 7), ("0s", 0)] {
        let ground = guarded_for(window);
        for number in 0..20 {
            ground.clock.set((1_800_000_000 + 60 * minutes * number as i64) * SECOND);
            ground.write(&format!("file {number}"), &Seed(100 + number).bytes(101));
            ground.protect_all();
        }
        ground.assert_clean();
    }
}

#[test]
fn write_once_files_keep_their_redundancy() {
    let ground = Playground::with_policy("[default]\nwrite_once = true\ncode = \"4+2\"\n");
    ground.write("a", b"as it was written");
    ground.protect_all();
    ground.write("a", b"changed");
    let report = ground.protect_all();
    assert_eq!(report.seen.write_once, [b"a".to_vec()]);
    assert_eq!(report.done.encoded, 0);
    assert!(ground.scrub().trouble[0].changed);
}

#[test]
fn the_catalogue_is_only_a_cache() {
    let ground = Playground::new("4+2");
    for number in 0..50 {
        ground.write(&format!("d{}/file {number}", number % 3), &Seed(number).bytes(1000 * number as usize));
    }
    ground.protect_all();
    let all = |ground: &Playground| {
        let mut found = Vec::new();
        ground
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
    let before = all(&ground);
    assert_eq!(before.len(), 50);
    ground.vault.catalogue.clear().unwrap();
    let rebuilt = super::playground::rebuild_catalogue(&ground.vault);
    assert_eq!((rebuilt.files, rebuilt.unusable.len()), (50, 0));
    assert_eq!(all(&ground), before);
    assert!(ground.protect_all().seen.changes.is_empty());
    // Even without a rebuild, what is there is taken over and not computed again.
    ground.vault.catalogue.clear().unwrap();
    let done = ground.protect_all().done;
    assert_eq!((done.adopted, done.encoded), (50, 0));
    assert_eq!(all(&ground), before);
}

#[test]
fn a_gap_stays_due_until_someone_scans() {
    use gabion_vault::changelog::{Change, When};
    let ground = Playground::new("4+2");
    ground.write("dir/a", &Seed(1).bytes(30_000));
    ground.protect_all();
    // A monitor lost events; before, it saw a directory move.
    std::fs::rename(ground.path("dir"), ground.path("moved")).unwrap();
    ground.write("moved/b", b"nobody saw this");
    let when = When::now(ground.clock.now(), 0);
    ground
        .vault
        .changelog
        .record(&[Change::rename("dir", "moved", when), Change::gap("moved", when)])
        .unwrap();
    gabion_vault::protect::work(&ground.vault, super::playground::QUIET).unwrap();
    assert!(ground.vault.changelog.pending().unwrap().entries() > 0);
    assert!(ground.redundancy("dir/a").exists(), "redundancy of a moved file was thrown away");
    let report = ground.protect_all();
    assert_eq!((report.done.moved, report.done.encoded), (1, 1));
    ground.clock.set(ground.clock.now() + 3600 * gabion_vault::world::SECOND);
    ground.protect_all();
    assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 0);
    ground.assert_clean();
}

/// The name that a file had was given to a new one, which was seen to first: the move forgot it.
#[test]
fn a_new_file_at_the_old_name_of_a_moved_one_stays_known() {
    use gabion_vault::changelog::{Change, When};
    let ground = Playground::new("4+2");
    ground.write("a", &Seed(1).bytes(30_000));
    ground.protect_all();
    std::fs::rename(ground.path("a"), ground.path("b")).unwrap();
    ground.write("a", &Seed(2).bytes(20_000));
    let when = |priority| When::now(ground.clock.now(), priority);
    ground
        .vault
        .changelog
        .record(&[Change::rename("a", "b", when(0)), Change::modify_whole("a", when(200))])
        .unwrap();
    gabion_vault::protect::work(&ground.vault, super::playground::QUIET).unwrap();
    for name in ["a", "b"] {
        assert!(ground.vault.catalogue.find(name.as_bytes()).unwrap().is_some(), "{name}");
    }
    assert!(ground.protect_all().seen.changes.is_empty());
    ground.assert_clean();
}

/// Puts another file of the same size and time in the place of one.
fn replace(ground: &Playground, name: &str, bytes: &[u8]) {
    let path = ground.path(name);
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    ground.write("temporary", bytes);
    let file = std::fs::File::options().write(true).open(ground.path("temporary")).unwrap();
    file.set_modified(time).unwrap();
    std::fs::rename(ground.path("temporary"), path).unwrap();
}

/// Whoever encrypts a tree file by file, and gives all of them their sizes and times, passed the guards; by rights so does whoever
/// brings all of them back from a copy.
#[test]
fn other_content_of_the_same_size_and_time_does_not_pass_the_guards() {
    let ground = Playground::new("4+2");
    let names: Vec<String> = (0..200).map(|number| format!("{number:03}")).collect();
    let content = |number: usize| Seed(number as u64 + 1).bytes(3000);
    for (number, name) in names.iter().enumerate() {
        ground.write(name, &content(number));
        // A freed inode is used again: with one time for all, a new file would look like another one that was renamed.
        let file = std::fs::File::options().write(true).open(ground.path(name)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000 + number as u64);
        file.set_modified(time).unwrap();
    }
    ground.protect_all();
    names.iter().enumerate().for_each(|(number, name)| replace(&ground, name, &content(number)));
    let report = ground.protect_all();
    assert_eq!(report.seen.changes.of(Class::Restored).0, 200);
    assert_eq!(report.done.stripes.0, 0);
    let redundancy = || -> Vec<Vec<u8>> {
        names.iter().map(|name| std::fs::read(ground.redundancy(name)).unwrap()).collect()
    };
    let before = redundancy();
    names.iter().enumerate().for_each(|(number, name)| replace(&ground, name, &content(number + 1000)));
    let report = ground.protect();
    let held = report.held.expect("held");
    assert_eq!((held.changed, held.removed, held.known), (200, 0, 200));
    assert_eq!(report.seen.changes.of(Class::Changed).0, 200);
    assert!(redundancy() == before, "what can bring them back must stay");
    guard::approve(&ground.vault.repository, &held.digest).unwrap();
    assert_eq!(ground.protect_all().done.encoded, 200);
    // One after the other, under the bounds of the guard, they are damaged.
    let before = redundancy();
    for (number, name) in names.iter().enumerate() {
        replace(&ground, name, &content(number + 2000));
        if number % 10 == 9 {
            let report = ground.protect();
            assert!(report.held.is_some() || report.done.damaged.len() == 10, "slowly is as bad as at once");
        }
    }
    let records = |files: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        let header = |file: &[u8]| u32::from_le_bytes(file[12..16].try_into().unwrap()) as usize;
        files.into_iter().map(|file| file[header(&file)..file.len() - header(&file)].to_vec()).collect()
    };
    assert!(records(redundancy()) == records(before), "what can bring them back must stay");
}

/// A file system that is not mounted is an empty directory. Redundancy elsewhere, of fewer files than guards ask for, went with it.
#[test]
fn an_empty_tree_is_held_however_few_files_there_were() {
    let ground = Playground::new("4+2");
    ["one", "a/two", "a/b/three"].iter().for_each(|name| ground.write(name, name.as_bytes()));
    ground.protect_all();
    let away = ground.dir.path().join("away");
    std::fs::create_dir(&away).unwrap();
    for name in ["one", "a"] {
        std::fs::rename(ground.path(name), away.join(name)).unwrap();
    }
    let held = ground.protect().held.expect("held");
    assert_eq!((held.removed, held.known), (3, 3));
    assert!(ground.redundancy("a/b/three").exists());
    // It is back: nothing was lost, and nothing has to be done.
    for name in ["one", "a"] {
        std::fs::rename(away.join(name), ground.path(name)).unwrap();
    }
    let report = ground.protect_all();
    assert_eq!((report.done.stripes.0, report.done.removed, report.affected.len()), (0, 0, 0));
    ground.assert_clean();
    // Whatever is left, it is no such accident.
    std::fs::remove_dir_all(ground.path("a")).unwrap();
    assert_eq!(ground.protect_all().done.removed, 2);
    // What is meant can be approved.
    std::fs::remove_file(ground.path("one")).unwrap();
    let held = ground.protect().held.expect("held");
    guard::approve(&ground.vault.repository, &held.digest).unwrap();
    assert_eq!(ground.protect_all().done.removed, 1);
    assert_eq!(ground.vault.catalogue.count().unwrap(), 0);
    assert!(ground.protect_all().seen.changes.is_empty());
}

/// A worker came to the old name of a file that had just been moved, before that was recorded: it took the file for deleted and removed its
/// redundancy, which was all that was left of a lost column.
#[test]
fn redundancy_stays_until_it_is_known_what_became_of_a_file() {
    let ground = Playground::new("4+2");
    ground.write("old", &Seed(77).bytes(30_000));
    ground.write("deleted", &Seed(78).bytes(30_000));
    ground.write("never heard of again", &Seed(79).bytes(30_000));
    ground.protect_all();
    let vault = &ground.vault;
    let work = || {
        ground.clock.set(ground.clock.now() + 10 * SECOND);
        let worker = Worker {
            storage: &*vault.storage,
            coders: &vault.coders,
            clock: &vault.clock,
            policy: &vault.policy,
            changelog: &*vault.changelog,
            threads: 1,
            scanned: &Scanned::default(),
            hold: false,
            retry: SECOND,
            links: true,
            approved: false,
            name: worker::name(1),
            progress: &|_, _| {},
            stopped: &|| false,
        };
        worker.drain(Some(&vault.catalogue), None).unwrap()
    };
    let when = || When::now(ground.clock.now(), 0);
    std::fs::rename(ground.path("old"), ground.path("new")).unwrap();
    std::fs::remove_file(ground.path("deleted")).unwrap();
    let seen = ["old", "deleted", "never seen"].map(|name| Change::modify_whole(name, when()));
    vault.changelog.record(&seen).unwrap();
    for _ in 0..5 {
        let done = work();
        assert_eq!((done.removed, done.failures, done.for_scan.len()), (0, 0, 0), "{done:?}");
    }
    assert!(ground.redundancy("old").exists() && ground.redundancy("deleted").exists());
    vault
        .changelog
        .record(&[Change::rename("old", "new", when()), Change::delete("deleted", when())])
        .unwrap();
    let done = work();
    assert_eq!((done.removed, done.stripes.0), (1, 0), "nothing is made anew: {done:?}");
    assert!(!ground.redundancy("old").exists() && !ground.redundancy("deleted").exists());
    assert!(ground.redundancy("new").exists());
    assert_eq!(vault.changelog.pending().unwrap().entries(), 0);
    ground.assert_clean();
    // Who protects by hand has looked everywhere, and waits for nobody.
    ground.write("gone", &Seed(80).bytes(30_000));
    ground.protect_all();
    std::fs::remove_file(ground.path("gone")).unwrap();
    vault.changelog.record(&[Change::modify_whole("gone", when())]).unwrap();
    assert_eq!(work().removed, 0);
    let report = ground.protect_all();
    assert_eq!((report.pending, report.done.removed), (0, 1), "{report:?}");
    // Of what nobody says anything a scan has to tell.
    let gone = "never heard of again";
    std::fs::remove_file(ground.path(gone)).unwrap();
    vault.changelog.record(&[Change::modify_whole(gone, when())]).unwrap();
    let scans: Vec<Vec<u8>> = (0..20).flat_map(|_| work().for_scan).collect();
    assert_eq!(scans, [gone.as_bytes()]);
    assert!(ground.redundancy(gone).exists());
    assert_eq!(vault.changelog.pending().unwrap().entries(), 0);
}
