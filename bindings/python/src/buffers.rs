//! Memory of Python objects as slices, without a copy.
//!
//! A [`Blocks`] holds the buffers of its objects, so that Python neither frees nor resizes their memory during a call.
//! The lock of the interpreter is released while the engine computes. Another thread of Python that writes to a block
//! meanwhile gives a wrong result, as for other libraries that release the lock; the documentation says so.

use crate::error::Error;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::{Bound, PyAny, PyAnyMethods, PyErr, PyResult, PySequenceMethods};
use pyo3::types::{PyByteArray, PyList, PyListMethods, PySequence};
use pyo3::{Python, types::PyTypeMethods};

/// Blocks of one argument.
pub(crate) struct Blocks {
    /// Held, not read: they keep the memory alive.
    buffers: Vec<PyUntypedBuffer>,
    places: Vec<Place>,
}

/// Address and length of a block.
#[derive(Clone, Copy)]
struct Place {
    start: *mut u8,
    len: usize,
}

impl Place {
    fn end(self) -> usize {
        self.start.addr() + self.len
    }
}

/// Number of a block for messages: `block 3 of data`.
fn refused(name: &str, index: Option<usize>, reason: &str) -> PyErr {
    match index {
        Some(index) => PyBufferError::new_err(format!("block {index} of {name} {reason}")),
        None => PyBufferError::new_err(format!("{name} {reason}")),
    }
}

impl Blocks {
    /// No blocks.
    pub(crate) fn none() -> Blocks {
        Blocks { buffers: Vec::new(), places: Vec::new() }
    }

    /// The blocks of a sequence of buffers, or the rows of one buffer of two dimensions or more.
    pub(crate) fn of(object: &Bound<'_, PyAny>, name: &str, writable: bool) -> PyResult<Blocks> {
        let mut blocks = Blocks::none();
        match PyUntypedBuffer::get(object) {
            Ok(buffer) => blocks.add_rows(buffer, name, writable)?,
            Err(_) => {
                let sequence = object.cast::<PySequence>().map_err(|_| {
                    let kind =
                        object.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string());
                    Error::new_err(format!(
                        "{name} is a sequence of buffers or a buffer of two dimensions, not {kind}"
                    ))
                })?;
                for index in 0..sequence.len()? {
                    blocks.add(&sequence.get_item(index)?, name, Some(index), writable)?;
                }
            }
        }
        Ok(blocks)
    }

    /// One block.
    pub(crate) fn one(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Blocks> {
        let mut blocks = Blocks::none();
        blocks.add(object, name, None, false)?;
        Ok(blocks)
    }

    /// Adds one block.
    pub(crate) fn add(
        &mut self,
        object: &Bound<'_, PyAny>,
        name: &str,
        index: Option<usize>,
        writable: bool,
    ) -> PyResult<()> {
        let buffer = PyUntypedBuffer::get(object).map_err(|_| refused(name, index, "is not a buffer"))?;
        check(&buffer, name, index, writable)?;
        self.places.push(Place { start: buffer.buf_ptr().cast(), len: buffer.len_bytes() });
        self.buffers.push(buffer);
        Ok(())
    }

    fn add_rows(&mut self, buffer: PyUntypedBuffer, name: &str, writable: bool) -> PyResult<()> {
        check(&buffer, name, None, writable)?;
        if buffer.dimensions() < 2 {
            return Err(refused(
                name,
                None,
                "has one dimension: give a sequence of buffers, or one with a row per block",
            ));
        }
        let rows = buffer.shape()[0];
        let len = buffer.len_bytes().checked_div(rows).unwrap_or(0);
        let start: *mut u8 = buffer.buf_ptr().cast();
        self.places.extend((0..rows).map(|row| Place { start: start.wrapping_add(row * len), len }));
        self.buffers.push(buffer);
        Ok(())
    }

    /// New blocks of zeros, as a list of `bytearray`.
    pub(crate) fn new<'py>(
        py: Python<'py>,
        count: usize,
        len: usize,
    ) -> PyResult<(Blocks, Bound<'py, PyList>)> {
        let list = PyList::empty(py);
        for _ in 0..count {
            list.append(PyByteArray::new_with(py, len, |_| Ok(()))?)?;
        }
        Ok((Blocks::of(list.as_any(), "out", true)?, list))
    }

    /// Length of the first block; 0 without any.
    pub(crate) fn len(&self) -> usize {
        self.places.first().map_or(0, |place| place.len)
    }

    /// Number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// The blocks to read.
    pub(crate) fn slices(&self) -> Vec<&[u8]> {
        // SAFETY: the buffer is held as long as `self`; a place of length 0 may be null, and is not used.
        self.places.iter().map(|place| unsafe { slice(place) }).collect()
    }

    /// The blocks to write, which overlap each other and `inputs` nowhere.
    pub(crate) fn outputs(&mut self, inputs: &[&Blocks]) -> PyResult<Vec<&mut [u8]>> {
        let read = inputs.iter().flat_map(|blocks| &blocks.places).map(|place| (*place, false));
        let mut all: Vec<(Place, bool)> =
            read.chain(self.places.iter().map(|place| (*place, true))).collect();
        all.retain(|(place, _)| place.len > 0);
        all.sort_by_key(|(place, _)| place.start.addr());
        // Ends of the blocks seen so far, of all and of outputs alone.
        let (mut end, mut written) = (0, 0);
        for (place, output) in all {
            if place.start.addr() < if output { end } else { written } {
                return Err(Error::new_err("an output overlaps another block"));
            }
            end = end.max(place.end());
            if output {
                written = written.max(place.end());
            }
        }
        // SAFETY: as in `slices`; the buffers are writable and overlap nothing.
        Ok(self.places.iter().map(|place| unsafe { slice_mut(place) }).collect())
    }
}

fn check(buffer: &PyUntypedBuffer, name: &str, index: Option<usize>, writable: bool) -> PyResult<()> {
    if !buffer.is_c_contiguous() {
        return Err(refused(name, index, "is not contiguous"));
    }
    if writable && buffer.readonly() {
        return Err(refused(name, index, "is read-only"));
    }
    if has_objects(buffer.format().to_bytes()) {
        return Err(refused(name, index, "holds objects, not bytes"));
    }
    Ok(())
}

/// True if the format of a buffer has references to objects, which must not be overwritten. Names of fields stand
/// between colons.
fn has_objects(format: &[u8]) -> bool {
    format.split(|&c| c == b':').step_by(2).any(|types| types.contains(&b'O'))
}

/// # Safety
/// The place has its bytes as long as the result lives.
unsafe fn slice<'a>(place: &Place) -> &'a [u8] {
    match place.len {
        0 => &[],
        // SAFETY: by contract.
        len => unsafe { std::slice::from_raw_parts(place.start, len) },
    }
}

/// # Safety
/// As [`slice`], and nothing else uses them.
unsafe fn slice_mut<'a>(place: &Place) -> &'a mut [u8] {
    match place.len {
        0 => &mut [],
        // SAFETY: by contract.
        len => unsafe { std::slice::from_raw_parts_mut(place.start, len) },
    }
}
