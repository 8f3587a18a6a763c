//! Additive FFTs over blocks of GF(2^8) or GF(2^16): executes a [`Transform`] tile by tile.
//!
//! ```text
//! for every tile:
//!     for every coset of inputs:
//!         buffer = weights · inputs;  to coefficients;  differentiated if V is shared
//!     sum of them → every coset of outputs:
//!         to values;  outputs = weights · buffer + strays
//! ```
//!
//! (1) Planes: in the buffers the bytes of symbols are separated, one register per byte, together a *column*; they are
//!     split and joined once.
//! (2) Several levels at once: the columns of four points, or eight where symbols are bytes, are loaded, go through all
//!     butterflies between them and are stored. The first of these passes reads the inputs, the last one writes the
//!     outputs, and from a single coset of inputs to a single one of outputs the coefficients are not stored at all.
//! (3) Depth first: a block of the transform is finished before its neighbour is started, so that most levels find
//!     their columns in L1, for transforms of any size.
//! (4) No tables of factors: butterflies derive their maps from the constant of their block. All maps of GF(2^8) are
//!     precomputed; those of GF(2^16) are linear in the constant, and so sums of four entries of [`Multipliers`].
//! (5) Tail: less than a column is processed through zero-padded copies of all blocks.

mod ends;
mod multipliers;

pub(in crate::kernel) use multipliers::Multipliers;

use super::Buffers;
use crate::kernel::transform::{Coset, Member, Side, Transform};
use crate::kernel::vector::Vector;
use crate::matrix::additive::Additive;
use crate::tuning::{MAX_STRAYS, TRANSFORM_BUFFER_BYTES, TRANSFORM_PREFETCH_BLOCKS};
use ends::{
    BufferPoints, Constants, InputPoints, MAX_POINTS, OutputPoints, Source, Target, add_product, read, sum,
    write,
};
use multipliers::{Maps, Multiply};
use std::marker::PhantomData;

/// Maximum columns of a block in a tile.
const MAX_COLUMNS: usize = 8;

/// Levels of the largest transform, that of the whole field.
const LEVELS: usize = 16;

/// Work buffer for one or two cosets of columns.
#[derive(Default)]
pub(in crate::kernel) struct WorkBuffer(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// One call.
pub(in crate::kernel) struct Transforming<'a, 'b, V: Vector> {
    pub(in crate::kernel) transform: &'a Transform,
    pub(in crate::kernel) multipliers: &'a Multipliers<V::Map>,
    pub(in crate::kernel) work: &'a mut WorkBuffer,
    pub(in crate::kernel) buffers: Buffers<'a, 'b>,
}

impl<V: Vector> Transforming<'_, '_, V> {
    /// # Safety
    /// The CPU has the instruction set of `V`; all buffers have the length that the call states, and there are as many
    /// as the transform has inputs and outputs; the multipliers are those of its field.
    #[inline(always)]
    pub(in crate::kernel) unsafe fn execute(self) {
        let Transforming { transform, multipliers, work, buffers } = self;
        // SAFETY: passed on unchanged.
        unsafe {
            match multipliers {
                Multipliers::Bytes(products) => run::<V, _, 1>(transform, *products, work, buffers),
                Multipliers::Words(products) => run::<V, _, 2>(transform, &**products, work, buffers),
            }
        }
    }
}

/// Runs over all whole columns, then the rest in a column of copies.
#[inline(always)]
unsafe fn run<V: Vector, X: Multiply<V::Map, B>, const B: usize>(
    transform: &Transform,
    multipliers: X,
    work: &mut WorkBuffer,
    buffers: Buffers<'_, '_>,
) {
    let Buffers { inputs, outputs, len, add, .. } = buffers;
    let column = B * V::BYTES;
    let rest = len % column;
    let from: Vec<*const u8> = inputs.iter().map(|input| input.as_ptr()).collect();
    let to: Vec<*mut u8> = outputs.iter_mut().map(|output| output.as_mut_ptr()).collect();
    let mut padded = vec![0u8; if rest > 0 { (inputs.len() + outputs.len()) * column } else { 0 }];
    // SAFETY: whole columns lie within all buffers; the rest is copied into columns of its own.
    unsafe {
        let mut run = |from: &[*const u8], to: &[*mut u8], len| {
            run_columns::<V, X, B>(transform, multipliers, work, Blocks { from, to, len, add });
        };
        run(&from, &to, len - rest);
        if rest == 0 {
            return;
        }
        let (sources, targets) = padded.split_at_mut(inputs.len() * column);
        for (input, copy) in inputs.iter().zip(sources.chunks_exact_mut(column)) {
            copy[..rest].copy_from_slice(&input[len - rest..]);
        }
        for (output, copy) in outputs.iter().zip(targets.chunks_exact_mut(column)) {
            copy[..rest].copy_from_slice(&output[len - rest..]);
        }
        let from: Vec<*const u8> = sources.chunks_exact(column).map(|copy| copy.as_ptr()).collect();
        let to: Vec<*mut u8> = targets.chunks_exact_mut(column).map(|copy| copy.as_mut_ptr()).collect();
        run(&from, &to, column);
        for (output, copy) in outputs.iter_mut().zip(targets.chunks_exact(column)) {
            output[len - rest..].copy_from_slice(&copy[..rest]);
        }
    }
}

/// Blocks of whole columns.
struct Blocks<'a> {
    from: &'a [*const u8],
    to: &'a [*mut u8],
    len: usize,
    add: bool,
}

#[inline(always)]
unsafe fn run_columns<V: Vector, X: Multiply<V::Map, B>, const B: usize>(
    transform: &Transform,
    multipliers: X,
    work: &mut WorkBuffer,
    blocks: Blocks<'_>,
) {
    let Transform { log, inputs, outputs, .. } = transform;
    let column = B * V::BYTES;
    let size = column << log;
    let most = (TRANSFORM_BUFFER_BYTES / size).clamp(1, MAX_COLUMNS).min(blocks.len / column);
    let tile_bytes = most * size;
    let needed = if inputs.cosets.len().max(outputs.cosets.len()) > 1 { 2 * tile_bytes } else { tile_bytes };
    work.0.resize(work.0.len().max(needed.div_ceil(64)), Line { _bytes: [0; 64] });
    let start = work.0.as_mut_ptr().cast::<u8>();
    let (additive, differentiates) = (Additive::of(transform.field), transform.differentiates());
    let turns = inputs.cosets.first().filter(|_| transform.is_between_two_cosets()).map(|coset| coset.at);
    let none = multipliers.of(0);
    let mut constants = Constants { weights: [none; MAX_POINTS], strays: [[none; MAX_POINTS]; MAX_STRAYS] };
    let mut at = 0;
    while at < blocks.len {
        let columns = most.min((blocks.len - at) / column);
        let tile = Tile { transform, blocks: &blocks, at, next: at + columns * column };
        let points = |start| Points::<V, X, B> {
            additive,
            multipliers,
            start,
            log: *log,
            columns,
            vector: PhantomData,
        };
        // SAFETY: the buffer has `tile_bytes` bytes for each of the two parts; the second part exists if there are
        // several cosets, which use it; columns <= most, and tiles lie within all blocks.
        unsafe {
            let (mut first, mut second) = (points(start), points(start.add(tile_bytes)));
            for (index, coset) in inputs.cosets.iter().enumerate() {
                let points = if index == 0 { &mut first } else { &mut second };
                points.interpolate(coset, turns, &tile, &mut constants);
                if differentiates && coset.at == 0 && outputs.cosets.len() == 1 {
                    points.differentiate();
                }
                if index > 0 {
                    first.add(&second);
                }
            }
            if inputs.cosets.is_empty() {
                first.start.write_bytes(0, first.bytes());
            }
            for stray in &transform.strays {
                tile.prefetch_part::<V>(blocks.from[stray.block as usize], tile.next);
            }
            for coset in &outputs.cosets {
                let points = if outputs.cosets.len() == 1 { &mut first } else { &mut second };
                if outputs.cosets.len() > 1 {
                    points.start.copy_from_nonoverlapping(start, points.bytes());
                    if differentiates && coset.at == 0 {
                        points.differentiate();
                    }
                }
                points.evaluate(coset, turns, &tile, &mut constants);
            }
        }
        at = tile.next;
    }
}

/// The bytes `at..next` of all blocks.
struct Tile<'a> {
    transform: &'a Transform,
    blocks: &'a Blocks<'a>,
    at: usize,
    next: usize,
}

impl Tile<'_> {
    /// Prefetches the same tile of a block that is processed some blocks later, or its next tile if it was already
    /// processed.
    #[inline(always)]
    unsafe fn prefetch_ahead<V: Vector>(
        &self,
        side: &Side,
        member: usize,
        start: impl Fn(usize) -> *const u8,
    ) {
        let ahead = member + TRANSFORM_PREFETCH_BLOCKS;
        let count = side.members.len();
        let (member, at) =
            if ahead < count { (ahead, self.at) } else { ((ahead - count) % count, self.next) };
        // SAFETY: passed on unchanged.
        unsafe { self.prefetch_part::<V>(start(side.members[member].block as usize), at) };
    }

    /// Prefetches a tile's length of a block from `at` on.
    #[inline(always)]
    unsafe fn prefetch_part<V: Vector>(&self, block: *const u8, at: usize) {
        let from = block.wrapping_add(at);
        for line in (0..self.next - self.at).step_by(64) {
            // SAFETY: a prefetch takes any address.
            unsafe { V::prefetch(from.wrapping_add(line)) };
        }
    }
}

/// A coset in the work buffer: `columns` columns of B registers for every point.
struct Points<V, X, const B: usize> {
    additive: &'static Additive,
    multipliers: X,
    start: *mut u8,
    log: usize,
    columns: usize,
    vector: PhantomData<V>,
}

impl<V: Vector, X: Multiply<V::Map, B>, const B: usize> Points<V, X, B> {
    const COLUMN: usize = B * V::BYTES;
    /// Levels of a pass: it needs B registers for each of 2^LEVELS points, and others for products. There are 32 of the
    /// widest registers, often 16 of others.
    const LEVELS: usize = if B == 1 && V::BYTES == 64 { 3 } else { 2 };

    /// Address of the columns of a point.
    #[inline(always)]
    unsafe fn point(&self, place: usize) -> *mut u8 {
        // SAFETY: `place` is a point of the coset, and the buffer has `columns` columns for each.
        unsafe { self.start.add(place * self.columns * Self::COLUMN) }
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        (self.columns * Self::COLUMN) << self.log
    }

    /// First level of the last pass of an interpolation, which is the first pass of an evaluation; 0 if the pass over
    /// the blocks is the only one.
    #[inline(always)]
    fn top(&self) -> usize {
        self.log.saturating_sub(1) / Self::LEVELS * Self::LEVELS
    }

    /// Number of levels of the pass that reads or writes blocks.
    #[inline(always)]
    fn bottom(&self) -> usize {
        self.log.min(Self::LEVELS)
    }

    #[inline(always)]
    unsafe fn add(&mut self, other: &Self) {
        for at in (0..self.bytes()).step_by(Self::COLUMN) {
            // SAFETY: within both buffers, which have the same size.
            unsafe {
                let to = self.start.add(at);
                write(sum::<V, B>(read(to), read(other.start.add(at))), to);
            }
        }
    }

    /// Differentiates in place: coefficient i becomes the sum of d_j times coefficient i + 2^j over the zero bits j of
    /// i. These have higher indices and are still unmodified.
    #[inline(always)]
    unsafe fn differentiate(&mut self) {
        let mut maps = [self.multipliers.of(0); LEVELS];
        for level in 0..self.log {
            maps[level] = self.multipliers.of(self.additive.derivative(level));
        }
        for place in 0..1usize << self.log {
            for column in 0..self.columns {
                // SAFETY: place and place + 2^j are points of the coset.
                unsafe {
                    let mut total = [V::zero(); B];
                    for level in 0..self.log {
                        if place >> level & 1 == 0 {
                            let from = self.point(place + (1 << level)).add(column * Self::COLUMN);
                            total = add_product(total, read(from), &maps[level]);
                        }
                    }
                    write(total, self.point(place).add(column * Self::COLUMN));
                }
            }
        }
    }

    /// Inputs to coefficients; without the last pass if the evaluation `turns` around there.
    #[inline(always)]
    unsafe fn interpolate(
        &mut self,
        coset: &Coset,
        turns: Option<usize>,
        tile: &Tile<'_>,
        constants: &mut Constants<V::Map, B>,
    ) {
        let (n, size) = (1usize << self.log, 1usize << self.bottom());
        let passes_end = if turns.is_some() { self.top() } else { self.log };
        let mut member = coset.members.start;
        for end in (size..=n).step_by(size) {
            // SAFETY: blocks of a power of two of points that end at a multiple of their size, up to n.
            unsafe {
                self.read_inputs(coset, &mut member, end - size, tile, constants);
                let mut level = Self::LEVELS;
                while level < passes_end {
                    let above = self.log.min(level + Self::LEVELS);
                    if end & ((1 << above) - 1) != 0 {
                        break;
                    }
                    self.in_buffer::<true, false>(above - level, level, end - (1 << above), [coset.at; 2]);
                    level = above;
                }
            }
        }
    }

    /// Coefficients to outputs; starts with the last pass of the interpolation on the coset at `turns`, if given.
    #[inline(always)]
    unsafe fn evaluate(
        &mut self,
        coset: &Coset,
        turns: Option<usize>,
        tile: &Tile<'_>,
        constants: &mut Constants<V::Map, B>,
    ) {
        let (n, top, size) = (1usize << self.log, self.top(), 1usize << self.bottom());
        // SAFETY: the whole coset, then blocks of a power of two of points that start at a multiple of their size,
        // below n.
        unsafe {
            let mut passes_end = self.log;
            if let Some(from) = turns.filter(|_| top > 0) {
                self.in_buffer::<true, true>(self.log - top, top, 0, [from, coset.at]);
                passes_end = top;
            }
            let mut member = coset.members.start;
            for start in (0..n).step_by(size) {
                let mut above = passes_end;
                while above > self.bottom() {
                    let level = (above - 1) / Self::LEVELS * Self::LEVELS;
                    if start & ((1 << above) - 1) == 0 {
                        self.in_buffer::<false, true>(above - level, level, start, [coset.at; 2]);
                    }
                    above = level;
                }
                self.write_outputs(coset, &mut member, start, tile, constants);
            }
        }
    }

    /// A pass over the block of the buffer that starts at `start`, on the coset at each of `at`.
    #[inline(always)]
    unsafe fn in_buffer<const INTERPOLATES: bool, const EVALUATES: bool>(
        &mut self,
        levels: usize,
        level: usize,
        start: usize,
        at: [usize; 2],
    ) {
        // SAFETY: a block of 2^levels parts of 2^level points.
        unsafe {
            let distance = (self.columns * Self::COLUMN) << level;
            let buffer_points = BufferPoints { start: self.point(start), distance };
            let (columns, at) = (self.columns << level, [at[0] + start, at[1] + start]);
            match levels {
                1 => self.pass::<2, INTERPOLATES, EVALUATES>(
                    &buffer_points,
                    &buffer_points,
                    level,
                    at,
                    columns,
                ),
                2 => self.pass::<4, INTERPOLATES, EVALUATES>(
                    &buffer_points,
                    &buffer_points,
                    level,
                    at,
                    columns,
                ),
                _ => {
                    if Self::LEVELS == 3 {
                        self.pass::<8, INTERPOLATES, EVALUATES>(
                            &buffer_points,
                            &buffer_points,
                            level,
                            at,
                            columns,
                        );
                    }
                }
            }
        }
    }

    /// Reads the inputs of the lowest block at `start` and runs its levels. `next` is the first unprocessed member.
    #[inline(always)]
    unsafe fn read_inputs(
        &mut self,
        coset: &Coset,
        next: &mut usize,
        start: usize,
        tile: &Tile<'_>,
        constants: &mut Constants<V::Map, B>,
    ) {
        let Tile { transform: Transform { inputs, .. }, blocks, at, .. } = *tile;
        let (mut from, mut is_weighted) = ([std::ptr::null(); MAX_POINTS], false);
        let size = 1 << self.bottom();
        // SAFETY: members are blocks of the plan; a tile lies within every block, and the buffer has as many bytes for
        // every point.
        unsafe {
            while *next < coset.members.end && (inputs.members[*next].place as usize) < start + size {
                let Member { block, place, weight } = inputs.members[*next];
                let point = place as usize - start;
                from[point] = blocks.from[block as usize].add(at);
                constants.weights[point] = self.multipliers.of(weight);
                is_weighted |= weight != 1;
                tile.prefetch_ahead::<V>(inputs, *next, |block| blocks.from[block]);
                *next += 1;
            }
            for point in 0..size {
                if from[point].is_null() {
                    let zeros = self.point(start + point);
                    zeros.write_bytes(0, self.columns * Self::COLUMN);
                    from[point] = zeros;
                }
            }
            let input_points = InputPoints { from, constants, is_weighted };
            let buffer_points =
                BufferPoints { start: self.point(start), distance: self.columns * Self::COLUMN };
            let (at, columns) = ([coset.at + start; 2], self.columns);
            match self.bottom() {
                0 => self.pass::<1, true, false>(&input_points, &buffer_points, 0, at, columns),
                1 => self.pass::<2, true, false>(&input_points, &buffer_points, 0, at, columns),
                2 => self.pass::<4, true, false>(&input_points, &buffer_points, 0, at, columns),
                _ => {
                    if Self::LEVELS == 3 {
                        self.pass::<8, true, false>(&input_points, &buffer_points, 0, at, columns);
                    }
                }
            }
        }
    }

    /// Runs the levels of the lowest block at `start` and writes its outputs.
    #[inline(always)]
    unsafe fn write_outputs(
        &mut self,
        coset: &Coset,
        next: &mut usize,
        start: usize,
        tile: &Tile<'_>,
        constants: &mut Constants<V::Map, B>,
    ) {
        let Tile { transform: Transform { outputs, strays, .. }, blocks, at, .. } = *tile;
        let (mut to, mut is_weighted) = ([self.start; MAX_POINTS], false);
        let (size, mut from) = (1 << self.bottom(), [std::ptr::null(); MAX_STRAYS]);
        // SAFETY: as for inputs.
        unsafe {
            for point in 0..size {
                to[point] = self.point(start + point);
            }
            for (stray, from) in strays.iter().zip(&mut from) {
                *from = blocks.from[stray.block as usize].add(at);
            }
            while *next < coset.members.end && (outputs.members[*next].place as usize) < start + size {
                let Member { block, place, weight } = outputs.members[*next];
                let point = place as usize - start;
                to[point] = blocks.to[block as usize].add(at);
                constants.weights[point] = self.multipliers.of(weight);
                is_weighted |= weight != 1;
                for (stray, constants) in strays.iter().zip(&mut constants.strays) {
                    constants[point] = self.multipliers.of(stray.coefficients[*next]);
                }
                tile.prefetch_ahead::<V>(outputs, *next, |block| blocks.to[block]);
                *next += 1;
            }
            let (add, strays) = (blocks.add, strays.len());
            let output_points = OutputPoints { to, constants, is_weighted, add, strays, from };
            let buffer_points =
                BufferPoints { start: self.point(start), distance: self.columns * Self::COLUMN };
            let (at, columns) = ([coset.at + start; 2], self.columns);
            match self.bottom() {
                0 => self.pass::<1, false, true>(&buffer_points, &output_points, 0, at, columns),
                1 => self.pass::<2, false, true>(&buffer_points, &output_points, 0, at, columns),
                2 => self.pass::<4, false, true>(&buffer_points, &output_points, 0, at, columns),
                _ => {
                    if Self::LEVELS == 3 {
                        self.pass::<8, false, true>(&buffer_points, &output_points, 0, at, columns);
                    }
                }
            }
        }
    }

    /// The butterflies between P parts of a block, from `level` on: interpolation with the factors of the block at
    /// `at[0]`, evaluation with the factors of the block at `at[1]`.
    #[inline(always)]
    unsafe fn pass<const P: usize, const INTERPOLATES: bool, const EVALUATES: bool>(
        &self,
        from: &impl Source<V, B, P>,
        to: &impl Target<V, B, P>,
        level: usize,
        at: [usize; 2],
        columns: usize,
    ) {
        let (into, out) = (self.factors::<P>(level, at[0]), self.factors::<P>(level, at[1]));
        for column in 0..columns {
            // SAFETY: the caller guarantees that source and target have these points and columns.
            unsafe {
                let mut symbols = from.read(column);
                if INTERPOLATES {
                    for level in 0..P.ilog2() {
                        butterflies::<V, B, P, true>(&mut symbols, level, &into);
                    }
                }
                if EVALUATES {
                    for level in (0..P.ilog2()).rev() {
                        butterflies::<V, B, P, false>(&mut symbols, level, &out);
                    }
                }
                to.write(symbols, column);
            }
        }
    }

    /// The factors of a block of P parts: index 1 is that of the upper level, 2.. those of the halves, 4.. those of the
    /// quarters.
    #[inline(always)]
    fn factors<const P: usize>(&self, level: usize, at: usize) -> [Maps<V::Map, B>; P] {
        let mut factors = [self.multipliers.of(0); P];
        for index in 1..P {
            let depth = index.ilog2() as usize;
            let level = level + P.ilog2() as usize - 1 - depth;
            let block = index - (1 << depth);
            factors[index] = self.multipliers.of(self.additive.factor(level, at + (block << (level + 1))));
        }
        factors
    }
}

/// All butterflies of a level, as defined in [`cosets`](crate::matrix::cosets).
#[inline(always)]
unsafe fn butterflies<V: Vector, const B: usize, const P: usize, const INVERSE: bool>(
    symbols: &mut [[V; B]; P],
    level: u32,
    factors: &[Maps<V::Map, B>; P],
) {
    let half = 1usize << level;
    for point in 0..P {
        if point & half != 0 {
            continue;
        }
        let maps = &factors[(P + point) >> (level + 1)];
        let (a, b) = (symbols[point], symbols[point + half]);
        // SAFETY: the instruction set is there by the caller's contract.
        unsafe {
            (symbols[point], symbols[point + half]) = if INVERSE {
                let b = sum(a, b);
                (add_product(a, b, maps), b)
            } else {
                let a = add_product(a, b, maps);
                (a, sum(a, b))
            };
        }
    }
}
