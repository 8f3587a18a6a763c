//! `gabion-bench rebuild`.

mod measure;

use super::figures::BenchOptions;
use gabion::exit::Outcome;
use measure::{Bench, CASES};

const EXAMPLES: &str = "\
Examples:
  gabion-bench rebuild
  gabion-bench rebuild --dir /mnt/disk --only 'degraded read'
  gabion-bench rebuild --quick --json

Makes a pool of eight directories below --dir, 4+2 with blocks of 1 MiB, protects files in it and takes a target away. Rebuild runs this \
program, sync included, and is compared with the slowest of what it needs: reading four bytes for each that is rebuilt, making it \
from these in memory, and writing it durably. Degraded reads are compared with healthy ones, by the same reader. \
Caches are dropped before each run, which needs root. A case that cannot be measured is named, and the exit code is 2.";

/// Arguments of `gabion-bench rebuild`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: BenchOptions,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let bench = Bench::new(&self.request.dir, self.request.quick)?;
        self.request.run(&CASES, |case| bench.run(case))
    }
}
