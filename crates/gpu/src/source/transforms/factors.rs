//! Factorizations of a plan's matrix through a Cauchy matrix whose rows are a coset.
//!
//! The redundancy is a coset, which gives one factorization for encoding. For a repair, its values are syndromes, to be
//! multiplied by a matrix over all lost blocks. But any n points of a code determine the others, so another coset that
//! contains most of the lost blocks can replace the redundancy. The lost blocks in it need no second matrix; the others
//! are unknowns that are solved from as many surviving blocks of the coset.

use gabion_engine::matrix::Matrix;
use gabion_engine::matrix::cauchy::{CauchyForm, Point};
use gabion_engine::matrix::cosets::{Cosets, smallest_coset};
use gabion_engine::{Field, Structure};
use std::collections::BTreeSet;

/// Additions of eight inputs of a coset, and of one column of the second matrix, counted for 16 outputs. Used to
/// compare factorizations.
const OF_INPUTS: usize = 440;
const OF_COLUMN: usize = 150;

/// A factorization of a plan's matrix.
pub(super) struct Factors {
    /// Numbering of points in which the rows are consecutive.
    pub(super) cosets: Cosets,
    /// The Cauchy matrix in this numbering, and the input of each of its columns.
    pub(super) cauchy: CauchyForm,
    pub(super) inputs: Vec<usize>,
    /// Inputs that are added to its rows unscaled.
    pub(super) added: Vec<Option<usize>>,
    pub(super) solve: Option<Matrix>,
}

impl Factors {
    /// The factorizations of a matrix, cheapest first; `width` inputs are transformed together.
    pub(super) fn of(field: Field, structure: &Structure, width: usize) -> Vec<Factors> {
        let Structure { cauchy, added, solve, exchanged } = structure;
        let cosets = Cosets::around(field, &cauchy.rows);
        let by_redundancy = Factors {
            inputs: (0..cauchy.columns.len()).collect(),
            cauchy: cosets.numbered(cauchy),
            cosets,
            added: added.clone(),
            solve: solve.clone(),
        };
        let by_lost = exchanged.as_ref().and_then(|exchanged| by_way_of_lost(field, exchanged, width));
        let mut ways: Vec<Factors> = by_lost.into_iter().chain([by_redundancy]).collect();
        ways.sort_by_key(|factors| factors.cost(width));
        ways
    }

    /// The coset of the rows as size and first number; `None` if a column lies in it, since columns need their own
    /// cosets.
    pub(super) fn coset(&self) -> Option<(u64, u64)> {
        let (n, base) = smallest_coset(&self.cauchy.rows)?;
        let free = self.cauchy.columns.iter().all(|point| (point.at ^ base) >= n);
        free.then_some((n, base))
    }

    fn cost(&self, width: usize) -> usize {
        let columns = self.solve.as_ref().map_or(0, |_| self.added.iter().flatten().count());
        cost(groups(&self.cauchy.columns, width), columns)
    }
}

fn cost(groups: usize, columns: usize) -> usize {
    groups * OF_INPUTS + columns * OF_COLUMN
}

/// Number of groups of inputs that are transformed together.
fn groups(columns: &[Point], width: usize) -> usize {
    columns.iter().map(|point| point.at / width as u64).collect::<BTreeSet<_>>().len()
}

/// The best factorization through a coset spanned by lost blocks, among cosets with as many points in use as blocks are
/// lost.
fn by_way_of_lost(field: Field, repair: &CauchyForm, width: usize) -> Option<Factors> {
    let n = repair.rows.len().next_power_of_two() as u64;
    let mut best: Option<(usize, Cosets, u64)> = None;
    let mut seen = BTreeSet::new();
    for corners in independent(&repair.rows, n.ilog2() as usize + 1) {
        let cosets = Cosets::around(field, &corners);
        let CauchyForm { rows, columns } = cosets.numbered(repair);
        let base = cosets.number(corners[0].at) & !(n - 1);
        let held = |points: &[Point]| points.iter().filter(|point| point.at ^ base < n).count();
        if !seen.insert(rows.iter().map(|point| point.at ^ base < n).collect::<Vec<_>>()) {
            continue;
        }
        let unknown = rows.len() - held(&rows);
        let outside: Vec<Point> = columns.iter().copied().filter(|point| point.at ^ base >= n).collect();
        let cost = cost(groups(&outside, width), unknown);
        if held(&columns) == unknown && best.as_ref().is_none_or(|(least, ..)| cost < *least) {
            best = Some((cost, cosets, base));
        }
    }
    let (_, cosets, base) = best?;
    let factorization = repair.factor_by_coset(field, |at| cosets.number(at) ^ base < n).ok()??;
    let solve = (!factorization.solve.is_identity()).then_some(factorization.solve);
    Some(Factors {
        cauchy: cosets.numbered(&factorization.cauchy),
        cosets,
        inputs: factorization.inputs,
        added: factorization.added,
        solve,
    })
}

/// All affinely independent choices of `count` points, which span a coset of 2^(count - 1) points.
fn independent(points: &[Point], count: usize) -> Vec<Vec<Point>> {
    let mut chosen = vec![(Vec::new(), 0)];
    for _ in 0..count {
        let longer = chosen.iter().flat_map(|(corners, next): &(Vec<Point>, usize)| {
            let extends = |place: &usize| !spans(corners, points[*place].at);
            (*next..points.len())
                .filter(extends)
                .map(move |place| (corners.iter().copied().chain([points[place]]).collect(), place + 1))
        });
        chosen = longer.collect();
    }
    chosen.into_iter().map(|(corners, _)| corners).collect()
}

/// True if a point lies in the coset spanned by others.
fn spans(corners: &[Point], at: u64) -> bool {
    let Some((first, rest)) = corners.split_first() else { return false };
    let mut sums = vec![first.at];
    for corner in rest {
        sums.extend(sums.clone().into_iter().map(|sum| sum ^ corner.at ^ first.at));
    }
    sums.contains(&at)
}
