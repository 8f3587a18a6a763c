//! Rate limit of reading.

use crate::world::Stopwatch;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time whose share of the rate may be read at once after a pause.
const BURST: Duration = Duration::from_millis(200);

/// A limit of bytes per second, shared by all threads.
#[derive(Debug)]
pub struct Throttle {
    rate: Option<u64>,
    clock: Stopwatch,
    /// Time on the clock up to which the bytes that were taken use the rate.
    paid: Mutex<Duration>,
}

impl Throttle {
    /// At most `rate` bytes per second; unlimited if none.
    pub fn new(rate: Option<u64>) -> Throttle {
        Throttle { rate, clock: Stopwatch::start(), paid: Mutex::default() }
    }

    /// Takes `bytes` and waits until they are within the rate.
    pub fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let wait = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.elapsed();
            *paid = (*paid).max(now.saturating_sub(BURST)) + cost;
            paid.saturating_sub(now)
        };
        std::thread::sleep(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::{Stopwatch, Throttle};

    #[test]
    fn a_rate_is_kept_over_all_threads() {
        let throttle = Throttle::new(Some(10 << 20));
        let start = Stopwatch::start();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| throttle.take(128 << 10)));
            }
        });
        // 5 MiB at 10 MiB/s, less the burst.
        let taken = start.seconds();
        assert!((0.29..1.0).contains(&taken), "{taken}");
        let start = Stopwatch::start();
        Throttle::new(None).take(u64::MAX);
        assert!(start.seconds() < 0.1);
    }
}
