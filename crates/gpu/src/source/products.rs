//! Tensor-core kernel for all plans, with the matrix as data: additions are counts of ones.
//!
//! NVIDIA's GPUs of compute capability 9.0 multiply matrices of bits: for a position and a row of the matrix they count
//! the bits that are set in both (`wgmma … b1 … and.popc`). The lowest bit of the count is the sum over GF(2). Each
//! thread transposes its inputs, to bring the bits of one position together, and collects the lowest bits of the counts
//! afterwards: about 1.25 operations per bit of an output, for any number of inputs. So this kernel is for plans with
//! many inputs and outputs, whose unrolled code exceeds the instruction cache; and, since one text is used for all
//! plans of a layout, for plans that do not pay to compile.
//!
//! The texts are in `products/*.cu`, with a description of the operand layout of the hardware.

use super::{Counts, ENTRY, Launch, Source};
use crate::shape::Shape;
use gabion_engine::Mode;
use gabion_engine::matrix::bits::BitMatrix;
use std::fmt::Write;

const COUNTS: &str = include_str!("products/counts.cu");
const WORDS: &str = include_str!("products/words.cu");
const PACKETS: &str = include_str!("products/packets.cu");

/// The compute capability with these instructions. Others have none, or different ones.
pub const CAPABILITY: (i32, i32) = (9, 0);

/// Four warps, as required by the instruction.
const THREADS: usize = 128;

/// Input bits per instruction: two halves, each distributed over the threads.
const SLAB: usize = 256;

/// Bits of a word.
const WORD: usize = 32;

/// Output rows per instruction.
const ROWS: usize = 64;

/// Tiles of data per block, so that the matrix is fetched once for all of them. With this, a thread covers as many
/// columns of packets as in the other kernels.
const ROUNDS: usize = 4;

/// Largest matrix, in bytes, that a block keeps in shared memory; tiles of a larger one are fetched when needed.
const KEPT: usize = 16 << 10;

/// Words of a slab in a tile of the matrix.
const SLAB_WORDS: usize = ROWS * SLAB / 32;

/// True if this kernel supports plans of this shape.
pub fn suits(shape: &Shape) -> bool {
    shape.packet_words.is_some() || shape.w == 8
}

/// Partition of a plan.
struct Cut {
    /// Slabs per multiplication.
    slabs: usize,
    /// Halves of slabs in use; the other half of a slab is zero for few inputs.
    halves: usize,
    /// Rows of inputs per word of a half: 32, or fewer if all rows are in one half.
    share: usize,
    /// Number of such multiplications over the inputs.
    chunks: usize,
    /// Number of passes of [`ROWS`] rows of outputs.
    passes: usize,
}

impl Cut {
    fn of(shape: &Shape) -> Cut {
        let rows = shape.inputs * shape.w;
        let slabs = rows.div_ceil(SLAB).clamp(1, 2);
        let halves = if rows <= SLAB / 2 { 1 } else { 2 * slabs };
        // Without inputs, outputs are still written as zero.
        let chunks = rows.div_ceil(SLAB * slabs).max(1);
        // Four threads hold the bits of a position. Rows are transposed eight at a time, and each share length has its
        // own text.
        let share = match shape.packet_words {
            Some(_) if halves == 1 => rows.div_ceil(4).next_multiple_of(8).max(8),
            _ => WORD,
        };
        Cut { slabs, halves, share, chunks, passes: (shape.outputs * shape.w).div_ceil(ROWS) }
    }

    /// Resident blocks per multiprocessor, by the registers of a thread.
    fn blocks(&self, shape: &Shape) -> usize {
        match (shape.packet_words.is_some(), self.slabs) {
            (false, 1) => 5,
            (false, _) => 4,
            (true, 1) => 3,
            (true, _) => 2,
        }
    }
}

/// Operations of a thread per 32 positions: collecting output bits, transposing inputs.
pub fn operations(shape: &Shape) -> usize {
    let Cut { halves, chunks, passes, .. } = Cut::of(shape);
    let turning = if shape.packet_words.is_some() { 8 } else { 2 };
    chunks * (passes * ROWS * 32 * 5 / 4 + halves * SLAB / 2 * turning)
}

/// Writes the kernel. The numbers of inputs and outputs in `shape` affect only the number of halves of slabs.
pub fn source(shape: &Shape) -> Source {
    let cut = Cut::of(shape);
    let mut text = String::new();
    let mut define = |name: &str, value: usize| {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "#define {name} {value}u");
    };
    define("SLABS", cut.slabs);
    define("HALVES", cut.halves);
    define("TILES", KEPT / (4 * SLAB_WORDS * cut.slabs));
    define("ROUNDS", ROUNDS);
    define("BLOCKS", cut.blocks(shape));
    define("ADD", usize::from(shape.mode == Mode::Add));
    define("W", shape.w);
    define("SHARE", cut.share);
    if let Some(words) = shape.packet_words {
        define("PACKET_WORDS", words);
    }
    text += COUNTS;
    text += if shape.packet_words.is_some() { PACKETS } else { WORDS };
    debug_assert!(text.contains(&format!(" {ENTRY}(")));
    let bytes_per_thread = match shape.packet_words {
        // 32 columns of words of every row for 128 threads, and that in every round.
        Some(_) => shape.w * ROUNDS,
        None => 4 * ROUNDS,
    };
    let operations = operations(shape) * bytes_per_thread / (4 * shape.w);
    let counts = Counts {
        additions: operations,
        transposing: 0,
        loaded: shape.inputs * bytes_per_thread / 4,
        stored: shape.outputs * bytes_per_thread / 4,
    };
    Source { text, launch: Launch { threads: THREADS, passes: 1, bytes_per_thread }, counts }
}

/// The output bit row of a column of a pass's tile. A thread gets two adjacent columns out of every eight: in the words
/// layout these are the eight bits of one output, then those of another.
fn row_of(shape: &Shape, pass: usize, column: usize) -> usize {
    if shape.packet_words.is_some() {
        return pass * ROWS + column;
    }
    let (eight, thread, odd) = (column / 8, column % 8 / 2, column % 2);
    let output = pass * ROWS / 8 + eight / 4 * 4 + thread;
    output * 8 + 2 * (eight % 4) + odd
}

/// Word and bit index of a bit in a slab of a tile.
const fn place_of(column: usize, bit: usize) -> (usize, usize) {
    // Eight columns of 16 bytes are adjacent; then follow the next 16 bytes of these eight, then the next eight.
    (column / 8 * 64 + bit / 128 * 32 + column % 8 * 4 + bit % 128 / 32, bit % 32)
}

/// The bit of a slab for an input bit row.
const fn in_slab(share: usize, row: usize) -> usize {
    row / share * WORD + row % share
}

/// A matrix in the kernel's format: by chunk, pass and slab.
pub fn tiles(shape: &Shape, matrix: &BitMatrix) -> Vec<u32> {
    let Cut { slabs, share, chunks, passes, .. } = Cut::of(shape);
    let mut words = vec![0; chunks * passes * slabs * SLAB_WORDS];
    for (tile, slab) in words.chunks_mut(SLAB_WORDS).enumerate() {
        let (chunk, pass, within) = (tile / slabs / passes, tile / slabs % passes, tile % slabs);
        let first = (chunk * slabs + within) * SLAB;
        let bits = first..(first + SLAB).min(matrix.columns());
        for column in 0..ROWS {
            let row = row_of(shape, pass, column);
            if row >= matrix.rows() {
                continue;
            }
            for bit in bits.clone().filter(|&bit| matrix.at(row, bit)) {
                let (word, place) = place_of(column, in_slab(share, bit - first));
                slab[word] |= 1 << place;
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::{Code, Plan};
    use std::collections::HashSet;

    fn plan(code: &str) -> Plan {
        code.parse::<Code>().unwrap().encode_plan().unwrap()
    }

    /// Model of the hardware: for a position and all columns of a tile, the parity of the bits set in both.
    fn multiply(tile: &[u32], position: &[u32]) -> Vec<u32> {
        let parity = |column: usize| {
            let ones = (0..SLAB).filter(|&bit| {
                let (word, place) = place_of(column, bit);
                tile[word] >> place & position[bit / 32] >> (bit % 32) & 1 == 1
            });
            ones.count() as u32 % 2
        };
        (0..ROWS).map(parity).collect()
    }

    #[test]
    fn places_of_a_slab_are_all_its_bits() {
        let all: HashSet<_> =
            (0..ROWS).flat_map(|column| (0..SLAB).map(move |bit| place_of(column, bit))).collect();
        assert_eq!(all.len(), SLAB_WORDS * 32);
        assert!(all.iter().all(|&(word, place)| word < SLAB_WORDS && place < 32));
    }

    /// Tiles multiplied by the hardware model give the same output rows as the plan's bit matrix.
    #[test]
    fn tiles_are_the_matrix() {
        for code in
            ["10+4", "33+9", "70+17", "200+56", "cauchy:9+5:w7:packets=16", "cauchy:90+7:w8:packets=32"]
        {
            let plan = plan(code);
            let shape = Shape::of(&plan);
            let matrix = BitMatrix::expand(plan.matrix().unwrap()).unwrap();
            let words = tiles(&shape, &matrix);
            let Cut { slabs, share, chunks, passes, .. } = Cut::of(&shape);
            let mut seed = 7u32;
            let mut bits = vec![0u32; chunks * slabs * SLAB / 32];
            bits.iter_mut().for_each(|word| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *word = seed;
            });
            let mut found = vec![0; passes * ROWS];
            for (tile, slab) in words.chunks(SLAB_WORDS).enumerate() {
                let (chunk, pass, within) = (tile / slabs / passes, tile / slabs % passes, tile % slabs);
                let first = (chunk * slabs + within) * SLAB / 32;
                for (column, sum) in multiply(slab, &bits[first..first + SLAB / 32]).into_iter().enumerate() {
                    found[row_of(&shape, pass, column)] ^= sum;
                }
            }
            for (row, &found) in found.iter().enumerate() {
                let takes = |&bit: &usize| row < matrix.rows() && matrix.at(row, bit);
                let wanted = (0..matrix.columns()).filter(takes);
                let bit_of = |row: usize| {
                    let bit = in_slab(share, row);
                    bits[bit / 32] >> (bit % 32) & 1
                };
                let wanted = wanted.fold(0, |sum, row| sum ^ bit_of(row));
                assert_eq!(found, wanted, "{code}, row {row}");
            }
        }
    }

    #[test]
    fn one_text_serves_all_plans_with_as_many_halves() {
        let text = |code: &str| source(&Shape::of(&plan(code))).text;
        assert_eq!(text("10+4"), text("16+33"));
        assert_eq!(text("17+4"), text("32+33"));
        assert_ne!(text("16+4"), text("17+4"));
        assert_eq!(text("33+9"), text("200+56"));
        assert_ne!(text("32+9"), text("33+9"));
        assert_ne!(text("10+9"), text("10+9:packets=64"));
        assert_eq!(text("10+9:packets=64"), text("12+5:packets=64"));
        assert_ne!(text("10+9:packets=64"), text("13+9:packets=64"));
    }

    #[test]
    fn threads_cover_whole_tiles() {
        for (code, tile) in [("10+8", 2048), ("10+8:packets=64", 128 * 8 * ROUNDS)] {
            let launch = source(&Shape::of(&plan(code))).launch;
            assert_eq!(launch.threads * launch.bytes_per_thread, tile, "{code}");
        }
    }
}
