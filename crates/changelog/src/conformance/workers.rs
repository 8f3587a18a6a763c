//! Known workers, their shares, and drains.

use super::{Site, T0, claim, now, paths, record, worker};
use crate::Changelog;
use crate::change::Change;
use crate::entry::{Claim, WorkerId};
use crate::share::{Ask, Share, WORKER_TERM};
use gabion_platform::world::{SECOND, Timestamp};
use std::time::Duration;

fn ask(worker: &WorkerId, limit: usize) -> Ask<'_> {
    Ask {
        worker,
        limit,
        threads: 1,
        lease: Duration::from_secs(100),
        attends: true,
        insists: false,
        heeds_drain: true,
    }
}

fn share(log: &dyn Changelog, name: &str, limit: usize, time: Timestamp) -> Share {
    log.claim_share(&ask(&worker(name), limit), time).expect("an answer")
}

fn record_files(log: &dyn Changelog, files: usize) {
    let changes: Vec<Change> =
        (0..files).map(|number| Change::modify_whole(format!("f{number:04}"), now())).collect();
    record(log, &changes);
}

fn complete(log: &dyn Changelog, share: &Share) {
    complete_all(log, &share.claims);
}

fn complete_all(log: &dyn Changelog, claims: &[Claim]) {
    let claims: Vec<&Claim> = claims.iter().collect();
    let completed = log.complete_all(&claims).expect("an answer");
    assert!(completed.iter().all(Result::is_ok), "{completed:?}");
}

/// The fast worker does all of its share before the slow one looks for the first time, and finds the rest reserved.
pub(super) fn shares_are_equal(site: Site<'_>, name: &str) {
    let log = site(name);
    for name in ["a/1", "b/1"] {
        assert!(!log.attend(&worker(name), T0).expect("an answer"));
    }
    for round in 0..2 {
        record_files(&*log, 20);
        let mut counts = [0, 0];
        loop {
            let share = share(&*log, "a/1", 16, T0);
            counts[0] += share.claims.len();
            complete(&*log, &share);
            if share.is_reserved {
                assert!(share.claims.is_empty() && share.due == 10, "{share:?}");
                break;
            }
            assert!(!share.claims.is_empty());
        }
        while let claims @ Share { due: 1.., .. } = share(&*log, "b/1", 16, T0) {
            assert!(!claims.claims.is_empty(), "its share waits for it");
            counts[1] += claims.claims.len();
            complete(&*log, &claims);
        }
        assert_eq!(counts, [10, 10], "round {round}");
    }
    // One that does not come for its share loses it.
    record_files(&*log, 20);
    let first = worker("a/1");
    while let share @ Share { is_reserved: false, .. } = share(&*log, "a/1", 16, T0) {
        complete(&*log, &share);
    }
    let insisting = Ask { insists: true, ..ask(&first, 16) };
    assert_eq!(log.claim_share(&insisting, T0).expect("an answer").claims.len(), 2);
}

/// Given back claims count as not granted: a worker is not refused because of work that it did not do.
pub(super) fn what_is_given_back_is_not_counted(site: Site<'_>, name: &str) {
    let log = site(name);
    assert!(!log.attend(&worker("b/1"), T0).expect("an answer"));
    record_files(&*log, 16);
    for _ in 0..20 {
        let claims = share(&*log, "a/1", 16, T0).claims;
        assert_eq!(claims.len(), 2);
        log.give_back(&claims.iter().collect::<Vec<_>>(), T0).expect("given back");
    }
    let entries = log.entries(None, 100).expect("entries");
    assert!(
        entries.iter().all(|entry| entry.attempts == 0 && entry.token.is_none()),
        "no attempt is counted"
    );
}

pub(super) fn a_worker_alone_gets_what_it_asks_for(site: Site<'_>, name: &str) {
    let log = site(name);
    record_files(&*log, 30);
    let looked = share(&*log, "a/1", 0, T0);
    assert_eq!(
        (looked.due, looked.claims.len(), looked.is_reserved, looked.has_others),
        (30, 0, false, false)
    );
    let all = share(&*log, "a/1", 16, T0);
    assert_eq!((all.claims.len(), all.is_reserved, all.has_others), (16, false, false));
    assert_eq!(paths(&all.claims)[..2], ["f0000", "f0001"], "in the order of claims");
    // One that attends not, but holds claims, counts as another worker from then on.
    let other = claim(&*log, "c/1", 2, T0);
    let second = share(&*log, "a/1", 16, T0);
    assert_eq!((second.claims.len(), second.due, second.has_others), (2, 12, true));
    complete_all(&*log, &other);
    complete(&*log, &all);
    complete(&*log, &second);
    assert_eq!(share(&*log, "a/1", 16, T0).claims.len(), 10);
}

/// A worker that gives no sign of life is forgotten, and so is one that leaves or is dead.
pub(super) fn workers_are_known_for_a_time(site: Site<'_>, name: &str) {
    let log = site(name);
    let names = |time| -> Vec<(String, u64, bool)> {
        let known = log.workers(time).expect("workers");
        known.into_iter().map(|it| (it.worker.0, it.claims, it.attends)).collect()
    };
    let of = |name: &str, claims, attends| (name.to_owned(), claims, attends);
    assert_eq!(names(T0), []);
    record_files(&*log, 3);
    for name in ["a/1/x", "b/2/y", "d/4/z"] {
        assert!(!log.attend(&worker(name), T0).expect("an answer"));
    }
    assert_eq!(share(&*log, "b/2/y", 1, T0).claims.len(), 1);
    let long = Duration::from_secs(100);
    assert_eq!(log.claim(&worker("c/3"), 1, long, T0).expect("claims").len(), 1);
    let all = [of("a/1/x", 0, true), of("b/2/y", 1, true), of("c/3", 1, false), of("d/4/z", 0, true)];
    assert_eq!(names(T0), all);
    let known = log.workers(T0).expect("workers");
    assert_eq!((known[1].worker.host(), known[1].worker.process(), known[1].since), ("b", Some(2), T0));
    log.leave(&worker("d/4/z")).expect("left");
    let later = T0 + 6 * SECOND;
    assert!(!log.attend(&worker("a/1/x"), later).expect("an answer"));
    assert_eq!(names(later), all[..3]);
    // The claims of a forgotten worker stay until their leases end.
    assert_eq!(names(T0 + WORKER_TERM), [of("a/1/x", 0, true), of("b/2/y", 1, false), of("c/3", 1, false)]);
    assert_eq!(share(&*log, "e/5", 0, T0 + WORKER_TERM).due, 1);
    assert_eq!(log.expire_dead_workers(&|worker| worker.host() != "c").expect("a number"), 1);
    assert_eq!(names(T0 + WORKER_TERM), [of("c/3", 1, false)]);
    // After the clock was set back by more than a term, signs of life from the future count for nothing.
    assert!(!log.attend(&worker("a/1/x"), T0 + 3600 * SECOND).expect("an answer"));
    assert_eq!(names(T0), [of("c/3", 1, false)]);
}

/// A host that drains gets nothing, and nothing is reserved for it. That outlives the engine.
pub(super) fn a_draining_host_gets_nothing(site: Site<'_>, name: &str) {
    let log = site(name);
    record_files(&*log, 20);
    for name in ["a/1", "b/1"] {
        assert!(!log.attend(&worker(name), T0).expect("an answer"));
    }
    log.set_draining("a", true).expect("set");
    log.set_draining("a", true).expect("set again");
    drop(log);
    let log = site(name);
    assert_eq!(log.draining_hosts().expect("hosts"), ["a"]);
    assert!(log.attend(&worker("a/1"), T0).expect("an answer"));
    assert!(log.is_draining(&worker("a/7")).expect("an answer"));
    assert!(!log.is_draining(&worker("b/1")).expect("an answer"));
    let nothing = share(&*log, "a/1", 16, T0);
    assert!(nothing.is_draining && nothing.claims.is_empty(), "{nothing:?}");
    assert_eq!(share(&*log, "b/1", 16, T0).claims.len(), 16, "as if it were alone");
    let drains: Vec<bool> = log.workers(T0).expect("workers").iter().map(|it| it.is_draining).collect();
    assert_eq!(drains, [true, false]);
    // A command that a person types is not a worker that was sent away.
    let (name, limit) = (worker("a/2"), 4);
    let typed = Ask { heeds_drain: false, attends: false, ..ask(&name, limit) };
    assert!(!log.claim_share(&typed, T0).expect("an answer").claims.is_empty());
    log.set_draining("a", false).expect("set");
    assert_eq!(log.draining_hosts().expect("hosts"), [""; 0]);
    assert!(!share(&*log, "a/1", 16, T0).is_draining);
}
