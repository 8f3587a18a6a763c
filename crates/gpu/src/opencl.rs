//! OpenCL back end: any OpenCL 1.2 device, with the library loaded at run time.

mod device;
mod kernel;
#[cfg(feature = "measure")]
mod measure;
mod memory;
mod rounds;

pub use device::{OpenClDevice, OpenClInfo, OpenClOptions, OpenClTransfer, devices};
pub use kernel::{OpenClBackend, OpenClKernel};
#[cfg(feature = "measure")]
pub use measure::BufferBlocks;

use crate::error::{Api, GpuError};
use opencl3::error_codes::{
    CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES, ClError,
};

/// Maps an OpenCL error.
fn call(name: &'static str) -> impl Fn(ClError) -> GpuError {
    move |error| GpuError::Call { api: Api::OpenCl, call: name, reason: error.to_string() }
}

/// The same for calls that may run out of memory: drivers allocate it on first use.
fn memory(name: &'static str, bytes: usize) -> impl Fn(ClError) -> GpuError {
    move |error| match error.0 {
        CL_MEM_OBJECT_ALLOCATION_FAILURE | CL_OUT_OF_RESOURCES | CL_OUT_OF_HOST_MEMORY => {
            GpuError::Memory { api: Api::OpenCl, kind: "device", bytes }
        }
        _ => call(name)(error),
    }
}

fn unavailable(reason: impl Into<String>) -> GpuError {
    GpuError::Unavailable { api: Api::OpenCl, reason: reason.into() }
}
