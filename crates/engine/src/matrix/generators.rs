//! The redundancy rows of systematic codes: m x k matrices A, so that redundancy = A · data.
//!
//! A code survives any m losses (is MDS) exactly when every square submatrix of A is regular.
//! The families here have that by law, within the limits that [`Code`](crate::code::Code) enforces.

use super::Matrix;
use super::bits::ones;
use crate::error::Error;
use crate::field::Field;

/// Up to this k the systematic form is computed by column operations, k·k·(k+m) steps; beyond it by
/// Lagrange's closed form of the same unique matrix, k·(k+m) steps.
const COLUMN_OPERATIONS_MAX_K: usize = 256;

/// Systematic Vandermonde code over the points 0, 1, …, k+m-1 (thesis 2.27).
///
/// MDS: any k rows of the Vandermonde matrix of distinct points are independent, and column
/// operations keep that.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn vandermonde(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    if k <= COLUMN_OPERATIONS_MAX_K {
        vandermonde_by_column_operations(field, k, m)
    } else {
        vandermonde_by_lagrange(field, k, m)
    }
}

/// Column operations turn the upper k rows into the identity; what the lower m rows become is A.
pub(super) fn vandermonde_by_column_operations(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    // Worked on transposed, so that a column operation runs along a row in memory.
    let mut columns = Matrix::from_fn(field, k, k + m, |power, point| field.pow(point as u64, power as u64))?;
    let rank = columns.eliminate(None);
    debug_assert_eq!(rank, k, "a Vandermonde matrix of distinct points has full rank");
    Matrix::from_fn(field, m, k, |row, column| columns.at(column, k + row))
}

/// A[i][j] is the Lagrange polynomial of point j over the points 0..k, evaluated at point k+i:
/// the product over l != j of (x - l) / (j - l), x = k+i.
pub(super) fn vandermonde_by_lagrange(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    let product = |of: &mut dyn Iterator<Item = u64>| of.fold(1, |p, a| field.mul(p, a));
    let distances_from = |x: u64| (0..k as u64).map(move |l| x ^ l);
    let denominators: Vec<u64> =
        (0..k as u64).map(|j| product(&mut distances_from(j).filter(|&distance| distance != 0))).collect();
    let numerators: Vec<u64> = (0..m).map(|i| product(&mut distances_from((k + i) as u64))).collect();
    Matrix::from_fn(field, m, k, |i, j| {
        let divisor = field.mul(denominators[j], (k + i) as u64 ^ j as u64);
        // Distinct points: no factor of the divisor is zero.
        field.div(numerators[i], divisor).unwrap_or(0)
    })
}

/// Cauchy matrix 1 / (i + (m + j)), the original of Blömer et al. as Jerasure numbers it.
///
/// MDS: every square submatrix of a Cauchy matrix is a Cauchy matrix, and regular.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn cauchy(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.inv((i ^ (m + j)) as u64).unwrap_or(0))
}

/// Cauchy matrix 1 / ((k + i) + j), as ISA-L's `gf_gen_cauchy1_matrix` numbers it.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn cauchy_isal(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.inv(((k + i) ^ j) as u64).unwrap_or(0))
}

/// A Cauchy matrix whose bit matrix has few ones, so that XOR programs are short.
///
/// Columns and rows of a Cauchy matrix may be scaled without losing MDS. (1) Columns are scaled
/// so that row 0 is all ones. (2) Every other row is divided by the one of its elements that leaves
/// the fewest ones. (3) For m = 2 there is full freedom: any distinct non-zero elements will do in
/// row 1, so the k lightest are taken. Rule (3) ends where Jerasure's tables of such elements end, so that
/// both give the same matrices.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn cauchy_good(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    if m == 2 && field.w() <= 11 && k <= 1023 {
        let mut elements: Vec<u64> = (1..=field.mask()).collect();
        elements.sort_by_key(|&a| (ones(field, a), a));
        return Matrix::from_fn(field, m, k, |i, j| if i == 0 { 1 } else { elements[j] });
    }
    let original = cauchy(field, k, m)?;
    let quotient = |a, b| field.div(a, b).unwrap_or(0);
    let scaled = Matrix::from_fn(field, m, k, |i, j| quotient(original.at(i, j), original.at(0, j)))?;
    let row_weight =
        |i: usize, divisor| -> u32 { scaled.row(i).iter().map(|&a| ones(field, quotient(a, divisor))).sum() };
    let divisors: Vec<u64> = (0..m)
        .map(|i| {
            let candidates = scaled.row(i).iter().copied();
            // 1 leaves the row as it is and wins ties, then the leftmost element does.
            std::iter::once(1).chain(candidates).min_by_key(|&d| row_weight(i, d)).unwrap_or(1)
        })
        .collect();
    Matrix::from_fn(field, m, k, |i, j| quotient(scaled.at(i, j), divisors[i]))
}

/// Powers (2^i)^j, as ISA-L's `gf_gen_rs_matrix` has them. Not MDS for every shape:
/// [`isal_vandermonde_limit`] says up to where.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn isal_vandermonde(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.exp((i * j) as u64))
}

/// The largest m for which [`isal_vandermonde`] with k data blocks survives any m losses, as
/// ISA-L's documentation states it; the tests check the smaller ones exhaustively.
pub fn isal_vandermonde_limit(k: usize) -> usize {
    match k {
        0..=3 => 256 - k,
        4 => 21,
        5 => 5,
        6..=21 => 4,
        _ => 3,
    }
}

/// RAID-Z: P is the sum, Q and R the values at 2 and 4 of the polynomial whose highest
/// coefficient is the first data block (thesis 6.2), for m = 1, 2, 3.
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub fn raidz(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.exp((i * (k - 1 - j)) as u64))
}
