//! Tuning of the specialised kernel of a plan: words per thread, threads per block, passes over the inputs.
//!
//! Three limits bound a kernel, in this order: its sums must stay in registers; its code must stay in the instruction
//! cache, beyond which speed falls to a third; and it should read its inputs once. So outputs are split into as few
//! passes as the first two allow. Words per thread and threads per block were chosen by measurements on an H200
//! (docs/notes/gpu.md).

use crate::error::GpuError;
use crate::shape::Shape;
use std::ops::Range;

/// Parameters that affect only the speed of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Words of every row per thread: 1, 2 or 4.
    pub lanes: usize,
    /// Threads per block.
    pub threads: usize,
    /// Outputs per pass over the inputs.
    pub outputs_per_pass: usize,
    /// Minimum resident blocks per multiprocessor; bounds the registers of a thread.
    pub least_blocks: usize,
    /// Inputs that are prefetched.
    pub ahead: usize,
    /// Inputs of the words layout that are transposed by a loop and staged in shared memory; 0: each in registers, when
    /// it is needed.
    pub staged: usize,
    /// Inputs that are transformed together by a kernel of the plan's structure (`source::transforms`), which ignores
    /// the other parameters; 0: a kernel of the plan's matrix.
    pub transformed: usize,
}

impl Tuning {
    /// The outputs of each pass, of sizes that differ by at most one.
    pub fn passes(&self, outputs: usize) -> Vec<Range<usize>> {
        let count = outputs.div_ceil(self.outputs_per_pass.max(1)).max(1);
        (0..count).map(|pass| pass * outputs / count..(pass + 1) * outputs / count).collect()
    }

    fn most_rows(&self, shape: &Shape) -> usize {
        self.passes(shape.outputs).iter().map(Range::len).max().unwrap_or(0) * shape.w
    }

    /// Expected registers of a thread: sums, inputs in flight, subsets, addresses.
    pub fn registers(&self, shape: &Shape) -> usize {
        let rows = self.most_rows(shape);
        self.lanes * (rows + shape.w * (self.ahead + 1)) + SUBSETS.min(rows) + ADDRESSES
    }

    /// Instructions of the longest pass, for a dense matrix.
    pub fn instructions(&self, shape: &Shape) -> usize {
        let rows = self.most_rows(shape);
        let fours = shape.w.div_ceil(4);
        let transposing =
            if shape.packet_words.is_some() { 0 } else { 2 * shape.w * (shape.w.ilog2() as usize) };
        let loads = if shape.packet_words.is_some() { shape.w } else { shape.w / 4 };
        let adding = self.lanes * (fours * 11 + rows * fours.div_ceil(2)) + loads;
        let out = self.lanes * rows / shape.w * transposing;
        match self.staged {
            0 => shape.inputs * (adding + self.lanes * transposing) + out,
            staged => {
                let loops = shape.inputs.div_ceil(staged) * (self.lanes * transposing + 40);
                shape.inputs * adding + loops + out
            }
        }
    }

    /// Operations on words over all passes for a dense matrix: sums of subsets, rows of outputs, transpositions.
    pub fn operations(&self, shape: &Shape) -> usize {
        let fours = shape.w.div_ceil(4);
        let transposing = shape.packet_words.map_or(2 * shape.w * shape.w.ilog2() as usize, |_| 0);
        let pass = |outputs: Range<usize>| {
            shape.inputs * (fours * 11 + transposing + outputs.len() * shape.w * fours.div_ceil(2))
        };
        self.passes(shape.outputs).into_iter().map(pass).sum::<usize>() + shape.outputs * transposing
    }

    /// The tuning for a plan on a CUDA device, by the cost model.
    pub fn of(shape: &Shape) -> Tuning {
        let words = shape.packet_words.is_none();
        let base = Tuning {
            lanes: 1,
            threads: 128,
            outputs_per_pass: shape.outputs.max(1),
            least_blocks: 1,
            ahead: 1,
            // Wider symbols do not fit in the shared memory of a block.
            staged: if words && shape.w <= 8 { STAGED } else { 0 },
            transformed: 0,
        };
        let cut = |passes: usize| Tuning { outputs_per_pass: shape.outputs.div_ceil(passes).max(1), ..base };
        let fits = |tuning: &Tuning| {
            tuning.registers(shape) <= REGISTERS && tuning.instructions(shape) <= CACHED_INSTRUCTIONS
        };
        let chosen = (1..=shape.outputs).map(cut).find(fits).unwrap_or(cut(shape.outputs.max(1)));
        let rows = chosen.most_rows(shape);
        let twice = Tuning { lanes: 2, staged: 0, ..chosen };
        if shape.w <= 8 && rows <= 32 && fits(&twice) {
            twice
        } else if chosen.staged > 0 || rows <= 32 {
            chosen
        } else if rows <= FEW_ROWS {
            Tuning { threads: SMALL_BLOCK, least_blocks: 8, ..chosen }
        } else {
            Tuning { threads: SMALL_BLOCK, ..chosen }
        }
    }
}

/// Operations of the unrolled kernel in the time of moving a byte of a block through device memory: 13.5e12 operations
/// and 4.24e12 bytes per second (H200), for the 32 bytes per counted operation.
const OPERATIONS_PER_BLOCK: usize = 102;

/// Time for moving all blocks, in operations.
pub fn moving(shape: &Shape) -> usize {
    OPERATIONS_PER_BLOCK * (shape.inputs + shape.outputs)
}

/// Maximum instructions of an unrolled plan: compiling more would take minutes, and the code exceeds every instruction
/// cache.
pub const MOST_INSTRUCTIONS: usize = 40_000;

/// Checks that a plan can be unrolled.
///
/// # Errors
/// [`GpuError::TooLarge`].
pub fn check_size(shape: &Shape) -> Result<(), GpuError> {
    let all = Tuning { outputs_per_pass: shape.outputs.max(1), lanes: 1, ..Tuning::of(shape) };
    let size = all.instructions(shape);
    if size > MOST_INSTRUCTIONS {
        return Err(GpuError::TooLarge { what: "an unrolled kernel", size, limit: MOST_INSTRUCTIONS });
    }
    Ok(())
}

/// Live sums of subsets of four rows, for two groups of four.
const SUBSETS: usize = 22;

/// Registers for addresses and positions.
const ADDRESSES: usize = 24;

/// Registers of a thread assumed by the cost model; there are 255.
const REGISTERS: usize = 240;

/// Instructions in an instruction cache of 128 KiB, with a small overflow.
const CACHED_INSTRUCTIONS: usize = 9_200;

/// Threads per block if registers are scarce: the remaining registers of a multiprocessor fit one more block of this
/// size.
const SMALL_BLOCK: usize = 64;

/// Maximum rows of sums with which eight such blocks fit on a multiprocessor.
pub(crate) const FEW_ROWS: usize = 64;

/// Inputs per stage: two stages of 8-bit words take 32 KiB for a block of threads.
const STAGED: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    fn shape(code: &str) -> Shape {
        Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap())
    }

    fn cut(code: &str) -> (usize, usize, usize) {
        let shape = shape(code);
        let tuning = Tuning::of(&shape);
        (tuning.passes(shape.outputs).len(), tuning.lanes, tuning.threads)
    }

    #[test]
    fn passes_cover_all_outputs_evenly() {
        let tuning = Tuning { outputs_per_pass: 12, ..Tuning::of(&shape("4+2")) };
        assert_eq!(tuning.passes(33), [0..11, 11..22, 22..33]);
        assert_eq!(tuning.passes(16), [0..8, 8..16]);
        assert_eq!(tuning.passes(12).len(), 1);
        assert_eq!(tuning.passes(0).len(), 1);
    }

    #[test]
    fn no_choice_asks_for_more_registers_than_a_thread_has() {
        for code in
            ["4+2", "10+4", "45+8", "64+16", "30+33", "200+56", "10+4:w16", "subspace:8+8:w4", "9+4:w64"]
        {
            let shape = shape(code);
            let registers = Tuning::of(&shape).registers(&shape);
            assert!(registers <= 255, "{code}: {registers}");
        }
    }

    /// Passes, words per thread and threads per block that were best in measurements.
    #[test]
    fn the_choice_is_what_was_measured_best() {
        assert_eq!(cut("10+4"), (1, 2, 128));
        assert_eq!(cut("45+2"), (1, 2, 128));
        assert_eq!(cut("64+4"), (1, 1, 128));
        assert_eq!(Tuning::of(&shape("64+4")).staged, 4);
        assert_eq!(Tuning::of(&shape("10+4")).staged, 0);
        assert_eq!(Tuning::of(&shape("10+8:w16")).staged, 0);
        assert_eq!(cut("64+4:packets=4096"), (1, 2, 128));
        assert_eq!(cut("10+8"), (1, 1, 128));
        assert_eq!(cut("10+8:packets=4096"), (1, 1, 64));
        assert_eq!(cut("45+8"), (1, 1, 128));
        assert_eq!(cut("45+8:packets=4096"), (1, 1, 64));
        assert_eq!(cut("16+16"), (1, 1, 128));
        assert_eq!(cut("64+8:packets=4096"), (1, 1, 64));
        assert_eq!(cut("16+16:packets=4096"), (1, 1, 64));
        assert_eq!(cut("64+16"), (2, 1, 128));
        assert_eq!(cut("30+33"), (2, 1, 128));
    }
}
