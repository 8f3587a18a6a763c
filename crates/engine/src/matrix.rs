//! Matrices over GF(2^w): products, inverses, rank. Submodules: `generators` (matrices of code families), [`bits`]
//! (expansion to bit matrices), [`cauchy`] (Cauchy matrices stored by their points), [`cosets`] (cosets of the points).

pub(crate) mod additive;
pub mod bits;
pub mod cauchy;
pub(crate) mod coefficients;
pub mod cosets;
pub(crate) mod generators;

use crate::error::Error;
use crate::field::Field;
use std::fmt;

/// Limit of the coefficients of one matrix (128 MiB): a larger request is hostile or a mistake.
pub const MAX_COEFFICIENTS: usize = 1 << 24;

/// A dense matrix over one field, stored row by row.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Matrix {
    field: Field,
    rows: usize,
    columns: usize,
    coefficients: Vec<u64>,
}

impl Matrix {
    /// The matrix whose coefficient at (row, column) is `value(row, column)`.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`], and [`Error::NotAnElement`] if `value` returns no element of the field.
    pub fn from_fn(
        field: Field,
        rows: usize,
        columns: usize,
        mut value: impl FnMut(usize, usize) -> u64,
    ) -> Result<Matrix, Error> {
        let mut coefficients = Vec::with_capacity(checked_size(rows, columns)?);
        for row in 0..rows {
            for column in 0..columns {
                let value = value(row, column);
                field.check(value)?;
                coefficients.push(value);
            }
        }
        Ok(Matrix { field, rows, columns, coefficients })
    }

    /// A zero matrix.
    pub(crate) fn zero(field: Field, rows: usize, columns: usize) -> Result<Matrix, Error> {
        let size = checked_size(rows, columns)?;
        Ok(Matrix { field, rows, columns, coefficients: vec![0; size] })
    }

    /// Ones on the diagonal, zero elsewhere.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`].
    pub fn identity(field: Field, size: usize) -> Result<Matrix, Error> {
        Matrix::from_fn(field, size, size, |row, column| u64::from(row == column))
    }

    /// The field of the coefficients.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The coefficient at (row, column).
    ///
    /// # Panics
    /// The row or column does not exist.
    pub fn at(&self, row: usize, column: usize) -> u64 {
        self.row(row)[column]
    }

    /// One row.
    ///
    /// # Panics
    /// The row does not exist.
    pub fn row(&self, row: usize) -> &[u64] {
        &self.coefficients[row * self.columns..][..self.columns]
    }

    /// One row, mutable; values written there must be elements of the field.
    pub(crate) fn row_mut(&mut self, row: usize) -> &mut [u64] {
        &mut self.coefficients[row * self.columns..][..self.columns]
    }

    /// The matrix of the given rows and columns of this one, in the given order.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`].
    ///
    /// # Panics
    /// The row or column does not exist.
    pub fn select(&self, rows: &[usize], columns: &[usize]) -> Result<Matrix, Error> {
        Matrix::from_fn(self.field, rows.len(), columns.len(), |row, column| {
            self.at(rows[row], columns[column])
        })
    }

    /// The matrix product `self · right`.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] for different inner sizes, [`Error::WrongField`] for different fields,
    /// [`Error::MatrixTooLarge`].
    pub fn mul(&self, right: &Matrix) -> Result<Matrix, Error> {
        if self.field != right.field {
            let (defined, w) = (self.field.w(), right.field.w());
            return Err(Error::WrongField { family: "a product with this matrix", defined, w });
        }
        if self.columns != right.rows {
            return Err(Error::SizeMismatch { left: self.columns, right: right.rows });
        }
        let mut product = Matrix::zero(self.field, self.rows, right.columns)?;
        for row in 0..self.rows {
            for (i, &a) in self.row(row).iter().enumerate() {
                self.field.add_multiple(product.row_mut(row), right.row(i), a);
            }
        }
        Ok(product)
    }

    /// True for a square matrix with ones on the diagonal and zeros elsewhere.
    pub fn is_identity(&self) -> bool {
        let is_unit = |row: usize| self.row(row).iter().enumerate().all(|(i, &a)| a == u64::from(i == row));
        self.rows == self.columns && (0..self.rows).all(is_unit)
    }

    /// The product with a column vector.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] if the vector is not as long as a row, [`Error::NotAnElement`].
    pub fn mul_vector(&self, vector: &[u64]) -> Result<Vec<u64>, Error> {
        if self.columns != vector.len() {
            return Err(Error::SizeMismatch { left: self.columns, right: vector.len() });
        }
        vector.iter().try_for_each(|&value| self.field.check(value))?;
        let dot = |row: &[u64]| row.iter().zip(vector).fold(0, |sum, (&a, &b)| sum ^ self.field.mul(a, b));
        Ok((0..self.rows).map(|row| dot(self.row(row))).collect())
    }

    /// The inverse, by Gauss-Jordan elimination.
    ///
    /// # Errors
    /// [`Error::SizeMismatch`] if it is not square, [`Error::Singular`] with the rank.
    pub fn inverse(&self) -> Result<Matrix, Error> {
        if self.rows != self.columns {
            return Err(Error::SizeMismatch { left: self.rows, right: self.columns });
        }
        let mut left = self.clone();
        let mut right = Matrix::identity(self.field, self.rows)?;
        let rank = left.eliminate(Some(&mut right));
        if rank == self.rows { Ok(right) } else { Err(Error::Singular { size: self.rows, rank }) }
    }

    /// Number of linearly independent rows.
    pub fn rank(&self) -> usize {
        self.clone().eliminate(None)
    }

    /// Brings `self` to reduced row echelon form, applies the same operations to `beside`, returns the rank.
    fn eliminate(&mut self, mut beside: Option<&mut Matrix>) -> usize {
        let field = self.field;
        let mut rank = 0;
        for column in 0..self.columns {
            let Some(pivot) = (rank..self.rows).find(|&row| self.at(row, column) != 0) else {
                continue;
            };
            let Some(inverse) = field.inv(self.at(pivot, column)) else {
                continue;
            };
            for matrix in std::iter::once(&mut *self).chain(beside.as_deref_mut()) {
                matrix.swap_rows(pivot, rank);
                matrix.row_mut(rank).iter_mut().for_each(|a| *a = field.mul(*a, inverse));
            }
            for row in (0..self.rows).filter(|&row| row != rank) {
                let factor = self.at(row, column);
                if factor == 0 {
                    continue;
                }
                for matrix in std::iter::once(&mut *self).chain(beside.as_deref_mut()) {
                    matrix.add_multiple(row, rank, factor);
                }
            }
            rank += 1;
        }
        rank
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for column in 0..self.columns {
            self.coefficients.swap(a * self.columns + column, b * self.columns + column);
        }
    }

    /// row `to` += factor · row `from`
    fn add_multiple(&mut self, to: usize, from: usize, factor: u64) {
        let columns = self.columns;
        let (start, end) = (from.min(to) * columns, from.max(to) * columns);
        let (low, high) = self.coefficients[start..end + columns].split_at_mut(end - start);
        let (low, high) = (&mut low[..columns], high);
        let (to, from) = if to < from { (low, &*high) } else { (high, &*low) };
        self.field.add_multiple(to, from, factor);
    }
}

fn checked_size(rows: usize, columns: usize) -> Result<usize, Error> {
    let size = rows.checked_mul(columns).filter(|&size| size <= MAX_COEFFICIENTS);
    size.ok_or(Error::MatrixTooLarge { rows, columns, limit: MAX_COEFFICIENTS })
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} {} x {}", self.field, self.rows, self.columns)?;
        (0..self.rows).try_for_each(|row| writeln!(f, "  {:x?}", self.row(row)))
    }
}

#[cfg(test)]
mod tests;
