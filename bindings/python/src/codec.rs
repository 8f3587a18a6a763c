//! Encoder and decoder of a code.

use crate::buffers::Blocks;
use crate::code::{PyCode, code_of};
use crate::error::{Error, of_engine};
use gabion_engine::Engine;
use pyo3::Python;
use pyo3::prelude::{Bound, Py, PyAny, PyAnyMethods, PyDictMethods, PyResult, pyclass, pymethods};
use pyo3::types::{PyDict, PyInt, PyListMethods, PyMapping, PyMappingMethods};

/// Encoder and decoder of one code: `ReedSolomon(10, 4)` or `ReedSolomon("10+4")`.
///
/// Blocks are any objects with a buffer (`bytes`, `bytearray`, `memoryview`, `mmap`, arrays of numpy of any type); all
/// blocks of a call have one length. Where several are asked for, a sequence of them will do, or one buffer of two
/// dimensions with a row per block. Nothing is copied, and the lock of the interpreter is released: no other thread may
/// write to the blocks meanwhile.
///
/// An object can be used by several threads at once. `threads` is the number of threads that one call computes with; 0
/// stands for all processors.
///
/// ```text
/// >>> import gabion
/// >>> rs = gabion.ReedSolomon(4, 2)
/// >>> data = [b"four", b"data", b"bloc", b"ks.."]
/// >>> redundancy = rs.encode(data)
/// >>> rs.verify(data + redundancy)
/// True
/// >>> rs.reconstruct([data[0], None, None, data[3], *redundancy])
/// {1: bytearray(b'data'), 2: bytearray(b'bloc')}
///
/// ```
#[pyclass(module = "gabion", frozen)]
pub(crate) struct ReedSolomon {
    rs: gabion_engine::ReedSolomon,
    threads: usize,
}

impl ReedSolomon {
    /// All blocks of a stripe, in order.
    fn stripe(&self, blocks: &Bound<'_, PyAny>, name: &str) -> PyResult<Blocks> {
        let all = Blocks::of(blocks, name, false)?;
        expect(all.count(), self.rs.code().blocks(), name)?;
        Ok(all)
    }

    /// The blocks that are there, by column.
    fn present(&self, blocks: &Bound<'_, PyAny>) -> PyResult<(Vec<usize>, Blocks)> {
        let count = self.rs.code().blocks();
        let (mut columns, mut held) = (Vec::new(), Blocks::none());
        let mut add = |column: usize, block: Bound<'_, PyAny>| {
            if block.is_none() {
                return Ok(());
            }
            columns.push(column);
            held.add(&block, "blocks", Some(column), false)
        };
        if let Ok(mapping) = blocks.cast::<PyMapping>() {
            for item in mapping.items()?.iter() {
                let (column, block): (usize, Bound<'_, PyAny>) = item.extract()?;
                if column >= count {
                    return Err(Error::new_err(format!(
                        "no column {column}: {} has {count}",
                        self.rs.code()
                    )));
                }
                add(column, block)?;
            }
        } else {
            expect(blocks.len()?, count, "blocks")?;
            for (column, block) in blocks.try_iter()?.enumerate().take(count) {
                add(column, block?)?;
            }
        }
        Ok((columns, held))
    }
}

#[pymethods]
impl ReedSolomon {
    #[new]
    #[pyo3(signature = (code, m=None, *, threads=1))]
    fn new(
        py: Python<'_>,
        code: &Bound<'_, PyAny>,
        m: Option<usize>,
        threads: usize,
    ) -> PyResult<ReedSolomon> {
        let code = match (code.is_instance_of::<PyInt>(), m) {
            (true, Some(m)) => format!("{}+{m}", code.extract::<usize>()?).parse().map_err(of_engine)?,
            (true, None) => {
                return Err(Error::new_err(format!(
                    "ReedSolomon({code}) lacks the number of redundancy blocks: ReedSolomon({code}, 2)"
                )));
            }
            (false, Some(_)) => return Err(Error::new_err("a code has its number of redundancy blocks")),
            (false, None) => code_of(code)?,
        };
        let made = py.detach(|| gabion_engine::ReedSolomon::with_code(&code, &Engine::new(threads)?));
        Ok(ReedSolomon { rs: made.map_err(of_engine)?, threads })
    }

    fn __repr__(&self) -> String {
        format!("ReedSolomon('{}', threads={})", self.rs.code(), self.threads)
    }

    /// The code.
    #[getter]
    fn code(&self) -> PyCode {
        PyCode(self.rs.code().clone())
    }

    /// Computes the m redundancy blocks of the k blocks `data`.
    ///
    /// They are written into `out`, m writable buffers, which is returned; without it into new objects `bytearray`.
    #[pyo3(signature = (data, out=None))]
    fn encode<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let inputs = Blocks::of(data, "data", false)?;
        expect(inputs.count(), self.rs.code().k(), "data")?;
        let (mut held, out) = match out {
            Some(out) => (Blocks::of(&out, "out", true)?, out),
            None => {
                let (held, list) = Blocks::new(py, self.rs.code().m(), inputs.len())?;
                (held, list.into_any())
            }
        };
        let mut outputs = held.outputs(&[&inputs])?;
        let data = inputs.slices();
        py.detach(|| self.rs.encode_to(&data, &mut outputs)).map_err(of_engine)?;
        Ok(out)
    }

    /// True if the redundancy among all k + m blocks is that of the data. It does not tell which block is wrong.
    fn verify(&self, py: Python<'_>, blocks: &Bound<'_, PyAny>) -> PyResult<bool> {
        let held = self.stripe(blocks, "blocks")?;
        let blocks = held.slices();
        py.detach(|| self.rs.verify(&blocks)).map_err(of_engine)
    }

    /// Computes missing blocks from k others, and returns them by column.
    ///
    /// `blocks` has all k + m blocks in order, `None` for missing ones; or it is a mapping from columns to blocks.
    /// `wanted` are the columns to compute, all missing ones without it; `out` are the buffers for them, in that order.
    #[pyo3(signature = (blocks, *, wanted=None, out=None))]
    fn reconstruct<'py>(
        &self,
        py: Python<'py>,
        blocks: &Bound<'py, PyAny>,
        wanted: Option<Vec<usize>>,
        out: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let (columns, inputs) = self.present(blocks)?;
        let missing = || (0..self.rs.code().blocks()).filter(|column| !columns.contains(column)).collect();
        let wanted: Vec<usize> = wanted.unwrap_or_else(missing);
        let (mut held, out) = match out {
            Some(out) => (Blocks::of(&out, "out", true)?, out),
            None => {
                let (held, list) = Blocks::new(py, wanted.len(), inputs.len())?;
                (held, list.into_any())
            }
        };
        expect(held.count(), wanted.len(), "out")?;
        let mut outputs = held.outputs(&[&inputs])?;
        let mut stripe: Vec<Option<&[u8]>> = vec![None; self.rs.code().blocks()];
        for (&column, block) in columns.iter().zip(inputs.slices()) {
            stripe[column] = Some(block);
        }
        // Before anything is written: not every buffer of two dimensions has rows as objects.
        let restored = PyDict::new(py);
        for (index, column) in wanted.iter().enumerate() {
            restored.set_item(column, out.get_item(index)?)?;
        }
        py.detach(|| self.rs.reconstruct_to(&stripe, &wanted, &mut outputs)).map_err(of_engine)?;
        Ok(restored)
    }

    /// Updates the redundancy blocks in place after the data block `column` changed from `old` to `new`.
    fn update(
        &self,
        py: Python<'_>,
        column: usize,
        old: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
        redundancy: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (before, after) = (Blocks::one(old, "old")?, Blocks::one(new, "new")?);
        let mut held = Blocks::of(redundancy, "redundancy", true)?;
        let mut outputs = held.outputs(&[&before, &after])?;
        let (before, after) = (before.slices(), after.slices());
        py.detach(|| self.rs.update(column, before[0], after[0], &mut outputs)).map_err(of_engine)
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        let identity = slf.get().rs.code().to_string();
        Ok((slf.get_type().into_any().unbind(), (identity,)))
    }
}

fn expect(have: usize, want: usize, name: &str) -> PyResult<()> {
    match have == want {
        true => Ok(()),
        false => Err(Error::new_err(format!("{name} has {have} blocks, not {want}"))),
    }
}
