//! Files that are renamed over names of other protected files keep their redundancy, and their corruption is damage.

use super::playground::{Playground, QUIET, Seed, flip};
use gabion_vault::catalogue::State;
use gabion_vault::changelog::{Change, When};
use gabion_vault::degraded::{DegradedReader, copy_out};
use gabion_vault::repair;
use gabion_vault::tree::Generation;
use gabion_vault::worker::{self, Scanned, Worker};
use gabion_vault::world::{Clock, SECOND};
use std::fs;
use std::os::unix::fs::MetadataExt;

const SIZE: usize = 100_000;

fn content(number: u64) -> Vec<u8> {
    Seed(number).bytes(SIZE)
}

fn rename(ground: &Playground, from: &str, to: &str) {
    fs::rename(ground.path(from), ground.path(to)).unwrap();
}

/// Files with these names, one size and, as an archive that was unpacked has it, one time.
fn ground(names: &[&str], same_time: bool) -> Playground {
    filled(Playground::new("4+2"), names, same_time)
}

fn filled(ground: Playground, names: &[&str], same_time: bool) -> Playground {
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

/// What happens at the old name of a file before its rename is worked off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    /// Another file takes the name.
    Taken,
    /// Another file takes the name and is deleted.
    TakenAndFreed,
    /// Another file takes the name, and the first one is renamed once more.
    TakenAndRenamed,
    /// The file is replaced by one with yet another name.
    Replaced,
    /// The directory of the file is what was renamed, and a new one takes its name.
    Directory,
}

/// The rename of a protected file waits, for a quiet period or because its rule has a lower priority, and a worker comes to the new file at the old name first. It replaced
/// or removed the redundancy there, and the renamed file was encoded as it was, with its corruption.
#[test]
fn redundancy_is_kept_for_a_file_whose_rename_was_not_worked_off() {
    use Meanwhile::{Directory, Replaced, Taken, TakenAndFreed, TakenAndRenamed};
    for meanwhile in [Taken, TakenAndFreed, TakenAndRenamed, Replaced, Directory] {
        let names: &[&str] = if meanwhile == Directory { &["d/log", "other"] } else { &["log", "other"] };
        let ground = ground(names, false);
        let (old, new) = match meanwhile {
            Directory => ("d/log", "e/log"),
            _ => ("log", "log.9"),
        };
        flip(&ground.path(old), 500);
        let record = |change: Change| {
            ground.vault.changelog.record(&[change]).unwrap();
        };
        let now = || When::now(ground.clock.now(), 0);
        let later = When::after_rest(ground.clock.now(), 60 * SECOND, 600 * SECOND, 0);
        match meanwhile {
            Directory => {
                rename(&ground, "d", "e");
                record(Change::rename("d", "e", later));
            }
            _ => {
                rename(&ground, old, new);
                record(Change::rename(old, new, later));
            }
        }
        let mut files = vec![(new, content(0))];
        match meanwhile {
            Replaced => {
                rename(&ground, "other", old);
                record(Change::rename("other", old, now()));
                files.push((old, content(1)));
            }
            _ => {
                ground.write(old, b"fresh");
                record(Change::modify_whole(old, now()));
                files.push(("other", content(1)));
            }
        }
        match meanwhile {
            Taken | Replaced => {}
            Directory => files.push((old, b"fresh".to_vec())),
            TakenAndFreed => {
                fs::remove_file(ground.path(old)).unwrap();
                record(Change::delete(old, now()));
            }
            TakenAndRenamed => {
                rename(&ground, new, "log.10");
                record(Change::rename(new, "log.10", later));
                files[0].0 = "log.10";
            }
        }
        if matches!(meanwhile, Taken | TakenAndRenamed) {
            files.push((old, b"fresh".to_vec()));
        }
        ground.clock.set(ground.clock.now() + SECOND);
        work(&ground);
        assert!(ground.vault.changelog.pending().unwrap().entries() > 0, "{meanwhile:?}: the rename waits");
        ground.clock.set(ground.clock.now() + 600 * SECOND);
        if meanwhile != Directory {
            work(&ground);
            assert_eq!(ground.vault.changelog.pending().unwrap().entries(), 0, "{meanwhile:?}");
        }
        let report = ground.protect_all();
        ground.scrub();
        let damaged = ground.vault.catalogue.find(files[0].0.as_bytes()).unwrap().unwrap();
        assert_eq!(damaged.state, State::Damaged, "{meanwhile:?}: {report:?}");
        assert_repaired(&ground, &files);
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
    let done = worker.drain(Some(&vault.catalogue), None).unwrap();
    assert_eq!(done.failures, 0, "{done:?}");
}

/// All ways in which up to three files can get the names of each other, or a new one.
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

/// How the changes of a renaming become known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// By a scan.
    Scan,
    /// By events of the renames, which go by way of temporary names.
    Renames,
    /// By the same events, and one that says that the corrupt file was written: its size and time tell that it was not.
    Written,
    /// By events of new hard links and of the removal of old names.
    Links,
    /// By the same events; the removals are worked off first.
    LinksLater,
}

/// A file that took part in a chain of renames, or got a new name by a hard link, was encoded as new content with its corruption: its redundancy had been
/// overwritten or removed when another file took its old name.
#[test]
fn corruption_is_not_accepted_whatever_names_files_get() {
    for heard in [Heard::Scan, Heard::Renames, Heard::Written, Heard::Links, Heard::LinksLater] {
        for names in renamings() {
            let case = format!("{heard:?} {names:?}");
            let ground = ground(&["a", "b", "c"], false);
            ["a", "b", "c"].iter().for_each(|name| flip(&ground.path(name), 500));
            let moves: Vec<(&str, &str)> =
                ["a", "b", "c"].into_iter().zip(names).filter(|(from, to)| from != to).collect();
            let log = &*ground.vault.changelog;
            let now = || When::now(ground.clock.now(), 0);
            let record = |changes: &[Change]| {
                log.record(changes).unwrap();
            };
            let is_heard = heard != Heard::Scan;
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
                        rename(&ground, &from, &to);
                        if is_heard {
                            record(&[Change::rename(from, to, now())]);
                        }
                    }
                }
                Heard::Links | Heard::LinksLater => {
                    for (from, _) in &moves {
                        fs::hard_link(ground.path(from), ground.path(&temporary(from))).unwrap();
                        fs::remove_file(ground.path(from)).unwrap();
                    }
                    moves.iter().for_each(|(from, to)| rename(&ground, &temporary(from), to));
                    let gone = moves.iter().filter(|(from, _)| !names.contains(from));
                    let removed: Vec<Change> = gone.map(|(from, _)| Change::delete(*from, now())).collect();
                    let made: Vec<Change> =
                        moves.iter().map(|(_, to)| Change::modify_whole(*to, now())).collect();
                    match heard {
                        Heard::LinksLater => {
                            record(&removed);
                            ground.clock.set(ground.clock.now() + 10 * SECOND);
                            work(&ground);
                            record(&made);
                        }
                        _ => record(&[made, removed].concat()),
                    }
                }
            }
            if is_heard {
                ground.clock.set(ground.clock.now() + 60 * SECOND);
                work(&ground);
            }
            ground.protect_all();
            ground.scrub();
            let files: Vec<(&str, Vec<u8>)> =
                names.iter().enumerate().map(|(number, name)| (*name, content(number as u64))).collect();
            for name in names {
                let entry = ground.vault.catalogue.find(name.as_bytes()).unwrap();
                assert_eq!(entry.map(|entry| entry.state), Some(State::Damaged), "{case}: {name}");
            }
            assert_repaired(&ground, &files);
            assert_eq!(displaced(&ground), 0, "{case}: nothing is kept that nobody asks for");
        }
    }
}

/// Files of redundancy that were set aside.
fn displaced(ground: &Playground) -> usize {
    fs::read_dir(ground.vault.repository.path().join("displaced")).map_or(0, Iterator::count)
}

/// A tree in which a protected file was deleted and its inode given to a new one: what the old one was, and the name of the new one. Nothing where the file system does not
/// give inodes away again; another process may take one, so it is tried several times.
fn with_inode_given_again() -> Option<(Playground, fs::Metadata, String)> {
    for _ in 0..20 {
        let ground = Playground::new("4+2");
        // The file system records by the clock of the machine when files were made.
        ground.clock.set(Clock::System.now());
        let ground = filled(ground, &["old", "stays"], true);
        let before = fs::metadata(ground.path("old")).unwrap();
        fs::remove_file(ground.path("old")).unwrap();
        let mut made = Vec::new();
        let found = (0..500).find_map(|number| {
            let name = format!("new-{number}");
            ground.write(&name, &content(7));
            made.push(name.clone());
            (fs::metadata(ground.path(&name)).unwrap().ino() == before.ino()).then_some(name)
        });
        made.iter()
            .filter(|it| Some(*it) != found.as_ref())
            .for_each(|it| fs::remove_file(ground.path(it)).unwrap());
        if let Some(name) = found {
            return Some((ground, before, name));
        }
    }
    None
}

/// A file system gives the inode of a deleted file to the next one. A new file with the size and time of the deleted one was taken for it under another
/// name: it was called protected without being read, then damaged or lost, and `repair` put the old content over it.
#[test]
fn a_new_file_with_the_inode_size_and_time_of_a_deleted_one_is_another_file() {
    for heard in [false, true] {
        let Some((ground, before, name)) = with_inode_given_again() else {
            return gabion_testkit::skip!(
                "a_new_file_with_the_inode: this file system gives no inode away again"
            );
        };
        let file = fs::File::options().write(true).open(ground.path(&name)).unwrap();
        file.set_modified(before.modified().unwrap()).unwrap();
        drop(file);
        if heard {
            let now = When::now(ground.clock.now(), 0);
            let changes = [Change::modify_whole(name.as_str(), now), Change::delete("old", now)];
            ground.vault.changelog.record(&changes).unwrap();
            ground.clock.set(ground.clock.now() + 60 * SECOND);
            work(&ground);
        }
        let report = ground.protect_all();
        assert!(report.affected.is_empty(), "heard {heard}: {report:?}");
        ground.assert_clean();
        flip(&ground.path(&name), 500);
        assert_eq!(ground.state(&name), State::Damaged, "it has redundancy of its own");
        assert_repaired(&ground, &[(name.as_str(), content(7)), ("stays", content(1))]);
    }
}

/// What a mount reads of a file: content that was verified, nothing where no redundancy is the file's.
fn verified(ground: &Playground, name: &str, path: Option<&str>, names: &[&str]) -> Option<Vec<u8>> {
    let (vault, file) = (&ground.vault, fs::File::open(ground.path(name)).unwrap());
    let names = |_: &Generation| names.iter().map(|name| name.as_bytes().to_vec()).collect();
    let path = path.map(str::as_bytes);
    let reader = DegradedReader::of_open(&*vault.storage, &vault.coders, &file, path, names).unwrap()?;
    let mut content = Vec::new();
    copy_out(&reader, &mut content).unwrap();
    Some(content)
}

#[test]
fn redundancy_of_a_renamed_file_is_found_and_used_for_no_other_file() {
    let ground = ground(&["a", "b"], true);
    flip(&ground.path("a"), 50_000);
    let inode = fs::metadata(ground.path("a")).unwrap().ino();
    rename(&ground, "a", "z");
    assert_eq!(verified(&ground, "z", Some("z"), &[]), None, "nobody knows where it is");
    assert!(verified(&ground, "z", Some("z"), &["b", "a"]) == Some(content(0)));
    assert_eq!(verified(&ground, "b", None, &["a"]), None, "another file of the same size and time");
    // A worker has set it aside.
    let displaced = ground.vault.repository.path().join("displaced");
    let kept = displaced.join(format!("{inode:016x}"));
    fs::create_dir_all(&displaced).unwrap();
    fs::rename(ground.redundancy("a"), &kept).unwrap();
    assert!(verified(&ground, "z", None, &["a"]) == Some(content(0)));
    // What lies there is of another file.
    fs::rename(ground.redundancy("b"), &kept).unwrap();
    assert_eq!(verified(&ground, "z", Some("z"), &["a", "b"]), None);
    assert_eq!(verified(&ground, "b", Some("b"), &["b"]), None, "it is kept for another inode");
}

/// Redundancy of a deleted file has the inode, size and mtime of a new one, and would give it the old content.
#[test]
fn a_new_file_with_the_inode_of_a_deleted_one_is_not_read_by_its_redundancy() {
    let Some((ground, before, name)) = with_inode_given_again() else {
        return gabion_testkit::skip!(
            "a_new_file_with_the_inode: this file system gives no inode away again"
        );
    };
    let file = fs::File::options().write(true).open(ground.path(&name)).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
    assert!(ground.redundancy("old").exists());
    assert_eq!(verified(&ground, &name, Some(&name), &["old"]), None);
}
