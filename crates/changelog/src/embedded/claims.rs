//! Claims on what is pending. Everything here happens within one transaction of the caller.

use crate::busy::{Busy, MAX_PASSED_OVER};
use crate::embedded::state::Slot;
use crate::embedded::store::{Lock, Row, Store};
use crate::entry::{Claim, Completion, WorkerId};
use crate::error::{Refusal, Result};
use crate::{CLOCK_TOLERANCE, MAX_CLAIM};
use gabion_platform::world::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// Result for a worker that may no longer hold its claim. The transaction commits in either case, because it ends the
/// lock.
type Held<T> = std::result::Result<T, Refusal>;

pub(super) fn claim(
    store: Store<'_>,
    worker: &WorkerId,
    limit: usize,
    lease: Duration,
    now: Timestamp,
) -> Result<Vec<Claim>> {
    let mut busy = begin(store, now)?.0;
    grant_chosen(store, &mut busy, worker, limit, lease, now)
}

/// Ends leases that ran out, and corrects times from the future. Returns the paths of live claims and the names of
/// their workers.
pub(super) fn begin(store: Store<'_>, now: Timestamp) -> Result<(Busy, BTreeSet<String>)> {
    let begun = end_leases(store, now)?;
    for (path, mut row) in store.stamped_after(now + CLOCK_TOLERANCE)? {
        if let Some(slot) = &mut row.slot {
            slot.state.pull_back(now);
        }
        store.write(&path, &row)?;
    }
    Ok(begun)
}

/// As [`claim`], for these paths, due or not; also the paths that other claims are in the way of.
pub(super) fn claim_paths(
    store: Store<'_>,
    worker: &WorkerId,
    paths: &[Vec<u8>],
    lease: Duration,
    now: Timestamp,
) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
    let (mut busy, _) = end_leases(store, now)?;
    let (mut chosen, mut taken) = (Vec::new(), Vec::new());
    for path in paths.iter().take(MAX_CLAIM) {
        let Some(Slot { state, token, .. }) = store.row(path)?.slot else { continue };
        match token == 0 && busy.take(state.kind, path, state.origin.as_deref()) {
            true => chosen.push(path.clone()),
            false => taken.push(path.clone()),
        }
    }
    Ok((grant(store, worker, chosen, lease, now)?, taken))
}

/// Claims entries that touch no busy path.
pub(super) fn grant_chosen(
    store: Store<'_>,
    busy: &mut Busy,
    worker: &WorkerId,
    limit: usize,
    lease: Duration,
    now: Timestamp,
) -> Result<Vec<Claim>> {
    let chosen = choose(store, busy, limit.min(MAX_CLAIM), now)?;
    grant(store, worker, chosen, lease, now)
}

/// Gives a worker claims on these paths.
fn grant(
    store: Store<'_>,
    worker: &WorkerId,
    chosen: Vec<Vec<u8>>,
    lease: Duration,
    now: Timestamp,
) -> Result<Vec<Claim>> {
    let expires = now + lease;
    let mut claims = Vec::with_capacity(chosen.len());
    for path in chosen {
        let token = store.next_token()?;
        let mut row = store.row(&path)?;
        let Some(slot) = &mut row.slot else { continue };
        slot.token = token;
        slot.newer = None;
        let entry = slot.clone().entry(path);
        store.write(&entry.path, &row)?;
        store.put_lock(&Lock {
            token,
            path: entry.path.clone(),
            origin: entry.origin.clone(),
            kind: entry.kind,
            worker: worker.0.clone(),
            granted: now,
            expires,
        })?;
        claims.push(Claim { token, worker: worker.clone(), entry, expires });
    }
    Ok(claims)
}

/// Paths to claim, in order.
fn choose(store: Store<'_>, busy: &mut Busy, limit: usize, now: Timestamp) -> Result<Vec<Vec<u8>>> {
    let mut chosen = Vec::new();
    let mut passed_over = 0;
    if limit == 0 {
        return Ok(chosen);
    }
    store.due(now, |path, row| {
        let Some(Slot { state, .. }) = &row.slot else { return Ok(true) };
        if busy.take(state.kind, &path, state.origin.as_deref()) {
            chosen.push(path);
        } else {
            passed_over += 1;
        }
        Ok(chosen.len() < limit && passed_over < MAX_PASSED_OVER)
    })?;
    Ok(chosen)
}

/// Ends the claims whose lease ran out; the paths and the workers of the others. A lease from the future was given
/// before the clock was set back: it lasts as long as it was meant to, from now on.
fn end_leases(store: Store<'_>, now: Timestamp) -> Result<(Busy, BTreeSet<String>)> {
    let (mut busy, mut workers) = (Busy::default(), BTreeSet::new());
    for lock in store.locks()? {
        if lock.granted <= now && lock.expires <= now {
            end(store, &lock)?;
            continue;
        }
        if lock.granted > now {
            let lease = lock.expires.since(lock.granted);
            store.lease(lock.token, now, now + lease)?;
        }
        busy.take(lock.kind, &lock.path, lock.origin.as_deref());
        workers.insert(lock.worker);
    }
    Ok((busy, workers))
}

/// Expires a claim: its worker is gone.
fn end(store: Store<'_>, lock: &Lock) -> Result<()> {
    store.unlock(lock.token)?;
    let mut row = store.row(&lock.path)?;
    if let Some(slot) = held(&mut row, lock.token) {
        give_back(slot);
        store.write(&lock.path, &row)?;
    }
    Ok(())
}

/// Expires the claims of dead workers; returns their number.
pub(super) fn expire_dead_workers(store: Store<'_>, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<u64> {
    let mut expired = 0;
    for lock in store.locks()? {
        if is_dead(&WorkerId(lock.worker.clone())) {
            end(store, &lock)?;
            expired += 1;
        }
    }
    Ok(expired)
}

/// Returns an entry to the queue. Changes that were recorded during the claim are in its state already.
fn give_back(slot: &mut Slot) {
    slot.token = 0;
    slot.newer = None;
    slot.attempts = slot.attempts.saturating_add(1);
}

fn held(row: &mut Row, token: u64) -> Option<&mut Slot> {
    row.slot.as_mut().filter(|slot| slot.token == token)
}

/// The row of a claim, if it is still held.
pub(super) fn find(store: Store<'_>, claim: &Claim) -> Result<Held<Row>> {
    let mut row = store.row(&claim.entry.path)?;
    if held(&mut row, claim.token).is_some() {
        return Ok(Ok(row));
    }
    Ok(Err(if store.is_locked(claim.token)? { Refusal::Overtaken } else { Refusal::Lost }))
}

pub(super) fn renew(store: Store<'_>, claim: &Claim, now: Timestamp, expires: Timestamp) -> Result<Held<()>> {
    match find(store, claim)? {
        Ok(_) => store.lease(claim.token, now, expires).map(|_| Ok(())),
        Err(why) => Ok(Err(why)),
    }
}

/// Removes what was recorded up to the claim; later changes stay.
pub(super) fn complete(store: Store<'_>, claim: &Claim) -> Result<Held<Completion>> {
    finish(store, claim, |mut slot| match slot.newer.take() {
        None => (None, Completion::Done),
        Some(state) => (Some(Slot { state, token: 0, attempts: 0, ..slot }), Completion::Newer),
    })
}

pub(super) fn release(
    store: Store<'_>,
    claim: &Claim,
    retry_at: Timestamp,
    now: Timestamp,
) -> Result<Held<()>> {
    finish(store, claim, |mut slot| {
        give_back(&mut slot);
        slot.state.retry(now, retry_at);
        (Some(slot), ())
    })
}

/// Ends a claim on which no work was begun: no attempt is counted, and the entry is due as it was.
pub(super) fn give_back_untouched(store: Store<'_>, claim: &Claim) -> Result<Held<()>> {
    finish(store, claim, |mut slot| {
        slot.token = 0;
        slot.newer = None;
        (Some(slot), ())
    })
}

/// Ends a claim. A worker that is refused has stopped as well, so its lock ends in either case.
fn finish<T>(
    store: Store<'_>,
    claim: &Claim,
    end: impl FnOnce(Slot) -> (Option<Slot>, T),
) -> Result<Held<T>> {
    let found = find(store, claim)?;
    store.unlock(claim.token)?;
    let mut row = match found {
        Ok(row) => row,
        Err(why) => return Ok(Err(why)),
    };
    let Some(slot) = row.slot.take() else { return Ok(Err(Refusal::Lost)) };
    let (left, outcome) = end(slot);
    if let Some(slot) = &left {
        store.note_stamp(slot.state.stamp)?;
    }
    row.slot = left;
    store.write(&claim.entry.path, &row)?;
    Ok(Ok(outcome))
}
