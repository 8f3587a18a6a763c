//! `gabion shard split`.

use super::terminal::RunArgs;
use crate::commands::device;
use crate::output::{bytes, print_json};
use gabion::exit::Outcome;
use gabion::report::shard::{SplitPlanReport, SplitReport};
use gabion::size::Size;
use gabion_engine::Code;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::split::{Options, Plan};
use gabion_vault::policy;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion shard split photos.tar --code 10+4 --out shards
  gabion shard split photos.tar --code 10+4 --out shards --dry-run
  tar c photos | gabion shard split - --name photos.tar --code 10+4 --out shards
  gabion shard split db.img --code cauchy-good:6+3:w8:packets=2048 --block 1MiB --out shards
  gabion shard split db.img --code 64+16 --block 4MiB --out shards --device auto

Shards are named NAME.000.gabion, NAME.001.gabion, … Nothing appears in DIR before all of it is on disk. \
Shards have the permission bits of the source.

Shards are the same whatever --device computes them. Drivers of other devices are loaded only if one is asked for. auto \
measures CPU and GPUs with this code, block size and number of threads, keeps the result, and says what it chose and why; a \
device that is named and missing is an error.";

/// Arguments of `gabion shard split`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The file to split, - for standard input
    file: PathBuf,
    /// The code: K+M, short for subspace:K+M:w8, or FAMILY:K+M:wBITS[:packets=BYTES]
    #[arg(long, value_name = "K+M")]
    code: Code,
    /// The directory for the shards; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Bytes of a block, such as 64KiB or 1MiB
    #[arg(long, value_name = "SIZE", default_value = "256KiB")]
    block: Size,
    /// The name that shards carry, instead of the file's own
    #[arg(long)]
    name: Option<OsString>,
    /// Replace shards of this name that exist
    #[arg(long)]
    force: bool,
    /// Check and say what would be done, but do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { file, code, out, block, name, force, dry_run, run_args } = self;
        let asked = block;
        let block = block.0 as u64;
        let source = (file.as_os_str().as_bytes() != b"-").then_some(file);
        let options = Options { source, code, out, block, name: name.map(OsString::into_vec), force };
        let device = run_args.device()?;
        let plan = Plan::new(&options)?;
        if plan.content.block != block {
            let granule = plan.content.code.granule();
            errln!(
                "gabion: block size {asked} rounded up to {}, a multiple of {}",
                policy::Size(plan.content.block),
                Size(granule)
            );
        }
        if dry_run {
            if run_args.output.json {
                print_json(&SplitPlanReport::new(&plan));
            } else {
                let size = plan.size().map_or("a stream".to_owned(), bytes);
                run_args.output.print_line(format!(
                    "would split {size} with {} in blocks of {} into",
                    plan.content.code,
                    policy::Size(plan.content.block)
                ));
                plan.shards
                    .iter()
                    .for_each(|path| run_args.output.print_line(format!("  {}", DisplayPath::path(path))));
            }
            return Ok(Outcome::Fine);
        }
        let report = run_args.run(&device, |run| plan.run(run))??;
        if run_args.output.json {
            print_json(&device::add_to(SplitReport::new(&report), &device));
        }
        let (code, size, shard) = (&report.content.code, bytes(report.content.size), bytes(report.shard_len));
        let (name, shards, k) = (DisplayPath::bytes(&report.content.name), code.blocks(), code.k());
        run_args
            .output
            .print_line(format!("{name}: {size} in {shards} shards of {shard}, any {k} bring it back"));
        run_args.output.print_line(format!("set {}", report.set));
        run_args.say_device(&device);
        Ok(Outcome::Fine)
    }
}

#[cfg(test)]
mod tests {
    use super::Size;
    use gabion_shard::split::DEFAULT_BLOCK;

    #[test]
    fn the_help_names_the_default() {
        assert_eq!("256KiB".parse(), Ok(Size(DEFAULT_BLOCK as usize)));
    }
}
