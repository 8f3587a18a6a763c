//! Any OpenCL 1.2 device; the library is loaded at run time.

mod device;
mod kernel;
mod rounds;

pub use device::{OpenClDevice, OpenClInfo, OpenClOptions, devices};
pub use kernel::{OpenClBackend, OpenClKernel};

use crate::error::{Api, GpuError};
use opencl3::error_codes::ClError;

/// A result of OpenCL as ours.
fn call(name: &'static str) -> impl Fn(ClError) -> GpuError {
    move |error| GpuError::Call { api: Api::OpenCl, call: name, reason: error.to_string() }
}

fn unavailable(reason: impl Into<String>) -> GpuError {
    GpuError::Unavailable { api: Api::OpenCl, reason: reason.into() }
}
