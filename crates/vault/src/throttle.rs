//! Keeps reading below a rate.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much may be read at once after a rest.
const BURST: Duration = Duration::from_millis(200);

/// A bound on bytes per second, shared by all threads.
#[derive(Debug)]
pub struct Throttle {
    rate: Option<u64>,
    /// When all that was taken so far will have been paid for.
    paid: Mutex<Instant>,
}

impl Throttle {
    /// At most `rate` bytes per second; nothing for no bound.
    pub fn new(rate: Option<u64>) -> Throttle {
        Throttle { rate, paid: Mutex::new(Instant::now()) }
    }

    /// Takes `bytes`, and waits until they are within the rate.
    pub fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else { return };
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let wait = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            *paid = (*paid).max(now.checked_sub(BURST).unwrap_or(now)) + cost;
            paid.saturating_duration_since(now)
        };
        std::thread::sleep(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::Throttle;
    use std::time::Instant;

    #[test]
    fn a_rate_is_kept_over_all_threads() {
        let throttle = Throttle::new(Some(10 << 20));
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| throttle.take(128 << 10)));
            }
        });
        // 5 MiB at 10 MiB/s, less the burst.
        let taken = start.elapsed().as_secs_f64();
        assert!((0.29..1.0).contains(&taken), "{taken}");
        let start = Instant::now();
        Throttle::new(None).take(u64::MAX);
        assert!(start.elapsed().as_secs_f64() < 0.1);
    }
}
