//! Coefficients of a code or a plan: a matrix, or the points of a Cauchy matrix that is too large to be stored.

use super::Matrix;
use super::cauchy::CauchyForm;
use crate::error::Error;
use crate::field::Field;
use crate::layout::Layout;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

/// Largest matrix, in coefficients (2 MiB), that is stored although its points would suffice. Up to this size all code
/// that needs a matrix, such as device back ends, finds one at once.
pub(crate) const MAX_HELD: usize = 1 << 18;

/// Coefficients, stored as a matrix or by points.
#[derive(Debug, Clone)]
pub(crate) enum Coefficients {
    Held(Matrix),
    Points(Arc<ByPoints>),
}

/// Points, and their matrix once it was requested.
#[derive(Debug)]
pub(crate) struct ByPoints {
    field: Field,
    form: CauchyForm,
    matrix: OnceLock<Matrix>,
}

impl Coefficients {
    /// The coefficients of a Cauchy matrix. A large one over GF(2^16) in the words layout stays in the form of points,
    /// which kernels apply directly.
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
    /// The row or column does not exist.
    pub(crate) fn at(&self, row: usize, column: usize) -> u64 {
        match self {
            Coefficients::Held(matrix) => matrix.at(row, column),
            Coefficients::Points(points) => {
                let entry = points.form.entry(points.field, row, column);
                entry.expect("the points of a code are distinct")
            }
        }
    }

    /// The matrix. For points it is computed on the first call.
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

    /// The points, if no matrix is stored.
    pub(crate) fn points(&self) -> Option<&CauchyForm> {
        match self {
            Coefficients::Held(_) => None,
            Coefficients::Points(points) => Some(&points.form),
        }
    }
}

/// A matrix computed from points does not affect equality.
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
