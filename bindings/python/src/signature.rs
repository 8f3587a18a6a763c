//! Signatures of blocks.

use crate::buffers::Blocks;
use crate::code::code_of;
use crate::error::{Error, of_engine};
use gabion_engine::Signature;
use pyo3::Python;
use pyo3::prelude::{Bound, PyAny, PyResult, pyclass, pymethods};
use pyo3::types::PyBytes;

/// Components of a signature, and the bytes of each.
const COMPONENTS: usize = 2;
const BYTES: usize = 8;

/// Computes signatures: linear checksums of 16 bytes, the same that shard files have.
///
/// The signatures of redundancy follow from those of the data, for all codes over GF(2^8) with symbols of whole bytes.
/// They detect accidents, not forgery.
///
/// ```text
/// >>> import gabion
/// >>> rs, signer = gabion.ReedSolomon(2, 1), gabion.Signer()
/// >>> data = [b"one block", b"and other"]
/// >>> [redundancy] = rs.encode(data)
/// >>> signatures = [signer.sign(block) for block in data]
/// >>> signer.of_redundancy(rs.code, signatures) == [signer.sign(redundancy)]
/// True
///
/// ```
#[pyclass(module = "gabion", frozen)]
pub(crate) struct Signer(gabion_engine::Signer);

#[pymethods]
impl Signer {
    #[new]
    fn new() -> PyResult<Signer> {
        Ok(Signer(gabion_engine::Signer::independent().map_err(of_engine)?))
    }

    /// The signature of a block.
    fn sign<'py>(&self, py: Python<'py>, block: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        let held = Blocks::one(block, "block")?;
        let blocks = held.slices();
        let signature = py.detach(|| self.0.sign(blocks[0])).map_err(of_engine)?;
        Ok(PyBytes::new(py, &bytes_of(&signature)))
    }

    /// The signatures of the redundancy blocks, from those of the k data blocks.
    fn of_redundancy<'py>(
        &self,
        py: Python<'py>,
        code: &Bound<'_, PyAny>,
        signatures: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let code = code_of(code)?;
        if code.layout() != gabion_engine::Layout::Words {
            return Err(Error::new_err(format!(
                "{code} has no law for signatures: its symbols are not whole bytes"
            )));
        }
        let signatures = signatures.iter().map(|bytes| from_bytes(bytes)).collect::<PyResult<Vec<_>>>()?;
        let matrix = code.redundancy().map_err(of_engine)?;
        let transformed = self.0.transform(matrix, &signatures).map_err(of_engine)?;
        Ok(transformed.iter().map(|signature| PyBytes::new(py, &bytes_of(signature))).collect())
    }
}

fn bytes_of(signature: &Signature) -> Vec<u8> {
    signature.components().iter().flat_map(|component| component.to_le_bytes()).collect()
}

fn from_bytes(bytes: &[u8]) -> PyResult<Signature> {
    match bytes.as_chunks::<BYTES>() {
        (components, []) if components.len() == COMPONENTS => Ok(Signature::from_components(
            components.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
        )),
        _ => {
            Err(Error::new_err(format!("a signature has {} bytes, not {}", COMPONENTS * BYTES, bytes.len())))
        }
    }
}
