//! The kernel of every plan of a width and layout: the matrix is data (the design of G-CRS).
//!
//! Outputs are cut into chunks of at most 32 rows, or one output where that has more; a thread holds one chunk's sums.
//! For every input and row it reads one *mask* per row of the chunk, all ones where the matrix has a one and zero
//! elsewhere: the sum takes `row & mask`, an instruction with three operands and no branch. All threads read the same masks
//! at the same time.

use super::blocks::{Writer, input_name, sum_name};
use super::dialect::Reuse;
use super::text::{Text, line};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use gabion_engine::matrix::bits::BitMatrix;

const THREADS: usize = 128;

/// Rows of a chunk, unless one output has more.
const CHUNK_ROWS: usize = 32;

/// Outputs that one chunk holds.
fn outputs_per_chunk(shape: &Shape) -> usize {
    (CHUNK_ROWS / shape.w).max(1)
}

/// Masks per row of the input and chunk: four are read at once.
fn masks_per_row(shape: &Shape) -> usize {
    (outputs_per_chunk(shape) * shape.w).next_multiple_of(4)
}

/// The masks of a matrix: by chunk, input, row of the input, row of the chunk.
pub fn masks(shape: &Shape, matrix: &BitMatrix) -> Vec<u32> {
    let (per_chunk, per_row) = (outputs_per_chunk(shape), masks_per_row(shape));
    let mut masks = Vec::new();
    for first in (0..shape.outputs).step_by(per_chunk) {
        for column in 0..matrix.columns() {
            masks.extend((0..per_row).map(|place| {
                let row = first * shape.w + place;
                let is_one = place < per_chunk * shape.w && row < matrix.rows() && matrix.at(row, column);
                if is_one { u32::MAX } else { 0 }
            }));
        }
    }
    masks
}

/// Bytes of the masks of a plan; a plan whose masks are beyond all bounds can be refused before they are made.
pub fn mask_bytes(shape: &Shape) -> usize {
    shape.outputs.div_ceil(outputs_per_chunk(shape)) * shape.inputs * shape.w * masks_per_row(shape) * 4
}

/// Writes the kernel; of `shape`, number of inputs and outputs decide only the launch.
pub fn source(dialect: Dialect, shape: &Shape) -> Source {
    let (per_chunk, per_row) = (outputs_per_chunk(shape), masks_per_row(shape));
    let lanes = if shape.w <= 8 { 2 } else { 1 };
    let chunks = shape.outputs.div_ceil(per_chunk);
    let launch = Launch { threads: THREADS, groups: 1, chunks, bytes_per_thread: shape.w * 4 * lanes };
    let global = if dialect == Dialect::OpenCl { "__global " } else { "" };
    let more = format!(", {global}const byte* masks, u32 inputs, u32 outputs");
    let text = Text(dialect.prelude(Reuse::Groups) + &dialect.head(launch, 1, &more));
    let mut writer = Writer { dialect, shape, lanes, threads: THREADS, text, counts: Counts::default() };
    writer.position();
    let rows = per_chunk * shape.w;
    writer.declare_sums(rows);
    for lane in 0..lanes {
        let zeros: Vec<String> = (0..rows).map(|row| format!("{} = 0u;", sum_name(lane, row))).collect();
        line!(writer.text, "{}", zeros.join(" "));
    }
    let row_bytes = per_row * 4;
    line!(writer.text, "GLOBAL const byte* mask = masks + (u64)CHUNK * inputs * {}u;", shape.w * row_bytes);
    line!(writer.text, "for (u32 input = 0; input < inputs; input++) {{");
    writer.load(0, "input");
    if shape.packet_words.is_none() {
        writer.transpose_input(0);
    }
    for row in 0..shape.w {
        let place = writer.place_of_row(row);
        for first in (0..rows).step_by(4) {
            line!(writer.text, "{{ u32 m0, m1, m2, m3; READ4(mask + {}, m0, m1, m2, m3);", row * row_bytes + first * 4);
            for to in first..(first + 4).min(rows) {
                for lane in 0..lanes {
                    let (sum, input) = (sum_name(lane, to), input_name(0, lane, place));
                    line!(writer.text, "{sum} = masked({sum}, {input}, m{});", to - first);
                    writer.counts.additions += 1;
                }
            }
            line!(writer.text, "}}");
        }
    }
    line!(writer.text, "mask += {}u;", shape.w * row_bytes);
    line!(writer.text, "}}");
    for within in 0..per_chunk {
        line!(writer.text, "if (CHUNK * {per_chunk}u + {within}u < outputs) {{");
        writer.store(within, &format!("(CHUNK * {per_chunk}u + {within}u)"));
        line!(writer.text, "}}");
    }
    line!(writer.text, "}}");
    Source { text: writer.text.0, launch, counts: writer.counts }
}
