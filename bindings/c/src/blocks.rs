//! Arguments of C programs, checked as far as they can be.

use crate::status::Failure;

/// A reference to an object of this library.
///
/// # Safety
/// The pointer is null or that of a live object.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    // SAFETY: by contract.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::argument(format!("{name} is a null pointer")))
}

/// Stores a new object for the caller.
///
/// # Safety
/// `place` is null or can be written.
pub(crate) unsafe fn store<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::argument("the place for the new object is a null pointer"));
    }
    // SAFETY: by contract.
    unsafe { place.write(std::ptr::null_mut()) };
    let made = Box::into_raw(Box::new(make()?));
    // SAFETY: by contract.
    unsafe { place.write(made) };
    Ok(())
}

/// Frees an object.
///
/// # Safety
/// The pointer is null or that of a live object that nothing uses.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: by contract, and `store` made it.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// The elements of an array; none for a count of 0.
///
/// # Safety
/// The array is null or has `count` elements.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() || !pointer.is_aligned() {
        return Err(Failure::argument(format!("{name} is a null pointer or not aligned")));
    }
    // SAFETY: by contract.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Refuses lengths that do not exist, null pointers, and outputs that overlap another block.
fn check(len: usize, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<(), Failure> {
    if len > isize::MAX as usize {
        return Err(Failure::argument(format!("blocks of {len} bytes")));
    }
    if len == 0 {
        return Ok(());
    }
    let null = inputs.iter().map(|block| block.is_null()).chain(outputs.iter().map(|block| block.is_null()));
    if let Some(index) = null.into_iter().position(|null| null) {
        return Err(Failure::argument(format!("block {index} (inputs first) is a null pointer")));
    }
    // Starts closer than a length overlap. Without a branch per pair, which takes as long as coding a small block.
    let meets = |one: usize, other: usize| one.abs_diff(other) < len;
    for (index, output) in outputs.iter().enumerate() {
        let output = output.addr();
        let of_inputs = inputs.iter().fold(false, |found, input| found | meets(input.addr(), output));
        if outputs[..index].iter().fold(of_inputs, |found, other| found | meets(other.addr(), output)) {
            return Err(Failure::argument(format!("output {index} overlaps another block")));
        }
    }
    Ok(())
}

/// Numbers of inputs and outputs of common stripes, whose slices are collected without an allocation.
const FEW: (usize, usize) = (16, 8);

/// Calls `work` with the blocks as slices: all exist, and outputs overlap nothing.
///
/// # Safety
/// As [`Blocks::new`].
pub(crate) unsafe fn with_slices(
    len: usize,
    inputs: &[*const u8],
    outputs: &[*mut u8],
    work: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if len == 0 || inputs.len() > FEW.0 || outputs.len() > FEW.1 {
        // SAFETY: by contract.
        let mut blocks = unsafe { Blocks::new(len, inputs, outputs) }?;
        return work(&blocks.inputs, &mut blocks.outputs);
    }
    check(len, inputs, outputs)?;
    let mut of_inputs: [&[u8]; FEW.0] = [&[]; FEW.0];
    let mut of_outputs: [&mut [u8]; FEW.1] = std::array::from_fn(|_| &mut [][..]);
    for (slice, block) in of_inputs.iter_mut().zip(inputs) {
        // SAFETY: by contract.
        *slice = unsafe { std::slice::from_raw_parts(*block, len) };
    }
    for (slice, block) in of_outputs.iter_mut().zip(outputs) {
        // SAFETY: by contract, and it overlaps nothing.
        *slice = unsafe { std::slice::from_raw_parts_mut(*block, len) };
    }
    work(&of_inputs[..inputs.len()], &mut of_outputs[..outputs.len()])
}

/// Blocks of a call: all inputs and outputs exist, and outputs overlap nothing.
pub(crate) struct Blocks<'a> {
    pub(crate) inputs: Vec<&'a [u8]>,
    pub(crate) outputs: Vec<&'a mut [u8]>,
}

impl<'a> Blocks<'a> {
    /// # Safety
    /// Blocks that are not null have `len` bytes, which nobody else writes during the call, and outputs can be written.
    pub(crate) unsafe fn new(
        len: usize,
        inputs: &[*const u8],
        outputs: &[*mut u8],
    ) -> Result<Blocks<'a>, Failure> {
        check(len, inputs, outputs)?;
        if len == 0 {
            let outputs = outputs.iter().map(|_| &mut [][..]).collect();
            return Ok(Blocks { inputs: inputs.iter().map(|_| &[][..]).collect(), outputs });
        }
        Ok(Blocks {
            // SAFETY: by contract.
            inputs: inputs.iter().map(|block| unsafe { std::slice::from_raw_parts(*block, len) }).collect(),
            // SAFETY: by contract, and it overlaps nothing.
            outputs: outputs
                .iter()
                .map(|block| unsafe { std::slice::from_raw_parts_mut(*block, len) })
                .collect(),
        })
    }
}
