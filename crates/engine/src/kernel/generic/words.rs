//! Matrix times symbols of B bytes. For every step of B registers per input:
//!
//! ```text
//! for a group of outputs:  sums = 0
//!     for each input:      planes = bytes 0, 1, … B-1 of its symbols, a register each
//!         for each output: sums[output] += maps[output][input] · planes
//!     store sums as symbols again
//! ```
//!
//! (1) Planes: a map from symbol to symbol is B x B maps from byte to byte; with byte b of all symbols gathered in one
//!     register, each byte map is one or two instructions. For B = 1 this is free.
//! (2) Groups: one pass over the inputs computes as many outputs as fit in registers.
//! (3) Tiles: if several groups are needed, the passes run over a tile of the inputs that stays in cache
//!     ([`Tuning::input_tile_bytes`]).
//! (4) Prefetch: outputs in the L2 cache are prefetched before their stores.
//! (5) Streaming: outputs that exceed the caches ([`Tuning::stream_bytes`]) are written with non-temporal stores, which
//!     avoid reading them first, and inputs are prefetched. The first bytes are peeled off until stores are aligned.
//! (6) Tail: the last bytes go through a zero-padded buffer; maps are linear, so zeros add nothing.

use super::Buffers;
use super::planes::{load, load_partial, prefetch_output, store, store_partial};
use crate::kernel::vector::Vector;
use crate::tuning::{PREFETCH_AHEAD, Tuning};
use std::borrow::Cow;
use std::mem::MaybeUninit;

/// A matrix prepared for one instruction set.
pub(in crate::kernel) struct Dense<'a, V: Vector> {
    symbol_bytes: usize,
    inputs: usize,
    outputs: usize,
    /// Passes over the inputs, a group of outputs each.
    passes: usize,
    /// Group by group, input by input, output by output, input byte by input byte.
    maps: Cow<'a, [V::Map]>,
    tile: usize,
}

/// The outputs of one pass, and the index of their maps.
struct Group {
    first: usize,
    count: usize,
    maps: usize,
}

impl<'a, V: Vector> Dense<'a, V> {
    /// `prepared(output, input)` gives the B x B maps of that coefficient, for symbols of B bytes.
    pub(in crate::kernel) fn new<Maps: IntoIterator<Item = V::Map>>(
        symbol_bytes: usize,
        inputs: usize,
        outputs: usize,
        prepared: impl Fn(usize, usize) -> Maps,
    ) -> Dense<'a, V> {
        let mut dense = Dense::without_maps(symbol_bytes, inputs, outputs);
        let mut maps = Vec::with_capacity(outputs * inputs * symbol_bytes * symbol_bytes);
        dense.for_coefficients(|output, input| maps.extend(prepared(output, input)));
        dense.maps = Cow::Owned(maps);
        dense
    }

    /// For symbols of one byte, with the maps in `storage`, one entry per coefficient.
    pub(in crate::kernel) fn new_in(
        storage: &'a mut [MaybeUninit<V::Map>],
        inputs: usize,
        outputs: usize,
        prepared: impl Fn(usize, usize) -> V::Map,
    ) -> Dense<'a, V> {
        assert_eq!(storage.len(), inputs * outputs);
        let mut dense = Dense::without_maps(1, inputs, outputs);
        let mut places = storage.iter_mut();
        dense.for_coefficients(|output, input| {
            if let Some(place) = places.next() {
                place.write(prepared(output, input));
            }
        });
        assert!(places.next().is_none(), "an entry was not written");
        // SAFETY: every entry was written, as asserted above.
        dense.maps = Cow::Borrowed(unsafe { storage.assume_init_ref() });
        dense
    }

    fn without_maps(symbol_bytes: usize, inputs: usize, outputs: usize) -> Dense<'a, V> {
        let largest = match symbol_bytes {
            1 => V::GROUP,
            2 => 3,
            4 => 2,
            _ => 1,
        };
        let passes = outputs.div_ceil(largest);
        let tile = match passes {
            0 | 1 => usize::MAX,
            _ => (Tuning::of_machine().input_tile_bytes / inputs.max(1)).next_multiple_of(4096),
        };
        Dense { symbol_bytes, inputs, outputs, passes, maps: Cow::Borrowed(&[]), tile }
    }

    /// Visits every coefficient in the order of the maps, which the loops index without bounds checks.
    fn for_coefficients(&self, mut visit: impl FnMut(usize, usize)) {
        for pass in 0..self.passes {
            let group = self.group(pass);
            for input in 0..self.inputs {
                (group.first..group.first + group.count).for_each(|output| visit(output, input));
            }
        }
    }

    /// Groups of nearly equal size: 5 outputs in groups of at most 4 are 2 + 3.
    #[inline(always)]
    fn group(&self, pass: usize) -> Group {
        let first = pass * self.outputs / self.passes;
        let count = (pass + 1) * self.outputs / self.passes - first;
        Group { first, count, maps: first * self.inputs * self.symbol_bytes * self.symbol_bytes }
    }
}

#[inline(always)]
pub(super) unsafe fn run<V: Vector>(dense: &Dense<'_, V>, buffers: Buffers<'_, '_>) {
    let Buffers { inputs, outputs, len, total_len, add } = buffers;
    let maps_fit = dense.maps.len() == dense.inputs * dense.outputs * dense.symbol_bytes * dense.symbol_bytes;
    assert!(maps_fit && inputs.len() == dense.inputs && outputs.len() == dense.outputs);
    let stream = !add && streams::<V>(inputs.len(), outputs, total_len);
    let prefetch_outputs = Tuning::of_machine().prefetches_outputs(inputs.len(), outputs.len(), total_len);
    let mut start = 0;
    while start < len {
        let end = start.saturating_add(dense.tile).min(len);
        for pass in 0..dense.passes {
            let group = dense.group(pass);
            let pass = Pass {
                maps: &dense.maps[group.maps..],
                inputs,
                outputs: &mut outputs[group.first..][..group.count],
                start,
                end,
                add,
                stream,
                prefetch_outputs,
            };
            // SAFETY: start <= end <= len, the length of every buffer; maps holds inputs x count x B x B maps from here
            // on, as asserted above.
            unsafe {
                match (dense.symbol_bytes, group.count) {
                    (1, 1) => bytes::<V, 1>(pass),
                    (1, 2) => bytes::<V, 2>(pass),
                    (1, 3) => bytes::<V, 3>(pass),
                    (1, 4) => bytes::<V, 4>(pass),
                    (1, 5) => bytes::<V, 5>(pass),
                    (1, 6) => bytes::<V, 6>(pass),
                    (2, 1) => dense_pass::<V, 2, 1, 1>(pass),
                    (2, 2) => dense_pass::<V, 2, 2, 1>(pass),
                    (2, 3) => dense_pass::<V, 2, 3, 1>(pass),
                    (4, 1) => dense_pass::<V, 4, 1, 1>(pass),
                    (4, 2) => dense_pass::<V, 4, 2, 1>(pass),
                    (8, 1) => dense_pass::<V, 8, 1, 1>(pass),
                    (bytes, count) => unreachable!("no pass of {count} outputs of {bytes} bytes"),
                }
            }
        }
        start = end;
    }
    if stream {
        // SAFETY: the instruction set is there by this function's contract.
        unsafe { V::fence() };
    }
}

/// True if the data exceeds the threshold of streaming and all outputs have the same alignment, so that peeling aligns
/// all.
#[inline(always)]
fn streams<V: Vector>(inputs: usize, outputs: &[&mut [u8]], total_len: usize) -> bool {
    let offset = |output: &[u8]| output.as_ptr().addr() % V::BYTES;
    total_len.saturating_mul(inputs + outputs.len()) >= Tuning::of_machine().stream_bytes
        && outputs.windows(2).all(|pair| offset(pair[0]) == offset(pair[1]))
}

struct Pass<'a, 'b, M> {
    maps: &'a [M],
    inputs: &'a [&'a [u8]],
    outputs: &'a mut [&'b mut [u8]],
    start: usize,
    end: usize,
    add: bool,
    stream: bool,
    /// True if outputs are prefetched.
    prefetch_outputs: bool,
}

/// Symbols of one byte leave registers free: several per input are in flight.
#[inline(always)]
unsafe fn bytes<V: Vector, const G: usize>(pass: Pass<'_, '_, V::Map>) {
    // SAFETY: passed on unchanged.
    unsafe {
        match V::UNROLL {
            4 => dense_pass::<V, 1, G, 4>(pass),
            2 => dense_pass::<V, 1, G, 2>(pass),
            _ => dense_pass::<V, 1, G, 1>(pass),
        }
    }
}

#[inline(always)]
unsafe fn dense_pass<V: Vector, const B: usize, const G: usize, const U: usize>(
    mut pass: Pass<'_, '_, V::Map>,
) {
    let step = B * V::BYTES;
    let (mut at, end) = (pass.start, pass.end);
    // SAFETY: each step reads and writes [at, at + what it is given), and that is <= end, within
    // every buffer. Streamed steps begin at a multiple of the register in every output, which
    // `streams` found to be aligned alike.
    unsafe {
        // Only symbols of one byte: wider ones are bound by arithmetic.
        if B == 1 && pass.stream {
            let misaligned = pass.outputs.first().map_or(0, |output| (output.as_ptr().addr() + at) % step);
            let head = (step - misaligned) % step;
            if head > 0 && head <= end - at {
                dense_step::<V, B, G, 1, false>(&mut pass, at, head);
                at += head;
            }
            while end - at >= U * step {
                dense_step::<V, B, G, U, true>(&mut pass, at, U * step);
                at += U * step;
            }
        }
        while U > 1 && end - at >= U * step {
            if B == 1 && pass.prefetch_outputs {
                for g in 0..G {
                    prefetch_output::<V, U>(pass.outputs.get_unchecked(g).as_ptr().wrapping_add(at));
                }
            }
            dense_step::<V, B, G, U, false>(&mut pass, at, U * step);
            at += U * step;
        }
        while end - at >= step {
            dense_step::<V, B, G, 1, false>(&mut pass, at, step);
            at += step;
        }
        if at < end {
            dense_step::<V, B, G, 1, false>(&mut pass, at, end - at);
        }
    }
}

/// Processes `len` bytes of every buffer from `at` on: U whole steps, or one partial step. A streamed step is whole,
/// and every output is aligned there.
#[inline(always)]
unsafe fn dense_step<V: Vector, const B: usize, const G: usize, const U: usize, const STREAM: bool>(
    pass: &mut Pass<'_, '_, V::Map>,
    at: usize,
    len: usize,
) {
    let step = B * V::BYTES;
    let whole = len == U * step;
    // SAFETY: at + len is within every buffer by contract; the maps are indexed below
    // inputs x G x B x B, which Dense::new has laid out.
    unsafe {
        let mut sums = [[[V::zero(); B]; G]; U];
        let mut maps = pass.maps.as_ptr();
        let mut inputs = pass.inputs;
        if B == 1 && whole && G <= V::PAIRED_OUTPUTS {
            let (pairs, rest) = inputs.as_chunks::<2>();
            for [first, second] in pairs {
                let from = [first.as_ptr().add(at), second.as_ptr().add(at)];
                let mut operands = [[V::zero().operand(); U]; 2];
                for (operands, from) in operands.iter_mut().zip(from) {
                    for u in 0..U {
                        if STREAM {
                            V::prefetch(from.wrapping_add(PREFETCH_AHEAD + u * step));
                        }
                        operands[u] = V::load(from.add(u * step)).operand();
                    }
                }
                for g in 0..G {
                    let maps = [&*maps.add(g), &*maps.add(G + g)];
                    for u in 0..U {
                        let sum = sums[u][g][0].add_mapped(operands[0][u], maps[0]);
                        sums[u][g][0] = sum.add_mapped(operands[1][u], maps[1]);
                    }
                }
                maps = maps.add(2 * G);
            }
            inputs = rest;
        }
        for input in inputs {
            let from = input.as_ptr().add(at);
            let mut operands = [[V::zero().operand(); B]; U];
            for u in 0..U {
                if STREAM {
                    V::prefetch(from.wrapping_add(PREFETCH_AHEAD + u * step));
                }
                let planes =
                    if whole { load::<V, B>(from.add(u * step)) } else { load_partial::<V, B>(from, len) };
                for b in 0..B {
                    operands[u][b] = planes[b].operand();
                }
            }
            for g in 0..G {
                // The outer loop is over input bytes: with only the inner one unrolled, sums stay in registers.
                for from in 0..B {
                    for to in 0..B {
                        let map = &*maps;
                        maps = maps.add(1);
                        for u in 0..U {
                            sums[u][g][to] = sums[u][g][to].add_mapped(operands[u][from], map);
                        }
                    }
                }
            }
        }
        for g in 0..G {
            let to = pass.outputs.get_unchecked_mut(g).as_mut_ptr().add(at);
            for u in 0..U {
                if STREAM {
                    sums[u][g][0].stream(to.add(u * step));
                } else if whole {
                    store::<V, B>(sums[u][g], to.add(u * step), pass.add);
                } else {
                    store_partial::<V, B>(sums[u][g], to, len, pass.add);
                }
            }
        }
    }
}
