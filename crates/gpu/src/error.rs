//! What can go wrong with a device.

use std::fmt;

/// A way to reach devices.
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

/// Why a device did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The library, the driver or the device is not here.
    #[error("{api} is not available: {reason}")]
    Unavailable {
        /// What was asked for.
        api: Api,
        /// What is missing.
        reason: String,
    },
    /// No device of this number.
    #[error("{api} has {count} devices, numbered from 0; there is no device {index}")]
    NoSuchDevice {
        /// What was asked for.
        api: Api,
        /// The number given.
        index: usize,
        /// Devices there are.
        count: usize,
    },
    /// A kernel that the device's compiler refuses.
    #[error("{api} does not compile the kernel ({reason}):\n{log}")]
    Compile {
        /// Whose compiler.
        api: Api,
        /// Its result.
        reason: String,
        /// What it said.
        log: String,
    },
    /// Not enough memory on the device, or not enough pinned memory.
    #[error("{api} has no {bytes} bytes of {kind} memory")]
    Memory {
        /// Of which device.
        api: Api,
        /// Device or pinned memory.
        kind: &'static str,
        /// Bytes asked for.
        bytes: usize,
    },
    /// A block or plan beyond what a kernel can count.
    #[error("{what} of {size} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The most there may be.
        limit: usize,
    },
    /// A call that failed, and with it often the device.
    #[error("{api}: {call} failed: {reason}")]
    Call {
        /// Whose call.
        api: Api,
        /// Its name.
        call: &'static str,
        /// What it gave back.
        reason: String,
    },
    /// The device failed when outputs were written already. They are whole nevertheless: the CPU computed the rest.
    #[error(
        "the device failed after {done} of {len} bytes of every block; the CPU computed the rest, so the outputs are whole: {reason}"
    )]
    Interrupted {
        /// Bytes of every output that came from the device.
        done: usize,
        /// Bytes of a block.
        len: usize,
        /// What the device said.
        reason: String,
    },
    /// A plan that a method of multiplication has no kernel for.
    #[error("{method} multiplies {can}, not {plan}")]
    Method {
        /// The method.
        method: &'static str,
        /// What it can do.
        can: &'static str,
        /// What was asked for.
        plan: String,
    },
    /// A way to move blocks that the device does not have.
    #[error("{api}: this device cannot move blocks by {transfer}: {reason}")]
    Transfer {
        /// Of which device.
        api: Api,
        /// The way asked for.
        transfer: &'static str,
        /// What is missing.
        reason: String,
    },
    /// A result that is not the CPU's.
    #[error("output {output} is wrong at byte {byte}")]
    Wrong {
        /// Which output.
        output: usize,
        /// Where in it.
        byte: usize,
    },
    /// What the engine says.
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
