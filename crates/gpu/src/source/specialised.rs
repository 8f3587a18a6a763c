//! The kernel of one plan, its matrix unrolled into additions.

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

    /// Shared memory for two stages: one is worked on while the other comes.
    fn stage_bytes(&self) -> usize {
        2 * self.tuning.staged * self.writer.piece_places().len() * self.writer.threads * 16
    }

    /// Asks for the inputs of a stage.
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

    /// Asks for the stage after this one, waits for this one and makes rows of it. A thread reads only what it brought
    /// itself, so nobody waits for others.
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
        line!(self.writer.text, "{{");
        let fours: Vec<Range<usize>> = (0..w).step_by(4).map(|first| first..(first + 4).min(w)).collect();
        // Two fours at a time: their sums are made, used and forgotten.
        for pair in fours.chunks(2) {
            line!(self.writer.text, "{{");
            for four in pair {
                let subsets = rows.clone().map(|row| self.subset(row, input, four));
                self.make_subsets(input, lane, four, subsets.collect());
            }
            for (within, row) in rows.clone().enumerate() {
                let mut terms: Vec<String> = Vec::with_capacity(3);
                terms.extend(begun[within].then(|| sum_name(lane, within)));
                for four in pair {
                    terms.extend(self.subset_name(input, lane, four, self.subset(row, input, four)));
                }
                if terms.len() > usize::from(begun[within]) {
                    let sum = match &terms[..] {
                        [a] => a.clone(),
                        [a, b] => format!("{a} ^ {b}"),
                        _ => format!("x3({})", terms.join(", ")),
                    };
                    line!(self.writer.text, "{} = {sum};", sum_name(lane, within));
                    self.writer.counts.additions += usize::from(terms.len() > 1);
                    begun[within] = true;
                }
            }
            line!(self.writer.text, "}}");
        }
        line!(self.writer.text, "}}");
    }

    /// Which of four rows of an input a row of the outputs takes.
    fn subset(&self, row: usize, input: usize, four: &Range<usize>) -> usize {
        let takes = |&(_, bit): &(usize, usize)| self.matrix.at(row, input * self.writer.shape.w + bit);
        four.clone().enumerate().filter(takes).map(|(place, _)| 1 << place).sum()
    }

    fn subset_name(&self, input: usize, lane: usize, four: &Range<usize>, subset: usize) -> Option<String> {
        match subset.count_ones() {
            0 => None,
            1 => Some(self.row_name(input, lane, four.start + subset.trailing_zeros() as usize)),
            _ => Some(format!("c{}_{subset}", four.start)),
        }
    }

    fn row_name(&self, input: usize, lane: usize, row: usize) -> String {
        input_name(input, lane, self.writer.place_of_row(row))
    }

    /// One addition per subset: of two or three rows, or of all four as two and a pair.
    fn make_subsets(&mut self, input: usize, lane: usize, four: &Range<usize>, wanted: Vec<usize>) {
        const ALL: usize = 15;
        const PAIR: usize = 3;
        let is_wanted = |subset: usize| wanted.contains(&subset) || subset == PAIR && wanted.contains(&ALL);
        for subset in (3..=ALL).filter(|subset| subset.count_ones() > 1 && is_wanted(*subset)) {
            let mut terms: Vec<String> = Vec::with_capacity(3);
            let mut rest = subset;
            if subset == ALL {
                terms.extend(self.subset_name(input, lane, four, PAIR));
                rest ^= PAIR;
            }
            let bits = (0..4).filter(|bit| rest >> bit & 1 == 1);
            terms.extend(bits.map(|bit| self.row_name(input, lane, four.start + bit)));
            let sum = match &terms[..] {
                [a, b] => format!("{a} ^ {b}"),
                _ => format!("x3({})", terms.join(", ")),
            };
            line!(self.writer.text, "const u32 c{}_{subset} = {sum};", four.start);
            self.writer.counts.additions += 1;
        }
    }
}
