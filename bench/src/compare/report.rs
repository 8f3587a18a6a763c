//! Results of a comparison as a table and as JSON lines.

use std::fmt::Write as _;

use serde::Serialize;

use super::race::Timing;

/// One comparison of ours with one reference, in the JSON form of all benches.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    bench: &'static str,
    pub(super) case: String,
    pub(super) value: f64,
    unit: &'static str,
    pub(super) against: &'static str,
    pub(super) reference: f64,
    pub(super) ratio: f64,
    /// Median over best, less one, of ours and of the reference.
    spread: f64,
    reference_spread: f64,
    /// Target for the ratio, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bar: Option<f64>,
}

impl Line {
    /// True if the target is reached; None without one.
    pub(super) fn reached(&self) -> Option<bool> {
        self.bar.map(|bar| self.ratio >= bar)
    }

    fn verdict(&self) -> &'static str {
        match self.reached() {
            Some(true) => "reached",
            Some(false) => "missed",
            None => "",
        }
    }
}

/// Turns timings of one case, ours first, into one line per reference. `bytes` is what one pass
/// counts for: k × block bytes for stripes; `bars` are names of references, each with the least ratio.
pub(super) fn lines(case: &str, bytes: usize, bars: &[(&str, f64)], timings: &[Timing]) -> Vec<Line> {
    let (ours, others) = timings.split_first().expect("ours takes part in every race");
    let speed = |timing: &Timing| bytes as f64 / timing.seconds / 1e9;
    others
        .iter()
        .map(|other| Line {
            bench: "compare",
            case: case.to_owned(),
            value: rounded(speed(ours)),
            unit: "GB/s",
            against: other.name,
            reference: rounded(speed(other)),
            ratio: rounded(speed(ours) / speed(other)),
            spread: rounded(ours.spread),
            reference_spread: rounded(other.spread),
            bar: bars.iter().find(|(against, _)| *against == other.name).map(|&(_, bar)| bar),
        })
        .collect()
}

/// Four significant digits: more than measurements reproduce.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// The table; a case with several references is named once.
pub(super) fn table(lines: &[Line]) -> String {
    let case_width = lines.iter().map(|line| line.case.len()).max().unwrap_or(0).max(4);
    let name_width = lines.iter().map(|line| line.against.len()).max().unwrap_or(0).max(7);
    let mut text = format!(
        "{:case_width$}  {:>8}  {:name_width$}  {:>8}  {:>6}  {:>4} {:7}  {:>13}\n",
        "case", "gabion", "against", "GB/s", "ratio", "bar", "", "spread"
    );
    let mut previous = "";
    for line in lines {
        let (case, value) = if line.case == previous {
            ("", String::new())
        } else {
            (line.case.as_str(), number(line.value))
        };
        previous = &line.case;
        let spread = format!("{:.0} % / {:.0} %", 100.0 * line.spread, 100.0 * line.reference_spread);
        writeln!(
            text,
            "{case:case_width$}  {value:>8}  {:name_width$}  {:>8}  {:>6}  {:>4} {:7}  {spread:>13}",
            line.against,
            number(line.reference),
            ratio(line.ratio),
            line.bar.map_or(String::new(), |bar| bar.to_string()),
            line.verdict(),
        )
        .expect("writing into a String cannot fail");
    }
    text
}

/// Number of targets that are reached.
pub(super) fn summary(lines: &[Line]) -> String {
    let verdicts: Vec<bool> = lines.iter().filter_map(Line::reached).collect();
    let reached = verdicts.iter().filter(|reached| **reached).count();
    format!("{reached} of {} bars reached, against {}\n", verdicts.len(), isal())
}

/// The ISA-L of the run: its version and the code path it takes.
pub(super) fn isal() -> String {
    let path = if crate::isal::uses_gfni() { "GFNI" } else { "no GFNI" };
    format!("{}, {path}", crate::isal::version())
}

/// A ratio with enough digits to compare it with its target.
fn ratio(value: f64) -> String {
    if value >= 10.0 { format!("{value:.2}") } else { format!("{value:.3}") }
}

/// Three significant digits.
fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// The machine and the libraries a record was made with.
#[derive(Serialize)]
pub(super) struct Machine {
    bench: &'static str,
    pub(super) date: String,
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) isal: String,
    pub(super) libraries: Vec<&'static str>,
    pub(super) quick: bool,
}

impl Machine {
    pub(super) fn new(date: String, cpu: String, kernel: String, isal: String, quick: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let libraries = vec![
            crate::isal::version(),
            crate::jerasure::VERSION,
            crate::jerasure::FIELD_VERSION,
            "reed-solomon-erasure 6.0.0 (simd-accel)",
            "reed-solomon-simd 3.1.0",
        ];
        Self { bench: "machine", date, cpu, cores, kernel, isal, libraries, quick }
    }
}

/// JSON, one object per line.
pub(super) fn json(lines: &[Line]) -> anyhow::Result<String> {
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", serde_json::to_string(line)?)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{json, lines, rounded, summary, table};
    use crate::compare::race::Timing;

    fn timings() -> [Timing; 3] {
        [("gabion", 1e-5, 0.1), ("isal", 2e-5, 0.0), ("jerasure", 1e-4, 0.02)]
            .map(|(name, seconds, spread)| Timing { name, seconds, spread })
    }

    #[test]
    fn a_line_has_the_agreed_members() {
        let lines = lines("encode 10+4 64KiB", 655_360, &[("jerasure", 12.0)], &timings());
        let text = json(&lines).expect("serialisable");
        assert_eq!(
            text.lines().next().expect("a line"),
            "{\"bench\":\"compare\",\"case\":\"encode 10+4 64KiB\",\"value\":65.54,\
             \"unit\":\"GB/s\",\"against\":\"isal\",\"reference\":32.77,\"ratio\":2.0,\
             \"spread\":0.1,\"reference_spread\":0.0}"
        );
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().last().expect("a line").ends_with("\"reference_spread\":0.02,\"bar\":12.0}"));
    }

    #[test]
    fn a_table_names_a_case_once() {
        let table = table(&lines("encode 10+4 64KiB", 655_360, &[], &timings()));
        assert_eq!(table.matches("10+4").count(), 1);
        assert!(table.contains("jerasure") && table.contains("10.00"));
    }

    #[test]
    fn bars_are_reached_or_missed() {
        let bars = [("isal", 2.0), ("jerasure", 12.0)];
        let lines = lines("encode 10+4 64KiB", 655_360, &bars, &timings());
        assert_eq!([lines[0].reached(), lines[1].reached()], [Some(true), Some(false)]);
        let table = table(&lines);
        assert!(table.contains("2 reached") && table.contains("12 missed"), "{table}");
        assert!(summary(&lines).starts_with("1 of 2 bars reached"));
    }

    #[test]
    fn four_digits() {
        assert_eq!([1234.56, 0.123456, 0.0].map(rounded), [1235.0, 0.1235, 0.0]);
    }
}
