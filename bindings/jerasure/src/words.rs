//! Coding of symbols of 8, 16 or 32 bits.

use crate::devices::Devices;
use crate::matrices::elements;
use crate::memory::{array, count, erased};
use crate::plans::plan;
use crate::square::{field, inverse, surviving};
use gabion_engine::Field;
use std::ffi::{c_char, c_int};

/// The field of symbols of whole words; others have no region operations in Jerasure either.
fn word_field(w: c_int) -> Option<Field> {
    field(w).filter(|field| matches!(field.w(), 8 | 16 | 32))
}

/// Ends the process, as Jerasure does where a function has no result and its arguments do not fit.
#[expect(clippy::disallowed_methods, reason = "the interface has no other way to say it")]
pub(crate) fn refuse(function: &str, reason: &str) -> ! {
    eprintln!("{function}: {reason}");
    std::process::exit(1)
}

/// Computes the m coding blocks.
///
/// # Safety
/// The matrix has m rows of k elements; there are k data and m coding blocks of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_matrix_encode(
    k: c_int,
    m: c_int,
    w: c_int,
    matrix: *const c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
) {
    const NAME: &str = "jerasure_matrix_encode";
    let (k, m) = (count(k), count(m));
    let Some(field) = word_field(w) else { refuse(NAME, "w is not 8, 16 or 32") };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let devices = Devices::new((k, m), data_ptrs, coding_ptrs, count(size));
        let coefficients = elements(field, array(matrix, k * m));
        let (from, to): (Vec<usize>, Vec<usize>) = ((0..k).collect(), (k..k + m).collect());
        plan(field, m, coefficients).is_some_and(|plan| devices.run(&plan, 1, count(size), &from, &to))
    };
    if !done {
        refuse(NAME, "blocks or matrix do not fit");
    }
}

/// Computes one block from k others: those of `src_ids`, or all data blocks.
///
/// # Safety
/// The row has k elements, `src_ids` is null or has k devices; these and `dest_id` have blocks of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_matrix_dotprod(
    k: c_int,
    w: c_int,
    matrix_row: *const c_int,
    src_ids: *const c_int,
    dest_id: c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
) {
    const NAME: &str = "jerasure_matrix_dotprod";
    let k = count(k);
    let Some(field) = word_field(w) else { refuse(NAME, "w is not 8, 16 or 32") };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let (from, to, coding) = sources(k, src_ids, dest_id);
        let devices = Devices::new((k, coding), data_ptrs, coding_ptrs, count(size));
        let coefficients = elements(field, array(matrix_row, k));
        plan(field, 1, coefficients).is_some_and(|plan| devices.run(&plan, 1, count(size), &from, &[to]))
    };
    if !done {
        refuse(NAME, "blocks or matrix do not fit");
    }
}

/// Sources and target of a product, and the number of coding blocks that must exist for them.
///
/// # Safety
/// `src_ids` is null or has k devices.
pub(crate) unsafe fn sources(k: usize, src_ids: *const c_int, dest_id: c_int) -> (Vec<usize>, usize, usize) {
    let from: Vec<usize> = match src_ids.is_null() {
        true => (0..k).collect(),
        // SAFETY: by contract.
        false => unsafe { array(src_ids, k) }.iter().map(|&id| count(id)).collect(),
    };
    let to = count(dest_id);
    let last = from.iter().chain([&to]).max().copied().unwrap_or(0);
    (from, to, (last + 1).saturating_sub(k))
}

/// Restores all lost blocks, data and coding. Returns 0, or -1 if too many are lost or the matrix is singular.
///
/// # Safety
/// As for [`jerasure_matrix_encode`]; `erasures` ends with -1. Lost blocks can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_matrix_decode(
    k: c_int,
    m: c_int,
    w: c_int,
    matrix: *const c_int,
    _row_k_ones: c_int,
    erasures: *const c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
) -> c_int {
    let Some(field) = word_field(w).filter(|_| !erasures.is_null()) else { return -1 };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let coding = elements(field, array(matrix, count(k) * count(m)));
        decode(
            (field, 1),
            (count(k), count(m)),
            &coding,
            erasures,
            (data_ptrs, coding_ptrs),
            (count(size), count(size)),
        )
    };
    if done { 0 } else { -1 }
}

/// Restores lost blocks whose pieces, `unit` per group, are symbols of the matrix. Sizes are those of a block and of
/// a piece.
///
/// # Safety
/// As for [`jerasure_matrix_decode`].
pub(crate) unsafe fn decode(
    (field, unit): (Field, usize),
    (k, m): (usize, usize),
    coding: &[u64],
    erasures: *const c_int,
    (data_ptrs, coding_ptrs): (*const *mut c_char, *const *mut c_char),
    (size, piece): (usize, usize),
) -> bool {
    // SAFETY: by contract.
    let Some(erased) = (unsafe { erased(k, m, erasures) }) else { return false };
    // SAFETY: by contract.
    let devices = unsafe { Devices::new((k, m), data_ptrs, coding_ptrs, size) };
    let n = k * unit;
    let lost: Vec<usize> = (0..k).filter(|&device| erased[device]).collect();
    if !lost.is_empty() {
        let Some((from, rows)) = surviving(k, unit, coding, &erased) else { return false };
        let Some(inverse) = inverse(field, n, rows) else { return false };
        let wanted =
            lost.iter().flat_map(|device| &inverse[device * unit * n..(device + 1) * unit * n]).copied();
        let Some(plan) = plan(field, lost.len() * unit, wanted.collect()) else { return false };
        // SAFETY: by contract.
        if !unsafe { devices.run(&plan, unit, piece, &from, &lost) } {
            return false;
        }
    }
    let lost: Vec<usize> = (k..k + m).filter(|&device| erased[device]).collect();
    if lost.is_empty() {
        return true;
    }
    let wanted =
        lost.iter().flat_map(|device| &coding[(device - k) * unit * n..(device - k + 1) * unit * n]).copied();
    let Some(plan) = plan(field, lost.len() * unit, wanted.collect()) else { return false };
    // SAFETY: by contract.
    unsafe { devices.run(&plan, unit, piece, &(0..k).collect::<Vec<_>>(), &lost) }
}
