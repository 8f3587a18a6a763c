//! RAID-Z parities by Horner's scheme: P = sum of d, Q = 2·Q + d, R = 4·R + d over the data blocks in order, with
//! doublings only.

use super::Buffers;
use super::planes::{load_partial, store, store_partial};
use crate::kernel::vector::Vector;

/// The parities to compute, in the order P, Q, R.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::kernel) struct Parities {
    pub(in crate::kernel) p: bool,
    pub(in crate::kernel) q: bool,
    pub(in crate::kernel) r: bool,
}

#[inline(always)]
pub(super) unsafe fn run<V: Vector>(parities: Parities, buffers: Buffers<'_, '_>) {
    // SAFETY: passed on unchanged.
    unsafe {
        match parities {
            Parities { p: true, q: false, r: false } => horner_pass::<V, 1, true, false>(buffers),
            Parities { p: true, q: true, r: false } => horner_pass::<V, 2, true, true>(buffers),
            Parities { p: true, q: false, r: true } => horner_pass::<V, 2, true, false>(buffers),
            Parities { p: true, q: true, r: true } => horner_pass::<V, 3, true, true>(buffers),
            Parities { p: false, q: true, r: false } => horner_pass::<V, 1, false, true>(buffers),
            Parities { p: false, q: false, r: true } => horner_pass::<V, 1, false, false>(buffers),
            Parities { p: false, q: true, r: true } => horner_pass::<V, 2, false, true>(buffers),
            Parities { p: false, q: false, r: false } => {}
        }
    }
}

/// Computes N outputs: P if selected, then Q if selected, then R if outputs are left.
#[inline(always)]
unsafe fn horner_pass<V: Vector, const N: usize, const P: bool, const Q: bool>(buffers: Buffers<'_, '_>) {
    const U: usize = 4;
    let Buffers { inputs, outputs, len, add, .. } = buffers;
    let mut at = 0;
    // SAFETY: [at, at + size) is within every buffer, and there are N outputs.
    unsafe {
        while at < len {
            let unrolled = len - at >= U * V::BYTES;
            let size = if unrolled { U * V::BYTES } else { V::BYTES.min(len - at) };
            let mut sums = [[V::zero(); N]; U];
            for input in inputs {
                let from = input.as_ptr().add(at);
                for (u, sums) in sums.iter_mut().enumerate() {
                    if u > 0 && !unrolled {
                        break;
                    }
                    let d = if size < V::BYTES {
                        load_partial::<V, 1>(from, size)[0]
                    } else {
                        V::load(from.add(u * V::BYTES))
                    };
                    for (n, sum) in sums.iter_mut().enumerate() {
                        let shifted = match n {
                            0 if P => *sum,
                            n if Q && n == P as usize => sum.double(),
                            _ => sum.quadruple(),
                        };
                        *sum = shifted.xor(d);
                    }
                }
            }
            for n in 0..N {
                let to = outputs.get_unchecked_mut(n).as_mut_ptr().add(at);
                if size < V::BYTES {
                    store_partial::<V, 1>([sums[0][n]], to, size, add);
                    continue;
                }
                for u in 0..size / V::BYTES {
                    store::<V, 1>([sums[u][n]], to.add(u * V::BYTES), add);
                }
            }
            at += size;
        }
    }
}
