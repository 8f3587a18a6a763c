//! Model that predicts the time of a kernel, after section 4 of G-CRS, beside measured times.
//!
//! A kernel is bound by memory or by arithmetic. With r = (k + m) / (k m w), blocks moved per row operation, G-CRS puts
//! the border at some r of the device. Our kernels are tuned differently, so operations are counted as they do them:
//!
//! ```text
//! memory     = launch + bytes moved / bandwidth
//! arithmetic = launch + threads * (puts * put + rows * row)        generic
//!            = launch + threads * instructions * instruction       specialised
//! time       = (memory^8 + arithmetic^8)^(1/8)                     the greater one, a little more where they meet
//! ```
//!
//! Two micro-benchmarks calibrate it: a memory-bound kernel, over many bytes and over few, gives launch and bandwidth;
//! some kernels that are mostly bound by arithmetic give the cost of an operation. Both are then fitted together, as no
//! kernel is bound by one of them alone.

use super::bars::MODEL_ERROR;
use super::{Effort, KernelChoice, compile, rounded};
use gabion_engine::Code;
use gabion_gpu::measure::{Measured, MeasuredKernel};
use gabion_gpu::shape::Shape;
use gabion_gpu::source::generic::operations;
use gabion_gpu::{Form, GpuError, tuning::check_size};
use serde::Serialize;

/// Kind of the predicted kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One source for each w: the whole grid needs five compilations.
    Generic,
    /// One source for each case.
    Specialised,
}

/// Values of k, m and w.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Data blocks.
    pub k: Vec<usize>,
    /// Redundancy blocks.
    pub m: Vec<usize>,
    /// Bits of a symbol.
    pub w: Vec<u32>,
}

impl Grid {
    /// The grid of G-CRS: k = 1..45, m = 1..4, w = 4..8.
    pub fn full() -> Grid {
        Grid { k: (1..=45).collect(), m: (1..=4).collect(), w: (4..=8).collect() }
    }

    /// Ten values of k.
    pub fn sampled() -> Grid {
        Grid { k: vec![1, 2, 3, 5, 8, 12, 18, 26, 36, 45], ..Grid::full() }
    }

    /// The valid codes: k + m symbols must differ.
    pub fn codes(&self) -> Vec<(usize, usize, u32)> {
        let mut codes = Vec::new();
        for &w in &self.w {
            for &m in &self.m {
                codes.extend(self.k.iter().filter(|&k| k + m <= 1 << w).map(|&k| (k, m, w)));
            }
        }
        codes
    }
}

/// One case, predicted and measured.
#[derive(Debug, Clone, Serialize)]
pub struct ModelLine {
    /// Always `gpu-model`.
    pub bench: &'static str,
    /// The case.
    pub case: String,
    /// Microseconds predicted.
    pub predicted: f64,
    /// Microseconds measured.
    pub measured: f64,
    /// Predicted over measured, less 1.
    pub error: f64,
    /// (k + m) / (k m w).
    pub r: f64,
    /// `memory` or `arithmetic`.
    pub bound: &'static str,
}

/// Summary of all cases.
#[derive(Debug, Clone, Serialize)]
pub struct ModelReport {
    /// Always `gpu-model`.
    pub bench: &'static str,
    /// Cases measured.
    pub cases: usize,
    /// Mean of the errors without their signs.
    pub mean_error: f64,
    /// The largest.
    pub worst_error: f64,
    /// Target for the mean.
    pub bar: f64,
    /// Microseconds of a launch.
    pub launch: f64,
    /// Bytes per second, 1e9.
    pub bandwidth: f64,
    /// Below this r arithmetic is the bound, for w = 8 and many blocks.
    pub rho: f64,
}

/// The calibrated model.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Costs {
    launch: f64,
    per_byte: f64,
    /// Seconds of a put and of a row, or of an instruction and nothing.
    first: f64,
    second: f64,
}

/// Demand of a case.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Demand {
    bytes: f64,
    first: f64,
    second: f64,
}

/// Sharpness of the corner between the two bounds; 8 fits the times of an H200.
const SHARPNESS: f64 = 8.0;

impl Costs {
    fn memory(&self, demand: Demand) -> f64 {
        demand.bytes * self.per_byte
    }

    fn arithmetic(&self, demand: Demand) -> f64 {
        demand.first * self.first + demand.second * self.second
    }

    fn seconds(&self, demand: Demand) -> f64 {
        let (memory, arithmetic) = (self.memory(demand), self.arithmetic(demand));
        let more = memory.max(arithmetic);
        if more <= 0.0 {
            return self.launch;
        }
        let corner = (memory / more).powf(SHARPNESS) + (arithmetic / more).powf(SHARPNESS);
        self.launch + more * corner.powf(1.0 / SHARPNESS)
    }
}

const PACKET: usize = 4096;

fn code(k: usize, m: usize, w: u32) -> Result<Code, GpuError> {
    Ok(format!("cauchy:{k}+{m}:w{w}:packets={PACKET}").parse::<Code>()?)
}

struct Bench<'a, D: Measured> {
    device: &'a D,
    kind: Kind,
    effort: Effort,
}

impl<D: Measured> Bench<'_, D> {
    /// Seconds, and the bound that dominates.
    fn measure(&self, (k, m, w): (usize, usize, u32), bytes: usize) -> Result<(f64, Demand), GpuError> {
        let code = code(k, m, w)?;
        let plan = code.encode_plan()?;
        let asked = match self.kind {
            Kind::Generic => KernelChoice::Form(Form::Generic),
            Kind::Specialised => KernelChoice::Form(Form::Specialised),
        };
        let kernel = compile(self.device, &plan, asked)?.kernel;
        let len = (bytes / (k + m) / code.granule()).max(1) * code.granule();
        let blocks = kernel.blocks_on_device(len, 5)?;
        kernel.check_on(&blocks)?;
        let seconds = kernel.time_on(&blocks, self.effort.passes)?.median;
        let len = <D::Kernel as MeasuredKernel>::block_bytes(&blocks);
        let threads = (len / kernel.bytes_per_thread()) as f64;
        let demand = if kernel.form() == Form::Specialised {
            let bytes = ((k + m) * len) as f64;
            Demand { bytes, first: threads * kernel.counts().arithmetic() as f64, second: 0.0 }
        } else {
            let work = operations(&Shape::of(&plan));
            let bytes = ((k * work.passes + m) * len) as f64;
            Demand { bytes, first: threads * work.puts as f64, second: threads * work.rows as f64 }
        };
        Ok((seconds, demand))
    }

    /// The two micro-benchmarks.
    fn calibrate(&self) -> Result<Costs, GpuError> {
        let bytes = self.effort.device_bytes;
        let (long, of_long) = self.measure(MEMORY_BOUND, bytes)?;
        let (short, of_short) = self.measure(MEMORY_BOUND, bytes / 64)?;
        let per_byte = (long - short) / (of_long.bytes - of_short.bytes);
        let launch = (short - of_short.bytes * per_byte).max(0.0);
        let shapes: &[(usize, usize, u32)] = match self.kind {
            Kind::Generic => &ARITHMETIC_BOUND,
            Kind::Specialised => &LONG_CODE,
        };
        let mut points = vec![(of_long, long)];
        for &shape in shapes {
            let (seconds, demand) = self.measure(shape, bytes)?;
            points.push((demand, seconds));
        }
        Ok(fitted(launch, per_byte, &points))
    }
}

/// Memory-bound kernel.
const MEMORY_BOUND: (usize, usize, u32) = (2, 1, 8);

/// Few and many inputs, outputs and bits of the generic kernel.
const ARITHMETIC_BOUND: [(usize, usize, u32); 6] =
    [(6, 1, 8), (6, 4, 8), (24, 1, 8), (24, 4, 8), (24, 1, 5), (24, 4, 5)];

/// Specialised kernels that memory does not bind.
const LONG_CODE: [(usize, usize, u32); 2] = [(16, 16, 8), (12, 4, 8)];

/// Costs that minimise the squares of the relative errors of the points. Starting from a first guess, each cost is
/// changed up and down in ever smaller steps.
fn fitted(launch: f64, per_byte: f64, points: &[(Demand, f64)]) -> Costs {
    let most = |of: fn(&Demand) -> f64| {
        let each = points.iter().map(|(demand, seconds)| of(demand) / seconds);
        each.fold(0.0, f64::max)
    };
    // First guess: a quarter of the time for either operation.
    let guess = |most: f64| if most > 0.0 { 0.25 / most } else { 0.0 };
    let mut costs = Costs {
        launch,
        per_byte,
        first: guess(most(|demand| demand.first)),
        second: guess(most(|demand| demand.second)),
    };
    let badness = |costs: &Costs| -> f64 {
        points.iter().map(|(demand, seconds)| (costs.seconds(*demand) / seconds - 1.0).powi(2)).sum()
    };
    let mut step = 0.5;
    while step > 1e-4 {
        let (up, down) = (1.0 + step, 1.0 / (1.0 + step));
        let tries = [up, down].into_iter().flat_map(|by| {
            [
                Costs { per_byte: costs.per_byte * by, ..costs },
                Costs { first: costs.first * by, ..costs },
                Costs { second: costs.second * by, ..costs },
                Costs { first: costs.first * by, second: costs.second / by, ..costs },
            ]
        });
        let better = tries.min_by(|a, b| badness(a).total_cmp(&badness(b)));
        match better {
            Some(better) if badness(&better) < badness(&costs) => costs = better,
            _ => step /= 2.0,
        }
    }
    costs
}

/// Calibrates, then predicts and measures every case of the grid; `report` receives each. Results are checked before
/// the timing.
///
/// # Errors
/// Error of the device; wrong results.
pub fn measure_model<D: Measured>(
    device: &D,
    kind: Kind,
    grid: &Grid,
    effort: Effort,
    mut report: impl FnMut(&ModelLine),
) -> Result<ModelReport, GpuError> {
    let bench = Bench { device, kind, effort };
    let costs = bench.calibrate()?;
    let mut errors = Vec::new();
    for (k, m, w) in grid.codes() {
        let plan = code(k, m, w)?.encode_plan()?;
        if kind == Kind::Specialised && check_size(&Shape::of(&plan)).is_err() {
            continue;
        }
        let (seconds, demand) = bench.measure((k, m, w), effort.device_bytes)?;
        let predicted = costs.seconds(demand);
        let error = predicted / seconds - 1.0;
        errors.push(error.abs());
        report(&ModelLine {
            bench: "gpu-model",
            case: format!("encode {k}+{m} packets w{w}"),
            predicted: rounded(predicted * 1e6),
            measured: rounded(seconds * 1e6),
            error: rounded(error),
            r: rounded((k + m) as f64 / (k * m * w as usize) as f64),
            bound: if costs.memory(demand) >= costs.arithmetic(demand) { "memory" } else { "arithmetic" },
        });
    }
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    Ok(ModelReport {
        bench: "gpu-model",
        cases: errors.len(),
        mean_error: rounded(mean),
        worst_error: rounded(errors.iter().copied().fold(0.0, f64::max)),
        bar: MODEL_ERROR,
        launch: rounded(costs.launch * 1e6),
        bandwidth: rounded(1.0 / costs.per_byte / 1e9),
        rho: rounded(rho(&costs, kind)),
    })
}

/// The r at which both bounds meet for m outputs of many inputs, by halving the distance between m = 1/64 and 64.
fn rho(costs: &Costs, kind: Kind) -> f64 {
    // Per input of many, per thread of 64 bytes; a row costs one unit per output and bit.
    let balance = |m: f64| {
        let second = if kind == Kind::Generic { 8.0 * m } else { 0.0 };
        let first = if kind == Kind::Generic { 30.0 } else { 44.0 + 16.0 * m };
        costs.arithmetic(Demand { bytes: 0.0, first, second }) - 64.0 * costs.per_byte
    };
    let (mut low, mut high) = (1.0f64 / 64.0, 64.0f64);
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if balance(middle) > 0.0 { high = middle } else { low = middle }
    }
    1.0 / (low * 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_that_of_the_paper() {
        let full = Grid::full().codes();
        // w = 4 has 16 symbols: k + m <= 16.
        assert_eq!(full.iter().filter(|code| code.2 == 4).count(), 15 + 14 + 13 + 12);
        assert!(full.iter().all(|&(k, m, w)| k + m <= 1 << w));
        assert_eq!(full.iter().filter(|code| code.2 == 8).count(), 45 * 4);
        assert!(Grid::sampled().codes().len() < full.len() / 3);
    }

    #[test]
    fn costs_are_found_again() {
        let costs = Costs { launch: 2.0, per_byte: 3.0, first: 0.5, second: 7.0 };
        let demand = |bytes, first, second| Demand { bytes, first, second };
        let demands = [
            demand(90.0, 1.0, 1.0),
            demand(1.0, 100.0, 1.0),
            demand(1.0, 10.0, 40.0),
            demand(30.0, 60.0, 9.0),
        ];
        let points = demands.map(|demand| (demand, costs.seconds(demand)));
        let found = fitted(2.0, 1.0, &points);
        for (demand, seconds) in points {
            assert!((found.seconds(demand) / seconds - 1.0).abs() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn the_greater_bound_decides() {
        let costs = Costs { launch: 1.0, per_byte: 1.0, first: 1.0, second: 0.0 };
        let time = |bytes, first| costs.seconds(Demand { bytes, first, second: 0.0 });
        assert!((time(100.0, 1.0) - 101.0).abs() < 1e-9);
        assert!((time(1.0, 100.0) - 101.0).abs() < 1e-9);
        assert!((time(100.0, 100.0) / (1.0 + 100.0 * 2f64.powf(0.125)) - 1.0).abs() < 1e-9);
        assert_eq!(time(0.0, 0.0), 1.0);
    }

    /// Times of an H200 for generic kernels of packets, from its record; three of them calibrate the model.
    #[test]
    fn an_h200_is_predicted_within_five_percent() {
        let of = |k: f64, m: f64, rate: f64| {
            (Demand { bytes: k + m, first: 30.0 * k, second: 8.0 * m * (k + 2.0) }, (k + m) / rate)
        };
        let known = [of(4.0, 2.0, 3702.0), of(16.0, 4.0, 2597.0), of(45.0, 2.0, 3129.0)];
        let costs = fitted(0.0, 1.0 / 4390.0, &known);
        let cases = [of(10.0, 4.0, 2845.0), of(12.0, 4.0, 2743.0), of(30.0, 3.0, 2709.0)];
        let errors = cases.map(|(demand, seconds)| (costs.seconds(demand) / seconds - 1.0).abs());
        assert!(errors.iter().sum::<f64>() / 3.0 < 0.05, "{errors:?} {costs:?}");
    }
}
