//! CUDA devices: enumeration, properties, opening.

use super::build::Modules;
use super::slot::{Limits, Slot};
use super::{driver, unavailable};
use crate::choice::Form;
use crate::error::{Api, GpuError};
use crate::faults::{Faults, Step};
use crate::pool::Pool;
use crate::source::products;
use crate::takeover::{Ledger, TakenOver, Takeover};
use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, CudaFunction, result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Properties of a device, available without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Multiprocessors.
    pub multiprocessors: usize,
    /// Compute capability, for example (9, 0).
    pub capability: (i32, i32),
    /// Version of the driver's API, for example 13000.
    pub driver: i32,
    /// Version of NVRTC.
    pub compiler: (i32, i32),
}

/// Checks that the libraries can be loaded. All other calls of this back end come after this.
fn libraries() -> Result<(), GpuError> {
    // SAFETY: only opens the library by its name and closes it again; its initialisers are those of NVIDIA's driver.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable("the driver's library, libcuda.so, cannot be loaded"));
    }
    // SAFETY: as above, for NVRTC.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err(unavailable("NVIDIA's run-time compiler, libnvrtc.so, cannot be loaded"));
    }
    Ok(())
}

/// All devices.
///
/// # Errors
/// [`GpuError::Unavailable`] if there is no library or no device.
pub fn devices() -> Result<Vec<DeviceInfo>, GpuError> {
    libraries()?;
    result::init().map_err(|error| unavailable(format!("the driver does not start: {error}")))?;
    let count = result::device::get_count().map_err(|error| unavailable(error.to_string()))?;
    if count == 0 {
        return Err(unavailable("the driver reports no device"));
    }
    (0..count as usize).map(info).collect()
}

fn info(index: usize) -> Result<DeviceInfo, GpuError> {
    let device = result::device::get(index as i32).map_err(driver("cuDeviceGet"))?;
    let attribute = |which| {
        // SAFETY: the device comes from cuDeviceGet.
        unsafe { result::device::get_attribute(device, which) }.map_err(driver("cuDeviceGetAttribute"))
    };
    let mut version = 0;
    // SAFETY: writes one local integer.
    let got = unsafe { sys::cuDriverGetVersion(&mut version) };
    got.result().map_err(driver("cuDriverGetVersion"))?;
    Ok(DeviceInfo {
        index,
        name: result::device::get_name(device).map_err(driver("cuDeviceGetName"))?,
        // SAFETY: the device comes from cuDeviceGet.
        memory: unsafe { result::device::total_mem(device) }.map_err(driver("cuDeviceTotalMem"))?,
        multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
        capability: (
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        driver: version,
        compiler: super::build::version()?,
    })
}

/// Options of a device.
#[derive(Debug, Clone, Default)]
pub struct CudaOptions {
    /// Memory limits of runs from host memory.
    pub limits: Limits,
    /// Directory for compiled kernels; `None` disables the disk cache.
    pub cache: Option<PathBuf>,
    /// True if the CPU may take over failed work.
    pub takeover: Takeover,
    /// Transfer method of blocks.
    pub transfer: CudaTransfer,
    /// Injected faults, for tests.
    pub faults: Option<Arc<Faults>>,
}

/// Transfer of blocks between host memory and the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CudaTransfer {
    /// Copies, in overlapping rounds.
    #[default]
    Copies,
    /// No copies: kernels read and write pinned host memory over the bus.
    Mapped,
}

/// An opened device. Clones are the same device.
#[derive(Clone)]
pub struct CudaDevice(pub(super) Arc<Opened>);

pub(super) struct Opened {
    pub(super) info: DeviceInfo,
    pub(super) context: Arc<CudaContext>,
    pub(super) modules: Modules,
    pub(super) limits: Limits,
    pub(super) pool: Pool<Slot>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) transfer: CudaTransfer,
    pub(super) faults: Option<Arc<Faults>>,
    launches: [AtomicU64; 3],
}

impl CudaDevice {
    /// Opens device number `index`.
    ///
    /// # Errors
    /// [`GpuError::Unavailable`], [`GpuError::NoSuchDevice`].
    pub fn open(index: usize, options: CudaOptions) -> Result<CudaDevice, GpuError> {
        let mut devices = devices()?;
        let count = devices.len();
        if index >= count {
            return Err(GpuError::NoSuchDevice { api: Api::Cuda, index, count });
        }
        let info = devices.swap_remove(index);
        let context = CudaContext::new(index).map_err(driver("cuDevicePrimaryCtxRetain"))?;
        // SAFETY: this crate orders all work on its streams itself: memory used by a stream is released after waiting
        // for it.
        unsafe { context.disable_event_tracking() };
        let modules = Modules::new(context.clone(), &info, options.cache);
        let pool = Pool::new(options.limits.slots);
        Ok(CudaDevice(Arc::new(Opened {
            info,
            context,
            modules,
            limits: options.limits,
            pool,
            ledger: Arc::new(Ledger::new(options.takeover)),
            transfer: options.transfer,
            faults: options.faults,
            launches: Default::default(),
        })))
    }

    /// Its properties.
    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// True if it supports the bit matrix products that [`products`] needs.
    pub fn has_tensor_cores(&self) -> bool {
        self.0.info.capability == products::CAPABILITY
    }

    /// Number of kernel launches of a form; every computation on the device is counted.
    pub fn launches(&self, form: Form) -> u64 {
        self.0.launches[form as usize].load(Ordering::Relaxed)
    }

    /// Work that the CPU took over; `None` unless [`CudaOptions::takeover`] allows it.
    pub fn taken_over(&self) -> Option<TakenOver> {
        self.0.ledger.taken()
    }

    /// Numbers of kernels compiled by NVRTC and loaded from disk.
    pub fn compiled(&self) -> (u64, u64) {
        self.0.modules.counts()
    }
}

impl Opened {
    /// The function of a text.
    pub(super) fn function(&self, text: &str) -> Result<CudaFunction, GpuError> {
        self.faults.as_ref().map_or(Ok(()), |faults| faults.check(Step::Compile, Api::Cuda))?;
        self.modules.function(text)
    }

    pub(super) fn count_launch(&self, form: Form) {
        self.launches[form as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the device's context for the calling thread.
    pub(super) fn bind(&self) -> Result<(), GpuError> {
        self.context.bind_to_thread().map_err(driver("cuCtxSetCurrent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without NVIDIA's libraries reports that; a machine with them lists its devices.
    #[test]
    fn missing_libraries_are_reported() {
        match devices() {
            Ok(found) => assert!(found.iter().all(|device| device.memory > 0)),
            Err(GpuError::Unavailable { api: Api::Cuda, reason }) => assert!(!reason.is_empty()),
            Err(other) => panic!("{other}"),
        }
        let far = CudaDevice::open(9999, CudaOptions::default()).err().unwrap();
        assert!(
            matches!(far, GpuError::Unavailable { .. } | GpuError::NoSuchDevice { index: 9999, .. }),
            "{far}"
        );
    }
}
