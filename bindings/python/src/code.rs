//! Identities of codes.

use crate::error::of_engine;
use gabion_engine::Code;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyResult, pyclass, pymethods};

/// A code: family, numbers of data and redundancy blocks, width of its symbols.
///
/// `10+4` stands for the default family over GF(2^8). The identity determines the bytes of the redundancy, on every
/// machine and in every version: store it with the data.
///
/// ```text
/// >>> import gabion
/// >>> code = gabion.Code("10+4")
/// >>> str(code), code.k, code.m
/// ('subspace:10+4:w8', 10, 4)
/// >>> gabion.Code("cauchy-isal:6+3") == gabion.Code("cauchy-isal:6+3:w8")
/// True
///
/// ```
#[pyclass(name = "Code", module = "gabion", frozen, eq)]
#[derive(Clone, PartialEq)]
pub(crate) struct PyCode(pub(crate) Code);

#[pymethods]
impl PyCode {
    #[new]
    fn new(identity: &str) -> PyResult<PyCode> {
        Ok(PyCode(identity.parse().map_err(of_engine)?))
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.0.to_string(),)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Code('{}')", self.0)
    }

    fn __hash__(&self) -> u64 {
        // FNV-1a: equal in every process, as the identity is.
        let bytes = self.0.to_string().into_bytes();
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Number of data blocks.
    #[getter]
    fn k(&self) -> usize {
        self.0.k()
    }

    /// Number of redundancy blocks.
    #[getter]
    fn m(&self) -> usize {
        self.0.m()
    }

    /// Name of the family, such as `subspace` or `cauchy`.
    #[getter]
    fn family(&self) -> &'static str {
        self.0.family().name()
    }

    /// Width of the symbols in bits.
    #[getter]
    fn w(&self) -> u32 {
        self.0.field().w()
    }

    /// Number of bytes of which the length of every block is a multiple.
    #[getter]
    fn granule(&self) -> usize {
        self.0.granule()
    }

    /// Coefficients of the redundancy: m rows of k elements of the field.
    fn matrix(&self) -> PyResult<Vec<Vec<u64>>> {
        let matrix = self.0.redundancy().map_err(of_engine)?;
        Ok((0..matrix.rows()).map(|row| matrix.row(row).to_vec()).collect())
    }
}

/// The code of an argument: a [`Code`](PyCode) or an identity.
pub(crate) fn code_of(argument: &Bound<'_, PyAny>) -> PyResult<Code> {
    if let Ok(code) = argument.cast::<PyCode>() {
        return Ok(code.get().0.clone());
    }
    let Ok(identity) = argument.extract::<String>() else {
        let kind = argument.get_type();
        return Err(PyTypeError::new_err(format!("a code is a Code or a text such as '10+4', not {kind}")));
    };
    identity.parse().map_err(of_engine)
}
