//! `gabion-bench mount`.

mod load;
mod measure;
mod pool;
mod small_write;

use super::figures::BenchOptions;
use gabion::exit::Outcome;
use measure::{Bench, CASES};

const EXAMPLES: &str = "\
Examples:
  gabion-bench mount --dir /mnt/disk
  gabion-bench mount --dir /mnt/disk --only 'read cold'
  gabion-bench mount --quick --json

Mounts a directory below --dir with this program and does the same through the mount and in a directory beside it, or through \
mergerfs (Debian's package), in turns. The last two cases mount a pool of six directories there, whole and with one of them away. `small write` counts what is read to protect a file again into which 4 KiB were written. Cold cases drop the page cache. Needs root. Without --quick it writes some 10 GB.";

/// Arguments of `gabion-bench mount`.
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
