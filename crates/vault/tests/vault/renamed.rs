//! Files that are renamed over names of other protected files keep their redundancy, and their corruption is damage.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::repair;
use gabion_vault::worker::{self, Scanned, Worker};
use gabion_vault::world::SECOND;
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

/// The first rotation of a log: the protected file gets a new name, and a new file takes its old one. `protect` encoded the file under its new name as new content, with its
/// corruption, and replaced the redundancy that could have repaired it. A worker that hears of the rename does the same as a scan.
#[test]
fn corruption_is_not_accepted_when_a_file_gets_a_new_name_and_another_its_old_one() {
    for heard in [false, true] {
        for other in [false, true] {
            let ground = ground(&["log", "other"], false);
            flip(&ground.path("log"), 500);
            rename(&ground, "log", "log.1");
            let fresh = match other {
                true => {
                    rename(&ground, "other", "log");
                    content(1)
                }
                false => {
                    ground.write("log", b"fresh");
                    b"fresh".to_vec()
                }
            };
            if heard {
                let now = When::now(ground.vault.clock.now(), 0);
                let moved = |from: &str, to: &str| Change::rename(from, to, now);
                let changes = match other {
                    true => vec![moved("log", "log.1"), moved("other", "log")],
                    false => vec![moved("log", "log.1"), Change::modify_whole("log", now)],
                };
                ground.vault.changelog.record(&changes).unwrap();
                ground.clock.set(ground.clock.now() + 10 * SECOND);
                work(&ground);
            }
            let report = ground.protect_all();
            // A rename reads nothing: a scrub finds it.
            ground.scrub();
            let damaged = ground.vault.catalogue.find(b"log.1").unwrap().unwrap();
            assert_eq!(damaged.state, State::Damaged, "heard {heard}, other {other}: {report:?}");
            let mut files = vec![("log", fresh), ("log.1", content(0))];
            files.extend((!other).then(|| ("other", content(1))));
            assert_repaired(&ground, &files);
        }
    }
}

/// Works off what was recorded, as the worker of a watch does.
fn work(ground: &Playground) {
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
        retry: worker::RETRY,
        links: true,
        approved: false,
        name: worker::name(1),
        progress: &|_, _| {},
        stopped: &|| false,
    };
    let done = worker.drain(Some(&vault.catalogue)).unwrap();
    assert_eq!(done.failures, 0, "{done:?}");
}
