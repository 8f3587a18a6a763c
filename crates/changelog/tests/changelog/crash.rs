//! Kill -9 at any moment: what was acknowledged is there.
//!
//! Each writer has one file, writes to it again and again and sometimes renames it, and waits for every
//! acknowledgment before the next change. So whatever the moment, its file has all that was acknowledged, under
//! one of two names.

use crate::server::TestServer;
use gabion_changelog::{Change, Changelog, Embedded, Entry, Kind, Redis, When, WorkerId};
use gabion_platform::world::Timestamp;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const WRITERS: u64 = 4;
/// Every so many changes the file gets another name.
const RENAME: u64 = 37;
/// What the writers' files are due; the worker lives earlier.
const LATER: Timestamp = Timestamp::from_nanoseconds(1_000_000);

/// The n-th change of a writer.
fn nth_change(writer: &str, n: u64) -> Change {
    let name = |generation| format!("{writer}-{generation}");
    let when = When::now(LATER, 0);
    let generation = n / RENAME;
    if n.is_multiple_of(RENAME) && n > 0 {
        Change::rename(name(generation - 1), name(generation), when)
    } else {
        Change::modify(name(generation), n * 20..n * 20 + 10, when)
    }
}

/// Records until the changelog fails or it is told to stop; says each acknowledged change.
fn write(log: &dyn Changelog, writer: &str, stop: &AtomicBool, acknowledged: impl Fn(u64)) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) || log.record(&[nth_change(writer, n)]).is_err() {
            return;
        }
        acknowledged(n);
    }
}

/// Keeps the tables busy with entries of its own, so that a crash finds folds and claims under way.
fn work(log: &dyn Changelog, stop: &AtomicBool) {
    let worker = WorkerId("worker".to_owned());
    while !stop.load(Ordering::Relaxed) {
        let recorded = log.record(&[
            Change::modify_whole("work/a", When::now(Timestamp::EPOCH, 9)),
            Change::delete("work", When::now(Timestamp::EPOCH, 9)),
        ]);
        let Ok(claims) = recorded
            .and_then(|_| log.claim(&worker, 3, Duration::from_nanos(5), Timestamp::from_nanoseconds(1)))
        else {
            return;
        };
        for (number, claim) in claims.iter().enumerate() {
            // Refusals and a server that is away are part of the game.
            let _ = if number % 2 == 0 {
                log.complete(claim).map(drop)
            } else {
                log.release(claim, Timestamp::from_nanoseconds(2), Timestamp::from_nanoseconds(1))
            };
        }
    }
}

fn all_entries(log: &dyn Changelog) -> Vec<Entry> {
    log.entries(None, 4096).expect("entries")
}

/// The file of the writer has everything up to its `last` acknowledged change.
fn check(entries: &[Entry], writer: &str, last: u64) {
    let prefix = format!("{writer}-");
    let mut files = entries
        .iter()
        .filter(|entry| entry.path.starts_with(prefix.as_bytes()) && entry.kind == Kind::Modify);
    let file = files.next().unwrap_or_else(|| panic!("{writer}: nothing is left of {last} changes"));
    assert_eq!(files.next(), None, "{writer} has one file");
    for n in (0..=last).filter(|n| !n.is_multiple_of(RENAME) || *n == 0) {
        let covers = |range: &std::ops::Range<u64>| range.start <= n * 20 && n * 20 + 10 <= range.end;
        assert!(file.ranges.as_slice().iter().any(covers), "{writer}: change {n} of {last} is forgotten");
    }
    let path = String::from_utf8_lossy(&file.path).into_owned();
    let generations = [last / RENAME, (last + 1) / RENAME].map(|generation| format!("{prefix}{generation}"));
    assert!(generations.contains(&path), "{path} after change {last}");
}

/// The child of the test below: it is told on standard input where to work, and works until it is killed.
#[test]
#[ignore = "is run by `a_process_that_is_killed_loses_nothing`"]
fn child() {
    let mut told = String::new();
    std::io::stdin().read_line(&mut told).expect("a line");
    let Some((round, directory)) = told.trim_end().split_once(' ') else { return };
    let log = Embedded::open(Path::new(directory)).expect("a changelog");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (log, stop) = (&log, &stop);
            scope.spawn(move || {
                let writer = format!("r{round}w{number}");
                // One system call for each line, so that it is whole or not there.
                let say = |n| {
                    std::io::stdout().write_all(format!("ack {writer} {n}\n").as_bytes()).expect("a parent")
                };
                write(log, &writer, stop, say);
            });
        }
        scope.spawn(|| work(&log, &stop));
    });
}

#[test]
fn a_process_that_is_killed_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut expected: Vec<(String, u64)> = Vec::new();
    let mut dice = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "crash::child", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let told = format!("{round} {}\n", directory.path().display());
        child.stdin.take().expect("a pipe").write_all(told.as_bytes()).expect("told");
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kill_after = 1 + (dice >> 33) % 800;
        let mut last = [None; WRITERS as usize];
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut hear = |line: &str| {
            if let Some((writer, n)) = line.strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
                let number: usize = writer.rsplit('w').next().and_then(|n| n.parse().ok()).expect("a writer");
                last[number] = Some(n.parse::<u64>().expect("a number"));
            }
        };
        for line in lines.by_ref().map_while(Result::ok).take(kill_after as usize) {
            hear(&line);
        }
        child.kill().expect("killed");
        // What it said before it died counts as well.
        lines.map_while(Result::ok).for_each(|line| hear(&line));
        child.wait().expect("gone");
        let heard =
            last.iter().enumerate().filter_map(|(number, n)| Some((format!("r{round}w{number}"), (*n)?)));
        expected.extend(heard);
        let log = Embedded::open(directory.path()).expect("a changelog");
        let entries = all_entries(&log);
        expected.iter().for_each(|(writer, last)| check(&entries, writer, *last));
    }
    assert!(expected.len() >= 12, "every child wrote something");
}

/// The check above can fail.
#[test]
#[should_panic(expected = "is forgotten")]
fn a_forgotten_change_is_noticed() {
    let log = gabion_changelog::model::Model::new();
    for n in (0..50).filter(|n| *n != 17) {
        log.record(&[nth_change("w", n)]).expect("recorded");
    }
    check(&all_entries(&log), "w", 49);
}

#[test]
fn a_server_that_is_killed_loses_nothing() {
    let mut server = TestServer::start();
    let mut expected: Vec<(String, u64)> = Vec::new();
    for round in 0..5_u64 {
        let log = Redis::open(&server.server("x")).expect("a changelog");
        let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (log, stop, count) = (&log, &stop, &count);
            let write_one = |number| {
                let writer = format!("r{round}w{number}");
                let last = std::cell::Cell::new(None);
                write(log, &writer, stop, |n| {
                    last.set(Some(n));
                    count.fetch_add(1, Ordering::Relaxed);
                });
                last.get().map(|last| (writer, last))
            };
            let writers: Vec<_> = (0..WRITERS).map(|number| scope.spawn(move || write_one(number))).collect();
            scope.spawn(|| work(log, stop));
            // The first server is killed under way and started again at once: callers notice nothing. The second
            // stays away. So many changes of all writers that one of them has renamed its file.
            let acknowledged = |more: u64| {
                let enough = count.load(Ordering::Relaxed) + more;
                gabion_testkit::until("changes are acknowledged", || count.load(Ordering::Relaxed) >= enough);
            };
            acknowledged(WRITERS * RENAME + 53 * round);
            server.kill();
            server.restart();
            acknowledged(1 + 41 * round);
            if round % 2 == 0 {
                server.kill();
            }
            stop.store(true, Ordering::Relaxed);
            expected.extend(writers.into_iter().filter_map(|writer| writer.join().expect("no panic")));
        });
        drop(log);
        if round % 2 == 0 {
            server.restart();
        }
        let log = Redis::open(&server.server("x")).expect("a changelog");
        let entries = all_entries(&log);
        expected.iter().for_each(|(writer, last)| check(&entries, writer, *last));
    }
    assert!(expected.iter().any(|(_, last)| *last > RENAME), "files were renamed");
}
