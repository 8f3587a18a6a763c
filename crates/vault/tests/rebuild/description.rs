//! The identity of a pool's vault survives the loss of any target.

use super::fixture::{Fixture, Seed};
use gabion_vault::storage::pool::Document;
use gabion_vault::vault::{Vault, VaultError};
use gabion_vault::world::Clock;
use std::fs;

fn fixture() -> Fixture {
    let mut fixture = Fixture::new(&[None; 6], 3, 2);
    fixture.put("file", &Seed(1).bytes(30_000));
    fixture.protect();
    fixture
}

fn copy_on(fixture: &Fixture, number: usize) -> String {
    fs::read_to_string(fixture.target(number).join("vault.toml")).unwrap()
}

#[test]
fn the_vault_keeps_its_identity_without_any_target() {
    let mut fixture = fixture();
    let id = fixture.vault.settings.id.clone();
    for lost in 1..=6 {
        fixture.lose(lost);
        assert_eq!(fixture.vault.settings.id, id, "without d{lost}");
        assert!((1..=6).filter(|&other| other != lost).all(|other| copy_on(&fixture, other).contains(&id)));
        fixture.assert_right(&format!("without d{lost}"));
        fixture.restore_disk(lost);
        assert_eq!(fixture.vault.settings.id, id, "d{lost} is back");
    }
    // Removes the vault's own data everywhere.
    for number in 1..=6 {
        let _ = fs::remove_dir_all(fixture.target(number).join("vault"));
    }
    fixture.open();
    assert_eq!(fixture.vault.settings.id, id);
    fixture.protect();
    assert!(fixture.scrub().trouble.is_empty());
}

/// A target that was offline, or is new, receives the latest documents; of differing copies the newest valid one
/// counts.
#[test]
fn copies_follow_what_was_set_last() {
    let mut fixture = fixture();
    let old = fixture.vault.settings.id.clone();
    fixture.lose(4);
    let own = fixture.vault.repository.path().join("vault.toml");
    let new = old.chars().rev().collect::<String>();
    fs::write(&own, fs::read_to_string(&own).unwrap().replace(&old, &new)).unwrap();
    fixture.open();
    assert_eq!(fixture.vault.settings.id, new);
    fixture.restore_disk(4);
    assert!((1..=6).all(|number| copy_on(&fixture, number).contains(&new)));
    // Corrupt copies, and older ones: one valid and new copy suffices.
    let whole = copy_on(&fixture, 6);
    for number in 1..=5 {
        let torn = if number % 2 == 0 { whole.replace(&new, &old) } else { whole[..40].to_owned() };
        fs::write(fixture.target(number).join("vault.toml"), torn).unwrap();
    }
    fixture.lose(1);
    assert_eq!(fixture.vault.settings.id, new);
    // The vault that was created on another target stored it once more.
    let set = copy_on(&fixture, 2);
    assert!(set != whole && set.contains(&new));
    assert!((2..=6).all(|number| copy_on(&fixture, number) == set));
}

/// A copy with a valid checksum and a higher revision, made by an attacker or a later version, is refused by name.
#[test]
fn invalid_copies_are_refused() {
    let fixture = fixture();
    let whole = copy_on(&fixture, 1);
    let head = whole.lines().next().unwrap();
    let (head, _) = head.rsplit_once(' ').unwrap();
    let id = &fixture.vault.settings.id;
    for (body, why) in [
        (format!("version = 2\nid = \"{id}\"\nchangelog = \"embedded\""), "version 2"),
        ("version = 1\nid = \"../../etc\"\nchangelog = \"embedded\"".to_owned(), "no identity"),
        (format!("version = 1\nid = \"{id}\"\nchangelog = \"embedded\"\nroot = \"/\""), "root"),
        ("\0\0".to_owned(), "the copy that the targets"),
    ] {
        let text = format!("{head} 999\n{body}\n\n");
        let check = blake3::hash(text.as_bytes()).to_hex();
        fs::write(fixture.target(3).join("vault.toml"), format!("{text}# check {check}\n")).unwrap();
        assert!(fixture.pool.document(Document::Vault).unwrap().text.contains(body.trim_end()));
        match Vault::of_pool(&fixture.pool, Clock::System) {
            Err(VaultError::Settings { why: said, .. }) => assert!(said.contains(why), "{said}"),
            other => panic!("{body}: {:?}", other.map(|(vault, _)| vault.settings)),
        }
        fs::write(fixture.target(3).join("vault.toml"), &whole).unwrap();
        assert_eq!(Vault::of_pool(&fixture.pool, Clock::System).unwrap().0.settings.id, *id);
    }
}
