//! Mass changes wait for a person, other policies are followed, quiet periods are kept.

use super::playground::{Playground, QUIET, Seed};
use gabion_vault::guard;
use gabion_vault::monitor::{Choice, Notice};
use gabion_vault::protect;
use std::fs;

const POLICY: &str = "[default]\ncode = \"4+2\"\nquiet = \"0s\"\n[guard]\nat_least = 5\n";

/// A tree of twenty files, watched and protected.
fn twenty() -> (Playground, gabion_vault::monitor::Live) {
    let ground = Playground::new();
    // Long enough that a deletion of many is seen as one.
    ground.create(&POLICY.replace("0s", "1s"));
    for number in 0..20 {
        ground.write(format!("d{}/{number}", number % 2), &Seed(number + 1).bytes(3000));
    }
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    (ground, live)
}

fn redundancy(ground: &Playground) -> usize {
    super::playground::files_below(&ground.tree().parent().unwrap().join("repository/redundancy")).len()
}

#[test]
fn a_mass_deletion_is_held_until_it_is_approved() {
    let (ground, live) = twenty();
    fs::remove_dir_all(ground.path("d0")).unwrap();
    ground.until("held", || live.status().held.is_some());
    // What is new is protected all the same, what vanished keeps its redundancy, and what changes now waits too.
    ground.write("new", b"new");
    ground.write("d1/1", b"changed meanwhile");
    ground.until("new is protected", || redundancy(&ground) == 21);
    let vault = ground.vault();
    ground.until("nothing is pending", || vault.changelog.pending().unwrap().entries() == 0);
    assert_eq!(redundancy(&ground), 21);
    // As `gabion approve` does it.
    let seen = protect::scan(&vault, QUIET).unwrap();
    let held = protect::held(&vault, &seen).unwrap().unwrap();
    assert_eq!((held.removed, held.changed), (10, 1));
    guard::approve(&vault.repository, &held.digest).unwrap();
    ground.until("released", || live.status().held.is_none());
    ground.until_protected();
    ground.assert_protected();
    ground.until("the approval is used up", || !guard::is_any_approved(&vault.repository));
    // The next one is held again.
    fs::remove_dir_all(ground.path("d1")).unwrap();
    ground.until("held again", || live.status().held.is_some());
    assert_eq!(redundancy(&ground), 11);
    ground.stop(live);
}

/// What got another name first counts as well, and keeps its redundancy.
#[test]
fn a_mass_deletion_under_other_names_is_held() {
    let (ground, live) = twenty();
    fs::create_dir(ground.path("bin")).unwrap();
    for number in (0..20).step_by(2) {
        fs::rename(ground.path(format!("d0/{number}")), ground.path(format!("bin/{number}"))).unwrap();
        fs::remove_file(ground.path(format!("bin/{number}"))).unwrap();
    }
    ground.until("held", || live.status().held.is_some());
    assert_eq!(redundancy(&ground), 20);
    ground.stop(live);
}

/// At no time more than one change is pending.
#[test]
fn a_slow_mass_change_is_held() {
    let ground = Playground::new();
    ground.create(POLICY);
    for number in 0..20 {
        ground.write(format!("{number}"), &Seed(number + 1).bytes(3000));
    }
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    let vault = ground.vault();
    let followed =
        |name: &str| vault.catalogue.find(name.as_bytes()).unwrap().unwrap().generation.size == 3001;
    let mut rewritten = 0;
    while live.status().held.is_none() {
        assert!(rewritten < 20, "all of them, and nobody said a word");
        let name = format!("{rewritten}");
        ground.write(&name, &Seed(rewritten + 100).bytes(3001));
        ground.until("followed or held", || followed(&name) || live.status().held.is_some());
        rewritten += 1;
    }
    // More than half of the files.
    let held = live.status().held.unwrap();
    assert_eq!((rewritten, held.changed, held.before.changed), (11, 1, 10));
    assert!(!followed("10"), "its redundancy stays as it was");
    ground.stop(live);
}

#[test]
fn what_is_put_back_is_held_no_more() {
    let (ground, live) = twenty();
    fs::rename(ground.path("d0"), ground.tree().join("aside")).unwrap();
    ground.until("held", || live.status().held.is_some());
    fs::rename(ground.tree().join("aside"), ground.path("d0")).unwrap();
    ground.until("released", || live.status().held.is_none());
    ground.until_protected();
    ground.assert_protected();
    ground.stop(live);
}

#[test]
fn another_policy_is_followed_at_once() {
    let ground = Playground::new();
    ground.create(POLICY);
    ground.write("a", &Seed(3).bytes(30_000));
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until_protected();
    let mut vault = ground.vault();
    vault.set_policy("[default]\ncode = \"4+3\"\nquiet = \"0s\"\n").unwrap();
    ground.until("recoded", || vault.catalogue.find(b"a").unwrap().is_some_and(|entry| entry.columns == 3));
    assert!(ground.notices().iter().any(|notice| matches!(notice, Notice::Policy)));
    ground.stop(live);
}

#[test]
fn rules_decide_how_long_a_file_rests() {
    let ground = Playground::new();
    let rule = "[[rule]]\npaths = [\"slow/**\"]\nquiet = \"1h\"\n[[rule]]\npaths = [\"never/**\"]\nprotect = false\n";
    ground.create(&format!("{POLICY}{rule}"));
    let live = ground.watch(Playground::options(Choice::Inotify));
    ground.until("the first scan", || ground.whole_scans() == 1);
    for name in ["slow/a", "never/b", "fast/c"] {
        ground.write(name, b"content");
    }
    let vault = ground.vault();
    ground.until("protected", || vault.catalogue.find(b"fast/c").unwrap().is_some());
    let pending: Vec<_> =
        vault.changelog.entries(None, 10).unwrap().into_iter().map(|entry| entry.path).collect();
    assert_eq!(pending, [b"slow/a"]);
    assert!(vault.catalogue.find(b"slow/a").unwrap().is_none());
    ground.stop(live);
}
