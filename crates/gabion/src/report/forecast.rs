//! Reports of `gabion forecast`.

use super::FileFailure;
use gabion_forecast::exact::{float, shown};
use gabion_forecast::{Given, Placement, Promise, Rational, Reading, Simulated};
use serde::Serialize;
use std::collections::BTreeMap;

/// `gabion forecast`: the parameters of the disks, and the answer.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "forecast")]
pub struct ForecastReport<A> {
    parameters: ParametersReport,
    #[serde(flatten)]
    answer: A,
}

/// Parameters of the disks.
#[derive(Debug, Serialize)]
struct ParametersReport {
    capacity_bytes: f64,
    mtbf_hours: f64,
    rebuild_hours: f64,
    read_errors_per_bit: f64,
    silent_share: f64,
    equations: &'static str,
}

impl<A> ForecastReport<A> {
    /// Of an answer for these parameters.
    pub fn new(given: &Given, reading: Reading, answer: A) -> ForecastReport<A> {
        let parameters = ParametersReport {
            capacity_bytes: float(&given.capacity),
            mtbf_hours: float(&given.failure_hours),
            rebuild_hours: float(&given.rebuild_hours),
            read_errors_per_bit: float(&given.read_errors),
            silent_share: float(&given.silent),
            equations: if reading == Reading::Meant { "meant" } else { "printed" },
        };
        ForecastReport { parameters, answer }
    }
}

/// Durability, as numbers, and as text with all digits, since floats end at 1e308.
#[derive(Debug, Serialize)]
pub struct PromiseReport {
    mean_hours: Option<f64>,
    mean_hours_text: String,
    mean_years: Option<f64>,
    loss_per_year: f64,
    loss_per_year_text: String,
    nines: f64,
}

impl PromiseReport {
    /// With so many significant digits.
    pub fn new(promise: &Promise, digits: usize) -> PromiseReport {
        let finite = |value: &Rational| Some(float(value)).filter(|value| value.is_finite());
        let loss = promise.per_year();
        PromiseReport {
            mean_hours: finite(promise.mean_hours()),
            mean_hours_text: shown(promise.mean_hours(), digits),
            mean_years: finite(&promise.mean_years()),
            loss_per_year: float(&loss),
            loss_per_year_text: shown(&loss, digits),
            nines: promise.nines(),
        }
    }
}

/// Comparison of codes.
#[derive(Debug, Serialize)]
pub struct CodesReport {
    /// The codes.
    pub codes: Vec<CodeReport>,
}

/// A code.
#[derive(Debug, Serialize)]
pub struct CodeReport {
    /// The code.
    pub code: String,
    /// Data blocks of a stripe.
    pub data: u32,
    /// Redundancy blocks of a stripe.
    pub redundancy: u32,
    /// Number of disks.
    pub disks: u32,
    /// Groups of disks.
    pub groups: u32,
    /// Redundancy per data.
    pub overhead: f64,
    /// Durability by the name of the model.
    #[serde(flatten)]
    pub models: BTreeMap<&'static str, ModelReport>,
}

/// Durability by one model.
#[derive(Debug, Serialize)]
pub struct ModelReport {
    /// The solution.
    #[serde(flatten)]
    pub promise: PromiseReport,
    /// A simulation, if one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<SimulatedReport>,
}

/// A simulation.
#[derive(Debug, Serialize)]
pub struct SimulatedReport {
    losses: u64,
    mean_hours: f64,
    low: f64,
    high: f64,
    events: u64,
    agrees: bool,
}

impl SimulatedReport {
    /// Of a simulation, compared with the solution.
    pub fn new(simulated: &Simulated, promise: &Promise) -> SimulatedReport {
        SimulatedReport {
            losses: simulated.losses,
            mean_hours: simulated.mean_hours,
            low: simulated.low,
            high: simulated.high,
            events: simulated.events,
            agrees: simulated.agrees(float(promise.mean_hours())),
        }
    }
}

/// Search for codes.
#[derive(Debug, Serialize)]
pub struct SearchReport {
    /// Number of disks.
    pub disks: u32,
    /// The disks are in groups as wide as the code.
    pub grouped: bool,
    /// Largest chance of a loss in a year.
    pub at_most_per_year: Option<f64>,
    /// Largest redundancy per data.
    pub most_overhead: Option<f64>,
    /// Codes that are safe and cheap enough.
    pub qualify: Vec<CandidateReport>,
    /// The others.
    pub others: Vec<CandidateReport>,
}

/// A code of a search.
#[derive(Debug, Serialize)]
pub struct CandidateReport {
    /// The code.
    pub code: String,
    /// Redundancy per data.
    pub overhead: f64,
    /// Groups of disks.
    pub groups: u32,
    /// Durability with checks in rebuilds.
    pub checked: PromiseReport,
    /// Why it does not qualify.
    pub fails: Vec<&'static str>,
}

/// Durability over a parameter.
#[derive(Debug, Serialize)]
pub struct SweepReport {
    /// The parameter.
    pub sweep: &'static str,
    /// Label of the axis.
    pub unit: &'static str,
    /// The lines.
    pub lines: Vec<LineReport>,
}

/// A line.
#[derive(Debug, Serialize)]
pub struct LineReport {
    /// Its label.
    pub line: String,
    /// Its points.
    pub points: Vec<PointReport>,
}

/// A point.
#[derive(Debug, Serialize)]
pub struct PointReport {
    /// Value of the parameter.
    pub at: f64,
    /// The code.
    pub code: String,
    /// Its durability.
    pub promise: PromiseReport,
}

/// Forecast for the files of a pool.
#[derive(Debug, Serialize)]
pub struct PoolForecastReport<'a> {
    /// Name of the pool.
    pub pool: &'a str,
    /// The unit of failure.
    pub fails: &'static str,
    /// Number of units.
    pub units: usize,
    /// Files with the same protection.
    pub classes: Vec<FileClassReport<'a>>,
    /// All files.
    pub together: Option<TogetherReport>,
    /// Files that can lose nothing.
    pub unprotected_files: u64,
    /// Files that are lost.
    pub lost_files: u64,
    /// Files that miss columns.
    pub degraded_files: u64,
    /// Files with several columns in one domain.
    pub crowded_files: u64,
    /// Files that could not be read.
    pub unreadable: Vec<FileFailure>,
}

/// Files with the same protection.
#[derive(Debug, Serialize)]
pub struct FileClassReport<'a> {
    /// The code.
    pub code: Option<&'a str>,
    /// Columns that each may lose.
    pub tolerated: usize,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Durability.
    #[serde(flatten)]
    pub placement: PlacementReport,
}

/// Durability of files by their placement.
#[derive(Debug, Serialize)]
pub struct PlacementReport {
    layouts: usize,
    fewest_fatal: usize,
    checked: PromiseReport,
}

impl PlacementReport {
    /// With so many significant digits.
    pub fn new(placement: &Placement, promise: &Promise, digits: usize) -> PlacementReport {
        PlacementReport {
            layouts: placement.layouts(),
            fewest_fatal: placement.fewest_fatal(),
            checked: PromiseReport::new(promise, digits),
        }
    }
}

/// All files of a pool.
#[derive(Debug, Serialize)]
pub struct TogetherReport {
    /// Bytes that a rebuild reads on average.
    pub rebuild_reads_bytes: f64,
    /// Durability.
    #[serde(flatten)]
    pub placement: PlacementReport,
}
