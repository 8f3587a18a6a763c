//! What devices of both libraries are asked when they are measured: kernels on data that is already there, and the rates
//! they are compared with.

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

/// Seconds of one pass, out of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The shortest.
    pub best: f64,
    /// The middle one.
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
    /// To the device, nothing coming back.
    pub to_device: f64,
    /// From the device alone.
    pub from_device: f64,
}

/// An opened device that can be measured.
pub trait Measured: Sync {
    /// Its kernels.
    type Kernel: MeasuredKernel;
    /// Host memory from which it copies as fast as it can.
    type Host: DerefMut<Target = [u8]>;

    /// What people and records call it.
    fn title(&self) -> String;

    /// Bytes of its memory.
    fn memory_bytes(&self) -> u64;

    /// What [`host`](Self::host) gives, in a word.
    fn host_kind(&self) -> &'static str;

    /// Whether it is a processor that runs this program too.
    fn is_cpu(&self) -> bool;

    /// The plan's own kernel, cut as `tuning` says or as the cost model does.
    ///
    /// # Errors
    /// What the device's compiler says.
    fn specialised(&self, plan: &Plan, tuning: Option<Tuning>) -> Result<Self::Kernel, GpuError>;

    /// A kernel of this form.
    ///
    /// # Errors
    /// A form that the plan or the device does not have; what the device's compiler says.
    fn of_form(&self, plan: &Plan, form: Form) -> Result<Self::Kernel, GpuError>;

    /// A kernel with its matrix as data that is not yet fast.
    ///
    /// # Errors
    /// A plan that has none; what the device's compiler says.
    fn at_stage(&self, plan: &Plan, stage: Stage) -> Result<Self::Kernel, GpuError>;

    /// Whether it has tensor cores for bits.
    fn multiplies_bits(&self) -> bool;

    /// A kernel that multiplies symbols.
    ///
    /// # Errors
    /// A plan, or a library, that the method has no kernel for; what the device's compiler says.
    fn by_method(&self, plan: &Plan, variant: Variant) -> Result<Self::Kernel, GpuError>;

    /// Host memory, all zero.
    ///
    /// # Errors
    /// [`GpuError::Memory`].
    fn host(&self, bytes: usize) -> Result<Self::Host, GpuError>;

    /// Copies `bytes` bytes from one place of the device to another; counts as twice as many, read and written.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    fn copy_rate(&self, bytes: usize, passes: usize) -> Result<Rates, GpuError>;

    /// The speed of the bus, each way alone.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    fn transfer_rates(&self, bytes: usize, passes: usize) -> Result<Transfers, GpuError>;

    /// Seconds to bring `inward` bytes to the device while `outward` bytes come back: what no pipeline that moves these
    /// bytes can undercut.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    fn both_ways(&self, inward: usize, outward: usize, passes: usize) -> Result<Rates, GpuError>;

    /// Kernels launched so far.
    fn launch_count(&self) -> u64;
}

/// A kernel that can be measured.
pub trait MeasuredKernel: Kernel + Sized {
    /// Random blocks on the device, and room for results.
    type Blocks;

    /// Random blocks of about `len` bytes, a whole number of tiles, on the device.
    ///
    /// # Errors
    /// [`GpuError::Memory`], or what the driver says.
    fn blocks_on_device(&self, len: usize, seed: u64) -> Result<Self::Blocks, GpuError>;

    /// Bytes of a block.
    fn block_bytes(blocks: &Self::Blocks) -> usize;

    /// Times the kernel over blocks that a kernel of the same plan, or one with at least as many blocks, made.
    ///
    /// # Errors
    /// What the driver says.
    fn time_on(&self, blocks: &Self::Blocks, passes: usize) -> Result<Rates, GpuError>;

    /// Runs the kernel once and compares samples of the results with the CPU's: the first and the last bytes, and some
    /// between. Only for plans that replace their outputs. Returns the bytes compared.
    ///
    /// # Errors
    /// What the driver says, and [`GpuError::Wrong`] at the first difference.
    fn check_on(&self, blocks: &Self::Blocks) -> Result<usize, GpuError>;

    /// Registers of a thread, and bytes that did not fit into them, where that is known.
    ///
    /// # Errors
    /// What the driver says.
    fn registers(&self) -> Result<(usize, usize), GpuError>;

    /// Instructions of one thread, as far as the text decides.
    fn counts(&self) -> Counts;

    /// Bytes of every block that one thread covers.
    fn bytes_per_thread(&self) -> usize;

    /// How it uses the plan's matrix.
    fn form(&self) -> Form;
}

/// Compares samples of the blocks of a kernel that has just run; `read` gives bytes of a block from a place on.
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

/// Bytes of blocks of about `len` bytes that hold whole tiles, groups and samples.
pub(crate) fn whole(prepared: &Prepared, len: usize) -> usize {
    let unit = match prepared.plan.layout() {
        Layout::Words => prepared.unit().next_multiple_of(4096),
        Layout::Packets { .. } => prepared.unit(),
    };
    (len / unit).max(1) * unit
}
