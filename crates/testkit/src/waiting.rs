//! Waiting for conditions.

use std::time::{Duration, Instant};

/// Timeout of a wait. A loaded machine may be a hundred times slower than an idle one: only a hanging program takes
/// this long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Polling interval.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds.
///
/// # Panics
/// It does not hold within [`PATIENCE`].
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Polls `look` until it returns a value, and returns that.
///
/// # Panics
/// It returns none within [`PATIENCE`].
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not within {} s: {what}", PATIENCE.as_secs());
        std::thread::sleep(INTERVAL);
    }
}
