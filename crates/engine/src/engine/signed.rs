//! Coding and signing in one pass over memory.
//!
//! Machine code that divides its inputs while it codes them
//! ([`Kernel::run_dividing`](crate::kernel::Kernel::run_dividing)) needs nothing else. Otherwise blocks are processed
//! in tiles: the signer reads a tile of every input, and the kernel then finds it in the L2 cache. Signing comes first
//! because it reads one block after the other, which is faster from memory than all blocks at once. Where the linear
//! law of [`signature`](crate::signature) holds, outputs are not read at all.

use super::Compiled;
use crate::error::Error;
use crate::signature::{Lanes, Signature, Signer};
use crate::tuning::{MIN_DIVIDED_BYTES, SIGN_TILE};

/// Bytes of a cache line.
const LINE: usize = 64;

/// The signatures of the inputs and outputs of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// Signatures of the inputs, in the order of the plan's columns.
    pub inputs: Vec<Signature>,
    /// Signatures of the outputs after the call, in the same order.
    pub outputs: Vec<Signature>,
}

impl Compiled {
    /// As [`run`](Compiled::run), and returns the signatures of all inputs and outputs as [`Signer::sign`] computes
    /// them.
    ///
    /// # Errors
    /// Buffers that do not fit the plan, or blocks that are too long for the signer; nothing is written then.
    pub fn run_signed(
        &self,
        signer: &Signer,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<Signed, Error> {
        let len = self.plan.check_buffers(inputs, outputs)?;
        signer.check_length(len)?;
        let granule = common_multiple(self.plan.granule(), signer.symbol_bytes());
        let ranges = self.threads.map_ranges(granule, inputs, outputs, |inputs, outputs| {
            // A plan without inputs writes zeros.
            let first = inputs.first().map(|input| input.len());
            let part = first.or(outputs.first().map(|output| output.len())).unwrap_or(0);
            Ok((part, self.sign_range(signer, [len, part], inputs, outputs)?))
        })?;
        let range = ranges.first().map_or(0, |(len, _)| *len);
        let mut inputs = signer.joined(range, ranges.into_iter().map(|(_, signatures)| signatures).collect());
        let mut outputs = inputs.split_off(self.plan.inputs().len());
        if signer.has_law_for(&self.plan) {
            outputs = signer.transform(self.plan.matrix()?, &inputs)?;
        }
        Ok(Signed { inputs, outputs })
    }

    /// Runs over buffers of `len` bytes, parts of blocks of `total_len` bytes. Returns the signatures of the inputs
    /// and, unless they follow from those, of the outputs.
    fn sign_range(
        &self,
        signer: &Signer,
        [total_len, len]: [usize; 2],
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<Vec<Signature>, Error> {
        let worth_it =
            len >= MIN_DIVIDED_BYTES && signer.points().is_some() && signer.has_law_for(&self.plan);
        // Outputs that become aligned together after some symbols allow non-temporal stores from there on.
        let head = outputs.first().map_or(0, |output| output.as_ptr().align_offset(LINE));
        let alike = outputs.iter().all(|output| output.as_ptr().align_offset(LINE) == head);
        if !worth_it || head == 0 || !alike || !head.is_multiple_of(signer.symbol_bytes()) || head >= len {
            return self.divide_range(signer, worth_it, [total_len, len], inputs, outputs);
        }
        let (before, after): (Vec<_>, Vec<_>) = inputs.iter().map(|input| input.split_at(head)).unzip();
        let (mut first, mut last): (Vec<_>, Vec<_>) =
            outputs.iter_mut().map(|output| output.split_at_mut(head)).unzip();
        let before = self.sign_tiles(signer, [total_len, head], &before, &mut first)?;
        let after = self.divide_range(signer, worth_it, [total_len, len - head], &after, &mut last)?;
        Ok(signer.joined(head, vec![before, after]))
    }

    /// Divides in the coding pass if possible and `worth_it`, otherwise signs in tiles.
    fn divide_range(
        &self,
        signer: &Signer,
        worth_it: bool,
        [total_len, len]: [usize; 2],
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<Vec<Signature>, Error> {
        let points = signer.points().filter(|_| worth_it);
        let quotients =
            points.and_then(|points| self.kernel.run_dividing(points, total_len, inputs, outputs));
        let Some(quotients) = quotients else {
            return self.sign_tiles(signer, [total_len, len], inputs, outputs);
        };
        let covered = quotients.covered;
        let rest: Vec<&[u8]> = inputs.iter().map(|input| &input[covered..]).collect();
        let mut last: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[covered..]).collect();
        let rest = self.sign_tiles(signer, [total_len, len - covered], &rest, &mut last)?;
        Ok(signer.of_quotients(&quotients, rest))
    }

    /// The same in tiles.
    fn sign_tiles(
        &self,
        signer: &Signer,
        [total_len, len]: [usize; 2],
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<Vec<Signature>, Error> {
        let read_outputs = if signer.has_law_for(&self.plan) { 0 } else { outputs.len() };
        let lanes_of = |blocks: usize| -> Vec<Lanes> { (0..blocks).map(|_| signer.lanes()).collect() };
        let (mut of_inputs, mut of_outputs) = (lanes_of(inputs.len()), lanes_of(read_outputs));
        let unit = common_multiple(self.plan.granule(), signer.piece_granule());
        let tile = unit * (SIGN_TILE / unit).max(1);
        // Signers process blocks from the end.
        for start in (0..len).step_by(tile).rev() {
            let part = start..len.min(start + tile);
            let inputs: Vec<&[u8]> = inputs.iter().map(|input| &input[part.clone()]).collect();
            let mut outputs: Vec<&mut [u8]> =
                outputs.iter_mut().map(|output| &mut output[part.clone()]).collect();
            of_inputs.iter_mut().zip(&inputs).for_each(|(lanes, input)| signer.absorb(lanes, input));
            self.kernel.run_part(total_len, &inputs, &mut outputs)?;
            of_outputs.iter_mut().zip(&outputs).for_each(|(lanes, output)| signer.absorb(lanes, output));
        }
        Ok(of_inputs.iter().chain(&of_outputs).map(|lanes| signer.finish(lanes)).collect())
    }
}

/// The least common multiple of two positive numbers.
fn common_multiple(a: usize, b: usize) -> usize {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    a / divisor * b
}

#[cfg(test)]
mod tests;
