//! `gabion-bench gpu`.

mod check;
mod pictures;
mod table;

use anyhow::Context;
use clap::ValueEnum;
use gabion::exit::Outcome;
use gabion_bench::gpu::{Effort, Grid, KernelChoice, Kind, Line, measure_model};
use gabion_engine::Code;
use gabion_gpu::Form;
use gabion_gpu::check::Part;
use gabion_gpu::cuda::{CudaDevice, CudaOptions, CudaTransfer};
use gabion_gpu::measure::Measured;
use gabion_gpu::opencl::{OpenClDevice, OpenClOptions, OpenClTransfer};
use gabion_gpu::source::method::{Method, Variant, Vector};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Raw cases run over random blocks that are on the device already, 4 GiB of them; results are compared with the \
CPU's first. GB/s are 1e9 bytes per second, k + m blocks counted, and the ratio is to a copy on the same device in the \
same run, of which bytes read and bytes written are counted. Overall cases begin and end in pinned host memory; their \
ratio is to the same bytes copied in and out at once, with nothing computed. An OpenCL device that is a CPU gets less to do.

Examples:
  gabion-bench gpu --quick                         a few shapes, within 50 seconds
  gabion-bench gpu --code 10+4 --code 10+4:packets=4096
  gabion-bench gpu --api opencl --device 1 --code 10+4 --method full --vector 4
  gabion-bench gpu --api opencl --code 30+33 --transfer svm
  gabion-bench gpu --check                         the conformance suite on the CUDA device
  gabion-bench gpu --check --api opencl --part 1/8 the first eighth of it on an OpenCL device
  gabion-bench gpu --model                         predicted beside measured times, and their mean difference
  gabion-bench gpu --plot gpu.png                  data rates over k for m = 2, 4, 8
  gabion-bench gpu --tune --code 45+8              all cuts of a kernel, the best first
  gabion-bench gpu --record gpu.jsonl --date 2026-01-31
                                                   appends one object for the machine, then one per case";

/// Arguments of `gabion-bench gpu`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A code, as K+M or FAMILY:K+M:wBITS[:packets=BYTES]; may be repeated [default: shapes from 4+2 to 64+16]
    #[arg(long = "code", value_name = "CODE")]
    codes: Vec<Code>,
    /// Library that drives the device
    #[arg(long, value_enum, default_value_t = Library::Cuda)]
    api: Library,
    /// Number of the device in `gabion info`
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Fewer shapes; ends within 50 seconds where kernels compile in a second
    #[arg(long)]
    quick: bool,
    /// Run the conformance suite on the device instead of measuring
    #[arg(long, conflicts_with_all = ["tune", "model", "plot"])]
    check: bool,
    /// Only part I of N of the suite
    #[arg(long, value_name = "I/N", default_value_t = Part::WHOLE, requires = "check")]
    part: Part,
    /// Only these kernels
    #[arg(long, value_enum)]
    kernels: Option<Kernels>,
    /// How kernels multiply: additions of rows of bits, or one of the OpenCL paper's methods (words, OpenCL)
    #[arg(long, value_enum, default_value_t = How::Xor)]
    method: How,
    /// Words of 32 bits that a work-item of a method processes at once
    #[arg(long, value_name = "1|4|16", default_value = "4", value_parser = ["1", "4", "16"])]
    vector: String,
    /// Transfer of blocks to the device: copies, shared virtual memory (OpenCL 2.0), mapped pinned memory (CUDA)
    #[arg(long, value_enum, default_value_t = Transfer::Copies)]
    transfer: Transfer,
    /// Predict times for k = 1..45, m = 1..4, w = 4..8 and compare them with measured ones: ten k of them
    #[arg(long, conflicts_with = "tune")]
    model: bool,
    /// With --model, all k
    #[arg(long, requires = "model")]
    full: bool,
    /// Draw data rates over k for m = 2, 4, 8 into this file, .svg or .png
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tune", "model"])]
    plot: Option<PathBuf>,
    /// Measure every tuning of the kernels instead of the model's choice
    #[arg(long)]
    tune: bool,
    /// Leave out the runs from host memory
    #[arg(long)]
    raw_only: bool,
    /// Keep compiled kernels in this directory
    #[arg(long, value_name = "DIR")]
    kernel_cache: Option<PathBuf>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Append the JSON lines to this file as well
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The date to record with the machine
    #[arg(long, value_name = "YYYY-MM-DD", requires = "record")]
    date: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Library {
    Cuda,
    Opencl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kernels {
    /// Compiled for the plan
    Specialised,
    /// The matrix as data
    Generic,
    /// The matrix as data of tensor cores (CUDA, compute capability 9.0)
    Products,
    /// Products of symbols (OpenCL), for --check
    Methods,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum How {
    /// Additions of rows of bits
    Xor,
    /// Shift and add
    Peasant,
    /// Tables of logarithms
    Log,
    /// A table of all products
    Full,
    /// Shift and add with no loop left
    Unrolled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transfer {
    Copies,
    Svm,
    Mapped,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.api {
            Library::Cuda => {
                let transfer = match self.transfer {
                    Transfer::Copies => CudaTransfer::Copies,
                    Transfer::Mapped => CudaTransfer::Mapped,
                    Transfer::Svm => anyhow::bail!("--transfer svm is OpenCL's: add --api opencl"),
                };
                let cache = self.kernel_cache.clone();
                let options = CudaOptions { cache, transfer, ..CudaOptions::default() };
                let device = CudaDevice::open(self.device, options).context("opening the device")?;
                let info = device.info();
                let details = format!(
                    "{} GiB, {} multiprocessors, compute {}.{}, driver {}, NVRTC {}.{}",
                    info.memory >> 30,
                    info.multiprocessors,
                    info.capability.0,
                    info.capability.1,
                    info.driver,
                    info.compiler.0,
                    info.compiler.1
                );
                errln!("{}, {details}", info.name);
                if self.check {
                    return self.check_cuda(&device);
                }
                let outcome = self.measure(&device, &details);
                let launches = Form::ALL.map(|form| format!("{} {}", device.launches(form), form.name()));
                let (compiled, from_disk) = device.compiled();
                errln!(
                    "launches: {}; kernels: {compiled} compiled, {from_disk} from the disk",
                    launches.join(", ")
                );
                outcome
            }
            Library::Opencl => {
                let transfer = match self.transfer {
                    Transfer::Copies => OpenClTransfer::Copies,
                    Transfer::Svm => OpenClTransfer::SharedMemory,
                    Transfer::Mapped => anyhow::bail!("--transfer mapped is CUDA's; OpenCL has svm"),
                };
                let cache = self.kernel_cache.clone();
                let options = OpenClOptions { cache, transfer, ..OpenClOptions::default() };
                let device = OpenClDevice::open(self.device, options).context("opening the device")?;
                let info = device.info();
                let details = format!(
                    "{} MiB, {} units, {}, driver {}",
                    info.memory >> 20,
                    info.units,
                    info.platform,
                    info.driver
                );
                errln!("{}, {details}", info.name);
                if self.check {
                    return self.check_opencl(&device);
                }
                let outcome = self.measure(&device, &details);
                let (compiled, from_disk) = device.compiled();
                let launches = device.launches();
                errln!("launches: {launches}; kernels: {compiled} compiled, {from_disk} from the disk");
                outcome
            }
        }
    }

    fn measure<D: Measured>(&self, device: &D, details: &str) -> anyhow::Result<Outcome> {
        let effort = Effort::of(device);
        if self.model {
            return self.predict(device, effort);
        }
        match &self.plot {
            Some(path) => self.draw(device, details, effort, path),
            None => self.table(device, details, effort),
        }
    }

    fn predict<D: Measured>(&self, device: &D, effort: Effort) -> anyhow::Result<Outcome> {
        let grid = if self.full { Grid::full() } else { Grid::sampled() };
        let kind = match self.kernels {
            Some(Kernels::Specialised) => Kind::Specialised,
            None | Some(Kernels::Generic) => Kind::Generic,
            Some(Kernels::Products | Kernels::Methods) => {
                anyhow::bail!("the model knows generic and specialised kernels")
            }
        };
        // Fewer bytes than elsewhere suffice to reach the bandwidth, and there are hundreds of cases.
        let effort =
            Effort { device_bytes: effort.device_bytes.min(1 << 30), passes: effort.passes.min(7), ..effort };
        errln!("{} cases, {kind:?} kernels", grid.codes().len());
        let mut written = Ok(());
        let report = measure_model(device, kind, &grid, effort, |line| {
            if !self.json {
                outln!(
                    "{:28} predicted {:10.1} µs  measured {:10.1} µs  {:+6.1} %  r {:.4}  {}",
                    line.case,
                    line.predicted,
                    line.measured,
                    100.0 * line.error,
                    line.r,
                    line.bound
                );
            }
            if written.is_ok() {
                written = self.keep(line);
            }
        })
        .context("measuring for the model")?;
        written?;
        self.keep(&report)?;
        if !self.json {
            outln!(
                "mean error {:.1} % of {} cases, worst {:.1} %, bar {:.0} %; launch {:.1} µs, {:.0} GB/s, rho {:.3}",
                100.0 * report.mean_error,
                report.cases,
                100.0 * report.worst_error,
                100.0 * report.bar,
                report.launch,
                report.bandwidth,
                report.rho
            );
        }
        Ok(Outcome::Fine)
    }

    /// The kernels to measure in each case; several only without options that choose one.
    fn asked(&self) -> Vec<KernelChoice> {
        if let Some(variant) = self.variant() {
            return vec![KernelChoice::Method(variant)];
        }
        match self.kernels {
            Some(Kernels::Generic) => vec![KernelChoice::Form(Form::Generic)],
            Some(Kernels::Specialised) => vec![KernelChoice::Form(Form::Specialised)],
            Some(Kernels::Products) => vec![KernelChoice::Form(Form::Products)],
            _ => vec![KernelChoice::Fastest, KernelChoice::ReadyAtOnce],
        }
    }

    fn variant(&self) -> Option<Variant> {
        let method = match self.method {
            How::Xor => return None,
            How::Peasant => Method::Peasant,
            How::Log => Method::Log,
            How::Full => Method::Full,
            How::Unrolled => Method::Unrolled,
        };
        let vector = match self.vector.as_str() {
            "1" => Vector::One,
            "16" => Vector::Sixteen,
            _ => Vector::Four,
        };
        Some(Variant { method, vector })
    }

    fn threads(device: &impl Measured) -> usize {
        // PoCL 3.1 sometimes crashed where two threads compiled.
        if device.is_cpu() { 1 } else { std::thread::available_parallelism().map_or(1, |count| count.get()) }
    }

    /// Prints an object with --json, and appends it to the record.
    fn keep(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string(line)?;
        if self.json {
            outln!("{text}");
        }
        if let Some(path) = &self.record {
            let shown = || path.display().to_string();
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            writeln!(file.with_context(shown)?, "{text}").with_context(shown)?;
        }
        Ok(())
    }

    fn print(&self, lines: &[Line]) -> anyhow::Result<()> {
        for line in lines {
            self.keep(line)?;
            if !self.json {
                let precision = if line.value < 10.0 { 2 } else { 1 };
                let verdict = match line.bar {
                    Some(bar) if line.ratio < bar => format!("  MISSED {bar:.2}"),
                    Some(bar) => format!("  bar {bar:.2}"),
                    None => String::new(),
                };
                outln!(
                    "{:36} {:7.precision$} GB/s {:5.3} of {:4}  data {:7.precision$}  regs {:3}+{:<4} compile {:5.2} s  {}{verdict}",
                    line.case,
                    line.value,
                    line.ratio,
                    line.against,
                    line.data,
                    line.registers.0,
                    line.registers.1,
                    line.compile,
                    line.tuning
                );
            }
        }
        Ok(())
    }
}
