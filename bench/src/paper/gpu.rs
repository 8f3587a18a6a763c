//! Experiments on devices: papers 000, 003 and 004. Each runs on every CUDA and OpenCL device; missing libraries are
//! named.

use super::race::{Contender, memory_for, race};
use super::{Comparison, Experiment, Form, PaperError, Place, Point, Run};
use crate::gpu::{
    Effort, Grid, KernelChoice, Kind, Line, Work, compile, limits, measure_model, overall, raw,
};
use gabion::machine::fastest;
use gabion_engine::Code;
use gabion_engine::kernel::Threads;
use gabion_gpu::cuda::{self, CudaDevice, CudaOptions};
use gabion_gpu::measure::Measured;
use gabion_gpu::opencl::{self, OpenClDevice, OpenClOptions};
use gabion_gpu::source::method::{Method, Variant, Vector};
use gabion_gpu::source::stages::Stage;

const RATE: &str = "data in GB/s";
const BLOCKS: &str = "data blocks k";
const G_CRS: &str = "G-CRS: GTX 980 and Titan X; PErasure: GTX 780 and Quadro K5000";

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "000-raw",
        source: "G-CRS, figure 12, and PErasure, figures 3 and 4",
        title: "Encoding and repair of blocks that are on the device",
        their_machine: G_CRS,
        form: Form::Numbers { x: BLOCKS, y: RATE },
        comparisons: &[
            Comparison {
                what: "encode 10+4 (G-CRS, Titan X, 480 GB/s of memory)",
                unit: "GB/s",
                theirs: 230.0,
                ours: |points| best(points, "encode", "m = 4", Some(10.0)),
            },
            Comparison {
                what: "encode with m = 8, best k (PErasure)",
                unit: "GB/s",
                theirs: 15.0,
                ours: |points| best(points, "encode", "m = 8", None),
            },
        ],
        run: |run| on_every_device(run, &RawRates),
    },
    Experiment {
        name: "000-overall",
        source: "G-CRS, figure 15, and PErasure, figures 5 and 6",
        title: "Encoding and repair from host memory and back",
        their_machine: G_CRS,
        form: Form::Numbers { x: BLOCKS, y: RATE },
        comparisons: &[Comparison {
            what: "best of all (G-CRS, PCIe 3)",
            unit: "GB/s",
            theirs: 11.0,
            ours: |points| best(points, "", "", None),
        }],
        run: |run| on_every_device(run, &OverallRates),
    },
    Experiment {
        name: "000-steps",
        source: "G-CRS, figure 13",
        title: "What each step of making a kernel gains, 10 data blocks in packets",
        their_machine: G_CRS,
        form: Form::Bars { y: RATE },
        comparisons: &[],
        run: |run| on_every_device(run, &Steps),
    },
    Experiment {
        name: "000-model",
        source: "G-CRS, figure 9",
        title: "How far predicted times of the generic kernel are off, either way",
        their_machine: G_CRS,
        form: Form::Numbers { x: BLOCKS, y: "error in %" },
        comparisons: &[
            Comparison { what: "mean error (G-CRS, GTX 980)", unit: "%", theirs: 2.79, ours: mean_error },
            Comparison { what: "mean error (G-CRS, Titan X)", unit: "%", theirs: 3.37, ours: mean_error },
        ],
        run: |run| on_every_device(run, &Model),
    },
    Experiment {
        name: "003-methods",
        source: "OpenCL erasure coding, figure 4",
        title: "Ways to multiply, 30 sources and 33 redundancy blocks on the device",
        their_machine: "NVIDIA Tesla K40m",
        form: Form::Bars { y: RATE },
        comparisons: &[Comparison {
            what: "full table, vectors of 4 words (theirs: with transfers, one stream)",
            unit: "GB/s",
            theirs: 2.15,
            ours: |points| bar(points, "4 words", "full"),
        }],
        run: |run| on_every_device(run, &Methods),
    },
    Experiment {
        name: "003-sources",
        source: "OpenCL erasure coding, figure 9",
        title: "srcs blocks and srcs + 3 redundancy blocks, from host memory and back",
        their_machine: "56 Xeon threads, Tesla K40m, AMD APU, Stratix V FPGA",
        form: Form::Numbers { x: "srcs", y: RATE },
        comparisons: &[
            Comparison {
                what: "30 sources, all CPU threads (theirs: 56)",
                unit: "GB/s",
                theirs: 2.83,
                ours: |points| best(points, "", "CPU", Some(30.0)),
            },
            Comparison {
                what: "30 sources, best device (theirs: K40m, 8 streams)",
                unit: "GB/s",
                theirs: 3.9,
                ours: |points| {
                    best(points, "", "CUDA", Some(30.0)).or_else(|| best(points, "", "OpenCL", Some(30.0)))
                },
            },
        ],
        run: sources,
    },
];

/// The highest value with this end of the panel's name and this beginning of the series' name, at one position or
/// anywhere.
fn best(points: &[Point], panel: &str, series: &str, x: Option<f64>) -> Option<f64> {
    let wanted = |point: &&Point| {
        let here = x.is_none_or(|x| point.x == Place::Number(x));
        here && point.panel.ends_with(panel) && point.series.starts_with(series)
    };
    points.iter().filter(wanted).map(|point| point.value).max_by(f64::total_cmp)
}

fn bar(points: &[Point], series: &str, group: &str) -> Option<f64> {
    let wanted = |point: &&Point| point.series == series && point.x == Place::Name(group.to_owned());
    points.iter().filter(wanted).map(|point| point.value).max_by(f64::total_cmp)
}

fn mean_error(points: &[Point]) -> Option<f64> {
    let sum: f64 = points.iter().map(|point| point.value).sum();
    (!points.is_empty()).then(|| sum / points.len() as f64)
}

/// An experiment that is the same on every device.
trait OnDevice {
    /// Measures; `name` is the device's.
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError>;
}

fn on_every_device(run: &mut Run<'_>, work: &impl OnDevice) -> Result<(), PaperError> {
    match cuda::devices() {
        Ok(found) => {
            for info in found {
                let name = format!("CUDA, {}", info.name);
                if run.wants(&name)? {
                    let device = CudaDevice::open(info.index, CudaOptions::default())?;
                    work.run(run, &name, &device)?;
                }
            }
        }
        Err(error) => run.leave_out(format!("CUDA: {error}"))?,
    }
    match opencl::devices() {
        Ok(found) => {
            for info in found {
                // The name of the CPU is long, and stands in the record anyway.
                let name = format!("OpenCL, {}", if info.kind == "cpu" { "CPU" } else { &info.name });
                if run.wants(&name)? {
                    let device = OpenClDevice::open(info.index, OpenClOptions::default())?;
                    work.run(run, &name, &device)?;
                }
            }
        }
        Err(error) => run.leave_out(format!("OpenCL: {error}"))?,
    }
    Ok(())
}

impl Run<'_> {
    /// True if the device is selected; others are left out by name.
    fn wants(&mut self, device: &str) -> Result<bool, PaperError> {
        let wanted = device.to_lowercase().contains(self.devices);
        if !wanted {
            self.leave_out(format!("{device}: only '{}' is asked for", self.devices))?;
        }
        Ok(wanted)
    }
}

/// An OpenCL device that is a CPU takes minutes to compile the unrolled code of a plan with many blocks.
fn form<D: Measured>(device: &D) -> KernelChoice {
    if device.is_cpu() { KernelChoice::ReadyAtOnce } else { KernelChoice::Fastest }
}

/// Fewer bytes and passes with `quick`.
fn effort<D: Measured>(run: &Run<'_>, device: &D) -> Effort {
    let usual = Effort::of(device);
    // Half a gigabyte takes a bus ten milliseconds; generating and checking more takes longer than measuring it.
    let effort = Effort { bars: false, host_bytes: usual.host_bytes.min(512 << 20), ..usual };
    if !run.quick {
        return effort;
    }
    Effort {
        device_bytes: effort.device_bytes / 4,
        host_bytes: effort.host_bytes / 4,
        passes: effort.passes.min(3),
        ..effort
    }
}

fn packets(k: usize, m: usize) -> Result<Code, PaperError> {
    Ok(format!("{k}+{m}:packets=4096").parse()?)
}

struct RawRates;

impl OnDevice for RawRates {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        let effort = effort(run, device);
        let limits = limits(device, effort)?;
        // Every k needs a compilation; with OpenCL fewer points show the shape of the curve.
        let all: &[usize] = &[4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40, 45];
        let wanted = if name.starts_with("CUDA") { all } else { &[4, 10, 20, 32, 45] };
        for work in [Work::Encode, Work::Repair] {
            for m in [2, 4, 8] {
                for k in run.some(wanted.iter().copied()) {
                    let code = packets(k, m)?;
                    let kernel = compile(device, &work.plan(&code)?, form(device))?;
                    for line in raw(work, &code, &[kernel], limits, effort)? {
                        point(run, &format!("{name}, {}", work.name()), &format!("m = {m}"), k, &line)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn point(run: &mut Run<'_>, panel: &str, series: &str, k: usize, line: &Line) -> Result<(), PaperError> {
    run.point(panel, series, Place::Number(k as f64), line.data)
}

struct OverallRates;

impl OnDevice for OverallRates {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        let effort = effort(run, device);
        for work in [Work::Encode, Work::Repair] {
            for m in [2, 4, 8] {
                for k in run.some([4, 8, 10, 16, 24, 32, 45]) {
                    let line = overall(device, work, &packets(k, m)?, form(device), "", effort)?;
                    point(run, &format!("{name}, {}", work.name()), &format!("m = {m}"), k, &line)?;
                }
            }
        }
        Ok(())
    }
}

struct Steps;

impl OnDevice for Steps {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        let effort = effort(run, device);
        let limits = limits(device, effort)?;
        // The stages of the paper, with the matrix as data; then our further stages.
        let stages = Stage::ALL.map(|stage| (stage.name(), KernelChoice::Stage(stage)));
        let ours = [
            ("sums of subsets", KernelChoice::Form(gabion_gpu::Form::Generic)),
            ("matrix in the code", KernelChoice::Form(gabion_gpu::Form::Specialised)),
        ];
        for m in run.some([1, 2, 3, 4]) {
            for w in run.some([4, 5, 6, 7, 8]) {
                let code: Code = format!("cauchy-good:10+{m}:w{w}:packets=4096").parse()?;
                let plan = code.encode_plan()?;
                for (step, asked) in stages.iter().chain(&ours) {
                    let kernel = compile(device, &plan, *asked)?;
                    for line in raw(Work::Encode, &code, &[kernel], limits, effort)? {
                        let place = Place::Name(format!("w = {w}"));
                        run.point(&format!("{name}, m = {m}"), step, place, line.data)?;
                    }
                }
            }
        }
        Ok(())
    }
}

struct Model;

impl OnDevice for Model {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        let mut grid = Grid::sampled();
        if run.quick || device.is_cpu() {
            grid = Grid { k: vec![2, 8, 26], m: vec![1, 4], w: vec![4, 8] };
        }
        let all = effort(run, device);
        let effort = Effort { device_bytes: all.device_bytes.min(1 << 30), passes: all.passes.min(7), ..all };
        let mut lines = Vec::new();
        measure_model(device, Kind::Generic, &grid, effort, |line| lines.push(line.clone()))?;
        for ((k, m, w), line) in grid.codes().into_iter().zip(lines) {
            run.point(
                &format!("{name}, m = {m}"),
                &format!("w = {w}"),
                Place::Number(k as f64),
                100.0 * line.error.abs(),
            )?;
        }
        Ok(())
    }
}

struct Methods;

impl OnDevice for Methods {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        if name.starts_with("CUDA") {
            return run.leave_out(format!("{name}: the three methods are kernels of OpenCL"));
        }
        let effort = effort(run, device);
        let limits = limits(device, effort)?;
        let code: Code = "30+33".parse()?;
        let plan = code.encode_plan()?;
        for method in Method::ALL {
            if method == Method::Unrolled && device.is_cpu() {
                run.leave_out(format!("{name}: 990 products without a loop take a CPU minutes to compile"))?;
                continue;
            }
            for vector in Vector::ALL {
                let kernel = compile(device, &plan, KernelChoice::Method(Variant { method, vector }))?;
                for line in raw(Work::Encode, &code, &[kernel], limits, effort)? {
                    run.point(
                        name,
                        &format!("{} words", vector.words()),
                        Place::Name(method.name().to_owned()),
                        line.data,
                    )?;
                }
            }
        }
        let kernel = compile(device, &plan, form(device))?;
        for line in raw(Work::Encode, &code, &[kernel], limits, effort)? {
            run.point(name, "Gabion's own", Place::Name("additions of bits".to_owned()), line.data)?;
        }
        Ok(())
    }
}

struct Sources;

impl Sources {
    fn numbers(run: &Run<'_>) -> Vec<usize> {
        run.some([10, 15, 20, 25, 30])
    }
}

impl OnDevice for Sources {
    fn run<D: Measured>(&self, run: &mut Run<'_>, name: &str, device: &D) -> Result<(), PaperError> {
        let effort = effort(run, device);
        for srcs in Sources::numbers(run) {
            let code: Code = format!("{srcs}+{}", srcs + 3).parse()?;
            let line = overall(device, Work::Encode, &code, form(device), "", effort)?;
            point(run, "", name, srcs, &line)?;
        }
        Ok(())
    }
}

fn sources(run: &mut Run<'_>) -> Result<(), PaperError> {
    let all = Threads::new(0)?;
    let block = if run.quick { 1 << 20 } else { 16 << 20 };
    for srcs in Sources::numbers(run) {
        let plan = format!("{srcs}+{}", srcs + 3).parse::<Code>()?.encode_plan()?;
        let mut memory = memory_for([(&plan, block)].into_iter())?;
        let name = format!("CPU, {} threads", all.count());
        let contender = Contender::new(&name, fastest(), &plan, &all)?;
        for (series, rate) in race(&mut memory, &plan, block, vec![contender], run.time())? {
            run.point("", &series, Place::Number(srcs as f64), rate)?;
        }
    }
    on_every_device(run, &Sources)
}
