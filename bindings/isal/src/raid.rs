//! `raid.h`: parity by XOR, and P and Q as in RAID 6. The last one or two addresses are those of the parity.

use crate::blocks::{overlap, with_slices};
use crate::field::mul;
use crate::plans::{Parity, raid};
use crate::product::{contained, count};
use std::ffi::{c_int, c_void};

/// Unit of lengths of the P + Q functions for SSE and AVX, and for newer ones.
const UNIT: c_int = 16;
const WIDE_UNIT: c_int = 32;

/// Bytes that a check computes at once.
const CHUNK: usize = 2 << 10;

/// Data blocks and parity blocks of a call.
///
/// # Safety
/// `array` has `vects` addresses.
unsafe fn split<'a>(
    vects: c_int,
    array: *const *mut c_void,
    parity: usize,
) -> (&'a [*const u8], &'a [*mut u8]) {
    let data = count(vects) - parity;
    // SAFETY: by contract, and addresses of all types are alike.
    unsafe {
        (
            std::slice::from_raw_parts(array.cast(), data),
            std::slice::from_raw_parts(array.add(data).cast(), parity),
        )
    }
}

/// P and Q of the bytes at one position.
///
/// # Safety
/// All data blocks have more than `at` bytes.
unsafe fn byte_of(data: &[*const u8], at: usize) -> (u8, u8) {
    data.iter().rev().fold((0, 0), |(p, q), block| {
        // SAFETY: by contract.
        let byte = unsafe { block.add(at).read() };
        (p ^ byte, mul(q, 2) ^ byte)
    })
}

/// Writes the parity blocks, one or two.
///
/// # Safety
/// All blocks have `len` bytes.
unsafe fn generate(kind: Parity, len: usize, data: &[*const u8], parity: &[*mut u8]) {
    if len == 0 {
        return;
    }
    let by_plan = || {
        // SAFETY: by contract; the slices are made of blocks that do not overlap.
        unsafe { !overlap(len, data, parity) && by_plan(kind, (0, len), data, parity) }
    };
    if contained(by_plan) != Some(true) {
        for at in 0..len {
            // SAFETY: by contract.
            unsafe {
                let (p, q) = byte_of(data, at);
                parity.iter().zip([p, q]).for_each(|(block, byte)| block.add(at).write(byte));
            }
        }
    }
}

/// Computes `len` bytes from `start` on of the parity by a compiled plan; false if there is none.
///
/// # Safety
/// All data blocks have these bytes, parity blocks have `len` bytes from their start on and overlap nothing.
unsafe fn by_plan(
    kind: Parity,
    (start, len): (usize, usize),
    data: &[*const u8],
    parity: &[*mut u8],
) -> bool {
    let Some(plan) = raid(kind, data.len()) else { return false };
    let outputs: [*mut u8; 2] = std::array::from_fn(|i| parity[i.min(parity.len() - 1)].wrapping_sub(start));
    let run = |inputs: &[*const u8]| {
        // SAFETY: by contract; the addresses of outputs are moved back by what `with_slices` adds.
        unsafe {
            with_slices(start, len, inputs, &outputs[..parity.len()], |inputs, outputs| {
                plan.run(inputs, outputs).is_ok()
            })
        }
    };
    match kind {
        Parity::Xor => run(data),
        // Source j has the weight 2^j here and 2^(k-1-j) in the plan.
        Parity::PQ => {
            let mut few = [std::ptr::null(); 64];
            match few.get_mut(..data.len()) {
                Some(few) => {
                    few.iter_mut().zip(data.iter().rev()).for_each(|(place, block)| *place = *block);
                    run(few)
                }
                None => run(&data.iter().rev().copied().collect::<Vec<_>>()),
            }
        }
    }
}

/// True if the parity blocks are those of the data.
///
/// # Safety
/// All blocks have `len` bytes.
unsafe fn holds(kind: Parity, len: usize, data: &[*const u8], parity: &[*mut u8]) -> bool {
    let mut computed = [[0_u8; CHUNK]; 2];
    (0..len).step_by(CHUNK).all(|start| {
        let bytes = CHUNK.min(len - start);
        let [p, q] = &mut computed;
        let outputs = [p.as_mut_ptr(), q.as_mut_ptr()];
        // SAFETY: by contract; the outputs are memory of this function.
        let done = contained(|| unsafe { by_plan(kind, (start, bytes), data, &outputs[..parity.len()]) });
        if done != Some(true) {
            // SAFETY: by contract.
            return (start..start + bytes).all(|at| unsafe { byte_holds(data, parity, at) });
        }
        // SAFETY: by contract.
        let stored = |block: &*mut u8| unsafe { std::slice::from_raw_parts(block.add(start), bytes) };
        parity.iter().zip(&computed).all(|(block, computed)| *stored(block) == computed[..bytes])
    })
}

/// True if the parity at one position is right.
///
/// # Safety
/// All blocks have more than `at` bytes.
unsafe fn byte_holds(data: &[*const u8], parity: &[*mut u8], at: usize) -> bool {
    // SAFETY: by contract.
    unsafe {
        let (p, q) = byte_of(data, at);
        parity.iter().zip([p, q]).all(|(block, byte)| block.add(at).read() == byte)
    }
}

macro_rules! xor_gen {
    ($($name:ident)*) => {$(
        /// Computes the XOR of all blocks but the last into the last. Returns 0, or 1 for fewer than three blocks.
        ///
        /// # Safety
        /// `array` has `vects` addresses of blocks of `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
            if vects < 3 {
                return 1;
            }
            // SAFETY: the caller's promise.
            unsafe {
                let (data, parity) = split(vects, array, 1);
                generate(Parity::Xor, count(len), data, parity);
            }
            0
        }
    )*};
}

xor_gen! { xor_gen xor_gen_base xor_gen_sse xor_gen_avx xor_gen_avx512 }

/// True if the XOR of all blocks is zero.
///
/// # Safety
/// As for the exported functions; `vects` is 2 or more.
unsafe fn xor_is_zero(vects: c_int, len: c_int, array: *const *mut c_void) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        let (data, parity) = split(vects, array, 1);
        holds(Parity::Xor, count(len), data, parity)
    }
}

macro_rules! xor_check {
    ($($name:ident $failure:expr;)*) => {$(
        /// Returns 0 if the XOR of all blocks is zero, and another value otherwise or for fewer than two blocks.
        ///
        /// # Safety
        /// `array` has `vects` addresses of blocks of `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
            if vects < 2 {
                return 1;
            }
            // SAFETY: the caller's promise.
            let is_zero = unsafe { xor_is_zero(vects, len, array) };
            let failure: fn(c_int) -> c_int = $failure;
            if is_zero { 0 } else { failure(len) }
        }
    )*};
}

xor_check! { xor_check |_| 1; xor_check_sse |_| 1; xor_check_base |len| len; }

/// The unit of `pq_gen` on this CPU, as ISA-L chooses.
fn unit_of_this_cpu() -> c_int {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        return WIDE_UNIT;
    }
    UNIT
}

macro_rules! pq_gen {
    ($($name:ident $unit:expr;)*) => {$(
        /// Computes P and Q of all blocks but the last two into the last two. Returns 0, or 1 for fewer than four
        /// blocks or a length that the function does not take.
        ///
        /// # Safety
        /// `array` has `vects` addresses of blocks of `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
            if vects < 4 || len % $unit != 0 {
                return 1;
            }
            // SAFETY: the caller's promise.
            unsafe {
                let (data, parity) = split(vects, array, 2);
                generate(Parity::PQ, count(len), data, parity);
            }
            0
        }
    )*};
}

pq_gen! {
    pq_gen unit_of_this_cpu(); pq_gen_sse UNIT; pq_gen_avx UNIT; pq_gen_avx2 WIDE_UNIT; pq_gen_avx512 WIDE_UNIT;
    pq_gen_avx2_gfni WIDE_UNIT; pq_gen_avx512_gfni WIDE_UNIT;
}

/// As [`pq_gen`], for any length, of which the bytes after the last multiple of eight are left alone.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pq_gen_base(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
    if vects < 4 {
        return 1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let (data, parity) = split(vects, array, 2);
        generate(Parity::PQ, count(len) / 8 * 8, data, parity);
    }
    0
}

macro_rules! pq_check {
    ($($name:ident)*) => {$(
        /// Returns 0 if the last two blocks are P and Q of the others; 1 otherwise, for fewer than four blocks, or for
        /// a length that is not a multiple of 16.
        ///
        /// # Safety
        /// `array` has `vects` addresses of blocks of `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
            if vects < 4 || len % UNIT != 0 {
                return 1;
            }
            // SAFETY: the caller's promise.
            let holds = unsafe {
                let (data, parity) = split(vects, array, 2);
                holds(Parity::PQ, count(len), data, parity)
            };
            c_int::from(!holds)
        }
    )*};
}

pq_check! { pq_check pq_check_sse }

/// As [`pq_check`], for any length. The value for a wrong byte is its position, with bit 0 set if P is wrong and with
/// bit 1 set if only Q is.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pq_check_base(vects: c_int, len: c_int, array: *const *mut c_void) -> c_int {
    if vects < 4 {
        return 1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let (data, parity) = split(vects, array, 2);
        if holds(Parity::PQ, count(len), data, parity) {
            return 0;
        }
        match (0..count(len)).find(|&at| !byte_holds(data, parity, at)) {
            None => 0,
            Some(at) => {
                let p_is_wrong = parity[0].add(at).read() != byte_of(data, at).0;
                at as c_int | if p_is_wrong { 1 } else { 2 }
            }
        }
    }
}
