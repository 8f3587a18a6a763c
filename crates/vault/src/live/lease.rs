//! Lease on the namespace: its locks are kept for many small changes.
//!
//! Locking all mirrors for every name would cost more than the change. The locks are therefore kept for [`HELD`],
//! shared by any number of threads, and then released for [`PAUSE`] so that other processes can take them. While they
//! are held no other process changes the namespace, so earlier reads stay valid.

use crate::storage::pool::Shared;
use crate::storage::pool::change::{Change, HeldLocks};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::view::MirrorCopy;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Maximum time for which the locks are held.
const HELD: Duration = Duration::from_millis(50);

/// Time for which the locks are then left to other processes.
const PAUSE: Duration = Duration::from_millis(1);

/// One period of holding the locks.
#[derive(Debug)]
pub(super) struct NamespaceLease {
    pub(super) held: HeldLocks,
    /// State seen under another lease number may have changed since.
    pub(super) number: u64,
}

/// The present lease, shared by the threads of this process.
#[derive(Debug, Default)]
pub(super) struct SharedLease {
    lease: RwLock<Option<NamespaceLease>>,
    count: AtomicU64,
    expiry: Mutex<Expiry>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Expiry {
    taken: bool,
    ended: bool,
}

impl SharedLease {
    /// Runs a change of the namespace, concurrently with other threads of this process. Unreachable mirrors become
    /// stale.
    pub(super) fn modify<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&NamespaceLease) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        loop {
            match &*self.lease.read().unwrap_or_else(PoisonError::into_inner) {
                Some(lease) if lease.held.is_complete() => return work(lease),
                _ => {}
            }
            self.exclusive(shared, |change| change.mark_unreachable_stale())?;
        }
    }

    /// Runs a check of the namespace while no other process changes it, concurrently with other threads of this
    /// process.
    pub(super) fn inspect<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&NamespaceLease) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        loop {
            if let Some(lease) = &*self.lease.read().unwrap_or_else(PoisonError::into_inner) {
                return work(lease);
            }
            self.exclusive(shared, |_| Ok(()))?;
        }
    }

    /// Runs a change of the namespace exclusively.
    pub(super) fn exclusive<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&mut Change<'_>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let mut place = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        let NamespaceLease { held, number } = match place.take() {
            Some(lease) => lease,
            None => self.take(shared)?,
        };
        let mut change = Change::resume(shared, held);
        let done = work(&mut change);
        *place = Some(NamespaceLease { held: change.into_held(), number });
        done
    }

    /// Reads the namespace.
    pub(super) fn read<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&[MirrorCopy]) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let lease = self.lease.read().unwrap_or_else(PoisonError::into_inner);
        match &*lease {
            Some(lease) => work(&lease.held.copies),
            None => {
                drop(lease);
                work(&shared.copies()?)
            }
        }
    }

    fn take(&self, shared: &Shared) -> Result<NamespaceLease, PoolError> {
        let held = shared.change()?.into_held();
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner).taken = true;
        self.changed.notify_all();
        Ok(NamespaceLease { held, number: self.count.fetch_add(1, Ordering::Relaxed) + 1 })
    }

    /// Releases expired leases until [`end`](SharedLease::end).
    pub(super) fn expire_leases(&self) {
        loop {
            let mut expiry = self.expiry.lock().unwrap_or_else(PoisonError::into_inner);
            while !expiry.taken && !expiry.ended {
                expiry = self.changed.wait(expiry).unwrap_or_else(PoisonError::into_inner);
            }
            let ended = expiry.ended;
            expiry.taken = false;
            if !ended {
                expiry = self.changed.wait_timeout(expiry, HELD).unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(expiry);
            let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
            *lease = None;
            if ended {
                return;
            }
            // Gives other processes a chance to take the locks first.
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends [`expire_leases`](SharedLease::expire_leases).
    pub(super) fn end(&self) {
        self.expiry.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_all();
    }
}
