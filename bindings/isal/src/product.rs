//! Products of blocks with the coefficients of expanded tables: by a compiled plan, or byte by byte without one.
//!
//! No panic leaves this module. One before any output is written, or while outputs are overwritten, is followed by the
//! byte-wise loop. One while products are added cannot be undone: the process is aborted rather than the redundancy
//! spoilt.

use crate::blocks::{overlap, with_slices};
use crate::plans::{Shape, with_plan};
use crate::portable::{self, Reading};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Shorter blocks take less time byte by byte than it takes to find their plan.
const MIN_LEN: usize = 16;

/// Calls `work`; `None` if it panics.
pub(crate) fn contained<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// A count of the caller; negative ones are 0.
pub(crate) fn count(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Output r is the sum over j of coefficient (r, j) times source j.
///
/// # Safety
/// There are k · rows tables, k sources and `rows` outputs, each with `len` bytes.
#[inline]
pub(crate) unsafe fn dot_products(
    len: c_int,
    k: c_int,
    rows: usize,
    tables: *const u8,
    sources: *const *const u8,
    outputs: *const *mut u8,
) {
    let (len, k) = (count(len), count(k));
    if len == 0 || rows == 0 {
        return;
    }
    let by_plan = || {
        // SAFETY: by contract.
        let (inputs, outputs) =
            unsafe { (std::slice::from_raw_parts(sources, k), std::slice::from_raw_parts(outputs, rows)) };
        let shape = Shape { inputs: k, rows, stride: k, add: false };
        // SAFETY: by contract; slices are made of blocks that do not overlap.
        unsafe {
            !overlap(len, inputs, outputs)
                && with_plan(shape, tables, |plan| {
                    with_slices(0, len, inputs, outputs, |inputs, outputs| plan.run(inputs, outputs).is_ok())
                }) == Some(true)
        }
    };
    if len < MIN_LEN || k == 0 || contained(by_plan) != Some(true) {
        // SAFETY: by contract.
        unsafe { portable::dot_products(Reading::Vector, (k, rows), len, tables, sources, outputs) };
    }
}

/// Adds coefficient (r, `column`) times the source to output r.
///
/// # Safety
/// There are k · rows tables and `rows` outputs; source and outputs have `len` bytes; `column` is below k.
#[inline]
pub(crate) unsafe fn multiply_add(
    len: c_int,
    (k, column): (c_int, c_int),
    rows: usize,
    tables: *const u8,
    source: *const u8,
    outputs: *const *mut u8,
) {
    let (len, k) = (count(len), count(k));
    if len == 0 || rows == 0 {
        return;
    }
    // SAFETY: by contract the column exists.
    let tables = unsafe { tables.add(count(column) * crate::tables::BYTES) };
    let by_plan = || {
        // SAFETY: by contract.
        let outputs = unsafe { std::slice::from_raw_parts(outputs, rows) };
        let shape = Shape { inputs: 1, rows, stride: if rows == 1 { 1 } else { k }, add: true };
        // SAFETY: by contract; slices are made of blocks that do not overlap.
        unsafe {
            !overlap(len, &[source], outputs)
                && with_plan(shape, tables, |plan| {
                    with_slices(0, len, &[source], outputs, |inputs, outputs| {
                        let added = contained(|| plan.run(inputs, outputs).is_ok());
                        added.unwrap_or_else(|| std::process::abort())
                    })
                }) == Some(true)
        }
    };
    if len < MIN_LEN || contained(by_plan) != Some(true) {
        // SAFETY: by contract.
        unsafe { portable::multiply_add(Reading::Vector, (k, rows), len, tables, source, outputs) };
    }
}

#[cfg(test)]
mod tests {
    use super::contained;

    #[test]
    fn a_panic_is_contained() {
        assert_eq!(contained(|| 3), Some(3));
        assert_eq!(contained(|| -> u8 { panic!("the message of a test that panics on purpose") }), None);
    }
}
