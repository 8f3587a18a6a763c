//! Additive FFTs over blocks of GF(2^16): what [`Transform`] says, over a tile of all blocks after the other.
//!
//! ```text
//! for every tile:
//!     for every coset of inputs:  room = weights · inputs;  to coefficients;  differentiated where V is shared
//!     sum of them → every coset of outputs:  to values;  outputs = weights · room
//! ```
//!
//! (1) Planes: in the rooms the bytes of symbols lie apart, a pair of registers for as many symbols; they are parted and joined once.
//! (2) Two levels at once: four pairs are loaded, go through four butterflies and are stored.
//! (3) Depth first: a block of the transform is finished before its neighbour is begun, so that most levels find their pairs in the
//!     nearest cache, however large the whole is.
//! (4) No tables of factors: maps are linear in their constant, so those of any constant are sums of four out of [`Multipliers`], and butterflies
//!     take them from the constant of their block.

use super::Buffers;
use super::planes::{load, load_partial, store, store_partial};
use crate::field::Field;
use crate::kernel::linear::{LinearMap, MapForm};
use crate::kernel::transform::{Coset, Member, Transform};
use crate::kernel::vector::Vector;
use crate::matrix::additive::Additive;

/// Bytes of a room up to which tiles are made wider: an L2 cache. What a second room takes beyond that is met by the last levels only.
const ROOM_BYTES: usize = 2 << 20;

/// Pairs of registers of a block in a tile, at most: half a page of the widest.
const MAX_PAIRS: usize = 8;

/// Levels of the largest transform, that of the whole field.
const LEVELS: usize = 16;

/// Inputs ahead that are asked for: each lies in a page of its own.
const BLOCKS_AHEAD: usize = 16;

/// The maps of a product in GF(2^16): from low byte to low and high, from high byte to low and high.
type Maps<M> = [M; 4];

/// What the maps of all constants are sums of: those of every nibble at every place.
pub(in crate::kernel) struct Multipliers<M>(Vec<[Maps<M>; 16]>);

impl<M: MapForm> Multipliers<M> {
    pub(in crate::kernel) fn new() -> Multipliers<M> {
        let maps = |constant: u64| {
            let product = LinearMap::multiplication(Field::GF16, constant);
            let mut maps = product.prepare();
            std::array::from_fn(|_| maps.next().expect("two bytes to two bytes"))
        };
        let place = |place: usize| std::array::from_fn(|nibble| maps((nibble as u64) << (4 * place)));
        Multipliers((0..4).map(place).collect())
    }

    #[inline(always)]
    fn of(&self, constant: u16) -> Maps<M> {
        let nibble = |place: usize| &self.0[place][(constant >> (4 * place) & 15) as usize];
        let parts = [nibble(0), nibble(1), nibble(2), nibble(3)];
        let mut maps = *parts[0];
        for part in &parts[1..] {
            for i in 0..4 {
                maps[i] = maps[i].sum(part[i]);
            }
        }
        maps
    }
}

/// Room for a coset of pairs, or two.
#[derive(Default)]
pub(in crate::kernel) struct Room(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// One call.
pub(in crate::kernel) struct Transforming<'a, 'b, V: Vector> {
    pub(in crate::kernel) transform: &'a Transform,
    pub(in crate::kernel) multipliers: &'a Multipliers<V::Map>,
    pub(in crate::kernel) room: &'a mut Room,
    pub(in crate::kernel) buffers: Buffers<'a, 'b>,
}

/// A coset of pairs in memory: `pairs` for every point.
struct Points<'a, V: Vector> {
    additive: &'static Additive,
    multipliers: &'a Multipliers<V::Map>,
    start: *mut u8,
    log: usize,
    pairs: usize,
}

/// Where a tile lies in the blocks.
#[derive(Clone, Copy)]
struct Tile {
    at: usize,
    len: usize,
}

impl<V: Vector> Transforming<'_, '_, V> {
    /// # Safety
    /// The CPU has the instruction set of `V`; all buffers have the length that the call states, and there are as many as the transform's
    /// members count.
    #[inline(always)]
    pub(in crate::kernel) unsafe fn execute(self) {
        let Transforming { transform, multipliers, room, buffers } = self;
        let Buffers { inputs, outputs, len, add, .. } = buffers;
        let pair = 2 * V::BYTES;
        let size = pair << transform.log;
        let most = (ROOM_BYTES / size).clamp(1, MAX_PAIRS).min(len.div_ceil(pair));
        let whole = most * size;
        let needed = if transform.inputs.len().max(transform.outputs.len()) > 1 { 2 * whole } else { whole };
        room.0.resize(room.0.len().max(needed.div_ceil(64)), Line { _bytes: [0; 64] });
        let start = room.0.as_mut_ptr().cast::<u8>();
        let mut at = 0;
        while at < len {
            let tile = Tile { at, len: (len - at).min(most * pair) };
            let pairs = tile.len.div_ceil(pair);
            let points = |start| Points::<V> {
                additive: Additive::of_gf16(),
                multipliers,
                start,
                log: transform.log,
                pairs,
            };
            // SAFETY: the room has a part of `whole` bytes for each of the two, the second where there are several cosets and so somebody who
            // touches it; pairs <= most, and tiles lie within all buffers.
            unsafe {
                let (mut first, mut second) = (points(start), points(start.add(whole)));
                first.sum_of(
                    &transform.inputs,
                    transform.differentiates() && transform.outputs.len() == 1,
                    &mut second,
                    inputs,
                    tile,
                );
                match &transform.outputs[..] {
                    [only] => {
                        first.evaluate(only.at);
                        first.give(only, outputs, tile, add);
                    }
                    many => {
                        for coset in many {
                            second.copy(&first);
                            if coset.at == 0 {
                                second.differentiate();
                            }
                            second.evaluate(coset.at);
                            second.give(coset, outputs, tile, add);
                        }
                    }
                }
            }
            at += tile.len;
        }
    }
}

#[inline(always)]
unsafe fn read<V: Vector>(from: *const u8) -> [V; 2] {
    // SAFETY: the caller gives two registers of readable bytes.
    unsafe { [V::load(from), V::load(from.add(V::BYTES))] }
}

#[inline(always)]
unsafe fn write<V: Vector>(pair: [V; 2], to: *mut u8) {
    // SAFETY: the caller gives two registers of writable bytes.
    unsafe {
        pair[0].store(to);
        pair[1].store(to.add(V::BYTES));
    }
}

#[inline(always)]
unsafe fn sum<V: Vector>(a: [V; 2], b: [V; 2]) -> [V; 2] {
    // SAFETY: the instruction set is there by the caller's contract.
    unsafe { [a[0].xor(b[0]), a[1].xor(b[1])] }
}

/// a + constant · b.
#[inline(always)]
unsafe fn add_product<V: Vector>(a: [V; 2], b: [V; 2], maps: &Maps<V::Map>) -> [V; 2] {
    // SAFETY: the instruction set is there by the caller's contract.
    unsafe {
        let (low, high) = (b[0].operand(), b[1].operand());
        [
            a[0].add_mapped(low, &maps[0]).add_mapped(high, &maps[2]),
            a[1].add_mapped(low, &maps[1]).add_mapped(high, &maps[3]),
        ]
    }
}

impl<V: Vector> Points<'_, V> {
    const PAIR: usize = 2 * V::BYTES;

    /// Where the pairs of a point begin.
    #[inline(always)]
    unsafe fn point(&self, place: usize) -> *mut u8 {
        // SAFETY: the caller names a point of the coset, and the room has `pairs` for each.
        unsafe { self.start.add(place * self.pairs * Self::PAIR) }
    }

    #[inline(always)]
    fn bytes(&self) -> usize {
        (self.pairs * Self::PAIR) << self.log
    }

    /// The sum of the coefficients of all cosets of inputs.
    #[inline(always)]
    unsafe fn sum_of(
        &mut self,
        cosets: &[Coset],
        differentiated: bool,
        other: &mut Self,
        inputs: &[&[u8]],
        tile: Tile,
    ) {
        // SAFETY: both have the same size, and each step stays in them.
        unsafe {
            for (index, coset) in cosets.iter().enumerate() {
                let points = if index == 0 { &mut *self } else { &mut *other };
                points.take(coset, inputs, tile);
                points.interpolate(coset.at);
                if differentiated && coset.at == 0 {
                    points.differentiate();
                }
                if index > 0 {
                    self.add(other);
                }
            }
            if cosets.is_empty() {
                self.clear();
            }
        }
    }

    #[inline(always)]
    unsafe fn clear(&mut self) {
        // SAFETY: the room of the coset.
        unsafe { self.start.write_bytes(0, self.bytes()) }
    }

    #[inline(always)]
    unsafe fn copy(&mut self, from: &Self) {
        // SAFETY: two rooms of the same size that do not overlap.
        unsafe { self.start.copy_from_nonoverlapping(from.start, self.bytes()) }
    }

    #[inline(always)]
    unsafe fn add(&mut self, other: &Self) {
        for at in (0..self.bytes()).step_by(Self::PAIR) {
            // SAFETY: within both rooms, which have the same size.
            unsafe {
                let to = self.start.add(at);
                write(sum::<V>(read(to), read(other.start.add(at))), to);
            }
        }
    }

    /// The inputs of a coset, each times its weight.
    #[inline(always)]
    unsafe fn take(&mut self, coset: &Coset, inputs: &[&[u8]], tile: Tile) {
        // SAFETY: places are points of the coset; a tile lies within every input; members are blocks of the plan.
        unsafe {
            if coset.members.len() < 1 << self.log {
                self.clear();
            }
            for (index, &Member { block, place, weight }) in coset.members.iter().enumerate() {
                if let Some(ahead) = coset.members.get(index + BLOCKS_AHEAD) {
                    let from = inputs[ahead.block as usize].as_ptr().add(tile.at);
                    for line in (0..tile.len).step_by(64) {
                        V::prefetch(from.add(line));
                    }
                }
                let (from, to) = (inputs[block as usize].as_ptr().add(tile.at), self.point(place as usize));
                let maps = self.multipliers.of(weight);
                for pair in 0..self.pairs {
                    let (at, rest) = (pair * Self::PAIR, tile.len - pair * Self::PAIR);
                    let mut planes = match rest >= Self::PAIR {
                        true => load::<V, 2>(from.add(at)),
                        false => load_partial::<V, 2>(from.add(at), rest),
                    };
                    if weight != 1 {
                        planes = add_product([V::zero(); 2], planes, &maps);
                    }
                    write(planes, to.add(at));
                }
            }
        }
    }

    /// The outputs of a coset, each times its weight.
    #[inline(always)]
    unsafe fn give(&self, coset: &Coset, outputs: &mut [&mut [u8]], tile: Tile, add: bool) {
        // SAFETY: as for the inputs.
        unsafe {
            for &Member { block, place, weight } in &coset.members {
                let (from, to) =
                    (self.point(place as usize), outputs[block as usize].as_mut_ptr().add(tile.at));
                let maps = self.multipliers.of(weight);
                for pair in 0..self.pairs {
                    let (at, rest) = (pair * Self::PAIR, tile.len - pair * Self::PAIR);
                    let mut planes = read(from.add(at));
                    if weight != 1 {
                        planes = add_product([V::zero(); 2], planes, &maps);
                    }
                    match rest >= Self::PAIR {
                        true => store::<V, 2>(planes, to.add(at), add),
                        false => store_partial::<V, 2>(planes, to.add(at), rest, add),
                    }
                }
            }
        }
    }

    /// The derivative, in place: coefficient i becomes the sum of d_j times coefficient i + 2^j over the bits j that i lacks. Those
    /// lie ahead, and so are still what they were.
    #[inline(always)]
    unsafe fn differentiate(&mut self) {
        let mut maps = [self.multipliers.of(0); LEVELS];
        for level in 0..self.log {
            maps[level] = self.multipliers.of(self.additive.derivative(level));
        }
        for place in 0..1usize << self.log {
            for pair in 0..self.pairs {
                // SAFETY: place and place + 2^j are points of the coset.
                unsafe {
                    let mut total = [V::zero(); 2];
                    for level in 0..self.log {
                        if place >> level & 1 == 0 {
                            let from = self.point(place + (1 << level)).add(pair * Self::PAIR);
                            total = add_product(total, read(from), &maps[level]);
                        }
                    }
                    write(total, self.point(place).add(pair * Self::PAIR));
                }
            }
        }
    }

    /// Values at the points from `at` on to coefficients.
    #[inline(always)]
    unsafe fn interpolate(&mut self, at: usize) {
        let (n, twos) = (1usize << self.log, self.log / 2);
        // SAFETY: blocks of 4^(t+1) points that end at a multiple of their size, up to n.
        unsafe {
            for end in (4..=n).step_by(4) {
                for t in (0..twos).take_while(|t| end & ((4 << (2 * t)) - 1) == 0) {
                    let start = end - (4 << (2 * t));
                    self.two_levels::<true>(2 * t, start, at + start);
                }
            }
            if self.log % 2 == 1 {
                self.one_level::<true>(self.log - 1, at);
            }
        }
    }

    /// Coefficients to values at the points from `at` on.
    #[inline(always)]
    unsafe fn evaluate(&mut self, at: usize) {
        let (n, twos) = (1usize << self.log, self.log / 2);
        // SAFETY: blocks of 4^(t+1) points that begin at a multiple of their size, below n.
        unsafe {
            if self.log % 2 == 1 {
                self.one_level::<false>(self.log - 1, at);
            }
            for start in (0..n / 4 * 4).step_by(4) {
                for t in (0..twos).rev().filter(|t| start & ((4 << (2 * t)) - 1) == 0) {
                    self.two_levels::<false>(2 * t, start, at + start);
                }
            }
        }
    }

    /// The butterflies of a level in a block that is the whole coset.
    #[inline(always)]
    unsafe fn one_level<const INVERSE: bool>(&mut self, level: usize, at: usize) {
        let maps = self.multipliers.of(self.additive.factor(level, at));
        // SAFETY: a block of two halves of 2^level points.
        unsafe {
            let (low, high) = (self.point(0), self.point(1 << level));
            for pair in 0..self.pairs << level {
                let (low, high) = (low.add(pair * Self::PAIR), high.add(pair * Self::PAIR));
                let (a, b) = butterfly::<V, INVERSE>((read(low), read(high)), &maps);
                write(a, low);
                write(b, high);
            }
        }
    }

    /// The butterflies of `level` and the next one in the block of four quarters that begins at `start`, the point `at`.
    #[inline(always)]
    unsafe fn two_levels<const INVERSE: bool>(&mut self, level: usize, start: usize, at: usize) {
        let maps = |level, at| self.multipliers.of(self.additive.factor(level, at));
        let near = [maps(level, at), maps(level, at + (2 << level))];
        let far = maps(level + 1, at);
        // SAFETY: a block of four quarters of 2^level points.
        unsafe {
            let quarter = |i: usize| self.point(start + (i << level));
            let quarters = [quarter(0), quarter(1), quarter(2), quarter(3)];
            for pair in 0..self.pairs << level {
                let place = |i: usize| quarters[i].add(pair * Self::PAIR);
                let (mut a, mut b) = (read::<V>(place(0)), read::<V>(place(1)));
                let (mut c, mut d) = (read::<V>(place(2)), read::<V>(place(3)));
                if INVERSE {
                    (a, b) = butterfly::<V, INVERSE>((a, b), &near[0]);
                    (c, d) = butterfly::<V, INVERSE>((c, d), &near[1]);
                }
                (a, c) = butterfly::<V, INVERSE>((a, c), &far);
                (b, d) = butterfly::<V, INVERSE>((b, d), &far);
                if !INVERSE {
                    (a, b) = butterfly::<V, INVERSE>((a, b), &near[0]);
                    (c, d) = butterfly::<V, INVERSE>((c, d), &near[1]);
                }
                write(a, place(0));
                write(b, place(1));
                write(c, place(2));
                write(d, place(3));
            }
        }
    }
}

/// One butterfly, as [`cosets`](crate::matrix::cosets) has it.
#[inline(always)]
unsafe fn butterfly<V: Vector, const INVERSE: bool>(
    (a, b): ([V; 2], [V; 2]),
    maps: &Maps<V::Map>,
) -> ([V; 2], [V; 2]) {
    // SAFETY: the instruction set is there by the caller's contract.
    unsafe {
        if INVERSE {
            let b = sum(a, b);
            (add_product(a, b, maps), b)
        } else {
            let a = add_product(a, b, maps);
            (a, sum(a, b))
        }
    }
}
