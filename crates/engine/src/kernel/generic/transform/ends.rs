//! Sources and targets of the passes of a transform: work buffers, inputs and outputs.

use super::multipliers::Maps;
use crate::kernel::generic::planes::{load, store};
use crate::kernel::vector::Vector;
use crate::tuning::MAX_STRAYS;

/// Maximum points of a pass.
pub(super) const MAX_POINTS: usize = 8;

/// Source of the columns of P points.
pub(super) trait Source<V: Vector, const B: usize, const P: usize> {
    unsafe fn read(&self, column: usize) -> [[V; B]; P];
}

/// Target of the columns of P points.
pub(super) trait Target<V: Vector, const B: usize, const P: usize> {
    unsafe fn write(&self, symbols: [[V; B]; P], column: usize);
}

/// Points in the work buffer, `distance` bytes apart.
pub(super) struct BufferPoints {
    pub(super) start: *mut u8,
    pub(super) distance: usize,
}

impl<V: Vector, const B: usize, const P: usize> Source<V, B, P> for BufferPoints {
    #[inline(always)]
    unsafe fn read(&self, column: usize) -> [[V; B]; P] {
        // SAFETY: the buffer has these columns.
        unsafe {
            let mut symbols = [[V::zero(); B]; P];
            for point in 0..P {
                symbols[point] = read(self.start.add(point * self.distance + column * B * V::BYTES));
            }
            symbols
        }
    }
}

impl<V: Vector, const B: usize, const P: usize> Target<V, B, P> for BufferPoints {
    #[inline(always)]
    unsafe fn write(&self, symbols: [[V; B]; P], column: usize) {
        for point in 0..P {
            // SAFETY: as above.
            unsafe { write(symbols[point], self.start.add(point * self.distance + column * B * V::BYTES)) }
        }
    }
}

/// The constants of the blocks of a pass. Entries without a block keep old values, which have no effect.
pub(super) struct Constants<M, const B: usize> {
    pub(super) weights: [Maps<M, B>; MAX_POINTS],
    /// Per stray and output.
    pub(super) strays: [[Maps<M, B>; MAX_POINTS]; MAX_STRAYS],
}

/// Inputs, each times its weight; points without an input read zeros from the work buffer.
pub(super) struct InputPoints<'a, M, const B: usize> {
    pub(super) from: [*const u8; MAX_POINTS],
    pub(super) constants: &'a Constants<M, B>,
    pub(super) is_weighted: bool,
}

impl<V: Vector, const B: usize, const P: usize> Source<V, B, P> for InputPoints<'_, V::Map, B> {
    #[inline(always)]
    unsafe fn read(&self, column: usize) -> [[V; B]; P] {
        // SAFETY: blocks have these columns.
        unsafe {
            let mut symbols = [[V::zero(); B]; P];
            for point in 0..P {
                symbols[point] = load::<V, B>(self.from[point].add(column * B * V::BYTES));
            }
            if self.is_weighted {
                for point in 0..P {
                    symbols[point] =
                        add_product([V::zero(); B], symbols[point], &self.constants.weights[point]);
                }
            }
            symbols
        }
    }
}

/// Outputs: the values, each times its weight, plus the products of strays. Points without an output are written to the
/// work buffer.
pub(super) struct OutputPoints<'a, M, const B: usize> {
    pub(super) to: [*mut u8; MAX_POINTS],
    pub(super) constants: &'a Constants<M, B>,
    pub(super) is_weighted: bool,
    pub(super) add: bool,
    pub(super) strays: usize,
    pub(super) from: [*const u8; MAX_STRAYS],
}

impl<V: Vector, const B: usize, const P: usize> Target<V, B, P> for OutputPoints<'_, V::Map, B> {
    #[inline(always)]
    unsafe fn write(&self, mut symbols: [[V; B]; P], column: usize) {
        let at = column * B * V::BYTES;
        // SAFETY: blocks have these columns.
        unsafe {
            if self.is_weighted {
                for point in 0..P {
                    symbols[point] =
                        add_product([V::zero(); B], symbols[point], &self.constants.weights[point]);
                }
            }
            for stray in 0..self.strays {
                let from = load::<V, B>(self.from[stray].add(at));
                for point in 0..P {
                    symbols[point] = add_product(symbols[point], from, &self.constants.strays[stray][point]);
                }
            }
            if self.add {
                for point in 0..P {
                    store::<V, B>(symbols[point], self.to[point].add(at), true);
                }
            } else {
                for point in 0..P {
                    store::<V, B>(symbols[point], self.to[point].add(at), false);
                }
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn read<V: Vector, const B: usize>(from: *const u8) -> [V; B] {
    // SAFETY: the caller gives B registers of readable bytes.
    unsafe {
        let mut symbols = [V::zero(); B];
        for b in 0..B {
            symbols[b] = V::load(from.add(b * V::BYTES));
        }
        symbols
    }
}

#[inline(always)]
pub(super) unsafe fn write<V: Vector, const B: usize>(symbols: [V; B], to: *mut u8) {
    for b in 0..B {
        // SAFETY: the caller gives B registers of writable bytes.
        unsafe { symbols[b].store(to.add(b * V::BYTES)) }
    }
}

#[inline(always)]
pub(super) unsafe fn sum<V: Vector, const B: usize>(mut a: [V; B], b: [V; B]) -> [V; B] {
    for byte in 0..B {
        // SAFETY: the instruction set is there by the caller's contract.
        a[byte] = unsafe { a[byte].xor(b[byte]) };
    }
    a
}

/// a + constant · b.
#[inline(always)]
pub(super) unsafe fn add_product<V: Vector, const B: usize>(
    mut a: [V; B],
    b: [V; B],
    maps: &Maps<V::Map, B>,
) -> [V; B] {
    for from in 0..B {
        // SAFETY: the instruction set is there by the caller's contract.
        unsafe {
            let operand = b[from].operand();
            for to in 0..B {
                a[to] = a[to].add_mapped(operand, &maps[from][to]);
            }
        }
    }
    a
}
