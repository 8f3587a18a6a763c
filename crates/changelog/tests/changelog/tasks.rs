//! Tasks that workers share, on a real server.

use crate::server::TestServer;
use gabion_changelog::tasks::{Amounts, Held, KnownTask, NewTask, TaskId, TaskKind, Tasks, Wanted};
use gabion_changelog::{Ask, Changelog, Limits, Redis, WorkerId};
use gabion_platform::world::Timestamp;
use gabion_testkit::{until, until_some};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::from_millis(1);
const ENCODE: TaskKind = TaskKind(b'e');
const OTHER: TaskKind = TaskKind(b'o');
const ANY: Wanted<'_> = Wanted::Any { kinds: &[ENCODE, OTHER], except: &[], priority: 0 };

fn worker(name: &str) -> WorkerId {
    WorkerId(name.to_owned())
}

fn id(number: u8) -> TaskId {
    TaskId([number; 16])
}

fn new_task(id: TaskId, owner: &WorkerId) -> NewTask<'_> {
    NewTask { id, kind: ENCODE, priority: 0, owner, about: b"", amounts: Amounts::default() }
}

fn open_task(tasks: &dyn Tasks, task: NewTask<'_>, lease: Duration) {
    tasks.open_task(&task, lease).expect("opened");
}

fn open(tasks: &dyn Tasks, number: u8, kind: TaskKind, priority: u8, portions: u64) -> TaskId {
    let about = &[number, 0, 255];
    open_task(tasks, NewTask { kind, priority, about, ..new_task(id(number), &worker("owner")) }, LONG);
    assert!(tasks.add_portions(id(number), portions, &[]).expect("added"));
    id(number)
}

fn with_tasks(check: impl Fn(&dyn Tasks)) {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    check(log.tasks().expect("tasks"));
}

/// Takes a portion as soon as a lease of another worker has run out.
fn take_over(tasks: &dyn Tasks, name: &str) -> gabion_changelog::tasks::Portion {
    until_some("the lease of another worker has ended", || {
        tasks.take(&worker(name), ANY, LONG).expect("an answer")
    })
}

#[test]
fn each_portion_is_done_once_and_its_result_collected_once() {
    with_tasks(a_task_from_its_beginning_to_its_end);
}

/// Every operation on tasks.
pub(crate) fn a_task_from_its_beginning_to_its_end(tasks: &dyn Tasks) {
    let task = open(tasks, 1, ENCODE, 0, 0);
    let contents = [b"first".to_vec(), b"second \0\r\n".to_vec(), Vec::new()];
    assert!(tasks.add_portions(task, 3, &contents).unwrap());
    let taken: Vec<_> =
        ["a", "b", "a"].iter().map(|name| tasks.take(&worker(name), ANY, LONG).unwrap().unwrap()).collect();
    assert_eq!(tasks.take(&worker("c"), ANY, LONG).unwrap(), None);
    for (number, portion) in taken.iter().enumerate() {
        assert_eq!((portion.task, portion.kind, portion.number), (task, ENCODE, number as u64));
        assert_eq!((&portion.about[..], &portion.content), (&[1, 0, 255][..], &contents[number]));
    }
    assert!(tasks.finish(&taken[1], b"done \0").unwrap());
    assert!(!tasks.finish(&taken[1], b"again").unwrap(), "it is finished");
    let amounts = Amounts { files: 1, bytes: 2, all_files: 3, all_bytes: u64::MAX };
    assert_eq!(tasks.keep(&[Held::Task(task, amounts)], LONG).unwrap(), [true]);
    let known = tasks.known_tasks().unwrap();
    let (workers, age) = (vec![worker("a")], known[0].age);
    let (owner, portions) = (worker("owner"), 3);
    assert!(age < LONG);
    let known_task =
        KnownTask { id: task, kind: ENCODE, owner, portions, finished: 1, taken: 2, workers, age, amounts };
    assert_eq!(known, [known_task]);
    let collected = tasks.collect(task, &[0, 1, 2]).unwrap().unwrap();
    assert_eq!((collected.finished, collected.overtaken), (1, 0));
    assert_eq!(collected.results, [(1, b"done \0".to_vec())]);
    // An answer that was lost: the results are there until they are forgotten.
    assert_eq!(tasks.collect(task, &[1]).unwrap().unwrap(), collected);
    tasks.forget_results(task, &[1]).unwrap();
    assert_eq!(tasks.collect(task, &[1]).unwrap().unwrap().results, []);
    // What is given back is taken again, and only its new taker finishes it.
    tasks.put_back(&taken[0]).unwrap();
    let again = tasks.take(&worker("c"), ANY, LONG).unwrap().unwrap();
    assert_eq!((again.number, &again.content), (0, &contents[0]));
    assert!(!tasks.finish(&taken[0], b"").unwrap());
    tasks.put_back(&taken[0]).unwrap();
    assert!(tasks.finish(&again, b"").unwrap());
    tasks.close_task(task).unwrap();
    assert!(!tasks.finish(&taken[2], b"").unwrap());
    assert!(!tasks.add_portions(task, 4, &[]).unwrap());
    assert_eq!(tasks.collect(task, &[0]).unwrap(), None);
    assert_eq!(tasks.known_tasks().unwrap(), []);
}

#[test]
fn the_portion_of_a_silent_worker_is_given_to_another_one() {
    with_tasks(|tasks| {
        let task = open(tasks, 1, ENCODE, 0, 1);
        let lost = tasks.take(&worker("silent"), ANY, NOW).unwrap().unwrap();
        let taken = take_over(tasks, "second");
        assert_eq!(taken.number, lost.number);
        assert_ne!(taken.token, lost.token);
        let held = |it: &gabion_changelog::tasks::Portion| Held::Portion {
            task: it.task,
            number: it.number,
            token: it.token,
        };
        assert_eq!(tasks.keep(&[held(&lost), held(&taken)], LONG).unwrap(), [false, true]);
        assert!(!tasks.finish(&lost, b"late").unwrap());
        assert!(tasks.finish(&taken, b"good").unwrap());
        let collected = tasks.collect(task, &[0]).unwrap().unwrap();
        assert_eq!((collected.finished, collected.overtaken), (1, 1));
        assert_eq!(collected.results, [(0, b"good".to_vec())]);
    });
}

#[test]
fn a_lease_that_is_renewed_does_not_end() {
    with_tasks(|tasks| {
        let task = open(tasks, 1, ENCODE, 0, 1);
        let taken = tasks.take(&worker("first"), ANY, NOW).unwrap().unwrap();
        let task_of = |id| Held::Task(id, Amounts::default());
        let held = [Held::Portion { task, number: 0, token: taken.token }, task_of(task), task_of(id(9))];
        assert_eq!(tasks.keep(&held, LONG).unwrap(), [true, true, false]);
        std::thread::sleep(10 * NOW);
        assert_eq!(tasks.take(&worker("second"), ANY, LONG).unwrap(), None);
        assert!(tasks.finish(&taken, b"").unwrap());
    });
}

#[test]
fn a_task_without_its_owner_is_dropped() {
    with_tasks(|tasks| {
        open_task(tasks, NewTask { priority: 9, ..new_task(id(1), &worker("dead")) }, NOW);
        tasks.add_portions(id(1), 5, &[vec![1; 10], vec![2; 10]]).unwrap();
        let alive = open(tasks, 2, ENCODE, 0, 1);
        std::thread::sleep(10 * NOW);
        assert_eq!(tasks.take(&worker("first"), ANY, LONG).unwrap().unwrap().task, alive);
        assert_eq!(tasks.known_tasks().unwrap().len(), 1);
        assert_eq!(tasks.collect(id(1), &[]).unwrap(), None);
    });
}

#[test]
fn workers_get_what_they_know_by_priority_and_age() {
    with_tasks(|tasks| {
        let (old, new) = (open(tasks, 1, ENCODE, 1, 2), open(tasks, 2, ENCODE, 1, 1));
        let (urgent, foreign) = (open(tasks, 3, ENCODE, 2, 1), open(tasks, 4, OTHER, 9, 1));
        let take = |wanted| tasks.take(&worker("w"), wanted, LONG).unwrap().map(|portion| portion.task);
        let kinds = &[ENCODE];
        let most = [urgent, old];
        assert_eq!(take(Wanted::Any { kinds, except: &most, priority: 2 }), None);
        assert_eq!(take(Wanted::Any { kinds, except: &most, priority: 1 }), Some(new));
        assert_eq!(take(Wanted::Any { kinds, except: &[], priority: 0 }), Some(urgent));
        assert_eq!(take(Wanted::Any { kinds, except: &[], priority: 0 }), Some(old));
        assert_eq!(take(Wanted::Of(urgent)), None);
        assert_eq!(take(Wanted::Of(old)), Some(old));
        assert_eq!(take(Wanted::Any { kinds, except: &[], priority: 0 }), None);
        assert_eq!(take(ANY), Some(foreign));
    });
}

/// A changelog that is given up keeps no tasks.
#[test]
fn tasks_are_forgotten_with_the_changelog() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    open(log.tasks().unwrap(), 1, ENCODE, 0, 3);
    log.forget_all().unwrap();
    assert_eq!(log.tasks().unwrap().known_tasks().unwrap(), []);
}

/// Redis keeps everything of several clients in order: no portion is taken twice.
#[test]
fn many_workers_share_a_task() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    let tasks = log.tasks().unwrap();
    let task = open(tasks, 1, ENCODE, 0, 100);
    std::thread::scope(|scope| {
        for number in 0..4u8 {
            let log = Redis::open(&server.server("x")).expect("a changelog");
            scope.spawn(move || {
                let tasks = log.tasks().unwrap();
                let me = worker(&number.to_string());
                while let Some(portion) = tasks.take(&me, Wanted::Of(task), LONG).unwrap() {
                    assert!(tasks.finish(&portion, &[number]).unwrap());
                }
            });
        }
    });
    let mut all: Vec<u64> = (0..100).collect();
    let collected = tasks.collect(task, &all).unwrap().unwrap();
    let mut numbers: Vec<u64> = collected.results.iter().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!((collected.finished, collected.overtaken), (100, 0));
    assert_eq!(numbers, std::mem::take(&mut all));
}

/// Regression: a server that came back with less than it had gave tokens of portions again.
#[test]
fn a_portion_from_before_a_loss_is_refused() {
    let mut server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    let tasks = log.tasks().expect("tasks");
    open(tasks, 1, ENCODE, 0, 1);
    let state = server.state();
    let before = tasks.take(&worker("a"), ANY, LONG).unwrap().unwrap();
    server.restore(&state);
    let after = tasks.take(&worker("b"), ANY, LONG).unwrap().unwrap();
    assert_eq!((before.task, before.number), (after.task, after.number));
    assert!(!tasks.finish(&before, b"before").unwrap());
    assert!(tasks.finish(&after, b"after").unwrap());
}

/// Portions count like claims: as many workers of a host as its limits allow hold one or the other.
#[test]
fn workers_at_portions_count_for_the_limits_of_their_host() {
    let server = TestServer::start();
    let log = Redis::open(&server.server("x")).expect("a changelog");
    let tasks = log.tasks().expect("tasks");
    let task = open(tasks, 1, ENCODE, 0, 9);
    let limits = Limits { rate: Some(100), at_once: Some(1) };
    log.set_limits("a", Some(limits)).unwrap();
    let take = |name: &str| tasks.take(&worker(name), ANY, LONG).unwrap();
    let first = take("a/1").expect("a portion");
    assert_eq!(take("a/2"), None, "the host is full");
    assert!(take("a/1").is_some(), "who is at work goes on");
    assert!(take("ab/2").is_some() && take("ab/3").is_some(), "other hosts are free");
    let rates = ["a/1", "a/2", "ab/4"].map(|name| log.allowance(&worker(name)).unwrap());
    assert_eq!(rates.map(|it| (it.others, it.rate())), [(0, Some(100)), (1, Some(50)), (2, None)]);
    let name = worker("a/2");
    let ask = |heeds_drain| Ask {
        worker: &name,
        limit: 1,
        threads: 1,
        lease: LONG,
        attends: false,
        insists: false,
        heeds_drain,
    };
    assert!(log.claim_share(&ask(true), Timestamp::EPOCH).unwrap().is_limited);
    assert!(!log.claim_share(&ask(false), Timestamp::EPOCH).unwrap().is_limited);
    // The owner of a task does its own portions.
    assert!(tasks.take(&name, Wanted::Of(task), NOW).unwrap().is_some());
    until("its lease has ended", || log.allowance(&worker("a/1")).unwrap().others == 0);
    assert!(tasks.finish(&first, b"").unwrap());
    tasks.close_task(task).unwrap();
    assert_eq!(log.allowance(&name).unwrap().others, 0);
    open(tasks, 2, ENCODE, 0, 1);
    assert!(take("a/2").is_some());
}
