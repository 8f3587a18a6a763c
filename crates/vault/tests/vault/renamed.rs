//! Files that are renamed over names of other protected files keep their redundancy, and their corruption is damage.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::repair;
use std::fs;

const SIZE: usize = 100_000;

fn content(number: u64) -> Vec<u8> {
    Seed(number).bytes(SIZE)
}

fn rename(ground: &Playground, from: &str, to: &str) {
    fs::rename(ground.path(from), ground.path(to)).unwrap();
}

/// Files with these names, one size and, as an archive that was unpacked has it, one time.
fn ground(names: &[&str], same_time: bool) -> Playground {
    let ground = Playground::new("4+2");
    for (number, name) in names.iter().enumerate() {
        ground.write(name, &content(number as u64));
        let file = fs::File::options().write(true).open(ground.path(name)).unwrap();
        let seconds = 1_600_000_000 + if same_time { 0 } else { number as u64 };
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
    ground.protect_all();
    ground
}

/// Repairs what nobody wrote to, as the daemon does, and expects these contents.
fn assert_repaired(ground: &Playground, files: &[(&str, Vec<u8>)]) {
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    for trouble in repair::plan(&ground.vault, b"", options, QUIET).unwrap().files {
        ground.repair(std::str::from_utf8(&trouble.path).unwrap());
    }
    for (name, content) in files {
        assert!(ground.read(name) == *content, "{name}");
    }
    assert!(ground.protect_all().affected.is_empty());
    ground.assert_clean();
    assert!(ground.protect_all().seen.changes.is_empty());
    assert_eq!(ground.vault.catalogue.count().unwrap(), files.len() as u64);
}

/// The corrupt file was encoded as new content of the other name, and its redundancy went with the name that it had.
#[test]
fn corruption_is_not_accepted_when_a_log_is_rotated() {
    for (same_time, corrupt) in [(false, "log"), (true, "log"), (false, "log.1"), (true, "log.1")] {
        let ground = ground(&["log", "log.1", "log.2"], same_time);
        flip(&ground.path(corrupt), 50_000);
        rename(&ground, "log.1", "log.2");
        rename(&ground, "log", "log.1");
        ground.write("log", b"begun anew");
        ground.protect();
        let moved = if corrupt == "log" { "log.1" } else { "log.2" };
        assert_eq!(ground.state(moved), State::Damaged, "{corrupt}, one time for all: {same_time}");
        let files = [("log", b"begun anew".to_vec()), ("log.1", content(0)), ("log.2", content(1))];
        assert_repaired(&ground, &files);
    }
}

#[test]
fn corruption_is_not_accepted_when_names_are_swapped() {
    for same_time in [false, true] {
        let ground = ground(&["a", "b", "c"], same_time);
        flip(&ground.path("a"), 50_000);
        for (from, to) in [("a", "free"), ("b", "a"), ("c", "b"), ("free", "c")] {
            rename(&ground, from, to);
        }
        ground.protect();
        assert_eq!(ground.state("c"), State::Damaged);
        assert_repaired(&ground, &[("a", content(1)), ("b", content(2)), ("c", content(0))]);
    }
}

/// What was known of the file is known of it by its new name.
#[test]
fn known_damage_follows_a_file_that_replaces_another() {
    let ground = ground(&["a", "b"], false);
    flip(&ground.path("a"), 50_000);
    assert_eq!(ground.state("a"), State::Damaged);
    rename(&ground, "a", "b");
    let report = ground.protect();
    assert_eq!(report.affected, [(State::Damaged, 1)], "{report:?}");
    assert!(!ground.redundancy("a").exists());
    assert_repaired(&ground, &[("b", content(0))]);
}
