//! Tuning: cache sizes of this machine, the thresholds derived from them, and the constants that were chosen by
//! measurement.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(all(feature = "compiler", target_arch = "x86_64"))]
pub(crate) mod machine_code;

/// Prefetch distance of streamed inputs, in bytes.
pub(crate) const PREFETCH_AHEAD: usize = 512;

/// Prefetch distance of outputs for blocks in the L2 cache, in bytes: two cache lines.
pub(crate) const WRITE_AHEAD: usize = 128;

/// True if prefetching outputs pays: with fewer outputs the loads take most of the time.
pub(crate) const fn prefetching_outputs_pays(inputs: usize, outputs: usize) -> bool {
    inputs <= 3 * outputs
}

/// Points of Cauchy matrices below this get a table of inverses of their sums; all points of codes are below.
pub(crate) const MAX_INVERSE_TABLE: u64 = 1 << 18;

/// Products that one inversion costs in a field without logarithm tables (a low estimate).
pub(crate) const PRODUCTS_OF_INVERSION: u64 = 48;

/// Number of pairs of points from which products of distances are computed by three Walsh-Hadamard transforms.
pub(crate) const MIN_TRANSFORMED_PAIRS: usize = 1 << 22;

/// Largest ratio of the points of a coset to the points in use: beyond that, transforming the unused points costs too
/// much.
pub(crate) const MAX_COSET_SPARSITY: u64 = 4;

/// Bytes of each block that a plan processes before it is compiled. Compile time grows with the coefficients, run time
/// of the generic kernels with coefficients and length: after some hundred KiB both are equal, some tenths of a
/// millisecond for 10+4. A stripe with a new erasure pattern is repaired without compiling code that is used only once.
pub(crate) const COMPILE_AFTER_BYTES: usize = 512 << 10;

/// Largest plan, in coefficients, that is compiled on the calling thread: 30+3, with 90, took 0.7 ms, 45+8, with 360,
/// took 1.6 ms.
pub(crate) const MAX_FOREGROUND_COEFFICIENTS: usize = 160;

/// Capacity of the cache of compiled plans. The code of a plan takes some pages.
pub(crate) const MAX_CACHED_PLANS: usize = 256;

/// Largest matrix, in coefficients, that is compiled directly, and largest program, in products, of a factored larger
/// matrix.
pub(crate) const MAX_COMPILED_COEFFICIENTS: usize = 4096;

/// Largest matrix, in inputs and outputs, whose factors are tried for any number of coefficients: all blocks of a code
/// over GF(2^8).
pub(crate) const MAX_FACTORED_BLOCKS: usize = 256;

/// Maximum inputs of a program that also signs: it keeps eight or sixteen registers of each in the L1 cache.
pub(crate) const MAX_SIGNED_INPUTS: usize = 64;

/// Maximum inputs for which reading them twice costs less than storing to many blocks at a time.
pub(crate) const MAX_INPUTS_READ_TWICE: usize = 4;

/// Minimum outputs for which two passes over the inputs, each for half of the outputs, are considered.
pub(crate) const MIN_OUTPUTS_IN_PASSES: usize = 9;

/// (Maximum inputs, minimum outputs) for two passes if blocks alias or conflict in the L1 cache
/// (`kernel/collisions.rs`).
pub(crate) const PASSES_IF_CONFLICTING: [(usize, usize); 2] = [(8, MIN_OUTPUTS_IN_PASSES), (16, 14)];

/// Sharing of terms: limit of the pairs and triples examined in one search through a group, at some nanoseconds each;
/// the search stops there. 10+4 needs 18 000 of them with w = 4 and 184 000 with w = 8.
pub(crate) const SHARE_BUDGET: usize = 2_000_000;

/// Sharing of terms: a search that examined no more than this is repeated with the second weight of pairs.
pub(crate) const SHARE_SHORT_SEARCH: usize = 100_000;

/// Sharing of terms: number of triples among which the one with the rarest terms is selected.
pub(crate) const SHARE_WINDOW: usize = 1000;

/// Sharing of terms: maximum terms for the search of triples, of which there are n³ / 6.
pub(crate) const MAX_TERMS_FOR_TRIPLES: usize = 200;

/// Sharing of terms: extra weights of a pair, in quarters of an instruction, for each odd sum that contains it: it
/// makes the sum even, so that the next pair saves an instruction. Neither value is better for all shapes.
pub(crate) const SHARE_ODD_WEIGHTS: [usize; 2] = [1, 0];

/// Registers of the interpreter, enough to avoid most spills; both registers and slots are in the L1 cache.
pub(crate) const INTERPRETED_REGISTERS: usize = 24;

/// Maximum number of strays: inputs of a transform that are multiplied one by one.
pub(crate) const MAX_STRAYS: usize = 4;

/// Direct products of coefficients in the time of one product of a transform. GF(2^16): 3.0 ns each for 128 bytes while
/// their prepared maps fit in a cache, 8 beyond that, against 4.7. GF(2^8), 30 x 30: 1.2 cycles each for 64 bytes
/// against 2.2, from L3 1.7 against 3.2.
pub(crate) const COEFFICIENTS_PER_PRODUCT: usize = 2;

/// The same over GF(2^8) if several cosets are summed: loads and stores outweigh multiplications. Factors of 64+16 and
/// 128+32 at 64 KiB: 0.65 and 0.86 µs each against 2.7 and 2.5.
pub(crate) const COEFFICIENTS_PER_PRODUCT_OF_SUMS: usize = 4;

/// Minimum coefficients of a matrix over GF(2^8) for which transforms are considered: 16 x 16 take 96 products by
/// transforms, and smaller ones with few outputs gain nothing.
pub(crate) const MIN_TRANSFORMED_COEFFICIENTS: usize = 256;

/// Largest matrix, in coefficients, that is multiplied directly if there is another way: the prepared maps take 32 or
/// 128 bytes per coefficient.
pub(crate) const MAX_PREPARED_COEFFICIENTS: usize = 1 << 20;

/// Bytes of all rows between two factors: they fit in the L2 cache beside a work buffer.
pub(crate) const FACTOR_ROWS_BYTES: usize = 512 << 10;

/// Minimum and maximum bytes of a row between two factors.
pub(crate) const FACTOR_ROW_PART: (usize, usize) = (1 << 10, 16 << 10);

/// Largest work buffer of a transform for which tiles are widened, in bytes: an L2 cache. A second buffer beyond that
/// affects the last levels only.
pub(crate) const TRANSFORM_BUFFER_BYTES: usize = 2 << 20;

/// Prefetch distance of transforms in blocks, each of which is on a page of its own.
pub(crate) const TRANSFORM_PREFETCH_BLOCKS: usize = 16;

/// Tile of a register of the interpreter, in bytes: 24 registers and as many spill slots fit in the L1 cache.
pub(crate) const INTERPRETER_TILE: usize = 512;

/// Bytes of every packet per pass over the rows of a bit matrix, so that the inputs of a group are still in cache for
/// the next row.
pub(crate) const PACKET_TILE: usize = 2 << 10;

/// Fraction of the speed of the fastest kernel set from which another one counts as equally fast.
pub(crate) const EQUAL_SPEED: f64 = 0.8;

/// Minimum bytes of inputs and outputs together per thread: waking a sleeping thread costs the caller about the time
/// for coding this much.
pub(crate) const MIN_BYTES_PER_THREAD: usize = 128 << 10;

/// Alignment of the ranges of threads, so that they share no page: hardware prefetchers stop at the page boundary and
/// would otherwise take lines from the other core's cache.
pub(crate) const RANGE_ALIGNMENT: usize = 4096;

/// Number of blocks from which a finer alignment is used: kernels read only some lines of each block at a time. Such
/// blocks are often short.
pub(crate) const MANY_BLOCKS: usize = 2048;

/// Alignment of ranges for that many blocks.
pub(crate) const RANGE_ALIGNMENT_OF_MANY: usize = 256;

/// Bytes of inputs and outputs together that a core codes while a part is handed to a worker and its completion is
/// reported back. The caller's range is longer by about this much.
pub(crate) const HANDOVER_BYTES: usize = 48 << 10;

/// Time that a thread spins for work, or for the end of a call, before it sleeps: a few calls. Longer would waste the
/// core.
pub(crate) const SPIN_TIME: Duration = Duration::from_micros(50);

/// Timeout after which a worker that goes to sleep checks once more for work.
pub(crate) const RECHECK_AFTER: Duration = Duration::from_millis(1);

/// Largest stripe, in bytes of sources, that is repaired directly: larger blocks come from memory, and planning costs
/// little compared to the pass.
pub(crate) const MAX_DIRECT_BYTES: usize = 4 << 20;

/// After 8 consecutive small stripes with the same erasure pattern a plan is compiled; this is the mask of the counter.
/// A plan costs as much as a few direct repairs.
pub(crate) const REPEAT_MASK: u64 = 7;

/// Largest block, in bytes, for which a repair by transforms gets a plan only after repetition. Until then it has
/// processed about as many bytes as the compilation threshold; a plan for larger blocks would be compiled by then.
pub(crate) const MAX_TRANSFORMED_BLOCK: usize = 64 << 10;

/// Bytes of a block per tile when signing in tiles: some pages, so that hardware prefetchers detect the stream; not
/// many, so that the tiles of a wide code stay in the cache.
pub(crate) const SIGN_TILE: usize = 16 << 10;

/// Minimum bytes of a block for dividing in the coding pass: computing a signature from the division state takes some
/// microseconds. Measured for blocks in memory, such as those of files; blocks in the L2 cache are signed faster in
/// tiles.
pub(crate) const MIN_DIVIDED_BYTES: usize = 32 << 10;

/// Sizes of the private caches of one core, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// L1 data cache.
    pub l1: usize,
    /// L2 cache.
    pub l2: usize,
}

/// Used if the system does not report caches: the minimum of most cores of the last ten years.
const USUAL: Caches = Caches { l1: 32 << 10, l2: 1 << 20 };

/// Directory in which Linux describes the caches of the first core.
const SYSTEM: &str = "/sys/devices/system/cpu/cpu0/cache";

impl Caches {
    /// Caches described in a directory with the format of Linux; the default size for a missing one.
    fn described_in(directory: &Path) -> Caches {
        let mut caches = USUAL;
        for index in 0..8 {
            let read = |name: &str| {
                let text = fs::read_to_string(directory.join(format!("index{index}")).join(name)).ok()?;
                Some(text.trim().to_owned())
            };
            let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else {
                continue;
            };
            match (level.as_str(), kind.as_str(), bytes_of(&size)) {
                ("1", "Data" | "Unified", Some(bytes)) => caches.l1 = bytes,
                ("2", "Data" | "Unified", Some(bytes)) => caches.l2 = bytes,
                _ => {}
            }
        }
        caches
    }
}

/// Parses `48K`, `2048K` or `2M` to bytes; `None` for zero and for other text.
fn bytes_of(size: &str) -> Option<usize> {
    let (number, unit) = match size.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => (size.strip_suffix('M')?, 1 << 20),
    };
    number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// Thresholds of kernels that depend on the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of inputs and outputs together from which outputs are written with non-temporal stores.
    pub stream_bytes: usize,
    /// Bytes of inputs and outputs together below which all blocks stay in L1.
    pub near_bytes: usize,
    /// Bytes of all inputs per tile: the generic kernels compute all groups of outputs for a tile before the next one.
    pub input_tile_bytes: usize,
}

impl Tuning {
    /// Thresholds for a core with these caches.
    ///
    /// Outputs of twice L2 are evicted before the call ends; from there on non-temporal stores were faster in every
    /// measurement. A tile of a quarter of L2 leaves space for outputs and prefetched lines. Blocks that fill all of L1
    /// do not stay there: the stack and the list of blocks need some of it.
    pub const fn for_caches(caches: Caches) -> Tuning {
        Tuning {
            stream_bytes: caches.l2.saturating_mul(2),
            near_bytes: caches.l1 - caches.l1 / 16,
            input_tile_bytes: caches.l2 / 4,
        }
    }

    /// True if outputs are prefetched: the blocks together exceed L1, and are below the size of non-temporal stores.
    pub(crate) fn prefetches_outputs(&self, inputs: usize, outputs: usize, len: usize) -> bool {
        let bytes = len.saturating_mul(inputs + outputs);
        prefetching_outputs_pays(inputs, outputs) && (self.near_bytes..self.stream_bytes).contains(&bytes)
    }

    /// Thresholds of this machine, determined once.
    pub fn of_machine() -> &'static Tuning {
        static TUNING: OnceLock<Tuning> = OnceLock::new();
        TUNING.get_or_init(|| Tuning::for_caches(Caches::described_in(Path::new(SYSTEM))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_follow_the_caches() {
        // The machine of the measurements.
        let measured = Tuning::for_caches(Caches { l1: 48 << 10, l2: 2 << 20 });
        let wanted = Tuning { stream_bytes: 4 << 20, near_bytes: 45 << 10, input_tile_bytes: 512 << 10 };
        assert_eq!(measured, wanted);
        let small = Tuning::for_caches(Caches { l1: 16 << 10, l2: 256 << 10 });
        let wanted = Tuning { stream_bytes: 512 << 10, near_bytes: 15 << 10, input_tile_bytes: 64 << 10 };
        assert_eq!(small, wanted);
        let large = Tuning::for_caches(Caches { l1: 128 << 10, l2: 16 << 20 });
        assert_eq!(large.stream_bytes, 32 << 20);
    }

    #[test]
    fn cache_sizes_are_parsed_or_refused() {
        assert_eq!(bytes_of("48K"), Some(48 << 10));
        assert_eq!(bytes_of("2M"), Some(2 << 20));
        for nonsense in ["", "K", "0K", "48", "-1K", "99999999999999999999K", "48KiB"] {
            assert_eq!(bytes_of(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_cache_directory_is_parsed() {
        let directory = std::env::temp_dir().join(format!("gabion-caches-{}", std::process::id()));
        for (index, (level, kind, size)) in [
            ("1", "Data", "64K"),
            ("1", "Instruction", "32K"),
            ("2", "Unified", "512K"),
            ("3", "Unified", "8M"),
        ]
        .into_iter()
        .enumerate()
        {
            let cache = directory.join(format!("index{index}"));
            fs::create_dir_all(&cache).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(cache.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = Caches::described_in(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, Caches { l1: 64 << 10, l2: 512 << 10 });
        assert_eq!(Caches::described_in(&directory), USUAL, "nothing is described there any more");
    }
}
