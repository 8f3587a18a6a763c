//! What sequences of changes become.

use super::{Site, T0, all, at, claim_one, now, record, shown_all};
use crate::change::{Change, MAX_PATH, Span};
use crate::entry::{Kind, Sequence, Summary};
use crate::error::Error;
use crate::ranges::{KEPT_RANGES, MAX_RANGES};
use std::time::Duration;

fn modify(path: &str, start: u64, end: u64) -> Change {
    Change::modify(path, start..end, now())
}

fn create(path: &str) -> Change {
    Change::modify_whole(path, now())
}

fn rename(from: &str, to: &str) -> Change {
    Change::rename(from, to, now())
}

fn delete(path: &str) -> Change {
    Change::delete(path, now())
}

fn gap(path: &str) -> Change {
    Change::gap(path, now())
}

/// The table in the documentation of the changelog, and its corners.
#[rustfmt::skip]
fn table() -> Vec<(&'static str, Vec<Change>, Vec<&'static str>)> {
    vec![
        ("create, delete", vec![create("a"), delete("a")], vec!["a Delete"]),
        ("delete, create", vec![delete("a"), create("a")], vec!["a Modify whole"]),
        ("delete, write", vec![delete("a"), modify("a", 3, 4)], vec!["a Modify whole"]),
        ("rename", vec![rename("a", "b")], vec!["b Move from a"]),
        ("write, rename", vec![modify("a", 0, 10), rename("a", "b")], vec!["b Modify from a 0..10"]),
        ("rename, write", vec![rename("a", "b"), modify("b", 0, 10)], vec!["b Modify from a 0..10"]),
        ("rename chain", vec![rename("a", "b"), rename("b", "c")], vec!["b Delete", "c Move from a"]),
        ("rename over", vec![modify("b", 0, 10), rename("a", "b")], vec!["b Move from a"]),
        ("rename over a moved one", vec![rename("a", "b"), rename("c", "b")], vec!["a Delete", "b Move from c"]),
        ("save by rename", vec![create("t"), rename("t", "a")], vec!["a Modify from t whole"]),
        ("save with backup", vec![rename("a", "a~"), create("t"), rename("t", "a")],
            vec!["a Modify from t whole", "a~ Move from a"]),
        ("there and back", vec![rename("a", "b"), rename("b", "a")], vec!["a Move from a", "b Delete"]),
        ("swap", vec![rename("a", "t"), rename("b", "a"), rename("t", "b")],
            vec!["a Move from b", "b Move from a", "t Delete"]),
        ("rotation", vec![rename("2", "3"), rename("1", "2"), rename("0", "1"), create("0")],
            vec!["0 Modify whole", "1 Move from 0", "2 Move from 1", "3 Move from 2"]),
        ("moved, created again", vec![rename("a", "b"), create("a")], vec!["a Modify whole", "b Move from a"]),
        ("moved, deleted", vec![rename("a", "b"), delete("b")], vec!["b Delete from a"]),
        ("moved, created again, deleted", vec![rename("a", "b"), create("a"), delete("a")],
            vec!["a Delete", "b Move from a"]),
        ("directory moved", vec![modify("d/x", 0, 10), delete("d/y"), modify("dx", 0, 5), rename("d", "e")],
            vec!["dx Modify 0..5", "e Move from d", "e/x Modify from d/x 0..10", "e/y Delete from d/y"]),
        ("directory moved twice", vec![modify("d/x", 0, 10), rename("d", "e"), rename("e", "f")],
            vec!["e Delete", "f Move from d", "f/x Modify from d/x 0..10"]),
        ("directory moved onto one with changes", vec![delete("e/y"), modify("e/x", 0, 1), modify("d/x", 5, 6), rename("d", "e")],
            vec!["e Move from d", "e/x Modify from d/x 5..6", "e/y Delete"]),
        ("moved into a directory that is moved", vec![rename("a", "d/a"), rename("d", "e")],
            vec!["e Move from d", "e/a Move from a"]),
        ("directory deleted", vec![modify("d/x", 0, 10), rename("a", "d/y"), rename("d/p", "d/q"), modify("dx", 0, 5), delete("d")],
            vec!["a Delete", "d Delete", "dx Modify 0..5"]),
        ("everything deleted", vec![create("a"), create("b/c"), gap(""), delete("")], vec![" Delete"]),
        ("deleted, then moved all the same", vec![delete("a"), rename("a", "b")], vec!["a Delete", "b Gap"]),
        ("gap takes writes in", vec![modify("d", 0, 10), gap("d"), modify("d", 5, 6), modify("d/x", 0, 1)],
            vec!["d Gap", "d/x Modify 0..1"]),
        ("gap after a move", vec![rename("a", "d"), gap("d")], vec!["d Gap from a"]),
        ("gap moved", vec![gap("d"), rename("d", "e")], vec!["e Gap from d"]),
        ("gap deleted", vec![gap("d"), delete("d")], vec!["d Delete"]),
        ("deleted, gap", vec![delete("d"), gap("d")], vec!["d Gap"]),
        ("renamed to itself", vec![modify("a", 0, 10), rename("a", "a")], vec!["a Modify 0..10"]),
    ]
}

pub(super) fn sequences_collapse(site: Site<'_>, name: &str) {
    for (number, (what, changes, expected)) in table().into_iter().enumerate() {
        let together = site(&format!("{name}-{number}-together"));
        let last = record(&*together, &changes);
        assert_eq!(last, Sequence(changes.len() as u64), "{what}");
        assert_eq!(shown_all(&*together), expected, "{what}");
        let singly = site(&format!("{name}-{number}-singly"));
        for change in changes {
            record(&*singly, &[change]);
            all(&*singly);
        }
        assert_eq!(all(&*singly), all(&*together), "{what}, one by one");
    }
}

pub(super) fn ranges_merge(site: Site<'_>, name: &str) {
    let log = site(name);
    record(&*log, &[modify("a", 10, 20), modify("a", 30, 40), modify("b", 0, u64::MAX - 1)]);
    record(&*log, &[modify("a", 20, 25), modify("a", 35, 50), modify("b", 7, u64::MAX)]);
    assert_eq!(shown_all(&*log), ["a Modify 10..25 30..50", "b Modify whole"]);

    let log = site(&format!("{name}-many"));
    let islands: Vec<Change> =
        (0..=MAX_RANGES as u64).map(|i| modify("a", i * 10_000, i * 10_000 + 9_000 - i)).collect();
    let (last, most) = islands.split_last().expect("islands");
    record(&*log, most);
    assert_eq!(all(&*log)[0].ranges.as_slice().len(), MAX_RANGES);
    record(&*log, std::slice::from_ref(last));
    let entry = all(&*log).remove(0);
    assert_eq!(entry.ranges.as_slice().len(), KEPT_RANGES);
    let merged = (MAX_RANGES + 1 - KEPT_RANGES) as u64;
    let first = 0..merged * 10_000 + 9_000 - merged;
    assert_eq!(entry.ranges.as_slice()[0], first, "the first gaps are the narrowest");
    // Offsets that differ in their last bits only, where a double would not see it.
    let high = u64::MAX - 3;
    record(&*log, &[modify("b", high - 9, high - 5), modify("b", high - 4, high)]);
    assert_eq!(all(&*log)[1].ranges.as_slice(), [high - 9..high - 5, high - 4..high]);
}

pub(super) fn odd_paths(site: Site<'_>, name: &str) {
    let log = site(name);
    let mut odd: Vec<Vec<u8>> = vec![
        b"\xff\xfe".to_vec(),
        b"new\nline".to_vec(),
        b" ".to_vec(),
        b"%s%d\"'\\".to_vec(),
        b"-".to_vec(),
        b"+/(".to_vec(),
        "\u{e9}t\u{e9}".into(),
        b"...".to_vec(),
        [&[b'p'; MAX_PATH - 2][..], b"/q"].concat(),
    ];
    for path in &odd {
        record(&*log, &[Change::modify(path.clone(), 1..2, now())]);
    }
    odd.sort();
    assert_eq!(all(&*log).into_iter().map(|entry| entry.path).collect::<Vec<_>>(), odd);
    for path in &odd {
        let target = [b"x/", &path[..path.len().min(100)]].concat();
        record(&*log, &[Change::rename(path.clone(), target, now())]);
    }
    let moved = all(&*log);
    assert_eq!(moved.len(), odd.len());
    assert!(moved.iter().all(|entry| entry.path.starts_with(b"x/") && odd.contains(entry.origin.as_ref().expect("moved"))));
    while all(&*log).iter().any(|entry| entry.token.is_none()) {
        let claim = claim_one(&*log, "w", T0);
        log.complete(&claim).expect("completed");
    }
    assert_eq!(all(&*log), []);
}

pub(super) fn impossible_changes_are_refused(site: Site<'_>, name: &str) {
    let log = site(name);
    let refused = log.record(&[create("good"), create("")]);
    assert!(matches!(refused, Err(Error::Path { length: 0, .. })), "{refused:?}");
    assert!(matches!(log.record(&[modify("a", 5, 5)]), Err(Error::Range { start: 5, end: 5 })));
    assert!(matches!(log.record(&[rename("a", "a/b")]), Err(Error::Nested { from: 1, to: 3 })));
    assert_eq!((all(&*log).len(), log.sequence().expect("a number")), (0, Sequence(0)), "all or none");
    assert_eq!(record(&*log, &[]), Sequence(0));
}

pub(super) fn pages(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes: Vec<Change> = (0..100).map(|i| create(&format!("f{i:02}"))).chain([gap("")]).collect();
    record(&*log, &changes);
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = log.entries(after.as_deref(), 7).expect("a page");
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 7);
        after = Some(last.path.clone());
        seen.extend(page);
    }
    assert_eq!(seen, all(&*log));
    assert_eq!((seen.len(), seen[0].path.as_slice()), (101, &b""[..]));
}

pub(super) fn sums(site: Site<'_>, name: &str) {
    let log = site(name);
    assert_eq!(log.pending().expect("sums"), Summary::default());
    let changes = [
        Change::modify_whole("a", at(T0 + Duration::from_nanos(5))),
        Change::modify_whole("b", at(T0 + Duration::from_nanos(3))),
        Change::delete("c", at(T0 + Duration::from_nanos(4))),
        Change::rename("x", "y", at(T0 + Duration::from_nanos(9))),
        Change::gap("z", at(T0 + Duration::from_nanos(9))),
    ];
    assert_eq!(record(&*log, &changes), Sequence(5));
    claim_one(&*log, "w", T0 + Duration::from_nanos(10));
    let sums = log.pending().expect("sums");
    assert_eq!(
        sums,
        Summary { by_kind: [2, 1, 1, 1], claimed: 1, oldest: Some(T0 + Duration::from_nanos(3)) }
    );
    assert_eq!((sums.entries(), sums.of(Kind::Modify)), (5, 2));
    record(&*log, &[Change::delete("", at(T0 + Duration::from_nanos(20)))]);
    let sums = log.pending().expect("sums");
    assert_eq!(
        sums,
        Summary { by_kind: [0, 0, 1, 0], claimed: 0, oldest: Some(T0 + Duration::from_nanos(20)) }
    );
    assert_eq!(shown_all(&*log), [" Delete"]);
}

pub(super) fn reopen(site: Site<'_>, name: &str) {
    let log = site(name);
    let ticket = log.record_later(&[create("a"), modify("b", 1, 2), create("c")]).expect("taken");
    let claim = {
        assert_eq!(ticket.wait().expect("recorded"), Sequence(3));
        claim_one(&*log, "w", T0)
    };
    record(&*log, &[modify("a", 5, 6)]);
    let before = all(&*log);
    // Queued only: closing makes it durable.
    drop(log.record_later(&[create("d")]).expect("taken"));
    drop(log);
    let log = site(name);
    assert_eq!(all(&*log)[..3], before[..]);
    assert_eq!(shown_all(&*log)[3], "d Modify whole");
    assert_eq!(log.sequence().expect("a number"), Sequence(5));
    assert!(log.still_mine(&claim).expect("an answer"));
    log.complete(&claim).expect("completed");
    assert_eq!(shown_all(&*log)[0], "a Modify 5..6");
    assert!(claim_one(&*log, "w", T0).token > claim.token);
}

/// Ranges are trusted only if the versions join without a gap.
pub(super) fn spans_join(site: Site<'_>, name: &str) {
    let log = site(name);
    let version = |number: u8| [number; 16];
    let span = |from, to| Some(Span { from: version(from), to: version(to) });
    let write = |from, to| modify("a", 0, 9).between(span(from, to));
    let spans = || all(&*log).iter().map(|entry| entry.span).collect::<Vec<_>>();
    record(&*log, &[write(1, 2), write(2, 3)]);
    assert_eq!(spans(), [span(1, 3)]);
    // Neither a change of which no versions are known nor another name changes what is true of the ranges.
    record(&*log, &[modify("a", 20, 30), rename("a", "b"), rename("b", "a")]);
    assert_eq!(spans(), [span(1, 3), None], "b is a deletion");
    record(&*log, &[write(4, 5)]);
    log.complete(&claim_one(&*log, "w", T0)).expect("the deletion is completed");
    assert_eq!(spans(), [span(4, 5)], "another program wrote in between");
    // What comes after a claim has a span of its own, and the whole one if the claim fails.
    let claimed = claim_one(&*log, "w", T0);
    assert_eq!(claimed.entry.span, span(4, 5));
    record(&*log, &[write(5, 6)]);
    log.release(&claimed, T0, T0).expect("released");
    assert_eq!(spans(), [span(4, 6)]);
    let claimed = claim_one(&*log, "w", T0);
    record(&*log, &[write(6, 7), write(7, 8)]);
    log.complete(&claimed).expect("completed");
    drop(log);
    let log = site(name);
    let spans = || all(&*log).iter().map(|entry| entry.span).collect::<Vec<_>>();
    assert_eq!(spans(), [span(6, 8)], "also after it was opened again");
    // A scan has no ranges.
    record(&*log, &[gap("a"), write(8, 9)]);
    assert_eq!(spans(), [None]);
    record(&*log, &[delete("a")]);
    assert_eq!(spans(), [None]);
}
