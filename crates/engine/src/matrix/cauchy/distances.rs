//! Products of the distances from a point to all points of a set.
//!
//! Computed directly, this takes one step per pair of points. Over GF(2^16), logarithms turn the products for *all*
//! points z of the field into sums of log(z ^ p) over the set: a convolution, which Walsh-Hadamard transforms of 2^16
//! numbers reduce to products, in a few million steps for any number of points.

use super::Point;
use crate::field::Field;
use crate::field::tables::LogTables;
use crate::tuning::MIN_TRANSFORMED_PAIRS;

/// Distances to a set of points.
pub(super) enum Distances<'a> {
    OneByOne(Field, &'a [Point]),
    /// For every point of the field: the product of its non-zero distances, and the number of zero distances.
    Known(Vec<(u16, u16)>),
}

impl<'a> Distances<'a> {
    /// Prepares for `askers` queries.
    pub(super) fn new(field: Field, to: &'a [Point], askers: usize) -> Distances<'a> {
        match LogTables::of(field) {
            Some(tables)
                if field == Field::GF16 && to.len().saturating_mul(askers) >= MIN_TRANSFORMED_PAIRS =>
            {
                Distances::Known(from_everywhere(tables, to))
            }
            _ => Distances::OneByOne(field, to),
        }
    }

    /// The product of the non-zero distances, and the number of zero distances.
    pub(super) fn from(&self, at: u64) -> (u64, usize) {
        match self {
            Distances::OneByOne(field, to) => one_by_one(*field, at, to),
            Distances::Known(products) => {
                let (product, zeros) = products[at as usize];
                (u64::from(product), usize::from(zeros))
            }
        }
    }
}

fn one_by_one(field: Field, from: u64, to: &[Point]) -> (u64, usize) {
    let mut zeros = 0;
    let distances = to.iter().map(|point| from ^ point.at);
    let product = field.product(distances.filter(|&distance| {
        zeros += usize::from(distance == 0);
        distance != 0
    }));
    (product, zeros)
}

fn from_everywhere(tables: &LogTables, to: &[Point]) -> Vec<(u16, u16)> {
    let order = Field::GF16.order();
    let mut counts = vec![0u64; order];
    to.iter().for_each(|point| counts[point.at as usize] += 1);
    let mut sums = counts.clone();
    // The distance 0 has no logarithm and is left out.
    let mut logarithms: Vec<u64> = (0..order as u64).map(|a| tables.log(a).unwrap_or(0)).collect();
    walsh_hadamard(&mut sums);
    walsh_hadamard(&mut logarithms);
    sums.iter_mut().zip(&logarithms).for_each(|(sum, logarithm)| *sum = sum.wrapping_mul(*logarithm));
    walsh_hadamard(&mut sums);
    // Two transforms multiply by the order. Sums of 2^16 logarithms times the order are below 2^48, so wrapping of
    // intermediate values cancels.
    let product = |(sum, count): (u64, u64)| (tables.exp(sum / order as u64) as u16, count as u16);
    sums.into_iter().zip(counts).map(product).collect()
}

/// Walsh-Hadamard transform in place, modulo 2^64: each number becomes the sum of all, negated where the indices share
/// an odd number of set bits.
fn walsh_hadamard(numbers: &mut [u64]) {
    let mut half = 1;
    while half < numbers.len() {
        for block in numbers.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (a.wrapping_add(*b), a.wrapping_sub(*b));
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transforms_give_what_pairs_give() {
        let tables = LogTables::of(Field::GF16).unwrap();
        let to: Vec<Point> = (0..3000u64).map(|i| Point::plain(i * i * 7919 % 65536)).collect();
        let everywhere = from_everywhere(tables, &to);
        for at in (0..65536).step_by(97).chain([to[0].at, to[1].at]) {
            let (product, zeros) = everywhere[at as usize];
            assert_eq!((u64::from(product), usize::from(zeros)), one_by_one(Field::GF16, at, &to), "{at}");
        }
    }
}
