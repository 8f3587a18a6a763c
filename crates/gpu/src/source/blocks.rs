//! Blocks in registers: addressing, loading, transposing and storing of a thread's words.

use super::text::{Text, line, together};
use super::transpose::transpose;
use super::{Counts, Dialect};
use crate::shape::Shape;
use gabion_engine::Mode;

/// Writer of a kernel's text, with the parameters of loads and stores.
pub(super) struct Writer<'a> {
    pub(super) dialect: Dialect,
    pub(super) shape: &'a Shape,
    /// Words of every row per thread.
    pub(super) lanes: usize,
    /// Threads per block.
    pub(super) threads: usize,
    pub(super) text: Text,
    pub(super) counts: Counts,
}

/// Names of registers: `x3_1_7` is lane 1 of row 7 of input 3.
pub(super) fn input_name(input: usize, lane: usize, row: usize) -> String {
    format!("x{input}_{lane}_{row}")
}

pub(super) fn sum_name(lane: usize, row: usize) -> String {
    format!("a{lane}_{row}")
}

impl Writer<'_> {
    /// Computes the position of the thread's part of a block. Threads past the end repeat the work of the last one
    /// without storing, since they take part in barriers.
    pub(super) fn position(&mut self) {
        let (threads, lanes) = (self.threads, self.lanes);
        match self.shape.packet_words {
            Some(words) => {
                self.position_in_packets(words, &format!("TILE * {threads}u + LOCAL_X"), "total");
            }
            None => {
                let tile = threads * self.shape.w * 4 * lanes;
                line!(self.text, "const bool active = true;");
                line!(self.text, "const u64 at = (u64)TILE * {tile}u + LOCAL_X * 16u;");
                self.pointers();
            }
        }
    }

    /// The same for packets, for the column given by the expression `column`, of `columns`.
    pub(super) fn position_in_packets(&mut self, words: usize, column: &str, columns: &str) {
        let (lanes, w) = (self.lanes, self.shape.w);
        let (across, group, within) = (words / lanes, w * words * 4, 4 * lanes);
        line!(self.text, "u32 t = {column};");
        line!(self.text, "const bool active = t < {columns};");
        line!(self.text, "if (!active) t = {columns} - 1u;");
        line!(self.text, "const u64 at = (u64)(t / {across}u) * {group}u + (t % {across}u) * {within}u;");
        self.pointers();
    }

    fn pointers(&mut self) {
        line!(self.text, "GLOBAL const byte* const p = in + at;");
        line!(self.text, "GLOBAL byte* const q = out + at;");
    }

    /// The variables of a block's words in memory order, grouped by load instruction, each with its offset from the
    /// thread's first byte.
    fn pieces(&self, name: impl Fn(usize, usize) -> String) -> Vec<(usize, Vec<String>)> {
        let (lanes, w) = (self.lanes, self.shape.w);
        match self.shape.packet_words {
            Some(words) => {
                let row = |row: usize| (row * words * 4, (0..lanes).map(|lane| name(lane, row)).collect());
                (0..w).map(row).collect()
            }
            None => {
                let rows = self.shape.w;
                let piece = |piece: usize| {
                    let names = (4 * piece..4 * piece + 4).map(|word| name(word / rows, word % rows));
                    (piece * self.threads * 16, names.collect())
                };
                (0..rows * lanes / 4).map(piece).collect()
            }
        }
    }

    pub(super) fn declare_sums(&mut self, rows: usize) {
        for lane in (0..self.lanes).filter(|_| rows > 0) {
            let names: Vec<String> = (0..rows).map(|row| sum_name(lane, row)).collect();
            line!(self.text, "u32 {};", names.join(", "));
        }
    }

    /// Declares the words of input `input` and loads them from the block given by the expression `block`.
    pub(super) fn load(&mut self, input: usize, block: &str) {
        line!(self.text, "// input {input}");
        let pieces = self.pieces(|lane, row| input_name(input, lane, row));
        let all: Vec<&str> = pieces.iter().flat_map(|(_, names)| names).map(String::as_str).collect();
        line!(self.text, "u32 {};", all.join(", "));
        self.counts.loaded += all.len();
        line!(self.text, "{{ GLOBAL const byte* const b = p + {block} * in_stride;");
        for (place, names) in &pieces {
            line!(self.text, "{}", together("LOAD", &format!("b + {place}"), names));
        }
        line!(self.text, "}}");
    }

    /// Offsets of the pieces of a block from the thread's first byte.
    pub(super) fn piece_places(&self) -> Vec<usize> {
        self.pieces(|_, _| String::new()).into_iter().map(|(place, _)| place).collect()
    }

    /// Transposes `count` inputs in shared memory from index `first` on, in a loop.
    pub(super) fn transpose_stage(&mut self, first: usize, count: usize) {
        let pieces = self.pieces(|lane, row| format!("y{lane}_{row}"));
        let block = pieces.len() * self.threads * 16;
        let all: Vec<&str> = pieces.iter().flat_map(|(_, names)| names).map(String::as_str).collect();
        line!(self.text, "{{ SHARED_POINTER byte* s = mine + {};", first * block);
        line!(self.text, "_Pragma(\"unroll 1\")");
        line!(self.text, "for (u32 j = 0; j < {count}u; ++j, s += {block}) {{");
        line!(self.text, "u32 {};", all.join(", "));
        for (piece, (_, names)) in pieces.iter().enumerate() {
            line!(self.text, "{}", together("GET", &format!("s + {}", piece * self.threads * 16), names));
        }
        let before = self.counts.transposing;
        for lane in 0..self.lanes {
            let words: Vec<String> = (0..self.shape.w).map(|row| format!("y{lane}_{row}")).collect();
            self.transpose(&words);
        }
        // Counts are of executed instructions, not of text.
        self.counts.transposing = before + (self.counts.transposing - before) * count;
        self.counts.loaded += all.len() * count;
        for (piece, (_, names)) in pieces.iter().enumerate() {
            line!(self.text, "{}", together("PUT", &format!("s + {}", piece * self.threads * 16), names));
        }
        line!(self.text, "}} }}");
    }

    /// Loads the rows of input `input` from index `at` of shared memory.
    pub(super) fn take_staged(&mut self, input: usize, at: usize) {
        let pieces = self.pieces(|lane, row| input_name(input, lane, row));
        let all: Vec<&str> = pieces.iter().flat_map(|(_, names)| names).map(String::as_str).collect();
        line!(self.text, "// input {input}");
        line!(self.text, "u32 {};", all.join(", "));
        for (piece, (_, names)) in pieces.iter().enumerate() {
            let place = (at * pieces.len() + piece) * self.threads * 16;
            line!(self.text, "{}", together("GET", &format!("mine + {place}"), names));
        }
    }

    pub(super) fn transpose_input(&mut self, input: usize) {
        for lane in 0..self.lanes {
            let words: Vec<String> = (0..self.shape.w).map(|row| input_name(input, lane, row)).collect();
            self.transpose(&words);
        }
    }

    /// Words of 64-bit symbols alternate between low and high halves; each half is transposed separately.
    fn transpose(&mut self, words: &[String]) {
        if words.len() == 64 {
            for half in 0..2 {
                let half: Vec<String> = words.iter().skip(half).step_by(2).cloned().collect();
                self.counts.transposing += transpose(&mut self.text, self.dialect, &half);
            }
        } else {
            self.counts.transposing += transpose(&mut self.text, self.dialect, words);
        }
    }

    /// The word that holds a row after the transposition.
    pub(super) fn place_of_row(&self, row: usize) -> usize {
        match (self.shape.packet_words, self.shape.w) {
            (None, 64) => row % 32 * 2 + row / 32,
            _ => row,
        }
    }

    /// Stores or adds the sums from row `within` · w on to the block given by the expression `block`.
    pub(super) fn store(&mut self, within: usize, block: &str) {
        let w = self.shape.w;
        self.store_rows(|lane, row| sum_name(lane, within * w + row), block);
    }

    /// Stores rows by their names, or adds them.
    pub(super) fn store_rows(&mut self, row_name: impl Fn(usize, usize) -> String, block: &str) {
        // Row of the output in word `place`.
        let row_in = |place: usize| match (self.shape.packet_words, self.shape.w) {
            (None, 64) => place % 2 * 32 + place / 2,
            _ => place,
        };
        let name = |lane: usize, place: usize| row_name(lane, row_in(place));
        if self.shape.packet_words.is_none() {
            for lane in 0..self.lanes {
                let words: Vec<String> = (0..self.shape.w).map(|place| name(lane, place)).collect();
                self.transpose(&words);
            }
        }
        let pieces = self.pieces(name);
        self.counts.stored += pieces.iter().map(|(_, names)| names.len()).sum::<usize>();
        line!(self.text, "if (active) {{ GLOBAL byte* const b = q + {block} * out_stride;");
        for (place, names) in &pieces {
            let place = format!("b + {place}");
            if self.shape.mode == Mode::Add {
                let old: Vec<String> = (0..names.len()).map(|word| format!("o{word}")).collect();
                line!(self.text, "{{ u32 {};", old.join(", "));
                line!(self.text, "{}", together("READ", &place, &old));
                for (name, old) in names.iter().zip(&old) {
                    line!(self.text, "{name} ^= {old};");
                }
                line!(self.text, "}}");
                self.counts.loaded += names.len();
                self.counts.additions += names.len();
            }
            line!(self.text, "{}", together("STORE", &place, names));
        }
        line!(self.text, "}}");
    }
}
