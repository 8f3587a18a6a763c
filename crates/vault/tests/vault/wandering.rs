//! Files that are renamed again while a worker is at their first rename: their redundancy goes with them, and none is left at names in between.

use super::playground::{Playground, Seed};
use gabion_vault::changelog::{Change, Changelog, When};
use gabion_vault::worker::{self, Done, Scanned, Worker};
use gabion_vault::world::{Clock, SECOND};
use std::path::Path;
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
    stopped: &(dyn Fn() -> bool + Sync),
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Done {
    let vault = &ground.vault;
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
        progress,
        stopped,
    };
    worker.drain(Some(&vault.catalogue)).unwrap()
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
        let calls = AtomicUsize::new(0);
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
            End::GivenBack | End::Stopped => drop(work(&ground, &asked, &progress)),
            End::Overtaken => drop(work(&ground, &|| false, &progress)),
        }
        if end != End::Overtaken {
            rename(parts, "second", "b", "c");
        }
        clock.set(clock.now() + 60 * SECOND);
        let done = work(&ground, &|| false, &|_, _| {});
        assert_eq!(log.pending().unwrap().entries(), 0, "{end:?}: {done:?}");
        assert_eq!((done.stripes.0, done.failures), (0, 0), "{end:?}: nothing is encoded anew: {done:?}");
        let has = |name: &str| ground.redundancy(name).exists();
        let found = ["a/first", "a/second", "b/first", "b/second", "c/second"].map(has);
        assert_eq!(found, [false, false, true, false, true], "{end:?}");
        assert!(ground.protect_all().seen.changes.is_empty(), "{end:?}");
        ground.assert_clean();
    }
}
