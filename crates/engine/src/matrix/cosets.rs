//! Cosets of the subspaces 0..n of a field, n a power of two: the constants of additive FFTs, and which points lie where.
//!
//! A block of 2h points that starts at x is transformed between values and coefficients by butterflies at distance h,
//!
//! ```text
//! values → coefficients:  b += a,  a += s · b          s = W_h(x) / W_h(h)
//! coefficients → values:  a += s · b,  b += a
//! ```
//!
//! where W_h is the polynomial that vanishes on 0..h (Lin, Chung and Han).

use super::cauchy::Point;
use crate::field::Field;
use std::collections::BTreeMap;

/// Subspace polynomials of one field.
#[derive(Debug, Clone, Copy)]
pub struct Cosets {
    field: Field,
}

impl Cosets {
    /// Those of `field`.
    pub const fn of(field: Field) -> Cosets {
        Cosets { field }
    }

    /// The field.
    pub const fn field(&self) -> Field {
        self.field
    }

    /// W_n(x): zero on 0..n, constant on its cosets, linear over GF(2).
    fn vanishing(&self, n: u64, x: u64) -> u64 {
        let (mut value, mut half) = (x, 1);
        while half < n {
            let shift = self.vanishing(half, half);
            value = self.field.mul(value, value ^ shift);
            half *= 2;
        }
        value
    }

    /// a / b.
    ///
    /// # Panics
    /// If b is 0: points that differ and scales that are none never give that.
    pub fn quotient(&self, a: u64, b: u64) -> u64 {
        self.field.div(a, b).expect("divisors are not zero: distinct points, non-zero scales")
    }

    /// The factor of a butterfly of 2h points from x on.
    pub fn twiddle(&self, h: u64, x: u64) -> u64 {
        self.quotient(self.vanishing(h, x), self.vanishing(h, h))
    }

    /// The scale with which a point of the coset at x, outside 0..n, needs no further constant: W_n(x) divided by the product of
    /// the non-zero points below n.
    pub fn scale(&self, n: u64, x: u64) -> u64 {
        let nonzero = (1..n).fold(1, |product, v| self.field.mul(product, v));
        self.quotient(self.vanishing(n, x), nonzero)
    }

    /// The entry of a Cauchy matrix.
    pub fn entry(&self, row: Point, column: Point) -> u64 {
        self.quotient(self.field.mul(row.scale, column.scale), row.at ^ column.at)
    }
}

/// How many times more points a coset may have than it has to: beyond, transforming the others costs too much.
const MAX_SPARSITY: u64 = 4;

/// The smallest power of two n, and the first point of the coset of 0..n that holds all points; `None` where few of
/// its points are among them.
pub fn smallest_coset(points: &[Point]) -> Option<(u64, u64)> {
    let first = points.first()?.at;
    let spread = points.iter().fold(0, |bits, point| bits | (point.at ^ first));
    let n = (spread + 1).checked_next_power_of_two()?;
    (n <= MAX_SPARSITY * points.len() as u64).then_some((n, first & !(n - 1)))
}

/// A point of a matrix: which row or column it belongs to, and where it lies in its coset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The row or column.
    pub index: usize,
    /// Its distance from the first point of the coset.
    pub place: usize,
}

/// Points by the coset of 0..n they lie in, after a shift of all points by `base`.
pub fn by_coset(points: &[Point], n: u64, base: u64) -> BTreeMap<u64, Vec<Member>> {
    let mut cosets: BTreeMap<u64, Vec<Member>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        let at = point.at ^ base;
        cosets.entry(at & !(n - 1)).or_default().push(Member { index, place: (at & (n - 1)) as usize });
    }
    cosets
}
