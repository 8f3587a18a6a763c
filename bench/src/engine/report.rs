//! Results of a case, and their JSON lines.

use super::{Case, Limit, Timing};
use gabion_engine::kernel::{Backend, KernelSet};
use serde::Serialize;

/// One kernel in one case, beside the limits of the same run.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Name of the case with this kernel.
    pub name: String,
    /// The kernel.
    pub row: &'static KernelSet,
    /// The case.
    pub case: Case,
    /// Times of a pass.
    pub timing: Timing,
    /// Times of the limits for the same counted bytes.
    pub limits: Vec<(Limit, Timing)>,
}

/// One comparison in the JSON form of all benches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Always `engine`.
    pub bench: &'static str,
    /// Operation, shape, size, options.
    pub case: String,
    /// Rate of the kernel in its best turn.
    pub value: f64,
    /// Unit of value, reference and median.
    pub unit: &'static str,
    /// Name of the limit.
    pub against: &'static str,
    /// Rate of the limit in its best turn.
    pub reference: f64,
    /// Value over reference.
    pub ratio: f64,
    /// The kernel.
    pub kernel: String,
    /// Threads that shared the bytes.
    pub threads: usize,
    /// Identity of the code; None where only its field matters.
    pub code: Option<String>,
    /// Width of the field's elements in bits.
    pub w: u32,
    /// Bytes of a block.
    pub block: usize,
    /// Counted bytes of one pass.
    pub counted: usize,
    /// Rate of the kernel in the median turn.
    pub median: f64,
    /// Time of the median over time of the best, less one.
    pub spread: f64,
    /// The same of the limit.
    pub reference_spread: f64,
    /// Always true: the output was checked before the timing.
    pub verified: bool,
}

impl Measurement {
    /// 1e9 counted bytes per second in the best turn.
    pub fn rate(&self) -> f64 {
        self.rate_of(self.timing.best)
    }

    /// This rate over the limit's, where the limit was measured.
    pub fn ratio(&self, limit: Limit) -> Option<f64> {
        let found = self.limits.iter().find(|(other, _)| *other == limit);
        found.map(|(_, timing)| timing.best / self.timing.best)
    }

    fn rate_of(&self, seconds: f64) -> f64 {
        self.case.counted() as f64 / seconds / 1e9
    }

    /// One line per limit.
    pub fn lines(&self) -> Vec<Line> {
        let line = |&(limit, timing): &(Limit, Timing)| Line {
            bench: "engine",
            case: self.name.clone(),
            value: rounded(self.rate()),
            unit: "GB/s",
            against: limit.name(),
            reference: rounded(self.rate_of(timing.best)),
            ratio: rounded(timing.best / self.timing.best),
            kernel: self.row.name().to_owned(),
            threads: self.case.threads,
            code: (!self.case.operation.needs_field_only()).then(|| self.case.code.to_string()),
            w: self.case.code.field().w(),
            block: self.case.block,
            counted: self.case.counted(),
            median: rounded(self.rate_of(self.timing.median)),
            spread: rounded(self.timing.spread()),
            reference_spread: rounded(timing.spread()),
            verified: true,
        };
        self.limits.iter().map(line).collect()
    }
}

/// Four significant digits: more than measurements reproduce.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::engine::Operation;
    use gabion_engine::kernel::kernel_sets;

    /// A measurement that took `micros` for a pass, at the scalar kernel.
    pub(in crate::engine) fn measurement(
        operation: Operation,
        code: &str,
        block: usize,
        micros: f64,
    ) -> Measurement {
        let timing = |micros: f64| Timing { best: micros / 1e6, median: 1.1 * micros / 1e6, turns: 9 };
        let code = code.parse().unwrap();
        let rows = vec![&kernel_sets()[0]];
        let case = Case {
            operation,
            code,
            block,
            threads: 1,
            lost: None,
            unaligned: false,
            rows,
            names_kernels: false,
        };
        let limits = vec![(Limit::Copy, timing(20.0)), (Limit::XorStream, timing(5.0))];
        let row = case.rows[0];
        Measurement { name: case.name(row), row, case, timing: timing(micros), limits }
    }

    #[test]
    fn a_line_begins_with_the_agreed_members() {
        let lines = measurement(Operation::Encode, "10+4", 65536, 10.0).lines();
        let text = serde_json::to_string(&lines[0]).unwrap();
        let agreed = "{\"bench\":\"engine\",\"case\":\"encode 10+4 64KiB\",\"value\":65.54,\"unit\":\"GB/s\",\
                      \"against\":\"copy\",\"reference\":32.77,\"ratio\":2.0,";
        assert!(text.starts_with(agreed), "{text}");
        assert_eq!((lines[1].against, lines[1].ratio, lines[1].median), ("xor-stream", 0.5, 59.58));
        assert_eq!(lines[0].code.as_deref(), Some("subspace:10+4:w8"));
    }

    #[test]
    fn four_digits() {
        assert_eq!([1234.56, 0.123456, 0.0].map(rounded), [1235.0, 0.1235, 0.0]);
    }
}
