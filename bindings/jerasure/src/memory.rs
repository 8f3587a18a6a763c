//! Arrays of C programs.

use std::ffi::c_int;

/// A number of elements; 0 if it is negative.
pub(crate) fn count(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Memory of `malloc` with these numbers, which the caller frees; null if there is none.
pub(crate) fn allocated(numbers: &[c_int]) -> *mut c_int {
    let bytes = size_of_val(numbers).max(1);
    // SAFETY: no conditions.
    let place: *mut c_int = unsafe { libc::malloc(bytes) }.cast();
    if !place.is_null() {
        // SAFETY: it has room for them, and it is new.
        unsafe { std::ptr::copy_nonoverlapping(numbers.as_ptr(), place, numbers.len()) };
    }
    place
}

/// The elements of an array; none for a null pointer.
///
/// # Safety
/// The array is null or has `count` elements.
pub(crate) unsafe fn array<'a, T>(pointer: *const T, count: usize) -> &'a [T] {
    if pointer.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: by contract.
    unsafe { std::slice::from_raw_parts(pointer, count) }
}

/// Columns that are lost, from a list that ends with -1; `None` if fewer than `k` of `k + m` are left.
///
/// # Safety
/// The list ends with -1.
pub(crate) unsafe fn erased(k: usize, m: usize, erasures: *const c_int) -> Option<Vec<bool>> {
    let mut erased = vec![false; k + m];
    let mut place = erasures;
    loop {
        // SAFETY: by contract, the end was not met yet.
        let device = unsafe { place.read() };
        if device == -1 {
            break;
        }
        *erased.get_mut(usize::try_from(device).ok()?)? = true;
        place = place.wrapping_add(1);
    }
    let left = erased.iter().filter(|&&erased| !erased).count();
    (left >= k).then_some(erased)
}

/// An array of 0 and 1 as flags.
pub(crate) fn flags(numbers: &[c_int]) -> Vec<bool> {
    numbers.iter().map(|&number| number != 0).collect()
}
