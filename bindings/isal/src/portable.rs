//! Products of blocks, one byte after the other, through pointers: the functions named `_base`, and all calls whose
//! buffers overlap or whose tables belong to no coefficient. Reading and writing goes in ISA-L's order: at each
//! position all sources are read before up to six outputs are written.

use crate::field::PRODUCTS;
use crate::tables::{self, BYTES};

/// Outputs that ISA-L computes in one pass.
const ROWS_AT_ONCE: usize = 6;

/// Meaning of an expanded table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As the portable functions of ISA-L: the second byte is the coefficient.
    Coefficient,
    /// As its vector functions: a bit matrix, or two look-ups of nibbles, whatever the table holds.
    Vector,
}

/// Products of all 256 bytes with the coefficient of a table.
///
/// # Safety
/// 32 bytes can be read at `table`.
unsafe fn products_of(reading: Reading, table: *const u8) -> [u8; 256] {
    match reading {
        // SAFETY: within the 32 bytes.
        Reading::Coefficient => PRODUCTS[usize::from(unsafe { table.add(1).read() })],
        Reading::Vector => {
            // SAFETY: all 32 bytes.
            let table = unsafe { table.cast::<[u8; BYTES]>().read() };
            match tables::coefficient(&table) {
                Some(coefficient) => PRODUCTS[usize::from(coefficient)],
                None => std::array::from_fn(|byte| table[byte & 15] ^ table[16 + (byte >> 4)]),
            }
        }
    }
}

/// Sums of products: output r is the sum over j of coefficient (r, j) times source j. The table of (r, j) is the one at
/// index r · k + j.
///
/// # Safety
/// The tables can be read; each of the k sources can be read and each of the `rows` outputs written for `len` bytes.
/// They may overlap.
pub(crate) unsafe fn dot_products(
    reading: Reading,
    (k, rows): (usize, usize),
    len: usize,
    tables: *const u8,
    sources: *const *const u8,
    outputs: *const *mut u8,
) {
    for first in (0..rows).step_by(ROWS_AT_ONCE) {
        let few = ROWS_AT_ONCE.min(rows - first);
        // SAFETY: by contract there are tables for all rows and sources.
        let product = |row, j| unsafe { products_of(reading, tables.add(((first + row) * k + j) * BYTES)) };
        let products: Vec<[u8; 256]> = (0..few * k).map(|i| product(i / k, i % k)).collect();
        for at in 0..len {
            let mut sums = [0; ROWS_AT_ONCE];
            for j in 0..k {
                // SAFETY: by contract source j has `len` bytes.
                let byte = unsafe { (*sources.add(j)).add(at).read() };
                for (row, sum) in sums[..few].iter_mut().enumerate() {
                    *sum ^= products[row * k + j][usize::from(byte)];
                }
            }
            for (row, sum) in sums[..few].iter().enumerate() {
                // SAFETY: by contract the output has `len` bytes.
                unsafe { (*outputs.add(first + row)).add(at).write(*sum) };
            }
        }
    }
}

/// Adds products of one source to the outputs. The table of output r is the one at index r · `stride`.
///
/// # Safety
/// As for [`dot_products`], with one source.
pub(crate) unsafe fn multiply_add(
    reading: Reading,
    (stride, rows): (usize, usize),
    len: usize,
    tables: *const u8,
    source: *const u8,
    outputs: *const *mut u8,
) {
    for row in 0..rows {
        // SAFETY: by contract.
        let (products, output) =
            unsafe { (products_of(reading, tables.add(row * stride * BYTES)), *outputs.add(row)) };
        for at in 0..len {
            // SAFETY: by contract source and output have `len` bytes.
            unsafe {
                let byte = source.add(at).read();
                output.add(at).write(output.add(at).read() ^ products[usize::from(byte)]);
            }
        }
    }
}
