//! Errors of devices.

use std::fmt;

/// Device API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// NVIDIA's driver and NVRTC.
    Cuda,
    /// Any OpenCL platform.
    OpenCl,
}

impl Api {
    /// Its name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Api::Cuda => "cuda",
            Api::OpenCl => "opencl",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reason for a failed device operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The library, the driver or the device is missing.
    #[error("{api} is not available: {reason}")]
    Unavailable {
        /// The request.
        api: Api,
        /// The reason.
        reason: String,
    },
    /// No device of this number.
    #[error("{api} has {count} devices, numbered from 0; there is no device {index}")]
    NoSuchDevice {
        /// The request.
        api: Api,
        /// The requested index.
        index: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device's compiler rejects a kernel.
    #[error("{api} does not compile the kernel ({reason}):\n{log}")]
    Compile {
        /// The API of the compiler.
        api: Api,
        /// The error.
        reason: String,
        /// The compiler's log.
        log: String,
    },
    /// Not enough memory on the device, or not enough pinned memory.
    #[error("{api} has no {bytes} bytes of {kind} memory")]
    Memory {
        /// The API of the device.
        api: Api,
        /// Device or pinned memory.
        kind: &'static str,
        /// Requested bytes.
        bytes: usize,
    },
    /// A block or plan beyond the limit of a kernel.
    #[error("{what} of {size} is over the limit of {limit}")]
    TooLarge {
        /// The object that is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// A failed API call, after which the device is often unusable.
    #[error("{api}: {call} failed: {reason}")]
    Call {
        /// The API.
        api: Api,
        /// Its name.
        call: &'static str,
        /// The error.
        reason: String,
    },
    /// The device failed after outputs were partly written. They are complete nevertheless: the CPU computed the rest.
    #[error(
        "the device failed after {done} of {len} bytes of every block; the CPU computed the rest, so the outputs are complete: {reason}"
    )]
    Interrupted {
        /// Bytes of every output that came from the device.
        done: usize,
        /// Bytes of a block.
        len: usize,
        /// The error of the device.
        reason: String,
    },
    /// A plan that a multiplication method does not support.
    #[error("{method} multiplies {can}, not {plan}")]
    Method {
        /// The method.
        method: &'static str,
        /// The supported plans.
        can: &'static str,
        /// The request.
        plan: String,
    },
    /// A transfer method that the device does not support.
    #[error("{api}: this device cannot move blocks by {transfer}: {reason}")]
    Transfer {
        /// The API of the device.
        api: Api,
        /// The transfer method.
        transfer: &'static str,
        /// The reason.
        reason: String,
    },
    /// A result that differs from the CPU's.
    #[error("output {output} is wrong at byte {byte}")]
    Wrong {
        /// Index of the output.
        output: usize,
        /// Offset in the output.
        byte: usize,
    },
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
}

impl From<GpuError> for gabion_engine::Error {
    fn from(error: GpuError) -> gabion_engine::Error {
        match error {
            GpuError::Engine(error) => error,
            other => gabion_engine::Error::Device { reason: other.to_string() },
        }
    }
}
