//! What a code or a plan multiplies with: a matrix, or the points of one that is too large to be held.

use super::Matrix;
use super::cauchy::CauchyForm;
use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Coefficients of the largest matrix that is held where its points would do: 2 MiB. Up to here everything else that takes matrices, back ends for
/// other devices above all, finds one without further ado.
pub(crate) const MAX_HELD: usize = 1 << 18;

/// Coefficients, one by one or by points.
#[derive(Debug, Clone)]
pub(crate) enum Coefficients {
    Held(Matrix),
    Points(Arc<ByPoints>),
}

/// Points, and their matrix once somebody asked for it.
#[derive(Debug)]
pub(crate) struct ByPoints {
    field: Field,
    form: CauchyForm,
    matrix: OnceLock<Matrix>,
}

impl Coefficients {
    /// Those of a Cauchy matrix. Where symbols are words of GF(2^16) a large one is left as it is: kernels apply it by its points alone.
    ///
    /// # Errors
    /// As [`CauchyForm::matrix`].
    pub(crate) fn of_points(field: Field, layout: Layout, form: CauchyForm) -> Result<Coefficients, Error> {
        let is_large = form.rows.len().saturating_mul(form.columns.len()) > MAX_HELD;
        if is_large && layout.runs_by_points(field) {
            return Ok(Coefficients::Points(Arc::new(ByPoints { field, form, matrix: OnceLock::new() })));
        }
        form.matrix(field).map(Coefficients::Held)
    }

    pub(crate) fn field(&self) -> Field {
        match self {
            Coefficients::Held(matrix) => matrix.field(),
            Coefficients::Points(points) => points.field,
        }
    }

    /// The coefficient at (row, column).
    ///
    /// # Panics
    /// Where there is no such row or column.
    pub(crate) fn at(&self, row: usize, column: usize) -> u64 {
        match self {
            Coefficients::Held(matrix) => matrix.at(row, column),
            Coefficients::Points(points) => {
                let entry = points.form.entry(points.field, row, column);
                entry.expect("the points of a code are distinct")
            }
        }
    }

    /// The matrix. One that is known by its points is made now, if it was not before.
    ///
    /// # Errors
    /// [`Error::MatrixTooLarge`].
    pub(crate) fn matrix(&self) -> Result<&Matrix, Error> {
        match self {
            Coefficients::Held(matrix) => Ok(matrix),
            Coefficients::Points(points) => match points.matrix.get() {
                Some(matrix) => Ok(matrix),
                None => {
                    let matrix = points.form.matrix(points.field)?;
                    Ok(points.matrix.get_or_init(|| matrix))
                }
            },
        }
    }

    /// The points, where there is nothing else.
    pub(crate) fn points(&self) -> Option<&CauchyForm> {
        match self {
            Coefficients::Held(_) => None,
            Coefficients::Points(points) => Some(&points.form),
        }
    }
}

/// Whether somebody asked for the matrix of points makes no difference.
impl PartialEq for Coefficients {
    fn eq(&self, other: &Coefficients) -> bool {
        match (self, other) {
            (Coefficients::Held(one), Coefficients::Held(other)) => one == other,
            (Coefficients::Points(one), Coefficients::Points(other)) => {
                (one.field, &one.form) == (other.field, &other.form)
            }
            _ => false,
        }
    }
}

impl Eq for Coefficients {}

impl Hash for Coefficients {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Coefficients::Held(matrix) => matrix.hash(state),
            Coefficients::Points(points) => (points.field, &points.form).hash(state),
        }
    }
}
