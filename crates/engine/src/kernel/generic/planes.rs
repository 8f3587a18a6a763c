//! Conversion between symbols of B bytes and B registers of bytes, zero-padded tails, and prefetching of outputs.

use crate::kernel::vector::Vector;
use crate::tuning::WRITE_AHEAD;

/// The largest step: 8 planes of the widest register, 64 bytes.
const MAX_STEP: usize = 8 * 64;

/// Prefetches U registers of an output, [`WRITE_AHEAD`] bytes ahead.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn prefetch_output<V: Vector, const U: usize>(output: *const u8) {
    for u in 0..U {
        // SAFETY: the instruction set is there by contract, and the address need not be one of the output.
        unsafe { V::prefetch_to_write(output.wrapping_add(WRITE_AHEAD + u * V::BYTES)) };
    }
}

/// Reads B registers and gathers byte b of all symbols in register b.
#[inline(always)]
pub(super) unsafe fn load<V: Vector, const B: usize>(from: *const u8) -> [V; B] {
    // SAFETY: the caller gives B registers of readable bytes.
    unsafe {
        let mut v = [V::zero(); B];
        for b in 0..B {
            v[b] = V::load(from.add(b * V::BYTES));
        }
        // Each stage parts even from odd bytes: the halves hold bytes 0, 2, 4, … and 1, 3, 5, …
        let mut size = B;
        while size > 1 {
            let source = v;
            for block in 0..B / size {
                for i in 0..size / 2 {
                    let base = block * size;
                    let (even, odd) = V::unzip(source[base + 2 * i], source[base + 2 * i + 1]);
                    v[base + i] = even;
                    v[base + size / 2 + i] = odd;
                }
            }
            size /= 2;
        }
        let mut planes = v;
        for b in 0..B {
            planes[reversed::<B>(b)] = v[b];
        }
        planes
    }
}

/// Undoes [`load`] and writes, or adds to, B registers of symbols.
#[inline(always)]
pub(super) unsafe fn store<V: Vector, const B: usize>(planes: [V; B], to: *mut u8, add: bool) {
    // SAFETY: the caller gives B registers of writable bytes.
    unsafe {
        let mut v = planes;
        for b in 0..B {
            v[b] = planes[reversed::<B>(b)];
        }
        let mut size = 2;
        while size <= B {
            let source = v;
            for block in 0..B / size {
                for i in 0..size / 2 {
                    let base = block * size;
                    let (first, second) = V::zip(source[base + i], source[base + size / 2 + i]);
                    v[base + 2 * i] = first;
                    v[base + 2 * i + 1] = second;
                }
            }
            size *= 2;
        }
        for b in 0..B {
            let to = to.add(b * V::BYTES);
            let value = if add { v[b].xor(V::load(to)) } else { v[b] };
            value.store(to);
        }
    }
}

/// The stages of [`load`] leave byte b at the place whose binary digits are b's, reversed.
#[inline(always)]
const fn reversed<const B: usize>(b: usize) -> usize {
    match B {
        1 => b,
        _ => b.reverse_bits() >> (usize::BITS - B.trailing_zeros()),
    }
}

#[inline(always)]
pub(super) unsafe fn load_partial<V: Vector, const B: usize>(from: *const u8, len: usize) -> [V; B] {
    // SAFETY: len < B x V::BYTES <= MAX_STEP; the caller gives len readable bytes.
    unsafe { load::<V, B>(padded(from, len).as_ptr()) }
}

/// A copy of less than a step, with zeros after it.
#[inline(always)]
pub(super) unsafe fn padded(from: *const u8, len: usize) -> [u8; MAX_STEP] {
    let mut padded = [0u8; MAX_STEP];
    // SAFETY: the caller gives len readable bytes, and len < MAX_STEP.
    unsafe { std::ptr::copy_nonoverlapping(from, padded.as_mut_ptr(), len) };
    padded
}

#[inline(always)]
pub(super) unsafe fn store_partial<V: Vector, const B: usize>(
    planes: [V; B],
    to: *mut u8,
    len: usize,
    add: bool,
) {
    let mut padded = [0u8; MAX_STEP];
    // SAFETY: len < B x V::BYTES <= MAX_STEP; the caller gives len writable bytes.
    unsafe {
        if add {
            std::ptr::copy_nonoverlapping(to, padded.as_mut_ptr(), len);
        }
        store::<V, B>(planes, padded.as_mut_ptr(), add);
        std::ptr::copy_nonoverlapping(padded.as_ptr(), to, len);
    }
}
