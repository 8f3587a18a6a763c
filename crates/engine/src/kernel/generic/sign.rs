//! Signatures by Horner's scheme over whole steps of registers.

use super::planes::{load, load_partial, store};
use crate::kernel::linear::LinearMap;
use crate::kernel::vector::Vector;

/// The weights of a signature, prepared: for every component the map that multiplies by α^s, s
/// the number of symbols in a step.
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

/// Horner over steps, from the last to the first: lanes = lanes · α^s + step. Lane i of the result is
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

#[inline(always)]
unsafe fn sign_symbols<V: Vector, const B: usize>(weights: &Weights<V>, block: &[u8], lanes: &mut [u8]) {
    let step = B * V::BYTES;
    for component in 0..weights.components {
        let maps = &weights.maps[component * B * B..][..B * B];
        // SAFETY: every step starts below block.len() and its length is cut to what is left;
        // lanes holds `components` steps.
        unsafe {
            let mut sums = [V::zero(); B];
            let mut at = block.len().next_multiple_of(step);
            while at > 0 {
                at -= step;
                let from = block.as_ptr().add(at);
                let mut next = if block.len() - at < step {
                    load_partial::<V, B>(from, block.len() - at)
                } else {
                    load::<V, B>(from)
                };
                for from in 0..B {
                    let operand = sums[from].operand();
                    for to in 0..B {
                        next[to] = next[to].add_mapped(operand, maps.get_unchecked(to * B + from));
                    }
                }
                sums = next;
            }
            store::<V, B>(sums, lanes.as_mut_ptr().add(component * step), false);
        }
    }
}
