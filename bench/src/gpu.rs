//! Bench of a GPU: kernels on data in device memory, as a fraction of the device's own copies, and runs from host
//! memory, as a fraction of the bus.
//!
//! Results of a kernel are checked before it is timed. All bytes moved count: k + m blocks.

mod bars;
mod charts;
mod model;
mod tune;

pub use bars::bar;
pub use charts::over_data_blocks;
pub use model::{Grid, Kind, ModelLine, ModelReport, measure_model};
pub use tune::{Variant, variants};

use gabion_engine::kernel::Kernel;
use gabion_engine::{Code, Error, Plan};
use gabion_gpu::measure::{Measured, MeasuredKernel, Transfers};
use gabion_gpu::source::method;
use gabion_gpu::source::stages::Stage;
use gabion_gpu::tuning::Tuning;
use gabion_gpu::{Form, GpuError, shape::Shape};
use serde::Serialize;
use std::time::{Duration, Instant};

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// All redundancy from all data.
    Encode,
    /// m data blocks, or all of them, spread over the data, from the rest.
    Repair,
    /// The first m data blocks, or all of them, from the rest.
    RepairOfNeighbours,
    /// m data blocks, or all of them, without any order, the same in every run.
    RepairOfScattered,
}

impl Work {
    /// Its name in a case.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Encode => "encode",
            Work::Repair => "repair",
            Work::RepairOfNeighbours => "repair of neighbours",
            Work::RepairOfScattered => "repair of scattered",
        }
    }

    /// The plan of this work.
    ///
    /// # Errors
    /// Error of the engine.
    pub fn plan(self, code: &Code) -> Result<Plan, Error> {
        let (k, count) = (code.k(), code.m().min(code.k()));
        match self {
            Work::Encode => code.encode_plan(),
            Work::Repair => repair_plan(code, (0..count).map(|place| place * k / count).collect()),
            Work::RepairOfNeighbours => repair_plan(code, (0..count).collect()),
            Work::RepairOfScattered => repair_plan(code, scattered(k, count)),
        }
    }
}

/// Some of k blocks in ascending order, as a multiplication scatters them.
fn scattered(k: usize, count: usize) -> Vec<usize> {
    const ODD: u32 = 0x9e37_79b1;
    let mut blocks: Vec<usize> = (0..k).collect();
    blocks.sort_by_key(|&block| (block as u32 + 1).wrapping_mul(ODD));
    blocks.truncate(count);
    blocks.sort_unstable();
    blocks
}

fn repair_plan(code: &Code, lost: Vec<usize>) -> Result<Plan, Error> {
    let surviving: Vec<usize> = (0..code.blocks()).filter(|column| !lost.contains(column)).collect();
    code.repair_plan(&lost, &surviving)
}

/// One line of the result.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Always `gpu`.
    pub bench: &'static str,
    /// Operation, shape, layout, place of the data.
    pub case: String,
    /// Bytes moved per second, 1e9.
    pub value: f64,
    /// Unit of value and reference.
    pub unit: &'static str,
    /// Name of the reference.
    pub against: &'static str,
    /// Value of the reference in the same run.
    pub reference: f64,
    /// Value over reference.
    pub ratio: f64,
    /// Bytes of data per second, 1e9.
    pub data: f64,
    /// Identity of the code.
    pub code: String,
    /// Bytes of a block.
    pub block: usize,
    /// Registers of a thread, and spilled bytes.
    pub registers: (usize, usize),
    /// Tuning of the kernel.
    pub tuning: String,
    /// Seconds to compile, or to load from the cache.
    pub compile: f64,
    /// Always true: results were compared with the CPU's before the timing.
    pub verified: bool,
    /// Target for the ratio, where there is one.
    pub bar: Option<f64>,
}

/// The device's own limits, measured once per run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes read and written per second by a copy on the device.
    pub copy: f64,
    /// The bus, each way alone.
    pub bus: Transfers,
}

/// First line of a record: the machine.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Always `machine`.
    pub bench: &'static str,
    /// Name of the device.
    pub device: String,
    /// Driver, compiler, compute capability.
    pub details: String,
    /// Bytes read and written by a copy on the device, 1e9 per second.
    pub copy: f64,
    /// The bus to the device, 1e9 bytes per second.
    pub to_device: f64,
    /// The bus from the device.
    pub from_device: f64,
    /// Version of this program.
    pub version: &'static str,
}

impl Machine {
    /// The machine of a run.
    pub fn of(device: &impl Measured, details: &str, limits: Limits) -> Machine {
        Machine {
            bench: "machine",
            device: device.title(),
            details: details.to_owned(),
            copy: rounded(limits.copy / 1e9),
            to_device: rounded(limits.bus.to_device / 1e9),
            from_device: rounded(limits.bus.from_device / 1e9),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Sizes and number of passes.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Bytes of all blocks on the device: several times its cache.
    pub device_bytes: usize,
    /// Bytes of data of runs from host memory.
    pub host_bytes: usize,
    /// Number of passes.
    pub passes: usize,
    /// True if results are compared with their targets.
    pub bars: bool,
}

impl Effort {
    /// For a device: an OpenCL device that is a CPU gets fewer bytes.
    pub fn of(device: &impl Measured) -> Effort {
        if device.is_cpu() {
            return Effort { device_bytes: 96 << 20, host_bytes: 64 << 20, passes: 3, bars: false };
        }
        let most = (device.memory_bytes() / 4) as usize;
        Effort { device_bytes: most.min(4 << 30), host_bytes: most.min(2 << 30), passes: 15, bars: true }
    }
}

/// Measures the limits.
///
/// # Errors
/// Error of the device.
pub fn limits(device: &impl Measured, effort: Effort) -> Result<Limits, GpuError> {
    let bytes = effort.device_bytes / 2;
    let copy = 2.0 * bytes as f64 / device.copy_rate(bytes, effort.passes)?.median;
    Ok(Limits { copy, bus: device.transfer_rates(bytes.min(256 << 20), effort.passes.min(8))? })
}

/// Choice of a kernel.
#[derive(Debug, Clone, Copy)]
pub enum KernelChoice {
    /// The fastest one, by the cost model.
    Fastest,
    /// With this tuning.
    Tuned(Tuning),
    /// The faster of the kernels that are not compiled per plan.
    ReadyAtOnce,
    /// In this form, tuned by the cost model.
    Form(Form),
    /// A stage of the generic kernel, with the matrix as data.
    Stage(Stage),
    /// Products of symbols.
    Method(method::Variant),
}

impl KernelChoice {
    /// Name of the choice in a case.
    fn case(self) -> String {
        match self {
            KernelChoice::Fastest | KernelChoice::Tuned(_) => "raw".to_owned(),
            KernelChoice::ReadyAtOnce => "raw generic".to_owned(),
            KernelChoice::Form(form) => format!("raw {} only", form.name()),
            KernelChoice::Stage(stage) => format!("raw {}", stage.name()),
            KernelChoice::Method(variant) => {
                format!("raw {}{}", variant.method.name(), variant.vector.words())
            }
        }
    }

    /// Tuning of a kernel of this choice.
    fn tuning(self, form: Form) -> String {
        match self {
            KernelChoice::Fastest | KernelChoice::ReadyAtOnce | KernelChoice::Form(_) => {
                form.name().to_owned()
            }
            KernelChoice::Tuned(tuning) => tune::shown(&tuning),
            KernelChoice::Stage(stage) => stage.name().to_owned(),
            KernelChoice::Method(variant) => {
                format!("{} vectors of {}", variant.method.name(), variant.vector.words())
            }
        }
    }
}

/// A compiled kernel and the seconds of its compilation.
pub struct Ready<K> {
    kernel: K,
    asked: KernelChoice,
    compile: Duration,
}

/// Compiles a kernel.
///
/// # Errors
/// Error of the device's compiler.
pub fn compile<D: Measured>(
    device: &D,
    plan: &Plan,
    asked: KernelChoice,
) -> Result<Ready<D::Kernel>, GpuError> {
    let began = Instant::now();
    let kernel = match asked {
        KernelChoice::Fastest => device.of_form(plan, Form::fastest(plan, device.multiplies_bits()))?,
        KernelChoice::ReadyAtOnce => {
            device.of_form(plan, Form::ready_at_once(&Shape::of(plan), device.multiplies_bits()))?
        }
        KernelChoice::Form(form) => device.of_form(plan, form)?,
        KernelChoice::Tuned(tuning) => device.specialised(plan, Some(tuning))?,
        KernelChoice::Stage(stage) => device.at_stage(plan, stage)?,
        KernelChoice::Method(variant) => device.by_method(plan, variant)?,
    };
    Ok(Ready { kernel, asked, compile: began.elapsed() })
}

/// Times kernels of one plan over the same blocks on the device.
///
/// # Errors
/// Error of the device; wrong results.
pub fn raw<K: MeasuredKernel>(
    work: Work,
    code: &Code,
    kernels: &[Ready<K>],
    limits: Limits,
    effort: Effort,
) -> Result<Vec<Line>, GpuError> {
    let Some(first) = kernels.first() else { return Ok(Vec::new()) };
    let count = code.k() + code.m();
    // A megabyte is a whole number of tiles of every kernel, and so is any number of groups of packets.
    let mut len = ((effort.device_bytes / count) >> 20).max(1) << 20;
    if let gabion_engine::Layout::Packets { .. } = code.layout() {
        len = len / code.granule() * code.granule();
    }
    let blocks = first.kernel.blocks_on_device(len, 77)?;
    kernels.iter().map(|ready| raw_one(work, code, ready, &blocks, limits, effort)).collect()
}

fn raw_one<K: MeasuredKernel>(
    work: Work,
    code: &Code,
    ready: &Ready<K>,
    blocks: &K::Blocks,
    limits: Limits,
    effort: Effort,
) -> Result<Line, GpuError> {
    let verified = ready.kernel.check_on(blocks)? > 0;
    let seconds = ready.kernel.time_on(blocks, effort.passes)?.median;
    let block = K::block_bytes(blocks);
    let plan = work.plan(code)?;
    let rate = |blocks: usize| (blocks * block) as f64 / seconds;
    let (data, moved) = (rate(code.k()), rate(plan.inputs().len() + plan.outputs().len()));
    let case = format!("{} {} {}", work.name(), shown(code), ready.asked.case());
    Ok(Line {
        bench: "gpu",
        bar: bar(&case, code).filter(|_| effort.bars),
        case,
        value: rounded(moved / 1e9),
        unit: "GB/s",
        against: "copy",
        reference: rounded(limits.copy / 1e9),
        ratio: rounded(moved / limits.copy),
        data: rounded(data / 1e9),
        code: code.to_string(),
        block,
        registers: ready.kernel.registers()?,
        tuning: ready.asked.tuning(ready.kernel.form()),
        compile: rounded(ready.compile.as_secs_f64()),
        verified,
    })
}

/// Times runs from host memory, which is pinned where the library can. `how` names the transfer unless it is the
/// default.
///
/// # Errors
/// What the device says; wrong results.
pub fn overall<D: Measured>(
    device: &D,
    work: Work,
    code: &Code,
    asked: KernelChoice,
    how: &str,
    effort: Effort,
) -> Result<Line, GpuError> {
    let plan = work.plan(code)?;
    let (sources, made) = (plan.inputs().len(), plan.outputs().len());
    let Ready { kernel, compile, .. } = compile(device, &plan, asked)?;
    let block = ((effort.host_bytes / code.k()) >> 20).max(1) << 20;
    let block = block / code.granule() * code.granule();
    // One allocation with blocks at equal distances, so that a kernel can work on them in place.
    let mut memory = device.host((sources + made) * block)?;
    let (inputs, outputs) = memory.split_at_mut(sources * block);
    gabion_engine::conformance::TestRng(11).fill(inputs);
    let inputs: Vec<&[u8]> = inputs.chunks(block).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.chunks_mut(block).collect();
    kernel.run(&inputs, &mut outputs)?;
    let verified = same_as_cpu(&plan, &inputs, &outputs)?;
    let mut best = f64::INFINITY;
    for _ in 0..effort.passes.min(5) {
        let began = Instant::now();
        kernel.run(&inputs, &mut outputs)?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    let (inward, outward) = (sources * block, made * block);
    drop(memory);
    let limit = device.both_ways(inward, outward, effort.passes.min(5))?.best;
    let moved = (inward + outward) as f64;
    let form = match asked {
        KernelChoice::Fastest | KernelChoice::Tuned(_) => String::new(),
        _ => format!(" {}", asked.tuning(kernel.form())),
    };
    let case = format!("{} {} from {} memory{form}{how}", work.name(), shown(code), device.host_kind());
    Ok(Line {
        bench: "gpu",
        bar: bar(&case, code).filter(|_| effort.bars),
        case,
        value: rounded(moved / best / 1e9),
        unit: "GB/s",
        against: "bus",
        reference: rounded(moved / limit / 1e9),
        ratio: rounded(limit / best),
        data: rounded(inward as f64 / best / 1e9),
        code: code.to_string(),
        block,
        registers: kernel.registers()?,
        tuning: asked.tuning(kernel.form()),
        compile: rounded(compile.as_secs_f64()),
        verified,
    })
}

fn same_as_cpu(plan: &Plan, inputs: &[&[u8]], outputs: &[&mut [u8]]) -> Result<bool, GpuError> {
    let engine = gabion_engine::Engine::new(0)?;
    let mut wanted: Vec<Vec<u8>> = outputs.iter().map(|block| vec![0; block.len()]).collect();
    let mut slices: Vec<&mut [u8]> = wanted.iter_mut().map(|block| &mut block[..]).collect();
    engine.compile(plan)?.run(inputs, &mut slices)?;
    for (output, (found, wanted)) in outputs.iter().zip(&wanted).enumerate() {
        if let Some(byte) = found.iter().zip(wanted).position(|(a, b)| a != b) {
            return Err(GpuError::Wrong { output, byte });
        }
    }
    Ok(true)
}

/// Name of a code in cases: shape, layout, and what differs from the default.
fn shown(code: &Code) -> String {
    let layout = match code.layout() {
        gabion_engine::Layout::Words => "words",
        gabion_engine::Layout::Packets { .. } => "packets",
    };
    let w = code.field().w();
    let width = if w == 8 { String::new() } else { format!(" w{w}") };
    format!("{}+{} {layout}{width}", code.k(), code.m())
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}
