//! How the specialised kernel of a plan is cut: words per thread, threads per block, groups of outputs.

use crate::error::GpuError;
use crate::shape::Shape;
use std::ops::Range;

/// Choices that change a kernel's speed and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tuning {
    /// Words of every row that a thread holds: 1, 2 or 4.
    pub lanes: usize,
    /// Threads of a block, per group of outputs.
    pub threads: usize,
    /// Outputs of a group.
    pub outputs_per_group: usize,
    /// Blocks that should fit on a multiprocessor at once; bounds the registers of a thread.
    pub least_blocks: usize,
    /// Inputs that are asked for before the one that is worked on.
    pub ahead: usize,
    /// After how many inputs the warps of a block wait for each other; 0 is never.
    pub meet_every: usize,
}

impl Tuning {
    /// The outputs of each group, of sizes that differ by at most one.
    pub fn groups(&self, outputs: usize) -> Vec<Range<usize>> {
        let count = outputs.div_ceil(self.outputs_per_group.max(1)).max(1);
        (0..count).map(|group| group * outputs / count..(group + 1) * outputs / count).collect()
    }

    /// Registers that a thread is expected to need: sums, inputs on their way, subsets, addresses.
    pub fn registers(&self, shape: &Shape) -> usize {
        let largest = self.groups(shape.outputs).iter().map(Range::len).max().unwrap_or(0);
        let rows = largest * shape.w;
        self.lanes * (rows + shape.w * (self.ahead + 1)) + SUBSETS.min(rows) + ADDRESSES
    }

    /// The choice for a plan without measuring.
    pub fn of(shape: &Shape) -> Tuning {
        let base = Tuning {
            lanes: 1,
            threads: 128,
            outputs_per_group: (MOST_ROWS / shape.w).max(1),
            least_blocks: 1,
            ahead: 1,
            meet_every: 0,
        };
        let rows = base.groups(shape.outputs).iter().map(Range::len).max().unwrap_or(0) * shape.w;
        let lanes = if shape.w <= 8 && rows <= 32 { 2 } else { 1 };
        Tuning { lanes, ..base }
    }
}

/// Instructions beyond which a plan is not unrolled: compiling would take minutes, and so long a text runs out of every
/// cache of instructions.
pub const MOST_INSTRUCTIONS: usize = 40_000;

/// Additions of one thread that a specialised kernel of a dense matrix would have.
pub fn dense_additions(shape: &Shape) -> usize {
    let fours = shape.w.div_ceil(4);
    shape.inputs * (fours * 11 + shape.outputs * shape.w * fours.div_ceil(2))
}

/// Whether a plan can be unrolled.
///
/// # Errors
/// [`GpuError::TooLarge`].
pub fn check_size(shape: &Shape) -> Result<(), GpuError> {
    let size = dense_additions(shape);
    if size > MOST_INSTRUCTIONS {
        return Err(GpuError::TooLarge { what: "an unrolled kernel", size, limit: MOST_INSTRUCTIONS });
    }
    Ok(())
}

/// Sums of subsets of four rows that are alive at once, two fours of them.
const SUBSETS: usize = 22;

/// Registers for addresses and positions.
const ADDRESSES: usize = 24;

/// Most rows of outputs that a thread sums up at once.
const MOST_ROWS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    fn shape(code: &str) -> Shape {
        Shape::of(&code.parse::<Code>().unwrap().encode_plan().unwrap())
    }

    #[test]
    fn groups_cover_all_outputs_evenly() {
        let tuning = Tuning { outputs_per_group: 12, ..Tuning::of(&shape("4+2")) };
        assert_eq!(tuning.groups(33), [0..11, 11..22, 22..33]);
        assert_eq!(tuning.groups(16), [0..8, 8..16]);
        assert_eq!(tuning.groups(12), [0..12]);
        assert_eq!(tuning.groups(0), [0..0]);
    }

    #[test]
    fn no_choice_asks_for_more_registers_than_a_thread_has() {
        for code in ["4+2", "10+4", "45+8", "64+16", "30+33", "200+56", "10+4:w16", "subspace:8+8:w4"] {
            let shape = shape(code);
            let registers = Tuning::of(&shape).registers(&shape);
            assert!(registers <= 255, "{code}: {registers}");
        }
    }
}
