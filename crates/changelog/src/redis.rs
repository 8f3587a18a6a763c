//! The engine for more than one host: a Redis server, 7.0 or later, that keeps an append-only file.
//!
//! Every operation is one function of the library in `functions.lua`, `limits.lua`, `claims.lua`, `journal.lua`,
//! `tasks.lua`, `monitors.lua` and `windows.lua`, so it happens as a whole or not at all. The library is loaded when
//! the changelog is opened and again whenever the server has lost it. Changes are merged as they arrive.
//!
//! A call that gets no answer is repeated a bounded number of times with the same request number, and the server
//! answers a repeated request as before, so that a rename counts once. If the server stays away, the call fails; the
//! changes may or may not be recorded then.

pub mod address;
mod answer;
mod clock;
mod journal;
mod link;
mod monitors;
mod tasks;
mod windows;

use crate::busy::MAX_PASSED_OVER;
use crate::change::{Change, Span, What, Window};
use crate::codec::{Reader, put_change};
use crate::entry::{Claim, Completion, Durability, Entry, Memory, Sequence, Summary, WorkerId};
use crate::error::{Error, Refusal, Result};
use crate::journal::Journal;
use crate::limits::{Allowance, Limits};
use crate::monitors::Monitors;
use crate::queue::{Batch, Queue, Ticket};
use crate::server::Server;
use crate::share::{self, Ask, KnownWorker, MAX_COUNTED, Share};
use crate::tasks::Tasks;
use crate::windows::Windows;
use crate::{CLOCK_TOLERANCE, Changelog, MAX_CLAIM, MAX_PAGE};
use answer::Answer;
use clock::Shift;
use gabion_platform::world::{Timestamp, unique_id};
use link::{Link, hex, time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most changes in one call: the server does nothing else meanwhile, some milliseconds.
pub const CALL_CHANGES: usize = 256;

/// A changelog on a server.
pub struct Redis {
    queue: Queue,
    link: Mutex<Link>,
    durability: Durability,
    recorded: Arc<Mutex<Recorded>>,
}

/// What the server must know of the changes that were recorded here.
struct Recorded {
    /// Key of the client that recorded them.
    key: String,
    /// Its last request that was answered.
    answered: Vec<u8>,
    /// How often the server had forgotten it.
    losses: u64,
}

impl Redis {
    /// Opens the changelog on a server; it begins to exist with the first change.
    ///
    /// # Errors
    /// The server is away or too old, or it may forget what it acknowledged and that is not allowed.
    pub fn open(server: &Server) -> Result<Redis> {
        let mut link = Link::new(server)?;
        let durability = link.durability()?;
        let mut recorder = Link::new(server)?;
        let recorded = Recorded { key: recorder.own_key(), answered: Vec::new(), losses: 0 };
        let recorded = Arc::new(Mutex::new(recorded));
        let known = Arc::clone(&recorded);
        let commit = Box::new(move |batch: &Batch| record(&mut recorder, &known, batch));
        let queue = Queue::start(commit, Box::new(|_| ()))?;
        Ok(Redis { queue, link: Mutex::new(link), durability, recorded })
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        // A panic under this lock leaves at most a connection without its answer, which is not used again.
        lock(&self.link)
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a batch in calls that are short enough.
fn record(link: &mut Link, recorded: &Mutex<Recorded>, batch: &Batch) -> Result<Sequence> {
    let mut reader = Reader(&batch.bytes);
    loop {
        let request = link.next_request();
        let changes: Vec<Change> = std::iter::from_fn(|| reader.change()).take(CALL_CHANGES).collect();
        let previous = lock(recorded).answered.clone();
        let arguments = |shift| {
            let mut arguments = vec![request.clone(), previous.clone()];
            changes.iter().for_each(|change| put_arguments(change, shift, &mut arguments));
            arguments
        };
        let last = link.call_at("record", arguments)?.sequence()?;
        lock(recorded).answered = request;
        if reader.is_at_end() {
            return Ok(last);
        }
    }
}

fn put_arguments(change: &Change, shift: Shift, arguments: &mut Vec<Vec<u8>>) {
    let none = Vec::new;
    let (mut versions, mut seen) = ([none(), none()], [none(), none()]);
    let (tag, path, other, range) = match &change.what {
        What::Modify { path, range, span, window } => {
            versions = span.map_or(versions, |Span { from, to }| [from.to_vec(), to.to_vec()]);
            seen = window.map_or(seen, |Window { from, to, since }| [[from, to].concat(), hex(since)]);
            ("modify", path.clone(), none(), range.clone())
        }
        What::Rename { from, to } => ("rename", from.clone(), to.clone(), 0..0),
        What::Delete { path } => ("delete", path.clone(), none(), 0..0),
        What::Gap { root } => ("gap", root.clone(), none(), 0..0),
    };
    let when = change.when;
    let there = |moment| time(shift.there(moment));
    arguments.extend([tag.into(), path, other, hex(range.start), hex(range.end)]);
    arguments.extend([there(when.at), there(when.due), there(when.latest), when.priority.to_string().into()]);
    arguments.extend(versions);
    arguments.extend(seen);
}

fn claims_of(entries: Vec<Entry>, worker: &WorkerId, expires: Timestamp) -> Vec<Claim> {
    let claim = |entry: Entry| {
        let token = entry.token.unwrap_or_default();
        Claim { token, worker: worker.clone(), entry, expires }
    };
    entries.into_iter().map(claim).collect()
}

/// Result of an operation on a claim.
fn outcome_of(claim: &Claim, answer: &Answer) -> Result<Completion> {
    outcome(claim, &answer.text()?).unwrap_or_else(|| Err(answer.nonsense()))
}

fn outcome(claim: &Claim, word: &str) -> Option<Result<Completion>> {
    match word {
        "done" | "released" => Some(Ok(Completion::Done)),
        "newer" => Some(Ok(Completion::Newer)),
        "lost" => Some(Err(Error::Refused { token: claim.token, why: Refusal::Lost })),
        "overtaken" => Some(Err(Error::Refused { token: claim.token, why: Refusal::Overtaken })),
        _ => None,
    }
}

/// A claim as functions want it: path, token and worker.
fn named(claim: &Claim) -> [Vec<u8>; 3] {
    [claim.entry.path.clone(), claim.token.to_string().into(), claim.worker.0.clone().into()]
}

/// A request that is about claims.
fn about(request: Vec<u8>, claims: &[&Claim]) -> Vec<Vec<u8>> {
    [request].into_iter().chain(claims.iter().flat_map(|claim| named(claim))).collect()
}

impl Changelog for Redis {
    fn record_later(&self, changes: &[Change]) -> Result<Ticket> {
        self.queue.submit(changes, put_change)
    }

    fn claim(&self, worker: &WorkerId, limit: usize, lease: Duration, now: Timestamp) -> Result<Vec<Claim>> {
        let expires = now + lease;
        let arguments = |shift: Shift| {
            let there = |moment| time(shift.there(moment));
            vec![
                worker.0.clone().into_bytes(),
                limit.min(MAX_CLAIM).to_string().into(),
                there(now),
                there(now + CLOCK_TOLERANCE),
                there(expires),
                MAX_PASSED_OVER.to_string().into(),
            ]
        };
        Ok(claims_of(self.link().call_at("claim", arguments)?.entries()?, worker, expires))
    }

    fn claim_paths(
        &self,
        worker: &WorkerId,
        paths: &[Vec<u8>],
        lease: Duration,
        now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
        let expires = now + lease;
        let arguments = |shift: Shift| {
            let times = [now, expires].map(|moment| time(shift.there(moment)));
            let paths = paths.iter().take(MAX_CLAIM).cloned();
            [worker.0.clone().into_bytes()].into_iter().chain(times).chain(paths).collect()
        };
        let answer = self.link().call_at("claim_paths", arguments)?;
        let [claims, taken] = &answer.list()?[..] else { return Err(answer.nonsense()) };
        let taken = taken.list()?.iter().map(Answer::path).collect::<Result<_>>()?;
        Ok((claims_of(claims.entries()?, worker, expires), taken))
    }

    fn claim_share(&self, ask: &Ask<'_>, now: Timestamp) -> Result<Share> {
        let expires = now + ask.lease;
        let flag = |is_set| if is_set { b"1".to_vec() } else { b"0".to_vec() };
        let arguments = |shift: Shift| {
            let there = |moment| time(shift.there(moment));
            let [over, stale, future] = share::bounds(now).map(there);
            vec![
                ask.worker.0.clone().into_bytes(),
                ask.limit.min(MAX_CLAIM).to_string().into(),
                there(now),
                there(now + CLOCK_TOLERANCE),
                there(expires),
                MAX_PASSED_OVER.to_string().into(),
                ask.threads.to_string().into(),
                flag(ask.attends),
                flag(ask.insists),
                flag(ask.heeds_drain),
                over,
                stale,
                future,
                MAX_COUNTED.to_string().into(),
            ]
        };
        let answer = self.link().call_at("claim_share", arguments)?;
        let fields = answer.list()?;
        let [due, is_reserved, is_draining, has_others, is_limited, claims] = fields.as_slice() else {
            return Err(answer.nonsense());
        };
        let claims = claims_of(claims.entries()?, ask.worker, expires);
        Ok(Share {
            claims,
            due: due.number()?,
            is_reserved: is_reserved.flag()?,
            is_draining: is_draining.flag()?,
            has_others: has_others.flag()?,
            is_limited: is_limited.flag()?,
        })
    }

    fn attend(&self, worker: &WorkerId, now: Timestamp) -> Result<bool> {
        let arguments = |shift: Shift| {
            let there = |moment| time(shift.there(moment));
            let [over, stale, future] = share::bounds(now).map(there);
            vec![worker.0.clone().into_bytes(), there(now), over, stale, future]
        };
        self.link().call_at("attend", arguments)?.flag()
    }

    fn is_draining(&self, worker: &WorkerId) -> Result<bool> {
        self.link().call("is_draining", &[worker.0.clone().into_bytes()])?.flag()
    }

    fn leave(&self, worker: &WorkerId) -> Result<()> {
        self.link().call("leave", &[worker.0.clone().into_bytes()]).map(drop)
    }

    fn workers(&self, now: Timestamp) -> Result<Vec<KnownWorker>> {
        let [over, _, future] = share::bounds(now);
        let arguments = |shift: Shift| [over, future].map(|moment| time(shift.there(moment))).to_vec();
        let known = self.link().call_at("known_workers", arguments)?.list()?;
        let mut known = known.iter().map(Answer::known_worker).collect::<Result<Vec<_>>>()?;
        known.sort_by(|one, other| one.worker.cmp(&other.worker));
        Ok(known)
    }

    fn set_draining(&self, host: &str, is_draining: bool) -> Result<()> {
        let is_draining = if is_draining { "1" } else { "0" };
        self.link().call("set_draining", &[host.into(), is_draining.into()]).map(drop)
    }

    fn draining_hosts(&self) -> Result<Vec<String>> {
        let hosts = self.link().call("draining_hosts", &[])?.list()?;
        let mut hosts = hosts.iter().map(Answer::text).collect::<Result<Vec<_>>>()?;
        hosts.sort();
        Ok(hosts)
    }

    fn set_limits(&self, host: &str, limits: Option<Limits>) -> Result<()> {
        let limits = limits.map(Limits::to_text).unwrap_or_default();
        self.link().call("set_limits", &[host.into(), limits.into()]).map(drop)
    }

    fn limits(&self) -> Result<BTreeMap<String, Limits>> {
        let pairs = self.link().call("limits", &[])?.list()?;
        pairs.chunks_exact(2).map(|pair| Ok((pair[0].text()?, pair[1].limits()?))).collect()
    }

    fn allowance(&self, worker: &WorkerId) -> Result<Allowance> {
        let answer = self.link().call("allowance", &[worker.0.clone().into_bytes()])?;
        let [limits, others] = &answer.list()?[..] else { return Err(answer.nonsense()) };
        Ok(Allowance { limits: limits.limits()?, others: others.number()? })
    }

    fn give_back(&self, claims: &[&Claim], _now: Timestamp) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let mut link = self.link();
        let request = link.next_request();
        link.call("give_back", &about(request, claims)).map(drop)
    }

    fn renew(&self, claim: &mut Claim, lease: Duration, now: Timestamp) -> Result<()> {
        let expires = now + lease;
        let arguments = |shift: Shift| {
            let [now, expires] = [now, expires].map(|moment| time(shift.there(moment)));
            named(claim).into_iter().chain([now, expires]).collect()
        };
        let answer = self.link().call_at("renew", arguments)?;
        outcome_of(claim, &answer)?;
        claim.expires = expires;
        Ok(())
    }

    /// One call for all: claims that wait for their turn would run out.
    fn renew_all(&self, claims: &[Claim], lease: Duration, now: Timestamp) -> Result<Vec<u64>> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = |shift: Shift| {
            let times = [now, now + lease].map(|moment| time(shift.there(moment)));
            times.into_iter().chain(claims.iter().flat_map(named)).collect()
        };
        let refused = self.link().call_at("renew_all", arguments)?.list()?;
        refused.iter().map(Answer::number).collect()
    }

    /// Two calls: the list of workers, then the dead ones of them. Names of workers are never used again, so a worker
    /// that was dead stays dead.
    fn expire_dead_workers(&self, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
        let workers = self.link().call("workers", &[])?.list()?;
        let mut dead = Vec::new();
        for name in workers {
            let worker = WorkerId(name.text()?);
            if is_dead(&worker) {
                dead.push(worker.0.into_bytes());
            }
        }
        if dead.is_empty() {
            return Ok(0);
        }
        let mut link = self.link();
        let arguments: Vec<Vec<u8>> = [link.next_request()].into_iter().chain(dead).collect();
        link.call("bury", &arguments)?.number()
    }

    fn still_mine(&self, claim: &Claim) -> Result<bool> {
        let answer = self.link().call("mine", &named(claim))?;
        match outcome_of(claim, &answer) {
            Err(Error::Refused { .. }) => Ok(false),
            other => other.map(|_| true),
        }
    }

    fn complete(&self, claim: &Claim) -> Result<Completion> {
        let mut link = self.link();
        let request = link.next_request();
        outcome_of(claim, &link.call("complete", &about(request, &[claim]))?)
    }

    fn which_are_mine(&self, claims: &[&Claim]) -> Result<Vec<bool>> {
        let mut mine = Vec::with_capacity(claims.len());
        for some in claims.chunks(CALL_CHANGES) {
            let arguments: Vec<Vec<u8>> = some.iter().flat_map(|claim| named(claim)).collect();
            let answer = self.link().call("which_are_mine", &arguments)?;
            let answers = answer.list()?;
            if answers.len() != some.len() {
                return Err(answer.nonsense());
            }
            for one in answers {
                mine.push(one.number()? == 1);
            }
        }
        Ok(mine)
    }

    /// In few calls: each waits until the server's file is on stable storage.
    fn complete_all(&self, claims: &[&Claim]) -> Result<Vec<Result<Completion>>> {
        let mut done = Vec::with_capacity(claims.len());
        for some in claims.chunks(CALL_CHANGES) {
            let mut link = self.link();
            let request = link.next_request();
            let answer = link.call("complete_all", &about(request, some))?;
            let text = answer.text()?;
            let words: Vec<&str> = text.split(' ').collect();
            if words.len() != some.len() {
                return Err(answer.nonsense());
            }
            for (claim, word) in some.iter().zip(words) {
                done.push(outcome(claim, word).ok_or_else(|| answer.nonsense())?);
            }
        }
        Ok(done)
    }

    fn release(&self, claim: &Claim, retry_at: Timestamp, now: Timestamp) -> Result<()> {
        let mut link = self.link();
        let request = link.next_request();
        let arguments = |shift: Shift| {
            let [now, retry_at] = [now, retry_at].map(|moment| time(shift.there(moment)));
            about(request.clone(), &[claim]).into_iter().chain([now, retry_at]).collect()
        };
        outcome_of(claim, &link.call_at("release", arguments)?).map(drop)
    }

    fn pending(&self) -> Result<Summary> {
        Ok(self.link().call("sums", &[])?.sums()?.0)
    }

    fn entries(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Entry>> {
        let from = after.map_or(b"-".to_vec(), |after| [b"(", after].concat());
        self.link().call("page", &[from, limit.min(MAX_PAGE).to_string().into()])?.entries()
    }

    fn sequence(&self) -> Result<Sequence> {
        Ok(self.link().call("sums", &[])?.sums()?.1)
    }

    /// The identity of the changelog tells a server that lost everything, its last number one that counts anew. One
    /// that came back with less than it had, and counted on before anybody asked, is known by the last request of the
    /// client here that records: it has to be there. Such a loss is a new identity as well.
    fn memory(&self) -> Result<Option<Memory>> {
        let id = unique_id()
            .map_err(|reason| Error::System { doing: "name a changelog", reason: Arc::new(reason) })?;
        let id = format!("{:032x}", u128::from_be_bytes(id));
        let (key, answered) = {
            let recorded = lock(&self.recorded);
            (recorded.key.clone(), recorded.answered.clone())
        };
        let answer = self.link().call_for(&key, "memory", &[id.into_bytes(), answered.clone()])?;
        let fields = answer.list()?;
        let [identity, sequence, forgot] = fields.as_slice() else { return Err(answer.nonsense()) };
        let mut recorded = lock(&self.recorded);
        if forgot.flag()? {
            recorded.losses += 1;
            // A later request may have been answered meanwhile.
            if recorded.answered == answered {
                recorded.answered.clear();
            }
        }
        let identity = match recorded.losses {
            0 => identity.text()?,
            losses => format!("{}, {losses} times behind", identity.text()?),
        };
        Ok(Some(Memory { identity, sequence: sequence.sequence()? }))
    }

    fn forget_all(&self) -> Result<()> {
        self.link().call("forget_all", &[]).map(drop)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn tasks(&self) -> Option<&dyn Tasks> {
        Some(self)
    }

    fn monitors(&self) -> Option<&dyn Monitors> {
        Some(self)
    }

    fn windows(&self) -> Option<&dyn Windows> {
        Some(self)
    }

    fn durability(&self) -> Durability {
        self.durability
    }
}
