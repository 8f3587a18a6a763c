//! One piece of memory for all cases, so that pages are faulted in once and not once per case.

use super::BenchError;
use gabion_engine::conformance::TestRng;

const LINE: usize = 64;

/// Memory that is cut into blocks anew for every case.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Vec<u8>,
}

/// Bytes that programs can get without others being pushed out, where the system tells.
pub fn available_memory() -> Option<u64> {
    memory_told_as("MemAvailable")
}

/// Bytes that the system tells by this name.
pub fn memory_told_as(name: &str) -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes =
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.strip_suffix("kB"))?;
    kibibytes.trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// One more line between blocks: equal places of blocks whose length is a power of two would otherwise
/// all fall into the same set of the cache.
fn stride(block: usize) -> Option<usize> {
    block.checked_next_multiple_of(LINE)?.checked_add(LINE)
}

impl Memory {
    /// Room for whatever is the most of (blocks, bytes of a block).
    pub(super) fn for_most(needs: impl Iterator<Item = (usize, usize)>) -> Result<Memory, BenchError> {
        let sizes = needs.map(|(count, block)| stride(block)?.checked_mul(count)?.checked_add(LINE));
        let most = sizes.reduce(|a, b| Some(a?.max(b?))).unwrap_or(Some(0)).unwrap_or(usize::MAX);
        let refused = BenchError::Memory { bytes: most };
        // Linux promises more than it has, and ends a process that takes it at its word.
        if available_memory().is_some_and(|available| most as u64 > available) {
            return Err(refused);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(most).map_err(|_| refused)?;
        bytes.resize(most, 0);
        Ok(Memory { bytes })
    }

    /// `count` blocks, on cache lines or each at another odd place of one; `painted` of them hold bytes that look
    /// random, the others what was there.
    pub(super) fn blocks(
        &mut self,
        count: usize,
        block: usize,
        painted: usize,
        unaligned: bool,
    ) -> Vec<&mut [u8]> {
        let stride = stride(block).expect("for_most has computed the same");
        let start = self.bytes.as_ptr().align_offset(LINE);
        let chunks = self.bytes[start..].chunks_exact_mut(stride).take(count);
        // The line between blocks has room for the shift.
        let shift = |index: usize| if unaligned { (2 * index + 1) % LINE } else { 0 };
        let shifted = chunks.enumerate().map(|(index, chunk)| &mut chunk[shift(index)..][..block]);
        let mut blocks: Vec<&mut [u8]> = shifted.collect();
        assert_eq!(blocks.len(), count, "for_most was asked for this many");
        blocks.iter_mut().take(painted).enumerate().for_each(|(index, block)| paint(index as u64, block));
        blocks
    }
}

/// The same bytes in every run.
pub(super) fn paint(seed: u64, block: &mut [u8]) {
    // Far apart, or neighbouring seeds would give one stream, shifted.
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
        // More than can be addressed, and what may be promised, but is not there.
        let mut blocks = vec![(30, usize::MAX / 32)];
        blocks.extend(available_memory().map(|available| (2, available as usize)));
        for most in blocks {
            let error = Memory::for_most([most].into_iter()).unwrap_err();
            assert!(matches!(error, BenchError::Memory { .. }), "{most:?}");
        }
    }
}
