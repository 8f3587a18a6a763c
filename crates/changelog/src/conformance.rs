//! Conformance suite of engines: cases that panic if an engine violates the contract.
//!
//! A case opens changelogs by name through a [`Site`]; the same name again means the same changelog, opened again.
//! The cases compare with values written down here; [`compare_with_model`] tries random operations.

mod claims;
mod collapse;
mod crowd;
mod limits;
mod random;
mod times;
mod workers;

use crate::change::{Change, When};
use crate::entry::{Claim, Entry, Sequence, WorkerId};
use crate::{Changelog, MAX_PAGE};
use gabion_platform::world::Timestamp;
use std::time::Duration;

pub use random::{KINDS, compare_with_model};

/// Where changelogs come from.
pub type Site<'a> = &'a (dyn Fn(&str) -> Box<dyn Changelog> + Sync);

/// One requirement.
pub struct Case {
    /// Its name, also of its changelog.
    pub name: &'static str,
    run: fn(Site<'_>, &str),
}

/// All of them.
pub const CASES: &[Case] = &[
    Case { name: "collapse", run: collapse::sequences_collapse },
    Case { name: "ranges", run: collapse::ranges_merge },
    Case { name: "spans", run: collapse::spans_join },
    Case { name: "odd-paths", run: collapse::odd_paths },
    Case { name: "refusals", run: collapse::impossible_changes_are_refused },
    Case { name: "pages", run: collapse::pages },
    Case { name: "sums", run: collapse::sums },
    Case { name: "reopen", run: collapse::reopen },
    Case { name: "rest", run: times::a_file_has_to_rest_but_not_for_ever },
    Case { name: "order", run: times::order },
    Case { name: "clock", run: times::a_clock_set_back_delays_by_one_lease },
    Case { name: "future", run: times::an_entry_from_the_future_is_pulled_back },
    Case { name: "lease", run: claims::one_worker_at_a_time },
    Case { name: "newer", run: claims::what_came_after_the_claim_stays },
    Case { name: "release", run: claims::release_counts_attempts },
    Case { name: "overtaken", run: claims::a_claim_whose_file_moved_is_refused },
    Case { name: "neighbours", run: claims::claims_never_touch_the_same_path },
    Case { name: "many", run: claims::many_at_once_are_as_one_by_one },
    Case { name: "renewals", run: claims::claims_are_renewed_together },
    Case { name: "dead", run: claims::the_dead_hold_nothing },
    Case { name: "given-back", run: claims::what_is_given_back_is_due_at_once },
    Case { name: "named", run: claims::named_paths_are_claimed_before_they_are_due },
    Case { name: "known", run: claims::what_is_pending_is_known_by_its_path },
    Case { name: "shares", run: workers::shares_are_equal },
    Case { name: "share-given-back", run: workers::what_is_given_back_is_not_counted },
    Case { name: "alone", run: workers::a_worker_alone_gets_what_it_asks_for },
    Case { name: "workers", run: workers::workers_are_known_for_a_time },
    Case { name: "drain", run: workers::a_draining_host_gets_nothing },
    Case { name: "limits", run: limits::a_host_keeps_to_its_limits },
    Case { name: "crowd", run: crowd::nothing_is_lost_and_nothing_claimed_twice },
    Case { name: "tickets", run: crowd::tickets_come_in_order },
];

/// Runs every case, each in a changelog of its own.
///
/// # Panics
/// The engine does not conform.
pub fn check(site: Site<'_>) {
    for case in CASES {
        (case.run)(site, case.name);
    }
}

/// The time at which cases begin.
const T0: Timestamp = Timestamp::from_seconds(1_700_000_000);

fn at(time: Timestamp) -> When {
    When::now(time, 0)
}

fn now() -> When {
    at(T0)
}

fn worker(name: &str) -> WorkerId {
    WorkerId(name.to_owned())
}

fn record(log: &dyn Changelog, changes: &[Change]) -> Sequence {
    log.record(changes).expect("recorded")
}

fn claim(log: &dyn Changelog, name: &str, limit: usize, time: Timestamp) -> Vec<Claim> {
    log.claim(&worker(name), limit, Duration::from_secs(10), time).expect("claims")
}

fn claim_one(log: &dyn Changelog, name: &str, time: Timestamp) -> Claim {
    claim(log, name, 1, time).pop().expect("an entry is due")
}

fn paths(claims: &[Claim]) -> Vec<String> {
    claims.iter().map(|claim| String::from_utf8_lossy(&claim.entry.path).into_owned()).collect()
}

/// Everything that is pending.
fn all(log: &dyn Changelog) -> Vec<Entry> {
    log.entries(None, MAX_PAGE).expect("entries")
}

/// An entry in words, as in `b Modify from a 0..10`.
fn shown(entry: &Entry) -> String {
    let mut words = format!("{} {:?}", String::from_utf8_lossy(&entry.path), entry.kind);
    if let Some(origin) = &entry.origin {
        words += &format!(" from {}", String::from_utf8_lossy(origin));
    }
    for range in entry.ranges.as_slice() {
        words += &if entry.ranges.is_whole() { " whole".to_owned() } else { format!(" {range:?}") };
    }
    words
}

fn shown_all(log: &dyn Changelog) -> Vec<String> {
    all(log).iter().map(shown).collect()
}
