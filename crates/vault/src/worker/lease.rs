//! Leases of the claims that a worker holds.
//!
//! All claims of a batch are renewed in one call as soon as a third of the lease has passed: by threads that report
//! progress, and by a timer. Renewing each claim with the progress of its own file is not enough: the claims of a slow
//! worker expired while their files waited, a second worker took them over, the first took them back, and neither
//! finished.

use super::Worker;
use crate::changelog::{Changelog, Claim, WorkerId};
use crate::team::LEASE;
use crate::timer::with_timer;
use crate::world::{Clock, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Claims of one batch.
pub(super) struct Leases<'a> {
    changelog: &'a dyn Changelog,
    clock: &'a Clock,
    worker: &'a WorkerId,
    attends: bool,
    heeds_drain: bool,
    draining: AtomicBool,
    held: Mutex<Held>,
}

struct Held {
    claims: Vec<Claim>,
    renewed_at: Timestamp,
}

impl<'a> Leases<'a> {
    /// Claims that were made at `claimed_at` or later.
    pub(super) fn new(worker: &'a Worker<'a>, claims: &[Claim], claimed_at: Timestamp) -> Leases<'a> {
        let held = Held { claims: claims.to_vec(), renewed_at: claimed_at };
        Leases {
            changelog: worker.vault.changelog,
            clock: worker.vault.clock,
            worker: &worker.name,
            attends: worker.options.attends,
            heeds_drain: worker.options.heeds_drain,
            draining: AtomicBool::new(false),
            held: Mutex::new(held),
        }
    }

    /// True if the host is draining: jobs that have not begun are to be given back.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Gives a sign of life, and asks whether the host is draining. An error counts as no.
    fn attend(&self) {
        let is_draining = match (self.attends, self.heeds_drain) {
            (true, _) => self.changelog.attend(self.worker, self.clock.now()),
            (false, true) => self.changelog.is_draining(self.worker),
            (false, false) => return,
        };
        if self.heeds_drain && is_draining.is_ok_and(|is_draining| is_draining) {
            self.draining.store(true, Ordering::Relaxed);
        }
    }

    /// Renews all claims if a third of their lease has passed. Returns at once if another thread is renewing.
    pub(super) fn tick(&self) {
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
        };
        let now = self.clock.now();
        // After the clock was set back the lease counts from the new time.
        if (held.renewed_at..=(held.renewed_at + LEASE / 3)).contains(&now) || held.claims.is_empty() {
            return;
        }
        held.renewed_at = now;
        // A failed renewal is repeated after another third; errors surface when claims are completed. Refused claims
        // belong to another worker.
        if let Ok(refused) = self.changelog.renew_all(&held.claims, LEASE, now) {
            held.claims.retain(|claim| !refused.contains(&claim.token));
        }
    }

    /// Removes claims that this worker no longer holds.
    pub(super) fn forget<'b>(&self, claims: impl IntoIterator<Item = &'b Claim>) {
        let tokens: Vec<u64> = claims.into_iter().map(|claim| claim.token).collect();
        lock(&self.held).claims.retain(|claim| !tokens.contains(&claim.token));
    }

    /// Runs `work` while a timer renews the claims. With a manual clock no timer is needed.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        if matches!(self.clock, Clock::Manual(_)) {
            return work();
        }
        // Without a timer, progress still renews the claims.
        let tick = || {
            self.tick();
            self.attend();
        };
        with_timer("leases", &tick, work)
    }
}

/// A panic leaves no inconsistent state under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
