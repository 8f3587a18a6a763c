//! Specialised kernel of one plan, with its matrix unrolled into additions.

use super::additions::{self, Sum};
use super::blocks::{Writer, input_name, sum_name};
use super::text::{Text, line};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use crate::tuning::Tuning;
use gabion_engine::matrix::bits::BitMatrix;
use std::ops::Range;

/// Writes the kernel of `matrix`, which belongs to a plan of `shape`.
pub fn source(dialect: Dialect, shape: &Shape, matrix: &BitMatrix, tuning: &Tuning) -> Source {
    let passes = tuning.passes(shape.outputs);
    let (lanes, threads) = (tuning.lanes, tuning.threads);
    let launch = Launch { threads, passes: passes.len(), bytes_per_thread: shape.w * 4 * lanes };
    let text = Text(dialect.prelude() + &dialect.head(launch, tuning.least_blocks, ""));
    let writer = Writer { dialect, shape, lanes, threads, text, counts: Counts::default() };
    let mut unrolled = Unrolled { writer, matrix, tuning };
    let staged = unrolled.stage_bytes();
    if staged > 0 {
        line!(unrolled.writer.text, "SHARED uint4 stage[{}];", staged / 16);
        line!(
            unrolled.writer.text,
            "SHARED_POINTER byte* const mine = (SHARED_POINTER byte*)stage + LOCAL_X * 16u;"
        );
    }
    unrolled.writer.position();
    for (index, outputs) in passes.iter().enumerate() {
        if passes.len() > 1 {
            line!(unrolled.writer.text, "if (PASS == {index}) {{");
        }
        unrolled.pass(outputs.clone());
        if passes.len() > 1 {
            line!(unrolled.writer.text, "}}");
        }
    }
    line!(unrolled.writer.text, "}}");
    Source { text: unrolled.writer.text.0, launch, counts: unrolled.writer.counts }
}

struct Unrolled<'a> {
    writer: Writer<'a>,
    matrix: &'a BitMatrix,
    tuning: &'a Tuning,
}

impl Unrolled<'_> {
    fn pass(&mut self, outputs: Range<usize>) {
        let (ahead, inputs, w) = (self.tuning.ahead, self.writer.shape.inputs, self.writer.shape.w);
        let rows = outputs.start * w..outputs.end * w;
        let mut begun = vec![vec![false; rows.len()]; self.writer.lanes];
        self.writer.declare_sums(rows.len());
        let staged = self.tuning.staged;
        if staged > 0 {
            self.bring(0);
        } else {
            (0..ahead.min(inputs)).for_each(|input| self.load(input));
        }
        for input in 0..inputs {
            if staged > 0 {
                if input % staged == 0 {
                    self.next_stage(input / staged);
                }
                self.writer.take_staged(input, input % (2 * staged));
            } else if input + ahead < inputs {
                self.load(input + ahead);
            }
            if self.writer.shape.packet_words.is_none() && staged == 0 {
                self.writer.transpose_input(input);
            }
            for (lane, begun) in begun.iter_mut().enumerate() {
                self.add_products(input, lane, rows.clone(), begun);
            }
        }
        // A row of zeros has no terms.
        for (lane, begun) in begun.iter().enumerate() {
            for row in (0..rows.len()).filter(|&row| !begun[row]) {
                line!(self.writer.text, "{} = 0u;", sum_name(lane, row));
            }
        }
        outputs.enumerate().for_each(|(within, output)| self.writer.store(within, &format!("{output}u")));
    }

    /// Shared memory for two stages: one is processed while the other is loaded.
    fn stage_bytes(&self) -> usize {
        2 * self.tuning.staged * self.writer.piece_places().len() * self.writer.threads * 16
    }

    /// Starts loading the inputs of a stage.
    fn bring(&mut self, stage: usize) {
        let staged = self.tuning.staged;
        let first = stage * staged;
        let count = staged.min(self.writer.shape.inputs - first);
        let places = self.writer.piece_places();
        let text = &mut self.writer.text;
        line!(text, "{{ GLOBAL const byte* b = p + {first}u * in_stride;");
        line!(
            text,
            "SHARED_POINTER byte* s = mine + {};",
            stage % 2 * staged * places.len() * self.writer.threads * 16
        );
        line!(text, "_Pragma(\"unroll 1\")");
        line!(text, "for (u32 j = 0; j < {count}u; ++j) {{");
        for (piece, place) in places.iter().enumerate() {
            line!(text, "BRING(s + {}, b + {place});", piece * self.writer.threads * 16);
        }
        line!(text, "b += in_stride; s += {}; }}", places.len() * self.writer.threads * 16);
        line!(text, "BROUGHT_ALL; }}");
    }

    /// Starts loading the next stage, waits for this one and transposes it. A thread reads only its own copies, so no
    /// barrier is needed.
    fn next_stage(&mut self, stage: usize) {
        let staged = self.tuning.staged;
        let (first, inputs) = (stage * staged, self.writer.shape.inputs);
        let more = first + staged < inputs;
        if more {
            self.bring(stage + 1);
        }
        line!(self.writer.text, "AWAIT_BUT({});", usize::from(more));
        let count = staged.min(inputs - first);
        self.writer.transpose_stage(stage % 2 * staged, count);
    }

    fn load(&mut self, input: usize) {
        self.writer.load(input, &format!("{input}u"));
    }

    fn add_products(&mut self, input: usize, lane: usize, rows: Range<usize>, begun: &mut [bool]) {
        let w = self.writer.shape.w;
        let names: Vec<String> =
            (0..w).map(|row| input_name(input, lane, self.writer.place_of_row(row))).collect();
        let takes = |row: usize| {
            (0..w).filter(|bit| self.matrix.at(row, input * w + bit)).fold(0, |bits, bit| bits | 1 << bit)
        };
        let sum =
            |(within, row)| Sum { name: sum_name(lane, within), takes: takes(row), begun: begun[within] };
        let mut sums: Vec<Sum> = rows.enumerate().map(sum).collect();
        additions::add(&mut self.writer.text, &mut self.writer.counts, &names, &mut sums);
        begun.iter_mut().zip(sums).for_each(|(begun, sum)| *begun = sum.begun);
    }
}
