//! Durability of all files of a pool, from the actual placement of their columns.
//!
//! Targets fail one after the other. With i of N targets lost in random order, the next failure is fatal with the
//! probability that some file loses too many columns with i + 1 lost targets but not with i. It follows from counting
//! sets of targets:
//! ```text
//!   F_i = share of all sets of i targets whose loss loses a file       q_i+1 = (F_i+1 - F_i) / (1 - F_i)
//! ```
//! With as many targets as columns this is the chain of [`Model::Checked`](crate::Model); with more, it accounts for
//! combinations of targets without a common file.

use crate::chain::{Chain, ChainError, Step};
use crate::exact::{Rational, rounded, whole};
use crate::parameters::Parameters;
use crate::scheme::MAX_DISKS;
use num_bigint::BigInt;
use num_traits::{One, Zero};
use std::collections::{BTreeMap, BTreeSet};

/// Placement of the columns of a file, and the number it can lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// For every non-empty column its failure unit: a target or a domain. Columns may share a unit.
    pub columns: Vec<usize>,
    /// Columns that the file can lose.
    pub tolerated: usize,
    /// Columns that are read to rebuild one.
    pub needed: usize,
    /// Bytes of a column.
    pub column_bytes: u64,
}

/// Work limit of exact counting: number of sets times the cost per set. Beyond it an upper bound is used.
const MOST_LOOKS: u64 = 20_000_000;

/// Maximum number of states; one more failure is the end.
const MOST_MISSING: usize = 24;

/// Reason why a pool has no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// No files.
    #[error("there are no files with content: nothing can be lost")]
    Nothing,
    /// Too many targets.
    #[error("{0} targets are more than {MAX_DISKS}")]
    TooMany(usize),
    /// A column on a target that does not exist.
    #[error("column on target {column} of {units}")]
    Outside {
        /// Its target.
        column: usize,
        /// Number of targets.
        units: usize,
    },
    /// The chain has no end.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

/// Columns per unit, and the number of columns that may be lost.
type Shape = (Vec<(usize, usize)>, usize);

/// Placement of all files of a pool.
#[derive(Debug, Clone)]
pub struct Placement {
    units: usize,
    shapes: BTreeSet<Shape>,
    read_bytes: Rational,
}

/// A fraction of sets, counted exactly or bounded from above.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Share {
    value: Rational,
    counted: bool,
}

impl Placement {
    /// The placement of files on this many targets or domains.
    ///
    /// # Errors
    /// See [`PlacementError`].
    pub fn new(units: usize, layouts: impl IntoIterator<Item = Layout>) -> Result<Placement, PlacementError> {
        if units > MAX_DISKS as usize {
            return Err(PlacementError::TooMany(units));
        }
        let mut shapes = BTreeSet::new();
        let mut read = BigInt::zero();
        for layout in layouts.into_iter().filter(|layout| !layout.columns.is_empty()) {
            let mut weights: BTreeMap<usize, usize> = BTreeMap::new();
            for &column in &layout.columns {
                if column >= units {
                    return Err(PlacementError::Outside { column, units });
                }
                *weights.entry(column).or_default() += 1;
            }
            // For the loss of any of its targets, the needed columns are read once.
            read +=
                BigInt::from(weights.len()) * BigInt::from(layout.needed) * BigInt::from(layout.column_bytes);
            shapes.insert((weights.into_iter().collect(), layout.tolerated));
        }
        if shapes.is_empty() {
            return Err(PlacementError::Nothing);
        }
        let read_bytes = Rational::new(read, BigInt::from(units));
        Ok(Placement { units, shapes, read_bytes })
    }

    /// Number of distinct layouts.
    pub fn layouts(&self) -> usize {
        self.shapes.len()
    }

    /// Mean bytes read by the rebuild of one target.
    pub fn read_bytes(&self) -> &Rational {
        &self.read_bytes
    }

    /// The smallest number of targets whose loss loses a file.
    pub fn fewest_fatal(&self) -> usize {
        let of = |(weights, tolerated): &Shape| {
            let mut heaviest: Vec<usize> = weights.iter().map(|(_, weight)| *weight).collect();
            heaviest.sort_unstable_by(|a, b| b.cmp(a));
            let mut lost = 0;
            heaviest.iter().position(|weight| {
                lost += weight;
                lost > *tolerated
            })
        };
        // A file that can lose all columns is never lost; no code has that property.
        self.shapes.iter().filter_map(of).min().map_or(self.units + 1, |index| index + 1)
    }

    /// The fraction of sets of `missing` targets whose loss loses a file; `None` if it is only bounded.
    pub fn fatal_share(&self, missing: usize) -> Option<Rational> {
        Some(self.share(missing)).filter(|share| share.counted).map(|share| share.value)
    }

    fn share(&self, missing: usize) -> Share {
        if missing < self.fewest_fatal() {
            return Share { value: Rational::zero(), counted: true };
        }
        let sets = binomial(self.units, missing);
        let looks: usize = self.shapes.iter().map(|(weights, _)| weights.len()).sum();
        if &sets * BigInt::from(looks) <= BigInt::from(MOST_LOOKS) {
            return Share { value: Rational::new(self.count(missing), sets), counted: true };
        }
        let bound: BigInt = self.shapes.iter().map(|shape| fatal_sets(shape, self.units, missing)).sum();
        let bound = Rational::new(bound, sets);
        Share { value: bound.min(Rational::one()), counted: false }
    }

    /// Counts the sets that lose some file, by enumeration.
    fn count(&self, missing: usize) -> BigInt {
        let mut gone = vec![false; self.units];
        let mut chosen: Vec<usize> = (0..missing).collect();
        chosen.iter().for_each(|&unit| gone[unit] = true);
        let mut fatal = 0u64;
        loop {
            fatal += u64::from(self.loses(&gone));
            // Next combination in lexicographic order.
            let Some(moving) = (0..missing).rev().find(|&at| chosen[at] < self.units - missing + at) else {
                return BigInt::from(fatal);
            };
            chosen[moving..].iter().for_each(|&unit| gone[unit] = false);
            let next = chosen[moving] + 1;
            for (offset, unit) in chosen[moving..].iter_mut().enumerate() {
                *unit = next + offset;
                gone[*unit] = true;
            }
        }
    }

    fn loses(&self, gone: &[bool]) -> bool {
        let lost = |(weights, tolerated): &Shape| {
            weights.iter().filter(|(unit, _)| gone[*unit]).map(|(_, weight)| weight).sum::<usize>()
                > *tolerated
        };
        self.shapes.iter().any(lost)
    }

    /// The chain of the whole pool, with verified reads. The capacity is the actual size of files.
    ///
    /// # Errors
    /// See [`PlacementError`].
    pub fn chain(&self, parameters: &Parameters) -> Result<Chain, PlacementError> {
        let (failure, rebuild) = (parameters.failure_rate(), parameters.rebuild_rate());
        let error = parameters.read_error_in(&self.read_bytes);
        let last = self.units.min(MOST_MISSING + 1);
        let fewest = self.fewest_fatal();
        let mut steps = Vec::new();
        let mut before = Share { value: Rational::zero(), counted: true };
        for missing in 0..last {
            let next = match missing + 1 == last {
                true => Share { value: Rational::one(), counted: true },
                false => self.share(missing + 1),
            };
            // A bound of the next fraction is an upper bound here; the difference of two bounds would not be one.
            let fatal = match before.counted && next.counted && !before.value.is_one() {
                true => rounded(&((&next.value - &before.value) / (Rational::one() - &before.value))),
                false => next.value.clone(),
            };
            let failures = whole((self.units - missing) as u64) * &failure;
            let errors = if missing > 0 { &error * &rebuild } else { Rational::zero() };
            // A read error hits a file that is being rebuilt, which may have no redundancy left.
            let (errors_onward, errors_fatal) = match missing + 1 >= fewest {
                true => (Rational::zero(), errors),
                false => (errors, Rational::zero()),
            };
            let end = fatal.is_one();
            steps.push(Step {
                onward: &failures * (Rational::one() - &fatal) + errors_onward,
                fatal: failures * fatal + errors_fatal,
                back: (Rational::one() - &error) * &rebuild,
            });
            if end {
                break;
            }
            before = next;
        }
        Ok(Chain::new(steps)?)
    }
}

fn binomial(of: usize, chosen: usize) -> BigInt {
    if chosen > of {
        return BigInt::zero();
    }
    (0..chosen).fold(BigInt::one(), |product, index| product * (of - index) / (index + 1))
}

/// Number of sets of `missing` out of `units` that lose more columns of a file than it tolerates.
fn fatal_sets((weights, tolerated): &Shape, units: usize, missing: usize) -> BigInt {
    // Sets of the file's own targets, by size and number of lost columns.
    let mut own: BTreeMap<(usize, usize), BigInt> = BTreeMap::from([((0, 0), BigInt::one())]);
    for (_, weight) in weights {
        for ((count, lost), sets) in own.clone() {
            if count < missing {
                *own.entry((count + 1, lost + weight)).or_default() += sets;
            }
        }
    }
    let others = units - weights.len();
    let fatal = own.into_iter().filter(|((_, lost), _)| lost > tolerated);
    fatal.map(|((count, _), sets)| sets * binomial(others, missing - count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(columns: &[usize], tolerated: usize) -> Layout {
        Layout {
            columns: columns.to_vec(),
            tolerated,
            needed: columns.len() - tolerated,
            column_bytes: 1 << 20,
        }
    }

    /// Two files of three columns that tolerate one loss, on six targets with none in common: of fifteen pairs three
    /// are fatal for each; every triple is fatal, since one of the files loses two of its three columns.
    #[test]
    fn sets_are_counted() {
        let placement = Placement::new(6, [layout(&[0, 1, 2], 1), layout(&[3, 4, 5], 1)]).unwrap();
        assert_eq!(placement.fewest_fatal(), 2);
        let share = |missing| placement.fatal_share(missing).unwrap();
        assert_eq!(share(1), Rational::zero());
        assert_eq!(share(2), Rational::new(6.into(), 15.into()));
        assert_eq!(share(3), Rational::one());
    }

    #[test]
    fn bounds_are_counts_for_one_file() {
        let shape: Shape = (vec![(0, 1), (1, 2), (4, 1), (6, 1)], 2);
        let one = Placement { units: 9, shapes: BTreeSet::from([shape.clone()]), read_bytes: whole(1) };
        for missing in 0..=9 {
            assert_eq!(fatal_sets(&shape, 9, missing), one.count(missing), "{missing}");
        }
    }

    /// Two columns in one domain: a file that should survive two losses does not survive one.
    #[test]
    fn columns_in_one_domain_are_lost_together() {
        let placement = Placement::new(4, [layout(&[0, 0, 0, 1, 2], 2)]).unwrap();
        assert_eq!(placement.fewest_fatal(), 1);
        assert_eq!(placement.fatal_share(1).unwrap(), Rational::new(1.into(), 4.into()));
    }

    #[test]
    fn invalid_pools_are_refused() {
        assert!(matches!(Placement::new(3, []), Err(PlacementError::Nothing)));
        let outside = Placement::new(3, [layout(&[0, 3], 1)]);
        assert!(matches!(outside, Err(PlacementError::Outside { column: 3, units: 3 })));
        assert!(matches!(Placement::new(5000, []), Err(PlacementError::TooMany(5000))));
    }
}
