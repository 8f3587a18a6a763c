//! `gabion-bench machine`.

use super::figures::write_record;
use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion_bench::machine::{Bench, Measure, Part, figure, lines};
use gabion_bench::plot::Target;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion-bench machine                            everything, about a minute
  gabion-bench machine --quick --part operations  instructions only
  gabion-bench machine --plot figures --format png
  gabion-bench machine --json --record machine.jsonl --date 2026-11-15

What is measured, always without any coding:
  operations  load, store, XOR, three-input logic, shift, shuffle, affine map and carry-less multiplication, for all widths of registers
  loads       a buffer loaded again and again, over its size: one register per turn, four, and with prefetches
  streams     k inputs loaded and m outputs stored at once, from memory, with ordinary and non-temporal stores; one thread and all;
              and 10 inputs with 4 outputs over their size and over the distance of prefetches
  latency     loads that each wait for the one before, over the working set: descending strides, and a random order

GB/s are 1e9 bytes per second of the best of several runs; streams count loaded and stored bytes. `against` names the case of the same run that \
a line is compared with: the narrowest register, the smallest buffer, loads without stores. What this CPU has no instruction for is named \
and left out.";

/// Arguments of `gabion-bench machine`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only this part; may be repeated [default: all]
    #[arg(long = "part", value_enum, value_name = "PART")]
    parts: Vec<PartName>,
    /// Fewer cases and smaller buffers; ends within 50 seconds
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Draw a figure per part into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Format of the figures
    #[arg(long, value_enum, default_value_t = Format::Svg, requires = "plot")]
    format: Format,
    /// Write the JSON lines to this file as well, after one about the machine
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date to record
    #[arg(long, value_name = "YYYY-MM-DD", requires = "record")]
    date: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PartName {
    Operations,
    Loads,
    Streams,
    Latency,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Svg,
    Png,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Part {
        match name {
            PartName::Operations => Part::Operations,
            PartName::Loads => Part::Loads,
            PartName::Streams => Part::Streams,
            PartName::Latency => Part::Latency,
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let parts: Vec<Part> = match self.parts[..] {
            [] => Part::ALL.to_vec(),
            _ => self.parts.iter().map(|&name| name.into()).collect(),
        };
        let targets = self.targets(&parts)?;
        let all: Vec<Measure> = parts.iter().flat_map(|&part| Measure::all(part, self.quick)).collect();
        let (possible, left_out): (Vec<Measure>, Vec<Measure>) =
            all.into_iter().partition(|what| what.missing().is_none());
        for what in &left_out {
            errln!("gabion: left out: {}: needs {}", what.name(), what.missing().unwrap_or("nothing"));
        }
        anyhow::ensure!(!possible.is_empty(), "nothing of this can be measured here");
        let bar = self.bar(possible.len() as u64);
        let mut bench = Bench::new(self.quick)?;
        let mut measured = Vec::new();
        for what in possible {
            bar.set_message(what.name());
            measured.push((what, bench.measure(what).with_context(|| what.name())?));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let found = lines(&measured);
        if !self.json {
            outln!("{:<54} {:>10} {:<5} {:>7}  against", "case", "value", "unit", "ratio");
        }
        for line in &found {
            match self.json {
                true => outln!("{}", serde_json::to_string(line)?),
                false => outln!(
                    "{:<54} {:>10.2} {:<5} {:>7.2}  {}",
                    line.case,
                    line.value,
                    line.unit,
                    line.ratio,
                    line.against
                ),
            }
        }
        for (part, target) in targets {
            if let Some(figure) = figure(part, &measured) {
                target.write(&figure)?;
            }
        }
        if let (Some(path), Some(date)) = (&self.record, &self.date) {
            write_record(path, date, &found)?;
        }
        Ok(Outcome::Fine)
    }

    /// Created before anything is measured, so that an error comes early.
    fn targets(&self, parts: &[Part]) -> anyhow::Result<Vec<(Part, Target)>> {
        let Some(directory) = &self.plot else { return Ok(Vec::new()) };
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let ending = if self.format == Format::Svg { "svg" } else { "png" };
        let target = |&part: &Part| {
            let path = directory.join(format!("machine-{}.{ending}", part.name()));
            Ok((part, Target::new(&path)?))
        };
        parts.iter().map(target).collect()
    }

    fn bar(&self, total: u64) -> ProgressBar {
        if self.json || !stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(total);
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}");
        bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}
