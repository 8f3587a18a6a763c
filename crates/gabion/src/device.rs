//! Which device computes: what the user wants, what there is, what was measured, and why.
//!
//! A forced device is opened at once, so that one that is not there is an error before anything else happens; nothing takes
//! its place. With `auto` nothing is opened before there is something to compute. Then the CPU and the devices are measured
//! with the very plan, block size and number of threads of the job, once per machine (`rates` keeps it), and
//! whoever would end first does the job. A CPU that is also an OpenCL device is not asked twice.

#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod measure;
#[cfg(feature = "gpu")]
mod rates;

use gabion_engine::kernel::{Backend, Kernel, KernelSet};
use gabion_engine::{Code, Plan};
#[cfg(feature = "gpu")]
use rates::RateFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// A back end that threads share.
pub type SharedBackend = Arc<dyn Backend + Send + Sync>;

/// What the user asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// The engine's own kernels.
    #[default]
    Cpu,
    /// A CUDA device by its number.
    Cuda(usize),
    /// An OpenCL device by its number.
    OpenCl(usize),
    /// Whatever would end first.
    Auto,
}

/// A device that nobody can mean.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no device '{0}': use cpu, cuda, cuda:N, opencl, opencl:N or auto")]
pub struct BadDevice(String);

impl FromStr for Wanted {
    type Err = BadDevice;

    fn from_str(text: &str) -> Result<Wanted, BadDevice> {
        let bad = || BadDevice(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        match (name, number) {
            ("cpu", None) => Ok(Wanted::Cpu),
            ("auto", None) => Ok(Wanted::Auto),
            ("cuda", number) => Ok(Wanted::Cuda(number.unwrap_or(0))),
            ("opencl", number) => Ok(Wanted::OpenCl(number.unwrap_or(0))),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wanted::Cpu => write!(f, "cpu"),
            Wanted::Cuda(number) => write!(f, "cuda:{number}"),
            Wanted::OpenCl(number) => write!(f, "opencl:{number}"),
            Wanted::Auto => write!(f, "auto"),
        }
    }
}

/// Why there is no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// It is not here, or this build does not know such devices.
    #[error("--device {wanted}: {reason}")]
    Unavailable {
        /// What was asked for.
        wanted: Wanted,
        /// What is missing.
        reason: String,
    },
    /// What the engine says.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
}

/// What there is to compute.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The code; its encoding is what is measured.
    pub code: &'a Code,
    /// Bytes of a block.
    pub block: usize,
    /// Bytes of data, if that is known.
    pub bytes: Option<u64>,
    /// Threads that compute at once.
    pub threads: usize,
}

/// Data below which nothing is measured or opened: the CPU is done before a device is awake.
pub const SMALL: u64 = 64 << 20;

/// What a stream is taken for.
#[cfg(feature = "gpu")]
const STREAM: u64 = 1 << 30;

/// How fast a device does a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// The back end.
    pub device: String,
    /// 1e9 bytes of data per second, all threads together.
    pub gb_per_s: f64,
    /// Seconds before the first result.
    pub startup: f64,
    /// Whether an earlier run measured it.
    #[serde(default)]
    pub from_cache: bool,
}

impl Rate {
    /// Seconds that so many bytes of data would take.
    pub fn seconds(&self, bytes: f64) -> f64 {
        self.startup + bytes / (self.gb_per_s * 1e9)
    }
}

/// Which device was chosen and why, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// What was asked for.
    pub asked: String,
    /// The back end that served.
    pub used: String,
    /// Why it and no other.
    pub why: String,
    /// What was measured, now or before; empty where nothing had to be.
    pub measured: Vec<Rate>,
    /// Runs that the device failed at and the CPU did, where that was allowed.
    pub taken_over: u64,
    /// What the device said the first time.
    pub taken_over_because: Option<String>,
}

impl Report {
    /// One line for people.
    pub fn line(&self) -> String {
        format!("device {}: {}", self.used, self.why)
    }

    /// What people must know though it went well.
    pub fn warning(&self) -> Option<String> {
        self.taken_over_because.as_ref().map(|reason| {
            let times =
                if self.taken_over == 1 { "once".to_owned() } else { format!("{} times", self.taken_over) };
            format!("the CPU took over from {} {times}: {reason}", self.used)
        })
    }
}

/// How to choose.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The device.
    pub wanted: Wanted,
    /// Whether the CPU does what a forced device fails at; with `auto` it always may.
    pub cpu_takeover: bool,
    /// Where measurements and compiled kernels are kept from run to run; nowhere if `None`.
    pub cache: Option<PathBuf>,
}

/// Chooses once there is something to compute, and remembers what it chose.
pub struct Chooser {
    options: Options,
    chosen: Mutex<Option<Chosen>>,
}

struct Chosen {
    backend: SharedBackend,
    report: Report,
    #[cfg(feature = "gpu")]
    device: Option<gpu::Device>,
}

impl Chooser {
    /// Opens a device that is forced.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] where it is not.
    pub fn new(options: Options) -> Result<Chooser, DeviceError> {
        let chosen = match options.wanted {
            Wanted::Auto => None,
            Wanted::Cpu => Some(Chosen::cpu(&options, "it was asked for", Vec::new())?),
            Wanted::Cuda(_) | Wanted::OpenCl(_) => Some(Chosen::forced(&options)?),
        };
        Ok(Chooser { options, chosen: Mutex::new(chosen) })
    }

    /// The back end for a job. The first job decides for all.
    ///
    /// # Errors
    /// What the engine says; a device that fails while it is measured is not chosen, and the report says why.
    pub fn backend(&self, job: &Job<'_>) -> Result<SharedBackend, DeviceError> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = &*chosen {
            return Ok(chosen.backend.clone());
        }
        let made = Chosen::automatic(&self.options, job)?;
        let backend = made.backend.clone();
        *chosen = Some(made);
        Ok(backend)
    }

    /// What was chosen; nothing before there was a job.
    pub fn report(&self) -> Option<Report> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.as_ref().map(Chosen::report)
    }
}

impl Chosen {
    fn cpu(options: &Options, why: &str, measured: Vec<Rate>) -> Result<Chosen, DeviceError> {
        let backend = cpu()?;
        let report = report(options, backend.name(), why, measured);
        Ok(Chosen {
            backend,
            report,
            #[cfg(feature = "gpu")]
            device: None,
        })
    }

    #[cfg(feature = "gpu")]
    fn forced(options: &Options) -> Result<Chosen, DeviceError> {
        let opened = gpu::Device::open(options, options.wanted, options.cpu_takeover)?;
        let report = report(options, opened.backend.name(), "it was asked for", Vec::new());
        Ok(Chosen { backend: opened.backend, report, device: Some(opened.device) })
    }

    #[cfg(not(feature = "gpu"))]
    fn forced(options: &Options) -> Result<Chosen, DeviceError> {
        let reason = "this program was built without GPUs".to_owned();
        Err(DeviceError::Unavailable { wanted: options.wanted, reason })
    }

    #[cfg(feature = "gpu")]
    fn automatic(options: &Options, job: &Job<'_>) -> Result<Chosen, DeviceError> {
        if job.bytes.is_some_and(|bytes| bytes < SMALL) {
            let why = format!("less than {} MiB, no device was looked at", SMALL >> 20);
            return Chosen::cpu(options, &why, Vec::new());
        }
        if job.code.m() == 0 {
            return Chosen::cpu(options, "there is no redundancy to compute", Vec::new());
        }
        let found = match gpu::found() {
            Ok(found) => found,
            Err(why) => return Chosen::cpu(options, &why, Vec::new()),
        };
        let plan = job.code.encode_plan()?;
        let rates = RateFile::new(options.cache.as_deref());
        let own = rates.of_cpu(&*cpu()?, &plan, job)?;
        let bytes = job.bytes.unwrap_or(STREAM) as f64;
        let (mut candidates, mut rates_found, mut refused) = (Vec::new(), Vec::new(), String::new());
        for candidate in found {
            match candidate.rate(options, &rates, &plan, job) {
                Ok(rate) => {
                    candidates.push(candidate.wanted);
                    rates_found.push(rate);
                }
                Err(error) => refused += &format!("; {error}"),
            }
        }
        let decision = decide(&own, &rates_found, bytes);
        let measured = [vec![own], rates_found].concat();
        let why = format!("{}{refused}", decision.why);
        match decision.device {
            None => Chosen::cpu(options, &why, measured),
            // Rates may be from better days.
            Some(index) => match gpu::Device::open(options, candidates[index], true) {
                Err(error) => Chosen::cpu(options, &format!("{error}; otherwise {why}"), measured),
                Ok(opened) => {
                    let report = report(options, opened.backend.name(), &why, measured);
                    Ok(Chosen { backend: opened.backend, report, device: Some(opened.device) })
                }
            },
        }
    }

    #[cfg(not(feature = "gpu"))]
    fn automatic(options: &Options, _: &Job<'_>) -> Result<Chosen, DeviceError> {
        Chosen::cpu(options, "this program was built without GPUs", Vec::new())
    }

    fn report(&self) -> Report {
        #[cfg(feature = "gpu")]
        if let Some(taken) = self.device.as_ref().and_then(gpu::Device::taken_over) {
            let (taken_over, because) = (taken.times, Some(taken.reason));
            return Report { taken_over, taken_over_because: because, ..self.report.clone() };
        }
        self.report.clone()
    }
}

/// Who does a job, and why.
#[cfg(feature = "gpu")]
struct Decision {
    /// Which of the devices; none is the CPU.
    device: Option<usize>,
    why: String,
}

/// Whoever would end first, start-up included; the CPU where nobody is faster.
#[cfg(feature = "gpu")]
fn decide(cpu: &Rate, devices: &[Rate], bytes: f64) -> Decision {
    let of = |index: &usize| devices[*index].seconds(bytes);
    let fastest = (0..devices.len()).min_by(|a, b| of(a).total_cmp(&of(b)));
    let Some(fastest) = fastest else {
        return Decision { device: None, why: "no device could be measured".to_owned() };
    };
    let rate = &devices[fastest];
    let pays = rate.seconds(bytes) < cpu.seconds(bytes);
    let (first, second) = if pays { (rate, cpu) } else { (cpu, rate) };
    let why = format!(
        "{:.2} s are expected, {:.1} GB/s of data; {} would take {:.2} s at {:.1} GB/s",
        first.seconds(bytes),
        first.gb_per_s,
        second.device,
        second.seconds(bytes),
        second.gb_per_s
    );
    Decision { device: pays.then_some(fastest), why }
}

fn report(options: &Options, used: &str, why: &str, measured: Vec<Rate>) -> Report {
    let (asked, used, why) = (options.wanted.to_string(), used.to_owned(), why.to_owned());
    Report { asked, used, why, measured, taken_over: 0, taken_over_because: None }
}

/// The engine's kernels as a back end to share.
struct Cpu(&'static KernelSet);

impl Backend for Cpu {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, gabion_engine::Error> {
        self.0.compile(plan)
    }
}

fn cpu() -> Result<SharedBackend, DeviceError> {
    Ok(Arc::new(Cpu(KernelSet::chosen()?)))
}

/// A plan with its kernel.
pub struct Coding {
    plan: Plan,
    kernel: Box<dyn Kernel>,
}

impl Coding {
    /// Compiles a plan.
    ///
    /// # Errors
    /// What the back end says.
    pub fn new(backend: &dyn Backend, plan: Plan) -> Result<Coding, gabion_engine::Error> {
        let kernel = backend.compile(&plan)?;
        Ok(Coding { plan, kernel })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Turns `inputs` into `outputs`, in the order of the plan's columns.
    ///
    /// # Errors
    /// What the kernel says; outputs are complete or untouched then.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), gabion_engine::Error> {
        self.kernel.run(inputs, outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named() {
        for (text, wanted) in [
            ("cpu", Wanted::Cpu),
            ("cuda", Wanted::Cuda(0)),
            ("cuda:3", Wanted::Cuda(3)),
            ("opencl:1", Wanted::OpenCl(1)),
            ("auto", Wanted::Auto),
        ] {
            assert_eq!(text.parse(), Ok(wanted));
        }
        for text in ["", "gpu", "cpu:1", "cuda:", "cuda:x", "auto:0", "opencl:-1"] {
            assert!(text.parse::<Wanted>().is_err(), "{text}");
        }
        assert_eq!(Wanted::OpenCl(1).to_string().parse(), Ok(Wanted::OpenCl(1)));
    }

    #[test]
    fn little_work_stays_here_and_says_so() {
        let chooser = Chooser::new(Options { wanted: Wanted::Auto, ..Options::default() }).unwrap();
        assert_eq!(chooser.report(), None);
        let code: Code = "10+4".parse().unwrap();
        let job = Job { code: &code, block: 1 << 18, bytes: Some(1 << 20), threads: 2 };
        let backend = chooser.backend(&job).unwrap();
        let report = chooser.report().unwrap();
        assert_eq!(
            (backend.name(), report.used.as_str()),
            (KernelSet::chosen().unwrap().name(), backend.name())
        );
        assert_eq!(report.asked, "auto");
        assert!(report.why.contains("64 MiB") || report.why.contains("without GPUs"), "{}", report.why);
        assert_eq!((report.warning(), report.measured.len()), (None, 0));
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        for wanted in [Wanted::Cuda(999), Wanted::OpenCl(999)] {
            let error = Chooser::new(Options { wanted, ..Options::default() }).err().unwrap();
            assert!(error.to_string().starts_with(&format!("--device {wanted}: ")), "{error}");
        }
    }

    /// Little data is done before a device is awake; much of it goes where the rate is higher.
    #[cfg(feature = "gpu")]
    #[test]
    fn who_would_end_first_does_the_job() {
        let rate = |device: &str, gb_per_s, startup| Rate {
            device: device.to_owned(),
            gb_per_s,
            startup,
            from_cache: false,
        };
        let cpu = rate("avx2", 10.0, 0.0);
        let devices = [rate("cuda0", 30.0, 0.5), rate("cuda1", 40.0, 0.6), rate("slow", 5.0, 0.0)];
        let decide = |devices: &[Rate], bytes: f64| decide(&cpu, devices, bytes);
        assert_eq!(decide(&devices, 1e9).device, None);
        let much = decide(&devices, 100e9);
        assert_eq!(much.device, Some(1));
        assert!(much.why.starts_with("3.10 s are expected, 40.0 GB/s"), "{}", much.why);
        assert!(much.why.contains("avx2 would take 10.00 s at 10.0 GB/s"), "{}", much.why);
        assert_eq!(decide(&devices[2..], 100e9).device, None);
        assert_eq!(decide(&[], 100e9).device, None);
    }
}
