//! A set of equally long blocks at chosen addresses.

/// Placement of blocks in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Each at another cache line of a page. Jerasure and GF-Complete need equal alignment of source and target.
    Aligned,
    /// The same, each at another odd offset in its line.
    Odd,
    /// As an allocator places them: one after another with a header before each, outputs behind the data.
    Rows,
    /// Each at the start of a page, as large allocations are.
    Pages,
}

const LINE: usize = 64;
pub(crate) const PAGE: usize = 4096;
/// Header of an allocation, and alignment of blocks.
const HEADER: usize = 16;

impl Placement {
    pub(crate) const ALL: [Placement; 4] =
        [Placement::Aligned, Placement::Odd, Placement::Rows, Placement::Pages];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Placement::Aligned => "aligned",
            Placement::Odd => "unaligned",
            Placement::Rows => "rows",
            Placement::Pages => "pages",
        }
    }

    /// From one block to the next. A line more than their length, so that equal offsets of the blocks of a power-of-two
    /// length do not all fall into the same set of the cache, unless that is wanted; it is also the room that odd
    /// places need.
    fn stride(self, len: usize) -> usize {
        match self {
            Placement::Aligned | Placement::Odd => len.next_multiple_of(LINE) + LINE,
            Placement::Rows => len.next_multiple_of(HEADER) + HEADER,
            Placement::Pages => len.next_multiple_of(PAGE),
        }
    }

    /// Where in some memory the first of some blocks lies that is number `first` of all.
    fn start(self, memory: &[u8], first: usize, len: usize) -> usize {
        let page = memory.as_ptr().align_offset(PAGE);
        match self {
            Placement::Aligned | Placement::Odd => memory.as_ptr().align_offset(LINE),
            Placement::Pages => page,
            Placement::Rows => page + first * self.stride(len) % PAGE,
        }
    }

    fn shift(self, index: usize) -> usize {
        match self {
            Placement::Aligned | Placement::Rows | Placement::Pages => 0,
            Placement::Odd => (2 * index + 1) % LINE,
        }
    }
}

/// Bytes reserved for a block in any placement.
pub(crate) fn room(len: usize) -> usize {
    len.next_multiple_of(PAGE) + LINE
}

/// Memory that every race divides into its own blocks, so that page faults happen once.
pub(crate) struct Arena(Vec<u8>);

impl Arena {
    /// Memory for `count` blocks of `len` bytes, zeros.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        Self(vec![0; count * room(len) + 2 * PAGE])
    }

    /// The same, filled with pseudo-random bytes.
    pub(crate) fn pseudo_random(name: &str, count: usize, len: usize) -> Self {
        let mut arena = Self::zeroed(count, len);
        crate::pseudo_random::fill(name, &mut arena.0);
        arena
    }

    /// The first `count` blocks, to read. `first` is the number of the first one among all blocks of a race.
    pub(crate) fn cut(&self, count: usize, len: usize, placement: Placement, first: usize) -> Vec<&[u8]> {
        let memory = &self.0[placement.start(&self.0, first, len)..];
        let chunks = memory.chunks(placement.stride(len)).take(count).enumerate();
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
        let start = placement.start(&self.0, first, len);
        let memory = &mut self.0[start..];
        let chunks = memory.chunks_mut(placement.stride(len)).take(count).enumerate();
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

    /// `count` blocks of `len` pseudo-random bytes that depend on `name`.
    pub(crate) fn pseudo_random(name: &str, count: usize, len: usize) -> Self {
        let mut blocks = Self::zeroed(count, len);
        for (index, block) in blocks.as_mut_slices().into_iter().enumerate() {
            crate::pseudo_random::fill(&format!("{name}/{index}"), block);
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
        let mut arena = Arena::pseudo_random("odd", 40, 100);
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

    /// Outputs in memory of their own have the same offsets in pages as if they followed the data.
    #[test]
    fn rows_follow_each_other_and_pages_begin_alike() {
        let len = 16 << 10;
        let places = |arena: &Arena, count, placement, first| {
            let blocks = arena.cut(count, len, placement, first);
            blocks.iter().map(|block| block.as_ptr().addr() % 4096).collect::<Vec<_>>()
        };
        let (data, outputs) = (Arena::zeroed(10, len), Arena::zeroed(4, len));
        let mut rows = places(&data, 10, Placement::Rows, 0);
        rows.extend(places(&outputs, 4, Placement::Rows, 10));
        assert_eq!(rows, (0..14).map(|index| 16 * index).collect::<Vec<_>>());
        assert_eq!(places(&outputs, 4, Placement::Pages, 10), [0; 4]);
    }
}
