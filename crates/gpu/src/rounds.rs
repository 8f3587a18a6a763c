//! Rounds: runs over blocks in host memory, a part of every block at a time, with several rounds in flight.
//!
//! ```text
//! for every round:
//!     slot = the least recently used one
//!     wait for it, collect its results
//!     start: inputs to the device, kernel, outputs to the host
//! wait for all
//! ```
//!
//! Memory is allocated before the first round. If it runs out nevertheless, completed rounds stay, and the rest
//! continues in smaller rounds, down to one tile; then it is an error.
//!
//! **Outputs are complete or untouched.** As long as no output was written, an error leaves them unchanged. Afterwards
//! the CPU computes the missing part (`takeover`), so outputs are complete, and the error reports that. Runs without
//! errors have no overhead. This requires one rule: outputs that are added to are copied to their blocks by the host
//! after a round, never by the device, since a partial copy could not be detected.

mod copies;

pub(crate) use copies::copy_in_parallel;

use crate::error::{Api, GpuError};
use crate::faults::{Faults, Step};
use crate::takeover::{Ledger, Stopped};
use gabion_engine::Plan;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of all blocks in a round, within the limits: long enough that the start-up cost of copies is small, short
/// enough that the first and last rounds, which do not overlap with others, are short.
const ROUND: usize = 48 << 20;

/// Copies of the blocks of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// One copy per block.
    OnePerBlock,
    /// One copy for all blocks.
    Together,
}

impl Copies {
    /// Minimum part of a block in a round, unless the block is shorter: with one copy per block, a shorter copy is
    /// dominated by its start-up cost. So rounds of many blocks are longer.
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

/// Part of a block in a shortened first or last round.
const SHORT_COPY: usize = 128 << 10;

/// Bytes of every block in round number `round` with `left` bytes remaining; `most` except in the first and last
/// rounds. The first and last rounds use the bus in one direction only, so they are short. And no round is much longer
/// than the previous one: while it is copied in, the previous one is copied out, and the outward direction would be
/// idle.
fn part_bytes(round: usize, left: usize, most: usize, unit: usize) -> usize {
    let least = SHORT_COPY.max(most / 8);
    let growing = (0..round).try_fold(least, |part, _| (part < most).then(|| part + part / 3));
    let shrinking = (left / 2).max(least);
    let part = growing.unwrap_or(most).min(shrinking).next_multiple_of(unit);
    most.min(part).min(left)
}

/// Slots of a device, each of which can run a round. Implementations synchronise with the device on drop.
pub(crate) trait Slots {
    /// Number of slots, at least one.
    fn count(&self) -> usize;

    /// Allocates memory for rounds of `bytes` bytes of every block.
    fn make_room(&mut self, slot: usize, bytes: usize) -> Result<(), GpuError>;

    /// True if the device writes outputs during a round; otherwise `collect` does.
    fn writes_directly(&self) -> bool;

    /// Starts a round over `part` of every block.
    fn begin(
        &mut self,
        slot: usize,
        part: Range<usize>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), GpuError>;

    /// Waits for the slot's round.
    fn wait(&mut self, slot: usize) -> Result<(), GpuError>;

    /// Copies the results of a completed round into the outputs, unless the device wrote them. On error nothing was
    /// copied.
    fn collect(&mut self, slot: usize, part: Range<usize>, outputs: &mut [&mut [u8]])
    -> Result<(), GpuError>;
}

/// One run of a kernel.
pub(crate) struct RoundRun<'a> {
    pub(crate) api: Api,
    pub(crate) plan: &'a Plan,
    /// Bytes of a block.
    pub(crate) len: usize,
    /// Unit of rounds.
    pub(crate) unit: usize,
    /// Bytes of every block in the first round.
    pub(crate) bytes: usize,
    pub(crate) faults: Option<&'a Arc<Faults>>,
    pub(crate) ledger: &'a Ledger,
}

impl RoundRun<'_> {
    /// Runs all rounds; the CPU finishes the run if necessary.
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
            let mut going = RoundLoop { course: self, slots: &mut *slots, busy: Vec::new(), done, touched };
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
struct RoundLoop<'a> {
    course: &'a RoundRun<'a>,
    slots: &'a mut dyn Slots,
    /// The part of the blocks that each slot processes.
    busy: Vec<Option<Range<usize>>>,
    /// Bytes completed. Rounds complete in order, so this is a prefix.
    done: usize,
    touched: bool,
}

impl RoundLoop<'_> {
    fn rounds(&mut self, bytes: usize, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), GpuError> {
        let result = self.try_rounds(bytes, inputs, outputs);
        if result.is_err() {
            for (slot, busy) in self.busy.iter_mut().enumerate() {
                if busy.take().is_some() {
                    // The error that ended the rounds is reported.
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
            // Without overlap, short rounds gain nothing.
            let most =
                if count == 1 { bytes.min(left) } else { part_bytes(round, left, bytes, self.course.unit) };
            let part = start..start + most;
            (start, round) = (part.end, round + 1);
            // Even a round that fails to start may have written outputs.
            self.busy[slot] = Some(part.clone());
            self.touched |= self.slots.writes_directly();
            self.slots.begin(slot, part, inputs, outputs)?;
            self.course.may(Step::Begin)?;
        }
        // The remaining rounds in order.
        let next = self.next_slot(count);
        (0..count).try_for_each(|place| self.complete((next + place) % count, outputs))
    }

    /// The slot with the oldest round.
    fn next_slot(&self, count: usize) -> usize {
        let start = |slot: &usize| self.busy[*slot].as_ref().map_or(usize::MAX, |part| part.start);
        (0..count).min_by_key(start).unwrap_or(0)
    }

    /// Waits for a slot and collects its results.
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
