//! Workers that are killed in the middle of a rename: the redundancy is found by whoever comes next, wherever the file is by then.

use super::playground::{Playground, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::fault;
use gabion_vault::protect;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::worker::{self, Scanned, Worker};
use gabion_vault::world::{Clock, SECOND};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

const SIZE: usize = 30_000;

fn content() -> Vec<u8> {
    Seed(7).bytes(SIZE)
}

/// What is renamed while nobody has worked off a rename before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    /// `a/file` became `b/file`, and nothing else happens.
    Rests,
    /// The file is renamed once more, to `c/file`, when the worker is dead.
    GoesOn,
    /// As before, and nobody hears of it.
    GoesOnUnheard,
    /// As `GoesOn`, and a new file takes the name in between.
    IsReplaced,
    /// `log` became `log.1`, with a new `log`; when the worker is dead, the same happens once more.
    Rotates,
    /// As before; nobody hears of anything, and `protect` is what is killed.
    RotatesUnheard,
}

impl Course {
    fn is_heard(self) -> bool {
        !matches!(self, Course::RotatesUnheard)
    }

    /// The corrupt file, where it ends.
    fn end(self) -> &'static str {
        match self {
            Course::Rests => "b/file",
            Course::GoesOn | Course::GoesOnUnheard | Course::IsReplaced => "c/file",
            Course::Rotates | Course::RotatesUnheard => "log.2",
        }
    }

    /// The first renames, which a worker is killed at.
    fn begin(self, ground: &Playground) {
        match self {
            Course::Rotates | Course::RotatesUnheard => {
                rename(ground, "log", "log.1", self.is_heard());
                write(ground, "log", 1, self.is_heard());
            }
            _ => rename(ground, "a/file", "b/file", true),
        }
    }

    fn go_on(self, ground: &Playground) {
        match self {
            Course::Rests => {}
            Course::GoesOn => rename(ground, "b/file", "c/file", true),
            Course::GoesOnUnheard => rename(ground, "b/file", "c/file", false),
            Course::IsReplaced => {
                rename(ground, "b/file", "c/file", true);
                write(ground, "b/file", 3, true);
            }
            Course::Rotates | Course::RotatesUnheard => {
                rename(ground, "log.1", "log.2", self.is_heard());
                rename(ground, "log", "log.1", self.is_heard());
                write(ground, "log", 2, self.is_heard());
            }
        }
    }
}

fn record(ground: &Playground, change: Change) {
    ground.vault.changelog.record(&[change]).unwrap();
}

fn rename(ground: &Playground, from: &str, to: &str, heard: bool) {
    std::fs::create_dir_all(ground.path(to).parent().unwrap()).unwrap();
    std::fs::rename(ground.path(from), ground.path(to)).unwrap();
    if heard {
        record(ground, Change::rename(from, to, When::now(ground.clock.now(), 0)));
    }
}

fn write(ground: &Playground, name: &str, seed: u64, heard: bool) {
    ground.write(name, &Seed(seed).bytes(SIZE));
    if heard {
        record(ground, Change::modify_whole(name, When::now(ground.clock.now(), 0)));
    }
}

fn work(vault: &Vault) {
    let worker = Worker {
        storage: &*vault.storage,
        coders: &vault.coders,
        clock: &vault.clock,
        policy: &vault.policy,
        changelog: &*vault.changelog,
        threads: 1,
        scanned: &Scanned::default(),
        hold: false,
        retry: SECOND,
        links: true,
        approved: false,
        name: worker::name(1),
        progress: &|_, _| {},
        stopped: &|| false,
    };
    let done = worker.drain_all(Some(&vault.catalogue), None).unwrap();
    assert_eq!(done.failures, 0, "{done:?}");
}

#[test]
#[ignore = "this is the child, which the other test starts and kills"]
fn child() {
    // The time, what to do, before which change it dies, and where the tree is.
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).unwrap();
    let told: Vec<&str> = told.trim_end().splitn(4, ' ').collect();
    let [now, how, point, tree] = told[..] else { return };
    let clock = Clock::manual(now.parse().unwrap());
    let vault = Vault::open(&Location::of(Path::new(tree), None), clock).unwrap();
    let lock = vault.lock("test").unwrap();
    fault::kill_before(point.parse().unwrap());
    match how {
        "work" => work(&vault),
        _ => drop(protect::protect(&vault, super::playground::QUIET).unwrap()),
    }
    drop(lock);
}

/// Whether the child was killed; otherwise it came to its end.
fn run_child(tree: &Path, clock: &Clock, heard: bool, point: u64) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let how = if heard { "work" } else { "protect" };
    let told = format!("{} {how} {point} {}\n", clock.now(), tree.display());
    child.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{status}");
    !status.success()
}

/// Names of redundancy files.
fn redundancy(ground: &Playground) -> Vec<String> {
    let top = ground.redundancy("");
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

/// A worker had moved the redundancy of a renamed file when it was killed, and neither the catalogue nor the changelog knew of that. If the file was renamed once
/// more, its redundancy was not found: the file was encoded as new content, with the corruption that it had, and the redundancy stayed at a name that
/// nobody knew.
fn assert_found_wherever_killed(course: Course) {
    let (mut point, mut killed) = (0, true);
    while killed {
        let ground = Playground::new("4+2");
        let first = if course.end() == "log.2" { "log" } else { "a/file" };
        ground.write(first, &content());
        ground.protect_all();
        flip(&ground.path(first), 20_000);
        course.begin(&ground);
        ground.clock.set(ground.clock.now() + 10 * SECOND);
        killed = run_child(&ground.root(), &ground.clock, course.is_heard(), point);
        course.go_on(&ground);
        ground.clock.set(ground.clock.now() + 10 * SECOND);
        if course.is_heard() && course != Course::GoesOnUnheard {
            work(&ground.vault);
        }
        let why = format!("{course:?}, killed before change {point}");
        let report = ground.protect();
        assert_eq!(report.pending, 0, "{why}: {report:?}");
        let mut files = vec![course.end().to_owned()];
        match course {
            Course::IsReplaced => files.push("b/file".to_owned()),
            Course::Rotates | Course::RotatesUnheard => files.extend(["log".to_owned(), "log.1".to_owned()]),
            _ => {}
        }
        files.sort();
        assert_eq!(redundancy(&ground), files, "{why}");
        assert_eq!(ground.state(course.end()), State::Damaged, "{why}");
        ground.repair(course.end());
        assert!(ground.read(course.end()) == content(), "{why}");
        ground.assert_clean();
        assert!(ground.protect_all().seen.changes.is_empty(), "{why}");
        assert_eq!(ground.vault.catalogue.count().unwrap(), files.len() as u64, "{why}");
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
fn redundancy_follows_a_file_that_is_renamed_unheard_wherever_a_worker_is_killed() {
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
