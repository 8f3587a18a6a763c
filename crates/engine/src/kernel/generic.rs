//! The loops of all CPU kernels, generic over [`Vector`]: [`words`] (matrix times symbols), [`rows`] (bit matrix times
//! packets), [`horner`] (RAID-Z parities), [`sum_constrained`] (two outputs with a known sum), [`steps`] (programs of
//! the compiler), [`transform`] (additive FFTs in place of a matrix), [`sign`] (signatures) and [`divide`] (signatures
//! by division).
//!
//! Everything here is `#[inline(always)]` down to the intrinsics, so that it is inlined into the entry point of an
//! instruction set and compiled for it.

#![expect(
    clippy::needless_range_loop,
    reason = "counted loops over small arrays are what the optimiser unrolls into registers; closures in \
              iterators would not inherit the instruction set"
)]

mod divide;
mod horner;
mod planes;
mod rows;
mod sign;
mod steps;
mod sum_constrained;
mod transform;
mod words;

pub(super) use divide::Division;
pub(super) use horner::Parities;
pub(super) use rows::Rows;
pub(super) use sign::Weights;
pub(super) use steps::Steps;
pub(super) use sum_constrained::SumConstrained;
pub(super) use transform::{Multipliers, Transforming, WorkBuffer};
pub(super) use words::Dense;

use super::vector::Vector;
use crate::compiler::Target;

/// Proof that this CPU has an instruction set: values are created only by [`detect`](Isa::detect).
pub(super) trait Isa: Copy + Send + Sync + 'static {
    /// Its register type.
    type V: Vector;
    /// Its name in the kernel table.
    const NAME: &'static str;
    /// Required CPU features, for messages.
    const NEEDS: &'static str;

    /// Target of the run-time compiler.
    const TARGET: Target = Target::interpreted(Self::V::BYTES);

    /// A value, if this CPU has the required features.
    fn detect() -> Option<Self>;

    /// Runs the work with the instruction set enabled.
    fn run(self, work: Work<'_, '_, Self::V>);

    /// The same for transforms. A separate entry point: their loops would slow down the shortest calls of the other
    /// one.
    fn transform(self, work: Transforming<'_, '_, Self::V>);
}

/// One call of a kernel. The buffers are checked: equal lengths, and counts that match the program.
pub(super) enum Work<'a, 'b, V: Vector> {
    /// Matrix times symbols.
    Words(&'a Dense<'a, V>, Buffers<'a, 'b>),
    /// Bit matrix times packets.
    Rows(&'a Rows, Buffers<'a, 'b>),
    /// Two outputs whose sum is the sum of all inputs.
    SumConstrained(SumConstrained<'a>, Buffers<'a, 'b>),
    /// RAID-Z's P, Q and R.
    Horner(Parities, Buffers<'a, 'b>),
    /// A program, step by step.
    Steps(&'a Steps<V>, Buffers<'a, 'b>),
    /// Absorbs a piece of a block into the lanes of a signature.
    Sign(&'a Weights<V>, &'a [u8], &'a mut [u8]),
    /// The same by division.
    Divide(&'a Division<V>, &'a [u8], &'a mut [u8]),
}

/// Buffers of a call.
pub(super) struct Buffers<'a, 'b> {
    /// Inputs, all of one length.
    pub(super) inputs: &'a [&'a [u8]],
    /// Outputs of the same length.
    pub(super) outputs: &'a mut [&'b mut [u8]],
    /// That length.
    pub(super) len: usize,
    /// Length of the blocks of which these buffers are parts.
    pub(super) total_len: usize,
    /// True if results are added to the outputs.
    pub(super) add: bool,
}

impl<V: Vector> Work<'_, '_, V> {
    /// Inlined into the entry point of each instruction set, and so compiled for it.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn execute(self) {
        // SAFETY: the instruction set is there by this function's contract, and the creator of the `Work` has checked
        // the buffers.
        unsafe {
            match self {
                Work::Words(dense, buffers) => words::run(dense, buffers),
                Work::Rows(rows, buffers) => rows::run::<V>(rows, buffers),
                Work::SumConstrained(sum_constrained, buffers) => {
                    sum_constrained::run::<V>(sum_constrained, buffers)
                }
                Work::Horner(parities, buffers) => horner::run::<V>(parities, buffers),
                Work::Steps(steps, buffers) => steps::run(steps, buffers),
                Work::Sign(weights, piece, lanes) => sign::run(weights, piece, lanes),
                Work::Divide(division, piece, lanes) => divide::run(division, piece, lanes),
            }
        }
    }
}
