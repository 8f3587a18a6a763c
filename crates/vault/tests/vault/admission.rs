//! Mass changes that other processes record while files are being protected are held like those that a scan finds.

use super::fixture::{Fixture, QUIET, TestRng};
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

fn protected() -> Fixture {
    let fixture = Fixture::with_policy(POLICY);
    (0..FILES)
        .for_each(|number| fixture.write(&name(number), &TestRng(number as u64).bytes(10_000 + number)));
    fixture.protect_all();
    fixture
}

/// Another process that changes files and records it, as a mount does.
struct Other<'a> {
    root: PathBuf,
    changelog: &'a dyn Changelog,
    when: When,
}

impl Other<'_> {
    fn of(fixture: &Fixture) -> Other<'_> {
        let when = When::now(fixture.clock.now(), 0);
        Other { root: fixture.root(), changelog: &*fixture.vault.changelog, when }
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
            std::fs::write(self.root.join(name(number)), TestRng(1000 + number as u64).bytes(12_000))
                .unwrap();
            self.record(Change::modify_whole(name(number), self.when));
        }
    }
}

fn redundancy(fixture: &Fixture) -> Vec<Option<Vec<u8>>> {
    (0..FILES).map(|number| std::fs::read(fixture.redundancy(&name(number))).ok()).collect()
}

/// Protects 50 new files; `act` runs after the scan, when the first file is protected.
fn protect_while(fixture: &Fixture, act: impl Fn() + Sync) -> Report {
    (0..50).for_each(|number| fixture.write(&format!("new-{number}"), b"new"));
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
    let _lock = fixture.vault.lock("test").unwrap();
    let report =
        protect::protect(&fixture.vault, RunContext { threads: 1, progress: &progress, ..QUIET }).unwrap();
    assert!(acted.into_inner());
    report
}

/// Regression: the guard checked scans only. Files deleted through a mount during `protect` lost their redundancy.
#[test]
fn mass_deletions_during_protect_wait() {
    let fixture = protected();
    let before = redundancy(&fixture);
    let other = Other::of(&fixture);
    let report = protect_while(&fixture, || other.remove(0..10));
    assert!(report.done.refused && report.pending > 0, "{report:?}");
    assert!(redundancy(&fixture) == before);
    let held = fixture.protect().held.expect("half of the files are gone");
    assert_eq!((held.removed, held.changed), (10, 0));
    assert!(redundancy(&fixture) == before);
}

#[test]
fn mass_changes_during_protect_wait() {
    let fixture = protected();
    let before = redundancy(&fixture);
    let other = Other::of(&fixture);
    let report = protect_while(&fixture, || other.change(0..10));
    assert!(report.done.refused && report.pending > 0, "{report:?}");
    assert!(redundancy(&fixture) == before);
    assert_eq!(fixture.protect().held.expect("half of the files changed").changed, 10);
}

/// A few recorded changes are carried out at once.
#[test]
fn few_changes_during_protect_are_carried_out() {
    let fixture = protected();
    let other = Other::of(&fixture);
    let report = protect_while(&fixture, || {
        other.remove(0..2);
        other.change(2..4);
    });
    assert!(!report.done.refused && report.pending == 0, "{report:?}");
    assert!(redundancy(&fixture)[..2].iter().all(Option::is_none));
    fixture.assert_clean();
}

/// Regression: the scan held the deletions, but the worker carried out those that a mount had recorded.
#[test]
fn recorded_deletions_are_held_with_those_that_the_scan_finds() {
    let fixture = protected();
    let before = redundancy(&fixture);
    Other::of(&fixture).remove(0..10);
    let held = fixture.protect().held.expect("half of the files are gone");
    assert_eq!(held.removed, 10);
    assert!(redundancy(&fixture) == before);
    // Approved changes are carried out and not counted again.
    gabion_vault::guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    let report = fixture.protect_all();
    assert!(!report.done.refused && report.pending == 0, "{report:?}");
    assert!(redundancy(&fixture)[..10].iter().all(Option::is_none));
}

/// Regression: `gabion work` did not ask the guard.
#[test]
fn workers_leave_mass_changes_to_a_scan() {
    let fixture = protected();
    let before = redundancy(&fixture);
    fixture.write("new", b"new");
    let other = Other::of(&fixture);
    other.record(Change::modify_whole("new", other.when));
    Other::of(&fixture).remove(0..10);
    let done = work(&fixture.vault, QUIET).unwrap();
    assert!(done.refused && done.held == 10 && done.encoded == 1, "{done:?}");
    assert!(redundancy(&fixture) == before);
    assert_eq!(fixture.protect().held.expect("half of the files are gone").removed, 10);
    assert!(redundancy(&fixture) == before);
}

/// Deletions in separate runs are counted together.
#[test]
fn slow_deletions_are_counted_over_the_window() {
    let fixture = protected();
    let mut gone = 0;
    let refused = (0..10).any(|number| {
        Other::of(&fixture).remove(number..number + 1);
        let done = work(&fixture.vault, QUIET).unwrap();
        gone += usize::from(!done.refused);
        done.refused
    });
    assert!(refused, "{gone} files lost their redundancy");
    assert_eq!(gone, FILES / 4);
    let kept = redundancy(&fixture);
    assert_eq!(kept.iter().filter(|kept| kept.is_some()).count(), FILES - gone);
}
