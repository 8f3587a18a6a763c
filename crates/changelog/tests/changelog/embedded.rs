//! The embedded engine.

use crate::compare_with_model;
use gabion_changelog::measure::{Load, measure};
use gabion_changelog::{
    Change, Changelog, Durability, Embedded, Error, Sequence, Span, When, WorkerId, conformance,
};
use gabion_platform::world::Timestamp;
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

fn site(directory: &Path) -> impl Fn(&str) -> Box<dyn Changelog> + Sync {
    move |name| Box::new(Embedded::open(&directory.join(name)).expect("a changelog"))
}

fn create(path: &str) -> Change {
    Change::modify_whole(path, When::now(Timestamp::EPOCH, 0))
}

#[test]
fn conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    conformance::check(&site(directory.path()));
}

#[test]
fn does_what_the_model_does() {
    let directory = tempfile::tempdir().expect("a directory");
    compare_with_model(&site(directory.path()));
}

/// Two processes on one host are two openings of the same files.
#[test]
fn several_openings_see_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, other) = (site(directory.path())("x"), site(directory.path())("x"));
    for round in 0..20 {
        assert_eq!(one.record(&[create("a")]).expect("recorded"), Sequence(2 * round + 1));
        assert_eq!(other.record(&[create("b")]).expect("recorded"), Sequence(2 * round + 2));
    }
    assert_eq!(one.entries(None, 9).expect("entries"), other.entries(None, 9).expect("entries"));
    assert_eq!(other.pending().expect("sums").entries(), 2);
}

#[test]
fn foreign_and_damaged_files_are_typed_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let with = |name: &str, file: &str, content: &[u8]| {
        fs::create_dir(at(name)).expect("a directory");
        fs::write(at(name).join(file), content).expect("a file");
        Embedded::open(&at(name)).map(drop)
    };
    for file in ["log.db", "pending.db"] {
        let text = b"this is a letter to my aunt, not a database\n".repeat(200);
        let refused = with(&format!("text-{file}"), file, &text);
        assert!(matches!(refused, Err(Error::Foreign { application: 0, .. })), "{refused:?}");
    }

    fs::create_dir(at("other")).expect("a directory");
    let other = Connection::open(at("other").join("log.db")).expect("a database");
    other.execute_batch("CREATE TABLE t (x); PRAGMA application_id = 77;").expect("a table");
    assert!(matches!(Embedded::open(&at("other")), Err(Error::Foreign { application: 77, .. })));

    drop(Embedded::open(&at("newer")).expect("a changelog"));
    let newer = Connection::open(at("newer").join("pending.db")).expect("a database");
    newer.execute_batch("PRAGMA user_version = 99;").expect("a version");
    assert!(matches!(Embedded::open(&at("newer")), Err(Error::Version { found: 99, .. })));
}

/// Changes without versions are stored as before there were any; the files get the present version.
#[test]
fn files_of_the_former_version_are_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = site(directory.path())("x");
    log.record(&[create("folded")]).expect("recorded");
    log.pending().expect("folded");
    log.record(&[create("b")]).expect("recorded");
    drop(log);
    let versions = |set: Option<[i64; 2]>| {
        let directory = directory.path();
        ["log.db", "pending.db"].iter().enumerate().map(move |(index, file)| {
            let file = Connection::open(directory.join("x").join(file)).expect("a database");
            if let Some(version) = set {
                file.pragma_update(None, "user_version", version[index]).expect("a version");
            }
            file.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).expect("a version")
        })
    };
    assert_eq!(versions(Some([1, 2])).collect::<Vec<_>>(), [1, 2]);
    let log = site(directory.path())("x");
    let span = Some(Span { from: [1; 16], to: [2; 16] });
    log.record(&[Change::modify("b", 0..1, When::now(Timestamp::EPOCH, 0)).between(span)]).expect("recorded");
    let entries = log.entries(None, 9).expect("entries");
    assert_eq!(entries.iter().map(|entry| entry.span).collect::<Vec<_>>(), [span, None]);
    assert!(entries.iter().all(|entry| entry.ranges.is_whole()));
    assert_eq!(versions(None).collect::<Vec<_>>(), [3, 4]);
}

/// A file that others wrote leads no worker out of the tree.
#[test]
fn paths_out_of_the_tree_are_damage() {
    for path in ["../a", "/etc/passwd", "a/../../b", "a//b", "a\0b", "."] {
        let directory = tempfile::tempdir().expect("a directory");
        let log = site(directory.path())("x");
        log.record(&[create("a")]).expect("recorded");
        log.pending().expect("folded");
        drop(log);
        let file = Connection::open(directory.path().join("x").join("pending.db")).expect("a database");
        assert_eq!(file.execute("UPDATE pending SET path = ?1", [path.as_bytes()]).expect("a change"), 1);
        drop(file);
        let log = site(directory.path())("x");
        let now = Timestamp::from_seconds(1);
        let claims = log.claim(&WorkerId("w".to_owned()), 9, Duration::from_secs(1), now);
        assert!(matches!(claims, Err(Error::Damaged { .. })), "{path:?}: {claims:?}");
        let entries = log.entries(None, 9);
        assert!(matches!(entries, Err(Error::Damaged { .. })), "{path:?}: {entries:?}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str, file: &str| directory.path().join(name).join(file);
    for name in ["one", "two", "lost-log", "lost-pending"] {
        let log = site(directory.path())(name);
        log.record(&[create("a"), create("b")]).expect("recorded");
        log.pending().expect("folded");
    }
    fs::copy(at("one", "log.db"), at("two", "log.db")).expect("copied");
    fs::remove_file(at("lost-log", "log.db")).expect("removed");
    fs::remove_file(at("lost-pending", "pending.db")).expect("removed");
    for name in ["two", "lost-log", "lost-pending"] {
        let refused = Embedded::open(&directory.path().join(name)).map(drop);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{name}: {refused:?}");
    }
    assert!(Embedded::open(&directory.path().join("one")).is_ok());
}

/// A page overwritten in either file is an error or goes unnoticed, but never a panic.
#[test]
fn a_page_of_rubbish_is_no_panic() {
    let directory = tempfile::tempdir().expect("a directory");
    for (number, file) in ["log.db", "pending.db"].iter().cycle().take(16).enumerate() {
        let name = format!("{number}");
        let log = site(directory.path())(&name);
        let changes: Vec<Change> = (0..2000).map(|i| create(&format!("file-{i}"))).collect();
        log.record(&changes).expect("recorded");
        if number % 4 < 2 {
            log.pending().expect("folded");
        }
        drop(log);
        let path = directory.path().join(&name).join(file);
        let mut bytes = fs::read(&path).expect("the database");
        let page = 4096 * (1 + number * 7 % (bytes.len() / 4096 - 1));
        bytes[page..page + 4096]
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte ^= (i * 31 + number) as u8);
        fs::write(&path, bytes).expect("written");
        let Ok(log) = Embedded::open(&directory.path().join(&name)) else { continue };
        for result in
            [log.pending().map(drop), log.entries(None, 4000).map(drop), log.record(&changes).map(drop)]
        {
            assert!(
                matches!(result, Ok(()) | Err(Error::Damaged { .. } | Error::Database { .. })),
                "{result:?}"
            );
        }
    }
}

/// The log is folded although nobody claims.
#[test]
fn the_log_stays_short() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = site(directory.path())("x");
    let mut time = Duration::from_secs(1);
    // Files are written to at random: a slow machine takes longer until each of them was.
    let measured = gabion_testkit::until_some("all files are recorded", || {
        time *= 2;
        let load = Load { writers: 2, files: 100, batch: 50, in_flight: 20, rate: 0, time };
        let measured = measure(&[&*log], &load).expect("measured");
        (log.pending().expect("sums").entries() == 100).then_some(measured)
    });
    assert!(measured.changes > 0 && measured.worst >= measured.mean);
    assert_eq!(log.durability(), Durability::Stable);
    let bytes = fs::metadata(directory.path().join("x/log.db")).expect("the log").len();
    assert!(bytes < 200 << 20, "{bytes} bytes of log after {} changes", measured.changes);
}

/// Processes that start at the same time, with nothing there yet, then record and claim against each other.
#[test]
fn many_openings_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let done: u64 = thread::scope(|scope| {
        let open_and_work = |number: u64| {
            let log = site(directory.path())("x");
            let worker = WorkerId(format!("worker-{number}"));
            let mut done = 0;
            for i in 0..50 {
                log.record(&[create(&format!("{number}/{i}"))]).expect("recorded");
                for claim in log.claim(&worker, 2, Duration::from_secs(1), Timestamp::EPOCH).expect("claims")
                {
                    log.complete(&claim).expect("completed");
                    done += 1;
                }
            }
            done
        };
        let threads: Vec<_> = (0..6).map(|number| scope.spawn(move || open_and_work(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let log = site(directory.path())("x");
    assert_eq!(log.sequence().expect("a number"), Sequence(300));
    assert_eq!(log.pending().expect("sums").entries() + done, 300, "each was done once or is pending");
}
