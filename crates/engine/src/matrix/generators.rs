//! The redundancy rows of systematic codes: m x k matrices A, so that redundancy = A · data.
//!
//! A code survives any m losses (is MDS) exactly when every square submatrix of A is regular. The families here are MDS
//! within the limits that [`Code`](crate::code::Code) enforces; each generator states the proof.

use super::Matrix;
use super::bits::ones;
use super::cauchy::{CauchyForm, Point, invert_all};
use crate::error::Error;
use crate::field::Field;

/// Limit of the steps, k·k·m, of the search for rows with few ones: below a second in any field.
const MAX_SEARCH_STEPS: usize = 1 << 22;

/// Points and factors of the systematic Vandermonde code over the points 0, 1, …, k+m-1 (thesis 2.27): column
/// operations turn the upper k rows of the Vandermonde matrix into the identity, and its lower m rows into A.
///
/// MDS: any k rows of the Vandermonde matrix of distinct points are independent, and column operations keep that.
///
/// It is a Cauchy matrix because A[i][j] is the Lagrange polynomial of point j over the points 0..k, evaluated at point
/// x = k+i, the product over l != j of (x - l) / (j - l). Without its factor x - j the upper product is one over all l.
pub(crate) fn vandermonde_points(field: Field, k: usize, m: usize) -> CauchyForm {
    let distances = Distances::new(field, k, k + m);
    let mut weights: Vec<u64> = (0..k).map(|j| distances.product_from(j)).collect();
    invert_all(field, &mut weights);
    let point = |(at, scale): (usize, u64)| Point { at: at as u64, scale };
    CauchyForm {
        rows: (k..k + m).map(|x| point((x, distances.product_from(x)))).collect(),
        columns: weights.into_iter().enumerate().map(point).collect(),
    }
}

/// Products of the distances x - l from a point to all points l = 0..k, in log k steps each.
///
/// The points are numbered so that x - l is x ^ l. An aligned range of 2^t points, seen from x, is again an
/// aligned range of 2^t distances; so the products over all aligned ranges are tabulated, and 0..k
/// is cut into the aligned ranges of k's binary digits.
struct Distances {
    field: Field,
    k: usize,
    /// ranges[t][r] is the product of the non-zero elements of r·2^t .. (r+1)·2^t.
    ranges: Vec<Vec<u64>>,
}

impl Distances {
    fn new(field: Field, k: usize, points: usize) -> Distances {
        let mut ranges = vec![(0..points.next_power_of_two() as u64).map(|a| a.max(1)).collect::<Vec<u64>>()];
        while let Some(last) = ranges.last().filter(|last| last.len() > 1) {
            let pairs = last.chunks(2).map(|pair| field.mul(pair[0], pair[1]));
            ranges.push(pairs.collect());
        }
        Distances { field, k, ranges }
    }

    /// The product of the distances from `point` to every other of the points 0..k.
    fn product_from(&self, point: usize) -> u64 {
        let (mut start, mut product) = (0, 1);
        for t in (0..self.ranges.len()).rev().filter(|&t| self.k >> t & 1 == 1) {
            product = self.field.mul(product, self.ranges[t][(start ^ point) >> t]);
            start += 1 << t;
        }
        product
    }
}

/// Points and factors of the subspace code, normative in docs/reference/shards.md. The smaller side (redundancy if m
/// and k are equal once rounded up to powers of two) has the points 0, 1, … of the subspace V of n points; the larger
/// side has the cosets of V one after the other and, when these run out, the remaining points of V; its factor at x
/// is u(x).
///
/// MDS: a Cauchy matrix of distinct points with non-zero factors.
///
/// Reason for these factors: the Lagrange polynomials of a coset take the values u(x) / (p + x) at the points p of V,
/// and those of V the values u(p) / (p + x) at the points p of a coset. So encoding interpolates on one and evaluates
/// on the other, which additive FFTs do in n log n steps instead of n·n.
pub(crate) fn subspace_points(field: Field, k: usize, m: usize) -> CauchyForm {
    let few_rows = m.next_power_of_two() <= k.next_power_of_two();
    let (few, many) = if few_rows { (m, k) } else { (k, m) };
    let size = few.next_power_of_two() as u64;
    let vanishing = Vanishing::new(field, size);
    let inner = (0..few as u64).map(Point::plain).collect();
    let cosets = (size..=field.mask()).chain(few as u64..size);
    let outer = cosets.take(many).map(|at| Point { at, scale: vanishing.at(at) }).collect();
    match few_rows {
        true => CauchyForm { rows: inner, columns: outer },
        false => CauchyForm { rows: outer, columns: inner },
    }
}

/// u, the product of x + v over all v of the subspace 0..n, divided by the product of all non-zero v.
struct Vanishing {
    n: u64,
    /// u(2^t); u is linear over GF(2), so these determine it.
    images: Vec<u64>,
}

impl Vanishing {
    fn new(field: Field, n: u64) -> Vanishing {
        // W is the product without the divisor. W_1(x) = x, W_2n(x) = W_n(x) · (W_n(x) + W_n(n)).
        let doubled = |w: u64, step: u64| field.mul(w, w ^ step);
        let mut images: Vec<u64> = (0..field.w()).map(|t| 1 << t).collect();
        let mut divisor = 1;
        for t in 0..n.trailing_zeros() as usize {
            // The non-zero v below 2^(t+1) are those below 2^t and those from 2^t on, whose product is W(2^t).
            let step = images[t];
            divisor = field.mul(divisor, step);
            images.iter_mut().for_each(|w| *w = doubled(*w, step));
        }
        let inverse = field.inv(divisor).expect("a product of non-zero elements");
        images.iter_mut().for_each(|w| *w = field.mul(*w, inverse));
        Vanishing { n, images }
    }

    /// u(x), or 1 where that would be 0.
    fn at(&self, x: u64) -> u64 {
        let bits = (0..self.images.len()).filter(|t| x >> t & 1 == 1);
        if x < self.n { 1 } else { bits.fold(0, |sum, t| sum ^ self.images[t]) }
    }
}

/// Cauchy matrix 1 / (i + (m + j)), the original of Blömer et al. as Jerasure numbers it.
///
/// MDS: every square submatrix of a Cauchy matrix is a Cauchy matrix, and regular.
pub(crate) fn cauchy_points(k: usize, m: usize) -> CauchyForm {
    let (k, m) = (k as u64, m as u64);
    let (rows, columns) = ((0..m).map(Point::plain), (m..m + k).map(Point::plain));
    CauchyForm { rows: rows.collect(), columns: columns.collect() }
}

/// The Cauchy matrix of [`cauchy_points`].
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub(crate) fn cauchy(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    cauchy_points(k, m).matrix(field)
}

/// Cauchy matrix 1 / ((k + i) + j), as ISA-L's `gf_gen_cauchy1_matrix` numbers it.
pub(crate) fn cauchy_isal_points(k: usize, m: usize) -> CauchyForm {
    let (k, m) = (k as u64, m as u64);
    let (rows, columns) = ((k..k + m).map(Point::plain), (0..k).map(Point::plain));
    CauchyForm { rows: rows.collect(), columns: columns.collect() }
}

/// A Cauchy matrix whose bit matrix has few ones, so that XOR programs are short.
///
/// Columns and rows of a Cauchy matrix may be scaled without losing MDS. (1) Columns are scaled so that row 0 is all
/// ones. (2) Every other row is divided by the one of its elements that leaves the fewest ones. (3) For m = 2, any
/// distinct non-zero elements are valid in row 1, so the k elements with the fewest ones are taken. Rule (3) is limited
/// to the range of Jerasure's tables of such elements, so that both produce the same matrices.
///
/// # Errors
/// [`Error::MatrixTooLarge`], [`Error::SearchTooLarge`].
pub(crate) fn cauchy_good(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    if m == 2 && field.w() <= 11 && k <= 1023 {
        let mut elements: Vec<u64> = (1..=field.mask()).collect();
        elements.sort_by_key(|&a| (ones(field, a), a));
        return Matrix::from_fn(field, m, k, |i, j| if i == 0 { 1 } else { elements[j] });
    }
    if k.saturating_mul(k).saturating_mul(m) > MAX_SEARCH_STEPS {
        return Err(Error::SearchTooLarge { k, m, limit: MAX_SEARCH_STEPS });
    }
    let original = cauchy(field, k, m)?;
    let mut column_factors = if m == 0 { vec![1; k] } else { original.row(0).to_vec() };
    invert_all(field, &mut column_factors);
    let scaled = Matrix::from_fn(field, m, k, |i, j| field.mul(original.at(i, j), column_factors[j]))?;
    let row_factors: Vec<u64> = (0..m)
        .map(|i| {
            let weight =
                |factor| -> u32 { scaled.row(i).iter().map(|&a| ones(field, field.mul(a, factor))).sum() };
            let mut inverses = scaled.row(i).to_vec();
            invert_all(field, &mut inverses);
            // 1 leaves the row as it is and wins ties, then the leftmost element does.
            std::iter::once(1).chain(inverses).min_by_key(|&factor| weight(factor)).unwrap_or(1)
        })
        .collect();
    Matrix::from_fn(field, m, k, |i, j| field.mul(scaled.at(i, j), row_factors[i]))
}

/// Powers (2^i)^j, as ISA-L's `gf_gen_rs_matrix` has them. Not MDS for every shape; see [`isal_vandermonde_limit`].
///
/// # Errors
/// [`Error::MatrixTooLarge`].
pub(crate) fn isal_vandermonde(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.exp((i * j) as u64))
}

/// The largest m for which [`isal_vandermonde`] with k data blocks survives any m losses, as
/// ISA-L's documentation states it; the tests check the smaller ones exhaustively.
pub(crate) fn isal_vandermonde_limit(k: usize) -> usize {
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
pub(crate) fn raidz(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    Matrix::from_fn(field, m, k, |i, j| field.exp((i * (k - 1 - j)) as u64))
}
