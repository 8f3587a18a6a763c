//! A set of equally long blocks at chosen addresses.

/// Blocks in one allocation, each starting on a 64-byte boundary.
///
/// Jerasure and GF-Complete want source and target aligned alike, and a comparison of speed wants
/// every library to work at the same kind of address.
pub(crate) struct Blocks {
    memory: Vec<u8>,
    start: usize,
    stride: usize,
    len: usize,
}

const LINE: usize = 64;

impl Blocks {
    /// `count` blocks of `len` zero bytes.
    pub(crate) fn zeroed(count: usize, len: usize) -> Self {
        // One more line between blocks, so that equal offsets of the blocks of a power-of-two
        // length do not all fall into the same set of the cache.
        let stride = len.next_multiple_of(LINE) + LINE;
        let memory = vec![0; count * stride + LINE];
        let start = memory.as_ptr().align_offset(LINE);
        Self { memory, start, stride, len }
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
        self.memory[self.start..].chunks_exact(self.stride).map(|chunk| &chunk[..self.len]).collect()
    }

    /// The blocks, to write.
    pub(crate) fn as_mut_slices(&mut self) -> Vec<&mut [u8]> {
        self.memory[self.start..].chunks_exact_mut(self.stride).map(|chunk| &mut chunk[..self.len]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Blocks;

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
}
