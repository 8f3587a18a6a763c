//! Choice of a back end, as a value: a library that codes takes a [`Backends`] from its caller and never chooses a
//! device itself.
//!
//! `None` stands for the kernels of the CPU everywhere, so that libraries can keep paths that only these have.

use crate::code::Code;
use crate::error::Error;
use crate::kernel::{Backend, Kernel, KernelSet};
use crate::plan::Plan;
use std::sync::Arc;

/// A back end that threads share.
pub type SharedBackend = Arc<dyn Backend + Send + Sync>;

/// How much data a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes of data.
    Total(u64),
    /// A stream, whose length is not known.
    Unknown,
    /// One stripe with so many bytes of data; it is not known how many more there will be.
    Stripe(u64),
}

/// Work for which a back end is chosen.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The code; its encoding is what is measured.
    pub code: &'a Code,
    /// Bytes of a block.
    pub block: usize,
    /// Bytes of data.
    pub extent: Extent,
    /// Threads that compute at once.
    pub threads: usize,
}

/// Chooses back ends.
pub trait Backends: Send + Sync {
    /// The back end for a job; none for the kernels of the CPU.
    ///
    /// # Errors
    /// [`Error::Device`] where a device that the user named cannot be used.
    fn choose(&self, job: &Job<'_>) -> Result<Option<SharedBackend>, Error>;
}

/// The kernels of the CPU, for every job.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuOnly;

impl Backends for CpuOnly {
    fn choose(&self, _: &Job<'_>) -> Result<Option<SharedBackend>, Error> {
        Ok(None)
    }
}

/// One back end for every job.
impl Backends for SharedBackend {
    fn choose(&self, _: &Job<'_>) -> Result<Option<SharedBackend>, Error> {
        Ok(Some(self.clone()))
    }
}

/// A plan with its kernel. It runs on the calling thread.
pub struct PlanKernel {
    plan: Plan,
    kernel: Box<dyn Kernel>,
}

impl PlanKernel {
    /// Compiles a plan for a back end.
    ///
    /// # Errors
    /// Those of the back end.
    pub fn new(backend: Option<&SharedBackend>, plan: Plan) -> Result<PlanKernel, Error> {
        let kernel = match backend {
            Some(backend) => backend.compile(&plan)?,
            None => KernelSet::chosen()?.compile(&plan)?,
        };
        Ok(PlanKernel { plan, kernel })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Turns `inputs` into `outputs`, in the order of the plan's columns.
    ///
    /// # Errors
    /// Those of the kernel; outputs are complete or untouched then.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.kernel.run(inputs, outputs)
    }
}

impl std::fmt::Debug for PlanKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlanKernel({:?})", self.plan)
    }
}
