//! `gabion shard join`.

use super::terminal::{RunArgs, Which, warn};
use crate::commands::device;
use crate::output::{bytes, print_json};
use gabion::exit::Outcome;
use gabion::report::document;
use gabion::report::shard::JoinReport;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::join::{Target, join};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion shard join shards -o photos.tar
  gabion shard join shards -o - | tar t
  gabion shard join mixed --set 3fa9 -o photos.tar

Every block is checked; bad ones are routed around and named. The file appears when it is complete and \
its content fits the identity of the set. With -o - the bytes are on their way before that last check: \
look at the exit code.";

/// Arguments of `gabion shard join`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The file to make, - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

impl Args {
    /// True if the file goes to standard output.
    pub(super) fn only_reads(&self) -> bool {
        self.output.as_os_str().as_bytes() == b"-"
    }

    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let to_stdout = self.only_reads();
        let Args { which: Which { dir, set }, output, force, run_args } = self;
        let target = if to_stdout { Target::Stdout } else { Target::File { path: output.clone(), force } };
        let device = run_args.device()?;
        let report = run_args.run(&device, |run| join(&dir, set.as_deref(), &target, run))??;
        if run_args.output.json {
            let report = device::add_to(JoinReport::new(&report), &device);
            // Standard output may be the file itself.
            match to_stdout {
                true => errln!("{}", document(&report)),
                false => print_json(&report),
            }
            return Ok(Outcome::Fine);
        }
        warn(&report.notes);
        if !to_stdout {
            run_args.output.print_line(format!(
                "{}: {}, all checked",
                DisplayPath::path(&output),
                bytes(report.content.size)
            ));
            run_args.say_device(&device);
        }
        Ok(Outcome::Fine)
    }
}
