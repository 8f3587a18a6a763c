//! Cosets of subspaces of a field: constants of additive FFTs, and the grouping of points by coset.
//!
//! A basis of the field numbers its points: point number i is the sum of the basis elements at the set bits of i. The
//! numbers 0..n, n a power of two, are a subspace, and n consecutive numbers from a multiple of n are one of its
//! cosets. With the basis 1, 2, 4, … every point is its own number.
//!
//! A block of 2h points that starts at number x is transformed between values and coefficients by butterflies at
//! distance h,
//!
//! ```text
//! values → coefficients:  b += a,  a += s · b          s = W_h(x) / W_h(h)
//! coefficients → values:  a += s · b,  b += a
//! ```
//!
//! where W_h is the polynomial that vanishes on the points 0..h (Lin, Chung and Han).

use super::cauchy::{CauchyForm, Point};
use crate::field::Field;
use crate::tuning::MAX_COSET_SPARSITY;
use std::collections::BTreeMap;

/// A field whose points are numbered by a basis, and its subspace polynomials. Its functions take and return numbers.
#[derive(Debug, Clone)]
pub struct Cosets {
    field: Field,
    /// The points of the numbers 1, 2, 4, …
    basis: Vec<u64>,
    /// The numbers of the points 1, 2, 4, …
    numbers: Vec<u64>,
}

impl Cosets {
    /// Cosets of `field` with every point as its own number.
    pub fn of(field: Field) -> Cosets {
        let units: Vec<u64> = (0..field.w()).map(|bit| 1 << bit).collect();
        Cosets { field, basis: units.clone(), numbers: units }
    }

    /// A numbering in which the smallest coset that contains all of `points` consists of n consecutive numbers, for
    /// some n.
    pub fn around(field: Field, points: &[Point]) -> Cosets {
        let mut basis = Basis::default();
        let first = points.first().map_or(0, |point| point.at);
        points.iter().for_each(|point| basis.extend(point.at ^ first));
        basis.reduce();
        (0..field.w()).for_each(|bit| basis.extend(1 << bit));
        let number = |bit: u32| basis.number(1 << bit);
        let numbers = (0..field.w()).map(number).collect();
        Cosets { field, basis: basis.elements, numbers }
    }

    /// The matrix with its points replaced by their numbers.
    pub fn numbered(&self, form: &CauchyForm) -> CauchyForm {
        let number = |point: &Point| Point { at: self.number(point.at), scale: point.scale };
        CauchyForm {
            rows: form.rows.iter().map(number).collect(),
            columns: form.columns.iter().map(number).collect(),
        }
    }

    /// The field.
    pub const fn field(&self) -> Field {
        self.field
    }

    /// The number of a point.
    pub fn number(&self, point: u64) -> u64 {
        combination(&self.numbers, point)
    }

    fn point(&self, number: u64) -> u64 {
        combination(&self.basis, number)
    }

    /// W_n at number x: zero on 0..n, constant on its cosets, linear over GF(2).
    fn vanishing(&self, n: u64, x: u64) -> u64 {
        let (mut value, mut half) = (self.point(x), 1);
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
    /// If b is 0. Distinct points and non-zero scales never cause that.
    pub fn quotient(&self, a: u64, b: u64) -> u64 {
        self.field.div(a, b).expect("divisors are not zero: distinct points, non-zero scales")
    }

    /// The factor of a butterfly of 2h points that starts at number x.
    pub fn twiddle(&self, h: u64, x: u64) -> u64 {
        self.quotient(self.vanishing(h, x), self.vanishing(h, h))
    }

    /// The scale for which a point of the coset at number x, outside 0..n, needs no further constant: W_n(x) divided by
    /// the product of the non-zero points below n.
    pub fn scale(&self, n: u64, x: u64) -> u64 {
        let nonzero = (1..n).fold(1, |product, v| self.field.mul(product, self.point(v)));
        self.quotient(self.vanishing(n, x), nonzero)
    }

    /// The entry of a Cauchy matrix.
    pub fn entry(&self, row: Point, column: Point) -> u64 {
        self.quotient(self.field.mul(row.scale, column.scale), self.point(row.at ^ column.at))
    }
}

/// The sum of the elements at the set bits.
fn combination(elements: &[u64], bits: u64) -> u64 {
    let taken = elements.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    taken.fold(0, |sum, (_, element)| sum ^ element)
}

/// Linearly independent elements of a field. No element has the highest bit of an earlier one, so reduction by them in
/// order terminates.
#[derive(Default)]
struct Basis {
    elements: Vec<u64>,
}

impl Basis {
    /// Adds an element unless it is in the span of the others.
    fn extend(&mut self, element: u64) {
        let rest = self.elements.iter().fold(element, |rest, with| rest.min(rest ^ with));
        self.elements.extend((rest != 0).then_some(rest));
    }

    /// Replaces the basis by the smallest elements of the same span, in ascending order: 1, 2, 4, … for the span 0..n.
    fn reduce(&mut self) {
        for place in 0..self.elements.len() {
            let element = self.elements[place];
            let (before, _) = self.elements.split_at_mut(place);
            before.iter_mut().for_each(|other| *other = (*other).min(*other ^ element));
        }
        self.elements.sort_unstable();
    }

    /// The elements that sum to a point of the span, as bits.
    fn number(&self, point: u64) -> u64 {
        let mut rest = point;
        let takes = |(bit, element): (usize, &u64)| {
            let smaller = rest ^ element < rest;
            rest ^= if smaller { *element } else { 0 };
            u64::from(smaller) << bit
        };
        self.elements.iter().enumerate().map(takes).sum()
    }
}

/// The smallest power of two n, and the first point of the coset of 0..n that contains all points; `None` if only few
/// of its points are in use.
pub fn smallest_coset(points: &[Point]) -> Option<(u64, u64)> {
    let first = points.first()?.at;
    let spread = points.iter().fold(0, |bits, point| bits | (point.at ^ first));
    let n = (spread + 1).checked_next_power_of_two()?;
    (n <= MAX_COSET_SPARSITY * points.len() as u64).then_some((n, first & !(n - 1)))
}

/// A point of a matrix: its row or column, and its index in the coset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The row or column.
    pub index: usize,
    /// Its index in the coset.
    pub place: usize,
}

/// Groups points by their coset of 0..n, after a shift of all points by `base`.
pub fn by_coset(points: &[Point], n: u64, base: u64) -> BTreeMap<u64, Vec<Member>> {
    let mut cosets: BTreeMap<u64, Vec<Member>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate() {
        let at = point.at ^ base;
        cosets.entry(at & !(n - 1)).or_default().push(Member { index, place: (at & (n - 1)) as usize });
    }
    cosets
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field() -> Field {
        Field::new(8).unwrap()
    }

    fn points(at: &[u64]) -> Vec<Point> {
        at.iter().map(|&at| Point::plain(at)).collect()
    }

    /// Numbers of points around themselves.
    fn numbers(at: &[u64]) -> Vec<Point> {
        let form = CauchyForm { rows: points(at), columns: Vec::new() };
        Cosets::around(field(), &form.rows).numbered(&form).rows
    }

    #[test]
    fn neighbours_keep_their_numbers() {
        let neighbours: Vec<u64> = (48..64).collect();
        assert_eq!(numbers(&neighbours), points(&neighbours));
    }

    #[test]
    fn every_fourth_point_is_a_coset_too() {
        let spread: Vec<u64> = (0..16).map(|place| 4 * place + 3).collect();
        assert_eq!(smallest_coset(&points(&spread)), Some((64, 0)));
        assert_eq!(smallest_coset(&numbers(&spread)).unwrap().0, 16);
    }

    proptest! {
        /// All points of a field have numbers of their own, which are linear; subspace polynomials vanish where they
        /// should.
        #[test]
        fn numbers_are_those_of_a_basis(at in proptest::collection::vec(0..256u64, 1..20)) {
            let all: Vec<u64> = (0..256).collect();
            let cosets = Cosets::around(field(), &points(&at));
            let form = CauchyForm { rows: points(&all), columns: Vec::new() };
            let numbers: Vec<u64> = cosets.numbered(&form).rows.iter().map(|point| point.at).collect();
            for (point, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(cosets.point(number), point as u64);
            }
            for n in [1, 2, 8, 64] {
                let zeros = (0..256).filter(|&x| cosets.vanishing(n, x) == 0);
                prop_assert_eq!(zeros.collect::<Vec<_>>(), (0..n).collect::<Vec<_>>());
            }
        }

        /// The smallest coset has no more points than as many independent differences give.
        #[test]
        fn points_lie_in_as_few_numbers_as_can_be(at in proptest::collection::vec(0..256u64, 1..20)) {
            let mut span = std::collections::BTreeSet::from([0]);
            for point in &at {
                let more: Vec<u64> = span.iter().map(|sum| sum ^ point ^ at[0]).collect();
                span.extend(more);
            }
            let numbers = numbers(&at);
            let spread = numbers.iter().fold(0, |bits, point| bits | (point.at ^ numbers[0].at));
            prop_assert_eq!((spread + 1).next_power_of_two(), span.len() as u64);
        }
    }
}
