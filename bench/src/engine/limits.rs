//! Limits of the machine, measured beside the engine with the same buffers and threads.

use super::rounds::Pass;
use gabion_engine::field::Field;
use gabion_engine::kernel::{Backend, Kernel, KernelSet, Threads};
use gabion_engine::matrix::Matrix;
use gabion_engine::{Error, Layout, Mode, Plan};
use std::hint::black_box;
use std::ops::Range;

/// A limit: the cost of moving the same bytes without coding them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// `memcpy` of the counted blocks into the output blocks in turn.
    Copy,
    /// Reading the counted blocks in several streams, with the loads of the fastest kernel.
    Read,
    /// The XOR of the counted blocks into one output, with the fastest kernel: a code with m = 1
    /// and no multiplication (RAID-Z 1).
    XorStream,
}

impl Limit {
    /// All limits; each is measured beside every case.
    pub const ALL: [Limit; 3] = [Limit::Copy, Limit::Read, Limit::XorStream];

    /// Its name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Limit::Copy => "copy",
            Limit::Read => "read",
            Limit::XorStream => "xor-stream",
        }
    }

    /// The pass over the first `inputs` inputs.
    pub(super) fn pass<'a>(
        self,
        row: &KernelSet,
        threads: &'a Threads,
        inputs: usize,
    ) -> Result<Pass<'a>, Error> {
        let kernel: Box<dyn Kernel> = match self {
            Limit::Copy => Box::new(CopyBlocks),
            Limit::Read => Box::new(ReadBlocks::new(row, inputs)?),
            Limit::XorStream => row.compile(&xor_plan(inputs)?)?,
        };
        Ok(Box::new(move |all, outputs| {
            let outputs = match self {
                Limit::Copy => outputs,
                Limit::Read | Limit::XorStream => &mut outputs[..1],
            };
            threads.run(&*kernel, 1, &all[..inputs], outputs)
        }))
    }

    /// The roof of an encoder in cache: every input read once and XORed once, every output written once, nothing
    /// multiplied. No code with this many blocks can be faster.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    pub fn roof(row: &KernelSet, inputs: usize, outputs: usize) -> Result<impl Kernel + use<>, Error> {
        Sums::new(row, inputs, outputs, 1)
    }

    /// The limit of an encoder from memory: as [`Limit::roof`], with inputs prefetched and outputs stored past the
    /// caches. Fewer outputs than the encoder has leave more inputs to be read at once; blocks then move at the
    /// same rate at best.
    ///
    /// # Errors
    /// As [`Backend::compile`].
    pub fn stream(row: &KernelSet, inputs: usize, outputs: usize) -> Result<impl Kernel + use<>, Error> {
        // The constant makes it a plan that kernels stream, which they need not do with plain sums; one
        // multiplication per load is far from what memory delivers.
        Sums::new(row, inputs, outputs, 2)
    }
}

/// Output i is the sum of the i-th share of the inputs, times a constant; outputs without a share stay as they are.
struct Sums(Vec<(Range<usize>, Box<dyn Kernel>)>);

impl Sums {
    fn new(row: &KernelSet, inputs: usize, outputs: usize, constant: u64) -> Result<Sums, Error> {
        let share = |output: usize| {
            let (start, end) = (output * inputs / outputs, (output + 1) * inputs / outputs);
            // More outputs than inputs: some are read twice, from the nearest cache.
            let share = start..end.max(start + 1);
            let matrix = Matrix::from_fn(Field::GF8, 1, share.len(), |_, _| constant)?;
            Ok((share, row.compile(&Plan::new(matrix, Layout::Words, Mode::Write)?)?))
        };
        Ok(Sums((0..outputs).map(share).collect::<Result<_, Error>>()?))
    }
}

impl Kernel for Sums {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let mut pairs = self.0.iter().zip(outputs.chunks_mut(1));
        pairs.try_for_each(|((share, sum), output)| sum.run(&inputs[share.clone()], output))
    }
}

/// The sum of all inputs.
fn xor_plan(inputs: usize) -> Result<Plan, Error> {
    Plan::new(Matrix::from_fn(Field::GF8, 1, inputs, |_, _| 1)?, Layout::Words, Mode::Write)
}

/// Implements the engine's trait, so that threads share this work as they share coding.
struct CopyBlocks;

impl Kernel for CopyBlocks {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let count = outputs.len();
        for (index, input) in inputs.iter().enumerate() {
            outputs[index % count].copy_from_slice(input);
        }
        Ok(())
    }
}

/// The XOR of all streams, piece by piece into the start of one output, which stays in the nearest
/// cache: loads as wide and as many as the fastest kernel has them, and no stream of stores.
struct ReadBlocks {
    sum: Box<dyn Kernel>,
    /// Pieces that each input is cut into: few inputs alone would leave the prefetchers idle and
    /// make one store per load.
    parts: usize,
}

/// Streams at least.
const STREAMS: usize = 8;
const PIECE: usize = 4096;

impl ReadBlocks {
    fn new(row: &KernelSet, inputs: usize) -> Result<ReadBlocks, Error> {
        let parts = STREAMS.div_ceil(inputs.max(1));
        Ok(ReadBlocks { sum: row.compile(&xor_plan(inputs * parts)?)?, parts })
    }
}

impl Kernel for ReadBlocks {
    fn run(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let part = inputs.first().map_or(0, |input| input.len() / self.parts);
        let mut views: Vec<&[u8]> = Vec::with_capacity(inputs.len() * self.parts);
        for at in (0..part).step_by(PIECE) {
            let size = PIECE.min(part - at);
            let starts = (0..self.parts).map(|index| index * part + at);
            views.clear();
            views.extend(starts.flat_map(|start| inputs.iter().map(move |input| &input[start..][..size])));
            self.sum.run(&views, &mut [&mut outputs[0][..size]])?;
        }
        // The remainder is less than a byte per piece of an input.
        let rest = inputs.iter().flat_map(|input| &input[part * self.parts..]);
        black_box(rest.fold(0, |sum, byte| sum ^ byte));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion::machine::fastest;

    #[test]
    fn limits_do_what_they_say() {
        let threads = Threads::new(1).unwrap();
        let inputs = [[1u8; 200], [2; 200], [7; 200]].map(|block| block.to_vec());
        let views: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
        let (mut first, mut second) = (vec![0; 200], vec![0; 200]);
        let mut run = |limit: Limit| {
            let mut pass = limit.pass(fastest(), &threads, 3).unwrap();
            pass(&views, &mut [&mut first, &mut second]).unwrap();
            (first[199], second[0])
        };
        run(Limit::Read);
        assert_eq!(run(Limit::Copy), (7, 2));
        assert_eq!(run(Limit::XorStream), (1 ^ 2 ^ 7, 2));
    }

    /// The roof reads every input once and writes every output; so does the stream, or it writes only the first.
    #[test]
    fn encoders_have_limits_of_their_own() {
        let inputs = [[1u8; 200], [2; 200], [4; 200], [8; 200], [16; 200]].map(|block| block.to_vec());
        let views: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
        let (mut first, mut second) = (vec![0; 200], vec![0; 200]);
        let mut run = |kernel: &dyn Kernel, inputs: &[&[u8]]| {
            kernel.run(inputs, &mut [&mut first, &mut second]).unwrap();
            (first[199], second[0])
        };
        assert_eq!(run(&Limit::roof(fastest(), 5, 2).unwrap(), &views), (1 ^ 2, 4 ^ 8 ^ 16));
        assert_eq!(run(&Limit::stream(fastest(), 5, 1).unwrap(), &views), (2 * 31, 4 ^ 8 ^ 16));
        assert_eq!(run(&Limit::roof(fastest(), 1, 2).unwrap(), &views[..1]), (1, 1));
    }

    #[test]
    fn reading_takes_blocks_of_any_length() {
        for (count, len) in [(1, 1), (1, 7), (3, 4099), (9, 5000), (2, 70000)] {
            let inputs = vec![vec![1u8; len]; count];
            let views: Vec<&[u8]> = inputs.iter().map(|block| &block[..]).collect();
            let read = ReadBlocks::new(fastest(), count).unwrap();
            assert!(count * read.parts >= STREAMS);
            read.run(&views, &mut [&mut vec![0; len]]).unwrap();
        }
    }
}
