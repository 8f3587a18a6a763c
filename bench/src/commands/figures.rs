//! Results of the benches that run the `gabion` program on real files: options, table, JSON lines and records.

use anyhow::Context;
use gabion::exit::{Outcome, error_message};
use gabion_engine::kernel::Backend;
use serde::Serialize;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// One result beside its reference.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Line {
    /// Name of the bench.
    pub(super) bench: &'static str,
    /// Name of the case.
    pub(super) case: String,
    /// Measured value of Gabion.
    pub(super) value: f64,
    /// Unit of value and reference.
    pub(super) unit: &'static str,
    /// Name of the reference.
    pub(super) against: String,
    /// Measured value of the reference.
    pub(super) reference: f64,
    /// Value over reference, inverted where small values are better: over 1 is better than the reference.
    pub(super) ratio: f64,
    /// Target for the ratio, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bar: Option<f64>,
    /// Sizes, cache state and number of rounds.
    pub(super) conditions: String,
}

impl Line {
    /// A line whose ratio is value over reference.
    pub(super) fn new(
        bench: &'static str,
        case: &str,
        (value, unit): (f64, &'static str),
        (against, reference): (&str, f64),
        bar: impl Into<Option<f64>>,
        conditions: String,
    ) -> Line {
        let (case, against, bar) = (case.to_owned(), against.to_owned(), bar.into());
        Line { bench, case, value, unit, against, reference, ratio: value / reference, bar, conditions }
    }

    /// True if the ratio reaches its target.
    pub(super) fn reached(&self) -> bool {
        self.bar.is_none_or(|bar| self.ratio >= bar)
    }

    /// The same with the ratio inverted, for values that should be small.
    pub(super) fn inverted(self) -> Line {
        Line { ratio: self.reference / self.value, ..self }
    }
}

/// Options of these benches: where to measure, how long, and where results go.
#[derive(clap::Args, Clone)]
pub(super) struct BenchOptions {
    /// Directory for the test files, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(super) dir: PathBuf,
    /// Smaller trees; ends within a minute
    #[arg(long)]
    pub(super) quick: bool,
    /// Only this case
    #[arg(long, value_name = "CASE")]
    only: Option<String>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Write the JSON lines to this file as well, after one about the machine; with --only, those of other cases stay
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date to record
    #[arg(long, value_name = "YYYY-MM-DD", requires = "record")]
    date: Option<String>,
}

impl BenchOptions {
    /// Runs the selected cases. A case that fails is reported, and the others still run.
    pub(super) fn run(
        &self,
        cases: &[&str],
        mut measure: impl FnMut(&str) -> anyhow::Result<Vec<Line>>,
    ) -> anyhow::Result<Outcome> {
        if let Some(only) = &self.only {
            anyhow::ensure!(
                cases.contains(&only.as_str()),
                "no case {only:?}; there are: {}",
                cases.join(", ")
            );
        }
        crate::program::build()?;
        let mut failed = false;
        let mut record = Vec::new();
        if !self.json {
            outln!(
                "{:<38} {:>12} {:<10} {:>12}  {:<22} {:>6} {:>6}",
                "case",
                "ours",
                "",
                "reference",
                "against",
                "ratio",
                "bar"
            );
        }
        for case in cases.iter().filter(|case| self.only.as_ref().is_none_or(|only| only == *case)) {
            match measure(case) {
                Ok(lines) => {
                    lines.iter().try_for_each(|line| print(line, self.json))?;
                    record.extend(lines);
                }
                Err(error) => {
                    failed = true;
                    errln!("gabion-bench: {case}: {}", error_message(&error));
                }
            }
        }
        if let (Some(path), Some(date)) = (&self.record, &self.date) {
            let mut record: Vec<Value> = record.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
            if self.only.is_some() && path.exists() {
                record = merged(path, record)?;
            }
            write_record(path, date, &record)?;
        }
        Ok(if failed { Outcome::Failed } else { Outcome::Fine })
    }

    /// An empty temporary directory on the disk to be measured.
    pub(super) fn place(&self) -> anyhow::Result<tempfile::TempDir> {
        place_in(&self.dir)
    }
}

/// The shortest of several rounds: disturbances by other processes only make a round longer.
pub(super) fn shortest(seconds: impl IntoIterator<Item = f64>) -> f64 {
    seconds.into_iter().fold(f64::INFINITY, f64::min)
}

/// An empty temporary directory.
pub(super) fn place_in(dir: &Path) -> anyhow::Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("gabion-bench-")
        .tempdir_in(dir)
        .with_context(|| dir.display().to_string())
}

fn print(line: &Line, json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string(line)?);
        return Ok(());
    }
    let verdict = if line.reached() { "" } else { "  MISSED" };
    let bar = line.bar.map_or("-".to_owned(), |bar| format!("{bar:.2}"));
    outln!(
        "{:<38} {:>12.2} {:<10} {:>12.2}  {:<22} {:>6.2} {bar:>6}{verdict}",
        line.case,
        line.value,
        line.unit,
        line.reference,
        line.against,
        line.ratio
    );
    outln!("    {}", line.conditions);
    Ok(())
}

/// The lines of a record of this machine, with the new ones in place of older ones of the same name.
fn merged(path: &Path, new: Vec<Value>) -> anyhow::Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut lines = text.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?.into_iter();
    let (was, is) = (lines.next().unwrap_or_default(), machine("")?);
    for key in ["cpu", "cores", "kernel"] {
        let (was, is) = (&was[key], &is[key]);
        anyhow::ensure!(
            was == is,
            "{} was measured on another machine: {key} {was}, here {is}",
            path.display()
        );
    }
    let is_replaced = |line: &Value| new.iter().any(|it| it["case"] == line["case"]);
    Ok(lines
        .filter(|line| !is_replaced(line))
        .collect::<Vec<_>>()
        .into_iter()
        .chain(new.iter().cloned())
        .collect())
}

/// The first line of a record.
fn machine(date: &str) -> anyhow::Result<Value> {
    let cores = std::thread::available_parallelism()?.get();
    let (cpu, kernel) =
        (gabion::machine::Cpu::of_this_machine().model, gabion_engine::kernel::KernelSet::chosen()?.name());
    Ok(serde_json::json!({ "bench": "machine", "date": date, "cpu": cpu, "cores": cores, "kernel": kernel }))
}

/// Writes a record: a line about the machine, then the results.
pub(super) fn write_record(path: &Path, date: &str, lines: &[impl Serialize]) -> anyhow::Result<()> {
    let mut text = format!("{}\n", machine(date)?);
    for line in lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_one_case_replaces_its_line_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("record.jsonl");
        let line = |case: &str, value: f64| {
            let line = Line::new("hosts", case, (value, "s"), ("one", 2.0), None, String::new());
            serde_json::to_value(line).unwrap()
        };
        write_record(&path, "2026-11-01", &[line("a", 1.0), line("b", 2.0)]).unwrap();
        let both = merged(&path, vec![line("a", 3.0)]).unwrap();
        assert_eq!(both, [line("b", 2.0), line("a", 3.0)]);
        let text = std::fs::read_to_string(&path).unwrap().replace("\"cores\":", "\"cores\":1000");
        std::fs::write(&path, text).unwrap();
        let refused = merged(&path, both).unwrap_err().to_string();
        assert!(refused.contains("another machine: cores"), "{refused}");
    }
}
