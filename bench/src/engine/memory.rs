//! Memory of all cases, allocated once so that page faults happen once and not per case.

use super::BenchError;
use gabion_engine::conformance::TestRng;

const LINE: usize = 64;

/// Memory that every case divides into its own blocks.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Vec<u8>,
}

/// Bytes that can be allocated without swapping, if the system reports them.
pub fn available_memory() -> Option<u64> {
    meminfo("MemAvailable")
}

/// Value of a field of /proc/meminfo in bytes.
pub fn meminfo(name: &str) -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes =
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.strip_suffix("kB"))?;
    kibibytes.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// One more cache line between blocks: without it, equal offsets of blocks whose length is a power of two would fall
/// into the same set of a cache.
fn stride(block: usize) -> Option<usize> {
    block.checked_next_multiple_of(LINE)?.checked_add(LINE)
}

impl Memory {
    /// Memory for the largest of several (number of blocks, bytes of a block).
    pub(crate) fn for_most(needs: impl Iterator<Item = (usize, usize)>) -> Result<Memory, BenchError> {
        let sizes = needs.map(|(count, block)| stride(block)?.checked_mul(count)?.checked_add(LINE));
        let most = sizes.reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(0)).unwrap_or(usize::MAX);
        let refused = BenchError::Memory { bytes: most };
        // Linux overcommits memory and kills a process that uses it.
        if available_memory().is_some_and(|available| most as u64 > available) {
            return Err(refused);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(most).map_err(|_| refused)?;
        bytes.resize(most, 0);
        Ok(Memory { bytes })
    }

    /// `count` blocks, on cache lines or at different odd offsets. The first `filled` hold pseudo-random bytes, the
    /// others their old content.
    pub(crate) fn blocks(
        &mut self,
        count: usize,
        block: usize,
        filled: usize,
        unaligned: bool,
    ) -> Vec<&mut [u8]> {
        let stride = stride(block).expect("for_most has computed the same");
        let start = self.bytes.as_ptr().align_offset(LINE);
        let chunks = self.bytes[start..].chunks_exact_mut(stride).take(count);
        // The line between blocks leaves space for the shift.
        let shift = |index: usize| if unaligned { (2 * index + 1) % LINE } else { 0 };
        let shifted = chunks.enumerate().map(|(index, chunk)| &mut chunk[shift(index)..][..block]);
        let mut blocks: Vec<&mut [u8]> = shifted.collect();
        assert_eq!(blocks.len(), count, "for_most was asked for this many");
        blocks
            .iter_mut()
            .take(filled)
            .enumerate()
            .for_each(|(index, block)| fill_random(index as u64, block));
        blocks
    }
}

/// Fills a block with pseudo-random bytes, the same in every run.
pub(crate) fn fill_random(seed: u64, block: &mut [u8]) {
    // Neighbouring seeds would give the same stream, shifted.
    TestRng(seed.wrapping_mul(0xd134_2543_de82_ef95)).fill(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_differ() {
        let needs = [(3, 100), (2, 4096), (5, 64)];
        let mut memory = Memory::for_most(needs.into_iter()).unwrap();
        for (count, len) in needs {
            let blocks = memory.blocks(count, len, count, false);
            assert!(blocks.iter().all(|block| block.len() == len && block.as_ptr().align_offset(LINE) == 0));
            assert!(blocks.windows(2).all(|pair| pair[0] != pair[1]));
            let blocks = memory.blocks(count, len, count, true);
            assert!(blocks.iter().all(|block| block.len() == len && block.as_ptr().addr() % 2 == 1));
        }
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        // More than can be addressed, and more than is available.
        let mut blocks = vec![(30, usize::MAX / 32)];
        blocks.extend(available_memory().map(|available| (2, available as usize)));
        for most in blocks {
            let error = Memory::for_most([most].into_iter()).unwrap_err();
            assert!(matches!(error, BenchError::Memory { .. }), "{most:?}");
        }
    }
}
