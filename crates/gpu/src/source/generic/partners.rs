//! The generic kernel for packets of 8-bit symbols with more than four outputs: two threads share a table.
//!
//! Each thread writes the sums of one of the two groups of four rows, for two words of every row, and computes half of
//! the pass's rows. So reads from the table are twice as wide, in half as many instructions, and the sums of many
//! threads fit in registers. Two tables alternate: while some threads read one, others fill the other, with one barrier
//! per input. The next input is loaded meanwhile.

use super::{SUBSETS, THREADS, add_rows, begin_sums, column, head, is_short, outputs_per_pass, put_subsets};
use crate::shape::Shape;
use crate::source::blocks::{Writer, input_name};
use crate::source::text::{line, together};
use crate::source::{Counts, Dialect, Launch, Source};

/// Threads that share a table.
const PARTNERS: usize = 2;

/// Pairs of threads per block, adjacent in memory. Each half consists of whole warps.
pub(super) const COLUMNS: usize = THREADS / PARTNERS;

/// Words of every row per pair.
const LANES: usize = 2;

/// Rows of an input per thread.
const ROWS: usize = 4;

/// True if both threads have four rows of every input, and enough rows of outputs.
pub(super) fn suits(shape: &Shape) -> bool {
    shape.packet_words.is_some() && shape.w == PARTNERS * ROWS && !is_short(shape)
}

pub(super) fn source(dialect: Dialect, shape: &Shape) -> Source {
    let (w, words) = (shape.w, shape.packet_words.expect("packets only"));
    let passes = shape.outputs.div_ceil(outputs_per_pass(shape));
    let each = outputs_per_pass(shape) / PARTNERS;
    let launch = Launch { threads: THREADS, passes, bytes_per_thread: w * 4 * LANES / PARTNERS };
    let text = head(dialect, launch);
    let mut writer =
        Writer { dialect, shape, lanes: LANES, threads: COLUMNS, text, counts: Counts::default() };
    let (four, table) = (SUBSETS * column(shape), PARTNERS * SUBSETS * column(shape));
    line!(writer.text, "SHARED u64 tables[{}];", 2 * table / 8);
    line!(writer.text, "SHARED_POINTER byte* const sums = (SHARED_POINTER byte*)tables;");
    line!(writer.text, "const u32 partner = LOCAL_X / {COLUMNS}u;");
    line!(writer.text, "u32 mine = LOCAL_X % {COLUMNS}u * {}u;", LANES * 4);
    let column_of_thread = format!("TILE * {COLUMNS}u + LOCAL_X % {COLUMNS}u");
    writer.position_in_packets(words, &column_of_thread, &format!("total / {PARTNERS}u"));
    begin_sums(&mut writer, each * w);
    let nothing = vec!["0u".to_owned(); LANES];
    for empty in [0, table] {
        let place = format!("sums + partner * {four}u + {empty} + mine");
        line!(writer.text, "{}", together("PUT", &place, &nothing));
    }
    line!(writer.text, "const u32 first = (PASS * {PARTNERS}u + partner) * {each}u;");
    line!(writer.text, "const u32 here = first < outputs ? outputs - first : 0u;");
    let of_half = each * w * 4;
    let of_input = PARTNERS * of_half;
    line!(
        writer.text,
        "GLOBAL const byte* place = matrix + (u64)PASS * inputs * {of_input}u + partner * {of_half}u;"
    );
    line!(writer.text, "GLOBAL const byte* next = p + partner * {}u;", ROWS * words * 4);
    let row = |row: usize| (0..LANES).map(|lane| input_name(0, lane, row)).collect::<Vec<_>>();
    let all: Vec<String> = (0..ROWS).flat_map(row).collect();
    line!(writer.text, "u32 {};", all.join(", "));
    let load = |writer: &mut Writer<'_>| {
        for of_four in 0..ROWS {
            let place = format!("next + {}", of_four * words * 4);
            line!(writer.text, "{}", together("LOAD", &place, &row(of_four)));
        }
    };
    load(&mut writer);
    line!(writer.text, "for (u32 input = 0; input < inputs; input++) {{");
    put_subsets(&mut writer, &[0, 1, 2, 3], &format!("sums + partner * {four}u + mine"));
    line!(writer.text, "MEET;");
    line!(writer.text, "next += in_stride;");
    line!(writer.text, "if (input + 1u < inputs) {{");
    load(&mut writer);
    line!(writer.text, "}}");
    writer.counts.loaded += all.len();
    for output in 0..each {
        line!(writer.text, "if ({output}u < here) {{");
        add_rows(&mut writer, 0, output * w..(output + 1) * w);
        line!(writer.text, "}}");
    }
    line!(writer.text, "place += {of_input}u;");
    line!(writer.text, "mine ^= {table}u;");
    line!(writer.text, "}}");
    for within in 0..each {
        line!(writer.text, "if ({within}u < here) {{");
        writer.store(within, &format!("(first + {within}u)"));
        line!(writer.text, "}}");
    }
    line!(writer.text, "}}");
    Source { text: writer.text.0, launch, counts: writer.counts }
}
