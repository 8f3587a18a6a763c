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
        if len > isize::MAX as usize {
            return Err(Failure::argument(format!("blocks of {len} bytes")));
        }
        let null =
            inputs.iter().map(|block| block.is_null()).chain(outputs.iter().map(|block| block.is_null()));
        if let Some(index) = null.into_iter().position(|null| null).filter(|_| len > 0) {
            return Err(Failure::argument(format!("block {index} (inputs first) is a null pointer")));
        }
        if len == 0 {
            let outputs = outputs.iter().map(|_| &mut [][..]).collect();
            return Ok(Blocks { inputs: inputs.iter().map(|_| &[][..]).collect(), outputs });
        }
        // Starts closer than a length overlap.
        let meet = |one: usize, other: usize| one.abs_diff(other) < len;
        for (index, output) in outputs.iter().enumerate() {
            let output = output.addr();
            if inputs.iter().any(|input| meet(input.addr(), output))
                || outputs[..index].iter().any(|other| meet(other.addr(), output))
            {
                return Err(Failure::argument(format!("output {index} overlaps another block")));
            }
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
