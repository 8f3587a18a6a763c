//! `gabion bench vault`.

mod files;
mod measure;
mod tools;

use gabion::exit::Outcome;
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
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let bench = Bench { dir: self.dir, quick: self.quick };
        let mut failed = false;
        if !self.json {
            println!(
                "{:<38} {:>12} {:<10} {:>12}  {:<22} {:>6} {:>6}",
                "case", "ours", "", "reference", "against", "ratio", "bar"
            );
        }
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

fn print(line: &Line, json: bool) -> anyhow::Result<()> {
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
