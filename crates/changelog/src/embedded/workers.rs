//! Known workers, draining hosts and limits of hosts. Everything here happens within one transaction of the caller.

use super::claims;
use crate::embedded::store::Store;
use crate::entry::WorkerId;
use crate::error::Result;
use crate::limits::{self, Allowance, Limits};
use crate::share::{Ask, KnownWorker, MAX_COUNTED, Others, Presence, Share};
use gabion_platform::world::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Tables of their own, which earlier programs leave alone.
pub(super) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS workers (
        name TEXT PRIMARY KEY, since INTEGER NOT NULL, seen INTEGER NOT NULL, granted INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS draining (host TEXT PRIMARY KEY);
    CREATE TABLE IF NOT EXISTS limits (host TEXT PRIMARY KEY, limits TEXT NOT NULL);";

pub(super) fn claim_share(store: Store<'_>, ask: &Ask<'_>, now: Timestamp) -> Result<Share> {
    let (mut busy, mut holders) = claims::begin(store, now)?;
    let mut known = living(store, now)?;
    if ask.attends {
        refresh(store, &mut known, ask.worker, now)?;
    }
    let mine = known.remove(&ask.worker.0).filter(|_| ask.attends);
    let at_work = limits::at_work(ask.worker, holders.iter().map(String::as_str));
    holders.remove(&ask.worker.0);
    let draining = draining_hosts(store)?;
    let is_draining = |name: &str| draining.contains(WorkerId(name.to_owned()).host());
    let mut share = Share { has_others: !holders.is_empty(), ..Share::default() };
    if ask.heeds_drain && is_draining(&ask.worker.0) {
        share.is_draining = true;
        return Ok(share);
    }
    if ask.heeds_drain && limits::is_full(Limits::of(&all_limits(store)?, ask.worker), at_work) {
        share.is_limited = true;
        return Ok(share);
    }
    let strangers = holders.iter().filter(|name| !known.contains_key(*name) && !is_draining(name)).count();
    let attending = known.iter().filter(|(name, _)| !is_draining(name));
    let others = Others {
        granted: attending.map(|(_, presence)| presence.granted).collect(),
        strangers: strangers as u64,
    };
    let is_counted = ask.limit == 0 || !others.is_none();
    if is_counted {
        share.due = store.count_due(now, MAX_COUNTED)?;
    }
    let granted = mine.map_or(0, |it| it.granted);
    let allowed = others.allow(ask, granted, share.due);
    share.is_reserved = allowed == 0 && share.due > 0 && ask.limit > 0;
    let allowed = usize::try_from(allowed).unwrap_or(ask.limit);
    share.claims = claims::grant_chosen(store, &mut busy, ask.worker, allowed, ask.lease, now)?;
    if is_counted && share.due == 0 {
        store.0.execute("UPDATE workers SET granted = 0 WHERE granted <> 0", [])?;
    } else if ask.attends && !share.claims.is_empty() {
        let granted = granted + share.claims.len() as u64;
        store.0.execute("UPDATE workers SET granted = ?2 WHERE name = ?1", (&ask.worker.0, granted))?;
    }
    Ok(share)
}

/// Claims that were given back count as not granted.
pub(super) fn take_back(store: Store<'_>, worker: &WorkerId, number: u64) -> Result<()> {
    let sql = "UPDATE workers SET granted = max(0, granted - ?2) WHERE name = ?1 AND granted > 0";
    store.0.execute(sql, (&worker.0, number)).map(drop)
}

/// Gives a sign of life.
pub(super) fn attend(store: Store<'_>, worker: &WorkerId, now: Timestamp) -> Result<()> {
    let mut known = living(store, now)?;
    refresh(store, &mut known, worker, now)
}

fn refresh(
    store: Store<'_>,
    known: &mut BTreeMap<String, Presence>,
    worker: &WorkerId,
    now: Timestamp,
) -> Result<()> {
    let is_new = !known.contains_key(&worker.0);
    let presence = known.entry(worker.0.clone()).or_insert_with(|| Presence::new(now));
    if is_new || presence.is_stale(now) {
        presence.seen = now;
        let Presence { since, granted, .. } = *presence;
        let sql = "INSERT OR REPLACE INTO workers (name, since, seen, granted) VALUES (?1, ?2, ?3, ?4)";
        store.0.execute(sql, (&worker.0, since, now, granted))?;
    }
    Ok(())
}

/// Attending workers; those without a recent sign of life are removed.
fn living(store: Store<'_>, now: Timestamp) -> Result<BTreeMap<String, Presence>> {
    let mut known = attending(store)?;
    let over = known.extract_if(.., |_, presence| presence.is_over(now));
    for (name, _) in over.collect::<Vec<_>>() {
        forget(store, &name)?;
    }
    Ok(known)
}

fn attending(store: Store<'_>) -> Result<BTreeMap<String, Presence>> {
    let mut known = BTreeMap::new();
    store.0.each("SELECT name, since, seen, granted FROM workers", [], |row| {
        let (since, seen, granted) =
            (store.0.column(row, 1)?, store.0.column(row, 2)?, store.0.column(row, 3)?);
        known.insert(store.0.column(row, 0)?, Presence { since, seen, granted });
        Ok(true)
    })?;
    Ok(known)
}

pub(super) fn forget(store: Store<'_>, name: &str) -> Result<()> {
    store.0.execute("DELETE FROM workers WHERE name = ?1", [name]).map(drop)
}

/// Forgets workers that are dead.
pub(super) fn forget_dead(store: Store<'_>, is_dead: &dyn Fn(&WorkerId) -> bool) -> Result<()> {
    let names = attending(store)?.into_keys();
    let mut dead = names.filter(|name| is_dead(&WorkerId(name.clone())));
    dead.try_for_each(|name| forget(store, &name))
}

pub(super) fn workers(store: Store<'_>, now: Timestamp) -> Result<Vec<KnownWorker>> {
    let draining = draining_hosts(store)?;
    let known = |name: String, since: Timestamp, attends: bool| {
        let worker = WorkerId(name);
        let is_draining = draining.contains(worker.host());
        KnownWorker { worker, since, claims: 0, attends, is_draining }
    };
    let mut all: BTreeMap<String, KnownWorker> = BTreeMap::new();
    for (name, presence) in attending(store)? {
        if !presence.is_over(now) {
            all.insert(name.clone(), known(name, presence.since, true));
        }
    }
    for lock in store.locks()? {
        let name = lock.worker.clone();
        let worker = all.entry(name).or_insert_with(|| known(lock.worker, lock.granted, false));
        worker.claims += 1;
        if !worker.attends {
            worker.since = worker.since.min(lock.granted);
        }
    }
    Ok(all.into_values().collect())
}

pub(super) fn draining_hosts(store: Store<'_>) -> Result<BTreeSet<String>> {
    let mut hosts = BTreeSet::new();
    store.0.each("SELECT host FROM draining", [], |row| {
        hosts.insert(store.0.column(row, 0)?);
        Ok(true)
    })?;
    Ok(hosts)
}

pub(super) fn set_draining(store: Store<'_>, host: &str, is_draining: bool) -> Result<()> {
    let sql = match is_draining {
        true => "INSERT OR IGNORE INTO draining (host) VALUES (?1)",
        false => "DELETE FROM draining WHERE host = ?1",
    };
    store.0.execute(sql, [host]).map(drop)
}

pub(super) fn all_limits(store: Store<'_>) -> Result<BTreeMap<String, Limits>> {
    let mut all = BTreeMap::new();
    store.0.each("SELECT host, limits FROM limits", [], |row| {
        let text: String = store.0.column(row, 1)?;
        let limits = Limits::from_text(&text).ok_or_else(|| store.0.damaged(format!("limits {text:?}")))?;
        all.insert(store.0.column(row, 0)?, limits);
        Ok(true)
    })?;
    Ok(all)
}

pub(super) fn set_limits(store: Store<'_>, host: &str, limits: Option<Limits>) -> Result<()> {
    match limits {
        Some(limits) => {
            let sql = "INSERT OR REPLACE INTO limits (host, limits) VALUES (?1, ?2)";
            store.0.execute(sql, (host, limits.to_text())).map(drop)
        }
        None => store.0.execute("DELETE FROM limits WHERE host = ?1", [host]).map(drop),
    }
}

pub(super) fn allowance(store: Store<'_>, worker: &WorkerId) -> Result<Allowance> {
    let limits = Limits::of(&all_limits(store)?, worker);
    let locks = store.locks()?;
    let (others, _) = limits::at_work(worker, locks.iter().map(|lock| lock.worker.as_str()));
    Ok(Allowance { limits, others })
}
