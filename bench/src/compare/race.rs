//! Timing several contenders in one interleaved run.
//!
//! Clocks drift and the host is shared, so two measurements made one after the other say little.
//! Here everybody takes turns in short batches, for as many rounds as the time allows, and the
//! best batch of each is compared: what the code can do when nothing disturbs it. How far the
//! median lies above the best tells how disturbed the run was.

use std::time::{Duration, Instant};

/// Long enough that reading the clock does not count, short enough for many turns.
const BATCH: Duration = Duration::from_micros(200);
/// However slow the contenders and short the time.
const FEWEST_ROUNDS: usize = 3;
/// More would not lower the minimum any further.
const MOST_ROUNDS: usize = 3000;

/// One who takes part: a name and one pass over the data.
pub(super) struct Contender<'a> {
    name: &'static str,
    pass: Box<dyn FnMut() + 'a>,
}

impl<'a> Contender<'a> {
    pub(super) fn new(name: &'static str, pass: impl FnMut() + 'a) -> Self {
        Self { name, pass: Box::new(pass) }
    }

    fn time(&mut self, passes: u32) -> Duration {
        let start = Instant::now();
        for _ in 0..passes {
            (self.pass)();
        }
        start.elapsed() / passes
    }
}

/// What came out for one contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timing {
    pub(super) name: &'static str,
    /// Of the best batch, for one pass.
    pub(super) seconds: f64,
    /// Median over best, less one: 0 is a quiet machine.
    pub(super) spread: f64,
}

/// Lets the contenders take turns for about `time`.
pub(super) fn race(mut contenders: Vec<Contender<'_>>, time: Duration) -> Vec<Timing> {
    let start = Instant::now();
    let passes: Vec<u32> = contenders
        .iter_mut()
        .map(|contender| {
            contender.time(1); // pages, caches, lazily made tables
            let once = contender.time(1).max(Duration::from_nanos(20));
            u32::try_from(BATCH.as_nanos().div_ceil(once.as_nanos())).unwrap_or(u32::MAX)
        })
        .collect();
    let count = contenders.len();
    let mut times = vec![Vec::new(); count];
    for round in 0..MOST_ROUNDS {
        if round >= FEWEST_ROUNDS && start.elapsed() >= time {
            break;
        }
        // Another one begins in every round, so that nobody always runs behind the same neighbour.
        for turn in 0..count {
            let index = (round + turn) % count;
            times[index].push(contenders[index].time(passes[index]));
        }
    }
    contenders.iter().zip(times).map(|(contender, times)| timing(contender.name, times)).collect()
}

fn timing(name: &'static str, mut times: Vec<Duration>) -> Timing {
    times.sort_unstable();
    let (best, median) = (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64());
    Timing { name, seconds: best, spread: median / best - 1.0 }
}

/// Shares the time that is left among the cases that are left.
pub(super) struct Budget {
    end: Instant,
    cases_left: u32,
}

impl Budget {
    pub(super) fn new(total: Duration, cases: usize) -> Self {
        let cases_left = u32::try_from(cases).expect("some dozens of cases");
        Self { end: Instant::now() + total, cases_left }
    }

    /// When the next case should be done, its preparation included.
    pub(super) fn next_end(&mut self) -> Instant {
        let now = Instant::now();
        let share = self.end.saturating_duration_since(now) / self.cases_left.max(1);
        self.cases_left = self.cases_left.saturating_sub(1);
        now + share
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Contender, race, timing};
    use std::time::{Duration, Instant};

    #[test]
    fn the_best_counts_and_the_median_shows() {
        let times = [30, 10, 20].map(Duration::from_millis).to_vec();
        let timing = timing("x", times);
        assert!((timing.seconds - 0.010).abs() < 1e-9);
        assert!((timing.spread - 1.0).abs() < 1e-9);
    }

    #[test]
    fn everybody_gets_the_same_number_of_rounds() {
        let (mut slow, mut slower) = (0, 0);
        let pause = Duration::from_millis(1);
        let contenders = vec![
            Contender::new("slow", || {
                slow += 1;
                std::thread::sleep(pause);
            }),
            Contender::new("slower", || {
                slower += 1;
                std::thread::sleep(3 * pause);
            }),
        ];
        let timings = race(contenders, Duration::from_millis(30));
        assert_eq!(timings.len(), 2);
        assert!(timings[0].seconds >= 0.001 && timings[1].seconds >= 0.003);
        assert_eq!(slow, slower);
        assert!(slow >= 5);
    }

    #[test]
    fn what_one_case_leaves_over_goes_to_the_others() {
        let mut budget = Budget::new(Duration::from_secs(10), 2);
        let start = Instant::now();
        let first = budget.next_end() - start;
        assert!(first <= Duration::from_secs(5) + Duration::from_millis(100));
        let second = budget.next_end() - start;
        assert!(second > Duration::from_secs(9));
    }
}
