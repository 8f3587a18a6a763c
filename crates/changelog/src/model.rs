//! Reference model: a readable changelog in memory, never optimised. Engines are compared with it.
//!
//! It keeps the facts of each path in order. The pending entry follows from all of them, the rest after a completion
//! from those after the claim.

mod workers;

use crate::busy::{Busy, MAX_PASSED_OVER};
use crate::change::{Change, Span, What, When, is_within};
use crate::entry::{Claim, Completion, Durability, Entry, Kind, Sequence, Summary, WorkerId};
use crate::error::{Error, Refusal, Result};
use crate::limits::{Allowance, Limits};
use crate::queue::Ticket;
use crate::ranges::{KEPT_RANGES, MAX_RANGES, Ranges, WHOLE};
use crate::share::{Ask, KnownWorker, Others, Presence, Share};
use crate::{CLOCK_TOLERANCE, Changelog, MAX_CLAIM, MAX_PAGE};
use gabion_platform::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The reference changelog. Clones share what it knows; it is forgotten with the last of them.
#[derive(Debug, Clone, Default)]
pub struct Model(Arc<Mutex<Facts>>);

#[derive(Debug, Default)]
struct Facts {
    sequence: Sequence,
    token: u64,
    paths: BTreeMap<Vec<u8>, Path>,
    claims: BTreeMap<u64, Lease>,
    workers: BTreeMap<String, Presence>,
    draining: BTreeSet<String>,
    limits: BTreeMap<String, Limits>,
}

#[derive(Debug, Clone, Default)]
struct Path {
    facts: Vec<(Sequence, Fact)>,
    /// The claim, and up to which change it goes.
    claim: Option<(u64, Sequence)>,
    attempts: u32,
}

#[derive(Debug, Clone)]
enum Fact {
    Modified(Range<u64>, Option<Span>, When),
    Deleted(When),
    Lost(When),
    /// Redundancy was here, if it was not moved before.
    Was(Vec<u8>),
    /// Moved while nothing else was pending.
    Moved(When),
    Priority(u8),
    Times(Times),
}

#[derive(Debug, Clone, Copy)]
struct Times {
    first: Timestamp,
    stamp: Timestamp,
    due: Timestamp,
    latest: Timestamp,
}

/// Derived from facts.
#[derive(Debug, Clone)]
struct View {
    kind: Kind,
    origin: Option<Vec<u8>>,
    ranges: Vec<Range<u64>>,
    span: Option<Span>,
    times: Times,
    priority: u8,
}

#[derive(Debug, Clone)]
struct Lease {
    path: Vec<u8>,
    origin: Option<Vec<u8>>,
    kind: Kind,
    granted: Timestamp,
    expires: Timestamp,
    worker: WorkerId,
}

impl View {
    fn new(kind: Kind, when: When) -> View {
        let due = when.due.min(when.latest);
        let times = Times { first: when.at, stamp: when.at, due, latest: when.latest };
        View { kind, origin: None, ranges: Vec::new(), span: None, times, priority: when.priority }
    }

    fn later(mut self, when: When) -> View {
        let latest = self.times.latest.min(when.latest);
        self.times = Times { first: self.times.first, stamp: when.at, due: when.due.min(latest), latest };
        self.priority = self.priority.max(when.priority);
        self
    }

    fn and(view: Option<View>, fact: &Fact) -> Option<View> {
        let had = view.is_some();
        match (fact, view) {
            (Fact::Modified(range, span, when), view) => {
                let mut view = view.unwrap_or_else(|| View::new(Kind::Modify, *when));
                if view.kind != Kind::Gap {
                    view.kind = Kind::Modify;
                    view.ranges = union(view.ranges, range.clone());
                    view.span = match (view.span, *span) {
                        (Some(Span { from, to }), Some(span)) if to == span.from => {
                            Some(Span { from, to: span.to })
                        }
                        (before, None) => before,
                        (_, span) => span,
                    };
                }
                Some(if had { view.later(*when) } else { view })
            }
            (Fact::Deleted(when), view) => {
                Some(View { origin: view.and_then(|view| view.origin), ..View::new(Kind::Delete, *when) })
            }
            (Fact::Lost(when), view) => {
                let view = view.unwrap_or_else(|| View::new(Kind::Gap, *when));
                let view = View { kind: Kind::Gap, ranges: Vec::new(), span: None, ..view };
                Some(if had { view.later(*when) } else { view })
            }
            (Fact::Moved(when), _) => Some(View::new(Kind::Move, *when)),
            (Fact::Was(origin), Some(view)) => {
                Some(View { origin: view.origin.or_else(|| Some(origin.clone())), ..view })
            }
            (Fact::Priority(priority), Some(view)) => {
                Some(View { priority: view.priority.max(*priority), ..view })
            }
            (Fact::Times(times), Some(view)) => Some(View { times: *times, ..view }),
            (_, None) => None,
        }
    }
}

/// All bytes of both; the narrowest gaps go first if there are too many.
fn union(mut ranges: Vec<Range<u64>>, range: Range<u64>) -> Vec<Range<u64>> {
    ranges.push(range);
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    let most = if joined.len() > MAX_RANGES { KEPT_RANGES } else { MAX_RANGES };
    while joined.len() > most {
        let gaps = joined.windows(2).map(|pair| pair[1].start - pair[0].end);
        let narrowest = gaps.clone().min().unwrap_or(0);
        let at = gaps.clone().position(|gap| gap == narrowest).unwrap_or(0);
        let second = joined.remove(at + 1);
        joined[at].end = second.end;
    }
    joined
}

impl Path {
    fn view(&self) -> Option<View> {
        self.view_after(Sequence::default())
    }

    fn view_after(&self, sequence: Sequence) -> Option<View> {
        let after = self.facts.iter().filter(|(number, _)| *number > sequence);
        after.fold(None, |view, (_, fact)| View::and(view, fact))
    }

    fn last(&self) -> Sequence {
        self.facts.iter().map(|(number, _)| *number).max().unwrap_or_default()
    }

    fn origin(&self) -> Option<Vec<u8>> {
        self.view().and_then(|view| view.origin)
    }

    /// Facts that a rename brings along count as later than the claim on this path.
    fn arriving(
        facts: impl IntoIterator<Item = Fact>,
        sequence: Sequence,
        attempts: u32,
        old: Option<&Path>,
    ) -> Path {
        Path {
            facts: facts.into_iter().map(|fact| (sequence, fact)).collect(),
            claim: old.and_then(|old| old.claim),
            attempts,
        }
    }

    fn entry(&self, path: &[u8]) -> Option<Entry> {
        let View { kind, origin, ranges, span, times, priority } = self.view()?;
        Some(Entry {
            path: path.to_vec(),
            kind,
            origin,
            ranges: ranges.into_iter().collect::<Ranges>(),
            span,
            sequence: self.last(),
            first: times.first,
            due: times.due,
            priority,
            attempts: self.attempts,
            token: self.claim.map(|(token, _)| token),
        })
    }
}

impl Facts {
    fn add(&mut self, path: &[u8], fact: Fact) {
        let sequence = self.sequence;
        self.paths.entry(path.to_vec()).or_default().facts.push((sequence, fact));
    }

    fn beneath(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.paths
            .keys()
            .filter(|child| child.as_slice() != path && is_within(child, path))
            .cloned()
            .collect()
    }

    fn record(&mut self, Change { what, when }: &Change) {
        self.sequence = self.sequence.next();
        match what {
            What::Modify { path, range, span, .. } => {
                let view = self.paths.get(path).and_then(Path::view);
                let deleted = view.is_some_and(|view| view.kind == Kind::Delete);
                self.add(path, Fact::Modified(if deleted { WHOLE } else { range.clone() }, *span, *when));
            }
            What::Gap { root } => self.add(root, Fact::Lost(*when)),
            What::Delete { path } => {
                let children = self.beneath(path);
                let gone: Vec<Path> = children.iter().filter_map(|child| self.paths.remove(child)).collect();
                self.add(path, Fact::Deleted(*when));
                let here = self.paths.entry(path.clone()).or_default();
                here.attempts = 0;
                let origin = here.origin();
                let orphans = gone.iter().filter_map(Path::origin);
                self.clear(orphans.filter(|orphan| !is_within(orphan, path)).collect(), origin, *when);
            }
            What::Rename { from, to } if from == to => {}
            What::Rename { from, to } => self.rename(from, to, *when),
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8], when: When) {
        let sequence = self.sequence;
        let mut orphans = Vec::new();
        let children = self.beneath(from);
        let moved = self.paths.remove(from);
        let old = self.paths.remove(to);
        orphans.extend(old.as_ref().and_then(Path::origin));
        let (facts, attempts) = match moved {
            None => (vec![Fact::Moved(when), Fact::Was(from.to_vec())], 0),
            Some(path) if path.view().is_some_and(|view| view.kind == Kind::Delete) => {
                self.paths.insert(from.to_vec(), path);
                (vec![Fact::Lost(when)], 0)
            }
            Some(path) => {
                if path.origin().is_some() {
                    orphans.push(from.to_vec());
                }
                let facts = path.facts.into_iter().map(|(_, fact)| fact);
                (
                    facts.chain([Fact::Was(from.to_vec()), Fact::Priority(when.priority)]).collect(),
                    path.attempts,
                )
            }
        };
        let arrived = Path::arriving(facts, sequence, attempts, old.as_ref());
        let origin = arrived.origin();
        self.paths.insert(to.to_vec(), arrived);
        for child in children {
            let Some(path) = self.paths.remove(&child) else { continue };
            let target = [to, &child[from.len()..]].concat();
            let old = self.paths.remove(&target);
            orphans.extend(old.as_ref().and_then(Path::origin));
            let facts = path.facts.into_iter().map(|(_, fact)| fact).chain([Fact::Was(child)]);
            self.paths.insert(target, Path::arriving(facts, sequence, path.attempts, old.as_ref()));
        }
        self.clear(orphans, origin, when);
    }

    fn clear(&mut self, orphans: Vec<Vec<u8>>, covered: Option<Vec<u8>>, when: When) {
        for orphan in orphans {
            let is_covered = covered.as_ref().is_some_and(|tree| is_within(&orphan, tree));
            if !is_covered && !self.paths.contains_key(&orphan) {
                self.add(&orphan, Fact::Deleted(when));
            }
        }
    }

    fn retime(&mut self, path: &[u8], times: impl FnOnce(Times) -> Times) {
        if let Some(path) = self.paths.get_mut(path)
            && let Some(view) = path.view()
        {
            path.facts.push((path.last(), Fact::Times(times(view.times))));
        }
    }

    fn end_leases(&mut self, now: Timestamp) {
        for (token, lease) in self.claims.clone() {
            if lease.granted > now {
                let expires = now + lease.expires.since(lease.granted);
                self.claims.insert(token, Lease { granted: now, expires, ..lease });
            } else if lease.expires <= now {
                self.end(token);
            }
        }
    }

    /// Expires claims of dead workers.
    fn end(&mut self, token: u64) {
        let Some(lease) = self.claims.remove(&token) else { return };
        if let Some(path) = self.paths.get_mut(&lease.path)
            && path.claim.is_some_and(|(held, _)| held == token)
        {
            path.claim = None;
            path.attempts += 1;
        }
    }

    fn pull_back(&mut self, now: Timestamp) {
        for (path, facts) in self.paths.clone() {
            let stamp = facts.view().map_or(now, |view| view.times.stamp);
            if facts.claim.is_none() && stamp > now + CLOCK_TOLERANCE {
                self.retime(&path, |times| Times {
                    first: times.first.min(now),
                    stamp: now,
                    due: times.due - times.stamp.since(now),
                    latest: times.latest - times.stamp.since(now),
                });
            }
        }
    }

    fn claim(&mut self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Vec<Claim> {
        self.end_leases(now);
        self.pull_back(now);
        self.grant_chosen(worker, limit, lease, now)
    }

    fn grant_chosen(
        &mut self,
        worker: &WorkerId,
        limit: usize,
        lease: Duration,
        now: Timestamp,
    ) -> Vec<Claim> {
        let mut busy = Busy::default();
        for lease in self.claims.values() {
            busy.take(lease.kind, &lease.path, lease.origin.as_deref());
        }
        let entries = self.paths.iter().filter_map(|(path, facts)| facts.entry(path));
        let mut due: Vec<Entry> = entries.filter(|entry| entry.token.is_none() && entry.due <= now).collect();
        due.sort_by_key(|entry| (u8::MAX - entry.priority, entry.due, entry.sequence, entry.path.clone()));
        let (mut claims, mut passed_over) = (Vec::new(), 0);
        for entry in due {
            if claims.len() >= limit.min(MAX_CLAIM) || passed_over >= MAX_PASSED_OVER {
                break;
            }
            if !busy.take(entry.kind, &entry.path, entry.origin.as_deref()) {
                passed_over += 1;
                continue;
            }
            claims.push(self.grant(worker, entry, lease, now));
        }
        claims
    }

    fn claim_paths(
        &mut self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> (Vec<Claim>, Vec<Vec<u8>>) {
        self.end_leases(now);
        let mut busy = Busy::default();
        for lease in self.claims.values() {
            busy.take(lease.kind, &lease.path, lease.origin.as_deref());
        }
        let (mut claims, mut taken) = (Vec::new(), Vec::new());
        for path in paths.iter().take(MAX_CLAIM) {
            let Some(entry) = self.paths.get(path).and_then(|facts| facts.entry(path)) else { continue };
            match entry.token.is_none() && busy.take(entry.kind, path, entry.origin.as_deref()) {
                true => claims.push(self.grant(worker, entry, lease, now)),
                false => taken.push(path.clone()),
            }
        }
        (claims, taken)
    }

    fn grant(&mut self, worker: &WorkerId, mut entry: Entry, lease: Duration, now: Timestamp) -> Claim {
        self.token += 1;
        let token = self.token;
        entry.token = Some(token);
        self.paths.entry(entry.path.clone()).or_default().claim = Some((token, entry.sequence));
        let (path, origin, kind) = (entry.path.clone(), entry.origin.clone(), entry.kind);
        let expires = now + lease;
        let worker = worker.clone();
        self.claims
            .insert(token, Lease { path, origin, kind, granted: now, expires, worker: worker.clone() });
        Claim { token, worker, entry, expires }
    }

    fn held(&self, claim: &Claim) -> Result<Path> {
        let token = claim.token;
        match self.paths.get(&claim.entry.path) {
            Some(path) if path.claim.is_some_and(|(held, _)| held == token) => Ok(path.clone()),
            _ if self.claims.contains_key(&token) => Err(Error::Refused { token, why: Refusal::Overtaken }),
            _ => Err(Error::Refused { token, why: Refusal::Lost }),
        }
    }
}

impl Model {
    /// An empty changelog.
    pub fn new() -> Model {
        Model::default()
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changelog for Model {
    fn record_later(&self, changes: &[Change]) -> Result<Ticket> {
        changes.iter().try_for_each(Change::check)?;
        let mut facts = self.facts();
        changes.iter().for_each(|change| facts.record(change));
        Ok(Ticket::ready(facts.sequence))
    }

    fn claim(&self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Result<Vec<Claim>> {
        Ok(self.facts().claim(worker, limit, lease, now))
    }

    fn claim_paths(
        &self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
        Ok(self.facts().claim_paths(worker, paths, lease, now))
    }

    fn claim_share(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Share> {
        Ok(self.facts().claim_share(ask, now))
    }

    fn attend(&self, worker: &WorkerId, now: Timestamp) -> Result<bool> {
        let mut facts = self.facts();
        facts.attend(worker, now);
        Ok(facts.draining.contains(worker.host()))
    }

    fn is_draining(&self, worker: &WorkerId) -> Result<bool> {
        Ok(self.facts().draining.contains(worker.host()))
    }

    fn leave(&self, worker: &WorkerId) -> Result<()> {
        self.facts().workers.remove(&worker.0);
        Ok(())
    }

    fn workers(&self, now: Timestamp) -> Result<Vec<KnownWorker>> {
        Ok(self.facts().known_workers(now))
    }

    fn set_draining(&self, host: &str, is_draining: bool) -> Result<()> {
        let mut facts = self.facts();
        match is_draining {
            true => facts.draining.insert(host.to_owned()),
            false => facts.draining.remove(host),
        };
        Ok(())
    }

    fn draining_hosts(&self) -> Result<Vec<String>> {
        Ok(self.facts().draining.iter().cloned().collect())
    }

    fn set_limits(&self, host: &str, limits: Option<Limits>) -> Result<()> {
        self.facts().set_limits(host, limits);
        Ok(())
    }

    fn limits(&self) -> Result<BTreeMap<String, Limits>> {
        Ok(self.facts().limits.clone())
    }

    fn allowance(&self, worker: &WorkerId) -> Result<Allowance> {
        Ok(self.facts().allowance(worker))
    }

    fn renew(&self, claim: &mut Claim, lease: Duration, now: Timestamp) -> Result<()> {
        let mut facts = self.facts();
        facts.held(claim)?;
        claim.expires = now + lease;
        if let Some(lease) = facts.claims.get_mut(&claim.token) {
            (lease.granted, lease.expires) = (now, claim.expires);
        }
        Ok(())
    }

    fn still_mine(&self, claim: &Claim) -> Result<bool> {
        Ok(self.facts().held(claim).is_ok())
    }

    fn complete(&self, claim: &Claim) -> Result<Completion> {
        let mut facts = self.facts();
        let held = facts.held(claim);
        facts.claims.remove(&claim.token);
        let mut path = held?;
        let done = path.claim.map(|(_, sequence)| sequence).unwrap_or_default();
        path.facts.retain(|(number, _)| *number > done);
        if path.facts.is_empty() {
            facts.paths.remove(&claim.entry.path);
            return Ok(Completion::Done);
        }
        facts.paths.insert(claim.entry.path.clone(), Path { claim: None, attempts: 0, ..path });
        Ok(Completion::Newer)
    }

    fn release(&self, claim: &Claim, retry_at: Timestamp, now: Timestamp) -> Result<()> {
        let mut facts = self.facts();
        let held = facts.held(claim);
        facts.claims.remove(&claim.token);
        let path = held?;
        let attempts = path.attempts + 1;
        facts.paths.insert(claim.entry.path.clone(), Path { claim: None, attempts, ..path });
        facts.retime(&claim.entry.path, |times| Times {
            stamp: now,
            due: retry_at,
            latest: times.latest.max(retry_at),
            ..times
        });
        Ok(())
    }

    fn expire_dead_workers(&self, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
        let mut facts = self.facts();
        let held = facts.claims.iter().filter(|(_, lease)| is_dead(&lease.worker));
        let dead: Vec<u64> = held.map(|(token, _)| *token).collect();
        facts.workers.retain(|name, _| !is_dead(&WorkerId(name.clone())));
        dead.iter().for_each(|&token| facts.end(token));
        Ok(dead.len() as u64)
    }

    fn give_back(&self, claims: &[&Claim], _now: Timestamp) -> Result<()> {
        let mut facts = self.facts();
        for claim in claims {
            let held = facts.held(claim);
            facts.claims.remove(&claim.token);
            if let Ok(path) = held {
                facts.paths.insert(claim.entry.path.clone(), Path { claim: None, ..path });
                if let Some(presence) = facts.workers.get_mut(&claim.worker.0) {
                    presence.granted = presence.granted.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    fn pending(&self) -> Result<Summary> {
        let facts = self.facts();
        let mut summary = Summary::default();
        for entry in facts.paths.iter().filter_map(|(path, facts)| facts.entry(path)) {
            summary.by_kind[entry.kind as usize] += 1;
            summary.claimed += u64::from(entry.token.is_some());
            summary.oldest = Some(summary.oldest.map_or(entry.first, |oldest| oldest.min(entry.first)));
        }
        Ok(summary)
    }

    fn entries(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Entry>> {
        let facts = self.facts();
        let later = facts.paths.iter().filter(|(path, _)| after.is_none_or(|after| path.as_slice() > after));
        Ok(later.filter_map(|(path, facts)| facts.entry(path)).take(limit.min(MAX_PAGE)).collect())
    }

    fn sequence(&self) -> Result<Sequence> {
        Ok(self.facts().sequence)
    }

    fn durability(&self) -> Durability {
        Durability::Volatile
    }
}
