//! Device choice: the CPU's own kernels, a CUDA or OpenCL device, or whichever is expected to finish first.
//!
//! A [`Chooser`] is a [`Backends`] value: libraries that code (`gabion-shard`, `gabion-vault`) take it from their
//! caller.
//!
//! - A device that the user names is opened at once, so that a missing one is an error before any work begins.
//!   Nothing replaces it.
//! - `auto` opens nothing before there is something to compute. Then CPU and devices are measured with the plan,
//!   block size and number of threads of the job, once per machine (`rates` keeps the result), and the one that is
//!   expected to finish first is used. A CPU that is also an OpenCL device is not measured twice.
//!
//! [`Chooser::report`] says what was chosen and why.

//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "gpu")]
mod gpu;
#[cfg(feature = "gpu")]
mod measure;
#[cfg(feature = "gpu")]
mod rates;

use gabion_engine::Error;
#[cfg(feature = "gpu")]
use gabion_engine::backends::Extent;
use gabion_engine::backends::{Backends, Job, SharedBackend};
use gabion_engine::kernel::{Backend, KernelSet};
#[cfg(feature = "gpu")]
use rates::RateFile;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
#[cfg(feature = "gpu")]
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The value of `--device`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DeviceChoice {
    /// The engine's kernels for the CPU.
    #[default]
    Cpu,
    /// A CUDA device by its number.
    Cuda(usize),
    /// An OpenCL device by its number.
    OpenCl(usize),
    /// The one that is expected to finish first.
    Auto,
}

/// A value of `--device` that names no kind of device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no device '{0}': use cpu, cuda, cuda:N, opencl, opencl:N or auto")]
pub struct BadDevice(String);

impl FromStr for DeviceChoice {
    type Err = BadDevice;

    fn from_str(text: &str) -> Result<DeviceChoice, BadDevice> {
        let bad = || BadDevice(text.to_owned());
        let (name, number) = match text.split_once(':') {
            Some((name, number)) => (name, Some(number.parse().map_err(|_| bad())?)),
            None => (text, None),
        };
        match (name, number) {
            ("cpu", None) => Ok(DeviceChoice::Cpu),
            ("auto", None) => Ok(DeviceChoice::Auto),
            ("cuda", number) => Ok(DeviceChoice::Cuda(number.unwrap_or(0))),
            ("opencl", number) => Ok(DeviceChoice::OpenCl(number.unwrap_or(0))),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Cpu => write!(f, "cpu"),
            DeviceChoice::Cuda(number) => write!(f, "cuda:{number}"),
            DeviceChoice::OpenCl(number) => write!(f, "opencl:{number}"),
            DeviceChoice::Auto => write!(f, "auto"),
        }
    }
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// This machine has no such device, or this program was built without devices of its kind.
    #[error("--device {choice}: {reason}")]
    Unavailable {
        /// The value of `--device`.
        choice: DeviceChoice,
        /// What is missing.
        reason: String,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Data below which `auto` measures and opens nothing: the CPU finishes before a device has started.
pub const SMALL: u64 = 64 << 20;

/// Blocks below which `auto` leaves single stripes to the CPU: the transfer of a stripe costs more than the CPU takes
/// for it.
pub const SMALL_BLOCK: usize = 64 << 10;

/// Bytes of data assumed for a stream.
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

/// Which device was chosen and why, for the user and in JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The value of `--device`.
    pub asked: String,
    /// The back end that was used.
    pub used: String,
    /// The reason for this choice.
    pub why: String,
    /// Rates that were measured, now or by an earlier run; empty if the choice needed none.
    pub measured: Vec<Rate>,
    /// Runs that failed on the device and were repeated on the CPU, where that was allowed.
    pub taken_over: u64,
    /// The first error of the device.
    pub taken_over_because: Option<String>,
}

impl Report {
    /// The choice as one line of text.
    pub fn line(&self) -> String {
        format!("device {}: {}", self.used, self.why)
    }

    /// A warning if the CPU repeated work of the device.
    pub fn warning(&self) -> Option<String> {
        self.taken_over_because.as_ref().map(|reason| {
            let times =
                if self.taken_over == 1 { "once".to_owned() } else { format!("{} times", self.taken_over) };
            format!("the CPU took over from {} {times}: {reason}", self.used)
        })
    }
}

/// Options of a choice.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The device.
    pub choice: DeviceChoice,
    /// Repeat on the CPU what a named device fails at; with `auto` that is always allowed.
    pub cpu_takeover: bool,
    /// Directory for measured rates and compiled kernels; not kept if `None`.
    pub cache: Option<PathBuf>,
    /// Model of the CPU: its measured rates are kept under this name.
    pub cpu_model: Option<String>,
}

/// Called with the report of a choice.
pub type Notice = Box<dyn Fn(&Report) + Send + Sync>;

/// Chooses a back end with the first job that is large enough, and keeps that choice.
pub struct Chooser {
    options: Options,
    notice: Option<Notice>,
    chosen: OnceLock<Chosen>,
    /// Held while one thread measures.
    choosing: Mutex<()>,
    /// Bytes of stripes that the CPU coded before a choice was made.
    #[cfg(feature = "gpu")]
    undecided: AtomicU64,
}

struct Chosen {
    /// None for the kernels of the CPU.
    backend: Option<SharedBackend>,
    report: Report,
    #[cfg(feature = "gpu")]
    device: Option<gpu::Device>,
}

impl Chooser {
    /// Opens a device that is named.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] if it cannot be used.
    pub fn new(options: Options) -> Result<Chooser, DeviceError> {
        let chosen = match options.choice {
            DeviceChoice::Auto => None,
            DeviceChoice::Cpu => Some(Chosen::cpu(&options, "it was asked for", Vec::new())?),
            DeviceChoice::Cuda(_) | DeviceChoice::OpenCl(_) => Some(Chosen::named(&options)?),
        };
        Ok(Chooser {
            options,
            notice: None,
            chosen: chosen.map_or_else(OnceLock::new, OnceLock::from),
            choosing: Mutex::default(),
            #[cfg(feature = "gpu")]
            undecided: AtomicU64::new(0),
        })
    }

    /// Calls `notice` with the choice of `auto`, when it is made.
    pub fn with_notice(self, notice: Option<Notice>) -> Chooser {
        Chooser { notice, ..self }
    }

    /// The choice; none before there was a job.
    pub fn report(&self) -> Option<Report> {
        self.chosen.get().map_or_else(|| self.undecided_report(), |chosen| Some(chosen.report()))
    }

    /// The report if the CPU did everything without a choice.
    #[cfg(feature = "gpu")]
    fn undecided_report(&self) -> Option<Report> {
        let why = match self.undecided.load(Ordering::Relaxed) {
            0 => return None,
            1..SMALL => small(),
            _ => format!("blocks below {} KiB, no device was looked at", SMALL_BLOCK >> 10),
        };
        Chosen::cpu(&self.options, &why, Vec::new()).ok().map(|chosen| chosen.report())
    }

    #[cfg(not(feature = "gpu"))]
    fn undecided_report(&self) -> Option<Report> {
        None
    }

    /// True for stripes that the CPU codes without a choice: small ones, and the first [`SMALL`] bytes.
    #[cfg(feature = "gpu")]
    fn leaves_to_cpu(&self, job: &Job<'_>) -> bool {
        let Extent::Stripe(bytes) = job.extent else { return false };
        if self.options.choice != DeviceChoice::Auto {
            return false;
        }
        if self.chosen.get().is_none() {
            let before = self.undecided.fetch_add(bytes, Ordering::Relaxed);
            return job.block < SMALL_BLOCK || before.saturating_add(bytes) < SMALL;
        }
        job.block < SMALL_BLOCK
    }

    #[cfg(not(feature = "gpu"))]
    fn leaves_to_cpu(&self, _: &Job<'_>) -> bool {
        false
    }
}

impl Backends for Chooser {
    /// The first job decides for all that follow. A device that fails while it is measured is not chosen, and the
    /// report says why.
    fn choose(&self, job: &Job<'_>) -> Result<Option<SharedBackend>, Error> {
        if self.leaves_to_cpu(job) {
            return Ok(None);
        }
        if let Some(chosen) = self.chosen.get() {
            return Ok(chosen.backend.clone());
        }
        let _alone = self.choosing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chosen) = self.chosen.get() {
            return Ok(chosen.backend.clone());
        }
        let made = Chosen::automatic(&self.options, job).map_err(|error| match error {
            DeviceError::Engine(error) => error,
            other => Error::Device { reason: other.to_string() },
        })?;
        let chosen = self.chosen.get_or_init(|| made);
        if let Some(notice) = &self.notice {
            notice(&chosen.report);
        }
        Ok(chosen.backend.clone())
    }
}

#[cfg(feature = "gpu")]
fn small() -> String {
    format!("less than {} MiB, no device was looked at", SMALL >> 20)
}

impl Chosen {
    fn cpu(options: &Options, why: &str, measured: Vec<Rate>) -> Result<Chosen, DeviceError> {
        let report = report(options, KernelSet::chosen()?.name(), why, measured);
        Ok(Chosen {
            backend: None,
            report,
            #[cfg(feature = "gpu")]
            device: None,
        })
    }

    #[cfg(feature = "gpu")]
    fn named(options: &Options) -> Result<Chosen, DeviceError> {
        let opened = gpu::Device::open(options, options.choice, options.cpu_takeover)?;
        let report = report(options, opened.backend.name(), "it was asked for", Vec::new());
        Ok(Chosen { backend: Some(opened.backend), report, device: Some(opened.device) })
    }

    #[cfg(not(feature = "gpu"))]
    fn named(options: &Options) -> Result<Chosen, DeviceError> {
        let reason = "this program was built without GPUs".to_owned();
        Err(DeviceError::Unavailable { choice: options.choice, reason })
    }

    #[cfg(feature = "gpu")]
    fn automatic(options: &Options, job: &Job<'_>) -> Result<Chosen, DeviceError> {
        let bytes = match job.extent {
            Extent::Total(bytes) if bytes < SMALL => return Chosen::cpu(options, &small(), Vec::new()),
            Extent::Total(bytes) => bytes as f64,
            Extent::Unknown | Extent::Stripe(_) => STREAM as f64,
        };
        if job.code.m() == 0 {
            return Chosen::cpu(options, "there is no redundancy to compute", Vec::new());
        }
        let found = match gpu::found() {
            Ok(found) => found,
            Err(why) => return Chosen::cpu(options, &why, Vec::new()),
        };
        let plan = job.code.encode_plan()?;
        let rates = RateFile::new(options.cache.as_deref());
        let own = rates.of_cpu(options.cpu_model.as_deref(), KernelSet::chosen()?, &plan, job)?;
        let (mut candidates, mut rates_found, mut refused) = (Vec::new(), Vec::new(), String::new());
        for candidate in found {
            match candidate.rate(options, &rates, &plan, job) {
                Ok(rate) => {
                    candidates.push(candidate.choice);
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
            // A kept rate may be of a device that no longer works.
            Some(index) => match gpu::Device::open(options, candidates[index], true) {
                Err(error) => Chosen::cpu(options, &format!("{error}; otherwise {why}"), measured),
                Ok(opened) => {
                    let report = report(options, opened.backend.name(), &why, measured);
                    Ok(Chosen { backend: Some(opened.backend), report, device: Some(opened.device) })
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

/// The result of a comparison of rates.
#[cfg(feature = "gpu")]
struct Decision {
    /// Index of the device; none for the CPU.
    device: Option<usize>,
    why: String,
}

/// The device with the least expected time, start-up included; the CPU if none is faster.
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
    let (asked, used, why) = (options.choice.to_string(), used.to_owned(), why.to_owned());
    Report { asked, used, why, measured, taken_over: 0, taken_over_because: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;
    use gabion_engine::backends::Extent;

    #[test]
    fn devices_are_named() {
        for (text, choice) in [
            ("cpu", DeviceChoice::Cpu),
            ("cuda", DeviceChoice::Cuda(0)),
            ("cuda:3", DeviceChoice::Cuda(3)),
            ("opencl:1", DeviceChoice::OpenCl(1)),
            ("auto", DeviceChoice::Auto),
        ] {
            assert_eq!(text.parse(), Ok(choice));
        }
        for text in ["", "gpu", "cpu:1", "cuda:", "cuda:x", "auto:0", "opencl:-1"] {
            assert!(text.parse::<DeviceChoice>().is_err(), "{text}");
        }
        assert_eq!(DeviceChoice::OpenCl(1).to_string().parse(), Ok(DeviceChoice::OpenCl(1)));
    }

    #[test]
    fn little_work_stays_on_the_cpu_and_the_report_says_so() {
        let chooser = Chooser::new(Options { choice: DeviceChoice::Auto, ..Options::default() }).unwrap();
        assert_eq!(chooser.report(), None);
        let code: Code = "10+4".parse().unwrap();
        let job = Job { code: &code, block: 1 << 18, extent: Extent::Total(1 << 20), threads: 2 };
        assert!(chooser.choose(&job).unwrap().is_none());
        let report = chooser.report().unwrap();
        assert_eq!(report.used, KernelSet::chosen().unwrap().name());
        assert_eq!(report.asked, "auto");
        assert!(report.why.contains("64 MiB") || report.why.contains("without GPUs"), "{}", report.why);
        assert_eq!((report.warning(), report.measured.len()), (None, 0));
    }

    /// Stripes count until there is enough work for a measurement; small blocks are never given to a device.
    #[cfg(feature = "gpu")]
    #[test]
    fn stripes_are_left_to_the_cpu_until_there_are_enough() {
        let chooser = Chooser::new(Options { choice: DeviceChoice::Auto, ..Options::default() }).unwrap();
        let code: Code = "10+4".parse().unwrap();
        let stripe = |block, bytes| Job { code: &code, block, extent: Extent::Stripe(bytes), threads: 1 };
        assert!(chooser.leaves_to_cpu(&stripe(SMALL_BLOCK, SMALL / 2)));
        assert!(chooser.report().unwrap().why.contains("64 MiB"));
        assert!(!chooser.leaves_to_cpu(&stripe(SMALL_BLOCK, SMALL / 2)));
        assert!(chooser.leaves_to_cpu(&stripe(SMALL_BLOCK / 2, SMALL)));
        assert!(chooser.report().unwrap().why.contains("64 KiB"));
        let named = Chooser::new(Options::default()).unwrap();
        assert!(!named.leaves_to_cpu(&stripe(1, 1)));
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        for choice in [DeviceChoice::Cuda(999), DeviceChoice::OpenCl(999)] {
            let error = Chooser::new(Options { choice, ..Options::default() }).err().unwrap();
            assert!(error.to_string().starts_with(&format!("--device {choice}: ")), "{error}");
        }
    }

    /// The CPU finishes little data before a device has started; much data goes to the higher rate.
    #[cfg(feature = "gpu")]
    #[test]
    fn the_device_that_would_finish_first_is_chosen() {
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
