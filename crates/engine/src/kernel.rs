//! Kernels: plans compiled for a device, and the back ends that compile them.
//!
//! [`Backend`] and [`Kernel`] are the seam: the reference, the rows of the CPU table and every later
//! device stand behind them, and the conformance suite runs over all of them.

mod compiled;
mod explanation;
mod generic;
mod lanes;
pub(crate) mod linear;
#[cfg(target_arch = "aarch64")]
mod neon;
mod product;
mod reference;
mod table;
mod threads;
mod transform;
mod transformed;
mod tuning;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use compiled::Tier;
pub use explanation::{Explanation, Stage};
pub(crate) use lanes::{LaneSigner, Weighing};
pub use linear::LinearMap;
pub(crate) use product::{Product, ProductKernel};
pub use reference::Reference;
pub use table::{KERNEL_VARIABLE, Row, TieredRow, measured, rows};
pub use threads::{MAX_THREADS, Threads};
pub(crate) use transformed::may_be_transformed;
pub use tuning::{Caches, Tuning};

use crate::error::Error;
use crate::plan::Plan;

/// How far ahead of their use streamed inputs are asked for, in bytes.
pub(crate) const PREFETCH_AHEAD: usize = 512;

/// How far ahead of their stores outputs are asked for, in bytes, where blocks lie in the L2 cache: two cache lines.
pub(crate) const WRITE_AHEAD: usize = 128;

/// Whether that pays: with fewer outputs, loads are what takes the time.
pub(crate) const fn stores_count(inputs: usize, outputs: usize) -> bool {
    inputs <= 3 * outputs
}

/// The points of signatures in the tower over GF(2^8) for which kernels divide. A point is known by the constant term 2^e of its
/// polynomial Z^8 + Z^7 + Z + 2^e.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Points {
    /// Y alone.
    One,
    /// Y and Y².
    Powers,
    /// Y and a point that is no power of two of Y: see [`Signer::independent`](crate::Signer::independent).
    Independent,
}

impl Points {
    /// All of them.
    pub const ALL: [Points; 3] = [Points::One, Points::Powers, Points::Independent];

    /// The exponents of 2 in the constant terms, one for each component.
    pub fn exponents(self) -> &'static [u64] {
        match self {
            Points::One => &[1],
            Points::Powers => &[1, 2],
            Points::Independent => &[1, 112],
        }
    }
}

/// What a division in the pass that codes left of every input: the quotients of its last eight turns.
#[derive(Debug)]
pub struct Quotients {
    /// Bytes of every block that were coded and divided, from the start; whole turns.
    pub covered: usize,
    /// Bytes of a turn.
    pub turn: usize,
    /// Per input, and for each of its components, the quotients of eight turns; that of turn t is number t % 8.
    pub rings: Vec<u8>,
}

/// Something that compiles plans.
pub trait Backend: Sync {
    /// Its name, as `gabion info` shows it and users force it.
    fn name(&self) -> &str;

    /// Compiles one plan.
    ///
    /// # Errors
    /// What this back end cannot do with the plan.
    fn compile(&self, plan: &Plan) -> Result<Box<dyn Kernel>, Error>;
}

/// A compiled plan. It runs on the calling thread; [`Threads`] splits the work.
pub trait Kernel: Send + Sync {
    /// Turns `inputs` into `outputs`, in the order of the plan's columns.
    ///
    /// # Errors
    /// Buffers that do not fit the plan; nothing is written then.
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error>;

    /// As [`run`](Kernel::run), over a part of blocks that have `whole` bytes: what depends on how much a call moves, as
    /// whether its outputs will still be in a cache when it ends, is decided by that.
    ///
    /// # Errors
    /// As [`run`](Kernel::run).
    fn run_part(&self, whole: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let _ = whole;
        self.run(inputs, outputs)
    }

    /// As [`run_part`](Kernel::run_part), and divides the inputs for their signatures at these points in the tower over
    /// GF(2^8). It may leave the end of the buffers to others. None, with nothing done, where it has no code for that or not
    /// yet.
    fn run_dividing(
        &self,
        points: Points,
        whole: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Option<Quotients> {
        let _ = (points, whole, inputs, outputs);
        None
    }
}
