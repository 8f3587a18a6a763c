//! Matrices over GF(2): the expansion of matrices over GF(2^w) to bits.
//!
//! Multiplication by a constant c is linear over GF(2): bit column j of its w x w matrix is c · x^j. Coding with bits
//! instead of symbols needs only XOR (the packets layout).

use super::Matrix;
use crate::error::Error;
use crate::field::Field;
use crate::layout::MAX_BITS;

/// Number of ones in the bit matrix of multiplication by `constant`.
pub fn ones(field: Field, constant: u64) -> u32 {
    let mut sum = 0;
    let mut column = constant;
    for _ in 0..field.w() {
        sum += column.count_ones();
        column = crate::field::reference::times_x(field, column);
    }
    sum
}

/// A matrix over GF(2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitMatrix {
    rows: usize,
    columns: usize,
    /// `words_per_row` words a row, bit c % 64 of word c / 64 is column c.
    bits: Vec<u64>,
}

impl BitMatrix {
    /// The expansion of `matrix`: each coefficient becomes a block of w x w bits.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`] beyond [`MAX_BITS`].
    pub fn expand(matrix: &Matrix) -> Result<BitMatrix, Error> {
        let field = matrix.field();
        let w = field.w() as usize;
        let (rows, columns) = (matrix.rows() * w, matrix.columns() * w);
        if rows.saturating_mul(columns) > MAX_BITS {
            return Err(Error::MatrixTooLarge { rows, columns, limit: MAX_BITS });
        }
        let words = columns.div_ceil(64) * rows;
        let mut expanded = BitMatrix { rows, columns, bits: vec![0; words] };
        for row in 0..matrix.rows() {
            for column in 0..matrix.columns() {
                let mut image = matrix.at(row, column);
                for bit_column in 0..w {
                    for bit_row in (0..w).filter(|&bit| image >> bit & 1 == 1) {
                        expanded.set(row * w + bit_row, column * w + bit_column);
                    }
                    image = crate::field::reference::times_x(field, image);
                }
            }
        }
        Ok(expanded)
    }

    fn words_per_row(&self) -> usize {
        self.columns.div_ceil(64)
    }

    fn set(&mut self, row: usize, column: usize) {
        let index = row * self.words_per_row() + column / 64;
        self.bits[index] |= 1 << (column % 64);
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// True if the bit at (row, column) is set.
    ///
    /// # Panics
    /// The row or column does not exist.
    pub fn at(&self, row: usize, column: usize) -> bool {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.bits[row * self.words_per_row() + column / 64] >> (column % 64) & 1 == 1
    }

    /// The columns whose bit is set in `row`, ascending.
    ///
    /// # Panics
    /// On the first item, if the row does not exist.
    pub fn ones_in_row(&self, row: usize) -> impl Iterator<Item = usize> {
        (0..self.columns).filter(move |&column| self.at(row, column))
    }

    /// Total number of ones.
    pub fn ones(&self) -> u32 {
        self.bits.iter().map(|word| word.count_ones()).sum()
    }
}
