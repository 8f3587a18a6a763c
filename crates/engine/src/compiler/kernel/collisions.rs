//! Blocks that lie badly to each other, though none overlaps another: by their places within pages.
//!
//! **Loads wait for stores they have nothing to do with.** Before it may read, a load is compared with the stores that
//! are still on their way, by the last twelve bits of their addresses. One that seems to be the load's own makes it
//! wait, though it may be pages away. Say an output begins `d` bytes behind an input, counted within a page: a loop
//! that goes up reads `d` bytes later what seems to have been stored just now, and if that is soon, every turn waits
//! for the one before it. Blocks that an allocator laid one after another, data first, all lie so, each output some
//! multiples of 16 bytes behind each input. A loop that goes down meets them a page less `d` bytes later, when the
//! stores are long done.
//!
//! **Blocks compete for the same lines of the L1 cache**, which a place within a page decides, too. More blocks that
//! begin in the same place than a set has lines push each other out before they are used up, wherever else there is
//! room. Several passes need fewer lines at a time.

/// Bytes of a line. Whole lines are near enough: those of a page are the bits of a number.
const LINE: usize = 64;

/// A load this many lines after a store does not wait for it any more.
const FAR_ENOUGH: u32 = 16;

/// Blocks from which there may be too many for a set: those that L1 caches have in one.
const CROWD: usize = 12;

/// More blocks than this that begin with the same line of their pages crowd it.
const MOST_PER_LINE: usize = 4;

/// Which line of its page a block begins in.
fn line(block: *const u8) -> u32 {
    (block.addr() / LINE) as u32 % u64::BITS
}

fn lines(blocks: &[*const u8]) -> u64 {
    blocks.iter().fold(0, |lines, &block| lines | 1 << line(block))
}

/// How the inputs and outputs of a call lie to each other.
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
        // Bit n: some input begins n lines behind some output, within a page. In the same line they do not collide:
        // loads of a turn stand before its stores.
        let behind = outputs.iter().fold(0, |lines, &output| lines | read.rotate_right(line(output))) & !1;
        Arrangement {
            collides_ascending: behind.leading_zeros() + 1 < FAR_ENOUGH,
            collides_descending: behind.trailing_zeros() < FAR_ENOUGH,
            crowds: crowds(read | lines(outputs), inputs.len() + outputs.len()),
        }
    }

    /// Whether going down is all that is needed.
    pub(super) fn is_faster_descending(self) -> bool {
        self.collides_ascending && !self.collides_descending
    }

    /// Whether several passes that go down are better than one that goes up.
    pub(super) fn conflicts(self) -> bool {
        self.collides_ascending || self.crowds
    }
}

/// Whether blocks that stay in the L1 cache by their bytes do not by their places.
#[inline]
pub(super) fn crowd(blocks: &[*const u8]) -> bool {
    crowds(lines(blocks), blocks.len())
}

/// Whether these are few lines for so many blocks.
fn crowds(lines: u64, blocks: usize) -> bool {
    blocks >= CROWD && lines.count_ones() as usize * MOST_PER_LINE < blocks
}

#[cfg(test)]
mod tests {
    use super::{Arrangement, crowd};
    use std::ptr::without_provenance;

    /// So many blocks, the first at an address and each so many bytes behind the one before.
    fn blocks(count: usize, first: usize, stride: usize) -> Vec<*const u8> {
        (0..count).map(|index| without_provenance(first + index * stride)).collect()
    }

    fn arrangement(inputs: &[*const u8], outputs: &[*const u8]) -> (bool, bool) {
        let arrangement = Arrangement::of(inputs, outputs);
        (arrangement.is_faster_descending(), arrangement.conflicts())
    }

    #[test]
    fn outputs_behind_the_data_are_better_written_downwards() {
        for (k, m, len) in [(4, 2, 4 << 10), (10, 4, 16 << 10), (8, 8, 64 << 10), (32, 8, 64 << 10)] {
            let (first, stride) = (0x7f00_0000_0010, len + 16);
            let (inputs, outputs) = (blocks(k, first, stride), blocks(m, first + k * stride, stride));
            assert_eq!(arrangement(&inputs, &outputs), (true, true), "{k}+{m} of {len}");
            // And what lies before the data upwards.
            assert_eq!(arrangement(&outputs, &inputs), (false, false), "{k}+{m} of {len}");
        }
    }

    #[test]
    fn outputs_half_a_page_away_are_left_alone() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4010), blocks(4, 0x50800, 0x4010));
        assert_eq!(arrangement(&inputs, &outputs), (false, false));
    }

    /// One line after another from the same place on: some outputs are behind some inputs, and some before.
    #[test]
    fn both_directions_can_collide() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4040), blocks(10, 0x90000, 0x4040));
        assert_eq!(arrangement(&inputs, &outputs), (false, true));
    }

    #[test]
    fn many_blocks_that_begin_with_pages_crowd() {
        let (inputs, outputs) = (blocks(5, 0x10000, 0x4000), blocks(10, 0x90000, 0x4000));
        assert_eq!(arrangement(&inputs, &outputs), (false, true));
        assert_eq!(arrangement(&inputs, &outputs[..6]), (false, false));
        assert!(crowd(&outputs.repeat(2)) && !crowd(&outputs));
        assert!(!crowd(&blocks(16, 0x10000, 0x4010)), "four in a line");
        assert!(!crowd(&blocks(64, 0x10000, 0x4040)));
    }
}
