//! Workers killed in the middle of a rename: the next worker finds the redundancy, wherever the file is by then.

use super::fixture::{Fixture, TestRng, flip, live_worker};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::fault;
use gabion_vault::protect;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::worker::Scanned;
use gabion_vault::world::Timestamp;
use gabion_vault::world::{Clock, SECOND};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SIZE: usize = 30_000;

fn content() -> Vec<u8> {
    TestRng(7).bytes(SIZE)
}

/// Renames around the death of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// `a/file` becomes `b/file`; nothing else happens.
    Rests,
    /// The file is renamed again, to `c/file`, after the worker died.
    GoesOn,
    /// As before, without an event.
    GoesOnUnheard,
    /// As `GoesOn`, and a new file takes the name in between.
    IsReplaced,
    /// `log` becomes `log.1`, with a new `log`; after the worker died, the same happens again.
    Rotates,
    /// As before, without events; `protect` is killed.
    RotatesUnheard,
}

impl Course {
    fn is_reported(self) -> bool {
        !matches!(self, Course::RotatesUnheard)
    }

    /// Final name of the corrupt file.
    fn end(self) -> &'static str {
        match self {
            Course::Rests => "b/file",
            Course::GoesOn | Course::GoesOnUnheard | Course::IsReplaced => "c/file",
            Course::Rotates | Course::RotatesUnheard => "log.2",
        }
    }

    /// The first renames; the worker is killed while it processes them.
    fn begin(self, fixture: &Fixture) {
        match self {
            Course::Rotates | Course::RotatesUnheard => {
                rename(fixture, "log", "log.1", self.is_reported());
                write(fixture, "log", 1, self.is_reported());
            }
            _ => rename(fixture, "a/file", "b/file", true),
        }
    }

    fn go_on(self, fixture: &Fixture) {
        match self {
            Course::Rests => {}
            Course::GoesOn => rename(fixture, "b/file", "c/file", true),
            Course::GoesOnUnheard => rename(fixture, "b/file", "c/file", false),
            Course::IsReplaced => {
                rename(fixture, "b/file", "c/file", true);
                write(fixture, "b/file", 3, true);
            }
            Course::Rotates | Course::RotatesUnheard => {
                rename(fixture, "log.1", "log.2", self.is_reported());
                rename(fixture, "log", "log.1", self.is_reported());
                write(fixture, "log", 2, self.is_reported());
            }
        }
    }
}

fn record(fixture: &Fixture, change: Change) {
    fixture.vault.changelog.record(&[change]).unwrap();
}

fn rename(fixture: &Fixture, from: &str, to: &str, heard: bool) {
    std::fs::create_dir_all(fixture.path(to).parent().unwrap()).unwrap();
    std::fs::rename(fixture.path(from), fixture.path(to)).unwrap();
    if heard {
        record(fixture, Change::rename(from, to, When::now(fixture.clock.now(), 0)));
    }
}

fn write(fixture: &Fixture, name: &str, seed: u64, heard: bool) {
    fixture.write(name, &TestRng(seed).bytes(SIZE));
    if heard {
        record(fixture, Change::modify_whole(name, When::now(fixture.clock.now(), 0)));
    }
}

fn work(vault: &Vault) {
    let scanned = Scanned::default();
    let worker = live_worker(vault, &scanned);
    let done = worker.drain_all(None).unwrap();
    assert_eq!(done.failures, 0, "{done:?}");
}

#[test]
#[ignore = "this is the child, which the other test starts and kills"]
fn child() {
    // Time, command, change before which the child dies, and tree.
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    let told: Vec<&str> = told.trim_end().splitn(4, ' ').collect();
    let [now, how, point, tree] = told[..] else { return };
    let clock = Clock::manual(Timestamp::from_nanoseconds(now.parse().unwrap()));
    let vault = Vault::open(&Location::of(Path::new(tree), None), clock).unwrap();
    let lock = vault.lock("test").unwrap();
    fault::kill_before(point.parse().unwrap());
    match how {
        "work" => work(&vault),
        _ => drop(protect::protect(&vault, super::fixture::QUIET).unwrap()),
    }
    drop(lock);
}

/// True if the child was killed, false if it finished.
fn run_child(tree: &Path, clock: &Clock, heard: bool, point: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let how = if heard { "work" } else { "protect" };
    let told = format!("{} {how} {point} {}\n", clock.now().nanoseconds(), tree.display());
    child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// Names of redundancy files.
fn redundancy(fixture: &Fixture) -> Vec<String> {
    let top = fixture.redundancy("");
    let (mut found, mut open) = (Vec::new(), vec![top.clone()]);
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    found.push(entry.path().strip_prefix(&top).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

/// Regression: a worker had moved the redundancy of a renamed file when it was killed, unknown to catalogue and
/// changelog. After another rename the redundancy was not found: the file was encoded as new content with its
/// corruption, and the redundancy stayed under an unknown name.
fn assert_found_wherever_killed(course: Course) {
    let (mut point, mut killed) = (0, true);
    while killed {
        let fixture = Fixture::new("4+2");
        let first = if course.end() == "log.2" { "log" } else { "a/file" };
        fixture.write(first, &content());
        fixture.protect_all();
        flip(&fixture.path(first), 20_000);
        course.begin(&fixture);
        fixture.clock.set(fixture.clock.now() + 10 * SECOND);
        killed = run_child(&fixture.root(), &fixture.clock, course.is_reported(), point);
        course.go_on(&fixture);
        fixture.clock.set(fixture.clock.now() + 10 * SECOND);
        if course.is_reported() && course != Course::GoesOnUnheard {
            work(&fixture.vault);
        }
        let why = format!("{course:?}, killed before change {point}");
        let report = fixture.protect();
        assert_eq!(report.pending, 0, "{why}: {report:?}");
        let mut files = vec![course.end().to_owned()];
        match course {
            Course::IsReplaced => files.push("b/file".to_owned()),
            Course::Rotates | Course::RotatesUnheard => files.extend(["log".to_owned(), "log.1".to_owned()]),
            _ => {}
        }
        files.sort();
        assert_eq!(redundancy(&fixture), files, "{why}");
        assert_eq!(fixture.state(course.end()), State::Damaged, "{why}");
        fixture.repair(course.end());
        assert!(fixture.read(course.end()) == content(), "{why}");
        fixture.assert_clean();
        assert!(fixture.protect_all().seen.changes.is_empty(), "{why}");
        assert_eq!(fixture.vault.catalogue.count().unwrap(), files.len() as u64, "{why}");
        point += 1;
    }
    println!("{course:?}: {point} points");
    assert!(point > 3, "{course:?}: the worker was killed");
}

#[test]
fn a_rename_is_finished_wherever_a_worker_is_killed() {
    assert_found_wherever_killed(Course::Rests);
}

#[test]
fn redundancy_follows_a_file_that_is_renamed_again_wherever_a_worker_is_killed() {
    assert_found_wherever_killed(Course::GoesOn);
    assert_found_wherever_killed(Course::IsReplaced);
}

#[test]
fn redundancy_follows_an_unreported_rename_wherever_a_worker_is_killed() {
    assert_found_wherever_killed(Course::GoesOnUnheard);
}

#[test]
fn redundancy_follows_a_log_that_is_rotated_wherever_a_worker_is_killed() {
    assert_found_wherever_killed(Course::Rotates);
}

#[test]
fn redundancy_follows_a_log_that_is_rotated_wherever_protect_is_killed() {
    assert_found_wherever_killed(Course::RotatesUnheard);
}
