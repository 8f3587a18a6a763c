//! What the vault of a pool is, whichever target is lost.

use super::playground::{Ground, Seed};
use gabion_vault::storage::pool::Document;
use gabion_vault::vault::{Vault, VaultError};
use gabion_vault::world::Clock;
use std::fs;

fn ground() -> Ground {
    let mut ground = Ground::new(&[None; 6], 3, 2);
    ground.put("file", &Seed(1).bytes(30_000));
    ground.protect();
    ground
}

fn copy_on(ground: &Ground, number: usize) -> String {
    fs::read_to_string(ground.target(number).join("vault.toml")).unwrap()
}

#[test]
fn the_vault_goes_on_as_the_same_without_any_target() {
    let mut ground = ground();
    let id = ground.vault.settings.id.clone();
    for lost in 1..=6 {
        ground.lose(lost);
        assert_eq!(ground.vault.settings.id, id, "without d{lost}");
        assert!((1..=6).filter(|&other| other != lost).all(|other| copy_on(&ground, other).contains(&id)));
        ground.assert_right(&format!("without d{lost}"));
        ground.bring_back(lost);
        assert_eq!(ground.vault.settings.id, id, "d{lost} is back");
    }
    // Someone removes what the vault has of its own, everywhere.
    for number in 1..=6 {
        let _ = fs::remove_dir_all(ground.target(number).join("vault"));
    }
    ground.open();
    assert_eq!(ground.vault.settings.id, id);
    ground.protect();
    assert!(ground.scrub().damage.is_empty());
}

/// A target that was away, or is new, gets what was set meanwhile; and of copies that differ, the newest whole one counts.
#[test]
fn copies_follow_what_was_set_last() {
    let mut ground = ground();
    let old = ground.vault.settings.id.clone();
    ground.lose(4);
    let own = ground.vault.repository.path().join("vault.toml");
    let new = old.chars().rev().collect::<String>();
    fs::write(&own, fs::read_to_string(&own).unwrap().replace(&old, &new)).unwrap();
    ground.open();
    assert_eq!(ground.vault.settings.id, new);
    ground.bring_back(4);
    assert!((1..=6).all(|number| copy_on(&ground, number).contains(&new)));
    // Rot in some copies, and older ones in others: one that is whole and new suffices.
    let whole = copy_on(&ground, 6);
    for number in 1..=5 {
        let torn = if number % 2 == 0 { whole.replace(&new, &old) } else { whole[..40].to_owned() };
        fs::write(ground.target(number).join("vault.toml"), torn).unwrap();
    }
    ground.lose(1);
    assert_eq!(ground.vault.settings.id, new);
    // The vault that was begun on another target set it once more.
    let set = copy_on(&ground, 2);
    assert!(set != whole && set.contains(&new));
    assert!((2..=6).all(|number| copy_on(&ground, number) == set));
}

/// A copy with a right check and a higher revision, made by someone who means no good or by a later version, is refused by name.
#[test]
fn copies_that_say_what_cannot_be_are_refused() {
    let ground = ground();
    let whole = copy_on(&ground, 1);
    let head = whole.lines().next().unwrap();
    let (head, _) = head.rsplit_once(' ').unwrap();
    let id = &ground.vault.settings.id;
    for (body, why) in [
        (format!("version = 2\nid = \"{id}\"\nchangelog = \"embedded\""), "version 2"),
        ("version = 1\nid = \"../../etc\"\nchangelog = \"embedded\"".to_owned(), "no identity"),
        (format!("version = 1\nid = \"{id}\"\nchangelog = \"embedded\"\nroot = \"/\""), "root"),
        ("\0\0".to_owned(), "the copy that the targets"),
    ] {
        let text = format!("{head} 999\n{body}\n\n");
        let check = blake3::hash(text.as_bytes()).to_hex();
        fs::write(ground.target(3).join("vault.toml"), format!("{text}# check {check}\n")).unwrap();
        assert!(ground.pool.document(Document::Vault).unwrap().text.contains(body.trim_end()));
        match Vault::of_pool(&ground.pool, Clock::System) {
            Err(VaultError::Settings { why: said, .. }) => assert!(said.contains(why), "{said}"),
            other => panic!("{body}: {:?}", other.map(|(vault, _)| vault.settings)),
        }
        fs::write(ground.target(3).join("vault.toml"), &whole).unwrap();
        assert_eq!(Vault::of_pool(&ground.pool, Clock::System).unwrap().0.settings.id, *id);
    }
}
