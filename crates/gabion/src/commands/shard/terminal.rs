//! Options, progress bar and signals of the shard commands.

use crate::commands::device::{self, DeviceArgs};
use gabion::compute::Compute;
use gabion_platform::display_path::DisplayPath;
use gabion_shard::set::Note;
use gabion_shard::{Progress, Run};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

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
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(super) json: bool,
    /// Print errors and warnings only
    #[arg(long, short)]
    pub(super) quiet: bool,
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
        device::print(device, |line| self.say(line));
    }

    /// Runs `work` with a progress bar on a terminal, and with signals caught.
    pub(super) fn run<T>(&self, device: &Compute, work: impl FnOnce(&Run<'_>) -> T) -> anyhow::Result<T> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let visible = !self.json && !self.quiet && stderr().is_terminal();
        let bar: Mutex<Option<ProgressBar>> = Mutex::new(None);
        let progress = |step: Progress| {
            let Ok(mut bar) = bar.lock() else { return };
            match step {
                Progress::Pass(name, total) if visible => {
                    if let Some(done) = bar.replace(new_bar(name, total)) {
                        done.finish_and_clear();
                    }
                }
                Progress::Bytes(bytes) => bar.iter().for_each(|bar| bar.inc(bytes)),
                Progress::Pass(..) => {}
            }
        };
        let backends = device.backends();
        let result =
            work(&Run { threads: self.threads, stop: &stop, progress: &progress, backends: &backends });
        if let Ok(Some(bar)) = bar.lock().map(|mut bar| bar.take()) {
            bar.finish_and_clear();
        }
        Ok(result)
    }

    /// Prints a line of text, unless --quiet or --json is given.
    pub(super) fn say(&self, line: &str) {
        if !self.json && !self.quiet {
            outln!("{line}");
        }
    }
}

fn new_bar(name: &'static str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{prefix} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta}",
        ),
        None => (ProgressBar::no_length(), "{prefix} {spinner} {bytes} {binary_bytes_per_sec}"),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(name)
}

/// Warnings go to standard error, one line per file.
pub(super) fn warn(notes: &[Note]) {
    for Note { path, text } in notes {
        errln!("gabion: warning: {}: {text}", DisplayPath::path(path));
    }
}
