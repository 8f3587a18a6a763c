//! `gabion-bench vault`.

mod in_memory;
pub(super) mod measure;
mod tools;

use super::figures::BenchOptions;
use gabion::exit::Outcome;
use measure::{Bench, CASES};

const EXAMPLES: &str = "\
Examples:
  gabion-bench vault
  gabion-bench vault --dir /mnt/disk --only 'scrub cold'
  gabion-bench vault --quick --json

Runs this program on files that it makes below --dir, beside what plain reading and writing of the same disk, find, \
par2 and SnapRAID take. Cold cases drop the page cache, and that of large pages mounts a file system in memory: these need \
root. The comparison with other tools needs their Debian packages. \
Without --quick it writes some 20 GB and takes minutes. A case that cannot be measured is named, and the exit code is 2.";

/// Arguments of `gabion-bench vault`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    request: BenchOptions,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let bench = Bench { request: self.request.clone() };
        self.request.run(&CASES, |case| bench.run(case))
    }
}
