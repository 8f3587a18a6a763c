//! Optimisation stages of a kernel with its matrix as data: the experiment of figure 13 of G-CRS, for the packets
//! layout.
//!
//! A thread computes one word of one row of an output, at first like on a CPU. Each stage includes the previous ones;
//! [`generic`](super::generic) and [`specialised`](super::specialised) are the stages after these.

use super::blocks::sum_name;
use super::text::{Text, line};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use gabion_engine::Mode;
use gabion_engine::matrix::bits::BitMatrix;

/// Maximum threads per block: whole columns of w rows.
const THREADS: usize = 128;

/// Bits of a matrix column per word.
const BITS_OF_WORD: usize = 32;

/// An optimisation, including all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// An integer for every bit of the matrix, a branch for every bit, data and matrix in device memory.
    Base,
    /// A word per matrix column, so that all threads of a warp read the same one.
    BitColumns,
    /// Threads of a block share what they load.
    SharedData,
    /// A thread computes its row of all outputs, instead of one thread per output.
    AllOutputs,
    /// Masks instead of branches, and no loop over the rows of a block.
    NoBranches,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 5] =
        [Stage::Base, Stage::BitColumns, Stage::SharedData, Stage::AllOutputs, Stage::NoBranches];

    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Base => "base",
            Stage::BitColumns => "columns of bits",
            Stage::SharedData => "shared data",
            Stage::AllOutputs => "all outputs",
            Stage::NoBranches => "no branches",
        }
    }
}

/// True if plans of this shape are supported: rows are stored in the blocks, and a column of the matrix fits in a word.
pub fn suits(shape: &Shape) -> bool {
    let fits = shape.outputs * shape.w <= BITS_OF_WORD;
    shape.packet_words.is_some() && fits && shape.mode == Mode::Write && shape.outputs > 0
}

/// The matrix in the format of this stage.
pub fn matrix(shape: &Shape, stage: Stage, bits: &BitMatrix) -> Vec<u32> {
    let columns = shape.inputs * shape.w;
    let rows = shape.outputs * shape.w;
    if stage == Stage::Base {
        return (0..rows)
            .flat_map(|row| (0..columns).map(move |column| u32::from(bits.at(row, column))))
            .collect();
    }
    let word = |column| (0..rows).filter(|&row| bits.at(row, column)).map(|row| 1 << row).sum();
    (0..columns).map(word).collect()
}

/// Writes the kernel of a stage.
pub fn source(dialect: Dialect, shape: &Shape, stage: Stage) -> Source {
    let (w, words) = (shape.w, shape.packet_words.unwrap_or(1));
    let columns = (THREADS / w).max(1);
    let per_thread = if stage >= Stage::AllOutputs { shape.outputs } else { 1 };
    let launch = Launch { threads: columns * w, passes: shape.outputs / per_thread, bytes_per_thread: 4 };
    let global = if dialect == Dialect::OpenCl { "__global " } else { "" };
    let more = format!(", {global}const u32* matrix, u32 inputs, u32 outputs");
    let mut text = Text(dialect.prelude() + &dialect.head(launch, 1, &more));
    let shared = stage >= Stage::SharedData;
    if shared {
        line!(text, "SHARED u32 data[{}];", columns * w);
    }
    // Adjacent threads have adjacent columns. Threads past the end repeat the work of the last one without storing.
    line!(text, "const u32 row = LOCAL_X / {columns}u, within = LOCAL_X % {columns}u, all = total / {w}u;");
    line!(text, "u32 column = TILE * {columns}u + within;");
    line!(text, "const bool active = column < all;");
    line!(text, "if (!active) column = all - 1u;");
    line!(text, "const u64 at = (u64)(column / {words}u) * {}u + column % {words}u * 4u;", w * words * 4);
    for sum in 0..per_thread {
        line!(text, "u32 {} = 0u;", sum_name(0, sum));
    }
    line!(text, "for (u32 input = 0; input < inputs; ++input) {{");
    line!(text, "GLOBAL const byte* const block = in + input * in_stride + at;");
    if shared {
        line!(text, "MEET;");
        line!(text, "data[LOCAL_X] = *(GLOBAL const u32*)(block + row * {}u);", words * 4);
        line!(text, "MEET;");
    }
    let unrolled = stage == Stage::NoBranches;
    if !unrolled {
        line!(text, "for (u32 j = 0; j < {w}u; ++j) {{");
    }
    for step in 0..if unrolled { w } else { 1 } {
        let j = if unrolled { format!("{step}u") } else { "j".to_owned() };
        let value = match shared {
            true => format!("data[{j} * {columns}u + within]"),
            false => format!("*(GLOBAL const u32*)(block + {j} * {}u)", words * 4),
        };
        line!(text, "{{");
        match stage {
            Stage::Base => {
                let place = format!("(PASS * {w}u + row) * inputs * {w}u + input * {w}u + {j}");
                line!(text, "if (matrix[{place}] == 1u) {} ^= {value};", sum_name(0, 0));
            }
            _ => {
                line!(text, "const u32 bits = matrix[input * {w}u + {j}];");
                for sum in 0..per_thread {
                    let output = if per_thread > 1 { format!("{sum}u") } else { "PASS".to_owned() };
                    let bit = format!("(bits >> ({output} * {w}u + row) & 1u)");
                    let name = sum_name(0, sum);
                    match unrolled {
                        true => line!(text, "{name} ^= {value} & (0u - {bit});"),
                        false => line!(text, "if ({bit} == 1u) {name} ^= {value};"),
                    }
                }
            }
        }
        line!(text, "}}");
    }
    line!(text, "{}", if unrolled { "}" } else { "} }" });
    for sum in 0..per_thread {
        let output = if per_thread > 1 { format!("{sum}u") } else { "PASS".to_owned() };
        let place = format!("out + {output} * out_stride + at + row * {}u", words * 4);
        line!(text, "if (active) *(GLOBAL u32*)({place}) = {};", sum_name(0, sum));
    }
    line!(text, "}}");
    let adding = shape.inputs * w * per_thread;
    let counts = Counts {
        additions: adding,
        transposing: 0,
        loaded: if shared { shape.inputs } else { shape.inputs * w },
        stored: per_thread,
    };
    Source { text: text.0, launch, counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_engine::Code;

    #[test]
    fn columns_of_bits_are_the_matrix() {
        let plan = "cauchy:5+3:w7:packets=16".parse::<Code>().unwrap().encode_plan().unwrap();
        let (shape, bits) = (Shape::of(&plan), BitMatrix::expand(plan.matrix().unwrap()).unwrap());
        let (one_by_one, packed) =
            (matrix(&shape, Stage::Base, &bits), matrix(&shape, Stage::NoBranches, &bits));
        assert_eq!((one_by_one.len(), packed.len()), (21 * 35, 35));
        for (place, &one) in one_by_one.iter().enumerate() {
            assert_eq!(one, packed[place % 35] >> (place / 35) & 1);
        }
    }

    #[test]
    fn blocks_hold_whole_columns() {
        for w in 4..=8 {
            let code = format!("cauchy:10+4:w{w}:packets=64").parse::<Code>().unwrap();
            let shape = Shape::of(&code.encode_plan().unwrap());
            assert!(suits(&shape));
            for stage in Stage::ALL {
                let launch = source(Dialect::Cuda, &shape, stage).launch;
                assert!(launch.threads <= THREADS && launch.threads.is_multiple_of(w));
                assert_eq!(launch.passes, if stage >= Stage::AllOutputs { 1 } else { 4 });
            }
        }
        let wide = "10+8:packets=64".parse::<Code>().unwrap().encode_plan().unwrap();
        assert!(!suits(&Shape::of(&wide)));
    }
}
