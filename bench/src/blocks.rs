//! A set of equally long blocks at chosen addresses.

/// Where in a cache line blocks begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// At its start. Jerasure and GF-Complete want source and target aligned alike.
    Aligned,
    /// Each block at another odd place.
    Odd,
}

const LINE: usize = 64;

impl Placement {
    fn shift(self, index: usize) -> usize {
        match self {
            Placement::Aligned => 0,
            Placement::Odd => (2 * index + 1) % LINE,
        }
    }
}

/// One more line between blocks, so that equal offsets of the blocks of a power-of-two length do not
/// all fall into the same set of the cache; it is also the room that odd places need.
pub(crate) fn stride(len: usize) -> usize {
    len.next_multiple_of(LINE) + LINE
}

/// Memory that is cut into blocks anew for every race, so that pages are faulted in once.
pub(crate) struct Arena {
    memory: Vec<u8>,
    start: usize,
}

impl Arena {
    /// Room for `count` blocks of `len` bytes, zeros.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        let memory = vec![0; count * stride(len) + LINE];
        let start = memory.as_ptr().align_offset(LINE);
        Self { memory, start }
    }

    /// The same, filled with bytes that look random.
    pub(crate) fn painted(name: &str, count: usize, len: usize) -> Self {
        let mut arena = Self::zeroed(count, len);
        crate::painted::fill(name, &mut arena.memory);
        arena
    }

    /// The first `count` blocks, to read. `first` is the number of the first one, for its odd place.
    pub(crate) fn cut(&self, count: usize, len: usize, placement: Placement, first: usize) -> Vec<&[u8]> {
        let chunks = self.memory[self.start..].chunks_exact(stride(len)).take(count).enumerate();
        let blocks: Vec<_> =
            chunks.map(|(index, chunk)| &chunk[placement.shift(first + index)..][..len]).collect();
        assert_eq!(blocks.len(), count, "the arena was made for more");
        blocks
    }

    /// The first `count` blocks, to write.
    pub(crate) fn cut_mut(
        &mut self,
        count: usize,
        len: usize,
        placement: Placement,
        first: usize,
    ) -> Vec<&mut [u8]> {
        let chunks = self.memory[self.start..].chunks_exact_mut(stride(len)).take(count).enumerate();
        let blocks: Vec<_> =
            chunks.map(|(index, chunk)| &mut chunk[placement.shift(first + index)..][..len]).collect();
        assert_eq!(blocks.len(), count, "the arena was made for more");
        blocks
    }
}

/// Blocks in one allocation, each starting on a 64-byte boundary.
pub(crate) struct Blocks {
    arena: Arena,
    count: usize,
    len: usize,
}

impl Blocks {
    /// `count` blocks of `len` zero bytes.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        Self { arena: Arena::zeroed(count, len), count, len }
    }

    /// `count` blocks of `len` bytes, painted after `name`.
    pub(crate) fn painted(name: &str, count: usize, len: usize) -> Self {
        let mut blocks = Self::zeroed(count, len);
        for (index, block) in blocks.as_mut_slices().into_iter().enumerate() {
            crate::painted::fill(&format!("{name}/{index}"), block);
        }
        blocks
    }

    /// The blocks, to read.
    pub(crate) fn as_slices(&self) -> Vec<&[u8]> {
        self.arena.cut(self.count, self.len, Placement::Aligned, 0)
    }

    /// The blocks, to write.
    pub(crate) fn as_mut_slices(&mut self) -> Vec<&mut [u8]> {
        self.arena.cut_mut(self.count, self.len, Placement::Aligned, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, Blocks, Placement};

    #[test]
    fn as_many_aligned_blocks_as_asked_for() {
        for (count, len) in [(1, 1), (3, 63), (14, 64), (7, 65), (2, 4096)] {
            let mut blocks = Blocks::zeroed(count, len);
            assert_eq!(blocks.as_slices().len(), count);
            for block in blocks.as_mut_slices() {
                assert_eq!(block.len(), len);
                assert_eq!(block.as_ptr().align_offset(64), 0);
            }
        }
    }

    #[test]
    fn odd_places_are_odd_and_differ() {
        let mut arena = Arena::painted("odd", 40, 100);
        for first in [0, 7] {
            let place = |block: &[u8]| block.as_ptr().addr() % 64;
            let places: Vec<usize> =
                arena.cut(40, 100, Placement::Odd, first).into_iter().map(place).collect();
            assert!(places.iter().all(|place| place % 2 == 1));
            assert!(places.windows(2).all(|pair| pair[0] != pair[1]));
            assert_eq!(places[0], 2 * first + 1);
        }
        assert!(arena.cut_mut(40, 100, Placement::Odd, 0).iter().all(|block| block.len() == 100));
    }
}
