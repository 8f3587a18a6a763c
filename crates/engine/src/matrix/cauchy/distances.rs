//! Products of the distances from points to other points.
//!
//! One by one that takes as many steps as there are pairs. Over GF(2^16) logarithms turn the products from *all* points of the field into the sums of
//! log(z ^ p) over some p, a convolution, which Walsh-Hadamard transforms of 2^16 numbers make products of: a few million steps, whatever the
//! number of points.

use super::Point;
use crate::field::Field;
use crate::field::tables::LogTables;

/// Pairs of points from which three transforms are faster.
const MANY_PAIRS: usize = 1 << 22;

/// The points to which distances are asked for.
pub(super) enum Distances<'a> {
    OneByOne(Field, &'a [Point]),
    /// For every point of the field the product of the distances that are not zero, and how many are.
    Known(Vec<(u16, u16)>),
}

impl<'a> Distances<'a> {
    /// Prepares for `askers` questions.
    pub(super) fn new(field: Field, to: &'a [Point], askers: usize) -> Distances<'a> {
        match LogTables::of(field) {
            Some(tables) if field == Field::GF16 && to.len().saturating_mul(askers) >= MANY_PAIRS => {
                Distances::Known(from_everywhere(tables, to))
            }
            _ => Distances::OneByOne(field, to),
        }
    }

    /// The product of the distances that are not zero, and how many are.
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
    // Only the distance 0 has no logarithm, and it is left out.
    let mut logarithms: Vec<u64> = (0..order as u64).map(|a| tables.log(a).unwrap_or(0)).collect();
    walsh_hadamard(&mut sums);
    walsh_hadamard(&mut logarithms);
    sums.iter_mut().zip(&logarithms).for_each(|(sum, logarithm)| *sum = sum.wrapping_mul(*logarithm));
    walsh_hadamard(&mut sums);
    // Twice transformed is multiplied by the order. Sums of 2^16 logarithms times that are below 2^48: what wrapped on the way is right again.
    let product = |(sum, count): (u64, u64)| (tables.exp(sum / order as u64) as u16, count as u16);
    sums.into_iter().zip(counts).map(product).collect()
}

/// Every number becomes the sum of all, those negative whose place has an odd number of bits in common with its own. Modulo 2^64.
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
