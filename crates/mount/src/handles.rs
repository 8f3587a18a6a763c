//! Table of open files or directories, by FUSE file handle.

use gabion_platform::sync;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

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
        sync::write(&self.open).insert(number, what);
        number
    }

    pub(crate) fn get(&self, number: u64) -> io::Result<Arc<T>> {
        let open = sync::read(&self.open);
        open.get(&number).cloned().ok_or_else(|| rustix::io::Errno::BADF.into())
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Arc<T>> {
        sync::write(&self.open).remove(&number)
    }

    /// The first open handle that matches.
    pub(crate) fn find(&self, fits: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let open = sync::read(&self.open);
        open.values().find(|handle| fits(handle)).cloned()
    }
}
