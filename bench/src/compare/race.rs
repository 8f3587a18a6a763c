//! Timing several contenders in one interleaved run.
//!
//! Clock rates drift and the host is shared, so measurements one after the other cannot be compared. Here all
//! contenders take turns in short batches, for as many rounds as the time allows, and the best batch of each is
//! compared: the least disturbed one. The distance of the median shows how much the run was disturbed.

use std::time::{Duration, Instant};

/// Length of a batch: long compared with reading the clock, short enough for many turns.
const BATCH: Duration = Duration::from_micros(200);
/// Least number of rounds.
const FEWEST_ROUNDS: usize = 3;
/// Largest number of rounds: more do not lower the minimum.
const MOST_ROUNDS: usize = 3000;

/// Carries out a number of passes and returns their time.
type Passes<'a, S> = Box<dyn FnMut(&mut S, u32) -> Duration + 'a>;

/// A contender: a name and one pass over the data. `S` is the state that contenders share, such as the outputs.
pub(super) struct Contender<'a, S> {
    name: &'static str,
    passes: Passes<'a, S>,
    /// Factor for the time of a pass that does only part of the work.
    scale: f64,
    /// Number of rounds from one turn to the next.
    every: usize,
}

impl<'a, S> Contender<'a, S> {
    pub(super) fn new(name: &'static str, mut pass: impl FnMut(&mut S) + 'a) -> Self {
        let passes = move |shared: &mut S, passes| {
            let start = Instant::now();
            for _ in 0..passes {
                pass(shared);
            }
            start.elapsed()
        };
        Self { name, passes: Box::new(passes), scale: 1.0, every: 1 }
    }

    /// A contender that measures its passes itself.
    pub(super) fn timed(name: &'static str, mut passes: impl FnMut(u32) -> Duration + 'a) -> Self {
        Self { name, passes: Box::new(move |_: &mut S, count| passes(count)), scale: 1.0, every: 1 }
    }

    /// A contender whose pass does 1/`scale` of the work.
    pub(super) fn scaled(self, scale: f64) -> Self {
        Self { scale, ..self }
    }

    /// A slow contender, which gets few turns so that close ones get more.
    pub(super) fn rarely(self) -> Self {
        Self { every: 8, ..self }
    }

    fn time(&mut self, shared: &mut S, passes: u32) -> Duration {
        (self.passes)(shared, passes) / passes
    }
}

/// Result of a contender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timing {
    pub(super) name: &'static str,
    /// Seconds of one pass in the best batch.
    pub(super) seconds: f64,
    /// Median over best, less one: 0 on a quiet machine.
    pub(super) spread: f64,
}

/// Runs the contenders in turn until `end`. Contenders with equal names are variants, of which the best counts.
pub(super) fn race<S>(contenders: Vec<Contender<'_, S>>, shared: &mut S, end: Instant) -> Vec<Timing> {
    race_in_batches(contenders, shared, BATCH, end)
}

/// As [`race`], with batches of another length.
pub(super) fn race_in_batches<S>(
    mut contenders: Vec<Contender<'_, S>>,
    shared: &mut S,
    batch: Duration,
    end: Instant,
) -> Vec<Timing> {
    let passes: Vec<u32> = contenders
        .iter_mut()
        .map(|contender| {
            contender.time(shared, 1); // pages, caches, lazily made tables
            let once = contender.time(shared, 1).max(Duration::from_nanos(20));
            u32::try_from(batch.as_nanos().div_ceil(once.as_nanos())).unwrap_or(u32::MAX)
        })
        .collect();
    let count = contenders.len();
    let mut times = vec![Vec::new(); count];
    for round in 0..MOST_ROUNDS {
        if round >= FEWEST_ROUNDS && Instant::now() >= end {
            break;
        }
        // Another one begins in every round, so that the order of neighbours changes.
        for turn in 0..count {
            let index = (round + turn) % count;
            if !round.is_multiple_of(contenders[index].every) {
                continue;
            }
            times[index].push(contenders[index].time(shared, passes[index]));
        }
    }
    let timings = contenders.iter().zip(times).map(|(contender, times)| {
        let timing = timing(contender.name, times);
        Timing { seconds: timing.seconds * contender.scale, ..timing }
    });
    best_of_each_name(timings)
}

fn timing(name: &'static str, mut times: Vec<Duration>) -> Timing {
    times.sort_unstable();
    let (best, median) = (times[0].as_secs_f64(), times[times.len() / 2].as_secs_f64());
    Timing { name, seconds: best, spread: median / best - 1.0 }
}

fn best_of_each_name(timings: impl Iterator<Item = Timing>) -> Vec<Timing> {
    let mut best: Vec<Timing> = Vec::new();
    for timing in timings {
        match best.iter_mut().find(|known| known.name == timing.name) {
            Some(known) if known.seconds <= timing.seconds => {}
            Some(known) => *known = timing,
            None => best.push(timing),
        }
    }
    best
}

/// Divides the remaining time among the remaining cases.
pub(super) struct Budget {
    end: Instant,
    cases_left: u32,
}

impl Budget {
    pub(super) fn new(total: Duration, cases: usize) -> Self {
        let cases_left = u32::try_from(cases).expect("some dozens of cases");
        Self { end: Instant::now() + total, cases_left }
    }

    /// End of the next case, its preparation included.
    pub(super) fn next_end(&mut self) -> Instant {
        let now = Instant::now();
        let share = self.end.saturating_duration_since(now) / self.cases_left.max(1);
        self.cases_left = self.cases_left.saturating_sub(1);
        now + share
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Contender, Timing, best_of_each_name, race, timing};
    use std::time::{Duration, Instant};

    #[test]
    fn the_best_counts_and_the_median_shows() {
        let times = [30, 10, 20].map(Duration::from_millis).to_vec();
        let timing = timing("x", times);
        assert!((timing.seconds - 0.010).abs() < 1e-9);
        assert!((timing.spread - 1.0).abs() < 1e-9);
    }

    #[test]
    fn everybody_gets_the_same_number_of_rounds_unless_rare() {
        let pause = Duration::from_millis(1);
        let contenders = vec![
            Contender::new("slow", |(slow, _): &mut (u32, u32)| {
                *slow += 1;
                std::thread::sleep(pause);
            }),
            Contender::new("slower", |(_, slower): &mut (u32, u32)| {
                *slower += 1;
                std::thread::sleep(3 * pause);
            }),
            Contender::new("rare", |_: &mut (u32, u32)| std::thread::sleep(9 * pause)).rarely(),
        ];
        let mut counts = (0, 0);
        let timings = race(contenders, &mut counts, Instant::now() + Duration::from_millis(60));
        let (slow, slower) = counts;
        assert_eq!(timings.len(), 3);
        assert!(timings[0].seconds >= 0.001 && timings[1].seconds >= 0.003 && timings[2].seconds >= 0.009);
        assert_eq!(slow, slower);
        assert!(slow >= 5);
    }

    #[test]
    fn of_one_name_the_best_counts() {
        let timings = [("a", 2.0), ("b", 3.0), ("a", 1.0), ("b", 4.0)];
        let timings = timings.map(|(name, seconds)| Timing { name, seconds, spread: 0.0 });
        assert_eq!(best_of_each_name(timings.into_iter()), [timings[2], timings[1]]);
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
