//! Arithmetic on single elements, and generation and inversion of matrices: `gf_mul`, `gf_inv`, `gf_gen_rs_matrix`,
//! `gf_gen_cauchy1_matrix`, `gf_invert_matrix`; and the version of the interface.

use crate::field::{inv, mul};
use crate::product::count;
use std::ffi::{c_char, c_int, c_uint};

/// The product of two elements.
#[unsafe(no_mangle)]
pub extern "C" fn gf_mul(a: u8, b: u8) -> u8 {
    mul(a, b)
}

/// The inverse of an element; 0 for 0.
#[unsafe(no_mangle)]
pub extern "C" fn gf_inv(a: u8) -> u8 {
    inv(a)
}

/// Writes an m x k matrix: the identity, and below it the rows of `value`. With m below k only the first m rows of the
/// identity are written.
///
/// # Safety
/// `a` has m · k bytes.
unsafe fn systematic(a: *mut u8, m: c_int, k: c_int, value: impl Fn(usize, usize) -> u8) {
    let (m, k) = (count(m), count(k));
    for i in 0..m {
        for j in 0..k {
            let element = if i < k { u8::from(i == j) } else { value(i, j) };
            // SAFETY: i < m and j < k.
            unsafe { a.add(i * k + j).write(element) };
        }
    }
}

/// Writes the identity over rows of powers: row k + i has the powers of 2^i. It is not MDS for every shape.
///
/// # Safety
/// `a` has m · k bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_gen_rs_matrix(a: *mut u8, m: c_int, k: c_int) {
    let power = |base: u8, exponent: usize| (0..exponent % 255).fold(1, |power, _| mul(power, base));
    let rows = count(k);
    // SAFETY: the caller's promise.
    unsafe { systematic(a, m, k, |i, j| power(power(2, i - rows), j)) };
}

/// Writes the identity over a Cauchy matrix: row i has the inverses of i + j.
///
/// # Safety
/// `a` has m · k bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_gen_cauchy1_matrix(a: *mut u8, m: c_int, k: c_int) {
    // SAFETY: the caller's promise.
    unsafe { systematic(a, m, k, |i, j| inv((i ^ j) as u8)) };
}

/// Inverts an n x n matrix by elimination. Returns 0, or -1 for a singular one. The input is overwritten.
///
/// # Safety
/// `input` and `output` have n · n bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_invert_matrix(input: *mut u8, output: *mut u8, n: c_int) -> c_int {
    let n = count(n);
    // SAFETY: all indices below are less than n · n.
    let at = |matrix: *mut u8, row: usize, column: usize| unsafe { matrix.add(row * n + column).read() };
    // SAFETY: as above.
    let set = |matrix: *mut u8, row: usize, column: usize, value: u8| unsafe {
        matrix.add(row * n + column).write(value);
    };
    for row in 0..n {
        (0..n).for_each(|column| set(output, row, column, u8::from(row == column)));
    }
    for i in 0..n {
        if at(input, i, i) == 0 {
            let Some(other) = (i + 1..n).find(|&row| at(input, row, i) != 0) else { return -1 };
            for matrix in [input, output] {
                for column in 0..n {
                    let (here, there) = (at(matrix, i, column), at(matrix, other, column));
                    set(matrix, i, column, there);
                    set(matrix, other, column, here);
                }
            }
        }
        let scale = inv(at(input, i, i));
        for matrix in [input, output] {
            (0..n).for_each(|column| set(matrix, i, column, mul(at(matrix, i, column), scale)));
        }
        for row in (0..n).filter(|&row| row != i) {
            let factor = at(input, row, i);
            for matrix in [output, input] {
                for column in 0..n {
                    set(matrix, row, column, at(matrix, row, column) ^ mul(factor, at(matrix, i, column)));
                }
            }
        }
    }
    0
}

/// The version of ISA-L that has the same interface.
const VERSION: [c_uint; 3] = [2, 32, 1];

/// The version of the interface, as `ISAL_MAKE_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn isal_get_version() -> c_uint {
    VERSION[0] * 0x1_0000 + VERSION[1] * 0x100 + VERSION[2]
}

/// The version of the interface as text, with the name of this library after it.
#[unsafe(no_mangle)]
pub extern "C" fn isal_get_version_str() -> *const c_char {
    c"2.32.1 (gabion)".as_ptr()
}
