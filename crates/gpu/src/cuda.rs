//! CUDA back end: NVIDIA GPUs through the driver and NVRTC, both loaded at run time.

mod build;
mod device;
mod kernel;
#[cfg(feature = "measure")]
mod measure;
mod memory;
mod pipeline;
mod slot;

pub use device::{CudaDevice, CudaOptions, CudaTransfer, DeviceInfo, devices};
pub use kernel::{CudaBackend, CudaKernel};
#[cfg(feature = "measure")]
pub use measure::DeviceBlocks;
pub use memory::PinnedMemory;
pub use slot::Limits;

use crate::error::{Api, GpuError};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Maps a driver error.
fn driver(call: &'static str) -> impl Fn(DriverError) -> GpuError {
    move |error| GpuError::Call { api: Api::Cuda, call, reason: error.to_string() }
}

/// The same for allocations, with a separate error for out of memory.
fn memory(call: &'static str, kind: &'static str, bytes: usize) -> impl Fn(DriverError) -> GpuError {
    move |error| match error.0 {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => GpuError::Memory { api: Api::Cuda, kind, bytes },
        _ => driver(call)(error),
    }
}

fn unavailable(reason: impl Into<String>) -> GpuError {
    GpuError::Unavailable { api: Api::Cuda, reason: reason.into() }
}
