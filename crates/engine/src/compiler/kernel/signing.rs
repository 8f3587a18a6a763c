//! Kernel of a plan compiled to machine code that also divides its inputs for their signatures, in the same pass over
//! memory.

use super::code_of;
use crate::compiler::emit::{Locality, RING_ITERATIONS, Walk};
use crate::compiler::machine::{Allocated, Form};
use crate::compiler::routine::Routine;
use crate::compiler::target::Target;
use crate::division::{SignaturePoints, TrailingQuotients};
use crate::plan::{Mode, Plan};
use crate::tuning::Tuning;
use crate::tuning::machine_code::SIGNING_PREFETCH_AHEAD;

/// Alignment of slots and rings: a cache line.
const ALIGNMENT: usize = 64;

/// A compiled plan whose loop also divides.
#[derive(Debug)]
pub(crate) struct SigningKernel {
    routine: Routine,
    /// The same with non-temporal stores of outputs.
    streaming: Routine,
    slot_bytes: usize,
    /// Divisions per input.
    components: usize,
}

impl SigningKernel {
    /// Machine code for the chosen steps of a plan and its signatures. `None` for plans that add to outputs, or without
    /// executable pages. An iteration covers one register.
    ///
    /// # Safety
    /// The CPU has the target's instruction set. The steps are the plan's.
    pub(crate) unsafe fn new(
        plan: &Plan,
        target: Target,
        allocated: &Allocated,
        points: SignaturePoints,
    ) -> Option<SigningKernel> {
        if plan.mode() != Mode::Write {
            return None;
        }
        let blocks = plan.inputs().len() + plan.outputs().len();
        let slot_bytes = allocated.slots as usize * target.width;
        let routine = |locality| {
            let walk = Walk { locality, ahead: SIGNING_PREFETCH_AHEAD, descends: false };
            let (shape, emitted) = code_of(Form::of(plan), target, allocated, 1, walk);
            Routine::new(emitted, shape, slot_bytes, blocks).ok()
        };
        let (routine, streaming) = (routine(Locality::L1)?, routine(Locality::Memory)?);
        let components = points.exponents().len();
        Some(SigningKernel { routine, streaming, slot_bytes, components })
    }

    /// Computes the outputs for as many bytes as whole iterations cover, and returns the division state. The caller has
    /// checked the buffers: as many as the plan has, all of `len` bytes; they are parts of blocks of `total_len` bytes.
    /// `None`, with nothing done, if `len` is less than one ring.
    pub(crate) fn run(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        len: usize,
        total_len: usize,
    ) -> Option<TrailingQuotients> {
        let (width, step) = (self.routine.width(), self.routine.step());
        let ring = RING_ITERATIONS * step;
        // Ordinary stores take any address.
        let aligned = outputs.iter().all(|output| output.as_ptr().addr().is_multiple_of(width));
        if len < ring {
            return None;
        }
        let addresses = inputs.iter().map(|input| input.as_ptr());
        let outputs = outputs.iter_mut().map(|output| output.as_mut_ptr().cast_const());
        let blocks: Vec<*const u8> = addresses.chain(outputs).collect();
        let large = total_len.saturating_mul(blocks.len()) >= Tuning::of_machine().stream_bytes;
        let routine = if large && aligned { &self.streaming } else { &self.routine };
        let covered = len - len % step;
        let rings = inputs.len() * self.components * ring;
        let mut memory = vec![0u8; self.slot_bytes + rings + ALIGNMENT];
        let first = memory.as_ptr().align_offset(ALIGNMENT);
        // SAFETY: all blocks have `len` bytes, of which whole steps are processed; outputs are aligned for non-temporal
        // stores. The buffer has a zeroed ring for every division behind the slots.
        unsafe { routine.run_with(&blocks, [0, covered], memory.as_mut_ptr().add(first)) };
        routine.fence();
        memory.drain(..first + self.slot_bytes);
        memory.truncate(rings);
        Some(TrailingQuotients { covered, step, rings: memory })
    }
}
