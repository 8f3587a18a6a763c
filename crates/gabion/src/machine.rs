//! Description of the machine for `gabion info`: CPU, caches, devices, and every row of the kernel table.

mod cpu;
mod devices;

pub use cpu::{Cache, Cpu};
pub use devices::{DeviceState, Devices};

use gabion_engine::Error;
use gabion_engine::kernel::{Backend, KernelSet, Tuning, kernel_sets, measured};
use serde::Serialize;

/// One row of the kernel table on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelState {
    /// Its name, as `GABION_KERNEL` takes it.
    pub name: String,
    /// CPU features that it needs.
    pub needs: String,
    /// True if this CPU has them.
    pub supported: bool,
    /// True for the row that this process uses.
    pub chosen: bool,
    /// Speed of encoding 10+4 in blocks of 4 KiB, 1e9 bytes of data per second; None where it cannot run.
    pub gb_per_s: Option<f64>,
}

/// Reason for the choice of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No other was considerably faster when measured.
    Measured,
    /// The environment variable names it.
    Forced,
}

/// Output of `gabion info`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Version of this program.
    pub program: &'static str,
    /// The processor.
    pub cpu: Cpu,
    /// Threads that the engine uses by default.
    pub threads: usize,
    /// Thresholds that the engine derives from the caches.
    pub thresholds: Thresholds,
    /// Reason for the choice.
    pub chosen_because: Reason,
    /// All rows of this build, scalar first.
    pub kernels: Vec<KernelState>,
    /// Graphics processors and other devices, or the reasons why there are none.
    pub devices: Vec<Devices>,
}

/// Sizes in bytes at which the engine changes its method; they follow from the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Thresholds {
    /// Inputs and outputs of a call from which lines of outputs are prefetched before they are written.
    pub near_bytes: usize,
    /// Inputs and outputs of a call from which outputs are written with non-temporal stores.
    pub stream_bytes: usize,
    /// Inputs that generic kernels process at a time.
    pub input_tile_bytes: usize,
}

impl Thresholds {
    fn of(tuning: Tuning) -> Thresholds {
        let Tuning { near_bytes, stream_bytes, input_tile_bytes } = tuning;
        Thresholds { near_bytes, stream_bytes, input_tile_bytes }
    }
}

impl Machine {
    /// Describes this machine; takes some milliseconds to measure the kernels.
    ///
    /// # Errors
    /// A forced kernel that does not exist or cannot run here.
    pub fn look() -> Result<Machine, Error> {
        let chosen = KernelSet::chosen()?;
        let kernels = kernel_sets().iter().map(|row| KernelState {
            name: row.name().to_owned(),
            needs: row.needs().to_owned(),
            supported: row.supported(),
            chosen: std::ptr::eq(row, chosen),
            gb_per_s: speed(row).map(|speed| (speed * 100.0).round() / 100.0),
        });
        // The choice follows from these measurements, which are made once per process, unless it is forced.
        let chosen_because = if KernelSet::forced() { Reason::Forced } else { Reason::Measured };
        Ok(Machine {
            program: env!("CARGO_PKG_VERSION"),
            cpu: Cpu::of_this_machine(),
            threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
            thresholds: Thresholds::of(*Tuning::of_machine()),
            chosen_because,
            kernels: kernels.collect(),
            devices: devices::all(),
        })
    }
}

/// The row that is chosen by measurement, even if another one is forced.
pub fn fastest() -> &'static KernelSet {
    KernelSet::fastest()
}

/// 1e9 bytes of data per second.
fn speed(row: &KernelSet) -> Option<f64> {
    measured().iter().find(|(other, _)| std::ptr::eq(*other, row)).map(|(_, speed)| speed / 1e9)
}
/// Peak resident memory of this process in bytes, if the system reports it.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}
