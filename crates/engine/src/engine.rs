//! The engine as most users want it: the best kernels of this machine, on a pool of threads.

use crate::error::Error;
use crate::kernel::{Backend, Kernel, KernelSet, Threads};
use crate::matrix::Matrix;
use crate::plan::{Mode, Plan};
use crate::planar::Planar;
pub use signed::Signed;
use std::sync::Arc;

mod signed;

/// A back end and a pool of threads; cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine {
    set: &'static KernelSet,
    threads: Arc<Threads>,
}

impl Engine {
    /// The kernels of this process ([`KernelSet::chosen`]) on `threads` threads, 0 for all there are.
    ///
    /// # Errors
    /// A forced kernel that cannot run, threads that cannot be had.
    pub fn new(threads: usize) -> Result<Engine, Error> {
        Engine::with_kernel_set(KernelSet::chosen()?, threads)
    }

    /// The given kernels on `threads` threads.
    ///
    /// # Errors
    /// [`Error::Threads`].
    pub fn with_kernel_set(set: &'static KernelSet, threads: usize) -> Result<Engine, Error> {
        Ok(Engine { set, threads: Arc::new(Threads::new(threads)?) })
    }

    /// The kernels it uses.
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
    /// A plan that the back end cannot compile.
    pub fn compile(&self, plan: &Plan) -> Result<Compiled, Error> {
        let kernel = self.set.compile(plan)?;
        Ok(Compiled { kernel, plan: plan.clone(), threads: self.threads.clone() })
    }

    /// Compiles a matrix for blocks in the planar layout: the bytes of symbols apart.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`], [`Error::EmptyMatrix`], [`Error::NoWordsLayout`] where symbols fill no bytes.
    pub fn planar(&self, matrix: &Matrix, mode: Mode) -> Result<Planar, Error> {
        Planar::new(self.set, self.threads.clone(), matrix, mode)
    }

    pub(crate) fn pool(&self) -> &Arc<Threads> {
        &self.threads
    }
}

/// A plan that is ready to run.
pub struct Compiled {
    kernel: Box<dyn Kernel>,
    plan: Plan,
    threads: Arc<Threads>,
}

impl Compiled {
    /// The plan it was made of.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Turns `inputs` into `outputs`, in the order of the plan's columns, with all threads where
    /// the buffers are large enough to share.
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
