//! Timing of several passes in turn.
//!
//! Clock rates drift and hosts are shared, so measurements one after the other cannot be compared. Here all passes take
//! short turns until the time is used up. The best turn counts: it is the least disturbed one. The distance of the
//! median shows how much the run was disturbed.

use gabion_engine::Error;
use std::time::{Duration, Instant};

/// Length of a turn: long compared with reading the clock, short enough for many turns.
const TURN: Duration = Duration::from_micros(200);

/// Least number of turns if they fit into [`PATIENCE`], even after the end: a single turn may fall into a moment in
/// which the host runs something else.
const FEWEST_TURNS: usize = 9;
const PATIENCE: Duration = Duration::from_millis(40);

/// Largest number of turns: more do not lower the minimum.
const MOST_TURNS: usize = 3000;

/// One pass over the buffers of a case: inputs, then outputs.
pub(crate) type Pass<'a> = Box<dyn FnMut(&[&[u8]], &mut [&mut [u8]]) -> Result<(), Error> + 'a>;

/// Times of one pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Seconds of one pass in the best turn.
    pub best: f64,
    /// Seconds of one pass in the middle one of all turns.
    pub median: f64,
    /// Number of turns.
    pub turns: usize,
}

impl Timing {
    /// Distance of the median above the best, as a share: 0 on a quiet machine.
    pub fn spread(&self) -> f64 {
        self.median / self.best - 1.0
    }

    fn of(mut turns: Vec<Duration>) -> Timing {
        turns.sort_unstable();
        // A pass shorter than the resolution of the clock must not take 0 seconds.
        let seconds = |turn: Duration| turn.as_secs_f64().max(1e-10);
        let (best, median) = (seconds(turns[0]), seconds(turns[turns.len() / 2]));
        Timing { best, median, turns: turns.len() }
    }
}

fn time(
    pass: &mut Pass<'_>,
    passes: u32,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<Duration, Error> {
    let start = Instant::now();
    for _ in 0..passes {
        pass(inputs, outputs)?;
    }
    Ok(start.elapsed())
}

/// The shortest of some runs of work that is compared with nothing.
pub(crate) fn best_of(runs: usize, mut work: impl FnMut()) -> Duration {
    let mut once = || {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..runs).map(|_| once()).min().unwrap_or(Duration::ZERO)
}

/// As [`take_turns`], for `time` from now on.
///
/// # Errors
/// Error of a pass.
pub(crate) fn take_turns_for(
    passes: &mut [Pass<'_>],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    time: Duration,
) -> Result<Vec<Timing>, Error> {
    take_turns(passes, inputs, outputs, Instant::now() + time)
}

/// Runs all `passes` in turn until `end`, each for an equal share of the time; a pass that is longer than that gets one
/// turn.
///
/// # Errors
/// What a pass says.
pub(super) fn take_turns(
    passes: &mut [Pass<'_>],
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    end: Instant,
) -> Result<Vec<Timing>, Error> {
    let share = end.saturating_duration_since(Instant::now()) / passes.len().max(1) as u32;
    let mut repeats = Vec::new();
    let mut turns = vec![Vec::new(); passes.len()];
    let mut used = vec![Duration::ZERO; passes.len()];
    for (index, pass) in passes.iter_mut().enumerate() {
        let once = time(pass, 1, inputs, outputs)?.max(Duration::from_nanos(20));
        repeats.push(TURN.as_nanos().div_ceil(once.as_nanos()) as u32);
        used[index] = once;
        // A slow pass was verified just before and is warm, so this turn counts.
        if once >= TURN {
            turns[index].push(once);
        }
    }
    loop {
        let mut anyone = false;
        for index in 0..passes.len() {
            let done = match turns[index].len() {
                0 => false,
                count if count < FEWEST_TURNS => used[index] >= share.max(PATIENCE),
                count => used[index] >= share || count >= MOST_TURNS || Instant::now() >= end,
            };
            if done {
                continue;
            }
            let turn = time(&mut passes[index], repeats[index], inputs, outputs)?;
            used[index] += turn;
            turns[index].push(turn / repeats[index]);
            anyone = true;
        }
        if !anyone {
            return Ok(turns.into_iter().map(Timing::of).collect());
        }
    }
}

/// Divides the time among the cases.
#[derive(Debug)]
pub(super) struct Budget {
    per_case: Duration,
    end: Option<Instant>,
    cases_left: u32,
}

impl Budget {
    /// `per_case` for each of `cases`, and no more than `total` for all of them.
    pub(super) fn new(per_case: Duration, total: Option<Duration>, cases: usize) -> Budget {
        let end = total.map(|total| Instant::now() + total);
        Budget { per_case, end, cases_left: u32::try_from(cases).unwrap_or(u32::MAX) }
    }

    /// Begins a case; None if there is no time left for it.
    pub(super) fn begin(&mut self) -> Option<StartedCase> {
        let now = Instant::now();
        let cases = self.cases_left.max(1);
        self.cases_left = cases - 1;
        let share = match self.end {
            Some(end) if now >= end => return None,
            end => end.map(|end| now + (end - now) / cases),
        };
        Some(StartedCase { per_case: self.per_case, share })
    }
}

/// A case that was begun.
#[derive(Debug)]
pub(super) struct StartedCase {
    per_case: Duration,
    /// End of its share of the total, preparation included.
    share: Option<Instant>,
}

impl StartedCase {
    /// End of its turns if they begin now.
    pub(super) fn end(&self) -> Instant {
        let end = Instant::now() + self.per_case;
        self.share.map_or(end, |share| share.min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_best_counts_and_the_median_shows() {
        let timing = Timing::of([30, 10, 20].map(Duration::from_millis).to_vec());
        assert_eq!((timing.best, timing.median, timing.turns), (0.010, 0.020, 3));
        assert!((timing.spread() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_shortest_run_counts() {
        let mut millis = [30, 5, 20].into_iter();
        let start = Instant::now();
        let best = best_of(3, || std::thread::sleep(Duration::from_millis(millis.next().unwrap())));
        // The other two took 50 ms at least, however long a busy machine took for all of them.
        let most = start.elapsed() - Duration::from_millis(50);
        assert!(best >= Duration::from_millis(5) && best <= most, "{best:?}, at most {most:?}");
        assert_eq!(millis.next(), None);
    }

    /// A fast kernel gets more turns than a slow one beside it.
    #[test]
    fn a_slow_contender_takes_no_turns_from_a_fast_one() {
        fn counting(count: &Cell<usize>, millis: u64) -> Pass<'_> {
            Box::new(move |_, _| {
                count.set(count.get() + 1);
                std::thread::sleep(Duration::from_millis(millis));
                Ok(())
            })
        }
        // On a busy machine the fast one may be interrupted for so long that it is slow, too.
        gabion_testkit::until("the fast one has its turns", || {
            let (slow, fast) = (Cell::new(0), Cell::new(0));
            let mut passes = [counting(&slow, 50), counting(&fast, 1)];
            let end = Instant::now() + Duration::from_millis(60);
            let timings = take_turns(&mut passes, &[], &mut [], end).unwrap();
            assert!(timings[0].best >= 0.050 && timings[1].best >= 0.001);
            assert_eq!(slow.get(), 1);
            timings[1].turns >= FEWEST_TURNS
        });
    }

    #[test]
    fn an_error_of_a_pass_ends_the_race() {
        let failing: Pass<'_> = Box::new(|_, _| Err(Error::NotEnoughBlocks { need: 2, have: 1 }));
        assert!(take_turns(&mut [failing], &[], &mut [], Instant::now()).is_err());
    }

    #[test]
    fn what_one_case_leaves_over_goes_to_the_others() {
        let start = Instant::now();
        let mut budget = Budget::new(Duration::from_secs(600), Some(Duration::from_secs(600)), 2);
        let first = budget.begin().unwrap().end();
        assert!(first - Instant::now() <= Duration::from_secs(300));
        assert!(budget.begin().unwrap().end() - start >= Duration::from_secs(600));
        assert!(Budget::new(Duration::from_secs(1), Some(Duration::ZERO), 1).begin().is_none());
        let unbound = Budget::new(Duration::from_secs(1), None, 1).begin().unwrap();
        let end = unbound.end();
        assert!(end - Instant::now() <= Duration::from_secs(1));
    }
}
