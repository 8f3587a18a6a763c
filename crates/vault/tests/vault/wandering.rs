//! Files that are renamed again while a worker is at their first rename: their redundancy goes with them, and none is left at names in between.

use super::playground::{Playground, QUIET, Seed};
use super::sharing::{Moment, Stalled};
use gabion_vault::changelog::{Change, Changelog, When};
use gabion_vault::repair;
use gabion_vault::worker::{self, Done, Scanned, Worker};
use gabion_vault::world::{Clock, SECOND};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files that are renamed at once: the first is encoded, the second is what the test looks at.
const FILES: [&str; 2] = ["first", "second"];

/// How a worker comes not to complete the rename of the second file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The first file takes so long that the second is left to another worker.
    GivenBack,
    /// The worker is told to stop.
    Stopped,
    /// The file gets its third name while the worker reads the first file.
    Overtaken,
}

/// Records a rename and makes it.
fn rename(ground: (&Path, &dyn Changelog, &Clock), name: &str, from: &str, to: &str) {
    let (root, changelog, clock) = ground;
    let (from, to) = (format!("{from}/{name}"), format!("{to}/{name}"));
    std::fs::create_dir_all(root.join(&to).parent().unwrap()).unwrap();
    std::fs::rename(root.join(&from), root.join(&to)).unwrap();
    changelog.record(&[Change::rename(from, to, When::now(clock.now(), 0))]).unwrap();
}

fn work(
    ground: &Playground,
    changelog: &dyn Changelog,
    scanned: &Scanned,
    stopped: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Done {
    let vault = &ground.vault;
    let worker = Worker {
        storage: &*vault.storage,
        coders: &vault.coders,
        clock: &vault.clock,
        policy: &vault.policy,
        changelog,
        threads: 1,
        scanned,
        hold: false,
        retry: SECOND,
        links: true,
        approved: false,
        name: worker::name(1),
        progress,
        stopped,
    };
    worker.drain(Some(&vault.catalogue), None).unwrap()
}

/// A worker moved the redundancy of a batch of renamed files and then ran out of its time, or was stopped, before it completed them. A file of those that
/// was renamed once more left its redundancy at the second name for ever: its next entry says that it came from the first. The file was
/// encoded anew, which loses a column that only redundancy still had.
#[test]
fn redundancy_follows_a_file_that_is_renamed_again_before_the_first_rename_is_done() {
    for end in [End::GivenBack, End::Stopped, End::Overtaken] {
        let ground = Playground::new("4+2");
        FILES.iter().for_each(|name| ground.write(&format!("a/{name}"), &Seed(7).bytes(30_000)));
        ground.protect_all();
        let (root, clock, log) = (ground.root(), ground.clock.clone(), &*ground.vault.changelog);
        let parts: (&Path, &dyn Changelog, &Clock) = (&root, log, &clock);
        FILES.iter().for_each(|name| rename(parts, name, "a", "b"));
        clock.set(clock.now() + 10 * SECOND);
        let (calls, none) = (AtomicUsize::new(0), Scanned::default());
        // The first call comes when the first file is done.
        let progress = |files: u64, _: u64| {
            if files == 1 && calls.fetch_add(1, Ordering::Relaxed) == 0 {
                match end {
                    End::GivenBack => clock.set(clock.now() + 5 * SECOND),
                    End::Stopped => {}
                    End::Overtaken => rename(parts, "second", "b", "c"),
                }
            }
        };
        let asked = || calls.load(Ordering::Relaxed) > 0;
        match end {
            // One batch: what was given back would be taken up at once.
            End::GivenBack | End::Stopped => drop(work(&ground, log, &none, &asked, &progress)),
            End::Overtaken => drop(work(&ground, log, &none, &|| false, &progress)),
        }
        if end != End::Overtaken {
            rename(parts, "second", "b", "c");
        }
        clock.set(clock.now() + 60 * SECOND);
        let done = work(&ground, log, &none, &|| false, &|_, _| {});
        assert_eq!(log.pending().unwrap().entries(), 0, "{end:?}: {done:?}");
        assert_eq!((done.stripes.0, done.failures), (0, 0), "{end:?}: nothing is encoded anew: {done:?}");
        let has = |name: &str| ground.redundancy(name).exists();
        let found = ["a/first", "a/second", "b/first", "b/second", "c/second"].map(has);
        assert_eq!(found, [false, false, true, false, true], "{end:?}");
        assert!(ground.protect_all().seen.changes.is_empty(), "{end:?}");
        ground.assert_clean();
    }
}

/// A renamed file was protected under its new name and recorded there. Its directory was deleted right before the worker completed: the redundancy went back to
/// the file's first name while the catalogue kept the second one, so the scan that found the file gone removed nothing, and the redundancy stayed for ever.
#[test]
fn redundancy_of_a_renamed_file_goes_with_the_directory_that_is_deleted() {
    let ground = Playground::new("4+2");
    ground.write("a/file", &Seed(7).bytes(30_000));
    ground.write("stays", &Seed(8).bytes(30_000));
    ground.protect_all();
    let (root, clock, log) = (ground.root(), ground.clock.clone(), &*ground.vault.changelog);
    rename((&root, log, &clock), "file", "a", "b");
    clock.set(clock.now() + 10 * SECOND);
    let meanwhile = {
        let (root, clock) = (root.clone(), clock.clone());
        move || {
            let when = || When::now(clock.now(), 0);
            ["a", "b"].iter().for_each(|name| std::fs::remove_dir_all(root.join(name)).unwrap());
            // What is heard of deleted directories, and what could not be heard of within them.
            let changes = ["b", "a"].map(|name| [Change::delete(name, when()), Change::gap(name, when())]);
            log.record(changes.as_flattened()).unwrap();
        }
    };
    let meanwhile = Mutex::new(Some(Box::new(meanwhile) as Box<_>));
    let stalled = Stalled { inner: log, at: Moment::Completing, meanwhile };
    let done = work(&ground, &stalled, &Scanned::default(), &|| false, &|_, _| {});
    assert_eq!(done.failures, 0, "{done:?}");
    assert!(stalled.meanwhile.lock().unwrap().is_none(), "the directory was deleted");
    clock.set(clock.now() + 60 * SECOND);
    ground.protect_all();
    let found = ["a/file", "b/file", "stays"].map(|name| ground.redundancy(name).exists());
    assert_eq!(found, [false, false, true]);
    assert_eq!(ground.vault.catalogue.count().unwrap(), 1);
    ground.assert_clean();
}

/// What was recorded of the end of a file becomes part of a gap, and the scan that closes the gap compares the catalogue with the tree: redundancy that a
/// worker was moving at that time was in neither and stayed for ever. It goes with the gap; that of files that wait for an approval stays.
#[test]
fn redundancy_that_nobody_knows_goes_when_a_gap_is_closed() {
    for gap in ["", "part"] {
        let ground = Playground::new("4+2");
        ["part/here", "part/vanished"].iter().for_each(|name| ground.write(name, &Seed(7).bytes(30_000)));
        ground.protect_all();
        let log = &*ground.vault.changelog;
        std::fs::create_dir(ground.redundancy("part/deep")).unwrap();
        for name in ["part/stray", "part/deep/stray"] {
            std::fs::copy(ground.redundancy("part/here"), ground.redundancy(name)).unwrap();
        }
        // Nobody has heard of its end, and a scan has not found it yet.
        std::fs::remove_file(ground.path("part/vanished")).unwrap();
        log.record(&[Change::gap(gap, When::now(ground.clock.now(), 0))]).unwrap();
        ground.clock.set(ground.clock.now() + 10 * SECOND);
        let scanned = Scanned::whole(log.sequence().unwrap());
        let done = work(&ground, log, &scanned, &|| false, &|_, _| {});
        assert_eq!((done.removed, done.failures), (2, 0), "{done:?}");
        let found = ["part/here", "part/vanished", "part/stray", "part/deep"];
        let found = found.map(|name| ground.redundancy(name).exists());
        assert_eq!(found, [true, true, false, false], "gap {gap:?}");
        assert_eq!(log.pending().unwrap().entries(), 0);
    }
}

/// `protect` was killed when it had moved the redundancy of a renamed file and the catalogue did not know that yet. `scrub` and `repair` found nothing at the
/// old name and called the file lost, exit code 3, although it was whole under its new name.
#[test]
fn a_renamed_file_is_not_lost_when_protect_was_killed_after_moving_its_redundancy() {
    let ground = Playground::new("4+2");
    ground.write("old", &Seed(1).bytes(50_000));
    ground.protect_all();
    std::fs::rename(ground.path("old"), ground.path("new")).unwrap();
    std::fs::rename(ground.redundancy("old"), ground.redundancy("new")).unwrap();
    let scrubbed = ground.scrub();
    assert!(scrubbed.gone == 1 && scrubbed.trouble.is_empty(), "{scrubbed:?}");
    let plan = repair::plan(&ground.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    ground.protect_all();
    ground.assert_clean();
    assert!(ground.vault.catalogue.find(b"old").unwrap().is_none());
}
