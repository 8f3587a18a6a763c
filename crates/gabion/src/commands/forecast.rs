//! `gabion forecast`: mean time to data loss of codes, or of the files of a pool.

mod codes;
mod disks;
mod pool;
mod search;
mod sweep;

use crate::commands::pool::Names;
use crate::output::{print_json, table};
use clap::ValueEnum;
use disks::Disks;
use gabion::exit::Outcome;
use gabion::report::forecast::{ForecastReport, PromiseReport};
use gabion_chart::SvgFile;
use gabion_forecast::exact::{float, shown};
use gabion_forecast::{Forecast, Model, Parameters, Promise, Rational, Reading, Scheme, quantity};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion forecast                                   a few well-known codes
  gabion forecast 6+2 10+4 3x --afr 2.12%           these, on disks of which 2.12 % fail per year
  gabion forecast 10+4 --disks 24                   spread over 24 disks, as a pool does it
  gabion forecast --at-most 1e-9/year --disks 24 --overhead 40%
                                                    codes that are safe and cheap enough, and why others are not;
                                                    try it with --read-errors 1e-17 too
  gabion forecast --sweep disks --plot mttdc.svg    mean time over the number of disks
  gabion forecast 10+4 --sweep rebuild              effect of a faster rebuild
  gabion forecast --pool tank                       forecast for the files of a pool, by their placement
  gabion forecast 4+1 --mtbf 1000h --rebuild 1d --simulate 10000
                                                    compares the result with a simulation of single disks

How it is computed: disks fail at random, each after --mtbf on average; a rebuild takes --rebuild on average and reads k \
disks completely, with --read-errors per bit. More than m missing blocks are data loss. Without checks the share --silent of read errors \
gets unnoticed into the rebuilt data; with checks, as Gabion has them, it counts as one more missing block. The mean time is \
solved exactly; the chance of loss in a year follows from it. Nines: 3 means 99.9 % to keep everything for a year. \
Not modelled: correlated failures, operator errors, software faults. Use the numbers to compare codes, not as guarantees.

Exit codes: 0 fine, 1 no code qualifies or files of the pool lack redundancy, 2 error, 3 files of the pool are lost.";

/// Arguments of `gabion forecast`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Codes, such as 10+4, or 3x for three copies
    #[arg(value_name = "CODE", value_parser = Scheme::parse)]
    codes: Vec<Scheme>,
    #[command(flatten)]
    kind: Disks,
    /// Number of disks; a code is spread over all of them [default: as many as the code has blocks]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    disks: Option<u32>,
    /// Use disks in separate groups as wide as the code, instead of spreading the code over all
    #[arg(long, requires = "disks")]
    grouped: bool,
    /// List codes that lose data with at most this probability per year, such as 1e-9/year
    #[arg(long, value_name = "CHANCE", value_parser = quantity::per_year, requires = "disks", allow_hyphen_values = true)]
    at_most: Option<Rational>,
    /// List codes with at most this redundancy per data, such as 40%
    #[arg(long, value_name = "SHARE", value_parser = quantity::share, requires = "disks", allow_hyphen_values = true)]
    overhead: Option<Rational>,
    /// Name every code that does not qualify instead of ranges
    #[arg(long, requires = "disks")]
    all: bool,
    /// Mean time over a parameter that varies
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["at_most", "overhead", "pool", "simulate"])]
    sweep: Option<sweep::Varied>,
    /// Draw the sweep into this SVG file
    #[arg(long, value_name = "FILE", requires = "sweep")]
    plot: Option<PathBuf>,
    /// Forecast for the files of a pool, given by its name or the directory of any target
    #[arg(long, value_name = "POOL", conflicts_with_all = ["codes", "disks", "at_most", "overhead", "simulate", "capacity"])]
    pool: Option<OsString>,
    /// Unit of failure in a pool
    #[arg(long, value_enum, default_value_t = pool::Unit::Target, requires = "pool")]
    fails: pool::Unit,
    #[command(flatten)]
    names: Names,
    /// Simulate until data was lost so many times, and compare
    #[arg(long, value_name = "LOSSES", conflicts_with_all = ["at_most", "overhead"])]
    simulate: Option<u64>,
    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate")]
    seed: u64,
    /// Interpretation of the equations of the thesis
    #[arg(long, value_enum, default_value_t = Equations::Meant, conflicts_with = "pool")]
    equations: Equations,
    /// Significant digits of printed numbers
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=60))]
    digits: u8,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Interpretation of the equations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Equations {
    /// By their meaning: nothing is rebuilt while nothing is missing
    Meant,
    /// Literally, which contradicts the text around them
    Printed,
}

/// Parameters and output options of all parts of the command.
struct Setting {
    parameters: Parameters,
    reading: Reading,
    digits: usize,
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        // Refuses a file that cannot be drawn before anything is computed.
        let target = self.plot.as_deref().map(SvgFile::new).transpose()?;
        let setting = Setting {
            parameters: self.kind.parameters()?,
            reading: match self.equations {
                Equations::Meant => Reading::Meant,
                Equations::Printed => Reading::Printed,
            },
            digits: usize::from(self.digits),
            json: self.json,
        };
        if let Some(name) = &self.pool {
            return pool::run(name, &self.names, self.fails, &setting);
        }
        if let Some(varied) = self.sweep {
            return sweep::run(varied, &self.codes, self.disks, target.as_ref(), &setting);
        }
        if let (Some(disks), true) = (self.disks, self.at_most.is_some() || self.overhead.is_some()) {
            anyhow::ensure!(
                self.codes.is_empty(),
                "--at-most and --overhead look for codes: give either these or codes"
            );
            return search::run(disks, self.grouped, self.at_most, self.overhead, self.all, &setting);
        }
        let mut codes = if self.codes.is_empty() { codes::known()? } else { self.codes };
        if let Some(disks) = self.disks {
            let placed =
                |code: Scheme| if self.grouped { code.grouped_on(disks) } else { code.spread_over(disks) };
            codes = codes.into_iter().map(placed).collect::<Result<_, _>>()?;
        }
        codes::run(&codes, self.simulate.map(|losses| (losses, self.seed)), &setting)
    }
}

impl Setting {
    fn forecast(&self, scheme: Scheme, model: Model) -> anyhow::Result<Forecast> {
        Ok(gabion_forecast::forecast(scheme, model, &self.parameters, self.reading)?)
    }

    fn say(&self, line: impl AsRef<str>) {
        if !self.json {
            outln!("{}", line.as_ref());
        }
    }

    fn number(&self, value: &Rational) -> String {
        shown(value, self.digits)
    }

    /// Prints the parameters of the disks before a table.
    fn introduce(&self) {
        self.say(format!("{}.", self.parameters.words()));
        if self.reading == Reading::Printed {
            self.say(
                "The equations are read literally: docs/reference/forecast.md explains why that is not their meaning.",
            );
        }
    }

    /// Prints an answer with the parameters.
    fn print_json(&self, answer: impl Serialize) {
        print_json(&ForecastReport::new(self.parameters.given(), self.reading, answer));
    }

    fn promise_report(&self, promise: &Promise) -> PromiseReport {
        PromiseReport::new(promise, self.digits)
    }
}

/// A share in percent.
fn percent(share: &Rational) -> String {
    let percent = float(share) * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Prints a table whose first column is text.
fn print_table(rows: &[Vec<String>]) {
    table(rows, |at| at > 0).iter().for_each(|line| outln!("{line}"));
}
