//! OpenCL devices of all platforms: enumeration, properties, opening.

use super::rounds::Slot;
use super::{call, unavailable};
use crate::cache::KernelCache;
use crate::error::{Api, GpuError};
use crate::faults::{Faults, Step};
use crate::pool::Pool;
use crate::takeover::{Ledger, TakenOver, Takeover};
use opencl3::context::Context;
use opencl3::device::{
    CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU, Device,
};
use opencl3::error_codes::DLOPEN_RUNTIME_LOAD_FAILED;
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::cl_device_id;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Properties of a device, available without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenClInfo {
    /// Its index over all platforms, from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// The platform it belongs to.
    pub platform: String,
    /// `gpu`, `cpu` or `other`.
    pub kind: &'static str,
    /// Bytes of memory.
    pub memory: u64,
    /// Compute units.
    pub units: u32,
    /// Version of its driver.
    pub driver: String,
}

/// All devices of all platforms.
///
/// # Errors
/// [`GpuError::Unavailable`] if there is no library, no platform or no device.
pub fn devices() -> Result<Vec<OpenClInfo>, GpuError> {
    Ok(ids()?.into_iter().map(|(info, _)| info).collect())
}

fn ids() -> Result<Vec<(OpenClInfo, cl_device_id)>, GpuError> {
    let platforms = get_platforms().map_err(|error| match error.0 {
        DLOPEN_RUNTIME_LOAD_FAILED => unavailable("the library, libOpenCL.so, cannot be loaded"),
        _ => unavailable(format!("there is no platform: {error}")),
    })?;
    let mut found = Vec::new();
    for platform in platforms {
        let name = platform.name().map_err(call("clGetPlatformInfo"))?;
        // A platform without devices returns an error; others may have some.
        for id in platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default() {
            let info = info(found.len(), &name, &Device::new(id)).map_err(call("clGetDeviceInfo"))?;
            found.push((info, id));
        }
    }
    if found.is_empty() {
        return Err(unavailable("no platform has a device"));
    }
    Ok(found)
}

fn info(index: usize, platform: &str, device: &Device) -> opencl3::Result<OpenClInfo> {
    let kind = device.dev_type()?;
    Ok(OpenClInfo {
        index,
        name: device.name()?.trim().to_owned(),
        platform: platform.to_owned(),
        kind: match () {
            () if kind & CL_DEVICE_TYPE_GPU != 0 => "gpu",
            () if kind & CL_DEVICE_TYPE_CPU != 0 => "cpu",
            () => "other",
        },
        memory: device.global_mem_size()?,
        units: device.max_compute_units()?,
        driver: device.driver_version()?,
    })
}

/// Options of a device.
#[derive(Debug, Clone)]
pub struct OpenClOptions {
    /// Limit of device memory in bytes, for all rounds in flight.
    pub device_bytes: usize,
    /// Rounds in flight.
    pub slots: usize,
    /// Directory for compiled kernels; `None` disables the disk cache.
    pub cache: Option<PathBuf>,
    /// Options of the device's compiler, for example `-cl-opt-disable`.
    pub build: String,
    /// True if the CPU may take over failed work.
    pub takeover: Takeover,
    /// Transfer method of blocks.
    pub transfer: OpenClTransfer,
    /// Injected faults, for tests.
    pub faults: Option<Arc<Faults>>,
}

/// Transfer of blocks between host memory and the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OpenClTransfer {
    /// Copies into buffers, in overlapping rounds.
    #[default]
    Copies,
    /// Coarse-grained shared virtual memory, mapped by host and device alternately.
    SharedMemory,
}

impl Default for OpenClOptions {
    fn default() -> OpenClOptions {
        OpenClOptions {
            device_bytes: 512 << 20,
            slots: 2,
            cache: None,
            build: String::new(),
            takeover: Takeover::default(),
            transfer: OpenClTransfer::default(),
            faults: None,
        }
    }
}

/// An opened device. Clones are the same device.
#[derive(Clone)]
pub struct OpenClDevice(pub(super) Arc<Opened>);

pub(super) struct Opened {
    /// Declared before the context that owns its memory: fields are dropped in this order.
    pub(super) pool: Pool<Slot>,
    pub(super) info: OpenClInfo,
    pub(super) id: Id,
    pub(super) context: Context,
    pub(super) options: OpenClOptions,
    pub(super) ledger: Arc<Ledger>,
    cache: KernelCache<Arc<Program>>,
    launches: AtomicU64,
}

/// OpenCL's handle of a device.
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) cl_device_id);

// SAFETY: the value is a handle; its object belongs to the platform and may be used by every thread.
unsafe impl Send for Id {}
// SAFETY: as above.
unsafe impl Sync for Id {}

impl OpenClDevice {
    /// Opens device number `index`.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`], [`GpuError::NoSuchDevice`].
    pub fn open(index: usize, options: OpenClOptions) -> Result<OpenClDevice, GpuError> {
        let mut ids = ids()?;
        let count = ids.len();
        if index >= count {
            return Err(GpuError::NoSuchDevice { api: Api::OpenCl, index, count });
        }
        let (info, id) = ids.swap_remove(index);
        if options.transfer == OpenClTransfer::SharedMemory {
            check_shared_memory(&Device::new(id))?;
        }
        let context = Context::from_device(&Device::new(id)).map_err(call("clCreateContext"))?;
        let machine = format!("{} {} {} {}", info.platform, info.name, info.driver, options.build);
        let cache = KernelCache::new(options.cache.as_deref(), &machine);
        Ok(OpenClDevice(Arc::new(Opened {
            pool: Pool::new(options.slots),
            info,
            id: Id(id),
            context,
            ledger: Arc::new(Ledger::new(options.takeover)),
            options,
            cache,
            launches: AtomicU64::new(0),
        })))
    }

    /// Its properties.
    pub fn info(&self) -> &OpenClInfo {
        &self.0.info
    }

    /// Number of kernel launches; every computation on the device is counted.
    pub fn launches(&self) -> u64 {
        self.0.launches.load(Ordering::Relaxed)
    }

    /// Work that the CPU took over; `None` unless [`OpenClOptions::takeover`] allows it.
    pub fn taken_over(&self) -> Option<TakenOver> {
        self.0.ledger.taken()
    }

    /// Numbers of kernels compiled and loaded from disk.
    pub fn compiled(&self) -> (u64, u64) {
        self.0.cache.counts()
    }
}

/// Devices before OpenCL 2.0 reject the query.
fn check_shared_memory(device: &Device) -> Result<(), GpuError> {
    let refused =
        |reason: String| GpuError::Transfer { api: Api::OpenCl, transfer: "shared virtual memory", reason };
    match device.svm_capabilities() {
        Ok(has) if has & CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0 => Ok(()),
        Ok(_) => Err(refused("it has no coarse-grained buffers".to_owned())),
        Err(error) => Err(refused(error.to_string())),
    }
}

impl Opened {
    pub(super) fn count_launch(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    /// The program of a text: from memory, from disk, or compiled.
    pub(super) fn program(&self, text: &str) -> Result<Arc<Program>, GpuError> {
        self.options.faults.as_ref().map_or(Ok(()), |faults| faults.check(Step::Compile, Api::OpenCl))?;
        let load = |binary: Vec<u8>| self.load(&binary).ok().map(Arc::new);
        self.cache.get(text, load, || self.compile(text))
    }

    fn compile(&self, text: &str) -> Result<(Arc<Program>, Option<Vec<u8>>), GpuError> {
        let failed = |reason: String, log| GpuError::Compile { api: Api::OpenCl, reason, log };
        let mut program = Program::create_from_source(&self.context, text)
            .map_err(|error| failed(format!("clCreateProgramWithSource: {error}"), String::new()))?;
        program.build(&[self.id.0], &self.options.build).map_err(|error| {
            let log = program.get_build_log(self.id.0).unwrap_or_default();
            failed(format!("clBuildProgram: {error}"), log)
        })?;
        // One binary per device; without one, the program is compiled again next time.
        let binary = program.get_binaries().ok().and_then(|mut binaries| binaries.pop());
        Ok((Arc::new(program), binary))
    }

    fn load(&self, binary: &[u8]) -> opencl3::Result<Program> {
        // SAFETY: the device belongs to the context; a foreign binary is refused.
        let mut program = unsafe { Program::create_from_binary(&self.context, &[self.id.0], &[binary])? };
        program.build(&[self.id.0], &self.options.build)?;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without OpenCL reports that; a machine with it lists its devices.
    #[test]
    fn a_missing_library_is_reported() {
        match devices() {
            Ok(found) => assert!(found.iter().all(|device| device.units > 0)),
            Err(GpuError::Unavailable { api: Api::OpenCl, reason }) => assert!(!reason.is_empty()),
            Err(other) => panic!("{other}"),
        }
        let far = OpenClDevice::open(9999, OpenClOptions::default()).err().unwrap();
        assert!(
            matches!(far, GpuError::Unavailable { .. } | GpuError::NoSuchDevice { index: 9999, .. }),
            "{far}"
        );
    }
}
