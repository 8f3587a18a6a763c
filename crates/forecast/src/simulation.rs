//! Simulation of the same process with single disks, for comparison with the chains.
//!
//! It is independent of the chains: every disk has its own lifetime, every rebuild a duration, and every disk read an
//! error or none. So a mistake in the rates of a chain shows as a mean outside the confidence interval.

use crate::exact::float;
use crate::model::Model;
use crate::parameters::Parameters;
use crate::promise::Promise;
use crate::scheme::Scheme;

/// Maximum number of simulated events, some seconds of run time.
pub const MOST_EVENTS: f64 = 5e8;

/// Result of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Simulated {
    /// Number of losses or corruptions.
    pub losses: u64,
    /// Mean hours until a loss.
    pub mean_hours: f64,
    /// Lower bound of the 99 % confidence interval of the mean.
    pub low: f64,
    /// Upper bound of that interval.
    pub high: f64,
    /// Simulated failures and rebuilds.
    pub events: u64,
}

impl Simulated {
    /// True if a mean time is within the confidence interval.
    pub fn agrees(&self, mean_hours: f64) -> bool {
        (self.low..=self.high).contains(&mean_hours)
    }
}

/// Reason why a simulation is refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// A mean needs several values.
    #[error("{0} losses are too few for a mean: at least 10")]
    TooFew(u64),
    /// It would take too long.
    #[error(
        "{scheme} loses data too rarely to be seen: {losses} losses take about {events:.1e} failures and rebuilds, more than \
         {MOST_EVENTS:.0e}. Ask for fewer, or try disks that fail more often"
    )]
    TooRare {
        /// The code.
        scheme: String,
        /// Requested losses.
        losses: u64,
        /// Estimated events.
        events: f64,
    },
}

/// Reproducible random numbers (SplitMix64).
struct SimulationRng(u64);

impl SimulationRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Above 0 and at most 1.
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn happens(&mut self, probability: f64) -> bool {
        self.uniform() <= probability
    }

    /// An exponentially distributed time with this mean.
    fn lifetime(&mut self, mean: f64) -> f64 {
        -self.uniform().ln() * mean
    }
}

/// Parameters of a simulation.
struct Rules {
    disks: usize,
    tolerated: usize,
    read: u32,
    model: Model,
    failure_hours: f64,
    rebuild_hours: f64,
    /// Probability of a read error for one whole disk.
    read_error: f64,
    silent: f64,
}

/// Simulates until `losses` losses have occurred, each starting with new disks.
///
/// # Errors
/// See [`SimulationError`].
pub fn simulate(
    scheme: Scheme,
    model: Model,
    parameters: &Parameters,
    promise: &Promise,
    losses: u64,
    seed: u64,
) -> Result<Simulated, SimulationError> {
    if losses < 10 {
        return Err(SimulationError::TooFew(losses));
    }
    let given = parameters.given();
    let bits = float(&given.capacity) * 8.0;
    let rules = Rules {
        disks: scheme.disks() as usize,
        tolerated: scheme.redundancy() as usize,
        read: scheme.data(),
        model,
        failure_hours: float(&given.failure_hours),
        rebuild_hours: float(&given.rebuild_hours),
        read_error: -(bits * (-float(&given.read_errors)).ln_1p()).exp_m1(),
        silent: float(&given.silent),
    };
    // Every failure is followed by a rebuild, and by more rebuilds if these fail.
    let groups = f64::from(scheme.groups());
    let failures = float(promise.mean_hours()) * groups * rules.disks as f64 / rules.failure_hours;
    let events = losses as f64 * (2.0 * failures + rules.tolerated as f64);
    if events.is_nan() || events > MOST_EVENTS {
        return Err(SimulationError::TooRare { scheme: scheme.to_string(), losses, events });
    }
    let mut rng = SimulationRng(seed);
    let (mut sum, mut squares, mut events) = (0.0, 0.0, 0);
    for _ in 0..losses {
        let first =
            (0..scheme.groups()).map(|_| rules.run_once(&mut rng, &mut events)).fold(f64::INFINITY, f64::min);
        sum += first;
        squares += first * first;
    }
    let count = losses as f64;
    let mean = sum / count;
    let variance = (squares / count - mean * mean).max(0.0) * count / (count - 1.0);
    let half = 2.576 * (variance / count).sqrt();
    Ok(Simulated { losses, mean_hours: mean, low: mean - half, high: mean + half, events })
}

impl Rules {
    /// Hours until data is lost.
    fn run_once(&self, rng: &mut SimulationRng, events: &mut u64) -> f64 {
        let mut ends: Vec<f64> = (0..self.disks).map(|_| rng.lifetime(self.failure_hours)).collect();
        let mut missing = 0;
        let mut rebuilt = f64::INFINITY;
        loop {
            *events += 1;
            let (disk, fails) = earliest(&ends);
            if fails < rebuilt {
                ends[disk] = f64::INFINITY;
                missing += 1;
                if missing > self.tolerated {
                    return fails;
                }
                if missing == 1 {
                    rebuilt = fails + rng.lifetime(self.rebuild_hours);
                }
                continue;
            }
            let now = rebuilt;
            let failed = (0..self.read).filter(|_| rng.happens(self.read_error)).count();
            if failed == 0 {
                for end in ends.iter_mut().filter(|end| end.is_infinite()) {
                    *end = now + rng.lifetime(self.failure_hours);
                }
                missing = 0;
                rebuilt = f64::INFINITY;
                continue;
            }
            if self.model == Model::Unchecked && rng.happens(self.silent) {
                return now;
            }
            // The disk with the error counts as failed. All disks are equal, so the first one is used; not the one with
            // the shortest remaining lifetime, which would bias the lifetimes of the others.
            if let Some(end) = ends.iter_mut().find(|end| end.is_finite()) {
                *end = f64::INFINITY;
            }
            missing += 1;
            if missing > self.tolerated {
                return now;
            }
            rebuilt = now + rng.lifetime(self.rebuild_hours);
        }
    }
}

fn earliest(ends: &[f64]) -> (usize, f64) {
    let pairs = ends.iter().copied().enumerate();
    pairs.fold((0, f64::INFINITY), |best, (disk, end)| if end < best.1 { (disk, end) } else { best })
}
