//! Placeholder for a changelog that cannot be reached: every call fails with the error of opening it. For commands
//! that need none.

use crate::Changelog;
use crate::change::Change;
use crate::entry::{Claim, Completion, Durability, Entry, Sequence, Summary, WorkerId};
use crate::error::{Error, Result};
use crate::limits::{Allowance, Limits};
use crate::queue::Ticket;
use crate::share::KnownWorker;
use gabion_platform::world::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Stands for an engine that failed when it was opened.
#[derive(Debug, Clone)]
pub struct Absent(pub Error);

impl Absent {
    fn refuse<T>(&self) -> Result<T> {
        Err(self.0.clone())
    }
}

impl Changelog for Absent {
    fn record_later(&self, _changes: &[Change]) -> Result<Ticket> {
        self.refuse()
    }

    fn claim(
        &self,
        _worker: &WorkerId,
        _limit: usize,
        _lease: Duration,
        _now: Timestamp,
    ) -> Result<Vec<Claim>> {
        self.refuse()
    }

    fn claim_paths(
        &self,
        _worker: &WorkerId,
        _paths: &[Vec<u8>],
        _lease: Duration,
        _now: Timestamp,
    ) -> Result<(Vec<Claim>, Vec<Vec<u8>>)> {
        self.refuse()
    }

    fn attend(&self, _worker: &WorkerId, _now: Timestamp) -> Result<bool> {
        self.refuse()
    }

    fn is_draining(&self, _worker: &WorkerId) -> Result<bool> {
        self.refuse()
    }

    fn leave(&self, _worker: &WorkerId) -> Result<()> {
        self.refuse()
    }

    fn workers(&self, _now: Timestamp) -> Result<Vec<KnownWorker>> {
        self.refuse()
    }

    fn set_draining(&self, _host: &str, _is_draining: bool) -> Result<()> {
        self.refuse()
    }

    fn draining_hosts(&self) -> Result<Vec<String>> {
        self.refuse()
    }

    fn set_limits(&self, _host: &str, _limits: Option<Limits>) -> Result<()> {
        self.refuse()
    }

    fn limits(&self) -> Result<BTreeMap<String, Limits>> {
        self.refuse()
    }

    fn allowance(&self, _worker: &WorkerId) -> Result<Allowance> {
        self.refuse()
    }

    fn renew(&self, _claim: &mut Claim, _lease: Duration, _now: Timestamp) -> Result<()> {
        self.refuse()
    }

    fn still_mine(&self, _claim: &Claim) -> Result<bool> {
        self.refuse()
    }

    fn complete(&self, _claim: &Claim) -> Result<Completion> {
        self.refuse()
    }

    fn release(&self, _claim: &Claim, _retry_at: Timestamp, _now: Timestamp) -> Result<()> {
        self.refuse()
    }

    fn pending(&self) -> Result<Summary> {
        self.refuse()
    }

    fn entries(&self, _after: Option<&[u8]>, _limit: usize) -> Result<Vec<Entry>> {
        self.refuse()
    }

    fn sequence(&self) -> Result<Sequence> {
        self.refuse()
    }

    fn durability(&self) -> Durability {
        Durability::Volatile
    }
}
