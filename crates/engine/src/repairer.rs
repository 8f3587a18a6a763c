//! Repair of stripes whose losses were not known before.
//!
//! A plan is worth its price when many stripes lost the same columns. Where every stripe lost others, and blocks are
//! small, planning and compiling take longer than the bytes. A code that is known by its points (see
//! [`CauchyForm`]) has another way: the matrix of a repair is a Cauchy matrix on the same points, whose
//! factors are products of distances ([`CauchyForm::exchange`]), and over GF(2^8) all of that is sums of logarithms.

use crate::code::{Code, Layout};
use crate::engine::Engine;
use crate::error::Error;
use crate::field::Field;
use crate::matrix::cauchy::{CauchyForm, Point};

/// Bytes of sources up to which the direct way is taken: beyond, planning costs little beside the pass.
const SMALL_BYTES: usize = 256 << 10;

/// Points of a code over GF(2^8), at most.
const MAX_POINTS: usize = 256;

/// Points of a code whose lists are short: to clear room for 256 takes as long as to repair a small block.
const FEW_POINTS: usize = 32;

/// Coefficients that take no allocation.
const FEW_COEFFICIENTS: usize = 64;

/// Restores blocks of one code.
#[derive(Debug)]
pub struct Repairer {
    engine: Engine,
    code: Code,
    logarithms: Option<Logarithms>,
}

impl Engine {
    /// Prepares repairs of a code.
    pub fn repairer(&self, code: &Code) -> Repairer {
        let byte_words = code.field() == Field::GF8 && code.layout() == Layout::Words;
        let logarithms = code.points().filter(|_| byte_words).map(Logarithms::new);
        Repairer { engine: self.clone(), code: code.clone(), logarithms }
    }
}

impl Repairer {
    /// Makes the `wanted` columns of a stripe, in that order, from k of the blocks that are there. `stripe` has
    /// a block or nothing for every column; blocks of wanted columns are not read.
    ///
    /// # Errors
    /// [`Error::NotEnoughBlocks`], columns that make no sense, buffers that do not fit; nothing is written then.
    pub fn repair(
        &self,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let (k, blocks) = (self.code.k(), self.code.blocks());
        if stripe.len() != blocks || wanted.len() != outputs.len() {
            let (want_inputs, want_outputs) = (blocks, wanted.len());
            let (inputs, outputs) = (stripe.len(), outputs.len());
            return Err(Error::BufferCount { want_inputs, want_outputs, inputs, outputs });
        }
        let Some(len) = outputs.first().map(|output| output.len()) else { return Ok(()) };
        match &self.logarithms {
            Some(logarithms) if len.saturating_mul(k) <= SMALL_BYTES => match blocks {
                ..=FEW_POINTS => self.repair_directly::<FEW_POINTS>(logarithms, stripe, wanted, outputs, len),
                _ => self.repair_directly::<MAX_POINTS>(logarithms, stripe, wanted, outputs, len),
            },
            _ => self.repair_by_plan(stripe, wanted, outputs),
        }
    }

    fn repair_by_plan(
        &self,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let there = (0..stripe.len()).filter(|column| stripe[*column].is_some() && !wanted.contains(column));
        let plan = self.code.repair_plan(wanted, &there.collect::<Vec<_>>())?;
        let inputs: Vec<&[u8]> = plan.inputs().iter().filter_map(|&column| stripe[column]).collect();
        self.engine.compile(&plan)?.run(&inputs, outputs)
    }

    /// The code has at most N points.
    fn repair_directly<const N: usize>(
        &self,
        logarithms: &Logarithms,
        stripe: &[Option<&[u8]>],
        wanted: &[usize],
        outputs: &mut [&mut [u8]],
        want: usize,
    ) -> Result<(), Error> {
        let (k, last) = (self.code.k(), self.code.blocks() - 1);
        let mut is_wanted = [false; N];
        for &column in wanted {
            let seen = is_wanted.get_mut(column).filter(|_| column <= last);
            if std::mem::replace(seen.ok_or(Error::NoSuchColumn { column, last })?, true) {
                return Err(Error::ColumnTwice { column });
            }
        }
        let mut choice = Sources::<N>::default();
        let mut inputs: [&[u8]; N] = [&[]; N];
        for (column, block) in stripe.iter().enumerate() {
            match block.filter(|_| !is_wanted[column]) {
                // Data first, then as many redundancy blocks as data is missing.
                Some(block) if column < k || choice.sources.len() < k => {
                    inputs[choice.sources.len()] = block;
                    choice.add_source(column, k);
                }
                None if column < k => choice.unknown.push(column as u8),
                _ => {}
            }
        }
        if choice.sources.len() < k {
            return Err(Error::NotEnoughBlocks { need: k, have: choice.sources.len() });
        }
        let inputs = &inputs[..k];
        let lengths = inputs.iter().map(|b| b.len()).chain(outputs.iter().map(|b| b.len()));
        if let Some((index, len)) = lengths.enumerate().find(|&(_, len)| len != want) {
            return Err(Error::BufferLength { index, len, want });
        }
        let (mut few, mut many) = ([0; FEW_COEFFICIENTS], Vec::new());
        let count = wanted.len() * k;
        let coefficients = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, 0);
                &mut many[..]
            }
        };
        logarithms.write_matrix(&choice, wanted, coefficients);
        self.engine.row().multiply(coefficients, inputs, outputs, want)
    }
}

/// A list of columns without an allocation.
#[derive(Clone, Copy)]
struct Columns<const N: usize> {
    count: usize,
    columns: [u8; N],
}

impl<const N: usize> Default for Columns<N> {
    fn default() -> Columns<N> {
        Columns { count: 0, columns: [0; N] }
    }
}

impl<const N: usize> Columns<N> {
    fn push(&mut self, column: u8) {
        self.columns[self.count] = column;
        self.count += 1;
    }

    fn len(&self) -> usize {
        self.count
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        self.columns[..self.count].iter().map(|&column| column as usize)
    }
}

/// What a repair reads: k sources; those that are redundancy stand for the unknown data, one each.
#[derive(Default)]
struct Sources<const N: usize> {
    sources: Columns<N>,
    redundancy: Columns<N>,
    unknown: Columns<N>,
}

impl<const N: usize> Sources<N> {
    fn add_source(&mut self, column: usize, k: usize) {
        self.sources.push(column as u8);
        if column >= k {
            self.redundancy.push(column as u8);
        }
    }
}

/// The points of a code as logarithms, by column.
#[derive(Debug)]
struct Logarithms {
    at: Vec<u8>,
    scale: Vec<u32>,
    /// log[0] is 0, so that a product of distances leaves out the point itself.
    log: [u32; 256],
    exp: [u8; 3 * PERIOD as usize],
}

/// Non-zero elements of GF(2^8).
const PERIOD: u32 = 255;

impl Logarithms {
    fn new(points: &CauchyForm) -> Logarithms {
        let (mut log, mut exp) = ([0; 256], [0; 3 * PERIOD as usize]);
        for (i, power) in exp.iter_mut().enumerate() {
            let value = Field::GF8.exp(i as u64 % u64::from(PERIOD));
            *power = value as u8;
            log[value as usize] = i as u32 % PERIOD;
        }
        let columns = || points.columns.iter().chain(&points.rows);
        let at = columns().map(|point: &Point| point.at as u8).collect();
        let scale = columns().map(|point| log[point.scale as usize]).collect();
        Logarithms { at, scale, log, exp }
    }

    /// Logarithm of the product of distances from a column to others, without itself.
    fn distances<const N: usize>(&self, from: usize, to: &Columns<N>) -> u32 {
        let from = self.at[from];
        to.iter().map(|column| self.log[(from ^ self.at[column]) as usize]).sum()
    }

    /// The logarithm of the factor of a column, as [`CauchyForm::exchange`] has them: `over` and `under` are the points
    /// whose distances multiply and divide it; one that changed sides divides by its old factor.
    fn factor<const N: usize>(
        &self,
        column: usize,
        over: &Columns<N>,
        under: &Columns<N>,
        changed_sides: bool,
    ) -> u32 {
        let scale = if changed_sides { PERIOD - self.scale[column] } else { self.scale[column] };
        let below = self.distances(column, under) % PERIOD;
        (scale + self.distances(column, over) + PERIOD - below) % PERIOD
    }

    /// The matrix of a repair, wanted block by wanted block, a coefficient for each of the k sources.
    fn write_matrix<const N: usize>(&self, choice: &Sources<N>, wanted: &[usize], matrix: &mut [u8]) {
        let k = choice.sources.len();
        let (unknown, redundancy) = (&choice.unknown, &choice.redundancy);
        let mut factors = [0; N];
        for (factor, column) in factors.iter_mut().zip(choice.sources.iter()) {
            *factor = self.factor(column, unknown, redundancy, column >= k);
        }
        for (&row, coefficients) in wanted.iter().zip(matrix.chunks_exact_mut(k)) {
            let row_factor = self.factor(row, redundancy, unknown, row < k) + PERIOD;
            let from = self.at[row];
            let sources = choice.sources.iter().zip(&factors);
            for (coefficient, (column, factor)) in coefficients.iter_mut().zip(sources) {
                let distance = self.log[(from ^ self.at[column]) as usize];
                *coefficient = self.exp[(row_factor + factor - distance) as usize];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Random;

    /// Every family, block lengths of both ways, random losses of data and redundancy.
    #[test]
    fn what_was_lost_comes_back() {
        let engine = Engine::new(1).unwrap();
        let mut random = Random(0x7265_7061_6972);
        for code in [
            "subspace:1+3",
            "10+4",
            "30+33",
            "cauchy-isal:16+4",
            "cauchy:7+3",
            "rs-vandermonde:6+3",
            "20+5:w16",
        ] {
            let code: Code = code.parse().unwrap();
            let (k, m) = (code.k(), code.m());
            for len in [0, 2, 130, 4096, 300 << 10] {
                let mut stripe = vec![vec![0; len]; code.blocks()];
                stripe[..k].iter_mut().for_each(|block| random.fill(block));
                let (data, redundancy) = stripe.split_at_mut(k);
                let data: Vec<&[u8]> = data.iter().map(|block| &block[..]).collect();
                let mut redundancy: Vec<&mut [u8]> =
                    redundancy.iter_mut().map(|block| &mut block[..]).collect();
                engine.compile(&code.encode_plan().unwrap()).unwrap().run(&data, &mut redundancy).unwrap();
                let repairer = engine.repairer(&code);
                for _ in 0..20 {
                    let mut columns: Vec<usize> = (0..code.blocks()).collect();
                    for i in (1..columns.len()).rev() {
                        columns.swap(i, random.below(i + 1));
                    }
                    let (missing, _) = columns.split_at(random.below(m + 1));
                    let wanted = &missing[..random.below(missing.len() + 1)];
                    let there: Vec<Option<&[u8]>> = (0..code.blocks())
                        .map(|c| (!missing.contains(&c)).then_some(&stripe[c][..]))
                        .collect();
                    let mut outputs = vec![vec![0xaa; len]; wanted.len()];
                    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(|block| &mut block[..]).collect();
                    repairer.repair(&there, wanted, &mut slices).unwrap();
                    for (&column, output) in wanted.iter().zip(&outputs) {
                        assert!(
                            *output == stripe[column],
                            "{code}, {len} bytes: column {column} of {missing:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn impossible_repairs_say_why() {
        let code: Code = "4+2".parse().unwrap();
        let repairer = Engine::new(1).unwrap().repairer(&code);
        let block = [7u8; 8];
        let stripe = |there: [bool; 6]| there.map(|there| there.then_some(&block[..]));
        let (mut a, mut b) = ([0; 8], [0; 8]);
        let mut repair = |there, wanted: &[usize]| {
            repairer.repair(&stripe(there), wanted, &mut [&mut a[..], &mut b[..]][..wanted.len()])
        };
        let all = [true; 6];
        assert_eq!(repair(all, &[6]), Err(Error::NoSuchColumn { column: 6, last: 5 }));
        assert_eq!(repair(all, &[300]), Err(Error::NoSuchColumn { column: 300, last: 5 }));
        assert_eq!(repair(all, &[1, 1]), Err(Error::ColumnTwice { column: 1 }));
        let few = [false, false, true, true, true, false];
        assert_eq!(repair(few, &[0]), Err(Error::NotEnoughBlocks { need: 4, have: 3 }));
        assert_eq!(repair(all, &[0, 5]), Ok(()), "blocks of wanted columns are not read");
        let short = repairer.repair(&stripe(all), &[0], &mut [&mut [0; 7]]);
        assert_eq!(short, Err(Error::BufferLength { index: 0, len: 8, want: 7 }));
        let counts = repairer.repair(&stripe(all)[1..], &[0], &mut [&mut [0; 8]]);
        assert!(matches!(counts, Err(Error::BufferCount { .. })));
    }
}
