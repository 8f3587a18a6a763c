//! Files that are renamed again while a worker processes their first rename: redundancy follows, and none is left under
//! intermediate names.

use super::fixture::{Fixture, QUIET, TestRng, live_worker};
use super::sharing::{Moment, Stalled};
use gabion_vault::changelog::{Change, Changelog, When};
use gabion_vault::repair;
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::worker::{Done, Scanned};
use gabion_vault::world::{Clock, SECOND};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files that are renamed together: the first is encoded, the second is the subject of the test.
const FILES: [&str; 2] = ["first", "second"];

/// Reason why the worker does not complete the second file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The first file takes so long that the second is given back.
    GivenBack,
    /// The worker is stopped.
    Stopped,
    /// The file is renamed again while the worker reads the first file.
    Overtaken,
}

/// Renames a file and records it.
fn rename(fixture: (&Path, &dyn Changelog, &Clock), name: &str, from: &str, to: &str) {
    let (root, changelog, clock) = fixture;
    let (from, to) = (format!("{from}/{name}"), format!("{to}/{name}"));
    std::fs::create_dir_all(root.join(&to).parent().unwrap()).unwrap();
    std::fs::rename(root.join(&from), root.join(&to)).unwrap();
    changelog.record(&[Change::rename(from, to, When::now(clock.now(), 0))]).unwrap();
}

fn work(
    fixture: &Fixture,
    changelog: &dyn Changelog,
    scanned: &Scanned,
    stopped: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(Progress) + Sync),
) -> Done {
    let vault = &fixture.vault;
    let mut worker = live_worker(vault, scanned);
    worker.vault.changelog = changelog;
    worker.run = RunContext { progress, stopped, ..worker.run };
    worker.drain(None).unwrap()
}

/// Regression: a worker moved redundancy of a batch of renamed files and then ran out of its time, or was stopped,
/// before completing them. Redundancy of a file that was renamed again stayed under the second name, since the next
/// entry names the first. The file was encoded again, losing a column that only redundancy still had.
#[test]
fn redundancy_follows_a_file_that_is_renamed_again_before_the_first_rename_is_done() {
    for end in [End::GivenBack, End::Stopped, End::Overtaken] {
        let fixture = Fixture::new("4+2");
        FILES.iter().for_each(|name| fixture.write(&format!("a/{name}"), &TestRng(7).bytes(30_000)));
        fixture.protect_all();
        let (root, clock, log) = (fixture.root(), fixture.clock.clone(), &*fixture.vault.changelog);
        let parts: (&Path, &dyn Changelog, &Clock) = (&root, log, &clock);
        FILES.iter().for_each(|name| rename(parts, name, "a", "b"));
        clock.set(clock.now() + 10 * SECOND);
        let (calls, none) = (AtomicUsize::new(0), Scanned::default());
        // Called when the first file is done.
        let progress = |progress: Progress| {
            if matches!(progress, Progress::Done(1, _)) && calls.fetch_add(1, Ordering::Relaxed) == 0 {
                match end {
                    End::GivenBack => clock.set(clock.now() + 5 * SECOND),
                    End::Stopped => {}
                    End::Overtaken => rename(parts, "second", "b", "c"),
                }
            }
        };
        let asked = || calls.load(Ordering::Relaxed) > 0;
        match end {
            // One batch only: entries that are given back would be claimed again.
            End::GivenBack | End::Stopped => drop(work(&fixture, log, &none, &asked, &progress)),
            End::Overtaken => drop(work(&fixture, log, &none, &|| false, &progress)),
        }
        if end != End::Overtaken {
            rename(parts, "second", "b", "c");
        }
        clock.set(clock.now() + 60 * SECOND);
        let done = work(&fixture, log, &none, &|| false, &|_| {});
        assert_eq!(log.pending().unwrap().entries(), 0, "{end:?}: {done:?}");
        assert_eq!((done.stripes.0, done.failures), (0, 0), "{end:?}: nothing is encoded anew: {done:?}");
        let has = |name: &str| fixture.redundancy(name).exists();
        let found = ["a/first", "a/second", "b/first", "b/second", "c/second"].map(has);
        assert_eq!(found, [false, false, true, false, true], "{end:?}");
        assert!(fixture.protect_all().seen.changes.is_empty(), "{end:?}");
        fixture.assert_clean();
    }
}

/// Regression: a renamed file was protected and recorded under its new name, and its directory was deleted just before
/// the worker completed. The redundancy returned to the first name while the catalogue kept the second, so the scan
/// that found the file deleted removed nothing.
#[test]
fn redundancy_of_a_renamed_file_goes_with_the_directory_that_is_deleted() {
    let fixture = Fixture::new("4+2");
    fixture.write("a/file", &TestRng(7).bytes(30_000));
    fixture.write("stays", &TestRng(8).bytes(30_000));
    fixture.protect_all();
    let (root, clock, log) = (fixture.root(), fixture.clock.clone(), &*fixture.vault.changelog);
    rename((&root, log, &clock), "file", "a", "b");
    clock.set(clock.now() + 10 * SECOND);
    let meanwhile = {
        let (root, clock) = (root.clone(), clock.clone());
        move || {
            let when = || When::now(clock.now(), 0);
            ["a", "b"].iter().for_each(|name| std::fs::remove_dir_all(root.join(name)).unwrap());
            // Events of deleted directories, without those of their content.
            let changes = ["b", "a"].map(|name| [Change::delete(name, when()), Change::gap(name, when())]);
            log.record(changes.as_flattened()).unwrap();
        }
    };
    let meanwhile = Mutex::new(Some(Box::new(meanwhile) as Box<_>));
    let stalled = Stalled { inner: log, at: Moment::Completing, meanwhile };
    let done = work(&fixture, &stalled, &Scanned::default(), &|| false, &|_| {});
    assert_eq!(done.failures, 0, "{done:?}");
    assert!(stalled.meanwhile.lock().unwrap().is_none(), "the directory was deleted");
    clock.set(clock.now() + 60 * SECOND);
    fixture.protect_all();
    let found = ["a/file", "b/file", "stays"].map(|name| fixture.redundancy(name).exists());
    assert_eq!(found, [false, false, true]);
    assert_eq!(fixture.vault.catalogue.count().unwrap(), 1);
    fixture.assert_clean();
}

/// Regression: a recorded deletion becomes part of a gap, and the scan for the gap compares catalogue and tree.
/// Redundancy that a worker was moving at that time was in neither and stayed for ever. It is now removed with the gap;
/// redundancy of files that wait for an approval stays.
#[test]
fn unknown_redundancy_is_removed_when_a_gap_is_closed() {
    for gap in ["", "part"] {
        let fixture = Fixture::new("4+2");
        ["part/here", "part/vanished"].iter().for_each(|name| fixture.write(name, &TestRng(7).bytes(30_000)));
        fixture.protect_all();
        let log = &*fixture.vault.changelog;
        std::fs::create_dir(fixture.redundancy("part/deep")).unwrap();
        for name in ["part/stray", "part/deep/stray"] {
            std::fs::copy(fixture.redundancy("part/here"), fixture.redundancy(name)).unwrap();
        }
        // Neither an event nor a scan has reported its deletion yet.
        std::fs::remove_file(fixture.path("part/vanished")).unwrap();
        log.record(&[Change::gap(gap, When::now(fixture.clock.now(), 0))]).unwrap();
        fixture.clock.set(fixture.clock.now() + 10 * SECOND);
        let scanned = Scanned::whole(log.sequence().unwrap());
        let done = work(&fixture, log, &scanned, &|| false, &|_| {});
        assert_eq!((done.removed, done.failures), (2, 0), "{done:?}");
        let found = ["part/here", "part/vanished", "part/stray", "part/deep"];
        let found = found.map(|name| fixture.redundancy(name).exists());
        assert_eq!(found, [true, true, false, false], "gap {gap:?}");
        assert_eq!(log.pending().unwrap().entries(), 0);
    }
}

/// Regression: `protect` was killed after moving the redundancy of a renamed file and before updating the catalogue.
/// `scrub` and `repair` found nothing under the old name and reported the complete file as lost, exit code 3.
#[test]
fn a_renamed_file_is_not_lost_when_protect_was_killed_after_moving_its_redundancy() {
    let fixture = Fixture::new("4+2");
    fixture.write("old", &TestRng(1).bytes(50_000));
    fixture.protect_all();
    std::fs::rename(fixture.path("old"), fixture.path("new")).unwrap();
    std::fs::rename(fixture.redundancy("old"), fixture.redundancy("new")).unwrap();
    let scrubbed = fixture.scrub();
    assert!(scrubbed.gone == 1 && scrubbed.damage.is_empty(), "{scrubbed:?}");
    let plan = repair::plan(&fixture.vault, b"", repair::Options::default(), QUIET).unwrap();
    assert!(plan.files.is_empty() && plan.failed.is_empty(), "{plan:?}");
    fixture.protect_all();
    fixture.assert_clean();
    assert!(fixture.vault.catalogue.find(b"old").unwrap().is_none());
}
