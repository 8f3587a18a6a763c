//! Many threads at once.

use super::{Site, T0, all, at, claim, record, worker};
use crate::Changelog;
use crate::change::Change;
use crate::entry::Sequence;
use crate::ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const WRITERS: u64 = 8;
const WORKERS: usize = 4;
const FILES: u64 = 40;
const WRITES: u64 = 300;

/// What the workers did, by path.
#[derive(Default)]
struct Done {
    in_hands: BTreeSet<Vec<u8>>,
    ranges: BTreeMap<Vec<u8>, Ranges>,
    tokens: BTreeSet<u64>,
}

/// Every writer writes bytes of its own into files of all; the workers' claims must cover each byte, and no file
/// may be in two hands.
pub(super) fn nothing_is_lost_and_nothing_claimed_twice(site: Site<'_>, name: &str) {
    let log = site(name);
    let done = Mutex::new(Done::default());
    let writing = AtomicBool::new(true);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let (log, done, writing) = (&*log, &done, &writing);
                scope.spawn(move || work(log, &format!("worker-{number}"), done, writing))
            })
            .collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let log = &*log;
                scope.spawn(move || write(log, writer))
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
        writing.store(false, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    });
    assert_eq!(all(&*log), []);
    assert_eq!(log.sequence().expect("a number"), Sequence(WRITERS * WRITES));
    let done = done.into_inner().expect("no panic");
    let mut expected: BTreeMap<Vec<u8>, Ranges> = BTreeMap::new();
    for (writer, number) in (0..WRITERS).flat_map(|writer| (0..WRITES).map(move |number| (writer, number))) {
        let (path, start) = place(writer, number);
        expected.entry(path).or_default().insert(start..start + 10);
    }
    assert_eq!(done.ranges, expected);
}

/// Writers share every file, and their bytes touch those of their neighbours, so that few ranges remain.
fn place(writer: u64, number: u64) -> (Vec<u8>, u64) {
    let path = format!("d{}/f{}", number % 3, number % FILES).into_bytes();
    (path, (number / FILES * WRITERS + writer) * 10)
}

fn write(log: &dyn Changelog, writer: u64) {
    let mut tickets = Vec::new();
    for number in 0..WRITES {
        let (path, start) = place(writer, number);
        let change = Change::modify(path, start..start + 10, at(T0));
        if number % 10 == 0 {
            record(log, &[change]);
        } else {
            tickets.push(log.record_later(&[change]).expect("taken"));
        }
    }
    tickets.into_iter().for_each(|ticket| assert!(ticket.wait().expect("recorded") > Sequence(0)));
}

fn work(log: &dyn Changelog, name: &str, done: &Mutex<Done>, writing: &AtomicBool) {
    loop {
        let last_round = !writing.load(Ordering::SeqCst);
        let claims = log.claim(&worker(name), 5, Duration::from_secs(1000), T0).expect("claims");
        if claims.is_empty() && last_round && all(log).is_empty() {
            return;
        }
        for claim in &claims {
            let mut done = done.lock().expect("no panic");
            assert!(done.tokens.insert(claim.token), "every claim has its own number");
            assert!(done.in_hands.insert(claim.entry.path.clone()), "two workers for one path");
        }
        thread::yield_now();
        for claim in &claims {
            {
                let mut done = done.lock().expect("no panic");
                let ranges = done.ranges.entry(claim.entry.path.clone()).or_default();
                claim.entry.ranges.as_slice().iter().for_each(|range| ranges.insert(range.clone()));
                done.in_hands.remove(&claim.entry.path);
            }
            assert!(log.still_mine(claim).expect("an answer"));
            log.complete(claim).expect("completed");
        }
    }
}

pub(super) fn tickets_come_in_order(site: Site<'_>, name: &str) {
    let log = site(name);
    let ticket = |i: u64| {
        let changes: Vec<Change> =
            (0..=i % 3).map(|j| Change::modify(format!("f{i}"), j * 10..j * 10 + 5, at(T0))).collect();
        log.record_later(&changes).expect("taken")
    };
    let tickets: Vec<_> = (0..300).map(ticket).collect();
    let mut expected = 0;
    for (i, ticket) in (0..).zip(tickets) {
        expected += i % 3 + 1;
        assert_eq!(ticket.wait().expect("recorded"), Sequence(expected));
    }
    assert_eq!(record(&*log, &[]), Sequence(expected), "an empty record waits for all before it");
    assert_eq!(claim(&*log, "w", 1000, T0).len(), 300);
}
