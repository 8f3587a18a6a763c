//! The machine as the engine sees it: CPU, caches, and every row of the kernel table.

mod cpu;
mod devices;

pub use cpu::{Cache, Cpu};
pub use devices::{DeviceState, Devices};

use gabion_engine::Error;
use gabion_engine::kernel::{Backend, Row, Tuning, measured, rows};
use serde::Serialize;

/// One row of the kernel table on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KernelState {
    /// Its name, as `GABION_KERNEL` takes it.
    pub name: String,
    /// What it needs of the CPU.
    pub needs: String,
    /// Whether this CPU has that.
    pub supported: bool,
    /// Whether it serves this process.
    pub chosen: bool,
    /// Speed of encoding 10+4 in blocks of 4 KiB, 1e9 bytes of data per second; None where it cannot run.
    pub gb_per_s: Option<f64>,
}

/// Why a row serves this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// No other was faster by much when measured.
    Measured,
    /// The environment variable names it although another is faster.
    Forced,
}

/// What `gabion info` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Version of this program.
    pub version: &'static str,
    /// The processor.
    pub cpu: Cpu,
    /// Threads that the engine uses unless told otherwise.
    pub threads: usize,
    /// What the engine derives from the caches.
    pub thresholds: Thresholds,
    /// Why the chosen row was chosen.
    pub chosen_because: Reason,
    /// All rows of this build, scalar first.
    pub kernels: Vec<KernelState>,
    /// Graphics processors and other devices, and why there are none.
    pub devices: Vec<Devices>,
}

/// Sizes from which the engine works otherwise, in bytes; they follow from the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Thresholds {
    /// Inputs and outputs of a call from which lines of outputs are asked for before they are written.
    pub near_bytes: usize,
    /// Inputs and outputs of a call from which outputs are stored past the caches.
    pub stream_bytes: usize,
    /// Inputs that generic kernels work on at a time.
    pub input_tile_bytes: usize,
}

impl Thresholds {
    fn of(tuning: Tuning) -> Thresholds {
        let Tuning { near_bytes, stream_bytes, input_tile_bytes } = tuning;
        Thresholds { near_bytes, stream_bytes, input_tile_bytes }
    }
}

impl Machine {
    /// Looks at the machine this runs on; takes some milliseconds, for the race of the kernels.
    ///
    /// # Errors
    /// A forced kernel that does not exist or cannot run here.
    pub fn look() -> Result<Machine, Error> {
        let chosen = Row::chosen()?;
        let kernels = rows().iter().map(|row| KernelState {
            name: row.name().to_owned(),
            needs: row.needs().to_owned(),
            supported: row.supported(),
            chosen: std::ptr::eq(row, chosen),
            gb_per_s: speed(row).map(|speed| (speed * 100.0).round() / 100.0),
        });
        // The choice without force follows from these very measurements, made once per process: any other row can only
        // have been forced.
        let chosen_because = if Row::forced() { Reason::Forced } else { Reason::Measured };
        Ok(Machine {
            version: env!("CARGO_PKG_VERSION"),
            cpu: Cpu::of_this_machine(),
            threads: std::thread::available_parallelism().map_or(1, |count| count.get()),
            thresholds: Thresholds::of(*Tuning::of_machine()),
            chosen_because,
            kernels: kernels.collect(),
            devices: devices::all(),
        })
    }
}

/// The row that serves by measurement, whether or not another one is forced.
pub fn fastest() -> &'static Row {
    Row::fastest()
}

/// 1e9 bytes of data per second.
fn speed(row: &Row) -> Option<f64> {
    measured().iter().find(|(other, _)| std::ptr::eq(*other, row)).map(|(_, speed)| speed / 1e9)
}
/// Most bytes of memory that this process had so far; nothing where the system does not say.
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}
