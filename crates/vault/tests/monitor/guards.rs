//! Held mass changes, policy changes and quiet periods under a watch.

use super::fixture::{Fixture, QUIET, TestRng};
use gabion_vault::guard;
use gabion_vault::monitor::{Choice, Notice};
use gabion_vault::protect;
use std::fs;

const POLICY: &str = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 5\n";

/// A tree of twenty files, watched and protected.
fn twenty() -> (Fixture, gabion_vault::monitor::Live) {
    let fixture = Fixture::new();
    // Long enough for a mass deletion to be seen as one change-set.
    fixture.create(&POLICY.replace("0s", "1s"));
    for number in 0..20 {
        fixture.write(format!("d{}/{number}", number % 2), &TestRng(number + 1).bytes(3000));
    }
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    (fixture, live)
}

fn redundancy(fixture: &Fixture) -> usize {
    super::fixture::files_below(&fixture.tree().parent().unwrap().join("repository/redundancy")).len()
}

#[test]
fn a_mass_deletion_is_held_until_it_is_approved() {
    let (fixture, live) = twenty();
    fs::remove_dir_all(fixture.path("d0")).unwrap();
    fixture.until("held", || live.status().held.is_some());
    // New files are protected nevertheless; deleted files keep their redundancy, and later changes are held too.
    fixture.write("new", b"new");
    fixture.write("d1/1", b"changed meanwhile");
    fixture.until("new is protected", || redundancy(&fixture) == 21);
    let vault = fixture.vault();
    fixture.until("nothing is pending", || vault.changelog.pending().unwrap().entries() == 0);
    assert_eq!(redundancy(&fixture), 21);
    // As `gabion approve` does.
    let seen = protect::scan(&vault, QUIET).unwrap();
    let held = protect::judge(&vault, &seen).unwrap().held().cloned().unwrap();
    assert_eq!((held.removed, held.changed), (10, 1));
    guard::approve(&vault.repository, &held.digest).unwrap();
    fixture.until("released", || live.status().held.is_none());
    fixture.until_protected();
    fixture.assert_protected();
    fixture.until("the approval is used up", || guard::approvals(&vault.repository).unwrap().is_empty());
    // The next mass deletion is held again.
    fs::remove_dir_all(fixture.path("d1")).unwrap();
    fixture.until("held again", || live.status().held.is_some());
    assert_eq!(redundancy(&fixture), 11);
    fixture.stop(live);
}

/// Files that are renamed first count as well and keep their redundancy.
#[test]
fn a_mass_deletion_under_other_names_is_held() {
    let (fixture, live) = twenty();
    fs::create_dir(fixture.path("bin")).unwrap();
    for number in (0..20).step_by(2) {
        fs::rename(fixture.path(format!("d0/{number}")), fixture.path(format!("bin/{number}"))).unwrap();
        fs::remove_file(fixture.path(format!("bin/{number}"))).unwrap();
    }
    fixture.until("held", || live.status().held.is_some());
    assert_eq!(redundancy(&fixture), 20);
    fixture.stop(live);
}

/// At any time only one change is pending.
#[test]
fn a_slow_mass_change_is_held() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    for number in 0..20 {
        fixture.write(format!("{number}"), &TestRng(number + 1).bytes(3000));
    }
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    let vault = fixture.vault();
    let followed =
        |name: &str| vault.catalogue.find(name.as_bytes()).unwrap().unwrap().generation.size == 3001;
    let mut rewritten = 0;
    while live.status().held.is_none() {
        assert!(rewritten < 20, "all of them, and nobody said a word");
        let name = format!("{rewritten}");
        fixture.write(&name, &TestRng(rewritten + 100).bytes(3001));
        fixture.until("followed or held", || followed(&name) || live.status().held.is_some());
        rewritten += 1;
    }
    // More than half of the files.
    let held = live.status().held.unwrap();
    assert_eq!((rewritten, held.changed, held.before.changed), (11, 1, 10));
    assert!(!followed("10"), "its redundancy stays as it was");
    fixture.stop(live);
}

#[test]
fn a_reverted_change_set_is_released() {
    let (fixture, live) = twenty();
    fs::rename(fixture.path("d0"), fixture.tree().join("aside")).unwrap();
    fixture.until("held", || live.status().held.is_some());
    fs::rename(fixture.tree().join("aside"), fixture.path("d0")).unwrap();
    fixture.until("released", || live.status().held.is_none());
    fixture.until_protected();
    fixture.assert_protected();
    fixture.stop(live);
}

#[test]
fn another_policy_is_followed_at_once() {
    let fixture = Fixture::new();
    fixture.create(POLICY);
    fixture.write("a", &TestRng(3).bytes(30_000));
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until_protected();
    let mut vault = fixture.vault();
    vault.set_policy("[default]\ncode = \"4+3\"\nquiet = \"0s\"\n").unwrap();
    fixture.until("recoded", || vault.catalogue.find(b"a").unwrap().is_some_and(|entry| entry.columns == 3));
    assert!(fixture.notices().iter().any(|notice| matches!(notice, Notice::Policy)));
    fixture.stop(live);
}

#[test]
fn rules_decide_how_long_a_file_rests() {
    let fixture = Fixture::new();
    let rule = "[[rule]]\npaths = [\"slow/**\"]\nquiet = \"1h\"\n[[rule]]\npaths = [\"never/**\"]\nprotect = false\n";
    fixture.create(&format!("{POLICY}{rule}"));
    let live = fixture.watch(Fixture::options(Choice::Inotify));
    fixture.until("the first scan", || fixture.whole_scans() == 1);
    for name in ["slow/a", "never/b", "fast/c"] {
        fixture.write(name, b"content");
    }
    let vault = fixture.vault();
    fixture.until("protected", || vault.catalogue.find(b"fast/c").unwrap().is_some());
    let pending: Vec<_> =
        vault.changelog.entries(None, 10).unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(pending, [b"slow/a"]);
    assert!(vault.catalogue.find(b"slow/a").unwrap().is_none());
    fixture.stop(live);
}
