//! Signatures by Horner's scheme over whole steps of registers.

use super::planes::{load, load_partial, store};
use crate::bytemap::LinearMap;
use crate::kernel::vector::Vector;

/// Prepared weights of a signature: for every component the map that multiplies by α^s, s the number of symbols in a
/// step.
pub(in crate::kernel) struct Weights<V: Vector> {
    symbol_bytes: usize,
    components: usize,
    maps: Vec<V::Map>,
}

impl<V: Vector> Weights<V> {
    /// `maps[i]` multiplies component i by α_i^`V::BYTES`: a step has that many symbols.
    pub(in crate::kernel) fn new(maps: &[LinearMap]) -> Weights<V> {
        let symbol_bytes = maps.first().map_or(1, LinearMap::bytes);
        let prepared = maps.iter().flat_map(LinearMap::prepare).collect();
        Weights { symbol_bytes, components: maps.len(), maps: prepared }
    }

    /// Bytes that [`Work::Sign`] writes: per component one step of symbols.
    pub(in crate::kernel) fn lane_bytes(&self) -> usize {
        self.components * self.symbol_bytes * V::BYTES
    }
}

/// Horner over steps, from the last to the first: lanes = lanes · α^s + step. Lane i, of zeros at first, becomes
/// the sum of the symbols i, i+s, i+2s, … with weights 1, α^s, α^2s, …
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(weights: &Weights<V>, block: &[u8], lanes: &mut [u8]) {
    assert_eq!(lanes.len(), weights.lane_bytes());
    // SAFETY: lanes has room for the components, checked above.
    unsafe {
        match weights.symbol_bytes {
            1 => sign_symbols::<V, 1>(weights, block, lanes),
            2 => sign_symbols::<V, 2>(weights, block, lanes),
            4 => sign_symbols::<V, 4>(weights, block, lanes),
            _ => sign_symbols::<V, 8>(weights, block, lanes),
        }
    }
}

/// Components are processed in pairs: two independent dependency chains per pass over the block.
#[inline(always)]
unsafe fn sign_symbols<V: Vector, const B: usize>(weights: &Weights<V>, block: &[u8], lanes: &mut [u8]) {
    let mut component = 0;
    // SAFETY: lanes holds `components` steps, of which those from `component` on are written.
    unsafe {
        while component + 2 <= weights.components {
            sign_components::<V, B, 2>(weights, component, block, lanes);
            component += 2;
        }
        if component < weights.components {
            sign_components::<V, B, 1>(weights, component, block, lanes);
        }
    }
}

#[inline(always)]
unsafe fn sign_components<V: Vector, const B: usize, const N: usize>(
    weights: &Weights<V>,
    first: usize,
    block: &[u8],
    lanes: &mut [u8],
) {
    let step = B * V::BYTES;
    let maps = &weights.maps[first * B * B..][..N * B * B];
    // SAFETY: every step starts below block.len() and its length is cut to what is left; lanes holds
    // N steps from component `first` on.
    unsafe {
        let mut sums = [[V::zero(); B]; N];
        for n in 0..N {
            sums[n] = load::<V, B>(lanes.as_ptr().add((first + n) * step));
        }
        let mut at = block.len().next_multiple_of(step);
        while at > 0 {
            at -= step;
            let from = block.as_ptr().add(at);
            let planes = if block.len() - at < step {
                load_partial::<V, B>(from, block.len() - at)
            } else {
                load::<V, B>(from)
            };
            for n in 0..N {
                let mut next = planes;
                for from in 0..B {
                    let operand = sums[n][from].operand();
                    for to in 0..B {
                        next[to] = next[to].add_mapped(operand, maps.get_unchecked((n * B + from) * B + to));
                    }
                }
                sums[n] = next;
            }
        }
        for n in 0..N {
            store::<V, B>(sums[n], lanes.as_mut_ptr().add((first + n) * step), false);
        }
    }
}
