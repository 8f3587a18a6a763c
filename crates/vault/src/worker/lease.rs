//! Leases of the claims that a worker holds.
//!
//! All claims of a batch are renewed together, in one call, as soon as a third of the lease is used: by a thread that made progress, and by a
//! timer that needs none. Renewed one by one, with the progress of their own files, the claims of a slow worker expired while they
//! waited for their turn: a second worker took them over, the first one took them back, and neither finished.

use crate::changelog::{Changelog, Claim};
use crate::world::{Clock, Nanos, SECOND};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a claim outlives the last renewal: the time that work of a host that died waits for another one.
pub(super) const LEASE: Nanos = 10 * SECOND;

/// Interval of the timer: several attempts before a lease ends.
const INTERVAL: Duration = Duration::from_millis(1500);

/// The claims of one batch.
pub(super) struct Leases<'a> {
    changelog: &'a dyn Changelog,
    clock: &'a Clock,
    held: Mutex<Held>,
    ended: Mutex<bool>,
    end: Condvar,
}

struct Held {
    claims: Vec<Claim>,
    renewed_at: Nanos,
}

impl<'a> Leases<'a> {
    /// Claims that were made at `claimed_at`, or later.
    pub(super) fn new(
        changelog: &'a dyn Changelog,
        clock: &'a Clock,
        claims: &[Claim],
        claimed_at: Nanos,
    ) -> Leases<'a> {
        let held = Held { claims: claims.to_vec(), renewed_at: claimed_at };
        Leases { changelog, clock, held: Mutex::new(held), ended: Mutex::default(), end: Condvar::new() }
    }

    /// Renews all claims if a third of their lease is used. Does not wait for another thread that is at it.
    pub(super) fn tick(&self) {
        let mut held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
        };
        let now = self.clock.now();
        let used = now.saturating_sub(held.renewed_at);
        // By a clock that was set back nothing is ever used up, and others count from then on.
        if (0..=LEASE / 3).contains(&used) || held.claims.is_empty() {
            return;
        }
        held.renewed_at = now;
        // If it fails, it is tried again after another third, and completing says what is wrong. What is refused is somebody else's.
        if let Ok(refused) = self.changelog.renew_all(&held.claims, LEASE, now) {
            held.claims.retain(|claim| !refused.contains(&claim.token));
        }
    }

    /// These are not ours any more.
    pub(super) fn forget<'b>(&self, claims: impl IntoIterator<Item = &'b Claim>) {
        let tokens: Vec<u64> = claims.into_iter().map(|claim| claim.token).collect();
        lock(&self.held).claims.retain(|claim| !tokens.contains(&claim.token));
    }

    /// Runs `work` while a timer renews the claims. By a manual clock no time passes by itself, and no timer is needed.
    pub(super) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        if matches!(self.clock, Clock::Manual(_)) {
            return work();
        }
        std::thread::scope(|scope| {
            let _ending = Ending(self);
            let timer = std::thread::Builder::new().name("leases".to_owned());
            // Without a thread, progress renews them.
            let _ = timer.spawn_scoped(scope, || self.keep());
            work()
        })
    }

    fn keep(&self) {
        let mut ended = lock(&self.ended);
        while !*ended {
            let woken = self.end.wait_timeout(ended, INTERVAL);
            ended = woken.unwrap_or_else(PoisonError::into_inner).0;
            if !*ended {
                drop(ended);
                self.tick();
                ended = lock(&self.ended);
            }
        }
    }
}

/// Ends the timer, also when the work panics.
struct Ending<'a, 'b>(&'a Leases<'b>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        *lock(&self.0.ended) = true;
        self.0.end.notify_all();
    }
}

/// Nothing under these locks is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
