//! Limits of hosts.

use super::{Site, T0, claim, now, record, worker};
use crate::Changelog;
use crate::change::Change;
use crate::limits::{ALL_HOSTS, Allowance, Limits};
use crate::share::{Ask, Share};
use std::time::Duration;

fn share(log: &dyn Changelog, name: &str, heeds_drain: bool) -> Share {
    let (name, lease) = (worker(name), Duration::from_secs(100));
    let ask = Ask { worker: &name, limit: 2, threads: 1, lease, attends: false, insists: false, heeds_drain };
    log.claim_share(&ask, T0).expect("an answer")
}

/// Limits of a host replace those of all hosts and outlive the engine. The rate is divided among those at work, and no
/// more workers of a host get claims than may work at once.
pub(super) fn a_host_keeps_to_its_limits(site: Site<'_>, name: &str) {
    let log = site(name);
    let changes: Vec<Change> =
        (0..40).map(|number| Change::modify_whole(format!("f{number:02}"), now())).collect();
    record(&*log, &changes);
    assert!(log.limits().expect("limits").is_empty());
    assert_eq!(log.allowance(&worker("a/1")).expect("an answer"), Allowance::default());
    let (few, slow) =
        (Limits { rate: Some(600), at_once: Some(1) }, Limits { rate: Some(u64::MAX), at_once: None });
    log.set_limits("a", Some(slow)).expect("set");
    log.set_limits("a", Some(few)).expect("set again");
    log.set_limits(ALL_HOSTS, Some(slow)).expect("set");
    drop(log);
    let log = site(name);
    assert_eq!(
        log.limits().expect("limits").into_iter().collect::<Vec<_>>(),
        [(ALL_HOSTS.to_owned(), slow), ("a".to_owned(), few)]
    );
    let allowance = |name: &str| log.allowance(&worker(name)).expect("an answer");
    assert_eq!(allowance("a/1"), Allowance { limits: few, others: 0 });
    assert_eq!(allowance("ab/1"), Allowance { limits: slow, others: 0 });
    // One of host `a` is at work: the next one waits, the one that is goes on, and other hosts are free.
    let first = share(&*log, "a/1", true);
    assert!(!first.claims.is_empty() && !first.is_limited, "{first:?}");
    let second = share(&*log, "a/2", true);
    assert!(second.is_limited && second.claims.is_empty(), "{second:?}");
    assert!(!share(&*log, "a/1", true).claims.is_empty());
    assert!(!share(&*log, "b/1", true).claims.is_empty() && !share(&*log, "b/2", true).claims.is_empty());
    assert_eq!(["a/1", "a/2", "b/1", "c/1"].map(|name| allowance(name).others), [0, 1, 1, 0]);
    assert_eq!(allowance("a/2").rate(), Some(300));
    // A command that a person types takes claims all the same, and counts.
    assert!(!share(&*log, "a/3", false).claims.is_empty());
    assert_eq!(allowance("a/2").rate(), Some(200));
    assert!(!claim(&*log, "a/4", 1, T0).is_empty());
    assert_eq!(allowance("a/2").rate(), Some(150));
    // When they have ended, the next one gets its turn.
    let ended = log.expire_dead_workers(&|it| it.host() == "a").expect("a number");
    assert!(ended > 0);
    assert!(!share(&*log, "a/2", true).claims.is_empty() && share(&*log, "a/1", true).is_limited);
    // Limits that are removed end at once; those of all hosts hold instead.
    log.set_limits("a", None).expect("removed");
    log.set_limits("a", None).expect("removed again");
    assert!(!share(&*log, "a/1", true).claims.is_empty());
    assert_eq!(allowance("a/1").limits, slow);
    log.set_limits(ALL_HOSTS, None).expect("removed");
    assert_eq!(allowance("a/1"), Allowance { limits: Limits::default(), others: 1 });
}
