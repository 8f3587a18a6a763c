//! Blocks of host memory through the device: rounds of a part of every block, several under way at once.
//!
//! ```text
//! for every round:
//!     slot = the one that was used longest ago
//!     wait for it, take its results            staged outputs are copied from pinned memory
//!     begin: inputs to the device, kernel, outputs to the host
//! wait for all
//! ```
//!
//! Blocks that are pinned are copied by the device itself; others go through pinned memory of the slot. Where memory runs
//! out, rounds become smaller, down to one tile; beyond that it is an error.

use super::kernel::{Blocks, CudaKernel};
use super::memory::{begin_download, begin_upload, is_pinned};
use super::pool::Slot;
use crate::error::GpuError;
use crate::rounds::{copy_in_parallel, round_bytes};
use gabion_engine::Mode;
use std::ops::Range;

pub(super) fn run(
    kernel: &CudaKernel,
    len: usize,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
) -> Result<(), GpuError> {
    if len == 0 || outputs.is_empty() {
        return Ok(());
    }
    let device = &kernel.device.0;
    device.bind()?;
    let pinned = inputs.iter().all(|block| is_pinned(block)) && outputs.iter().all(|block| is_pinned(block));
    let limits = device.pool.limits;
    let unit = kernel.round_unit();
    let blocks = inputs.len() + outputs.len();
    let share = limits.device_bytes / limits.slots;
    let share = if pinned { share } else { share.min(limits.pinned_bytes / limits.slots) };
    let mut bytes = round_bytes(len, unit, blocks, share);
    loop {
        let slots = device.pool.take(len.div_ceil(bytes))?;
        let mut under_way = UnderWay { kernel, slots, busy: Vec::new(), pinned };
        let result = under_way.all_rounds(len, bytes, inputs, outputs);
        under_way.finish();
        match result {
            // Nothing was begun with a round that found no memory, and results of rounds before it stay valid: an output
            // is written, or added to, by its own round alone.
            Err(Stopped { done: 0, error: GpuError::Memory { .. } }) if bytes > unit => {
                bytes = (bytes / 2).next_multiple_of(unit);
            }
            Err(stopped) => return Err(stopped.error),
            Ok(()) => return Ok(()),
        }
    }
}

/// How far a run came.
struct Stopped {
    /// Bytes of every output that were written.
    done: usize,
    error: GpuError,
}

struct UnderWay<'a> {
    kernel: &'a CudaKernel,
    slots: Vec<Slot>,
    /// For every slot the part of the blocks that it works on.
    busy: Vec<Option<Range<usize>>>,
    pinned: bool,
}

impl UnderWay<'_> {
    fn all_rounds(
        &mut self,
        len: usize,
        bytes: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Stopped> {
        self.busy = vec![None; self.slots.len()];
        let mut done = 0;
        // Memory first: where there is not enough, nothing was touched yet.
        for slot in 0..self.slots.len() {
            self.room(slot, bytes).map_err(|error| Stopped { done, error })?;
        }
        for (round, start) in (0..len).step_by(bytes).enumerate() {
            let slot = round % self.slots.len();
            done += self.complete(slot, outputs).map_err(|error| Stopped { done, error })?;
            let part = start..(start + bytes).min(len);
            self.begin(slot, part, inputs, outputs).map_err(|error| Stopped { done, error })?;
        }
        for slot in 0..self.slots.len() {
            done += self.complete(slot, outputs).map_err(|error| Stopped { done, error })?;
        }
        Ok(())
    }

    fn blocks(&self) -> usize {
        self.kernel.shape.inputs + self.kernel.shape.outputs
    }

    fn room(&mut self, slot: usize, bytes: usize) -> Result<(), GpuError> {
        let (context, blocks) = (&self.kernel.device.0.context, self.blocks());
        self.slots[slot].device(context, blocks * self.kernel.stride(bytes))?;
        if !self.pinned {
            self.slots[slot].pinned(context, blocks * bytes)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let kernel = self.kernel;
        let (len, context) = (part.len(), &kernel.device.0.context);
        let (copy, stride) = (kernel.shape.copy(len), kernel.stride(len));
        let adds = kernel.shape.mode == Mode::Add;
        let blocks = self.blocks();
        let slot_index = slot;
        let slot = &mut self.slots[slot];
        // Where each block lies on the host: in place, or one after the other in pinned memory.
        let mut places: Vec<*mut u8> = Vec::with_capacity(blocks);
        if self.pinned {
            places.extend(inputs.iter().map(|block| block[part.clone()].as_ptr().cast_mut()));
            places.extend(outputs.iter_mut().map(|block| block[part.clone()].as_mut_ptr()));
        } else {
            let staging = slot.pinned(context, blocks * len)?;
            let mut pieces: Vec<&mut [u8]> = staging.chunks_mut(len).take(blocks).collect();
            places.extend(pieces.iter_mut().map(|piece| piece.as_mut_ptr()));
            let sources = inputs.iter().map(|block| &block[part.clone()]);
            let old = outputs.iter().map(|block| &block[part.clone()]).filter(|_| adds);
            copy_in_parallel(pieces.into_iter().zip(sources.chain(old)).collect());
        }
        let stream = slot.stream.clone();
        let memory = slot.device(context, blocks * stride)?;
        let on_device = |block: usize| memory.at(block * stride);
        // From here on the device works with the blocks: `finish` waits for it before they are given back.
        self.busy[slot_index] = Some(part);
        let uploads = if adds { blocks } else { inputs.len() };
        for (block, &place) in places.iter().enumerate().take(uploads) {
            // SAFETY: the place has `len` bytes and the device memory `stride`, and both outlive the wait in `complete`
            // or `finish`; nobody writes to either before.
            unsafe { begin_upload(&stream, on_device(block), place, copy)? };
        }
        let launch = Blocks { inputs: on_device(0), outputs: on_device(inputs.len()), stride };
        // SAFETY: each block has `stride` bytes of this slot's memory, and the slot is busy until it was waited for.
        unsafe { kernel.start(&stream, launch, len)? };
        for (block, &place) in places.iter().enumerate().skip(inputs.len()) {
            // SAFETY: as for the uploads; the outputs are borrowed mutably for the whole run.
            unsafe { begin_download(&stream, place, on_device(block), copy)? };
        }
        Ok(())
    }

    /// Waits for a slot and takes its results; returns the bytes of every output that are done.
    fn complete(&mut self, slot: usize, outputs: &mut [&mut [u8]]) -> Result<usize, GpuError> {
        let Some(part) = self.busy[slot].clone() else { return Ok(0) };
        self.slots[slot].wait()?;
        self.busy[slot] = None;
        if let (false, (_, Some(staging))) = (self.pinned, self.slots[slot].held()) {
            let results = staging.chunks(part.len()).skip(self.kernel.shape.inputs);
            let places = outputs.iter_mut().map(|block| &mut block[part.clone()]);
            copy_in_parallel(places.zip(results).collect());
        }
        Ok(part.len())
    }

    /// Waits for whatever is still under way and gives the slots back.
    fn finish(mut self) {
        for (slot, busy) in self.slots.iter().zip(&mut self.busy) {
            if busy.take().is_some() {
                // The error that ended the run is the one to tell.
                let _ = slot.wait();
            }
        }
        self.kernel.device.0.pool.give_back(std::mem::take(&mut self.slots));
    }
}
