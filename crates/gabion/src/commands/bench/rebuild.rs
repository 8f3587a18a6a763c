//! `gabion bench rebuild`.

mod measure;

use super::vault::print;
use gabion::exit::Outcome;
use measure::{Bench, CASES};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion bench rebuild
  gabion bench rebuild --dir /mnt/disk --only 'degraded read'
  gabion bench rebuild --quick --json

Makes a pool of eight directories below --dir, 4+2 with blocks of 1 MiB, protects files in it and takes a target away. Rebuild runs this
program, sync included, and is compared with the slowest of what it needs: reading four bytes for each that is rebuilt, making it
from these in memory, and writing it durably. Degraded reads are compared with healthy ones, by the same reader.
Caches are dropped before each run, which needs root. A case that cannot be measured is named, and the exit code is 2.";

/// Arguments of `gabion bench rebuild`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the files go: on the disk that is to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Fewer files; ends within a minute
    #[arg(long)]
    quick: bool,
    /// Only this case
    #[arg(long, value_name = "CASE", value_parser = clap::builder::PossibleValuesParser::new(CASES))]
    only: Option<String>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let mut failed = false;
        if !self.json {
            println!(
                "{:<38} {:>12} {:<10} {:>12}  {:<22} {:>6} {:>6}",
                "case", "ours", "", "reference", "against", "ratio", "bar"
            );
        }
        let bench = Bench::new(&self.dir, self.quick)?;
        for case in CASES.iter().filter(|case| self.only.as_ref().is_none_or(|only| only == *case)) {
            match bench.run(case) {
                Ok(lines) => lines.iter().try_for_each(|line| print(line, self.json))?,
                Err(error) => {
                    failed = true;
                    eprintln!("gabion: {case}: {error:#}");
                }
            }
        }
        Ok(if failed { Outcome::Failed } else { Outcome::Fine })
    }
}
