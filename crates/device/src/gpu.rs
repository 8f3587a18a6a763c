//! CUDA and OpenCL devices: listed, opened and measured.

use super::measure::{measure, timed};
use super::rates::RateFile;
use super::{DeviceChoice, DeviceError, Options, Rate};
use gabion_engine::Plan;
use gabion_engine::backends::{Job, SharedBackend};
use gabion_gpu::cuda::{CudaBackend, CudaDevice, CudaOptions};
use gabion_gpu::opencl::{OpenClBackend, OpenClDevice, OpenClOptions};
use gabion_gpu::{Choice, TakenOver, Takeover, cuda, opencl};
use std::sync::Arc;

/// An opened device.
pub(super) enum Device {
    Cuda(CudaDevice),
    OpenCl(OpenClDevice),
}

/// A device and the back end on it.
pub(super) struct Opened {
    pub(super) device: Device,
    pub(super) backend: SharedBackend,
}

impl Device {
    pub(super) fn open(
        options: &Options,
        choice: DeviceChoice,
        cpu_takeover: bool,
    ) -> Result<Opened, DeviceError> {
        let takeover = if cpu_takeover { Takeover::Allowed } else { Takeover::Refused };
        let cache = options.cache.as_ref().map(|directory| directory.join("kernels"));
        let unavailable =
            |error: gabion_gpu::GpuError| DeviceError::Unavailable { choice, reason: error.to_string() };
        match choice {
            DeviceChoice::OpenCl(number) => {
                let options = OpenClOptions { cache, takeover, ..OpenClOptions::default() };
                let device = OpenClDevice::open(number, options).map_err(unavailable)?;
                let backend = Arc::new(OpenClBackend::new(device.clone(), Choice::Automatic));
                Ok(Opened { device: Device::OpenCl(device), backend })
            }
            DeviceChoice::Cuda(number) => {
                let options = CudaOptions { cache, takeover, ..CudaOptions::default() };
                let device = CudaDevice::open(number, options).map_err(unavailable)?;
                let backend = Arc::new(CudaBackend::new(device.clone(), Choice::Automatic));
                Ok(Opened { device: Device::Cuda(device), backend })
            }
            DeviceChoice::Cpu | DeviceChoice::Auto => {
                Err(DeviceError::Unavailable { choice, reason: "it names no single device".to_owned() })
            }
        }
    }

    pub(super) fn taken_over(&self) -> Option<TakenOver> {
        match self {
            Device::Cuda(device) => device.taken_over(),
            Device::OpenCl(device) => device.taken_over(),
        }
    }
}

/// A device that can be chosen.
pub(super) struct Candidate {
    pub(super) choice: DeviceChoice,
    /// Name and driver: rates are kept under them.
    machine: String,
}

/// All GPUs, or the reason why there is none. OpenCL is only asked if CUDA is not available: both list the same GPUs.
pub(super) fn found() -> Result<Vec<Candidate>, String> {
    let no_cuda = match cuda::devices() {
        Ok(found) => {
            let candidate = |device: cuda::DeviceInfo| Candidate {
                choice: DeviceChoice::Cuda(device.index),
                machine: format!("cuda {} {}", device.name, device.driver),
            };
            return Ok(found.into_iter().map(candidate).collect());
        }
        Err(error) => error.to_string(),
    };
    let no_opencl = match opencl::devices() {
        Ok(found) => {
            let gpus = found.into_iter().filter(|device| device.kind == "gpu");
            let gpus: Vec<Candidate> = gpus
                .map(|device| Candidate {
                    choice: DeviceChoice::OpenCl(device.index),
                    machine: format!("opencl {} {}", device.name, device.driver),
                })
                .collect();
            if !gpus.is_empty() {
                return Ok(gpus);
            }
            "opencl has no GPU".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(format!("there is no GPU: {no_cuda}; {no_opencl}"))
}

impl Candidate {
    pub(super) fn rate(
        &self,
        options: &Options,
        rates: &RateFile,
        plan: &Plan,
        job: &Job<'_>,
    ) -> Result<Rate, DeviceError> {
        rates.of(&self.machine, job, || {
            // The CPU must not take over during a measurement.
            let (opened, opening) = timed(|| Device::open(options, self.choice, false));
            let opened = opened?;
            let measured = measure(&*opened.backend, plan, job)?;
            let device = opened.backend.name().to_owned();
            let (gb_per_s, startup) = (measured.rate / 1e9, opening + measured.startup);
            Ok(Rate { device, gb_per_s, startup, from_cache: false })
        })
    }
}
