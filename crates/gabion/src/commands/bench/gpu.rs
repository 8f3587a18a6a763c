//! `gabion bench gpu`.

use anyhow::Context;
use gabion::bench::gpu::{Asked, Line, Machine, Ready, Work, compile, limits, overall, raw, variants};
use gabion::exit::Outcome;
use gabion_engine::conformance::PatternLimits;
use gabion_engine::kernel::Backend;
use gabion_engine::{Code, Plan};
use gabion_gpu::check::{Effort, conformance};
use gabion_gpu::cuda::{CudaBackend, CudaDevice, CudaOptions};
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice, OpenClOptions};
use gabion_gpu::shape::Shape;
use gabion_gpu::{Choice, GpuError};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const EXAMPLES: &str = "\
Raw cases run over random blocks that are on the device already, 4 GiB of them; results are compared with the \
CPU's first. GB/s are 1e9 bytes per second, k + m blocks counted, and the ratio is to a copy on the same device in the \
same run, of which bytes read and bytes written are counted. Overall cases begin and end in pinned host memory; their \
ratio is to the same bytes copied in and out at once, with nothing computed.

Examples:
  gabion bench gpu --quick                         a few shapes, within 50 seconds
  gabion bench gpu --code 10+4 --code 10+4:packets=4096
  gabion bench gpu --check                         the conformance suite on the CUDA device
  gabion bench gpu --check-opencl --device 1       the same on an OpenCL device
  gabion bench gpu --tune --code 45+8              all cuts of a kernel, the best first
  gabion bench gpu --json > gpu.jsonl              one object for the machine, then one per case";

/// Shapes of the table; each is measured in both layouts.
const SHAPES: [&str; 14] = [
    "4+2", "10+4", "12+4", "16+4", "30+3", "45+2", "64+4", "10+8", "20+8", "45+8", "64+8", "16+16", "64+16",
    "30+33",
];
const QUICK: [&str; 4] = ["4+2", "10+4", "45+8", "16+16"];
const PACKET: &str = ":packets=4096";

/// Arguments of `gabion bench gpu`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A code, as K+M or FAMILY:K+M:wBITS[:packets=BYTES]; may be repeated [default: shapes from 4+2 to 64+16]
    #[arg(long = "code", value_name = "CODE")]
    codes: Vec<Code>,
    /// Number of the device in `gabion info`
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Fewer shapes; ends within 50 seconds where kernels compile in a second
    #[arg(long)]
    quick: bool,
    /// Run the conformance suite on the device instead of measuring
    #[arg(long)]
    check: bool,
    /// Run the conformance suite on OpenCL device N instead
    #[arg(long, conflicts_with_all = ["check", "tune"])]
    check_opencl: bool,
    /// Measure every cut of the kernels instead of the model's choice
    #[arg(long, conflicts_with = "check")]
    tune: bool,
    /// Leave the runs from host memory out
    #[arg(long)]
    raw_only: bool,
    /// Keep compiled kernels in this directory
    #[arg(long, value_name = "DIR")]
    kernel_cache: Option<PathBuf>,
    /// Print one JSON object per line instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        if self.check_opencl {
            return self.opencl_conformance();
        }
        let options = CudaOptions { cache: self.kernel_cache.clone(), ..CudaOptions::default() };
        let device = CudaDevice::open(self.device, options).context("opening the device")?;
        let info = device.info();
        eprintln!(
            "{}, {} GiB, {} multiprocessors, compute {}.{}, driver {}, NVRTC {}.{}",
            info.name,
            info.memory >> 30,
            info.multiprocessors,
            info.capability.0,
            info.capability.1,
            info.driver,
            info.compiler.0,
            info.compiler.1
        );
        if self.check {
            return self.conformance(&device);
        }
        let cases = self.cases(&device)?;
        // Measured when everything is compiled, so that the device is as busy, and as warm, as in the cases.
        let limits = limits(&device)?;
        eprintln!(
            "copy on the device {:.0} GB/s read and written; bus to the device {:.1}, from it {:.1} GB/s",
            limits.copy / 1e9,
            limits.bus.to_device / 1e9,
            limits.bus.from_device / 1e9
        );
        if self.json {
            println!("{}", serde_json::to_string(&Machine::of(&device, limits))?);
        }
        for case in &cases {
            let mut lines = raw(case.work, &case.code, &case.kernels, limits)
                .with_context(|| format!("{} {}", case.work.name(), case.code))?;
            if self.tune {
                lines.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
            }
            self.print(&lines)?;
        }
        drop(cases);
        if !self.raw_only && !self.tune {
            for shape in ["10+4", "10+4:packets=4096", "30+33", "64+4"] {
                let code: Code = shape.parse()?;
                self.print(&[overall(&device, &code, 2 << 30).with_context(|| format!("overall {code}"))?])?;
            }
        }
        let (specialised, generic) = device.launches();
        let (compiled, from_disk) = device.compiled();
        eprintln!(
            "launches: {specialised} specialised, {generic} generic; kernels: {compiled} compiled, {from_disk} from the disk"
        );
        Ok(Outcome::Fine)
    }

    fn codes(&self) -> anyhow::Result<Vec<Code>> {
        if !self.codes.is_empty() {
            return Ok(self.codes.clone());
        }
        let shapes: &[&str] = if self.quick { &QUICK } else { &SHAPES };
        let both = shapes.iter().flat_map(|shape| [(*shape).to_owned(), format!("{shape}{PACKET}")]);
        Ok(both.map(|text| text.parse()).collect::<Result<_, _>>()?)
    }

    /// All cases with their kernels, compiled by as many threads as there are.
    fn cases(&self, device: &CudaDevice) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        let mut wanted: Vec<(usize, Plan, Asked)> = Vec::new();
        for code in self.codes()? {
            for work in [Work::Encode, Work::Repair] {
                let plan = work.plan(&code)?;
                let asked: Vec<Asked> = match work {
                    Work::Repair if self.tune => continue,
                    Work::Encode if self.tune => {
                        variants(&Shape::of(&plan)).into_iter().map(Asked::Tuned).collect()
                    }
                    Work::Encode => vec![Asked::Specialised, Asked::Generic],
                    Work::Repair => vec![Asked::Specialised],
                };
                wanted.extend(asked.into_iter().map(|asked| (cases.len(), plan.clone(), asked)));
                cases.push(Case { work, code: code.clone(), kernels: Vec::new() });
            }
        }
        let next = AtomicUsize::new(0);
        let ready: Vec<Mutex<Option<Result<Ready, GpuError>>>> =
            wanted.iter().map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let (Some((_, plan, asked)), Some(place)) = (wanted.get(index), ready.get(index))
                        else {
                            return;
                        };
                        let compiled = compile(device, plan, *asked);
                        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(compiled);
                    }
                });
            }
        });
        for ((case, ..), ready) in wanted.iter().zip(ready) {
            if let Some(ready) = ready.into_inner().unwrap_or_else(PoisonError::into_inner) {
                let kernel = ready.with_context(|| format!("compiling for {}", cases[*case].code))?;
                cases[*case].kernels.push(kernel);
            }
        }
        Ok(cases)
    }

    fn print(&self, lines: &[Line]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        for line in lines {
            if self.json {
                writeln!(out, "{}", serde_json::to_string(line)?)?;
            } else {
                writeln!(
                    out,
                    "{:36} {:7.1} GB/s {:5.3} of {:4}  data {:7.1}  regs {:3}+{:<4} compile {:5.2} s  {}",
                    line.case,
                    line.value,
                    line.ratio,
                    line.against,
                    line.data,
                    line.registers.0,
                    line.registers.1,
                    line.compile,
                    line.tuning
                )?;
            }
        }
        Ok(())
    }

    fn conformance(&self, device: &CudaDevice) -> anyhow::Result<Outcome> {
        let mut failed = 0;
        for choice in [Choice::Generic, Choice::Specialised] {
            let backend = CudaBackend::new(device.clone(), choice);
            let launches = || {
                let (specialised, generic) = device.launches();
                if choice == Choice::Generic { generic } else { specialised }
            };
            failed += checked(&backend, &launches, &Effort::full(threads()));
        }
        let (specialised, generic) = device.launches();
        println!("launches in all: {specialised} specialised, {generic} generic");
        Ok(if failed == 0 { Outcome::Fine } else { Outcome::Failed })
    }

    /// Both forms on an OpenCL device. A CPU's platform compiles with one thread at a time.
    fn opencl_conformance(&self) -> anyhow::Result<Outcome> {
        let options = OpenClOptions { cache: self.kernel_cache.clone(), ..OpenClOptions::default() };
        let device = OpenClDevice::open(self.device, options).context("opening the device")?;
        let info = device.info();
        eprintln!("{} ({}), {} units, driver {}", info.name, info.platform, info.units, info.driver);
        let threads = if info.kind == "cpu" { 1 } else { threads() };
        let effort = Effort {
            rounds: 1,
            losses: PatternLimits { exhaustive: 0, samples: 2 },
            ..Effort::full(threads)
        };
        let mut failed = 0;
        for choice in [Choice::Generic, Choice::Specialised] {
            let backend = OpenClBackend::new(device.clone(), choice);
            failed += checked(&backend, &|| device.launches(), &effort);
        }
        println!("launches in all: {}", device.launches());
        Ok(if failed == 0 { Outcome::Fine } else { Outcome::Failed })
    }
}

/// One case of the table with its kernels, ready to run.
struct Case {
    work: Work,
    code: Code,
    kernels: Vec<Ready>,
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Runs the suite and prints every check; returns how many failed.
fn checked(backend: &dyn Backend, launches: &(dyn Fn() -> u64 + Sync), effort: &Effort) -> usize {
    let name = backend.name();
    let before = launches();
    let failures = conformance(backend, launches, effort, &|check, outcome| match outcome {
        Ok(()) => println!("ok    {name}: {check}"),
        Err(why) => println!("FAIL  {name}: {check}: {}", why.chars().take(600).collect::<String>()),
    });
    println!("{name}: {failures} checks failed, {} launches of this form", launches() - before);
    failures
}
