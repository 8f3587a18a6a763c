//! Fault point for tests: ends the process before a counted file-system change.
//!
//! Crash tests must not depend on the speed of the machine, so they do not kill after a time. A test starts a child
//! process that calls [`kill_before`] and then makes one change; the process is killed by SIGKILL at the chosen
//! point, as `kill -9` does.

use std::sync::atomic::{AtomicU64, Ordering};

const OFF: u64 = u64::MAX;

static LEFT: AtomicU64 = AtomicU64::new(OFF);

/// Kills this process before its file-system change with this number, counted from 0.
#[doc(hidden)]
pub fn kill_before(change: u64) {
    LEFT.store(change, Ordering::SeqCst);
}

/// Called before every file-system change; does nothing outside of tests.
pub fn point() {
    if LEFT.load(Ordering::Relaxed) == OFF || LEFT.fetch_sub(1, Ordering::SeqCst) > 0 {
        return;
    }
    // Ends the process even if the signal is refused.
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}
