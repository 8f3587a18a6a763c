//! Blocks of host memory through a device: rounds of a part of every block, several under way at once.
//!
//! ```text
//! for every round:
//!     slot = the one that was used longest ago
//!     wait for it, take its results
//!     begin: inputs to the device, kernel, outputs to the host
//! wait for all
//! ```
//!
//! Memory is asked for before the first round. Where it runs out all the same, what is done stays, and the rest goes on in
//! smaller rounds, down to one tile; beyond that it is an error.
//!
//! **Outputs are complete or untouched.** As long as none was written, an error leaves them as they were. Afterwards the CPU
//! computes what the device had not done (`takeover`), so they are whole, and the error says so. That costs nothing
//! while all is well. It needs one rule: outputs that are added to are copied to their place when a round is done, never
//! by the device itself, since half a copy could not be told from none.

mod copies;

pub(crate) use copies::copy_in_parallel;

use crate::error::{Api, GpuError};
use crate::faults::{Faults, Step};
use crate::takeover::{Ledger, Stopped};
use gabion_engine::Plan;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a round together, where limits allow: long enough that starting a copy costs little beside the copy, short
/// enough that the first and the last round, which overlap with nothing, are short too.
const ROUND: usize = 48 << 20;

/// How the blocks of a round are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Each by itself.
    OnePerBlock,
    /// All at once.
    Together,
}

impl Copies {
    /// A block's part of a round, unless the block is shorter: where each is a copy of its own, one of less loses time to its start. So
    /// rounds of many blocks are longer.
    const fn part(self) -> usize {
        match self {
            Copies::OnePerBlock => 4 << 20,
            Copies::Together => 2 << 20,
        }
    }
}

/// Bytes of every block in a round: whole units, at most the block's length or the share of a slot.
pub(crate) fn round_bytes(len: usize, unit: usize, blocks: usize, share: usize, copies: Copies) -> usize {
    let blocks = blocks.max(1);
    let wanted = ROUND.max(blocks.saturating_mul(copies.part())).min(share) / blocks;
    let units = (wanted / unit).max(1);
    (units * unit).min(len.next_multiple_of(unit))
}

/// A block's part of the first and of the last round where they are cut short.
const SHORT_COPY: usize = 128 << 10;

/// Bytes of every block in round number `round`, of `left` bytes that are left; `most` in all but the first and the last rounds. Nothing comes
/// back during the first round, and nothing goes out during the last: the shorter they are, the better. And no round is much longer than the
/// one before: while it comes in, that one goes out, and then the way out is idle.
fn part_bytes(round: usize, left: usize, most: usize, unit: usize) -> usize {
    let least = SHORT_COPY.max(most / 8);
    let growing = (0..round).try_fold(least, |part, _| (part < most).then(|| part + part / 3));
    let shrinking = (left / 2).max(least);
    let part = growing.unwrap_or(most).min(shrinking).next_multiple_of(unit);
    most.min(part).min(left)
}

/// Places of a device in which rounds can be under way. Whoever implements this waits for the device when it is dropped.
pub(crate) trait Slots {
    /// How many there are, at least one.
    fn count(&self) -> usize;

    /// Gets the memory for rounds of `bytes` bytes of every block.
    fn make_room(&mut self, slot: usize, bytes: usize) -> Result<(), GpuError>;

    /// Whether the device writes outputs while a round is under way; otherwise `collect` does.
    fn writes_directly(&self) -> bool;

    /// Begins a round: `part` of every block.
    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError>;

    /// Waits for whatever the slot does.
    fn wait(&mut self, slot: usize) -> Result<(), GpuError>;

    /// Copies the results of a round that was waited for into the outputs, if the device did not write them. An error means
    /// that nothing was copied.
    fn collect(&mut self, slot: usize, part: Range<usize>, outputs: &mut [&mut [u8]])
    -> Result<(), GpuError>;
}

/// One run of a kernel.
pub(crate) struct Course<'a> {
    pub(crate) api: Api,
    pub(crate) plan: &'a Plan,
    /// Bytes of a block.
    pub(crate) len: usize,
    /// What rounds are cut at.
    pub(crate) unit: usize,
    /// Bytes of every block in the first round.
    pub(crate) bytes: usize,
    pub(crate) faults: Option<&'a Arc<Faults>>,
    pub(crate) ledger: &'a Ledger,
}

impl Course<'_> {
    /// Takes all blocks through the slots, or lets the CPU finish where that is due.
    pub(crate) fn run(
        &self,
        slots: Result<&mut dyn Slots, GpuError>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let stopped = match slots {
            Ok(slots) => self.rounds(slots, inputs, outputs),
            Err(error) => Err(Stopped { done: 0, touched: false, error }),
        };
        stopped.or_else(|stopped| self.ledger.settle(self.plan, stopped, inputs, outputs))
    }

    fn rounds(
        &self,
        slots: &mut dyn Slots,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Stopped> {
        let (mut done, mut touched, mut bytes) = (0, false, self.bytes);
        loop {
            let mut going = Going { course: self, slots: &mut *slots, busy: Vec::new(), done, touched };
            let result = going.rounds(bytes, inputs, outputs);
            (done, touched) = (going.done, going.touched);
            match result {
                Ok(()) => return Ok(()),
                Err(GpuError::Memory { .. }) if bytes > self.unit => {
                    bytes = (bytes / 2).next_multiple_of(self.unit);
                }
                Err(error) => return Err(Stopped { done, touched: touched || done > 0, error }),
            }
        }
    }

    fn may(&self, step: Step) -> Result<(), GpuError> {
        self.faults.map_or(Ok(()), |faults| faults.check(step, self.api))
    }
}

/// Rounds of one size.
struct Going<'a> {
    course: &'a Course<'a>,
    slots: &'a mut dyn Slots,
    /// For every slot the part of the blocks that it works on.
    busy: Vec<Option<Range<usize>>>,
    /// Rounds end in the order in which they began, so what is done is a beginning.
    done: usize,
    touched: bool,
}

impl Going<'_> {
    fn rounds(&mut self, bytes: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), GpuError> {
        let result = self.try_rounds(bytes, inputs, outputs);
        if result.is_err() {
            for (slot, busy) in self.busy.iter_mut().enumerate() {
                if busy.take().is_some() {
                    // The error that ended the rounds is the one to tell.
                    let _ = self.slots.wait(slot);
                }
            }
        }
        result
    }

    fn try_rounds(
        &mut self,
        bytes: usize,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError> {
        let (count, len) = (self.slots.count(), self.course.len);
        self.busy = vec![None; count];
        for slot in 0..count {
            self.course.may(Step::Room)?;
            self.slots.make_room(slot, bytes)?;
        }
        let (mut start, mut round) = (self.done, 0);
        while start < len {
            let slot = round % count;
            self.complete(slot, outputs)?;
            let left = len - start;
            // Where nothing overlaps, nothing is won by being short.
            let most =
                if count == 1 { bytes.min(left) } else { part_bytes(round, left, bytes, self.course.unit) };
            let part = start..start + most;
            (start, round) = (part.end, round + 1);
            // Even a round that fails to begin may have begun to write.
            self.busy[slot] = Some(part.clone());
            self.touched |= self.slots.writes_directly();
            self.slots.begin(slot, part, inputs, outputs)?;
            self.course.may(Step::Begin)?;
        }
        // The rest in the order in which it began.
        let next = self.next_slot(count);
        (0..count).try_for_each(|place| self.complete((next + place) % count, outputs))
    }

    /// The slot whose round began first.
    fn next_slot(&self, count: usize) -> usize {
        let start = |slot: &usize| self.busy[*slot].as_ref().map_or(usize::MAX, |part| part.start);
        (0..count).min_by_key(start).unwrap_or(0)
    }

    /// Waits for a slot and takes its results.
    fn complete(&mut self, slot: usize, outputs: &mut [&mut [u8]]) -> Result<(), GpuError> {
        let Some(part) = self.busy[slot].clone() else { return Ok(()) };
        self.slots.wait(slot)?;
        self.busy[slot] = None;
        self.course.may(Step::Wait)?;
        self.slots.collect(slot, part.clone(), outputs)?;
        self.done = part.end;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
