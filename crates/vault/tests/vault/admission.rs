//! Mass changes that others record while files are being protected: they wait for an approval like those that a scan finds.

use super::playground::{Playground, QUIET, Seed};
use gabion_vault::changelog::{Change, Changelog, When};
use gabion_vault::protect::{self, Report, work};
use gabion_vault::run::{Progress, RunContext};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const FILES: usize = 20;
const POLICY: &str = "[default]\ncode = \"4+2\"\nblock = \"4KiB\"\n\n\
    [guard]\nremoved = \"25%\"\nchanged = \"25%\"\nat_least = 2\n";

fn name(number: usize) -> String {
    format!("known-{number:02}")
}

fn protected() -> Playground {
    let ground = Playground::with_policy(POLICY);
    (0..FILES).for_each(|number| ground.write(&name(number), &Seed(number as u64).bytes(10_000 + number)));
    ground.protect_all();
    ground
}

/// Another process that changes files and records it, as a mount does.
struct Other<'a> {
    root: PathBuf,
    changelog: &'a dyn Changelog,
    when: When,
}

impl Other<'_> {
    fn of(ground: &Playground) -> Other<'_> {
        let when = When::now(ground.clock.now(), 0);
        Other { root: ground.root(), changelog: &*ground.vault.changelog, when }
    }

    fn record(&self, change: Change) {
        self.changelog.record(&[change]).unwrap();
    }

    fn remove(&self, numbers: Range<usize>) {
        for number in numbers {
            std::fs::remove_file(self.root.join(name(number))).unwrap();
            self.record(Change::delete(name(number), self.when));
        }
    }

    fn change(&self, numbers: Range<usize>) {
        for number in numbers {
            std::fs::write(self.root.join(name(number)), Seed(1000 + number as u64).bytes(12_000)).unwrap();
            self.record(Change::modify_whole(name(number), self.when));
        }
    }
}

fn redundancy(ground: &Playground) -> Vec<Option<Vec<u8>>> {
    (0..FILES).map(|number| std::fs::read(ground.redundancy(&name(number))).ok()).collect()
}

/// Protects 50 new files; `act` happens when the scan is over and the first file was protected.
fn protect_while(ground: &Playground, act: impl Fn() + Sync) -> Report {
    (0..50).for_each(|number| ground.write(&format!("new-{number}"), b"new"));
    let (is_scanned, acted) = (AtomicBool::new(false), AtomicBool::new(false));
    let progress = |step: Progress| match step {
        Progress::Step("protecting", _) => is_scanned.store(true, Ordering::Relaxed),
        Progress::Done(1.., _)
            if is_scanned.load(Ordering::Relaxed) && !acted.swap(true, Ordering::Relaxed) =>
        {
            act();
        }
        _ => {}
    };
    let _lock = ground.vault.lock("test").unwrap();
    let report =
        protect::protect(&ground.vault, RunContext { threads: 1, progress: &progress, ..QUIET }).unwrap();
    assert!(acted.into_inner());
    report
}

/// The guard was asked by the scan alone. Files that were deleted through a mount while `protect` worked lost their redundancy, however many.
#[test]
fn mass_deletions_during_protect_wait() {
    let ground = protected();
    let before = redundancy(&ground);
    let other = Other::of(&ground);
    let report = protect_while(&ground, || other.remove(0..10));
    assert!(report.done.refused && report.pending > 0, "{report:?}");
    assert!(redundancy(&ground) == before);
    let held = ground.protect().held.expect("half of the files are gone");
    assert_eq!((held.removed, held.changed), (10, 0));
    assert!(redundancy(&ground) == before);
}

#[test]
fn mass_changes_during_protect_wait() {
    let ground = protected();
    let before = redundancy(&ground);
    let other = Other::of(&ground);
    let report = protect_while(&ground, || other.change(0..10));
    assert!(report.done.refused && report.pending > 0, "{report:?}");
    assert!(redundancy(&ground) == before);
    assert_eq!(ground.protect().held.expect("half of the files changed").changed, 10);
}

/// Few changes that others record are carried out at once.
#[test]
fn few_changes_during_protect_are_carried_out() {
    let ground = protected();
    let other = Other::of(&ground);
    let report = protect_while(&ground, || {
        other.remove(0..2);
        other.change(2..4);
    });
    assert!(!report.done.refused && report.pending == 0, "{report:?}");
    assert!(redundancy(&ground)[..2].iter().all(Option::is_none));
    ground.assert_clean();
}

/// The scan held the deletions, and the worker carried out what a mount had recorded of them.
#[test]
fn recorded_deletions_are_held_with_those_that_the_scan_finds() {
    let ground = protected();
    let before = redundancy(&ground);
    Other::of(&ground).remove(0..10);
    let held = ground.protect().held.expect("half of the files are gone");
    assert_eq!(held.removed, 10);
    assert!(redundancy(&ground) == before);
    // What was approved is carried out, and is not counted again.
    gabion_vault::guard::approve(&ground.vault.repository, &held.digest).unwrap();
    let report = ground.protect_all();
    assert!(!report.done.refused && report.pending == 0, "{report:?}");
    assert!(redundancy(&ground)[..10].iter().all(Option::is_none));
}

/// `gabion work` had no guard at all.
#[test]
fn workers_leave_mass_changes_to_a_scan() {
    let ground = protected();
    let before = redundancy(&ground);
    ground.write("new", b"new");
    let other = Other::of(&ground);
    other.record(Change::modify_whole("new", other.when));
    Other::of(&ground).remove(0..10);
    let done = work(&ground.vault, QUIET).unwrap();
    assert!(done.refused && done.held == 10 && done.encoded == 1, "{done:?}");
    assert!(redundancy(&ground) == before);
    assert_eq!(ground.protect().held.expect("half of the files are gone").removed, 10);
    assert!(redundancy(&ground) == before);
}

/// One file after the other in runs of their own are as many in the end.
#[test]
fn slow_deletions_are_counted_over_the_window() {
    let ground = protected();
    let mut gone = 0;
    let refused = (0..10).any(|number| {
        Other::of(&ground).remove(number..number + 1);
        let done = work(&ground.vault, QUIET).unwrap();
        gone += usize::from(!done.refused);
        done.refused
    });
    assert!(refused, "{gone} files lost their redundancy");
    assert_eq!(gone, FILES / 4);
    let kept = redundancy(&ground);
    assert_eq!(kept.iter().filter(|kept| kept.is_some()).count(), FILES - gone);
}
