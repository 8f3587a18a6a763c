//! Jerasure 2 and the GF-Complete it stands on, as Debian ships them (`libjerasure-dev`,
//! `libgf-complete-dev`).
//!
//! No crate binds these two, and only a dozen functions are needed, so they are declared here by
//! hand from `jerasure.h`, `jerasure/cauchy.h`, `jerasure/galois.h` and `gf_complete.h`. Everything
//! `unsafe` about them stays in this file.
//!
//! Both libraries keep unguarded static state (fields made on first use, byte counters, tables of
//! `cauchy_n_ones`). A [`Jerasure`] or [`Field`] therefore holds a process-wide lock while it lives.

#![allow(unsafe_code)] // calls into C; each block says what it relies on

use std::ffi::{c_char, c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What `made_by` and records say about Jerasure.
pub(crate) const VERSION: &str = "Jerasure 2.0 git de1739cc84 on GF-Complete 1.0.2 git ea75cdf (Debian 12)";
/// What `made_by` and records say about GF-Complete alone.
pub(crate) const FIELD_VERSION: &str = "GF-Complete 1.0.2 git ea75cdf (Debian 12)";

// Const-ness differs from the C headers where the C side only reads; the ABI is the same.
#[link(name = "Jerasure")]
unsafe extern "C" {
    fn cauchy_original_coding_matrix(k: c_int, m: c_int, w: c_int) -> *mut c_int;
    fn cauchy_good_general_coding_matrix(k: c_int, m: c_int, w: c_int) -> *mut c_int;
    fn jerasure_matrix_to_bitmatrix(k: c_int, m: c_int, w: c_int, matrix: *const c_int) -> *mut c_int;
    fn jerasure_smart_bitmatrix_to_schedule(
        k: c_int,
        m: c_int,
        w: c_int,
        bits: *const c_int,
    ) -> *mut *mut c_int;
    fn jerasure_free_schedule(schedule: *mut *mut c_int);
    fn jerasure_matrix_encode(
        k: c_int,
        m: c_int,
        w: c_int,
        matrix: *const c_int,
        data: *const *const c_char,
        coding: *const *mut c_char,
        size: c_int,
    );
    fn jerasure_bitmatrix_encode(
        k: c_int,
        m: c_int,
        w: c_int,
        bits: *const c_int,
        data: *const *const c_char,
        coding: *const *mut c_char,
        size: c_int,
        packet: c_int,
    );
    fn jerasure_schedule_encode(
        k: c_int,
        m: c_int,
        w: c_int,
        schedule: *mut *mut c_int,
        data: *const *const c_char,
        coding: *const *mut c_char,
        size: c_int,
        packet: c_int,
    );
    // Prepares the field that Jerasure would otherwise make at its first multiplication.
    fn galois_init_default_field(w: c_int) -> c_int;
}

/// `gf_t`. Its members are unions of function pointers of one size; the ones for words of up to
/// 32 bits and for 64 bits are called with different argument types.
#[repr(C)]
struct RawField {
    multiply: *const c_void,
    divide: *const c_void,
    inverse: *const c_void,
    multiply_region: *const c_void,
    extract_word: *const c_void,
    scratch: *mut c_void,
}

type Multiply32 = unsafe extern "C" fn(*mut RawField, u32, u32) -> u32;
type Multiply64 = unsafe extern "C" fn(*mut RawField, u64, u64) -> u64;
type Region32 = unsafe extern "C" fn(*mut RawField, *const c_void, *mut c_void, u32, c_int, c_int);
type Region64 = unsafe extern "C" fn(*mut RawField, *const c_void, *mut c_void, u64, c_int, c_int);
type Extract32 = unsafe extern "C" fn(*mut RawField, *const c_void, c_int, c_int) -> u32;
type Extract64 = unsafe extern "C" fn(*mut RawField, *const c_void, c_int, c_int) -> u64;

#[link(name = "gf_complete")]
unsafe extern "C" {
    fn gf_init_easy(field: *mut RawField, w: c_int) -> c_int;
    fn gf_free(field: *mut RawField, recursive: c_int) -> c_int;
}

unsafe extern "C" {
    // Jerasure's matrices come from the C library's malloc.
    fn free(memory: *mut c_void);
}

static LOCK: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    // A panic elsewhere leaves nothing half-done that the next holder would read.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Generator matrix of Jerasure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generator {
    /// `cauchy_original_coding_matrix`.
    Original,
    /// `cauchy_good_general_coding_matrix`: few ones in its bit matrix.
    Good,
}

/// Exclusive access to Jerasure.
pub(crate) struct Jerasure {
    _guard: MutexGuard<'static, ()>,
    // Not `Sync`: one lock holder must not become two threads by sharing a reference.
    one_thread: PhantomData<*mut ()>,
}

impl Jerasure {
    /// Waits for the lock of the library.
    pub(crate) fn acquire() -> Self {
        Self { _guard: lock(), one_thread: PhantomData }
    }

    /// The m × k redundancy rows over GF(2^w), row after row; `None` if Jerasure has none.
    pub(crate) fn redundancy_rows(
        &self,
        generator: Generator,
        k: usize,
        m: usize,
        w: usize,
    ) -> Option<Vec<u32>> {
        assert!((1..=32).contains(&w) && k > 0 && m > 0);
        self.prepare_field(w);
        let (k_int, m_int, w_int) = (as_int(k), as_int(m), as_int(w));
        let matrix = match generator {
            // SAFETY: plain numbers in; NULL or k * m ints from malloc out; the lock is held.
            Generator::Original => unsafe { cauchy_original_coding_matrix(k_int, m_int, w_int) },
            // SAFETY: as above.
            Generator::Good => unsafe { cauchy_good_general_coding_matrix(k_int, m_int, w_int) },
        };
        // SAFETY: the pointer came from the call above, which allocates k * m ints.
        let matrix = unsafe { take_ints(matrix, k * m) }?;
        Some(matrix.into_iter().map(c_int::cast_unsigned).collect())
    }

    /// Prepares encoding in the words layout, w = 8, 16 or 32.
    pub(crate) fn words(&self, k: usize, m: usize, w: usize, rows: &[u32]) -> Words<'_> {
        assert!(matches!(w, 8 | 16 | 32), "jerasure_matrix_encode knows w = 8, 16, 32");
        assert!(k > 0 && m > 0);
        assert_eq!(rows.len(), k * m);
        self.prepare_field(w);
        let matrix = rows.iter().map(|value| value.cast_signed()).collect();
        Words { k, m, w, matrix, library: PhantomData }
    }

    /// Prepares encoding in the packets layout.
    pub(crate) fn packets(&self, k: usize, m: usize, w: usize, rows: &[u32]) -> Packets<'_> {
        assert!((1..=32).contains(&w) && k > 0 && m > 0);
        assert_eq!(rows.len(), k * m);
        self.prepare_field(w);
        let matrix: Vec<c_int> = rows.iter().map(|value| value.cast_signed()).collect();
        let (k_int, m_int, w_int) = (as_int(k), as_int(m), as_int(w));
        // SAFETY: reads k * m ints, asserted; the lock is held.
        let bits = unsafe { jerasure_matrix_to_bitmatrix(k_int, m_int, w_int, matrix.as_ptr()) };
        // SAFETY: the call above allocates k * m * w * w ints.
        let bits = unsafe { take_ints(bits, k * m * w * w) }.expect("a matrix was given");
        // SAFETY: reads k * m * w * w ints, the length of `bits`.
        let schedule = unsafe { jerasure_smart_bitmatrix_to_schedule(k_int, m_int, w_int, bits.as_ptr()) };
        let schedule = NonNull::new(schedule).expect("a bit matrix was given");
        Packets { k, m, w, bits, schedule, library: PhantomData }
    }

    fn prepare_field(&self, w: usize) {
        // SAFETY: a plain number in, checked by every caller to be 1..=32; the lock is held.
        let status = unsafe { galois_init_default_field(as_int(w)) };
        assert_eq!(status, 0, "Jerasure has no default field for w = {w}");
    }
}

/// Copies and frees an array that Jerasure allocated.
///
/// # Safety
/// `ints` is NULL or came from malloc and holds `len` ints; nobody else frees it.
unsafe fn take_ints(ints: *mut c_int, len: usize) -> Option<Vec<c_int>> {
    let ints = NonNull::new(ints)?;
    // SAFETY: `len` ints are there, as the caller promises.
    let copy = unsafe { std::slice::from_raw_parts(ints.as_ptr(), len) }.to_vec();
    // SAFETY: from malloc and freed once, as the caller promises.
    unsafe { free(ints.as_ptr().cast()) };
    Some(copy)
}

/// Addresses of the blocks of one stripe, checked once.
struct Addresses<'a> {
    size: c_int,
    data: Vec<*const c_char>,
    out: Vec<*mut c_char>,
    buffers: PhantomData<&'a mut [u8]>,
}

impl<'a> Addresses<'a> {
    /// Both libraries work on longs, and on 16-byte vectors where they find the blocks aligned.
    fn new(k: usize, m: usize, data: &[&'a [u8]], mut out: Vec<&'a mut [u8]>) -> Self {
        assert_eq!(data.len(), k);
        assert_eq!(out.len(), m);
        let size = data[0].len();
        assert!(size > 0 && size.is_multiple_of(size_of::<usize>()));
        assert!(data.iter().all(|block| block.len() == size && is_aligned(block)));
        assert!(out.iter().all(|block| block.len() == size && is_aligned(block)));
        Self {
            size: as_int(size),
            data: data.iter().map(|block| block.as_ptr().cast()).collect(),
            out: out.iter_mut().map(|block| block.as_mut_ptr().cast()).collect(),
            buffers: PhantomData,
        }
    }
}

/// A matrix ready for `jerasure_matrix_encode`.
pub(crate) struct Words<'lib> {
    k: usize,
    m: usize,
    w: usize,
    matrix: Vec<c_int>,
    library: PhantomData<&'lib Jerasure>,
}

impl Words<'_> {
    /// Encodes one stripe. The blocks are 16-byte aligned and a multiple of 8 bytes long.
    pub(crate) fn encode(&self, data: &[&[u8]], out: &mut [&mut [u8]]) {
        self.bind(data, reborrowed(out))();
    }

    /// Checks the buffers once and gives a call to repeat.
    pub(crate) fn bind<'a>(&'a self, data: &[&'a [u8]], out: Vec<&'a mut [u8]>) -> impl FnMut() + use<'a> {
        let blocks = Addresses::new(self.k, self.m, data, out);
        let (k, m, w) = (as_int(self.k), as_int(self.m), as_int(self.w));
        move || {
            let matrix = self.matrix.as_ptr();
            let (data, out) = (blocks.data.as_ptr(), blocks.out.as_ptr());
            // SAFETY: k * m ints and k + m addresses of `size` aligned bytes were checked above and
            // stay borrowed by this closure; `size` is a multiple of 8, hence of every symbol.
            unsafe { jerasure_matrix_encode(k, m, w, matrix, data, out, blocks.size) }
        }
    }
}

/// A bit matrix, and the schedule Jerasure makes of it.
pub(crate) struct Packets<'lib> {
    k: usize,
    m: usize,
    w: usize,
    bits: Vec<c_int>,
    schedule: NonNull<*mut c_int>,
    library: PhantomData<&'lib Jerasure>,
}

impl Packets<'_> {
    /// Encodes one stripe row by row of the bit matrix.
    pub(crate) fn encode_bit_matrix(&self, packet: usize, data: &[&[u8]], out: &mut [&mut [u8]]) {
        let blocks = Addresses::new(self.k, self.m, data, reborrowed(out));
        let packet = self.checked_packet(packet, &blocks);
        let (k, m, w) = (as_int(self.k), as_int(self.m), as_int(self.w));
        let (data, out) = (blocks.data.as_ptr(), blocks.out.as_ptr());
        let bits = self.bits.as_ptr();
        // SAFETY: k * m * w * w ints and k + m addresses of `size` bytes; `size` is a multiple of
        // w packets, checked above.
        unsafe { jerasure_bitmatrix_encode(k, m, w, bits, data, out, blocks.size, packet) }
    }

    /// Checks the buffers once and gives a call, by schedule, to repeat.
    pub(crate) fn bind_schedule<'a>(
        &'a self,
        packet: usize,
        data: &[&'a [u8]],
        out: Vec<&'a mut [u8]>,
    ) -> impl FnMut() + 'a {
        let blocks = Addresses::new(self.k, self.m, data, out);
        let packet = self.checked_packet(packet, &blocks);
        let (k, m, w) = (as_int(self.k), as_int(self.m), as_int(self.w));
        move || {
            let (data, out) = (blocks.data.as_ptr(), blocks.out.as_ptr());
            let (schedule, size) = (self.schedule.as_ptr(), blocks.size);
            // SAFETY: the schedule was made for this k, m, w; the k + m addresses of `size` bytes
            // stay borrowed by this closure; `size` is a multiple of w packets, checked above.
            unsafe { jerasure_schedule_encode(k, m, w, schedule, data, out, size, packet) }
        }
    }

    fn checked_packet(&self, packet: usize, blocks: &Addresses<'_>) -> c_int {
        assert!(packet > 0 && packet.is_multiple_of(size_of::<usize>()));
        assert_eq!(blocks.size % as_int(self.w * packet), 0, "whole super-packets only");
        as_int(packet)
    }
}

impl Drop for Packets<'_> {
    fn drop(&mut self) {
        // SAFETY: made by Jerasure for this value, which is its only owner.
        unsafe { jerasure_free_schedule(self.schedule.as_ptr()) };
    }
}

/// GF(2^w) of GF-Complete, with its default polynomial and method.
pub(crate) struct Field {
    w: usize,
    // Boxed: GF-Complete is handed this address at every call and may keep it.
    raw: Box<RawField>,
    _guard: MutexGuard<'static, ()>,
}

impl Field {
    /// w = 4, 8, 16, 32 or 64.
    pub(crate) fn new(w: usize) -> Self {
        assert!(matches!(w, 4 | 8 | 16 | 32 | 64));
        let guard = lock();
        let mut raw = Box::new(MaybeUninit::<RawField>::zeroed());
        // SAFETY: the pointer is to a writable `gf_t`, which the call fills; the lock is held.
        let status = unsafe { gf_init_easy(raw.as_mut_ptr(), as_int(w)) };
        assert_eq!(status, 1, "GF-Complete cannot make GF(2^{w})");
        // SAFETY: zeroed pointers are valid values of every member, and the call filled them.
        let raw = unsafe { raw.assume_init() };
        assert!(!raw.multiply.is_null() && !raw.multiply_region.is_null());
        assert!(!raw.extract_word.is_null());
        Self { w, raw, _guard: guard }
    }

    /// Product of two elements.
    pub(crate) fn multiply(&mut self, a: u64, b: u64) -> u64 {
        self.check_element(a);
        self.check_element(b);
        let function = self.raw.multiply;
        let raw = &raw mut *self.raw;
        if self.w == 64 {
            // SAFETY: for w = 64 the union holds the 64-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Multiply64>(function) };
            // SAFETY: `raw` is the initialised field.
            unsafe { function(raw, a, b) }
        } else {
            // SAFETY: for w <= 32 the union holds the 32-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Multiply32>(function) };
            // SAFETY: `raw` is the initialised field; the elements have at most w <= 32 bits.
            u64::from(unsafe { function(raw, a as u32, b as u32) })
        }
    }

    /// Symbol number `index` of a block, in the order GF-Complete lays them out.
    pub(crate) fn symbol(&mut self, block: &[u8], index: usize) -> u64 {
        assert!(is_aligned(block) && index < block.len() * 8 / self.w);
        let function = self.raw.extract_word;
        let raw = &raw mut *self.raw;
        let (start, len, index) = (block.as_ptr().cast(), as_int(block.len()), as_int(index));
        if self.w == 64 {
            // SAFETY: for w = 64 the union holds the 64-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Extract64>(function) };
            // SAFETY: `raw` is the initialised field; the symbol lies inside `block`, asserted.
            unsafe { function(raw, start, len, index) }
        } else {
            // SAFETY: for w <= 32 the union holds the 32-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Extract32>(function) };
            // SAFETY: `raw` is the initialised field; the symbol lies inside `block`, asserted.
            u64::from(unsafe { function(raw, start, len, index) })
        }
    }

    /// Multiplies a whole block by a constant; adds to `out` instead of replacing it if `add`.
    pub(crate) fn multiply_region(&mut self, constant: u64, input: &[u8], out: &mut [u8], add: bool) {
        self.check_element(constant);
        assert_eq!(input.len(), out.len());
        assert!(input.len().is_multiple_of(self.w.div_ceil(8)));
        assert!(is_aligned(input) && is_aligned(out));
        let function = self.raw.multiply_region;
        let raw = &raw mut *self.raw;
        let (source, target) = (input.as_ptr().cast(), out.as_mut_ptr().cast());
        let (len, add) = (as_int(input.len()), c_int::from(add));
        if self.w == 64 {
            // SAFETY: for w = 64 the union holds the 64-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Region64>(function) };
            // SAFETY: `raw` is the initialised field; both regions hold `len` bytes, whole symbols,
            // and are aligned alike.
            unsafe { function(raw, source, target, constant, len, add) }
        } else {
            // SAFETY: for w <= 32 the union holds the 32-bit form; not null, checked in `new`.
            let function = unsafe { std::mem::transmute::<*const c_void, Region32>(function) };
            // SAFETY: as for w = 64; the constant has at most w <= 32 bits.
            unsafe { function(raw, source, target, constant as u32, len, add) }
        }
    }

    fn check_element(&self, value: u64) {
        assert!(self.w == 64 || value >> self.w == 0, "{value:#x} is not in GF(2^{})", self.w);
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`; the lock is still held, fields drop after this.
        unsafe { gf_free(&raw mut *self.raw, 1) };
    }
}

fn reborrowed<'a>(blocks: &'a mut [&mut [u8]]) -> Vec<&'a mut [u8]> {
    blocks.iter_mut().map(|block| &mut **block).collect()
}

fn is_aligned(block: &[u8]) -> bool {
    block.as_ptr().align_offset(16) == 0
}

fn as_int(value: usize) -> c_int {
    c_int::try_from(value).expect("sizes here are far below 2 GiB")
}
