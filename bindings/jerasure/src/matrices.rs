//! Generator matrices, and what programs derive from them.

use crate::memory::{allocated, array, count, erased, flags};
use crate::square::{BITS, field, inverse, surviving};
use gabion_engine::Field;
use std::ffi::c_int;

/// Most rows of a matrix here; Jerasure's own limit is the field.
const MAX: usize = 1 << 12;

/// Numbers of C as elements of a field, which are its lowest bits.
pub(crate) fn elements(field: Field, numbers: &[c_int]) -> Vec<u64> {
    numbers.iter().map(|&number| u64::from(number as u32) & field.mask()).collect()
}

fn numbers(elements: &[u64]) -> Vec<c_int> {
    elements.iter().map(|&element| element as u32 as c_int).collect()
}

/// The systematic form of the extended Vandermonde matrix, whose first redundancy row and column are ones.
fn distribution(field: Field, rows: usize, k: usize) -> Option<Vec<u64>> {
    let limit = field.order();
    if k == 0 || rows < k || rows > limit || rows > MAX {
        return None;
    }
    let mut matrix = vec![0; rows * k];
    matrix[0] = 1;
    for row in 1..rows {
        let mut power = 1;
        for at in 0..k {
            matrix[row * k + at] = power;
            power = field.mul(power, row as u64);
        }
    }
    if rows > 1 {
        matrix[(rows - 1) * k..].fill(0);
        matrix[rows * k - 1] = 1;
    }
    for column in 1..k {
        let pivot = (column..rows).find(|&row| matrix[row * k + column] != 0)?;
        (0..k).for_each(|at| matrix.swap(pivot * k + at, column * k + at));
        let factor = field.inv(matrix[column * k + column])?;
        (0..rows).for_each(|row| matrix[row * k + column] = field.mul(matrix[row * k + column], factor));
        for other in (0..k).filter(|&other| other != column) {
            let factor = matrix[column * k + other];
            for row in (0..rows).filter(|_| factor != 0) {
                matrix[row * k + other] ^= field.mul(factor, matrix[row * k + column]);
            }
        }
    }
    if rows > k {
        for column in 0..k {
            let factor = field.inv(matrix[k * k + column])?;
            (k..rows).for_each(|row| matrix[row * k + column] = field.mul(matrix[row * k + column], factor));
        }
        for row in k + 1..rows {
            let factor = field.inv(matrix[row * k])?;
            (0..k).for_each(|at| matrix[row * k + at] = field.mul(matrix[row * k + at], factor));
        }
    }
    Some(matrix)
}

/// The redundancy rows of a Vandermonde code; null for shapes that the field has no points for. The caller frees it.
#[unsafe(no_mangle)]
pub extern "C" fn reed_sol_vandermonde_coding_matrix(k: c_int, m: c_int, w: c_int) -> *mut c_int {
    let (k, m) = (count(k), count(m));
    let made = field(w).and_then(|field| distribution(field, k + m, k));
    made.map_or(std::ptr::null_mut(), |matrix| allocated(&numbers(&matrix[k * k..])))
}

/// The redundancy rows 1 / (i XOR (m + j)); null for shapes that the field has no points for. The caller frees it.
#[unsafe(no_mangle)]
pub extern "C" fn cauchy_original_coding_matrix(k: c_int, m: c_int, w: c_int) -> *mut c_int {
    let (k, m) = (count(k), count(m));
    let made = field(w).filter(|field| k + m <= field.order().min(MAX)).and_then(|field| {
        let elements = (0..m * k).map(|at| field.inv((at / k) as u64 ^ (m + at % k) as u64));
        elements.collect::<Option<Vec<u64>>>()
    });
    made.map_or(std::ptr::null_mut(), |matrix| allocated(&numbers(&matrix)))
}

/// Every element as the w x w bit matrix of its multiplication. The caller frees it.
///
/// # Safety
/// The matrix has m rows of k elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_matrix_to_bitmatrix(
    k: c_int,
    m: c_int,
    w: c_int,
    matrix: *const c_int,
) -> *mut c_int {
    let (k, m) = (count(k), count(m));
    let Some(field) = field(w).filter(|_| !matrix.is_null()) else { return std::ptr::null_mut() };
    let w = field.w() as usize;
    // SAFETY: the caller's promise.
    let elements = elements(field, unsafe { array(matrix, k * m) });
    let mut bits = vec![0; elements.len() * w * w];
    for (at, mut element) in elements.into_iter().enumerate() {
        let (row, column) = (at / k, at % k);
        for x in 0..w {
            for bit in 0..w {
                bits[(row * w + bit) * k * w + column * w + x] = (element >> bit & 1) as c_int;
            }
            element = field.mul(element, 2);
        }
    }
    allocated(&bits)
}

/// A list of lost devices that ends with -1 as an array of 0 and 1 for all devices; null if fewer than k are left. The
/// caller frees it.
///
/// # Safety
/// The list ends with -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_erasures_to_erased(
    k: c_int,
    m: c_int,
    erasures: *const c_int,
) -> *mut c_int {
    if erasures.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let erased = unsafe { erased(count(k), count(m), erasures) };
    let numbers = |erased: Vec<bool>| erased.into_iter().map(c_int::from).collect::<Vec<_>>();
    erased.map_or(std::ptr::null_mut(), |erased| allocated(&numbers(erased)))
}

/// Writes a decoding matrix and the devices that it takes.
///
/// # Safety
/// `coding` has all redundancy rows, `decoding` room for k · unit squared numbers, `ids` for k.
unsafe fn decoding(
    field: Field,
    (k, unit): (usize, usize),
    coding: &[c_int],
    erased: &[bool],
    decoding: *mut c_int,
    ids: *mut c_int,
) -> c_int {
    let Some((devices, rows)) = surviving(k, unit, &elements(field, coding), erased) else { return -1 };
    for (at, device) in devices.into_iter().enumerate() {
        // SAFETY: by contract.
        unsafe { ids.add(at).write(device as c_int) };
    }
    let Some(inverse) = inverse(field, k * unit, rows) else { return -1 };
    for (at, number) in numbers(&inverse).into_iter().enumerate() {
        // SAFETY: by contract.
        unsafe { decoding.add(at).write(number) };
    }
    0
}

/// Writes the k x k matrix that restores all data from the first k devices that are left, and these devices. Returns 0,
/// or -1 if there is none.
///
/// # Safety
/// The matrix has m rows of k elements, `erased` k + m numbers; the places have room for k · k and k numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_make_decoding_matrix(
    k: c_int,
    m: c_int,
    w: c_int,
    matrix: *const c_int,
    erased: *const c_int,
    decoding_matrix: *mut c_int,
    dm_ids: *mut c_int,
) -> c_int {
    let (k, m) = (count(k), count(m));
    let Some(field) = field(w) else { return -1 };
    // SAFETY: the caller's promise.
    unsafe {
        let (matrix, erased) = (array(matrix, k * m), flags(array(erased, k + m)));
        decoding(field, (k, 1), matrix, &erased, decoding_matrix, dm_ids)
    }
}

/// As [`jerasure_make_decoding_matrix`], of bits.
///
/// # Safety
/// As there, with w · w times as many numbers in matrices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_make_decoding_bitmatrix(
    k: c_int,
    m: c_int,
    w: c_int,
    matrix: *const c_int,
    erased: *const c_int,
    decoding_matrix: *mut c_int,
    dm_ids: *mut c_int,
) -> c_int {
    let (k, m, w) = (count(k), count(m), count(w));
    // SAFETY: the caller's promise.
    unsafe {
        let (matrix, erased) = (array(matrix, k * m * w * w), flags(array(erased, k + m)));
        decoding(BITS, (k, w), matrix, &erased, decoding_matrix, dm_ids)
    }
}
