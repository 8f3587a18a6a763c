//! Kernel of one plan whose matrix factors through additive FFTs, for packets and many outputs.
//!
//! If the points of a plan's rows lie in one coset of n points ([`gabion_engine::Structure`]), its inputs are grouped
//! in cosets of n. A thread executes:
//!
//! ```text
//! for every few inputs of a coset, 4 or 8:
//!     butterflies between them               (1) two or three of the levels, in the registers of the inputs
//!     for each of them:
//!         n / few of the sums += constant · it   (2) the other levels, multiplied out
//! butterflies between the n sums             (3) to the values at the rows' points
//! ```
//!
//! With n = 16 and 64 inputs that is less than half of the additions of the plan's matrix, and half of the code: it
//! stays in the instruction cache and reads its inputs once, where the matrix needs two passes. All levels of (1) would
//! need registers for 16 inputs in addition to 16 sums.
//!
//! In a repair, some of these sums (at worst all) are syndromes (`factors`); they are written to shared memory, and a
//! product with a small matrix computes the outputs in the same registers. If the points of lost blocks are a coset of
//! some subspace, such as those of adjacent blocks, no product remains.

mod factors;
mod prefetching;

use self::factors::Factors;
use self::prefetching::{AT_ONCE, Lines};
use super::additions::{self, Sum};
use super::blocks::{Writer, input_name, sum_name};
use super::text::{Text, line, together};
use super::{Counts, Dialect, Launch, Source};
use crate::shape::Shape;
use gabion_engine::matrix::Matrix;
use gabion_engine::matrix::cosets::{Cosets, Member, by_coset};
use gabion_engine::{Layout, Plan};

/// Maximum rows of sums in the registers of a thread.
const MOST_ROWS: usize = 128;

/// Threads per block: their shared memory is at most 32 KiB, and blocks of 64 leave few registers unused.
const THREADS: usize = 64;

/// Inputs that are transformed together: eight need fewer additions than four, and still fit in registers.
pub const WIDTH: usize = 8;

/// Writes the kernel of a plan that transforms `width` inputs together, a power of two; `None` if the plan's points,
/// layout or size do not allow it.
pub fn source(dialect: Dialect, plan: &Plan, width: usize) -> Option<Source> {
    let (shape, structure) = (Shape::of(plan), plan.structure()?);
    // Checked before the search for factorizations, which is too long for many lost blocks.
    if shape.outputs.next_power_of_two() * shape.w > MOST_ROWS {
        return None;
    }
    // Shared memory is accessed four words at a time.
    if !matches!(plan.layout(), Layout::Packets { .. }) || !matches!(shape.w, 4 | 8) {
        return None;
    }
    let (factors, n, base) = Factors::of(plan.field(), structure, width).into_iter().find_map(|factors| {
        let (n, base) = factors.coset()?;
        let sums = (n as usize).max(shape.outputs);
        ((n as usize) >= width && sums * shape.w <= MOST_ROWS).then_some((factors, n, base))
    })?;
    let launch = Launch { threads: THREADS, passes: 1, bytes_per_thread: shape.w * 4 };
    let text = Text(dialect.prelude() + &dialect.head(launch, 1, ""));
    let writer =
        Writer { dialect, shape: &shape, lanes: 1, threads: THREADS, text, counts: Counts::default() };
    let mut transformed = Transformed {
        writer,
        cosets: &factors.cosets,
        n,
        base,
        width,
        temporaries: 0,
        order: Vec::new(),
        loaded: 0,
        lines: Vec::new(),
    };
    transformed.kernel(&factors);
    let Writer { text, counts, .. } = transformed.writer;
    Some(Source { text: text.0, launch, counts })
}

/// The rows of a block in registers.
#[derive(Clone)]
struct Block {
    names: Vec<String>,
    /// If false, the block is zero and its registers are not initialised.
    begun: bool,
}

struct Transformed<'a> {
    writer: Writer<'a>,
    cosets: &'a Cosets,
    /// Points per coset, and the first number of the rows' coset.
    n: u64,
    base: u64,
    /// Inputs that are transformed together.
    width: usize,
    /// Blocks that are neither inputs nor sums.
    temporaries: usize,
    /// Inputs in load order.
    order: Vec<usize>,
    loaded: usize,
    /// Lines whose prefetch addresses are prepared.
    lines: Vec<Lines>,
}

/// Inputs that are transformed together.
struct Group {
    /// The first number of their coset.
    at: u64,
    /// Their first index in the coset, and their number of indices, a power of two.
    first: usize,
    width: usize,
    /// The inputs, by the columns of the matrix.
    members: Vec<Member>,
}

impl Group {
    /// The same group with the fewest indices that contain all members.
    fn narrowed(mut self) -> Group {
        while self.width > 1 {
            let half = self.width / 2;
            let is_low = |member: &Member| member.place < self.first + half;
            let low = self.members.iter().filter(|member| is_low(member)).count();
            match low {
                0 => self.first += half,
                _ if low == self.members.len() => {}
                _ => break,
            }
            self.width = half;
        }
        self
    }
}

impl Transformed<'_> {
    fn kernel(&mut self, factors: &Factors) {
        let (w, n) = (self.writer.shape.w, self.n as usize);
        let form = &factors.cauchy;
        let groups = self.groups(factors);
        let added = factors.added.iter().flatten().copied();
        let of_groups = groups.iter().flat_map(|group| &group.members);
        self.order = of_groups.map(|member| factors.inputs[member.index]).chain(added).collect();
        let sums = n.max(self.writer.shape.outputs);
        self.writer.position();
        self.prepare_prefetch();
        self.writer.declare_sums(sums * w);
        let sum = |place: usize| Block {
            names: (place * w..(place + 1) * w).map(|row| sum_name(0, row)).collect(),
            begun: false,
        };
        let mut sums: Vec<Block> = (0..sums).map(sum).collect();
        // A factor common to all rows is moved to the columns, where it often cancels.
        let shared = form.rows[0].scale;
        for Group { at, first, width, members } in groups {
            let natural = self.cosets.scale(self.n, at);
            let mut blocks: Vec<Option<Block>> = vec![None; width];
            for Member { index, place } in members {
                let scale = self.cosets.field().mul(form.columns[index].scale, shared);
                let block = self.load(factors.inputs[index]);
                blocks[place - first] = Some(self.times(self.cosets.quotient(scale, natural), block));
            }
            let mut blocks: Vec<Block> =
                blocks.into_iter().map(|block| block.unwrap_or_else(|| self.temporary())).collect();
            self.find_coefficients(at + first as u64, &mut blocks);
            let weights = self.weights(at, first, width);
            for (place, block) in blocks.iter().enumerate().filter(|(_, block)| block.begun) {
                let targets = sums[..n].iter_mut().skip(place).step_by(width);
                self.add(block, targets.zip(weights.iter().copied()).collect());
            }
        }
        self.prefetch(0, true);
        self.find_values(&mut sums[..n]);
        let mut values = Vec::new();
        for (row, point) in form.rows.iter().enumerate() {
            let mut value = sums[(point.at ^ self.base) as usize].clone();
            value = self.times(self.cosets.quotient(point.scale, shared), value);
            if let Some(&Some(input)) = factors.added.get(row) {
                let block = self.load(input);
                self.add(&block, vec![(&mut value, 1)]);
            }
            values.push(value);
        }
        if let Some(solve) = &factors.solve {
            values = self.solve(solve, &values);
        }
        values.iter().enumerate().for_each(|(output, value)| self.store(output, value));
        line!(self.writer.text, "}}");
    }

    /// Inputs in memory order, as far as cosets allow.
    fn groups(&self, factors: &Factors) -> Vec<Group> {
        let mut cosets: Vec<_> = by_coset(&factors.cauchy.columns, self.n, self.base).into_iter().collect();
        cosets.sort_by_key(|(_, members)| members.iter().map(|member| member.index).min());
        let in_groups = |(at, members): (u64, Vec<Member>)| {
            (0..self.n as usize).step_by(self.width).map(move |first| {
                let here = |member: &&Member| (first..first + self.width).contains(&member.place);
                let members = members.iter().filter(here).copied().collect();
                Group { at, first, width: self.width, members }
            })
        };
        let groups = cosets.into_iter().flat_map(in_groups);
        groups.filter(|group| !group.members.is_empty()).map(Group::narrowed).collect()
    }

    /// Computes the outputs from the sums. A value that contributes unscaled to exactly one output stays in its
    /// registers; the others are written to shared memory, and their registers are reused for the other outputs.
    fn solve(&mut self, solve: &Matrix, values: &[Block]) -> Vec<Block> {
        let only_output = |column: usize| {
            let mut takers = (0..solve.rows()).filter(|&row| solve.at(row, column) != 0);
            takers.next().filter(|&row| takers.next().is_none() && solve.at(row, column) == 1)
        };
        let mut outputs: Vec<Option<Block>> = vec![None; solve.rows()];
        let mut waiting = Vec::new();
        for (column, value) in values.iter().enumerate() {
            match only_output(column).filter(|&row| outputs[row].is_none()) {
                Some(row) => outputs[row] = Some(value.clone()),
                None => waiting.push(column),
            }
        }
        self.declare_waiting(values.len());
        waiting.iter().for_each(|&column| self.put(column, &values[column]));
        line!(self.writer.text, "SETTLE;");
        let free = |&column: &usize| Block { begun: false, ..values[column].clone() };
        let mut free: Vec<Block> = waiting.iter().map(free).collect();
        let begin = |output: Option<Block>| output.or_else(|| free.pop());
        let outputs: Option<Vec<Block>> = outputs.into_iter().map(begin).collect();
        let mut outputs = outputs.expect("every output has an initial value or a term in shared memory");
        waiting.retain(|&column| values[column].begun);
        for (done, &column) in waiting.iter().enumerate() {
            let block = self.get(column, values[column].names.len());
            let factor = |row: usize| solve.at(row, column);
            let targets = outputs.iter_mut().enumerate().map(|(row, output)| (output, factor(row)));
            self.add(&block, targets.collect());
            if done == 0 {
                self.prefetch(AT_ONCE, true);
            }
        }
        outputs
    }

    fn load(&mut self, input: usize) -> Block {
        if self.loaded.is_multiple_of(AT_ONCE) {
            self.prefetch(self.loaded + AT_ONCE, false);
        }
        self.loaded += 1;
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
            // Bit b of a product is the sum of the bits whose power of x times the factor has bit b.
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

    /// A product with a constant; the block itself for 1.
    fn times(&mut self, factor: u64, block: Block) -> Block {
        if factor == 1 || !block.begun {
            return block;
        }
        let mut product = self.temporary();
        self.add(&block, vec![(&mut product, factor)]);
        product
    }

    /// Transforms values at the points from `at` on to coefficients, among `blocks` alone.
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

    /// Transforms coefficients to values at the points 0..n.
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

    /// The combined effect of the other levels on `width` inputs from index `first` of the coset at `at`: the factor
    /// with which they are added to each group of `width` sums.
    fn weights(&self, at: u64, first: usize, width: usize) -> Vec<u64> {
        let field = self.cosets.field();
        let mut weights = vec![0; self.n as usize / width];
        weights[first / width] = 1;
        let mut h = 1;
        while h < weights.len() {
            for first in (0..weights.len()).step_by(2 * h) {
                let twiddle = self.cosets.twiddle((h * width) as u64, at + (first * width) as u64);
                for place in first..first + h {
                    weights[place + h] ^= weights[place];
                    weights[place] ^= field.mul(twiddle, weights[place + h]);
                }
            }
            h *= 2;
        }
        weights
    }

    fn declare_waiting(&mut self, blocks: usize) {
        let pieces = blocks * self.writer.shape.w / 4;
        line!(self.writer.text, "SHARED uint4 stage[{}];", pieces * THREADS);
        line!(
            self.writer.text,
            "SHARED_POINTER byte* const mine = (SHARED_POINTER byte*)stage + LOCAL_X * 16u;"
        );
    }

    /// Shared memory address of a piece of the block at `place`. A thread reads only its own values.
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

    /// The purpose of this kernel.
    #[test]
    fn there_are_half_as_many_additions() {
        for (code, share) in [("64+16:packets=2048", 0.43), ("32+16:packets=2048", 0.48)] {
            let plan = encode(code);
            let additions = source(Dialect::Cuda, &plan, WIDTH).unwrap().counts.arithmetic() as f64;
            let matrix = Tuning::of(&Shape::of(&plan)).operations(&Shape::of(&plan)) as f64;
            assert!(additions < share * matrix, "{code}: {additions} of {matrix}");
        }
    }

    fn repair(code: &str, lost: &[usize]) -> Plan {
        let code = code.parse::<Code>().unwrap();
        let left: Vec<usize> = (0..code.blocks()).filter(|column| !lost.contains(column)).collect();
        code.repair_plan(lost, &left).unwrap()
    }

    fn counts(plan: &Plan) -> Counts {
        source(Dialect::OpenCl, plan, WIDTH).unwrap().counts
    }

    #[test]
    fn every_input_is_read_once_and_every_output_written_once() {
        let code = "64+16:packets=2048";
        let (spread, first): (Vec<usize>, Vec<usize>) = ((0..64).step_by(4).collect(), (0..16).collect());
        for plan in [encode(code), repair(code, &spread), repair(code, &first)] {
            let counts = counts(&plan);
            assert_eq!((counts.loaded, counts.stored), (64 * 8, 16 * 8));
        }
    }

    /// Their points, or most of them, are a coset like those of the redundancy, in another numbering.
    #[test]
    fn regular_losses_are_repaired_with_about_the_additions_of_encoding() {
        for (code, k) in [("64+16:packets=2048", 64), ("32+16:packets=2048", 32)] {
            let encoding = counts(&encode(code)).arithmetic();
            let neighbours = (0..k / 16).map(|domain| (16 * domain..16 * domain + 16).collect());
            let in_turn = (0..k / 16).map(|domain| (domain..k).step_by(k / 16).collect());
            for lost in neighbours.chain(in_turn).collect::<Vec<Vec<usize>>>() {
                let repairing = counts(&repair(code, &lost)).arithmetic();
                assert!(6 * repairing < 7 * encoding, "{code} {lost:?}: {repairing}, {encoding}");
            }
        }
    }

    /// Whole groups of inputs, one line per thread; the last inputs by fewer threads.
    #[test]
    fn inputs_are_prefetched_before_they_are_loaded() {
        let text = |code: &str| source(Dialect::Cuda, &encode(code), WIDTH).unwrap().text;
        let asked = |text: &str| text.matches("PREFETCH(*").count();
        // All but the first four inputs, and the first four of a later tile.
        assert_eq!(asked(&text("64+16:packets=2048")), 16);
        let odd = text("65+16:packets=2048");
        assert_eq!(asked(&odd), 17);
        assert!(odd.contains("if (LOCAL_X < 16u) PREFETCH"), "{odd}");
        for code in ["32+16:packets=2048", "64+16:packets=32"] {
            let text = source(Dialect::Cuda, &encode(code), WIDTH).map(|source| source.text);
            assert_eq!(text.as_deref().map_or(0, asked), 0, "{code}");
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
        let (code, lost) = ("200+56:packets=64", (0..56).map(|place| 3 * place).collect::<Vec<_>>());
        assert!(source(Dialect::Cuda, &repair(code, &lost), 4).is_none());
    }
}
