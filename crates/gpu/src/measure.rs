//! Traits for measuring devices of both APIs: kernels on data in device memory, and the rates they are compared with.

use crate::choice::Form;
use crate::error::GpuError;
use crate::prepared::Prepared;
use crate::source::Counts;
use crate::source::method::Variant;
use crate::source::stages::Stage;
use crate::tuning::Tuning;
use gabion_engine::kernel::{Backend, Kernel, KernelSet};
use gabion_engine::{Layout, Mode, Plan};
use std::ops::DerefMut;

/// Seconds per pass over several passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The minimum.
    pub best: f64,
    /// The median.
    pub median: f64,
}

impl Rates {
    pub(crate) fn of(mut seconds: Vec<f64>) -> Rates {
        seconds.sort_by(f64::total_cmp);
        let first = seconds.first().copied().unwrap_or(f64::NAN);
        Rates { best: first, median: seconds.get(seconds.len() / 2).copied().unwrap_or(first) }
    }
}

/// Bytes per second between host memory and the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfers {
    /// To the device alone.
    pub to_device: f64,
    /// From the device alone.
    pub from_device: f64,
}

/// An opened device that can be measured.
pub trait Measured: Sync {
    /// Its kernels.
    type Kernel: MeasuredKernel;
    /// Host memory with the fastest copies.
    type Host: DerefMut<Target = [u8]>;

    /// Its name in output and records.
    fn title(&self) -> String;

    /// Bytes of its memory.
    fn memory_bytes(&self) -> u64;

    /// Kind of memory that [`host`](Self::host) returns.
    fn host_kind(&self) -> &'static str;

    /// True if the device is the host CPU.
    fn is_cpu(&self) -> bool;

    /// The plan's own kernel, with the given `tuning` or that of the cost model.
    ///
    /// # Errors
    /// Errors of the device's compiler.
    fn specialised(&self, plan: &Plan, tuning: Option<Tuning>) -> Result<Self::Kernel, GpuError>;

    /// A kernel of this form.
    ///
    /// # Errors
    /// A form that the plan or the device does not support; errors of the device's compiler.
    fn of_form(&self, plan: &Plan, form: Form) -> Result<Self::Kernel, GpuError>;

    /// An unoptimised kernel of the given stage, with its matrix as data.
    ///
    /// # Errors
    /// A plan without such a kernel; errors of the device's compiler.
    fn at_stage(&self, plan: &Plan, stage: Stage) -> Result<Self::Kernel, GpuError>;

    /// True if it has tensor cores for bit matrices.
    fn multiplies_bits(&self) -> bool;

    /// A kernel that multiplies symbols.
    ///
    /// # Errors
    /// A plan or an API that the method does not support; errors of the device's compiler.
    fn by_method(&self, plan: &Plan, variant: Variant) -> Result<Self::Kernel, GpuError>;

    /// Host memory, all zero.
    ///
    /// # Errors
    /// [`GpuError::Memory`].
    fn host(&self, bytes: usize) -> Result<Self::Host, GpuError>;

    /// Copies `bytes` bytes within device memory; the traffic is twice that, read and written.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or errors of the driver.
    fn copy_rate(&self, bytes: usize, passes: usize) -> Result<Rates, GpuError>;

    /// The speed of the bus in each direction alone.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or errors of the driver.
    fn transfer_rates(&self, bytes: usize, passes: usize) -> Result<Transfers, GpuError>;

    /// Seconds for copying `inward` bytes to the device and `outward` bytes back at the same time: the lower bound of
    /// any pipeline that moves these bytes.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or errors of the driver.
    fn both_ways(&self, inward: usize, outward: usize, passes: usize) -> Result<Rates, GpuError>;

    /// Kernels launched so far.
    fn launch_count(&self) -> u64;
}

/// A kernel that can be measured.
pub trait MeasuredKernel: Kernel + Sized {
    /// Random blocks on the device, with memory for results.
    type Blocks;

    /// Random blocks of about `len` bytes, a whole number of tiles, on the device.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or errors of the driver.
    fn blocks_on_device(&self, len: usize, seed: u64) -> Result<Self::Blocks, GpuError>;

    /// Bytes of a block.
    fn block_bytes(blocks: &Self::Blocks) -> usize;

    /// Times the kernel over blocks created by a kernel of the same plan, or of one with at least as many blocks.
    ///
    /// # Errors
    /// Errors of the driver.
    fn time_on(&self, blocks: &Self::Blocks, passes: usize) -> Result<Rates, GpuError>;

    /// Runs the kernel once and compares samples of the results with the CPU's: the first and last bytes, and some in
    /// between. Only for plans that replace their outputs. Returns the bytes compared.
    ///
    /// # Errors
    /// Errors of the driver, and [`GpuError::Wrong`] at the first difference.
    fn check_on(&self, blocks: &Self::Blocks) -> Result<usize, GpuError>;

    /// Registers per thread and spilled bytes, if known.
    ///
    /// # Errors
    /// Errors of the driver.
    fn registers(&self) -> Result<(usize, usize), GpuError>;

    /// Instructions of one thread that follow from the text.
    fn counts(&self) -> Counts;

    /// Bytes of every block that one thread covers.
    fn bytes_per_thread(&self) -> usize;

    /// Its form.
    fn form(&self) -> Form;
}

/// Compares samples of the outputs of a kernel that has just run; `read` returns bytes of a block from an offset on.
pub(crate) fn compare(
    prepared: &Prepared,
    len: usize,
    read: impl Fn(usize, usize, usize) -> Result<Vec<u8>, GpuError>,
) -> Result<usize, GpuError> {
    assert_eq!(prepared.shape.mode, Mode::Write, "old contents are not kept");
    let (inputs, outputs) = (prepared.shape.inputs, prepared.shape.outputs);
    let unit = match prepared.plan.layout() {
        Layout::Words => 4096,
        Layout::Packets { .. } => prepared.plan.granule(),
    };
    let units = len / unit;
    let cpu = KernelSet::chosen()?.compile(&prepared.plan)?;
    let mut compared = 0;
    for place in [0, units / 3, units / 2, units - 1] {
        let read = |block: usize| read(block, place * unit, unit);
        let sources: Vec<Vec<u8>> = (0..inputs).map(read).collect::<Result<_, _>>()?;
        let found: Vec<Vec<u8>> = (inputs..inputs + outputs).map(read).collect::<Result<_, _>>()?;
        let mut wanted = vec![vec![0; unit]; outputs];
        let sources: Vec<&[u8]> = sources.iter().map(|block| &block[..]).collect();
        cpu.run(&sources, &mut wanted.iter_mut().map(|block| &mut block[..]).collect::<Vec<_>>())?;
        for (output, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            if let Some(byte) = found.iter().zip(wanted).position(|(a, b)| a != b) {
                return Err(GpuError::Wrong { output, byte: place * unit + byte });
            }
            compared += unit;
        }
    }
    Ok(compared)
}

/// The length near `len` that is a multiple of tiles, groups and samples.
pub(crate) fn whole(prepared: &Prepared, len: usize) -> usize {
    let unit = match prepared.plan.layout() {
        Layout::Words => prepared.unit().next_multiple_of(4096),
        Layout::Packets { .. } => prepared.unit(),
    };
    (len / unit).max(1) * unit
}
