//! ParPar's multiply-add over GF(2^16) by affine maps in 512-bit registers, from a shared library that the user built.
//!
//! Its layout: of every 64 symbols first the high bytes, then the low ones. Everything `unsafe` about ParPar stays in
//! this file.

#![allow(unsafe_code)] // calls into C; each block says what it relies on

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};

/// Bytes of 64 symbols.
const GROUP: usize = 128;

/// The polynomial of the field, the same as ours.
const POLYNOMIAL: c_int = 0x1100b;

// Signatures: gf16/gf16_affine.h of ParPar 0.4.
type Init = unsafe extern "C" fn(polynomial: c_int) -> *mut c_void;
type MultiplyAdd = unsafe extern "C" fn(
    scratch: *const c_void,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    coefficient: u16,
    mutable_scratch: *mut c_void,
);

struct Functions {
    multiply_add: MultiplyAdd,
    /// Tables that it only reads; they are never given back.
    scratch: *const c_void,
}

// SAFETY: the tables are read only once they are made.
unsafe impl Send for Functions {}
// SAFETY: as above.
unsafe impl Sync for Functions {}

static LOADED: OnceLock<Functions> = OnceLock::new();

/// From now on ParPar takes part in races over GF(2^16).
pub(crate) fn load(path: &Path) -> anyhow::Result<()> {
    let wide = std::arch::is_x86_feature_detected!("avx512bw") && std::arch::is_x86_feature_detected!("gfni");
    ensure!(wide, "ParPar's affine-avx512 needs AVX-512 and GFNI");
    let load = || -> anyhow::Result<Functions> {
        // SAFETY: a shared library's initialisers run here; these sources have none, and the user who names
        // another file vouches for it as for any program started by hand.
        let library = unsafe { libloading::Library::new(path) }?;
        // SAFETY: the names and types are those of ParPar's header; the CPU has what they need, checked above.
        let functions = unsafe {
            let init: Init = *library.get(b"gf16_affine_init_avx2")?;
            let multiply_add: MultiplyAdd = *library.get(b"gf16_affine_muladd_avx512")?;
            Functions { multiply_add, scratch: init(POLYNOMIAL).cast_const() }
        };
        ensure!(!functions.scratch.is_null(), "no memory for its tables");
        // The functions are used until the process ends.
        std::mem::forget(library);
        Ok(functions)
    };
    let functions = load().with_context(|| format!("loading ParPar from {}", path.display()))?;
    // Only a second call could find it set; the first library stays then.
    let _ = LOADED.set(functions);
    Ok(())
}

/// Whether it was loaded.
pub(crate) fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// `to` += `constant` · `from`, both in its layout; they begin on cache lines. Nothing is done where it was not loaded.
pub(crate) fn multiply_add(constant: u16, from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len() && from.len().is_multiple_of(GROUP));
    assert!(from.as_ptr().addr().is_multiple_of(64) && to.as_ptr().addr().is_multiple_of(64));
    let Some(Functions { multiply_add, scratch }) = LOADED.get() else { return };
    let (to, from, len) = (to.as_mut_ptr().cast(), from.as_ptr().cast(), from.len());
    // SAFETY: both regions have `len` bytes, whole groups on cache lines, asserted above; the tables were made for this
    // function.
    unsafe { multiply_add(*scratch, to, from, len, constant, std::ptr::null_mut()) };
}

/// Two planes, low bytes first, in its layout.
pub(crate) fn from_planes(planes: &[u8], out: &mut [u8]) {
    let (low, high) = planes.split_at(planes.len() / 2);
    for (group, (low, high)) in out.chunks_mut(GROUP).zip(low.chunks(GROUP / 2).zip(high.chunks(GROUP / 2))) {
        group[..GROUP / 2].copy_from_slice(high);
        group[GROUP / 2..].copy_from_slice(low);
    }
}
