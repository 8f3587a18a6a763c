//! `gabion bench vault`.

pub(super) mod files;
pub(super) mod measure;
mod tools;

use anyhow::Context;
use gabion::exit::Outcome;
use gabion_engine::kernel::Backend;
use measure::{Bench, CASES, Line};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion bench vault
  gabion bench vault --dir /mnt/disk --only 'scrub cold'
  gabion bench vault --quick --json

Runs this program on files that it makes below --dir, beside what plain reading and writing of the same disk, find,
par2 and SnapRAID take. Cold cases drop the page cache and need root; the comparison with other tools needs their Debian packages.
Without --quick it writes some 20 GB and takes minutes. A case that cannot be measured is named, and the exit code is 2.";

/// Arguments of `gabion bench vault`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the files go: on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Smaller trees; ends within a minute
    #[arg(long)]
    quick: bool,
    /// Only this case
    #[arg(long, value_name = "CASE", value_parser = clap::builder::PossibleValuesParser::new(CASES))]
    only: Option<String>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Write the JSON lines to this file as well, after one about the machine
    #[arg(long, value_name = "FILE", requires = "date")]
    record: Option<PathBuf>,
    /// The date to record
    #[arg(long, value_name = "YYYY-MM-DD", requires = "record")]
    date: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let bench = Bench { dir: self.dir, quick: self.quick };
        let mut failed = false;
        let mut record = Vec::new();
        if !self.json {
            println!(
                "{:<38} {:>12} {:<10} {:>12}  {:<22} {:>6} {:>6}",
                "case", "ours", "", "reference", "against", "ratio", "bar"
            );
        }
        for case in CASES.iter().filter(|case| self.only.as_ref().is_none_or(|only| only == *case)) {
            match bench.run(case) {
                Ok(lines) => {
                    lines.iter().try_for_each(|line| print(line, self.json))?;
                    record.extend(lines);
                }
                Err(error) => {
                    failed = true;
                    eprintln!("gabion: {case}: {error:#}");
                }
            }
        }
        if let (Some(path), Some(date)) = (&self.record, &self.date) {
            write_record(path, date, &record)?;
        }
        Ok(if failed { Outcome::Failed } else { Outcome::Fine })
    }
}

pub(super) fn print(line: &Line, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(line)?);
        return Ok(());
    }
    let verdict = if line.reached() { "" } else { "  MISSED" };
    println!(
        "{:<38} {:>12.2} {:<10} {:>12.2}  {:<22} {:>6.2} {:>6.2}{verdict}",
        line.case, line.value, line.unit, line.reference, line.against, line.ratio, line.bar
    );
    println!("    {}", line.conditions);
    Ok(())
}

fn write_record(path: &std::path::Path, date: &str, lines: &[Line]) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let (cpu, kernel) =
        (gabion::machine::Cpu::of_this_machine().model, gabion_engine::kernel::Row::chosen()?.name());
    let machine =
        serde_json::json!({ "bench": "machine", "date": date, "cpu": cpu, "cores": cores, "kernel": kernel });
    let mut text = format!("{machine}\n");
    for line in lines {
        text += &serde_json::to_string(line)?;
        text.push('\n');
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}
