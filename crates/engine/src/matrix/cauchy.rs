//! Cauchy matrices stored by their points, which fast algorithms need and the coefficients do not show.
//!
//! A row has the point x, a column the point y, and the entry is 1 / (x + y), times a factor of the row and one of the
//! column. Every square submatrix is again a Cauchy matrix, and regular as long as all points differ and no factor is
//! zero.

mod coset_factorization;
mod distances;

pub use coset_factorization::CosetFactorization;

use super::Matrix;
use crate::error::Error;
use crate::field::Field;
use crate::field::tables::LogTables;
use crate::tuning::{MAX_INVERSE_TABLE, PRODUCTS_OF_INVERSION};
use distances::Distances;
use std::ops::Range;

/// A point of a Cauchy matrix and the factor of its row or column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Point {
    /// The point, an element of the field.
    pub at: u64,
    /// Factor of the row or column.
    pub scale: u64,
}

impl Point {
    /// A point without a factor.
    pub const fn plain(at: u64) -> Point {
        Point { at, scale: 1 }
    }
}

/// A matrix with entries row.scale · column.scale / (row.at + column.at).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CauchyForm {
    /// One per row.
    pub rows: Vec<Point>,
    /// One per column.
    pub columns: Vec<Point>,
}

impl CauchyForm {
    /// The matrix, entry by entry.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`], [`Error::NotAnElement`], and [`Error::PointTwice`] if a row and a column share a
    /// point.
    pub fn matrix(&self, field: Field) -> Result<Matrix, Error> {
        self.check(field)?;
        let entries = Entries::new(field, self);
        let mut shared = None;
        let matrix = Matrix::from_fn(field, self.rows.len(), self.columns.len(), |i, j| {
            let entry = entries.at(self.rows[i], self.columns[j]);
            entry.unwrap_or_else(|| {
                shared = Some(self.rows[i].at);
                0
            })
        })?;
        shared.map_or(Ok(matrix), |at| Err(Error::PointTwice { at }))
    }

    /// One entry; `None` if row and column share a point.
    ///
    /// # Panics
    /// The row or column does not exist.
    pub fn entry(&self, field: Field, row: usize, column: usize) -> Option<u64> {
        let (row, column) = (self.rows[row], self.columns[column]);
        field.div(field.mul(row.scale, column.scale), row.at ^ column.at)
    }

    /// The form of the matrix of the given rows and columns, in the given order.
    ///
    /// # Panics
    /// The row or column does not exist.
    pub fn select(&self, rows: &[usize], columns: &[usize]) -> CauchyForm {
        CauchyForm {
            rows: rows.iter().map(|&row| self.rows[row]).collect(),
            columns: columns.iter().map(|&column| self.columns[column]).collect(),
        }
    }

    /// The same relation after the first `n` rows and the last `n` columns change sides. If this matrix maps d to r,
    /// the result maps (d with its last n elements replaced by the first n of r) to (r with its first n elements
    /// replaced by the last n of d).
    ///
    /// The result is a Cauchy matrix on the same points. With P(z) and Q(z) for the products of the distances from z to
    /// the points of these rows and of these columns other than z itself, its factors are
    ///
    /// ```text
    /// a row that stays      scale · P(z) / Q(z)         a column that stays     scale · Q(z) / P(z)
    /// a column, now a row   P(z) / (Q(z) · scale)       a row, now a column     Q(z) / (P(z) · scale)
    /// ```
    ///
    /// Proof: an element of r is its row's factor times f(z) at its point z, where f(z) is the sum of scale · d_j /
    /// (z + at) over the columns. Let all inputs of the result be zero except the one of a column that stays, at the
    /// point s. Then f vanishes at the points of the n rows and has its poles at those of the n columns and at s, so
    /// it is c · P(z) / (Q(z) · (z + s)); the residue at s gives c, the other residues the elements of d, and f
    /// itself those of r. With a row instead of s the argument is the same.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] for fewer than n rows or columns, [`Error::NotAnElement`], [`Error::PointTwice`] for
    /// points that must differ, [`Error::Singular`] if a row or column that changes sides has the factor 0.
    pub fn exchange(mut self, field: Field, n: usize) -> Result<CauchyForm, Error> {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        if n > rows.min(columns) {
            return Err(Error::SizeMismatch { left: n, right: rows.min(columns) });
        }
        self.check(field)?;
        let stay = columns - n;
        let moved = CauchyForm { rows: self.rows[..n].to_vec(), columns: self.columns[stay..].to_vec() };
        if moved.rows.iter().chain(&moved.columns).any(|point| point.scale == 0) {
            return Err(Error::Singular { size: n, rank: moved.matrix(field)?.rank() });
        }
        self.rows[..n].swap_with_slice(&mut self.columns[stay..]);
        rescale(field, &mut self.rows, 0..n, &moved.rows, &moved.columns)?;
        rescale(field, &mut self.columns, stay..columns, &moved.columns, &moved.rows)?;
        Ok(self)
    }

    /// The inverse: all rows and columns change sides. It takes n·n steps where elimination takes n·n·n.
    ///
    /// # Errors
    /// As for [`exchange`](CauchyForm::exchange).
    pub fn inverse(&self, field: Field) -> Result<CauchyForm, Error> {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        if rows != columns {
            return Err(Error::SizeMismatch { left: rows, right: columns });
        }
        self.clone().exchange(field, rows)
    }

    fn check(&self, field: Field) -> Result<(), Error> {
        let mut numbers = self.rows.iter().chain(&self.columns).flat_map(|point| [point.at, point.scale]);
        let stranger = numbers.find(|&value| !field.contains(value));
        stranger.map_or(Ok(()), |value| Err(Error::NotAnElement { value, w: field.w() }))
    }
}

/// Multiplies the factors by the distances to `over` and divides them by the distances to `under`. The points at
/// `moved` are those of `under`; their own factor divides.
fn rescale(
    field: Field,
    points: &mut [Point],
    moved: Range<usize>,
    over: &[Point],
    under: &[Point],
) -> Result<(), Error> {
    let mut divisors = Vec::with_capacity(points.len());
    let (over, under) =
        (Distances::new(field, over, points.len()), Distances::new(field, under, points.len()));
    for (i, point) in points.iter_mut().enumerate() {
        let is_moved = moved.contains(&i);
        let (above, zeros_above) = over.from(point.at);
        let (below, zeros_below) = under.from(point.at);
        if zeros_above != 0 || zeros_below != usize::from(is_moved) {
            return Err(Error::PointTwice { at: point.at });
        }
        let (factor, divisor) = if is_moved { (1, point.scale) } else { (point.scale, 1) };
        point.scale = field.mul(factor, above);
        divisors.push(field.mul(divisor, below));
    }
    invert_all(field, &mut divisors);
    for (point, inverse) in points.iter_mut().zip(divisors) {
        point.scale = field.mul(point.scale, inverse);
    }
    Ok(())
}

/// Method of computing entries.
enum Entries {
    Logarithms(&'static LogTables),
    /// With a table of inverses of sums, where that is cheaper than single inversions.
    Inverses {
        field: Field,
        table: Vec<u64>,
    },
}

impl Entries {
    fn new(field: Field, form: &CauchyForm) -> Entries {
        if let Some(tables) = LogTables::of(field) {
            return Entries::Logarithms(tables);
        }
        let highest = form.rows.iter().chain(&form.columns).map(|point| point.at).max().unwrap_or(0);
        let size = form.rows.len().saturating_mul(form.columns.len()) as u64;
        // An entry of the table takes three products.
        let pays = highest < MAX_INVERSE_TABLE && 3 * highest <= size.saturating_mul(PRODUCTS_OF_INVERSION);
        let table = if pays { inverses_below(field, highest as usize + 1) } else { Vec::new() };
        Entries::Inverses { field, table }
    }

    /// `None` if row and column share a point.
    fn at(&self, row: Point, column: Point) -> Option<u64> {
        let sum = row.at ^ column.at;
        match self {
            Entries::Logarithms(tables) => tables.ratio(row.scale, column.scale, sum),
            _ if sum == 0 => None,
            Entries::Inverses { field, table } => {
                let inverse = table.get(sum as usize).copied().or_else(|| field.inv(sum))?;
                Some(field.mul(field.mul(row.scale, column.scale), inverse))
            }
        }
    }
}

/// The inverses of all numbers below `n` rounded up to a power of two; entry 0 is 0.
fn inverses_below(field: Field, n: usize) -> Vec<u64> {
    let mut inverses: Vec<u64> = (0..n.next_power_of_two() as u64).collect();
    invert_all(field, &mut inverses[1..]);
    inverses
}

/// Inverts many non-zero elements: by lookup, or with one inversion in total and three products per element.
pub(super) fn invert_all(field: Field, elements: &mut [u64]) {
    if let Some(tables) = LogTables::of(field) {
        elements.iter_mut().for_each(|a| *a = tables.inv(*a).expect("a non-zero element"));
        return;
    }
    let mut product = 1;
    let mut before = Vec::with_capacity(elements.len());
    for &a in elements.iter() {
        before.push(product);
        product = field.mul(product, a);
    }
    let mut inverse = field.inv(product).expect("a product of non-zero elements");
    for (a, before) in elements.iter_mut().zip(before).rev() {
        let own = field.mul(inverse, before);
        inverse = field.mul(inverse, *a);
        *a = own;
    }
}

#[cfg(test)]
mod tests;
