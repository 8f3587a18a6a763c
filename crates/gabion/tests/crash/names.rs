//! `gabion pool mv`, `pool put` and `pool rm` are killed.

use crate::fixture::{Files, assert_same, bytes};
use crate::pool::Tank;
use gabion_testkit::kill::can_kill;
use std::fs;

/// A command that changes names.
struct Scenario {
    command: &'static [&'static str],
    /// What the files are when it has come to its end.
    after: fn(&mut Files),
}

/// The content that is put in the round with this number.
fn content(round: u64) -> Vec<u8> {
    bytes(9000 + round as usize % 5 * 3000, 1000 + round)
}

fn rename(files: &mut Files, from: &str, to: &str) {
    let below = format!("{from}/");
    let moved = files.extract_if(.., |name, _| name == from || name.starts_with(&below));
    let moved: Vec<_> =
        moved.map(|(name, content)| (format!("{to}{}", &name[from.len()..]), content)).collect();
    files.extend(moved);
}

const SCENARIOS: [Scenario; 7] = [
    Scenario { command: &["mv", "tank", "x", "sub/moved"], after: |files| rename(files, "x", "sub/moved") },
    Scenario { command: &["mv", "tank", "x", "y"], after: |files| rename(files, "x", "y") },
    Scenario {
        command: &["mv", "tank", "sub", "elsewhere"],
        after: |files| rename(files, "sub", "elsewhere"),
    },
    Scenario { command: &["put", "tank", "source", "x"], after: put_source_to_x },
    Scenario { command: &["put", "tank", "source", "new/deep/file"], after: put_source_deep },
    Scenario { command: &["rm", "tank", "x"], after: |files| drop(files.remove("x")) },
    Scenario { command: &["rm", "tank", "sub/written"], after: |files| drop(files.remove("sub/written")) },
];

/// Stands for what is in the file `source`, whatever that is in a round.
const SOURCE: &[u8] = b"what is in the file that is put";

fn put_source_to_x(files: &mut Files) {
    files.insert("x".to_owned(), SOURCE.to_vec());
}

fn put_source_deep(files: &mut Files) {
    files.insert("new/deep/file".to_owned(), SOURCE.to_vec());
}

/// Makes the files of the first round again, with other content for those that the commands change.
fn prepare(tank: &mut Tank, round: u64) {
    let seen = tank.seen("before a round");
    for name in seen
        .keys()
        .filter(|name| name.starts_with("new/") || name.starts_with("elsewhere/") || *name == "sub/moved")
    {
        tank.expect("before a round", &["pool", "rm", "tank", name]);
    }
    for directory in ["new/deep", "new", "elsewhere"] {
        // It is not there in most rounds.
        let _ = tank.fixture.run(&["pool", "rm", "-r", "tank", directory, "--pools", "names"]);
    }
    for (number, name) in ["x", "y", "sub/written"].into_iter().enumerate() {
        tank.put(name, &bytes(8000, round * 10 + number as u64));
    }
    tank.files.retain(|name, _| ["quiet", "x", "y", "sub/written"].contains(&name.as_str()));
    fs::write(tank.fixture.path("source"), content(round)).unwrap();
}

/// The names that a reader finds, by the program.
fn listed(tank: &Tank, told: &str) -> Vec<String> {
    let text = tank.expect(told, &["pool", "ls", "tank", "-R"]);
    text.lines().filter(|line| !line.ends_with('/')).map(str::to_owned).collect()
}

/// Kills the commands before their changes, with all targets or while one of the mirrors is gone.
fn kill_commands(test: &str, usual: usize, without_mirror: bool) {
    if !can_kill(test) {
        return;
    }
    for Scenario { command, after } in SCENARIOS {
        let mut tank = Tank::of(&["quiet", "x", "y", "sub/written"]);
        let runner = tank.fixture.clone();
        let args = [&["pool"], command, &["--pools", "names"]].concat();
        let mirror = |round: u64| 1 + round as usize % 3;
        runner.kill_everywhere(
            test,
            usual,
            &args,
            &mut tank,
            |tank, round| {
                prepare(tank, round);
                if without_mirror {
                    tank.lose(mirror(round));
                }
            },
            |tank, round, told| {
                // The first reader decides, for all that come later and whichever targets answer then.
                let names = listed(tank, told);
                if without_mirror {
                    tank.bring_back(mirror(round));
                }
                let (before, mut done) = (tank.files.clone(), tank.files.clone());
                after(&mut done);
                done.values_mut().filter(|it| **it == SOURCE).for_each(|it| *it = content(round));
                let found = tank.seen(told);
                assert_eq!(found.keys().cloned().collect::<Vec<_>>(), names, "{told}: another reader");
                let wanted = if found == before { before } else { done };
                assert_same(told, &found, &wanted);
                assert!(round > 0 || wanted != tank.files, "{told}: nothing was done");
                if without_mirror {
                    // It missed the change; in the next round another one goes.
                    tank.expect(told, &["pool", "status", "tank", "--heal"]);
                }
                tank.expect(told, &["pool", "put", "tank", "source", "quiet"]);
                tank.files = wanted;
                tank.files.insert("quiet".to_owned(), content(round));
                assert_same(told, &tank.seen(told), &tank.files);
                if round % 4 == 0 {
                    tank.converge(told);
                    assert_same(told, &tank.seen(told), &tank.files);
                }
            },
        );
    }
}

/// For whoever moves, puts or removes files in a pool: a killed command has done all or nothing, and later changes do
/// not alter that.
#[test]
fn commands_that_change_names_are_done_or_not_when_they_are_killed() {
    kill_commands("commands_that_change_names_are_done_or_not_when_they_are_killed", 2, false);
}

/// The same while a disk with the namespace is gone. It comes back with the names from before.
#[test]
fn commands_that_change_names_without_a_mirror_are_done_or_not_when_they_are_killed() {
    kill_commands(
        "commands_that_change_names_without_a_mirror_are_done_or_not_when_they_are_killed",
        2,
        true,
    );
}

/// A command that is killed while it replaces `pool.toml` leaves a draft on a target, and a sweep removes it. Nothing
/// did.
#[test]
fn drafts_of_a_killed_change_of_the_pool_are_swept() {
    let tank = Tank::of(&["quiet"]);
    let draft = tank.target(1).join("staging/0123456789abcdef0123456789abcdef.config");
    fs::copy(tank.target(1).join("pool.toml"), &draft).unwrap();
    tank.expect("a draft is left", &["pool", "status", "tank", "--sweep"]);
    assert!(!draft.exists());
    tank.converge("a draft was swept");
}
