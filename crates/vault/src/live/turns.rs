//! The right to change the namespace, kept for many small changes.
//!
//! Taking the locks of all mirrors for every name would cost more than the change. So they are taken once and kept for
//! [`HELD`], in which any number of threads use them; then they are given back for [`PAUSE`], so that other processes
//! get their turn. While they are held nobody else changes the namespace: what was read stays true.

use crate::storage::pool::Shared;
use crate::storage::pool::change::{Change, HeldLocks};
use crate::storage::pool::error::PoolError;
use crate::storage::pool::view::MirrorCopy;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// How long the locks are kept, at most.
const HELD: Duration = Duration::from_millis(50);

/// How long they are left to others then.
const PAUSE: Duration = Duration::from_millis(1);

/// One time of holding the locks.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) held: HeldLocks,
    /// What was seen under another number may have changed since.
    pub(super) number: u64,
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Turns {
    lease: RwLock<Option<Lease>>,
    count: AtomicU64,
    keeper: Mutex<Keeper>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Keeper {
    taken: bool,
    ended: bool,
}

impl Turns {
    /// Changes the namespace together with other threads of this process. Mirrors that do not online are stale from now on.
    pub(super) fn with<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&Lease) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        loop {
            match &*self.lease.read().unwrap_or_else(PoisonError::into_inner) {
                Some(lease) if lease.held.is_complete() => return work(lease),
                _ => {}
            }
            self.alone(shared, |change| change.mark_unreachable_stale())?;
        }
    }

    /// Looks at the namespace, as nobody changes it: together with other threads of this process.
    pub(super) fn look<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&Lease) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        loop {
            if let Some(lease) = &*self.lease.read().unwrap_or_else(PoisonError::into_inner) {
                return work(lease);
            }
            self.alone(shared, |_| Ok(()))?;
        }
    }

    /// Works on the namespace alone.
    pub(super) fn alone<T>(
        &self,
        shared: &Shared,
        work: impl FnOnce(&mut Change<'_>) -> Result<T, PoolError>,
    ) -> Result<T, PoolError> {
        let mut place = self.lease.write().unwrap_or_else(PoisonError::into_inner);
        let Lease { held, number } = match place.take() {
            Some(lease) => lease,
            None => self.take(shared)?,
        };
        let mut change = Change::resume(shared, held);
        let done = work(&mut change);
        *place = Some(Lease { held: change.into_held(), number });
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

    fn take(&self, shared: &Shared) -> Result<Lease, PoolError> {
        let held = shared.change()?.into_held();
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).taken = true;
        self.changed.notify_all();
        Ok(Lease { held, number: self.count.fetch_add(1, Ordering::Relaxed) + 1 })
    }

    /// Gives the locks back in time, until the end.
    pub(super) fn keep_time(&self) {
        loop {
            let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
            while !keeper.taken && !keeper.ended {
                keeper = self.changed.wait(keeper).unwrap_or_else(PoisonError::into_inner);
            }
            let ended = keeper.ended;
            keeper.taken = false;
            if !ended {
                keeper = self.changed.wait_timeout(keeper, HELD).unwrap_or_else(PoisonError::into_inner).0;
            }
            drop(keeper);
            let mut lease = self.lease.write().unwrap_or_else(PoisonError::into_inner);
            *lease = None;
            if ended {
                return;
            }
            // Nobody of ours may take them again before others had a chance to.
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends [`keep_time`](Turns::keep_time).
    pub(super) fn end(&self) {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.changed.notify_all();
    }
}
