//! Open files and directories, by the number that the kernel knows them by.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Handles of one kind.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles { next: AtomicU64::new(1), open: RwLock::new(HashMap::new()) }
    }
}

impl<T> Handles<T> {
    pub(crate) fn add(&self, what: Arc<T>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, what);
        number
    }

    pub(crate) fn get(&self, number: u64) -> io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&number).cloned().ok_or_else(|| rustix::io::Errno::BADF.into())
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// One that fits, if any does.
    pub(crate) fn find(&self, fits: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.values().find(|handle| fits(handle)).cloned()
    }
}
