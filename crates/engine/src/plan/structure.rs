//! Factors of a plan's matrix. A back end that uses them needs fewer products than with the dense matrix.

use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;

/// Factors of a plan's matrix: outputs = solve · (C · the first inputs + added), C a scaled Cauchy matrix. Their
/// product is the plan's matrix; a back end may use either.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Structure {
    /// C. Its columns are the plan's inputs 0..columns.len().
    pub cauchy: CauchyForm,
    /// For every row of C, the input that is added to it unscaled.
    pub added: Vec<Option<usize>>,
    /// One row per output, one column per row of C; `None` is the identity.
    pub solve: Option<Matrix>,
    /// The whole matrix as one Cauchy matrix, if it differs from C: with its own factors for all inputs and outputs,
    /// and no second factor.
    pub exchanged: Option<CauchyForm>,
}

impl Structure {
    /// A single Cauchy matrix whose columns are all inputs of the plan.
    pub(super) fn plain(cauchy: CauchyForm) -> Structure {
        let added = vec![None; cauchy.rows.len()];
        Structure { cauchy, added, solve: None, exchanged: None }
    }
}
