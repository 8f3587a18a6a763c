//! A thread that does something at intervals while work goes on.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Interval: several attempts within one lease.
const INTERVAL: Duration = Duration::from_secs(1);

/// Tells the thread to end, also on panic.
struct Ending<'a>(&'a Mutex<bool>, &'a Condvar);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

/// Runs `work`, and `tick` every second meanwhile. If no thread can be started, there are no ticks.
pub(crate) fn with_timer<T>(name: &str, tick: &(dyn Fn() + Sync), work: impl FnOnce() -> T) -> T {
    let (ended, end) = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        let _ending = Ending(&ended, &end);
        let keep = || {
            let mut over = ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*over {
                over = end.wait_timeout(over, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
                if !*over {
                    drop(over);
                    tick();
                    over = ended.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let _ = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, keep);
        work()
    })
}
