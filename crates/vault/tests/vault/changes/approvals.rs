//! Approvals that nobody can mean any more.

use crate::fixture::{Fixture, QUIET};
use gabion_vault::guard;
use gabion_vault::protect;

const POLICY: &str = "[default]\ncode = \"4+2\"\n[guard]\nat_least = 5\nwindow = \"1d\"\n";

fn remove(fixture: &Fixture, files: std::ops::Range<u32>) {
    files.for_each(|number| std::fs::remove_file(fixture.path(&number.to_string())).unwrap());
}

/// Regression: an approval that was left over, since the change-set was undone or since two administrators approved it,
/// made the next run forget what had been removed within the window, and take all copies for intended.
#[test]
fn an_approval_that_is_left_over_releases_nothing() {
    let fixture = Fixture::with_policy(POLICY);
    (0..20).for_each(|number| fixture.write(&number.to_string(), &[number as u8; 3000]));
    fixture.protect_all();
    // Held, approved, and undone.
    let away = |number: u32| fixture.dir.path().join(number.to_string());
    (0..6).for_each(|number| std::fs::rename(fixture.path(&number.to_string()), away(number)).unwrap());
    let held = fixture.protect().held.unwrap();
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    (0..6).for_each(|number| std::fs::rename(away(number), fixture.path(&number.to_string())).unwrap());
    remove(&fixture, 6..9);
    assert_eq!(fixture.protect().held, None);
    assert!(guard::approvals(&fixture.vault.repository).unwrap().is_empty());
    // Left over again: the other administrator was slower than the run that carried it out.
    guard::approve(&fixture.vault.repository, &held.digest).unwrap();
    assert_eq!(fixture.protect().held, None);
    remove(&fixture, 9..12);
    let held = fixture.protect().held.expect("six within a day");
    assert_eq!((held.removed, held.before.removed), (3, 3));
    let seen = protect::scan(&fixture.vault, QUIET).unwrap();
    assert_eq!(protect::would_hold(&fixture.vault, &seen).unwrap().approved(), None);
}
