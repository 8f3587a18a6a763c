//! Factorization of a Cauchy matrix through another one whose rows lie in a chosen set, such as a small coset.

use super::{CauchyForm, Point};
use crate::error::Error;
use crate::field::Field;
use crate::matrix::Matrix;

/// Factors of a matrix: outputs = solve · (C · some inputs + the other inputs), C a Cauchy matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CosetFactorization {
    /// C.
    pub cauchy: CauchyForm,
    /// The input of every column of C.
    pub inputs: Vec<usize>,
    /// The input that is added unscaled to each row of C.
    pub added: Vec<Option<usize>>,
    /// One row per output, one column per row of C.
    pub solve: Matrix,
}

impl CauchyForm {
    /// Factors the matrix so that the rows of C are the points that `is_row` selects. They must be as many as this
    /// matrix has rows; otherwise `None`.
    ///
    /// The u rows that are not selected change sides with the u selected columns. The values of these columns are
    /// known, and those of these rows are unknown inputs: C applied to the other inputs, plus the known values, equals
    /// the contribution of the unknown inputs. So these sums determine all outputs, and a known value enters nowhere
    /// else: the columns of the second factor are those of the whole matrix.
    ///
    /// # Errors
    /// As [`exchange`](CauchyForm::exchange).
    pub fn factor_by_coset(
        &self,
        field: Field,
        is_row: impl Fn(u64) -> bool,
    ) -> Result<Option<CosetFactorization>, Error> {
        let split = |points: &[Point]| {
            (0..points.len()).partition::<Vec<usize>, _>(|&place| is_row(points[place].at))
        };
        let ((stay, unknown), (known, inputs)) = (split(&self.rows), split(&self.columns));
        if unknown.len() != known.len() {
            return Ok(None);
        }
        let rows: Vec<usize> = unknown.iter().chain(&stay).copied().collect();
        let columns: Vec<usize> = inputs.iter().chain(&known).copied().collect();
        let mut cauchy = self.select(&rows, &columns).exchange(field, known.len())?;
        cauchy.columns.truncate(inputs.len());
        let of_known = self.select(&(0..self.rows.len()).collect::<Vec<_>>(), &known).matrix(field)?;
        let solve = Matrix::from_fn(field, self.rows.len(), rows.len(), |output, row| {
            let own = || u64::from(stay[row - known.len()] == output);
            if row < known.len() { of_known.at(output, row) } else { own() }
        })?;
        let added = known.into_iter().map(Some).chain(stay.iter().map(|_| None)).collect();
        Ok(Some(CosetFactorization { cauchy, inputs, added, solve }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The factors multiplied out.
    fn product(factorization: &CosetFactorization, field: Field, columns: usize) -> Matrix {
        let c = factorization.cauchy.matrix(field).unwrap();
        Matrix::from_fn(field, factorization.solve.rows(), columns, |output, input| {
            (0..c.rows()).fold(0, |sum, row| {
                let column = factorization.inputs.iter().position(|&of| of == input);
                let added = u64::from(factorization.added[row] == Some(input));
                let entry = column.map_or(0, |column| c.at(row, column)) ^ added;
                sum ^ field.mul(factorization.solve.at(output, row), entry)
            })
        })
        .unwrap()
    }

    proptest! {
        #[test]
        fn every_factorization_multiplies_out_to_the_matrix(
            at in Just((0..256u64).collect::<Vec<_>>()).prop_shuffle(),
            scales in proptest::collection::vec(1..256u64, 24),
            (m, k) in (1..8usize, 1..16usize),
            turned in 0..8usize,
        ) {
            let field = Field::new(8).unwrap();
            let points: Vec<Point> =
                at.iter().zip(scales).map(|(&at, scale)| Point { at, scale }).take(m + k).collect();
            let form = CauchyForm { rows: points[..m].to_vec(), columns: points[m..].to_vec() };
            let turned = turned.min(m).min(k);
            let rows: Vec<u64> = points[turned..m + turned].iter().map(|point| point.at).collect();
            let factorization = form.factor_by_coset(field, |at| rows.contains(&at)).unwrap().unwrap();
            prop_assert_eq!(factorization.cauchy.columns.len(), k - turned);
            prop_assert_eq!(product(&factorization, field, k), form.matrix(field).unwrap());
            prop_assert_eq!(form.factor_by_coset(field, |_| true).unwrap(), None);
        }
    }
}
