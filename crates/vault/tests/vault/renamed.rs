//! Files renamed over names of other protected files keep their redundancy, and their corruption counts as damage.

use super::fixture::{Fixture, QUIET, TestRng, flip, live_worker};
use gabion_vault::catalogue::{PossibleNames, State};
use gabion_vault::changelog::{Change, When};
use gabion_vault::degraded::{DegradedReader, copy_out};
use gabion_vault::repair;
use gabion_vault::tree::Generation;
use gabion_vault::worker::Scanned;
use gabion_vault::world::{Clock, SECOND};
use std::cell::Cell;
use std::fs;
use std::os::unix::fs::MetadataExt;

const SIZE: usize = 100_000;

fn content(number: u64) -> Vec<u8> {
    TestRng(number).bytes(SIZE)
}

fn rename(fixture: &Fixture, from: &str, to: &str) {
    fs::rename(fixture.path(from), fixture.path(to)).unwrap();
}

/// Files with these names and one size, and with one mtime as after unpacking an archive.
fn fixture(names: &[&str], same_time: bool) -> Fixture {
    filled(Fixture::new("4+2"), names, same_time)
}

fn filled(fixture: Fixture, names: &[&str], same_time: bool) -> Fixture {
    for (number, name) in names.iter().enumerate() {
        fixture.write(name, &content(number as u64));
        let file = fs::File::options().write(true).open(fixture.path(name)).unwrap();
        let seconds = 1_600_000_000 + if same_time { 0 } else { number as u64 };
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
    }
    fixture.protect_all();
    fixture
}

/// Repairs unmodified files as the daemon does, and expects this content.
fn assert_repaired(fixture: &Fixture, files: &[(&str, Vec<u8>)]) {
    let options = repair::Options { keep_changed: true, ..repair::Options::default() };
    for damage in repair::plan(&fixture.vault, b"", options, QUIET).unwrap().files {
        fixture.repair(std::str::from_utf8(&damage.path).unwrap());
    }
    for (name, content) in files {
        assert!(fixture.read(name) == *content, "{name}");
    }
    assert!(fixture.protect_all().affected.is_empty());
    fixture.assert_clean();
    assert!(fixture.protect_all().seen.changes.is_empty());
    assert_eq!(fixture.vault.catalogue.count().unwrap(), files.len() as u64);
}

/// Regression: the corrupt file was encoded as new content under its new name, and its redundancy was lost with the old
/// name.
#[test]
fn corruption_is_not_accepted_when_a_log_is_rotated() {
    for (same_time, corrupt) in [(false, "log"), (true, "log"), (false, "log.1"), (true, "log.1")] {
        let fixture = fixture(&["log", "log.1", "log.2"], same_time);
        flip(&fixture.path(corrupt), 50_000);
        rename(&fixture, "log.1", "log.2");
        rename(&fixture, "log", "log.1");
        fixture.write("log", b"begun anew");
        fixture.protect();
        let moved = if corrupt == "log" { "log.1" } else { "log.2" };
        assert_eq!(fixture.state(moved), State::Damaged, "{corrupt}, one time for all: {same_time}");
        let files = [("log", b"begun anew".to_vec()), ("log.1", content(0)), ("log.2", content(1))];
        assert_repaired(&fixture, &files);
    }
}

#[test]
fn corruption_is_not_accepted_when_names_are_swapped() {
    for same_time in [false, true] {
        let fixture = fixture(&["a", "b", "c"], same_time);
        flip(&fixture.path("a"), 50_000);
        for (from, to) in [("a", "free"), ("b", "a"), ("c", "b"), ("free", "c")] {
            rename(&fixture, from, to);
        }
        fixture.protect();
        assert_eq!(fixture.state("c"), State::Damaged);
        assert_repaired(&fixture, &[("a", content(1)), ("b", content(2)), ("c", content(0))]);
    }
}

/// Recorded damage follows the file to its new name.
#[test]
fn known_damage_follows_a_file_that_replaces_another() {
    let fixture = fixture(&["a", "b"], false);
    flip(&fixture.path("a"), 50_000);
    assert_eq!(fixture.state("a"), State::Damaged);
    rename(&fixture, "a", "b");
    let report = fixture.protect();
    assert_eq!(report.affected, [(State::Damaged, 1)], "{report:?}");
    assert!(!fixture.redundancy("a").exists());
    assert_repaired(&fixture, &[("b", content(0))]);
}

/// Regression: at the first rotation of a log `protect` encoded the renamed file as new content with its corruption,
/// and replaced the redundancy that could have repaired it. Workers with events behave as a scan does.
#[test]
fn corruption_is_not_accepted_when_a_file_gets_a_new_name_and_another_its_old_one() {
    for heard in [false, true] {
        for other in [false, true] {
            let fixture = fixture(&["log", "other"], false);
            flip(&fixture.path("log"), 500);
            rename(&fixture, "log", "log.1");
            let fresh = match other {
                true => {
                    rename(&fixture, "other", "log");
                    content(1)
                }
                false => {
                    fixture.write("log", b"fresh");
                    b"fresh".to_vec()
                }
            };
            if heard {
                let now = When::now(fixture.vault.clock.now(), 0);
                let moved = |from: &str, to: &str| Change::rename(from, to, now);
                let changes = match other {
                    true => vec![moved("log", "log.1"), moved("other", "log")],
                    false => vec![moved("log", "log.1"), Change::modify_whole("log", now)],
                };
                fixture.vault.changelog.record(&changes).unwrap();
                fixture.clock.set(fixture.clock.now() + 10 * SECOND);
                work(&fixture);
            }
            let report = fixture.protect_all();
            // A rename reads nothing, so a scrub is needed.
            fixture.scrub();
            let damaged = fixture.vault.catalogue.find(b"log.1").unwrap().unwrap();
            assert_eq!(damaged.state, State::Damaged, "heard {heard}, other {other}: {report:?}");
            let mut files = vec![("log", fresh), ("log.1", content(0))];
            files.extend((!other).then(|| ("other", content(1))));
            assert_repaired(&fixture, &files);
        }
    }
}

/// Changes at the old name of a file before its rename is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    /// Another file takes the name.
    Taken,
    /// Another file takes the name and is deleted.
    TakenAndFreed,
    /// Another file takes the name, and the first one is renamed again.
    TakenAndRenamed,
    /// The file is replaced by one with yet another name.
    Replaced,
    /// The directory of the file was renamed, and a new one takes its name.
    Directory,
}

/// Regression: while the rename of a protected file waits (quiet period or lower priority), a worker processes the new
/// file under the old name. It replaced or removed the redundancy there, and the renamed file was encoded with its
/// corruption.
#[test]
fn redundancy_is_kept_for_a_file_whose_rename_was_not_worked_off() {
    use Meanwhile::{Directory, Replaced, Taken, TakenAndFreed, TakenAndRenamed};
    for meanwhile in [Taken, TakenAndFreed, TakenAndRenamed, Replaced, Directory] {
        let names: &[&str] = if meanwhile == Directory { &["d/log", "other"] } else { &["log", "other"] };
        let fixture = fixture(names, false);
        let (old, new) = match meanwhile {
            Directory => ("d/log", "e/log"),
            _ => ("log", "log.9"),
        };
        flip(&fixture.path(old), 500);
        let record = |change: Change| {
            fixture.vault.changelog.record(&[change]).unwrap();
        };
        let now = || When::now(fixture.clock.now(), 0);
        let later = When::after_rest(fixture.clock.now(), 60 * SECOND, 600 * SECOND, 0);
        match meanwhile {
            Directory => {
                rename(&fixture, "d", "e");
                record(Change::rename("d", "e", later));
            }
            _ => {
                rename(&fixture, old, new);
                record(Change::rename(old, new, later));
            }
        }
        let mut files = vec![(new, content(0))];
        match meanwhile {
            Replaced => {
                rename(&fixture, "other", old);
                record(Change::rename("other", old, now()));
                files.push((old, content(1)));
            }
            _ => {
                fixture.write(old, b"fresh");
                record(Change::modify_whole(old, now()));
                files.push(("other", content(1)));
            }
        }
        match meanwhile {
            Taken | Replaced => {}
            Directory => files.push((old, b"fresh".to_vec())),
            TakenAndFreed => {
                fs::remove_file(fixture.path(old)).unwrap();
                record(Change::delete(old, now()));
            }
            TakenAndRenamed => {
                rename(&fixture, new, "log.10");
                record(Change::rename(new, "log.10", later));
                files[0].0 = "log.10";
            }
        }
        if matches!(meanwhile, Taken | TakenAndRenamed) {
            files.push((old, b"fresh".to_vec()));
        }
        fixture.clock.set(fixture.clock.now() + SECOND);
        work(&fixture);
        assert!(fixture.vault.changelog.pending().unwrap().entries() > 0, "{meanwhile:?}: the rename waits");
        fixture.clock.set(fixture.clock.now() + 600 * SECOND);
        if meanwhile != Directory {
            work(&fixture);
            assert_eq!(fixture.vault.changelog.pending().unwrap().entries(), 0, "{meanwhile:?}");
        }
        let report = fixture.protect_all();
        fixture.scrub();
        let damaged = fixture.vault.catalogue.find(files[0].0.as_bytes()).unwrap().unwrap();
        assert_eq!(damaged.state, State::Damaged, "{meanwhile:?}: {report:?}");
        assert_repaired(&fixture, &files);
    }
}

/// Processes recorded changes, as the worker of a watch does.
fn work(fixture: &Fixture) {
    let vault = &fixture.vault;
    let scanned = Scanned::default();
    let worker = live_worker(vault, &scanned);
    let done = worker.drain(None).unwrap();
    assert_eq!(done.failures, 0, "{done:?}");
}

/// All ways in which up to three files can exchange names or get a new one.
fn renamings() -> Vec<[&'static str; 3]> {
    let names = ["a", "b", "c", "z"];
    let mut all = Vec::new();
    for one in names {
        for two in names.into_iter().filter(|name| *name != one) {
            all.extend(
                names.into_iter().filter(|name| ![one, two].contains(name)).map(|three| [one, two, three]),
            );
        }
    }
    all
}

/// How a renaming becomes known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// By a scan.
    Scan,
    /// By events of renames through temporary names.
    Renames,
    /// By the same events and a write event for the corrupt file, whose size and mtime are unchanged.
    Written,
    /// By events of new hard links and removed old names.
    Links,
    /// By the same events, with the removals processed first.
    LinksLater,
}

/// Regression: a file in a chain of renames, or renamed through a hard link, was encoded as new content with its
/// corruption: its redundancy had been overwritten or removed when another file took its old name.
#[test]
fn corruption_is_not_accepted_whatever_names_files_get() {
    for heard in [Heard::Scan, Heard::Renames, Heard::Written, Heard::Links, Heard::LinksLater] {
        for names in renamings() {
            let case = format!("{heard:?} {names:?}");
            let fixture = fixture(&["a", "b", "c"], false);
            ["a", "b", "c"].iter().for_each(|name| flip(&fixture.path(name), 500));
            let moves: Vec<(&str, &str)> =
                ["a", "b", "c"].into_iter().zip(names).filter(|(from, to)| from != to).collect();
            let log = &*fixture.vault.changelog;
            let now = || When::now(fixture.clock.now(), 0);
            let record = |changes: &[Change]| {
                log.record(changes).unwrap();
            };
            let is_reported = heard != Heard::Scan;
            if heard == Heard::Written {
                record(&["a", "b", "c"].map(|name| Change::modify_whole(name, now())));
            }
            let temporary = |name: &str| format!("{name}.tmp");
            match heard {
                Heard::Scan | Heard::Renames | Heard::Written => {
                    for (from, to) in moves
                        .iter()
                        .map(|(from, _)| (from.to_string(), temporary(from)))
                        .chain(moves.iter().map(|(from, to)| (temporary(from), to.to_string())))
                    {
                        rename(&fixture, &from, &to);
                        if is_reported {
                            record(&[Change::rename(from, to, now())]);
                        }
                    }
                }
                Heard::Links | Heard::LinksLater => {
                    for (from, _) in &moves {
                        fs::hard_link(fixture.path(from), fixture.path(&temporary(from))).unwrap();
                        fs::remove_file(fixture.path(from)).unwrap();
                    }
                    moves.iter().for_each(|(from, to)| rename(&fixture, &temporary(from), to));
                    let gone = moves.iter().filter(|(from, _)| !names.contains(from));
                    let removed: Vec<Change> = gone.map(|(from, _)| Change::delete(*from, now())).collect();
                    let made: Vec<Change> =
                        moves.iter().map(|(_, to)| Change::modify_whole(*to, now())).collect();
                    match heard {
                        Heard::LinksLater => {
                            record(&removed);
                            fixture.clock.set(fixture.clock.now() + 10 * SECOND);
                            work(&fixture);
                            record(&made);
                        }
                        _ => record(&[made, removed].concat()),
                    }
                }
            }
            if is_reported {
                fixture.clock.set(fixture.clock.now() + 60 * SECOND);
                work(&fixture);
            }
            fixture.protect_all();
            fixture.scrub();
            let files: Vec<(&str, Vec<u8>)> =
                names.iter().enumerate().map(|(number, name)| (*name, content(number as u64))).collect();
            for name in names {
                let entry = fixture.vault.catalogue.find(name.as_bytes()).unwrap();
                assert_eq!(entry.map(|entry| entry.state), Some(State::Damaged), "{case}: {name}");
            }
            assert_repaired(&fixture, &files);
            assert_eq!(displaced(&fixture), 0, "{case}: nothing is kept that nobody asks for");
        }
    }
}

/// Number of set-aside redundancy files.
fn displaced(fixture: &Fixture) -> usize {
    fs::read_dir(fixture.vault.repository.path().join("displaced")).map_or(0, Iterator::count)
}

/// A tree in which a protected file was deleted and its inode reused by a new file; returns the old file's properties
/// and the new file's name. None if the file system does not reuse inodes; retried, since another process may take the
/// inode.
fn with_inode_given_again() -> Option<(Fixture, fs::Metadata, String)> {
    for _ in 0..20 {
        let fixture = Fixture::new("4+2");
        // The file system records creation times by the machine's clock.
        fixture.clock.set(Clock::System.now());
        let fixture = filled(fixture, &["old", "stays"], true);
        let before = fs::metadata(fixture.path("old")).unwrap();
        fs::remove_file(fixture.path("old")).unwrap();
        let mut made = Vec::new();
        let found = (0..500).find_map(|number| {
            let name = format!("new-{number}");
            fixture.write(&name, &content(7));
            made.push(name.clone());
            (fs::metadata(fixture.path(&name)).unwrap().ino() == before.ino()).then_some(name)
        });
        made.iter()
            .filter(|it| Some(*it) != found.as_ref())
            .for_each(|it| fs::remove_file(fixture.path(it)).unwrap());
        if let Some(name) = found {
            return Some((fixture, before, name));
        }
    }
    None
}

/// Regression: a new file that reused the inode of a deleted one, with the same size and mtime, was taken for the old
/// one under another name: it counted as protected without being read, then as damaged or lost, and `repair` overwrote
/// it with the old content.
#[test]
fn a_new_file_with_the_inode_size_and_time_of_a_deleted_one_is_another_file() {
    for heard in [false, true] {
        let Some((fixture, before, name)) = with_inode_given_again() else {
            return gabion_testkit::skip!(
                "a_new_file_with_the_inode: this file system gives no inode away again"
            );
        };
        let file = fs::File::options().write(true).open(fixture.path(&name)).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        drop(file);
        if heard {
            let now = When::now(fixture.clock.now(), 0);
            let changes = [Change::modify_whole(name.as_str(), now), Change::delete("old", now)];
            fixture.vault.changelog.record(&changes).unwrap();
            fixture.clock.set(fixture.clock.now() + 60 * SECOND);
            work(&fixture);
        }
        let report = fixture.protect_all();
        assert!(report.affected.is_empty(), "heard {heard}: {report:?}");
        fixture.assert_clean();
        flip(&fixture.path(&name), 500);
        assert_eq!(fixture.state(&name), State::Damaged, "it has redundancy of its own");
        assert_repaired(&fixture, &[(name.as_str(), content(7)), ("stays", content(1))]);
    }
}

/// A mount's view of a file: verified content, or none without redundancy of the file.
fn verified(fixture: &Fixture, name: &str, path: Option<&str>, names: &[&str]) -> Option<Vec<u8>> {
    let (vault, file) = (&fixture.vault, fs::File::open(fixture.path(name)).unwrap());
    let known: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let names = |_: &Generation| PossibleNames { known: known.clone(), ..PossibleNames::default() };
    let path = path.map(str::as_bytes);
    let reader = DegradedReader::of_open(&*vault.storage, &vault.coders, &file, path, names).unwrap()?;
    let mut content = Vec::new();
    copy_out(&reader, &mut content).unwrap();
    Some(content)
}

#[test]
fn redundancy_of_a_renamed_file_is_found_and_used_for_no_other_file() {
    let fixture = fixture(&["a", "b"], true);
    flip(&fixture.path("a"), 50_000);
    let inode = fs::metadata(fixture.path("a")).unwrap().ino();
    rename(&fixture, "a", "z");
    assert_eq!(verified(&fixture, "z", Some("z"), &[]), None, "nobody knows where it is");
    assert!(verified(&fixture, "z", Some("z"), &["b", "a"]) == Some(content(0)));
    assert_eq!(verified(&fixture, "b", None, &["a"]), None, "another file of the same size and time");
    // Set aside by a worker.
    let displaced = fixture.vault.repository.path().join("displaced");
    let kept = displaced.join(format!("{inode:016x}"));
    fs::create_dir_all(&displaced).unwrap();
    fs::rename(fixture.redundancy("a"), &kept).unwrap();
    assert!(verified(&fixture, "z", None, &["a"]) == Some(content(0)));
    // The redundancy there is of another file.
    fs::rename(fixture.redundancy("b"), &kept).unwrap();
    assert_eq!(verified(&fixture, "z", Some("z"), &["a", "b"]), None);
    assert_eq!(verified(&fixture, "b", Some("b"), &["b"]), None, "it is kept for another inode");
}

/// Regression: a worker had moved the redundancy of a file that was renamed directly, and not told the catalogue yet.
/// A mount that knew the file by its former name read it unverified.
#[test]
fn redundancy_that_is_being_moved_is_found_by_readers_who_know_the_former_name() {
    let fixture = fixture(&["a", "b"], true);
    flip(&fixture.path("a"), 50_000);
    rename(&fixture, "a", "z");
    let file = fs::File::open(fixture.path("z")).unwrap();
    let vault = &fixture.vault;
    let displaced = fixture.root().join(".gabion/displaced");
    fs::create_dir_all(&displaced).unwrap();
    let kept = displaced.join(format!("{:016x}", file.metadata().unwrap().ino()));
    fs::rename(fixture.redundancy("a"), &kept).unwrap();
    let asked = Cell::new(0);
    // The worker does its work between the questions.
    let names = |version: &Generation| {
        let names = vault.catalogue.possible_names(version).unwrap();
        assert_eq!(names.known, [b"a".to_vec()], "the catalogue is behind");
        asked.set(asked.get() + 1);
        if asked.get() == 1 {
            fs::rename(&kept, fixture.redundancy("z")).unwrap();
            return names;
        }
        PossibleNames { moving: vec![b"elsewhere".to_vec(), b"z".to_vec()], ..names }
    };
    let reader = DegradedReader::of_open(&*vault.storage, &vault.coders, &file, Some(b"a"), names).unwrap();
    let mut read = Vec::new();
    copy_out(&reader.expect("its redundancy is found"), &mut read).unwrap();
    assert!(read == content(0));
    assert_eq!(asked.get(), 2);
}

/// Redundancy of a deleted file matches a new file's inode, size and mtime and would return the old content.
#[test]
fn a_new_file_with_the_inode_of_a_deleted_one_is_not_read_by_its_redundancy() {
    let Some((fixture, before, name)) = with_inode_given_again() else {
        return gabion_testkit::skip!(
            "a_new_file_with_the_inode: this file system gives no inode away again"
        );
    };
    let file = fs::File::options().write(true).open(fixture.path(&name)).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    assert!(fixture.redundancy("old").exists());
    assert_eq!(verified(&fixture, &name, Some(&name), &["old"]), None);
}

/// Regression: a file with silent corruption got a second name and lost its first. One of its new names was encoded as
/// a new file, corruption included, and the two redundancy files contradicted each other for ever.
#[test]
fn corruption_is_not_accepted_when_a_file_gets_two_names_for_one() {
    for (of_directory, scrubbed) in [(false, false), (true, false), (false, true)] {
        let fixture = fixture(&["d/file", "other"], false);
        flip(&fixture.path("d/file"), 12_345);
        if scrubbed {
            fixture.scrub();
        }
        fs::hard_link(fixture.path("d/file"), fixture.path("link")).unwrap();
        let (from, to) = if of_directory { ("d", "e") } else { ("d/file", "d/moved") };
        rename(&fixture, from, to);
        let report = fixture.protect();
        assert_eq!(report.done.encoded, 0, "{report:?}");
        let name = if of_directory { "e/file" } else { "d/moved" };
        for _ in 0..2 {
            assert_repaired(&fixture, &[(name, content(0)), ("link", content(0)), ("other", content(1))]);
            fixture.protect_all();
        }
        fixture.assert_clean();
        assert_eq!(fixture.vault.catalogue.count().unwrap(), 3);
    }
}
