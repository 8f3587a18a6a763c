//! Options for the device that computes, shared by all commands that code.

use crate::output::print_json;
use gabion::compute::{Compute, DeviceChoice, Report};
use gabion::report::{Event, WithDevice};
use gabion_device::{Notice, Options};
use std::path::PathBuf;

/// Appended to the help of commands that code.
pub(super) const HELP: &str = "\
Results are the same whatever --device computes them. Drivers of other devices are loaded only if one is asked for. A device that is \
named and missing is an error. auto codes the first 64 MiB and small blocks on the CPU, then measures CPU and GPUs with the code, block \
size and number of threads at hand, keeps the result, and prints what it chose and why.";

/// The device that computes.
#[derive(clap::Args)]
pub(super) struct DeviceArgs {
    /// What computes: cpu, cuda[:N], opencl[:N] (numbers of `gabion info`), or auto for whatever measures fastest
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceChoice,
    /// Let the CPU do what the device fails at, and say so; auto always does
    #[arg(long)]
    cpu_takeover: bool,
    /// Where speeds that auto measured, and compiled kernels, are kept [default: ~/.cache/gabion]
    #[arg(long, value_name = "DIR", env = "GABION_DEVICE_CACHE")]
    device_cache: Option<PathBuf>,
    #[command(flatten)]
    homes: Homes,
}

/// Directories of the user, for the default of `--device-cache`.
#[derive(clap::Args)]
pub(super) struct Homes {
    #[arg(long = "cache-home", env = "XDG_CACHE_HOME", hide = true)]
    cache_home: Option<PathBuf>,
    #[arg(long = "home-of-cache", env = "HOME", hide = true)]
    home_of_cache: Option<PathBuf>,
}

impl Homes {
    /// The usual directory for what can be measured or compiled again.
    pub(super) fn cache(&self) -> Option<PathBuf> {
        let own = self.cache_home.clone().or(self.home_of_cache.as_ref().map(|home| home.join(".cache")));
        own.map(|cache| cache.join("gabion"))
    }
}

impl DeviceArgs {
    /// Opens a device that is named, so that a missing one is an error before anything else.
    pub(super) fn open(&self) -> anyhow::Result<Compute> {
        self.open_with(None)
    }

    /// As [`open`](DeviceArgs::open); `notice` is called with the choice of `auto`.
    pub(super) fn open_with(&self, notice: Option<Notice>) -> anyhow::Result<Compute> {
        let cache = self.device_cache.clone().or_else(|| self.homes.cache());
        let options =
            Options { choice: self.device, cpu_takeover: self.cpu_takeover, cache, ..Options::default() };
        Ok(Compute::open(options, notice)?)
    }

    /// For commands that run until they are stopped: the choice is printed when it is made.
    pub(super) fn open_for_long(&self, json: bool, quiet: bool) -> anyhow::Result<Compute> {
        let notice = move |report: &Report| match json {
            true => print_json(&Event::Device { device: Box::new(report.clone()) }),
            false if !quiet => errln!("gabion: {}", report.line()),
            false => {}
        };
        self.open_with(Some(Box::new(notice)))
    }

    /// True without options: a daemon can be asked to do the work instead.
    pub(super) fn is_usual(&self) -> bool {
        self.device == DeviceChoice::Cpu
    }
}

/// A report with the choice.
pub(super) fn add_to<R>(report: R, compute: &Compute) -> WithDevice<R> {
    WithDevice { report, device: compute.report() }
}

/// Prints a warning if the CPU took over from the device.
pub(super) fn print_warning(compute: &Compute) {
    if let Some(warning) = compute.report().and_then(|report| report.warning()) {
        errln!("gabion: warning: {warning}");
    }
}

/// Prints a warning if the CPU took over from the device, and the choice unless it is the CPU as always.
pub(super) fn print(compute: &Compute, say: impl Fn(&str)) {
    print_warning(compute);
    let Some(report) = compute.report() else { return };
    if compute.choice() != DeviceChoice::Cpu {
        say(&report.line());
    }
}
