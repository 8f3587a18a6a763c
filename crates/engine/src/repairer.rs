//! Repair of single stripes with arbitrary erasure patterns.
//!
//! A plan pays if many stripes lost the same columns. If every stripe has another erasure pattern and blocks fit in the
//! caches, planning and compiling take longer than they save. For codes with points (see
//! [`CauchyForm`](crate::matrix::cauchy::CauchyForm)) there is a direct method: the repair matrix is a Cauchy matrix on
//! the same points, its factors are products of distances, and over GF(2^8) these are sums of logarithms. With many
//! losses the points alone are used, by transforms, also for larger blocks.
//!
//! The most frequent loss is a disk, and with it the same column of many stripes. After some consecutive small stripes
//! with the same erasure pattern a plan is compiled and cached.

use crate::code::Code;
use crate::engine::{Compiled, Engine};
use crate::error::Error;
use crate::field::Field;
use crate::kernel::{Product, ProductKernel, may_be_transformed};
use crate::layout::Layout;
use crate::tuning::{MAX_DIRECT_BYTES, MAX_TRANSFORMED_BLOCK, REPEAT_MASK};
use logarithms::{Logarithms, RepairSources};
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

mod logarithms;

/// Maximum points of a code over GF(2^8).
const MAX_POINTS: usize = 256;

/// List sizes for codes with few points: clearing lists of 256 entries takes as long as repairing a small block.
const FEW_POINTS: usize = 32;
const FEWER_POINTS: usize = 16;

/// Coefficients that fit on the stack.
const FEW_COEFFICIENTS: usize = 64;

/// Repairs stripes of one code.
#[derive(Debug)]
pub struct Repairer {
    engine: Engine,
    code: Code,
    logarithms: Option<Logarithms>,
    /// The [fingerprint](Loss::fingerprint) of the last small loss, and its number of consecutive repetitions in the
    /// bits of [`REPEAT_MASK`].
    last: AtomicU64,
    /// The last plan. If the lock is taken, callers plan on their own and do not wait.
    cached: RwLock<Option<CachedPlan>>,
}

/// A stripe with `None` for missing blocks, and the wanted columns.
#[derive(Clone, Copy)]
struct Loss<'a> {
    stripe: &'a [Option<&'a [u8]>],
    wanted: &'a [usize],
}

/// An erasure pattern and its plan.
#[derive(Debug)]
struct CachedPlan {
    there: Vec<bool>,
    compiled: Compiled,
}

impl Loss<'_> {
    /// A hash of the erasure pattern.
    fn fingerprint(self) -> u64 {
        /// Multiplier of the hash: 2^64 divided by the golden ratio, odd.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let missing =
            self.stripe.iter().fold(1, |sum: u64, block| sum.rotate_left(1) ^ u64::from(block.is_none()));
        self.wanted.iter().fold(missing, |sum, &column| (sum ^ column as u64).wrapping_mul(SPREAD))
    }

    fn is_of(self, cached: &CachedPlan) -> bool {
        let there = self.stripe.iter().map(|block| block.is_some());
        self.wanted == cached.compiled.plan().outputs() && there.eq(cached.there.iter().copied())
    }
}

impl Engine {
    /// Prepares repairs of a code.
    pub fn repairer(&self, code: &Code) -> Repairer {
        let byte_words = code.field() == Field::GF8 && code.layout() == Layout::Words;
        let logarithms = code.points().filter(|_| byte_words).map(Logarithms::new);
        let (engine, code) = (self.clone(), code.clone());
        Repairer { engine, code, logarithms, last: AtomicU64::new(0), cached: RwLock::default() }
    }
}

impl Repairer {
    /// Computes the `wanted` columns of a stripe, in that order, from k of the available blocks. `stripe` has `Some`
    /// block or `None` for every column; blocks of wanted columns are not read.
    ///
    /// # Errors
    /// [`Error::NotEnoughBlocks`], invalid columns, buffers that do not fit; nothing is written then.
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
        let loss = Loss { stripe, wanted };
        let is_small = len.saturating_mul(k) <= MAX_DIRECT_BYTES;
        let may_transform = len <= MAX_TRANSFORMED_BLOCK && may_be_transformed(wanted.len() * k, 0);
        if let Some(logarithms) = &self.logarithms
            && (is_small || may_transform)
            && !self.is_repeated(loss)
        {
            let done = if blocks <= FEWER_POINTS {
                self.repair_directly::<FEWER_POINTS>(logarithms, loss, outputs, len)
            } else if blocks <= FEW_POINTS {
                self.repair_directly::<FEW_POINTS>(logarithms, loss, outputs, len)
            } else {
                self.repair_directly::<MAX_POINTS>(logarithms, loss, outputs, len)
            };
            if done? {
                return Ok(());
            }
        }
        self.repair_by_plan(loss, outputs)
    }

    /// True if the last stripes had the same erasure pattern.
    fn is_repeated(&self, loss: Loss<'_>) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let fingerprint = loss.fingerprint() & !REPEAT_MASK;
        let repeats = if last & !REPEAT_MASK == fingerprint { (last & REPEAT_MASK) + 1 } else { 0 };
        if repeats > REPEAT_MASK {
            return true;
        }
        self.last.store(fingerprint | repeats, Ordering::Relaxed);
        false
    }

    fn repair_by_plan(&self, loss: Loss<'_>, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        if let Ok(cached) = self.cached.try_read()
            && let Some(cached) = cached.as_ref().filter(|cached| loss.is_of(cached))
        {
            return cached.run(loss.stripe, outputs);
        }
        let plan = self.plan(loss)?;
        plan.run(loss.stripe, outputs)?;
        if let Ok(mut cached) = self.cached.try_write() {
            *cached = Some(plan);
        }
        Ok(())
    }

    fn plan(&self, loss: Loss<'_>) -> Result<CachedPlan, Error> {
        let there: Vec<bool> = loss.stripe.iter().map(|block| block.is_some()).collect();
        let sources = (0..there.len()).filter(|column| there[*column] && !loss.wanted.contains(column));
        let plan = self.code.repair_plan(loss.wanted, &sources.collect::<Vec<_>>())?;
        Ok(CachedPlan { there, compiled: self.engine.compile(&plan)? })
    }

    /// Repairs directly; the code has at most N points. `false`, with nothing done, for blocks so large that a plan is
    /// faster.
    fn repair_directly<const N: usize>(
        &self,
        logarithms: &Logarithms,
        Loss { stripe, wanted }: Loss<'_>,
        outputs: &mut [&mut [u8]],
        want: usize,
    ) -> Result<bool, Error> {
        let (k, last) = (self.code.k(), self.code.blocks() - 1);
        let mut is_wanted = [false; N];
        for &column in wanted {
            let seen = is_wanted.get_mut(column).filter(|_| column <= last);
            if std::mem::replace(seen.ok_or(Error::NoSuchColumn { column, last })?, true) {
                return Err(Error::ColumnTwice { column });
            }
        }
        let mut sources = RepairSources::<N>::new(logarithms);
        let mut inputs: [&[u8]; N] = [&[]; N];
        for (column, block) in stripe.iter().enumerate() {
            // Data first, then as many redundancy blocks as data blocks are missing.
            inputs[sources.len()] = block.unwrap_or(&[]);
            sources.add_column(column, block.is_some() & !is_wanted[column]);
        }
        if sources.len() < k {
            return Err(Error::NotEnoughBlocks { need: k, have: sources.len() });
        }
        let inputs = &inputs[..k];
        let fit = inputs.iter().all(|b| b.len() == want) && outputs.iter().all(|b| b.len() == want);
        let lengths = || inputs.iter().map(|b| b.len()).chain(outputs.iter().map(|b| b.len()));
        if !fit && let Some((index, len)) = lengths().enumerate().find(|&(_, len)| len != want) {
            return Err(Error::BufferLength { index, len, want });
        }
        let count = wanted.len() * k;
        let may = may_be_transformed(count, sources.bits(wanted));
        if let Some(product) = may.then(|| Product::of_points(&sources.form(wanted))).flatten() {
            return self.multiply(product, inputs, outputs).map(|()| true);
        }
        if want.saturating_mul(k) > MAX_DIRECT_BYTES {
            return Ok(false);
        }
        let (mut few, mut many) = ([0; FEW_COEFFICIENTS], Vec::new());
        let coefficients = match few.get_mut(..count) {
            Some(few) => few,
            None => {
                many.resize(count, 0);
                &mut many[..]
            }
        };
        sources.write_matrix(wanted, coefficients);
        self.multiply(Product::Coefficients(coefficients), inputs, outputs).map(|()| true)
    }

    /// Runs on all threads where that pays.
    fn multiply(
        &self,
        product: Product<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let kernel = ProductKernel { set: self.engine.kernel_set(), product };
        self.engine.pool().run(&kernel, 1, inputs, outputs)
    }
}

impl CachedPlan {
    fn run(&self, stripe: &[Option<&[u8]>], outputs: &mut [&mut [u8]]) -> Result<(), Error> {
        let sources = self.compiled.plan().inputs();
        let (mut few, mut many): ([&[u8]; FEW_POINTS], _) = ([&[]; FEW_POINTS], Vec::new());
        let inputs = match few.get_mut(..sources.len()) {
            Some(few) => few,
            None => {
                many.resize(sources.len(), &[][..]);
                &mut many[..]
            }
        };
        for (input, &column) in inputs.iter_mut().zip(sources) {
            // The pattern of the plan matches, so all sources are present.
            *input = stripe[column].unwrap_or(&[]);
        }
        self.compiled.run(inputs, outputs)
    }
}

#[cfg(test)]
mod tests;
