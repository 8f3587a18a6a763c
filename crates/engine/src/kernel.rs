//! Kernels: plans compiled for the CPU or a device, and the back ends that compile them.
//!
//! The traits [`Backend`] and [`Kernel`] are implemented by the reference, the kernel sets of the CPU and the devices
//! of other crates; the conformance suite runs over all of them.

mod compiled;
mod generic;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod product;
mod reference;
mod table;
mod threads;
mod transform;
mod transformed;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use compiled::Tier;
pub(crate) use lanes::{LaneSigner, SignatureSpec};
pub(crate) use product::{Product, ProductKernel};
pub use reference::Reference;
pub use table::{KERNEL_VARIABLE, KernelSet, TieredKernelSet, kernel_sets, measured};
pub use threads::{MAX_THREADS, Threads};
pub(crate) use transformed::may_be_transformed;

pub use crate::bytemap::LinearMap;
pub use crate::explanation::{Explanation, Stage};
pub use crate::tuning::{Caches, Tuning};

use crate::division::{SignaturePoints, TrailingQuotients};
use crate::error::Error;
use crate::plan::Plan;

/// A back end that compiles plans.
pub trait Backend: Sync {
    /// Its name, as `gabion info` shows it and as users select it.
    fn name(&self) -> &str;

    /// Compiles one plan.
    ///
    /// # Errors
    /// A plan that this back end does not support.
    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error>;
}

/// A compiled plan. It runs on the calling thread; [`Threads`] splits a call among threads.
pub trait Kernel: Send + Sync {
    /// Computes `outputs` from `inputs`, in the order of the plan's columns.
    ///
    /// # Errors
    /// Buffers that do not fit the plan; nothing is written then.
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error>;

    /// As [`run`](Kernel::run), over a part of blocks of `total_len` bytes each. Decisions that depend on the amount of
    /// data of a call, such as non-temporal stores, use `total_len`.
    ///
    /// # Errors
    /// As [`run`](Kernel::run).
    fn run_part(&self, total_len: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let _ = total_len;
        self.run(inputs, outputs)
    }

    /// As [`run_part`](Kernel::run_part), and also divides the inputs for their signatures at these points in the tower
    /// over GF(2^8). It may leave the end of the buffers unprocessed. `None`, with nothing done, if it has no code for
    /// that (yet).
    fn run_dividing(
        &self,
        points: SignaturePoints,
        total_len: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Option<TrailingQuotients> {
        let _ = (points, total_len, inputs, outputs);
        None
    }
}
