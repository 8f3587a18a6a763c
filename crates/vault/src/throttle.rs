//! Rate limit of reading.
//!
//! A run has its own limit (`--limit`, the policy), and a host may have one for all of its workers, which is divided
//! among those at work and may change at any time.

use crate::world::Stopwatch;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time whose share of the rate may be read at once after a pause.
const BURST: Duration = Duration::from_millis(200);

/// Longest sleep: a limit that is changed or removed is noticed after it.
const SLICE: Duration = Duration::from_millis(250);

/// A limit of bytes per second, shared by all threads: the lower one of the run's own limit and the worker's part of
/// the limit of its host.
pub(crate) struct Throttle<'a> {
    own: Option<u64>,
    /// 0 for none.
    host: AtomicU64,
    stopped: &'a (dyn Fn() -> bool + Sync),
    clock: Stopwatch,
    account: Mutex<Account>,
}

/// Bytes since the beginning.
#[derive(Default)]
struct Account {
    /// Time on the clock of `allowed`.
    at: Duration,
    allowed: f64,
    taken: f64,
}

impl Account {
    fn advance(&mut self, now: Duration, rate: f64) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.allowed = (self.allowed + rate * passed).min(self.taken + rate * BURST.as_secs_f64());
    }
}

impl<'a> Throttle<'a> {
    /// At most `own` bytes per second, unlimited if none. Nobody waits any more once `stopped` says true.
    pub(crate) fn new(own: Option<u64>, stopped: &'a (dyn Fn() -> bool + Sync)) -> Throttle<'a> {
        let (host, account) = (AtomicU64::new(0), Mutex::default());
        Throttle { own, host, stopped, clock: Stopwatch::start(), account }
    }

    /// Without a limit.
    pub(crate) fn unlimited() -> Throttle<'a> {
        Throttle::new(None, &|| false)
    }

    /// Sets the part of the host's limit.
    pub(crate) fn set_host_rate(&self, rate: Option<u64>) {
        self.host.store(rate.unwrap_or(0), Ordering::Relaxed);
    }

    fn rate(&self) -> Option<f64> {
        let host = Some(self.host.load(Ordering::Relaxed)).filter(|rate| *rate > 0);
        self.own.into_iter().chain(host).min().map(|rate| rate as f64)
    }

    /// Takes `bytes` and waits until they are within the rate.
    pub(crate) fn take(&self, bytes: u64) {
        let Some(rate) = self.rate() else { return };
        let account = || self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let end = {
            let mut account = account();
            account.advance(self.clock.elapsed(), rate);
            account.taken += bytes as f64;
            account.taken
        };
        while !(self.stopped)() {
            let Some(rate) = self.rate() else { break };
            let missing = {
                let mut account = account();
                account.advance(self.clock.elapsed(), rate);
                end - account.allowed
            };
            if missing <= 0.0 {
                return;
            }
            std::thread::sleep(SLICE.min(Duration::try_from_secs_f64(missing / rate).unwrap_or(SLICE)));
        }
        // What was not waited for is not waited for later.
        let mut account = account();
        account.allowed = account.allowed.max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{Stopwatch, Throttle};
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_rate_is_kept_over_all_threads() {
        for host in [None, Some(10 << 20)] {
            let throttle = Throttle::new(Some(10 << 20).filter(|_| host.is_none()), &|| false);
            throttle.set_host_rate(host);
            let start = Stopwatch::start();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..10).for_each(|_| throttle.take(128 << 10)));
                }
            });
            // 5 MiB at 10 MiB/s, less the burst.
            let taken = start.seconds();
            assert!(taken >= 0.29, "{taken}");
        }
    }

    #[test]
    fn the_lower_limit_holds() {
        let throttle = Throttle::new(Some(100), &|| false);
        assert_eq!(throttle.rate(), Some(100.0));
        throttle.set_host_rate(Some(50));
        assert_eq!(throttle.rate(), Some(50.0));
        throttle.set_host_rate(Some(200));
        assert_eq!(throttle.rate(), Some(100.0));
        throttle.set_host_rate(None);
        assert_eq!(throttle.rate(), Some(100.0));
        Throttle::unlimited().take(u64::MAX);
    }

    /// With these rates it would wait for hours.
    #[test]
    fn a_limit_that_is_raised_or_removed_ends_the_wait_and_so_does_the_end_of_the_run() {
        let is_over = AtomicBool::new(false);
        let stopped = || is_over.load(Ordering::Relaxed);
        let throttle = Throttle::new(None, &stopped);
        let end: [&(dyn Fn() + Sync); 3] =
            [&|| throttle.set_host_rate(None), &|| throttle.set_host_rate(Some(1 << 60)), &|| {
                is_over.store(true, Ordering::Relaxed)
            }];
        for end in end {
            throttle.set_host_rate(Some(1));
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| throttle.take(1 << 20));
                end();
                waiting.join().expect("it ended");
            });
        }
    }
}
