//! Workers: claims, leases, fencing.

use super::{Site, T0, all, at, claim, claim_one, now, paths, record, shown_all, worker};
use crate::change::{Change, When};
use crate::entry::{Completion, Sequence, WorkerId};
use crate::error::{Error, Refusal, Result};
use gabion_platform::world::SECOND;
use std::time::Duration;

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>, token: u64, why: Refusal) {
    match result {
        Err(Error::Refused { token: t, why: w }) => assert_eq!((t, w), (token, why)),
        other => panic!("{other:?} instead of a refusal"),
    }
}

pub(super) fn one_worker_at_a_time(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify("a", 0..9, now())]);
    let mut first = claim_one(&*log, "first", T0);
    assert_eq!(
        (first.expires, first.entry.sequence, first.entry.attempts),
        (T0 + 10 * SECOND, Sequence(1), 0)
    );
    assert_eq!(all(&*log)[0].token, Some(first.token));
    assert_eq!(claim(&*log, "second", 9, T0 + 10 * SECOND - Duration::from_nanos(1)), []);
    log.renew(&mut first, Duration::from_secs(10), T0 + 9 * SECOND).expect("renewed");
    assert_eq!(first.expires, T0 + 19 * SECOND);
    assert_eq!(claim(&*log, "second", 9, T0 + 19 * SECOND - Duration::from_nanos(1)), []);
    assert!(log.still_mine(&first).expect("an answer"));

    let second = claim_one(&*log, "second", T0 + 19 * SECOND);
    assert!(second.token > first.token);
    assert_eq!((second.entry.attempts, second.worker.0.as_str()), (1, "second"));
    assert!(!log.still_mine(&first).expect("an answer"));
    assert_refused(
        log.renew(&mut first, Duration::from_secs(1), T0 + 19 * SECOND),
        first.token,
        Refusal::Lost,
    );
    assert_refused(log.release(&first, T0, T0), first.token, Refusal::Lost);
    assert_refused(log.complete(&first), first.token, Refusal::Lost);
    assert_eq!(first.expires, T0 + 19 * SECOND, "a refusal changes nothing");
    assert_eq!(log.complete(&second).expect("completed"), Completion::Done);
    assert_refused(log.complete(&second), second.token, Refusal::Lost);
    assert_eq!(all(&*log), []);
    assert!(!log.has_claims().expect("an answer"));

    // Late, but nobody took it over.
    record(&*log, &[Change::modify("a", 0..9, now())]);
    let mut late = claim_one(&*log, "late", T0);
    log.renew(&mut late, Duration::from_secs(1), T0 + 99 * SECOND).expect("renewed");
    assert_eq!(log.complete(&late).expect("completed"), Completion::Done);
}

pub(super) fn many_at_once_are_as_one_by_one(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes: Vec<Change> =
        (0..4).map(|number| Change::modify(format!("{number}"), 0..9, now())).collect();
    record(&*log, &changes);
    let held = claim(&*log, "first", 4, T0);
    record(&*log, &[Change::modify("1", 20..30, now())]);
    log.complete(&held[2]).expect("completed");
    let held: Vec<_> = held.iter().collect();
    assert_eq!(log.which_are_mine(&held).expect("an answer"), [true, true, false, true]);
    let done = log.complete_all(&held).expect("an answer");
    let [Ok(Completion::Done), Ok(Completion::Newer), refused, Ok(Completion::Done)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_refused(refused.clone(), held[2].token, Refusal::Lost);
    assert_eq!(shown_all(&*log), ["1 Modify 20..30"]);
}

/// A worker that died held its claims until their leases ran out, while others waited.
pub(super) fn the_dead_hold_nothing(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes: Vec<Change> =
        ["a", "b", "c", "d"].iter().map(|&path| Change::modify(path, 0..9, now())).collect();
    record(&*log, &changes);
    let (dead, living) = (claim(&*log, "dead", 3, T0), claim_one(&*log, "living", T0));
    assert_eq!((paths(&dead), living.entry.path.as_slice()), (paths(&dead[..3]), &b"d"[..]));
    // One file of the dead got another name, one changed once more.
    record(&*log, &[Change::rename("b", "e", now()), Change::modify("c", 20..30, now())]);
    assert_eq!(log.expire_dead_workers(&|_| false).expect("an answer"), 0);
    assert_eq!(claim(&*log, "next", 9, T0), [], "all are held");
    let asked = std::sync::Mutex::new(Vec::new());
    let is_dead = |worker: &WorkerId| {
        asked.lock().expect("no panic").push(worker.0.clone());
        worker.0 == "dead"
    };
    assert_eq!(log.expire_dead_workers(&is_dead).expect("an answer"), 3);
    let asked = asked.lock().expect("no panic").clone();
    assert!(asked.iter().all(|worker| worker == "dead" || worker == "living"), "{asked:?}");
    assert_eq!(log.expire_dead_workers(&is_dead).expect("an answer"), 0, "they hold nothing any more");
    assert_eq!(log.pending().expect("sums").claimed, 1);
    assert!(log.has_claims().expect("an answer"));
    for claim in &dead {
        assert_refused(log.complete(claim), claim.token, Refusal::Lost);
    }
    assert!(log.still_mine(&living).expect("an answer"));
    let again = claim(&*log, "next", 9, T0);
    let mut found = paths(&again);
    found.sort();
    assert_eq!(found, ["a", "c", "e"]);
    assert!(again.iter().all(|claim| claim.entry.path == b"e" || claim.entry.attempts == 1));
    assert_eq!(
        shown_all(&*log),
        ["a Modify 0..9", "c Modify 0..9 20..30", "d Modify 0..9", "e Modify from b 0..9"]
    );
    assert_eq!(log.complete(&living).expect("completed"), Completion::Done);
}

/// Claims of a batch that were renewed one by one expired while they waited for their turn.
pub(super) fn claims_are_renewed_together(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes: Vec<Change> =
        (0..4).map(|number| Change::modify(format!("{number}"), 0..9, now())).collect();
    record(&*log, &changes);
    let held = claim(&*log, "first", 4, T0);
    log.complete(&held[2]).expect("completed");
    record(&*log, &[Change::rename("3", "4", now())]);
    assert!(log.renew_all(&[], Duration::from_secs(10), T0 + 9 * SECOND).expect("an answer").is_empty());
    let refused = log.renew_all(&held, Duration::from_secs(10), T0 + 9 * SECOND).expect("an answer");
    assert_eq!(refused, [held[2].token, held[3].token], "what is done, or elsewhere, is not held");
    assert_eq!(paths(&claim(&*log, "second", 9, T0 + 10 * SECOND)), ["4"], "its worker had the time to stop");
    assert_eq!(claim(&*log, "second", 9, T0 + 19 * SECOND - Duration::from_nanos(1)), []);
    assert_eq!(paths(&claim(&*log, "second", 9, T0 + 19 * SECOND)), ["0", "1"], "all end together");
}

/// A worker that finds its batch too large leaves the rest to others.
pub(super) fn what_is_given_back_is_due_at_once(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify("a", 0..9, now()), Change::modify("b", 0..9, now())]);
    let held = claim(&*log, "first", 2, T0);
    record(&*log, &[Change::modify("a", 20..30, at(T0))]);
    let all: Vec<_> = held.iter().collect();
    log.give_back(&all, T0 + SECOND).expect("given back");
    log.give_back(&all, T0 + SECOND).expect("a claim that is not held any more is no error");
    assert_refused(log.complete(&held[0]), held[0].token, Refusal::Lost);
    let again = claim(&*log, "second", 9, T0 + SECOND);
    let mut found = paths(&again);
    found.sort();
    assert_eq!(found, ["a", "b"]);
    assert_eq!(shown_all(&*log), ["a Modify 0..9 20..30", "b Modify 0..9"]);
}

pub(super) fn what_came_after_the_claim_stays(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify("a", 0..10, now()), Change::modify("a", 50..60, now())]);
    let claimed = claim_one(&*log, "w", T0);
    assert_eq!(claimed.entry.sequence, Sequence(2));
    record(
        &*log,
        &[
            Change::modify("a", 5..20, at(T0 + Duration::from_nanos(1))),
            Change::modify("a", 90..99, at(T0 + Duration::from_nanos(2))),
        ],
    );
    assert_eq!(shown_all(&*log), ["a Modify 0..20 50..60 90..99"], "until it is done, all of it is pending");
    assert_eq!(log.complete(&claimed).expect("completed"), Completion::Newer);
    assert_eq!(shown_all(&*log), ["a Modify 5..20 90..99"]);
    assert_eq!((all(&*log)[0].first, all(&*log)[0].sequence), (T0 + Duration::from_nanos(1), Sequence(4)));

    // If the worker dies, the next one gets all of it.
    let dead = claim_one(&*log, "w", T0 + Duration::from_nanos(2));
    record(&*log, &[Change::modify("a", 0..1, at(T0 + Duration::from_nanos(3)))]);
    let next = claim_one(&*log, "v", T0 + 60 * SECOND);
    assert_eq!(next.entry.ranges.as_slice(), [0..1, 5..20, 90..99]);
    assert_refused(log.complete(&dead), dead.token, Refusal::Lost);

    // A deletion during the claim is news, too; and a file that is there again is whole.
    record(&*log, &[Change::delete("a", at(T0 + Duration::from_nanos(4)))]);
    assert_eq!(log.complete(&next).expect("completed"), Completion::Newer);
    assert_eq!(shown_all(&*log), ["a Delete"]);
    let deleting = claim_one(&*log, "w", T0 + 60 * SECOND);
    record(&*log, &[Change::modify("a", 3..4, at(T0 + Duration::from_nanos(5)))]);
    assert_eq!(log.complete(&deleting).expect("completed"), Completion::Newer);
    assert_eq!(shown_all(&*log), ["a Modify whole"]);

    // What is renamed onto a claimed path is news for that claim.
    let replaced = claim_one(&*log, "w", T0 + 60 * SECOND);
    record(&*log, &[Change::rename("b", "a", at(T0 + Duration::from_nanos(6)))]);
    assert_eq!(log.complete(&replaced).expect("completed"), Completion::Newer);
    assert_eq!(shown_all(&*log), ["a Move from b"]);
}

pub(super) fn what_is_pending_is_known_by_its_path(site: Site<'_>, name: &str) {
    let log = site(name);
    assert!(!log.is_pending(b"a").expect("an answer"));
    let changes = ["a", "d/x10", "d/x1\u{ff}", "d/x2", "m"].map(|path| Change::modify_whole(path, now()));
    record(&*log, &changes);
    record(&*log, &[Change::delete("gone", now()), Change::rename("from", "to", now())]);
    for path in ["a", "d/x10", "d/x2", "m", "gone", "gone/deep/file", "to", "to/file", "from", "from/file"] {
        assert!(log.is_pending(path.as_bytes()).expect("an answer"), "{path}");
    }
    for path in ["", "b", "d", "d/x", "d/x1", "d/x3", "aa", "gon", "gonee/file", "zz"] {
        assert!(!log.is_pending(path.as_bytes()).expect("an answer"), "{path}");
    }
    record(&*log, &[Change::gap("", now())]);
    assert!(log.is_pending(b"zz").expect("an answer"), "everything is to be looked at");
}

pub(super) fn release_counts_attempts(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify("a", 0..9, now())]);
    for attempt in 0..3 {
        let time = T0 + attempt * SECOND;
        let claimed = claim_one(&*log, "w", time);
        assert_eq!(claimed.entry.attempts, attempt);
        log.release(&claimed, time + SECOND, time).expect("released");
        assert_eq!(claim(&*log, "w", 9, time + SECOND - Duration::from_nanos(1)), []);
        assert_refused(log.release(&claimed, time, time), claimed.token, Refusal::Lost);
    }
    let claimed = claim_one(&*log, "w", T0 + 9 * SECOND);
    record(&*log, &[Change::modify("a", 0..9, at(T0 + 9 * SECOND))]);
    log.complete(&claimed).expect("completed");
    assert_eq!(all(&*log)[0].attempts, 0, "it was done in between");
}

pub(super) fn a_claim_whose_file_moved_is_refused(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[Change::modify("d/a", 0..9, now()), Change::modify("d/b", 0..9, now())]);
    let mut claims = claim(&*log, "w", 9, T0);
    record(&*log, &[Change::rename("d/a", "e", now()), Change::delete("d", now())]);
    assert_eq!(shown_all(&*log), ["d Delete", "e Modify from d/a 0..9"]);
    for claimed in &mut claims {
        assert!(!log.still_mine(claimed).expect("an answer"));
        assert_refused(log.renew(claimed, Duration::from_secs(1), T0), claimed.token, Refusal::Overtaken);
    }
    // Until the workers have stopped, nobody touches what they may be writing to.
    assert_eq!(claim(&*log, "v", 9, T0), []);
    assert_refused(log.complete(&claims[0]), claims[0].token, Refusal::Overtaken);
    assert_refused(log.release(&claims[1], T0, T0), claims[1].token, Refusal::Overtaken);
    assert_eq!(paths(&claim(&*log, "v", 1, T0)), ["e"]);
}

pub(super) fn claims_never_touch_the_same_path(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes = [
        Change::rename("log.1", "log.2", at(T0 - Duration::from_nanos(9))),
        Change::rename("log", "log.1", at(T0 - Duration::from_nanos(8))),
        Change::modify_whole("log", at(T0 - Duration::from_nanos(7))),
        Change::gap("", at(T0 - Duration::from_nanos(6))),
        Change::delete("d", at(T0 - Duration::from_nanos(5))),
        Change::modify_whole("d/x", at(T0 - Duration::from_nanos(4))),
        Change::modify_whole("dx", at(T0 - Duration::from_nanos(3))),
    ];
    record(&*log, &changes);
    let expected: [&[&str]; 3] = [&["log.2", "", "d", "dx"], &["log.1", "d/x"], &["log"]];
    for expected in expected {
        let claims = claim(&*log, "w", 9, T0);
        assert_eq!(paths(&claims), expected);
        claims.iter().for_each(|claim| assert_eq!(log.complete(claim).expect("completed"), Completion::Done));
    }
    assert_eq!(all(&*log), []);

    // Who waits keeps its place: the deletion is next, whatever else is due beneath it.
    record(&*log, &[Change::modify_whole("d/x", now())]);
    let working = claim_one(&*log, "w", T0);
    record(
        &*log,
        &[Change::rename("d", "e", now()), Change::modify_whole("d/z", at(T0 + Duration::from_nanos(1)))],
    );
    assert_eq!(claim(&*log, "v", 9, T0 + Duration::from_nanos(1)), []);
    assert!(log.complete(&working).is_err());
    assert_eq!(paths(&claim(&*log, "v", 9, T0 + Duration::from_nanos(1))), ["e"]);
}

/// A worker that was asked for single files takes these and no others, due or not.
pub(super) fn named_paths_are_claimed_before_they_are_due(site: Site<'_>, name: &str) {
    let log = site(name);
    let later = When { due: T0 + 60 * SECOND, ..When::now(T0, 255) };
    let latest = When { latest: T0 + 600 * SECOND, ..later };
    record(
        &*log,
        &[
            Change::modify("d/a", 0..9, latest),
            Change::modify("d/b", 0..9, now()),
            Change::rename("d/old", "d/c", now()),
            Change::gap("", now()),
        ],
    );
    let named = |names: &[&str], who: &str| {
        let names: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let (claims, taken) =
            log.claim_paths(&worker(who), &names, Duration::from_secs(10), T0).expect("claims");
        let taken: Vec<String> =
            taken.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        (claims, taken)
    };
    let (first, taken) = named(&["d/a", "d/nothing", "d/c"], "first");
    assert_eq!((paths(&first), taken), (vec!["d/a".to_owned(), "d/c".to_owned()], vec![]));
    assert_eq!(first[1].entry.origin.as_deref(), Some(&b"d/old"[..]));
    let (second, taken) = named(&["d/a", "d/b", "d"], "second");
    assert_eq!((paths(&second), taken), (vec!["d/b".to_owned()], vec!["d/a".to_owned()]));
    // A directory waits for the claims beneath it.
    record(&*log, &[Change::modify("e/x", 0..9, now())]);
    let (held, _) = named(&["e/x"], "first");
    record(&*log, &[Change::delete("e", now())]);
    assert_eq!(named(&["e"], "second").1, ["e"]);
    assert_refused(log.complete(&held[0]), held[0].token, Refusal::Overtaken);
    assert_eq!(paths(&named(&["e"], "second").0), ["e"]);
    for claim in first.iter().chain(&second) {
        assert_eq!(log.complete(claim).expect("completed"), Completion::Done);
    }
    assert_eq!(shown_all(&*log), [" Gap", "e Delete"]);
}
