//! Known workers of the model.

use super::{Allowance, Ask, Facts, KnownWorker, Lease, Limits, Others, Presence, Share};
use crate::entry::WorkerId;
use gabion_platform::world::Timestamp;
use std::collections::BTreeSet;

impl Facts {
    fn is_draining(&self, name: &str) -> bool {
        self.draining.contains(WorkerId(name.to_owned()).host())
    }

    pub(super) fn attend(&mut self, worker: &WorkerId, now: Timestamp) {
        self.workers.retain(|_, presence| !presence.is_over(now));
        let presence = self.workers.entry(worker.0.clone()).or_insert_with(|| Presence::new(now));
        if presence.is_stale(now) {
            presence.seen = now;
        }
    }

    pub(super) fn claim_share(&mut self, ask: &Ask<'_>, now: Timestamp) -> Share {
        self.end_leases(now);
        self.pull_back(now);
        self.workers.retain(|_, presence| !presence.is_over(now));
        if ask.attends {
            self.attend(ask.worker, now);
        }
        let name = &ask.worker.0;
        let holders: BTreeSet<&String> =
            self.claims.values().map(|lease| &lease.worker.0).filter(|holder| *holder != name).collect();
        let mut share = Share { has_others: !holders.is_empty(), ..Share::default() };
        if ask.heeds_drain && self.is_draining(name) {
            return Share { is_draining: true, ..share };
        }
        let Allowance { limits, others } = self.allowance(ask.worker);
        let is_at_work = self.claims.values().any(|lease| lease.worker == *ask.worker);
        if ask.heeds_drain && !is_at_work && limits.at_once.is_some_and(|it| others >= u64::from(it)) {
            return Share { is_limited: true, ..share };
        }
        let attending = self.workers.iter().filter(|(other, _)| *other != name && !self.is_draining(other));
        let granted: Vec<u64> = attending.map(|(_, presence)| presence.granted).collect();
        let is_stranger =
            |holder: &&&String| !self.workers.contains_key(**holder) && !self.is_draining(holder);
        let strangers = holders.iter().filter(is_stranger).count() as u64;
        let others = Others { granted, strangers };
        let is_counted = ask.limit == 0 || !others.is_none();
        if is_counted {
            let entries = self.paths.iter().filter_map(|(path, facts)| facts.entry(path));
            share.due = entries.filter(|entry| entry.token.is_none() && entry.due <= now).count() as u64;
        }
        let mine = self.workers.get(name).filter(|_| ask.attends).map_or(0, |it| it.granted);
        let allowed = others.allow(ask, mine, share.due);
        share.is_reserved = allowed == 0 && share.due > 0 && ask.limit > 0;
        share.claims = self.grant_chosen(ask.worker, allowed as usize, ask.lease, now);
        if is_counted && share.due == 0 {
            self.workers.values_mut().for_each(|presence| presence.granted = 0);
        } else if ask.attends
            && let Some(presence) = self.workers.get_mut(&ask.worker.0)
        {
            presence.granted += share.claims.len() as u64;
        }
        share
    }

    pub(super) fn set_limits(&mut self, host: &str, limits: Option<Limits>) {
        match limits {
            Some(limits) => self.limits.insert(host.to_owned(), limits),
            None => self.limits.remove(host),
        };
    }

    pub(super) fn allowance(&self, worker: &WorkerId) -> Allowance {
        let all = self.claims.values().map(|lease| &lease.worker);
        let others: BTreeSet<&WorkerId> =
            all.filter(|it| it.host() == worker.host() && *it != worker).collect();
        Allowance { limits: Limits::of(&self.limits, worker), others: others.len() as u64 }
    }

    pub(super) fn known_workers(&self, now: Timestamp) -> Vec<KnownWorker> {
        let living = self.workers.iter().filter(|(_, presence)| !presence.is_over(now));
        let holders = self.claims.values().map(|lease| &lease.worker.0);
        let names: BTreeSet<&String> = living.map(|(name, _)| name).chain(holders).collect();
        let known = |name: &String| {
            let leases: Vec<&Lease> = self.claims.values().filter(|lease| lease.worker.0 == *name).collect();
            let presence = self.workers.get(name).filter(|presence| !presence.is_over(now));
            let oldest = leases.iter().map(|lease| lease.granted).min().unwrap_or(now);
            KnownWorker {
                worker: WorkerId(name.clone()),
                since: presence.map_or(oldest, |presence| presence.since),
                claims: leases.len() as u64,
                attends: presence.is_some(),
                is_draining: self.is_draining(name),
            }
        };
        names.into_iter().map(known).collect()
    }
}
