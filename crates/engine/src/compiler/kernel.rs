//! A plan as machine code, run over buffers of any length and alignment.
//!
//! Code covers whole steps of some registers. What is left at the end is covered by a step that ends there and overlaps
//! the one before: it writes the same bytes again. Where that is not so (results are added to what is there, or a
//! buffer is shorter than a step), the bytes travel through a buffer of one step, padded with zeros.

use super::emit::{Emitted, Shape, disassemble, emit};
use super::machine::Allocated;
use super::routine::Routine;
use super::target::Target;
use crate::code::Layout;
use crate::plan::{Mode, Plan};

/// Inputs and outputs together from which outputs are streamed: twice a common L2 cache, where it began to pay.
const STREAM_BYTES: usize = 4 << 20;

/// Blocks whose addresses are gathered without an allocation.
const FEW_BLOCKS: usize = 64;

fn code_of(
    plan: &Plan,
    target: Target,
    allocated: &Allocated,
    columns: usize,
    stream: bool,
) -> (Shape, Emitted) {
    let packet = match plan.layout() {
        Layout::Words => 0,
        Layout::Packets { bytes } => bytes,
    };
    let shape = Shape { target, columns, stream, packet };
    let inputs = plan.inputs().len();
    (shape, emit(allocated, shape, inputs, inputs + plan.outputs().len()))
}

/// Bytes of the machine code, and the code as text.
pub(super) fn assembly(
    plan: &Plan,
    target: Target,
    allocated: &Allocated,
    columns: usize,
) -> Option<(usize, String)> {
    let (_, emitted) = code_of(plan, target, allocated, columns, false);
    target.native.then(|| (emitted.code.len(), disassemble(&emitted.code)))
}

/// A compiled plan.
#[derive(Debug)]
pub(crate) struct CodeKernel {
    routine: Routine,
    /// The same with outputs stored past the caches.
    streaming: Option<Routine>,
    plan_mode: Mode,
    /// For packets: bytes of one, and of a group.
    packets: Option<(usize, usize)>,
    inputs: usize,
}

impl CodeKernel {
    /// Machine code for the steps that were chosen for a plan, where the system gives executable pages.
    ///
    /// # Safety
    /// The CPU has the target's instruction set. The steps are the plan's.
    pub(crate) unsafe fn new(
        plan: &Plan,
        target: Target,
        allocated: &Allocated,
        columns: usize,
    ) -> Option<CodeKernel> {
        let inputs = plan.inputs().len();
        let packets = match plan.layout() {
            Layout::Words => None,
            Layout::Packets { bytes } => Some((bytes, plan.granule())),
        };
        let routine = |stream| {
            let (shape, emitted) = code_of(plan, target, allocated, columns, stream);
            let slot_bytes = allocated.slots as usize * shape.step();
            Routine::new(emitted, shape, slot_bytes, inputs + plan.outputs().len()).ok()
        };
        let streaming = if plan.mode() == Mode::Write && packets.is_none() { routine(true) } else { None };
        Some(CodeKernel { routine: routine(false)?, streaming, plan_mode: plan.mode(), packets, inputs })
    }

    /// Turns inputs into outputs. The buffers were checked: as many as the plan has, all of `len` bytes, a multiple
    /// of its granule.
    pub(crate) fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], len: usize) {
        let count = inputs.len() + outputs.len();
        let mut few = [std::ptr::null(); FEW_BLOCKS];
        let mut many = Vec::new();
        let blocks = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, std::ptr::null());
                &mut many[..]
            }
        };
        let addresses = inputs.iter().map(|input| input.as_ptr());
        let addresses = addresses.chain(outputs.iter_mut().map(|output| output.as_mut_ptr().cast_const()));
        blocks.iter_mut().zip(addresses).for_each(|(block, address)| *block = address);
        match self.packets {
            None => self.run_words(blocks, len),
            Some((packet, group)) => {
                for at in (0..len).step_by(group) {
                    self.run_range(&self.routine, blocks, at, at + packet, at);
                }
            }
        }
    }

    fn run_words(&self, blocks: &[*const u8], len: usize) {
        let outputs = &blocks[self.inputs..];
        let width = self.routine.width();
        let misaligned = outputs.first().map_or(0, |output| output.addr() % width);
        let alike = outputs.iter().all(|output| output.addr() % width == misaligned);
        let head = (width - misaligned) % width;
        let step = self.routine.step();
        if !alike || self.plan_mode == Mode::Add || len < step + head {
            return self.run_range(&self.routine, blocks, 0, len, 0);
        }
        let large = len.saturating_mul(blocks.len()) >= STREAM_BYTES;
        let routine = self.streaming.as_ref().filter(|_| large).unwrap_or(&self.routine);
        if head > 0 {
            // SAFETY: the step lies within the blocks.
            unsafe { self.routine.run(blocks, 0, step) };
        }
        self.run_range(routine, blocks, head, len, 0);
    }

    /// Runs over `start..end` of blocks that reach from `first` on. A streaming routine needs outputs aligned at
    /// `start`.
    fn run_range(&self, routine: &Routine, blocks: &[*const u8], start: usize, end: usize, first: usize) {
        let step = routine.step();
        let whole = start + (end - start) / step * step;
        // SAFETY: ranges lie between `first` and `end`, within all blocks; a multiple of the step each.
        unsafe {
            routine.run(blocks, start, whole);
            if whole < end && self.plan_mode == Mode::Write && end - first >= step {
                self.routine.run(blocks, end - step, end);
            } else if whole < end {
                self.run_padded(blocks, whole, end);
            }
        }
    }

    /// Less than a step, through a buffer. Never packets: they consist of whole steps.
    ///
    /// # Safety
    /// `start..end` is within all blocks and shorter than a step.
    unsafe fn run_padded(&self, blocks: &[*const u8], start: usize, end: usize) {
        let (step, len) = (self.routine.step(), end - start);
        let mut copies = vec![0u8; step * blocks.len()];
        let base = copies.as_mut_ptr();
        // SAFETY: by contract `len` bytes can be read in each block, and written where it is an output; a copy has
        // room for a step.
        unsafe {
            let copied: Vec<*const u8> = (0..blocks.len()).map(|i| base.add(i * step).cast_const()).collect();
            for (block, copy) in blocks.iter().zip(&copied) {
                block.add(start).copy_to_nonoverlapping(copy.cast_mut(), len);
            }
            self.routine.run(&copied, 0, step);
            for (block, copy) in blocks.iter().zip(&copied).skip(self.inputs) {
                copy.copy_to_nonoverlapping(block.add(start).cast_mut(), len);
            }
        }
    }
}
