//! Constants of machine code that were chosen by measurement.

/// Minimum outputs for which loads wait for aliasing stores.
pub(crate) const MIN_OUTPUTS_ALIASING: usize = 3;

/// Minimum outputs for which inputs are read twice even from memory.
pub(crate) const MIN_OUTPUTS_IN_PASSES_IN_MEMORY: usize = 14;

/// [`PREFETCH_AHEAD`](super::PREFETCH_AHEAD) for packets, which are several times as many streams as blocks: all
/// prefetched lines that are not used yet must fit in the L1 cache.
pub(crate) const PACKET_PREFETCH_AHEAD: usize = 192;

/// [`PREFETCH_AHEAD`](crate::tuning::PREFETCH_AHEAD) for loops that sign: the division state takes part of the L1
/// cache.
pub(crate) const SIGNING_PREFETCH_AHEAD: usize = 192;

/// Distance in lines at which a load no longer waits for a store.
pub(crate) const ALIASING_LINES: u32 = 16;

/// Minimum blocks for a set conflict: the ways of common L1 caches.
pub(crate) const MIN_CONFLICTING_BLOCKS: usize = 12;

/// Average number of blocks per start line above which sets conflict.
pub(crate) const MAX_BLOCKS_PER_LINE: usize = 4;

/// Maximum inputs for which inputs and outputs are prefetched together for unaligned outputs in the L2 cache.
pub(crate) const MAX_INPUTS_PREFETCHED_IN_L2: usize = 12;
