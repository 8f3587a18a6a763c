//! Options of the shard commands, and their runs.

use crate::commands::device::{self, DeviceArgs};
use crate::output::{Amount, OutputArgs, stopped_by_signal};
use gabion::compute::Compute;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::set::Note;
use gabion_shard::{Progress, Run};
use std::path::PathBuf;

/// The shards of a command.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The directory with the shards
    pub(super) dir: PathBuf,
    /// The set, by the first digits of its identity
    #[arg(long, value_name = "ID")]
    pub(super) set: Option<String>,
}

/// Threads, output and device of a command.
#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// Threads to use, 0 for all there are
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) threads: usize,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

impl RunArgs {
    /// Opens a device that is named, so that a missing one is an error before anything else.
    pub(super) fn device(&self) -> anyhow::Result<Compute> {
        self.device.open()
    }

    /// Prints what computed, unless it is the CPU as always, and what went wrong with it.
    pub(super) fn say_device(&self, device: &Compute) {
        device::print(device, |line| self.output.print_line(line));
    }

    /// Runs `work` with a progress bar on a terminal, and with signals caught.
    pub(super) fn run<T>(&self, device: &Compute, work: impl FnOnce(&Run<'_>) -> T) -> anyhow::Result<T> {
        let (stop, steps) = (stopped_by_signal()?, self.output.steps());
        let progress = |step: Progress| match step {
            Progress::Pass(name, total) => steps.begin(name, Amount::Bytes(total)),
            Progress::Bytes(bytes) => steps.advance(0, bytes),
        };
        let backends = device.backends();
        Ok(work(&Run { threads: self.threads, stop: &stop, progress: &progress, backends: &backends }))
    }
}

/// Warnings go to standard error, one line per file.
pub(super) fn warn(notes: &[Note]) {
    for Note { path, text } in notes {
        errln!("gabion: warning: {}: {text}", DisplayPath::path(path));
    }
}
