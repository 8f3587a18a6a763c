//! The engine: the best kernels of this machine on a pool of threads.

use crate::error::Error;
use crate::kernel::{Backend, Kernel, KernelSet, Threads};
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use crate::planar::Planar;
pub use signed::Signed;
use std::sync::Arc;

mod signed;

/// A kernel set and a pool of threads; cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    set: &'static KernelSet,
    threads: Arc<Threads>,
}

impl Engine {
    /// The kernel set of this process ([`KernelSet::chosen`]) on `threads` threads; 0 means the available parallelism.
    ///
    /// # Errors
    /// A selected kernel set that this CPU does not support; threads that cannot be started.
    pub fn new(threads: usize) -> Result<Engine, Error> {
        Engine::with_kernel_set(KernelSet::chosen()?, threads)
    }

    /// The given kernel set on `threads` threads.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn with_kernel_set(set: &'static KernelSet, threads: usize) -> Result<Engine, Error> {
        Ok(Engine { set, threads: Arc::new(Threads::new(threads)?) })
    }

    /// Its kernel set.
    pub fn kernel_set(&self) -> &'static KernelSet {
        self.set
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// Compiles a plan.
    ///
    /// # Errors
    /// A plan that the kernel set does not support.
    pub fn compile(&self, plan: &Plan) -> Result<Compiled, Error> {
        let kernel = self.set.compile(plan)?;
        Ok(Compiled { kernel, plan: plan.clone(), threads: self.threads.clone() })
    }

    /// Compiles a matrix for blocks in the planar layout: each byte of the symbols in a separate plane.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`], [`Error::EmptyMatrix`], [`Error::NoWordsLayout`] if symbols do not fill whole bytes.
    pub fn planar(&self, matrix: &Matrix, mode: Mode) -> Result<Planar, Error> {
        Planar::new(self.set, self.threads.clone(), matrix, mode)
    }

    pub(crate) fn pool(&self) -> &Arc<Threads> {
        &self.threads
    }
}

/// A compiled plan.
pub struct Compiled {
    kernel: Box<dyn Kernel>,
    plan: Plan,
    threads: Arc<Threads>,
}

impl Compiled {
    /// Its plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes `outputs` from `inputs`, in the order of the plan's columns, on all threads if the buffers are large
    /// enough to be split.
    ///
    /// # Errors
    /// Buffers that do not fit the plan; nothing is written then.
    pub fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        self.threads.run(&*self.kernel, self.plan.granule(), inputs, outputs)
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiled({:?})", self.plan)
    }
}
