//! How the matrix of a plan came about, for back ends that can use it: many products with a dense matrix are few
//! products with its factors.

use crate::matrix::Matrix;
use crate::matrix::cauchy::CauchyForm;

/// How a plan's matrix factors: outputs = solve · (C · the first inputs + added), C a scaled Cauchy matrix. The
/// product is the plan's matrix; a back end may use either.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Structure {
    /// C. Its columns belong to the plan's inputs 0..columns.len().
    pub cauchy: CauchyForm,
    /// For every row of C, the input that is added to it as it is.
    pub added: Vec<Option<usize>>,
    /// One row per output, one column per row of C; `None` is the identity.
    pub solve: Option<Matrix>,
    /// The whole matrix as one Cauchy matrix, where that is another one than C: with factors of its own for all
    /// inputs and outputs, and no second factor.
    pub exchanged: Option<CauchyForm>,
}

impl Structure {
    /// A Cauchy matrix as it is, with all inputs of the plan for its columns.
    pub(super) fn plain(cauchy: CauchyForm) -> Structure {
        let added = vec![None; cauchy.rows.len()];
        Structure { cauchy, added, solve: None, exchanged: None }
    }
}
