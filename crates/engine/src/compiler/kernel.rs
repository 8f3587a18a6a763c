//! Kernel of a plan compiled to machine code, for buffers of any length and alignment.
//!
//! Code processes whole steps of some registers. The rest at the end is processed by a step that ends there and
//! overlaps the previous one: it writes the same bytes again. Where that is not possible (results are added to the
//! outputs, or a buffer is shorter than a step), single registers follow in the same way, and the last partial register
//! goes through a zero-padded copy.
//!
//! Stores that cross cache lines are slower. Outputs with equal misalignment are aligned by a first partial step. Loads
//! that alias recent stores are slower too; a descending loop or several passes avoid that where possible
//! ([`collisions`]).

mod collisions;
mod signing;

use super::choose::{Choice, always_in_passes};
#[cfg(feature = "measure")]
use super::emit::disassemble;
use super::emit::{Emitted, Locality, Shape, Walk, emit};
use super::machine::{Allocated, Form};
use super::routine::Routine;
use super::target::Target;
use crate::plan::{Mode, Plan};
use crate::tuning::machine_code::{
    MAX_INPUTS_PREFETCHED_IN_L2, MIN_OUTPUTS_ALIASING, MIN_OUTPUTS_IN_PASSES_IN_MEMORY, PACKET_PREFETCH_AHEAD,
};
use crate::tuning::{self, PREFETCH_AHEAD, Tuning};
use collisions::Arrangement;
pub(crate) use signing::SigningKernel;
use std::mem::MaybeUninit;
use std::slice;

/// Blocks whose addresses fit on the stack.
const FEW_BLOCKS: usize = 32;

/// True if prefetching outputs pays. With packets, which are more streams, it takes more outputs.
fn prefetching_outputs_pays(form: Form) -> bool {
    match form.packets {
        Some(_) => form.inputs <= 2 * form.outputs,
        None => tuning::prefetching_outputs_pays(form.inputs, form.outputs),
    }
}

/// True if loads may wait for aliasing stores: there are enough outputs for many stores in flight. Loops over packets,
/// which access many addresses at once, always ascend.
fn waits_for_stores(form: Form) -> bool {
    form.packets.is_none() && form.outputs >= MIN_OUTPUTS_ALIASING
}

/// True if several passes pay for blocks in memory as well, with outputs that allow no non-temporal stores.
fn in_passes_in_memory(form: Form) -> bool {
    always_in_passes(form.inputs) && form.outputs >= MIN_OUTPUTS_IN_PASSES_IN_MEMORY
}

/// True if prefetching inputs and outputs pays for blocks in the L2 cache with unaligned outputs that are too few to be
/// prefetched alone. Packets are too many streams.
fn prefetches_all(form: Form) -> bool {
    form.packets.is_none() && form.inputs <= MAX_INPUTS_PREFETCHED_IN_L2
}

fn code_of(
    form: Form,
    target: Target,
    allocated: &Allocated,
    columns: usize,
    walk: Walk,
) -> (Shape, Emitted) {
    let packet = form.packets.map_or(0, |(bytes, _)| bytes);
    let shape = Shape { target, columns, walk, packet };
    (shape, emit(allocated, shape, form.inputs))
}

/// Size of the machine code in bytes, and with the feature `measure` the code as text.
pub(super) fn assembly(
    plan: &Plan,
    target: Target,
    allocated: &Allocated,
    columns: usize,
) -> Option<(usize, Option<String>)> {
    if !target.native {
        return None;
    }
    let (_, emitted) = code_of(Form::of(plan), target, allocated, columns, Walk::L1);
    #[cfg(feature = "measure")]
    let text = Some(disassemble(&emitted.code));
    #[cfg(not(feature = "measure"))]
    let text = None;
    Some((emitted.code.len(), text))
}

/// A compiled plan.
#[derive(Debug)]
pub(crate) struct CodeKernel {
    routine: Routine,
    /// The same with one register of every block per step, for ranges shorter than a step; `None` if a step is one
    /// register, or for packets, which are whole steps.
    narrow: Option<Routine>,
    /// The same for blocks in the [L2 cache](Locality), in one pass or several; empty if `routine` is used there too.
    in_l2: Vec<Routine>,
    /// Descending code for blocks that [alias or conflict](collisions), in several passes where these pay; empty for
    /// few outputs, whose stores complete early.
    descending: Vec<Routine>,
    memory: Option<MemoryRoutine>,
    memory_unaligned: Option<MemoryRoutine>,
    form: Form,
    tuning: Tuning,
}

/// Code for blocks in memory.
#[derive(Debug)]
struct MemoryRoutine {
    routine: Routine,
    /// For packets, code for this many bytes at their ends, which prefetches from the next group.
    ends: Option<(Routine, usize)>,
}

impl CodeKernel {
    /// Machine code for the chosen steps of a program; `None` if the system provides no executable pages.
    ///
    /// # Safety
    /// The CPU has the target's instruction set. The steps are those of a program of this form.
    pub(super) unsafe fn new(
        form: Form,
        target: Target,
        Choice { allocated, columns, passes, .. }: &Choice,
    ) -> Option<CodeKernel> {
        let of_columns = |columns, allocated: &Allocated, walk| {
            let (shape, emitted) = code_of(form, target, allocated, columns, walk);
            let slot_bytes = allocated.slots as usize * shape.step();
            Routine::new(emitted, shape, slot_bytes, form.inputs + form.outputs).ok()
        };
        let routine = |allocated: &Allocated, walk| of_columns(*columns, allocated, walk);
        let through = |passes: &[Allocated], locality, descends| {
            let walk = Walk { locality, ahead: 0, descends };
            passes.iter().map(|pass| routine(pass, walk)).collect::<Option<Vec<_>>>()
        };
        let narrow = (*columns > 1 && form.packets.is_none()).then(|| of_columns(1, allocated, Walk::L1));
        let one = slice::from_ref(allocated);
        let passes = if passes.is_empty() { one } else { &passes[..] };
        let (locality, in_l2) = match prefetching_outputs_pays(form) {
            true if always_in_passes(form.inputs) => (Locality::L2, passes),
            true => (Locality::L2, one),
            false => (Locality::L1, &[][..]),
        };
        let down = if waits_for_stores(form) { passes } else { &[] };
        let memory = |locality| match (form.mode, form.packets) {
            (Mode::Add, _) => None,
            (Mode::Write, None) => {
                let walk = Walk { locality, ahead: PREFETCH_AHEAD, descends: false };
                Some(MemoryRoutine { routine: routine(allocated, walk)?, ends: None })
            }
            (Mode::Write, Some((packet, group))) => {
                let step = columns * target.width;
                let ahead = PACKET_PREFETCH_AHEAD.next_multiple_of(step).min(packet);
                let walk = |ahead| Walk { locality, ahead, descends: false };
                let ends = routine(allocated, walk(ahead + group - packet))?;
                Some(MemoryRoutine { routine: routine(allocated, walk(ahead))?, ends: Some((ends, ahead)) })
            }
        };
        Some(CodeKernel {
            narrow: match narrow {
                Some(narrow) => Some(narrow?),
                None => None,
            },
            in_l2: through(in_l2, locality, false)?,
            descending: through(down, locality, true)?,
            memory: memory(Locality::Memory),
            memory_unaligned: memory(Locality::MemoryUnaligned),
            routine: routine(allocated, Walk::L1)?,
            form,
            tuning: *Tuning::of_machine(),
        })
    }

    /// Computes outputs from inputs. The caller has checked the buffers: as many as the plan has, all of `len` bytes, a
    /// multiple of its granule; they are parts of blocks of `total_len` bytes.
    pub(crate) fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], len: usize, total_len: usize) {
        let mut few = [const { MaybeUninit::uninit() }; FEW_BLOCKS];
        match few.get_mut(..inputs.len() + outputs.len()) {
            Some(list) => self.run_blocks(addresses(inputs, outputs, list), len, total_len),
            None => self.run_many(inputs, outputs, len, total_len),
        }
    }

    /// As [`run`](CodeKernel::run), with a heap-allocated list of addresses.
    #[inline(never)]
    fn run_many(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], len: usize, total_len: usize) {
        let mut list = vec![MaybeUninit::uninit(); inputs.len() + outputs.len()];
        self.run_blocks(addresses(inputs, outputs, &mut list), len, total_len);
    }

    #[inline]
    fn run_blocks(&self, blocks: &[*const u8], len: usize, total_len: usize) {
        let bytes = total_len.saturating_mul(blocks.len());
        if bytes >= self.tuning.near_bytes {
            return self.run_beyond_l1(blocks, len, bytes);
        }
        // No further checks: a call for a few lines takes no longer than the code before its loop. Blocks in L1 do not
        // pay for an extra step that aligns outputs, either.
        if let Some(packets) = self.form.packets {
            return self.run_groups(slice::from_ref(&self.routine), blocks, len, packets);
        }
        if self.descending.len() > 1 && collisions::crowd(blocks) {
            return self.run_words(blocks, len, Locality::L2);
        }
        let turns = len & !(self.routine.step() - 1);
        // SAFETY: a multiple of the step that lies within all blocks.
        unsafe { self.routine.run(blocks, 0, turns) };
        if turns < len {
            self.run_rest(blocks, turns, len);
        }
    }

    /// Runs over groups of packets, which consist of whole steps.
    #[inline]
    fn run_groups(
        &self,
        routines: &[Routine],
        blocks: &[*const u8],
        len: usize,
        (packet, group): (usize, usize),
    ) {
        let mut at = 0;
        while at < len {
            // SAFETY: a multiple of the step; with all packets of the group it lies within all blocks.
            routines.iter().for_each(|routine| unsafe { routine.run(blocks, at, at + packet) });
            at += group;
        }
    }

    /// The same for blocks in memory.
    fn run_groups_in_memory(
        memory: &MemoryRoutine,
        blocks: &[*const u8],
        len: usize,
        (packet, group): (usize, usize),
    ) {
        let (ends, ahead) =
            memory.ends.as_ref().map_or((&memory.routine, packet), |(ends, ahead)| (ends, *ahead));
        for at in (0..len).step_by(group) {
            let (turn, end) = (at + packet - ahead, at + packet);
            // SAFETY: packets and what is ahead are multiples of the step; with all packets of the group it lies within
            // all blocks.
            unsafe {
                memory.routine.run(blocks, at, turn);
                ends.run(blocks, turn, end);
            }
        }
        memory.routine.fence();
    }

    /// Runs over blocks that exceed the L1 cache: `bytes` in total.
    #[inline(never)]
    fn run_beyond_l1(&self, blocks: &[*const u8], len: usize, bytes: usize) {
        let locality = if bytes < self.tuning.stream_bytes { Locality::L2 } else { Locality::Memory };
        match self.form.packets {
            None => self.run_words(blocks, len, locality),
            Some(packets) => {
                let aligned =
                    blocks[self.form.inputs..].iter().all(|output| self.routine.misalignment(*output) == 0);
                match self.memory_routine_for(aligned) {
                    Some(memory) if locality == Locality::Memory => {
                        CodeKernel::run_groups_in_memory(memory, blocks, len, packets);
                    }
                    _ => self.run_groups(self.routines_for(locality, aligned), blocks, len, packets),
                }
            }
        }
    }

    fn memory_routine_for(&self, aligned: bool) -> Option<&MemoryRoutine> {
        if aligned { self.memory.as_ref() } else { self.memory_unaligned.as_ref() }
    }

    /// The passes for a locality; `aligned` if outputs are, or will be, aligned.
    fn routines_for(&self, locality: Locality, aligned: bool) -> &[Routine] {
        match (locality, self.memory_routine_for(aligned), &self.in_l2[..]) {
            (Locality::Memory, Some(memory), _) => slice::from_ref(&memory.routine),
            // One pass: inputs are not read from memory twice.
            (Locality::Memory, None, [in_l2]) => slice::from_ref(in_l2),
            (Locality::L2, _, [_, ..]) => &self.in_l2,
            (Locality::L2, Some(memory), []) if !aligned && prefetches_all(self.form) => {
                slice::from_ref(&memory.routine)
            }
            _ => slice::from_ref(&self.routine),
        }
    }

    /// The same for the words layout, where the loop may descend.
    fn routines_for_words(&self, blocks: &[*const u8], locality: Locality, aligned: bool) -> &[Routine] {
        let (inputs, outputs) = blocks.split_at(self.form.inputs);
        let better_down = match (locality, &self.descending[..]) {
            (Locality::L2, [_]) => Arrangement::of(inputs, outputs).is_faster_descending(),
            (Locality::L2, [_, _, ..]) => Arrangement::of(inputs, outputs).conflicts(),
            (Locality::Memory, [_, _, ..]) => !aligned && in_passes_in_memory(self.form),
            _ => false,
        };
        if better_down { &self.descending } else { self.routines_for(locality, aligned) }
    }

    #[inline(never)]
    fn run_words(&self, blocks: &[*const u8], len: usize, locality: Locality) {
        let outputs = &blocks[self.form.inputs..];
        let (step, width) = (self.routine.step(), self.routine.width());
        let misaligned = outputs.first().map_or(0, |output| self.routine.misalignment(*output));
        let head = if misaligned == 0 { 0 } else { width - misaligned };
        if self.form.mode == Mode::Add || len < step + head {
            return self.run_range(self.routines_for_words(blocks, locality, false), blocks, 0, len);
        }
        // A step must start at a symbol.
        let alike = outputs.iter().all(|output| self.routine.misalignment(*output) == misaligned)
            && head.is_multiple_of(self.form.symbol_bytes);
        if !alike {
            return self.run_range(self.routines_for_words(blocks, locality, false), blocks, 0, len);
        }
        let routines = self.routines_for_words(blocks, locality, true);
        if head > 0 {
            // SAFETY: the step lies within the blocks.
            unsafe { self.routine.run(blocks, 0, step) };
        }
        self.run_range(routines, blocks, head, len);
    }

    /// Runs over `start..end` of blocks. A routine with non-temporal stores needs outputs aligned at `start`.
    fn run_range(&self, routines: &[Routine], blocks: &[*const u8], start: usize, end: usize) {
        // The step is a power of two, the same in all routines.
        let aligned_end = end - ((end - start) & (self.routine.step() - 1));
        // SAFETY: a multiple of the step that lies within all blocks.
        routines.iter().for_each(|routine| unsafe { routine.run(blocks, start, aligned_end) });
        routines.iter().for_each(Routine::fence);
        if aligned_end < end {
            self.run_rest(blocks, aligned_end, end);
        }
    }

    /// Runs over `start..end` of blocks, less than a step.
    fn run_rest(&self, blocks: &[*const u8], start: usize, end: usize) {
        if !self.run_last_step(&self.routine, blocks, end) {
            self.run_short(blocks, start, end);
        }
    }

    /// The step that ends at `end`, if it fits and bytes may be written twice.
    #[inline]
    fn run_last_step(&self, routine: &Routine, blocks: &[*const u8], end: usize) -> bool {
        let may = self.form.mode == Mode::Write && end >= routine.step();
        if may {
            // SAFETY: the step lies within all blocks.
            unsafe { routine.run(blocks, end - routine.step(), end) };
        }
        may
    }

    /// Processes less than a step, register by register.
    #[inline(never)]
    fn run_short(&self, blocks: &[*const u8], start: usize, end: usize) {
        let narrow = self.narrow.as_ref().unwrap_or(&self.routine);
        let aligned_end = end - ((end - start) & (narrow.step() - 1));
        // SAFETY: both ranges end within all blocks, and begin there; the first is a multiple of the step, the second
        // shorter than one.
        unsafe {
            narrow.run(blocks, start, aligned_end);
            if aligned_end < end && !self.run_last_step(narrow, blocks, end) {
                self.run_padded(narrow, blocks, aligned_end, end);
            }
        }
    }

    /// Processes less than a step through a padded copy. Never packets: they consist of whole steps.
    ///
    /// # Safety
    /// `start..end` is within all blocks and shorter than a step.
    #[cold]
    unsafe fn run_padded(&self, routine: &Routine, blocks: &[*const u8], start: usize, end: usize) {
        let (step, len) = (routine.step(), end - start);
        let mut copies = vec![0u8; step * blocks.len()];
        let base = copies.as_mut_ptr();
        // SAFETY: by contract `len` bytes can be read in each block, and written where it is an output; a copy
        // holds a step.
        unsafe {
            let copied: Vec<*const u8> = (0..blocks.len()).map(|i| base.add(i * step).cast_const()).collect();
            for (block, copy) in blocks.iter().zip(&copied) {
                block.add(start).copy_to_nonoverlapping(copy.cast_mut(), len);
            }
            routine.run(&copied, 0, step);
            for (block, copy) in blocks.iter().zip(&copied).skip(self.form.inputs) {
                copy.copy_to_nonoverlapping(block.add(start).cast_mut(), len);
            }
        }
    }
}

/// The start addresses of the blocks, inputs first, written to `list`.
#[inline]
fn addresses<'a>(
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    list: &'a mut [MaybeUninit<*const u8>],
) -> &'a [*const u8] {
    let (of_inputs, of_outputs) = list.split_at_mut(inputs.len());
    assert!(of_outputs.len() == outputs.len(), "one entry per buffer");
    for (place, input) in of_inputs.iter_mut().zip(inputs) {
        place.write(input.as_ptr());
    }
    for (place, output) in of_outputs.iter_mut().zip(outputs) {
        place.write(output.as_mut_ptr().cast_const());
    }
    // SAFETY: all entries before the split (inputs) and after it (outputs) were written above.
    unsafe { list.assume_init_ref() }
}
