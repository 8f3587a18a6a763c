//! Detection of blocks that slow each other down by their page offsets, although none overlaps another.
//!
//! **4K aliasing.** A load is compared with the stores in flight by the low twelve bits of their addresses. A match
//! delays the load, even if the store goes to another page. If an output starts `d` bytes behind an input, modulo the
//! page size, an ascending loop loads `d` bytes later from an address that matches a recent store; if `d` is small,
//! every iteration waits for the previous one. Blocks that an allocator placed one after another, data first, all lie
//! like that, each output some multiples of 16 bytes behind each input. A descending loop meets such an address a page
//! less `d` bytes later, when the stores have completed.
//!
//! **L1 set conflicts.** The page offset also determines the set of the L1 cache. If more blocks start at the same
//! offset than a set has ways, they evict each other before their lines are used up. Several passes need fewer lines at
//! a time.

use crate::tuning::machine_code::{ALIASING_LINES, MAX_BLOCKS_PER_LINE, MIN_CONFLICTING_BLOCKS};

/// Bytes of a cache line, the resolution of this analysis: the 64 lines of a page are the bits of a `u64`.
const LINE: usize = 64;

/// The line of its page in which a block starts.
fn line(block: *const u8) -> u32 {
    (block.addr() / LINE) as u32 % u64::BITS
}

fn lines(blocks: &[*const u8]) -> u64 {
    blocks.iter().fold(0, |lines, &block| lines | 1 << line(block))
}

/// Relative placement of the inputs and outputs of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrangement {
    collides_ascending: bool,
    collides_descending: bool,
    crowds: bool,
}

impl Arrangement {
    #[inline]
    pub(super) fn of(inputs: &[*const u8], outputs: &[*const u8]) -> Arrangement {
        let read = lines(inputs);
        // Bit n: some input starts n lines behind some output, modulo the page size. Equal lines do not alias: the
        // loads of an iteration precede its stores.
        let behind = outputs.iter().fold(0, |lines, &output| lines | read.rotate_right(line(output))) & !1;
        Arrangement {
            collides_ascending: behind.leading_zeros() + 1 < ALIASING_LINES,
            collides_descending: behind.trailing_zeros() < ALIASING_LINES,
            crowds: crowds(read | lines(outputs), inputs.len() + outputs.len()),
        }
    }

    /// True if a descending loop avoids the aliasing.
    pub(super) fn is_faster_descending(self) -> bool {
        self.collides_ascending && !self.collides_descending
    }

    /// True if several descending passes are faster than one ascending pass.
    pub(super) fn conflicts(self) -> bool {
        self.collides_ascending || self.crowds
    }
}

/// True if blocks that fit in the L1 cache by size conflict in its sets.
#[inline]
pub(super) fn crowd(blocks: &[*const u8]) -> bool {
    crowds(lines(blocks), blocks.len())
}

/// True if the blocks start in too few distinct lines.
fn crowds(lines: u64, blocks: usize) -> bool {
    blocks >= MIN_CONFLICTING_BLOCKS && lines.count_ones() as usize * MAX_BLOCKS_PER_LINE < blocks
}

#[cfg(test)]
mod tests {
    use super::{Arrangement, crowd};
    use std::ptr::without_provenance;

    /// Addresses of `count` blocks at a constant stride.
    fn blocks(count: usize, first: usize, stride: usize) -> Vec<*const u8> {
        (0..count).map(|index| without_provenance(first + index * stride)).collect()
    }

    fn arrangement(inputs: &[*const u8], outputs: &[*const u8]) -> (bool, bool) {
        let arrangement = Arrangement::of(inputs, outputs);
        (arrangement.is_faster_descending(), arrangement.conflicts())
    }

    #[test]
    fn outputs_behind_the_data_are_written_descending() {
        for (k, m, len) in [(4, 2, 4 << 10), (10, 4, 16 << 10), (8, 8, 64 << 10), (32, 8, 64 << 10)] {
            let (first, stride) = (0x7f00_0000_0010, len + 16);
            let (inputs, outputs) = (blocks(k, first, stride), blocks(m, first + k * stride, stride));
            assert_eq!(arrangement(&inputs, &outputs), (true, true), "{k}+{m} of {len}");
            // Outputs before the data are written ascending.
            assert_eq!(arrangement(&outputs, &inputs), (false, false), "{k}+{m} of {len}");
        }
    }

    #[test]
    fn outputs_half_a_page_away_are_left_alone() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4010), blocks(4, 0x50800, 0x4010));
        assert_eq!(arrangement(&inputs, &outputs), (false, false));
    }

    /// Starts in consecutive lines: some outputs are behind some inputs, and some before.
    #[test]
    fn both_directions_can_collide() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4040), blocks(10, 0x90000, 0x4040));
        assert_eq!(arrangement(&inputs, &outputs), (false, true));
    }

    #[test]
    fn many_page_aligned_blocks_conflict() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4000), blocks(10, 0x90000, 0x4000));
        assert_eq!(arrangement(&inputs, &outputs), (false, true));
        assert_eq!(arrangement(&inputs, &outputs[..6]), (false, false));
        assert!(crowd(&outputs.repeat(2)) && !crowd(&outputs));
        assert!(!crowd(&blocks(16, 0x10000, 0x4010)), "four in a line");
        assert!(!crowd(&blocks(64, 0x10000, 0x4040)));
    }
}
