//! Coding with bit matrices: a block is a sequence of groups of w packets, and the sums of packets are coded.

use crate::devices::Devices;
use crate::matrices::elements;
use crate::memory::{allocated, array, count};
use crate::plans::plan;
use crate::square::BITS;
use crate::words::{decode, refuse, sources};
use std::ffi::{c_char, c_int};

/// Bytes of a packet, if blocks consist of whole groups of packets.
fn packet(w: usize, size: c_int, packetsize: c_int) -> Option<usize> {
    let (size, packet) = (count(size), count(packetsize));
    let whole = packet > 0 && w > 0 && packet.is_multiple_of(size_of::<std::ffi::c_long>());
    (whole && size.is_multiple_of(packet * w)).then_some(packet)
}

/// Computes the m coding blocks.
///
/// # Safety
/// The bit matrix has m · w rows of k · w bits; there are k data and m coding blocks of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_bitmatrix_encode(
    k: c_int,
    m: c_int,
    w: c_int,
    bitmatrix: *const c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
    packetsize: c_int,
) {
    const NAME: &str = "jerasure_bitmatrix_encode";
    let (k, m, w) = (count(k), count(m), count(w));
    let Some(packet) = packet(w, size, packetsize) else {
        refuse(NAME, "size is not a multiple of w packets")
    };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let devices = Devices::new((k, m), data_ptrs, coding_ptrs, count(size));
        let bits = elements(BITS, array(bitmatrix, k * m * w * w));
        let (from, to): (Vec<usize>, Vec<usize>) = ((0..k).collect(), (k..k + m).collect());
        plan(BITS, m * w, bits).is_some_and(|plan| devices.run(&plan, w, packet, &from, &to))
    };
    if !done {
        refuse(NAME, "blocks or matrix do not fit");
    }
}

/// Computes one block from k others: those of `src_ids`, or all data blocks.
///
/// # Safety
/// There are w rows of k · w bits; `src_ids` is null or has k devices; these and `dest_id` have blocks of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_bitmatrix_dotprod(
    k: c_int,
    w: c_int,
    bitmatrix_row: *const c_int,
    src_ids: *const c_int,
    dest_id: c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
    packetsize: c_int,
) {
    const NAME: &str = "jerasure_bitmatrix_dotprod";
    let (k, w) = (count(k), count(w));
    let Some(packet) = packet(w, size, packetsize) else {
        refuse(NAME, "size is not a multiple of w packets")
    };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let (from, to, coding) = sources(k, src_ids, dest_id);
        let devices = Devices::new((k, coding), data_ptrs, coding_ptrs, count(size));
        let bits = elements(BITS, array(bitmatrix_row, k * w * w));
        plan(BITS, w, bits).is_some_and(|plan| devices.run(&plan, w, packet, &from, &[to]))
    };
    if !done {
        refuse(NAME, "blocks or matrix do not fit");
    }
}

/// Restores all lost blocks, data and coding. Returns 0, or -1 if too many are lost or the matrix is singular.
///
/// # Safety
/// As for [`jerasure_bitmatrix_encode`]; `erasures` ends with -1. Lost blocks can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_bitmatrix_decode(
    k: c_int,
    m: c_int,
    w: c_int,
    bitmatrix: *const c_int,
    _row_k_ones: c_int,
    erasures: *const c_int,
    data_ptrs: *const *mut c_char,
    coding_ptrs: *const *mut c_char,
    size: c_int,
    packetsize: c_int,
) -> c_int {
    let (k, m, w) = (count(k), count(m), count(w));
    let Some(packet) = packet(w, size, packetsize).filter(|_| !erasures.is_null()) else { return -1 };
    // SAFETY: the caller's promise.
    let done = unsafe {
        let bits = elements(BITS, array(bitmatrix, k * m * w * w));
        decode((BITS, w), (k, m), &bits, erasures, (data_ptrs, coding_ptrs), (count(size), packet))
    };
    if done { 0 } else { -1 }
}

/// The operations of a bit matrix, row by row: source device, its packet, target device, its packet, and 0 to copy or 1
/// to add. The list ends with an operation whose device is -1. The caller frees operations and list. It is not shorter
/// than the matrix has ones: the engine does not use it.
///
/// # Safety
/// The bit matrix has m · w rows of k · w bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jerasure_smart_bitmatrix_to_schedule(
    k: c_int,
    m: c_int,
    w: c_int,
    bitmatrix: *const c_int,
) -> *mut *mut c_int {
    let (k, m, w) = (count(k), count(m), count(w));
    // SAFETY: the caller's promise.
    let bits = unsafe { array(bitmatrix, k * m * w * w) };
    if bits.is_empty() {
        return std::ptr::null_mut();
    }
    let mut operations = Vec::new();
    for (row, bits) in bits.chunks(k * w).enumerate() {
        let ones = (0..k * w).filter(|&column| bits[column] != 0);
        for (index, column) in ones.enumerate() {
            let places = [column / w, column % w, k + row / w, row % w, usize::from(index > 0)];
            operations.push(places.map(|place| place as c_int));
        }
    }
    operations.push([-1; 5]);
    let list: Vec<*mut c_int> = operations.iter().map(|operation| allocated(operation)).collect();
    // SAFETY: no conditions.
    let place: *mut *mut c_int = unsafe { libc::malloc(size_of_val(&list[..])) }.cast();
    if !place.is_null() {
        // SAFETY: it has room for them, and it is new.
        unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), place, list.len()) };
    }
    place
}

/// Forgets what Jerasure keeps for a field; nothing here. Returns 0.
#[unsafe(no_mangle)]
pub extern "C" fn galois_uninit_field(_w: c_int) -> c_int {
    0
}
