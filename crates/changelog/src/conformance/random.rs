//! Random operations on an engine and on the model, side by side.

use super::{Site, T0, all, worker};
use crate::Changelog;
use crate::change::{Change, Span, What, When};
use crate::entry::Claim;
use crate::error::Error;
use crate::limits::{ALL_HOSTS, Limits};
use crate::model::Model;
use crate::ranges::WHOLE;
use crate::share::Ask;
use gabion_platform::world::{SECOND, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Few names, so that they meet; some of them nested, one that sorts between a directory and what is in it.
const PATHS: [&str; 12] = ["a", "a/b", "a/b/c", "a/d", "a-", "e", "e/b", "e/f", "g", "g/b/c", "h", "ab"];

/// On two hosts.
const WORKERS: [&str; 3] = ["a/1", "a/2", "b/1"];

/// What [`compare_with_model`] does to a changelog, and answers that need a certain state. A test asserts that it has
/// seen all of them.
pub const KINDS: [&str; 24] = [
    "modify",
    "modify the whole",
    "rename",
    "delete",
    "gap",
    "change several at once",
    "ask for a share",
    "get a share",
    "nothing for a draining host",
    "nothing for a host that is full",
    "reserved for others",
    "leave",
    "drain",
    "attend",
    "limit",
    "give back",
    "claim",
    "release",
    "renew",
    "still mine",
    "complete",
    "refused claim",
    "clock set back",
    "open again",
];

/// Operations between two comparisons of everything. The answer of each operation is compared at once; everything
/// takes several calls, which on a server wait for each other.
const LOOK: u32 = 4;

/// Numbers that look random and can be repeated (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn path(&mut self) -> &'static str {
        PATHS[self.below(PATHS.len() as u64) as usize]
    }

    fn change(&mut self, now: Timestamp) -> Change {
        let (quiet, cap) = (self.below(8) as u32 * SECOND, self.below(20) as u32 * SECOND);
        let when = When::after_rest(now, quiet, cap, self.below(3) as u8);
        match self.below(20) {
            0..9 => {
                let start = self.below(400) * 10;
                // Few versions, so that they often join.
                let span = Span { from: [self.below(3) as u8; 16], to: [self.below(3) as u8; 16] };
                let span = (self.below(3) > 0).then_some(span);
                Change::modify(self.path(), start..start + 1 + self.below(9), when).between(span)
            }
            9 => Change::modify_whole(self.path(), when),
            10..15 => loop {
                let change = Change::rename(self.path(), self.path(), when);
                if change.check().is_ok() {
                    return change;
                }
            },
            15..19 => Change::delete(self.path(), when),
            _ => Change::gap(if self.below(2) == 0 { "" } else { self.path() }, when),
        }
    }
}

/// What an operation answered, in a form that can be compared.
fn answer<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Refused { token, why }) => format!("refused {token}: {why}"),
        other => format!("{other:?}"),
    }
}

/// Does `operations` random things to the changelog `name` and to the model; every answer has to be the same. Returns
/// which of [`KINDS`] happened.
///
/// # Panics
/// It is not; the message has the seed and the number of the operation.
pub fn compare_with_model(site: Site<'_>, name: &str, seed: u64, operations: u32) -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    let model = Model::new();
    let mut engine = site(name);
    let mut random = Random(seed | 1 << 40);
    let mut now = T0;
    let mut claims: Vec<Claim> = Vec::new();
    for number in 0..operations {
        let both: [&dyn Changelog; 2] = [&model, &*engine];
        let context = |what: &str| format!("seed {seed}, operation {number}: {what}");
        match random.below(24) {
            0..12 => {
                let changes: Vec<Change> = (0..=random.below(4)).map(|_| random.change(now)).collect();
                let [model, engine] = both.map(|log| answer(log.record(&changes)));
                assert_eq!(model, engine, "{}", context(&format!("{changes:?}")));
                seen.extend(changes.iter().map(kind_of));
                seen.extend((changes.len() > 1).then_some("change several at once"));
            }
            12..14 => {
                let name = worker(WORKERS[random.below(3) as usize]);
                let ask = Ask {
                    worker: &name,
                    limit: random.below(6) as usize,
                    threads: 1 + random.below(3) as usize,
                    lease: Duration::from_secs(random.below(10)),
                    attends: random.below(3) > 0,
                    insists: random.below(4) == 0,
                    heeds_drain: random.below(4) > 0,
                };
                let [model, engine] = both.map(|log| log.claim_share(&ask, now).expect("claims"));
                assert_eq!(model, engine, "{}", context(&format!("{ask:?}")));
                seen.insert("ask for a share");
                seen.extend((!model.claims.is_empty()).then_some("get a share"));
                seen.extend(model.is_draining.then_some("nothing for a draining host"));
                seen.extend(model.is_reserved.then_some("reserved for others"));
                seen.extend(model.is_limited.then_some("nothing for a host that is full"));
                claims.extend(model.claims);
            }
            23 if random.below(2) == 0 => {
                let name = WORKERS[random.below(3) as usize];
                let how = random.below(8);
                let both = both.map(|log| match how {
                    0 => answer(log.leave(&worker(name))),
                    1 | 2 => {
                        answer(log.set_draining(worker(name).host(), how == 1 && random.0.is_multiple_of(4)))
                    }
                    3 | 4 => {
                        let of_one = worker(name);
                        let host = if random.0.is_multiple_of(3) { ALL_HOSTS } else { of_one.host() };
                        let limits = Limits { rate: Some(random.0 % 7), at_once: Some(1) };
                        answer(log.set_limits(host, (how == 3).then_some(limits)))
                    }
                    _ => answer(log.attend(&worker(name), now)),
                });
                assert_eq!(both[0], both[1], "{}", context(&format!("{how} of {name}")));
                seen.insert(
                    ["leave", "drain", "drain", "limit", "limit"]
                        .get(how as usize)
                        .copied()
                        .unwrap_or("attend"),
                );
            }
            16 if claims.len() > 2 => {
                let some: Vec<Claim> = claims.split_off(claims.len() - 2);
                let [model, engine] =
                    both.map(|log| answer(log.give_back(&some.iter().collect::<Vec<_>>(), now)));
                assert_eq!(model, engine, "{}", context("give back"));
                seen.insert("give back");
            }
            14..16 => {
                let (limit, lease) = (random.below(4) as usize, Duration::from_secs(random.below(10)));
                let [model, engine] =
                    both.map(|log| log.claim(&worker("w"), limit, lease, now).expect("claims"));
                assert_eq!(model, engine, "{}", context("claim"));
                seen.extend((!model.is_empty()).then_some("claim"));
                claims.extend(model);
            }
            16..21 if !claims.is_empty() => {
                let mut claim = claims.swap_remove(random.below(claims.len() as u64) as usize);
                let how = random.below(6);
                let later = now + random.below(5) as u32 * SECOND;
                let [model, engine] = both.map(|log| match how {
                    0 => answer(log.release(&claim, later, now)),
                    1 => answer(log.renew(&mut claim.clone(), Duration::from_secs(3), now)),
                    2 => answer(log.still_mine(&claim)),
                    _ => answer(log.complete(&claim)),
                });
                assert_eq!(model, engine, "{}", context(&format!("{how} on {claim:?}")));
                seen.insert(
                    ["release", "renew", "still mine"].get(how as usize).copied().unwrap_or("complete"),
                );
                seen.extend(model.starts_with("refused").then_some("refused claim"));
                if how == 1 || how == 2 {
                    claim.expires = now;
                    claims.push(claim);
                }
            }
            21 => {
                let jump = random.below(200) as u32 * SECOND;
                if random.below(4) == 0 {
                    let before = now;
                    now = now + jump - 100 * SECOND;
                    seen.extend((now < before).then_some("clock set back"));
                }
            }
            22 if number % 50 == 22 => {
                drop(engine);
                engine = site(name);
                seen.insert("open again");
            }
            _ => now += random.below(4) as u32 * SECOND,
        }
        if number % LOOK != 0 && number + 1 < operations {
            continue;
        }
        let both: [&dyn Changelog; 2] = [&model, &*engine];
        let [of_model, of_engine] = both.map(all);
        assert_eq!(of_model, of_engine, "{}", context("entries"));
        let [of_model, of_engine] = both.map(|log| (answer(log.pending()), answer(log.sequence())));
        assert_eq!(of_model, of_engine, "{}", context("sums"));
        let [of_model, of_engine] = both.map(|log| (answer(log.workers(now)), answer(log.draining_hosts())));
        assert_eq!(of_model, of_engine, "{}", context("workers"));
        let allowance = |log: &dyn Changelog| WORKERS.map(|name| answer(log.allowance(&worker(name))));
        let [of_model, of_engine] = both.map(|log| (answer(log.limits()), allowance(log)));
        assert_eq!(of_model, of_engine, "{}", context("limits"));
    }
    seen
}

fn kind_of(change: &Change) -> &'static str {
    match &change.what {
        What::Modify { range, .. } if *range == WHOLE => "modify the whole",
        What::Modify { .. } => "modify",
        What::Rename { .. } => "rename",
        What::Delete { .. } => "delete",
        What::Gap { .. } => "gap",
    }
}
