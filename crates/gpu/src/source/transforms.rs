//! The kernel of one plan whose matrix factors through additive FFTs, for packets and many outputs.
//!
//! Where the points of a plan's rows lie in one coset of n points ([`Structure`]), its inputs come in cosets of n. A thread does
//!
//! ```text
//! for every few inputs of a coset, 4 or 8:
//!     butterflies between them               (1) two or three of the levels, in the registers of the inputs
//!     for each of them:
//!         n / few of the sums += constant · it   (2) the other levels, multiplied out
//! butterflies between the n sums             (3) to the values at the rows' points
//! ```
//!
//! With n = 16 and 64 inputs that is less than half of the additions of the plan's matrix, and half of the code: it stays in the cache of instructions and
//! reads its inputs once, where the matrix needs two passes. All levels of (1) would need registers for 16 inputs beside those of 16 sums.
//!
//! A repair has syndromes in these sums; they are put into shared memory, from where a product with a small matrix makes the outputs in
//! the same registers.

use super::additions::{self, Sum};
use super::blocks::{Writer, input_name, sum_name};
use super::text::{Text, line, together};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use gabion_engine::matrix::cosets::{Cosets, Member, by_coset, smallest_coset};
use gabion_engine::{Layout, Plan, Structure};
use std::collections::BTreeMap;

/// Rows of sums that a thread has registers for.
const MOST_ROWS: usize = 128;

/// Threads of a block: what they put into shared memory is at most 32 KiB, and a block of 64 leaves few registers unused.
const THREADS: usize = 64;

/// How many inputs are best transformed together: with eight there are fewer additions than with four, and everything still has a register.
pub const WIDTH: usize = 8;

/// From as many inputs on, the first of a tile that comes later are asked for while sums are finished: no other load is under way then.
const MANY_INPUTS: usize = 64;

/// How many inputs of it are asked for.
const ASKED_FOR: usize = 16;

/// Blocks of threads that are on a multiprocessor at once, by their registers.
const BLOCKS: usize = 4;

/// Writes the kernel of a plan, which transforms `width` inputs together, a power of two; nothing where the plan's points, its layout or
/// its size do not allow it.
pub fn source(dialect: Dialect, plan: &Plan, width: usize) -> Option<Source> {
    let (shape, structure) = (Shape::of(plan), plan.structure()?);
    // Shared memory takes four words at a time.
    let fits = matches!(plan.layout(), Layout::Packets { .. }) && matches!(shape.w, 4 | 8);
    let (n, base) = smallest_coset(&structure.cauchy.rows)?;
    let inputs = by_coset(&structure.cauchy.columns, n, base);
    let sums = (n as usize).max(shape.outputs);
    // Points that lie among those of the rows have no coset of their own.
    if !fits || (n as usize) < width || sums * shape.w > MOST_ROWS || inputs.contains_key(&0) {
        return None;
    }
    let launch = Launch { threads: THREADS, passes: 1, bytes_per_thread: shape.w * 4 };
    let text = Text(dialect.prelude() + &dialect.head(launch, 1, ""));
    let writer =
        Writer { dialect, shape: &shape, lanes: 1, threads: THREADS, text, counts: Counts::default() };
    let mut transformed =
        Transformed { writer, cosets: Cosets::of(plan.field()), n, base, width, temporaries: 0 };
    transformed.kernel(structure, &inputs, sums);
    let Writer { text, counts, .. } = transformed.writer;
    Some(Source { text: text.0, launch, counts })
}

/// The rows of a block in registers.
#[derive(Clone)]
struct Block {
    names: Vec<String>,
    /// Otherwise all of it is zero, and nothing is in its registers.
    begun: bool,
}

struct Transformed<'a> {
    writer: Writer<'a>,
    cosets: Cosets,
    /// Points of a coset, and the first point of that of the rows.
    n: u64,
    base: u64,
    /// Inputs that are transformed together.
    width: usize,
    /// Blocks that are neither inputs nor sums.
    temporaries: usize,
}

impl Transformed<'_> {
    fn kernel(&mut self, structure: &Structure, inputs: &BTreeMap<u64, Vec<Member>>, sums: usize) {
        let (w, n, width) = (self.writer.shape.w, self.n as usize, self.width);
        let form = &structure.cauchy;
        if structure.solve.is_some() {
            line!(self.writer.text, "SHARED uint4 stage[{}];", n * w / 4 * THREADS);
            line!(
                self.writer.text,
                "SHARED_POINTER byte* const mine = (SHARED_POINTER byte*)stage + LOCAL_X * 16u;"
            );
        }
        self.writer.position();
        self.writer.declare_sums(sums * w);
        let sum = |place: usize| Block {
            names: (place * w..(place + 1) * w).map(|row| sum_name(0, row)).collect(),
            begun: false,
        };
        let mut sums: Vec<Block> = (0..sums).map(sum).collect();
        // A factor that all rows share goes to the columns, where it often cancels.
        let shared = form.rows[0].scale;
        for (&at, members) in inputs {
            let natural = self.cosets.scale(self.n, at);
            for first in (0..n).step_by(width) {
                let here: Vec<&Member> =
                    members.iter().filter(|member| (first..first + width).contains(&member.place)).collect();
                if here.is_empty() {
                    continue;
                }
                let mut blocks: Vec<Option<Block>> = vec![None; width];
                for &&Member { index, place } in &here {
                    let scale = self.cosets.field().mul(form.columns[index].scale, shared);
                    let block = self.load(index);
                    blocks[place - first] = Some(self.times(self.cosets.quotient(scale, natural), block));
                }
                let mut blocks: Vec<Block> =
                    blocks.into_iter().map(|block| block.unwrap_or_else(|| self.temporary())).collect();
                self.find_coefficients(at + first as u64, &mut blocks);
                let factors = self.factors(at, first / width);
                for (place, block) in blocks.iter().enumerate().filter(|(_, block)| block.begun) {
                    let targets = sums[..n].iter_mut().skip(place).step_by(width);
                    self.add(block, targets.zip(factors.iter().copied()).collect());
                }
            }
        }
        self.ask_for_a_later_tile();
        self.find_values(&mut sums[..n]);
        let mut values = Vec::new();
        for (point, added) in form.rows.iter().zip(&structure.added) {
            let mut value = sums[(point.at ^ self.base) as usize].clone();
            value = self.times(self.cosets.quotient(point.scale, shared), value);
            if let Some(input) = added {
                let block = self.load(*input);
                self.add(&block, vec![(&mut value, 1)]);
            }
            values.push(value);
        }
        match &structure.solve {
            None => values.iter().enumerate().for_each(|(output, value)| self.store(output, value)),
            Some(solve) => {
                values.iter().enumerate().for_each(|(place, value)| self.put(place, value));
                line!(self.writer.text, "SETTLE;");
                let mut outputs: Vec<Block> = sums.drain(..self.writer.shape.outputs).collect();
                outputs.iter_mut().for_each(|output| output.begun = false);
                for (column, value) in values.iter().enumerate().filter(|(_, value)| value.begun) {
                    let block = self.get(column, value.names.len());
                    let factor = |row: usize| solve.at(row, column);
                    let targets = outputs.iter_mut().enumerate().map(|(row, output)| (output, factor(row)));
                    self.add(&block, targets.collect());
                }
                outputs.iter().enumerate().for_each(|(output, value)| self.store(output, value));
            }
        }
        line!(self.writer.text, "}}");
    }

    /// Brings the first inputs of the tile that a block of threads works on once all that are there now are done into the device's cache, 128 bytes for
    /// each thread at a time.
    fn ask_for_a_later_tile(&mut self) {
        let Shape { w, inputs, packet_words: Some(words), .. } = *self.writer.shape else { return };
        // Threads side by side have words side by side only where packets are long enough.
        if self.writer.dialect != Dialect::Cuda || inputs < MANY_INPUTS || !words.is_multiple_of(THREADS) {
            return;
        }
        let text = &mut self.writer.text;
        let lines = THREADS * 4 / 128;
        line!(text, "{{ const u32 later = (TILE + MULTIPROCESSORS * {BLOCKS}u) * {THREADS}u;");
        line!(text, "if (later + {THREADS}u <= total) {{");
        line!(
            text,
            "const u64 there = (u64)(later / {words}u) * {}u + later % {words}u * 4u;",
            w * words * 4
        );
        line!(text, "_Pragma(\"unroll 1\")");
        line!(text, "for (u32 i = LOCAL_X; i < {}u; i += {THREADS}u) {{", ASKED_FOR * w * lines);
        line!(text, "GLOBAL const byte* const b = in + there + (u64)(i / {}u) * in_stride;", w * lines);
        line!(text, "ASK_FOR(b + i / {lines}u % {w}u * {}u + i % {lines}u * 128u); }} }} }}", words * 4);
    }

    fn load(&mut self, input: usize) -> Block {
        self.writer.load(input, &format!("{input}u"));
        let names = (0..self.writer.shape.w).map(|row| input_name(input, 0, row)).collect();
        Block { names, begun: true }
    }

    fn temporary(&mut self) -> Block {
        let number = self.temporaries;
        self.temporaries += 1;
        let names: Vec<String> = (0..self.writer.shape.w).map(|row| format!("t{number}_{row}")).collect();
        line!(self.writer.text, "u32 {};", names.join(", "));
        Block { names, begun: false }
    }

    /// Adds products of a block with constants to others.
    fn add(&mut self, block: &Block, targets: Vec<(&mut Block, u64)>) {
        if !block.begun {
            return;
        }
        let field = self.cosets.field();
        let mut sums = Vec::new();
        for (target, factor) in targets.iter().filter(|(_, factor)| *factor != 0) {
            // Bit b of a product is the sum of those bits whose powers of x, times the factor, have bit b.
            let powers: Vec<u64> = (0..block.names.len()).map(|bit| field.mul(*factor, 1 << bit)).collect();
            for (row, name) in target.names.iter().enumerate() {
                let takes = powers.iter().enumerate().map(|(bit, power)| (power >> row & 1) << bit).sum();
                sums.push(Sum { name: name.clone(), takes, begun: target.begun });
            }
        }
        additions::add(&mut self.writer.text, &mut self.writer.counts, &block.names, &mut sums);
        for (target, _) in targets.into_iter().filter(|(_, factor)| *factor != 0) {
            target.begun = true;
        }
    }

    /// A product with a constant: the block itself where that is 1.
    fn times(&mut self, factor: u64, block: Block) -> Block {
        if factor == 1 || !block.begun {
            return block;
        }
        let mut product = self.temporary();
        self.add(&block, vec![(&mut product, factor)]);
        product
    }

    /// Values at the points from `at` on to coefficients, among `blocks` alone.
    fn find_coefficients(&mut self, at: u64, blocks: &mut [Block]) {
        let mut h = 1;
        while h < blocks.len() {
            for first in (0..blocks.len()).step_by(2 * h) {
                let twiddle = self.cosets.twiddle(h as u64, at + first as u64);
                for place in first..first + h {
                    let (low, high) = blocks.split_at_mut(place + h);
                    let (a, b) = (&mut low[place], &mut high[0]);
                    self.add(a, vec![(b, 1)]);
                    self.add(b, vec![(a, twiddle)]);
                }
            }
            h *= 2;
        }
    }

    /// Coefficients to values at the points 0..n.
    fn find_values(&mut self, blocks: &mut [Block]) {
        let mut h = blocks.len() / 2;
        while h > 0 {
            for first in (0..blocks.len()).step_by(2 * h) {
                let twiddle = self.cosets.twiddle(h as u64, first as u64);
                for place in first..first + h {
                    let (low, high) = blocks.split_at_mut(place + h);
                    let (a, b) = (&mut low[place], &mut high[0]);
                    self.add(b, vec![(a, twiddle)]);
                    self.add(a, vec![(b, 1)]);
                }
            }
            h /= 2;
        }
    }

    /// What the other levels make of the inputs number `group` of the coset at `at`, which were transformed together: the factor with
    /// which they are added to each group of sums.
    fn factors(&self, at: u64, group: usize) -> Vec<u64> {
        let (field, width) = (self.cosets.field(), self.width);
        let mut factors = vec![0; self.n as usize / width];
        factors[group] = 1;
        let mut h = 1;
        while h < factors.len() {
            for first in (0..factors.len()).step_by(2 * h) {
                let twiddle = self.cosets.twiddle((h * width) as u64, at + (first * width) as u64);
                for place in first..first + h {
                    factors[place + h] ^= factors[place];
                    factors[place] ^= field.mul(twiddle, factors[place + h]);
                }
            }
            h *= 2;
        }
        factors
    }

    /// Where a piece of the block at `place` waits in shared memory. A thread reads only what it wrote itself.
    fn waiting(&self, place: usize, piece: usize) -> String {
        format!("mine + {}", (place * self.writer.shape.w / 4 + piece) * THREADS * 16)
    }

    fn put(&mut self, place: usize, block: &Block) {
        for (piece, names) in block.names.chunks(4).enumerate().filter(|_| block.begun) {
            let at = self.waiting(place, piece);
            line!(self.writer.text, "{}", together("PUT", &at, names));
        }
    }

    fn get(&mut self, place: usize, rows: usize) -> Block {
        let names: Vec<String> = (0..rows).map(|row| format!("s{place}_{row}")).collect();
        line!(self.writer.text, "u32 {};", names.join(", "));
        for (piece, names) in names.chunks(4).enumerate() {
            let at = self.waiting(place, piece);
            line!(self.writer.text, "{}", together("GET", &at, names));
        }
        Block { names, begun: true }
    }

    fn store(&mut self, output: usize, block: &Block) {
        if !block.begun {
            let zeros: Vec<String> = block.names.iter().map(|name| format!("{name} = 0u;")).collect();
            line!(self.writer.text, "{}", zeros.join(" "));
        }
        self.writer.store_rows(|_, row| block.names[row].clone(), &format!("{output}u"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;
    use gabion_engine::Code;

    fn encode(code: &str) -> Plan {
        code.parse::<Code>().unwrap().encode_plan().unwrap()
    }

    /// The reason for all of it.
    #[test]
    fn there_are_half_as_many_additions() {
        for (code, share) in [("64+16:packets=2048", 0.43), ("32+16:packets=2048", 0.48)] {
            let plan = encode(code);
            let additions = source(Dialect::Cuda, &plan, WIDTH).unwrap().counts.arithmetic() as f64;
            let matrix = Tuning::of(&Shape::of(&plan)).operations(&Shape::of(&plan)) as f64;
            assert!(additions < share * matrix, "{code}: {additions} of {matrix}");
        }
    }

    #[test]
    fn every_input_is_read_once_and_every_output_written_once() {
        let code = "64+16:packets=2048".parse::<Code>().unwrap();
        let lost: Vec<usize> = (0..64).step_by(4).collect();
        let left: Vec<usize> = (0..80).filter(|column| !lost.contains(column)).collect();
        for plan in [code.encode_plan().unwrap(), code.repair_plan(&lost, &left).unwrap()] {
            let counts = source(Dialect::OpenCl, &plan, WIDTH).unwrap().counts;
            assert_eq!((counts.loaded, counts.stored), (64 * 8, 16 * 8));
        }
    }

    #[test]
    fn other_layouts_sizes_and_matrices_have_none() {
        for code in [
            "64+16",
            "30+33:packets=64",
            "cauchy-good:10+4:packets=64",
            "10+4:w16:packets=64",
            "4+2:packets=64",
        ] {
            assert!(source(Dialect::Cuda, &encode(code), 4).is_none(), "{code}");
        }
    }
}
