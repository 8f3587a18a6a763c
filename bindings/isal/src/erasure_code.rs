//! `erasure_code.h` and `gf_vect_mul.h`: tables, encoding, updates, and the functions for single rows and products.
//!
//! The functions named after an instruction set exist for programs that call them directly. All use the kernels that
//! the engine chose for this CPU, so they also run where the CPU lacks that instruction set.

use crate::field::mul;
use crate::portable::{self, Reading};
use crate::product::{contained, count, dot_products, multiply_add};
use crate::tables::{self, BYTES};
use std::ffi::{c_int, c_void};

/// Writes the table of each coefficient.
unsafe fn init_tables(k: c_int, rows: c_int, a: *const u8, tables: *mut u8, expand: fn(u8) -> [u8; BYTES]) {
    for i in 0..count(k) * count(rows) {
        // SAFETY: the caller promises k · rows coefficients and 32 bytes for each.
        unsafe { tables.add(i * BYTES).cast::<[u8; BYTES]>().write(expand(a.add(i).read())) };
    }
}

macro_rules! init_tables {
    ($($name:ident $expand:path;)*) => {$(
        /// Expands k · rows coefficients.
        ///
        /// # Safety
        /// `a` has k · rows bytes, `tables` 32 times as many.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(k: c_int, rows: c_int, a: *const u8, tables: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { init_tables(k, rows, a, tables, $expand) };
        }
    )*};
}

init_tables! {
    ec_init_tables tables::products;
    ec_init_tables_base tables::products;
    ec_init_tables_gfni tables::bit_matrix;
}

macro_rules! expand_one {
    ($($name:ident $expand:path;)*) => {$(
        /// Expands one coefficient.
        ///
        /// # Safety
        /// `table` has 32 bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(c: u8, table: *mut u8) {
            // SAFETY: the caller's promise.
            unsafe { table.cast::<[u8; BYTES]>().write($expand(c)) };
        }
    )*};
}

expand_one! {
    gf_vect_mul_init tables::products;
    gf_vect_mul_init_base tables::products;
    gf_vect_mul_init_gfni tables::bit_matrix;
}

macro_rules! encode {
    ($($name:ident)*) => {$(
        /// Computes `rows` blocks from k blocks of data.
        ///
        /// # Safety
        /// There are k · rows tables, k sources and `rows` outputs; all blocks have `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            k: c_int,
            rows: c_int,
            tables: *const u8,
            data: *const *const u8,
            coding: *const *mut u8,
        ) {
            // SAFETY: the caller's promise.
            unsafe { dot_products(len, k, count(rows), tables, data, coding) };
        }
    )*};
}

encode! {
    ec_encode_data ec_encode_data_sse ec_encode_data_avx ec_encode_data_avx2 ec_encode_data_avx512
    ec_encode_data_avx2_gfni ec_encode_data_avx512_gfni
}

macro_rules! update {
    ($($name:ident)*) => {$(
        /// Adds the contribution of the data block `vec_i` to `rows` blocks.
        ///
        /// # Safety
        /// There are k · rows tables and `rows` outputs; all blocks have `len` bytes; `vec_i` is below k.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            k: c_int,
            rows: c_int,
            vec_i: c_int,
            tables: *const u8,
            data: *const u8,
            coding: *const *mut u8,
        ) {
            // SAFETY: the caller's promise.
            unsafe { multiply_add(len, (k, vec_i), count(rows), tables, data, coding) };
        }
    )*};
}

update! {
    ec_encode_data_update ec_encode_data_update_sse ec_encode_data_update_avx ec_encode_data_update_avx2
    ec_encode_data_update_avx512 ec_encode_data_update_avx2_gfni ec_encode_data_update_avx512_gfni
}

macro_rules! dot_product {
    ($($name:ident)*) => {$(
        /// Computes one block from `vlen` blocks. Returns 0.
        ///
        /// # Safety
        /// There are `vlen` tables and sources; all blocks have `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            vlen: c_int,
            tables: *const u8,
            sources: *const *const u8,
            output: *mut u8,
        ) -> c_int {
            // SAFETY: the caller's promise; one output.
            unsafe { dot_products(len, vlen, 1, tables, sources, &raw const output) };
            0
        }
    )*};
}

dot_product! {
    gf_vect_dot_prod gf_vect_dot_prod_sse gf_vect_dot_prod_avx gf_vect_dot_prod_avx2 gf_vect_dot_prod_avx512
    gf_vect_dot_prod_avx2_gfni gf_vect_dot_prod_avx512_gfni
}

macro_rules! dot_products {
    ($($name:ident $rows:literal;)*) => {$(
        #[doc = concat!("Computes ", $rows, " blocks from `vlen` blocks. Returns 0.")]
        ///
        /// # Safety
        /// There are tables and outputs for all rows, and `vlen` sources; all blocks have `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            vlen: c_int,
            tables: *const u8,
            sources: *const *const u8,
            outputs: *const *mut u8,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { dot_products(len, vlen, $rows, tables, sources, outputs) };
            0
        }
    )*};
}

dot_products! {
    gf_2vect_dot_prod_sse 2; gf_2vect_dot_prod_avx 2; gf_2vect_dot_prod_avx2 2; gf_2vect_dot_prod_avx512 2;
    gf_2vect_dot_prod_avx2_gfni 2; gf_2vect_dot_prod_avx512_gfni 2;
    gf_3vect_dot_prod_sse 3; gf_3vect_dot_prod_avx 3; gf_3vect_dot_prod_avx2 3; gf_3vect_dot_prod_avx512 3;
    gf_3vect_dot_prod_avx2_gfni 3; gf_3vect_dot_prod_avx512_gfni 3;
    gf_4vect_dot_prod_sse 4; gf_4vect_dot_prod_avx 4; gf_4vect_dot_prod_avx2 4; gf_4vect_dot_prod_avx512 4;
    gf_4vect_dot_prod_avx512_gfni 4;
    gf_5vect_dot_prod_sse 5; gf_5vect_dot_prod_avx 5; gf_5vect_dot_prod_avx2 5; gf_5vect_dot_prod_avx512 5;
    gf_5vect_dot_prod_avx512_gfni 5;
    gf_6vect_dot_prod_sse 6; gf_6vect_dot_prod_avx 6; gf_6vect_dot_prod_avx2 6; gf_6vect_dot_prod_avx512 6;
    gf_6vect_dot_prod_avx512_gfni 6;
}

macro_rules! mad {
    ($($name:ident)*) => {$(
        /// Adds a product to one block.
        ///
        /// # Safety
        /// There are `vec` tables; both blocks have `len` bytes; `vec_i` is below `vec`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            vec: c_int,
            vec_i: c_int,
            tables: *const u8,
            source: *const u8,
            output: *mut u8,
        ) {
            // SAFETY: the caller's promise; one output.
            unsafe { multiply_add(len, (vec, vec_i), 1, tables, source, &raw const output) };
        }
    )*};
}

mad! {
    gf_vect_mad gf_vect_mad_sse gf_vect_mad_avx gf_vect_mad_avx2 gf_vect_mad_avx512 gf_vect_mad_avx2_gfni
    gf_vect_mad_avx512_gfni
}

macro_rules! mads {
    ($($name:ident $rows:literal;)*) => {$(
        #[doc = concat!("Adds products of one block to ", $rows, " blocks.")]
        ///
        /// # Safety
        /// There are tables and outputs for all rows; all blocks have `len` bytes; `vec_i` is below `vec`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            vec: c_int,
            vec_i: c_int,
            tables: *const u8,
            source: *const u8,
            outputs: *const *mut u8,
        ) {
            // SAFETY: the caller's promise.
            unsafe { multiply_add(len, (vec, vec_i), $rows, tables, source, outputs) };
        }
    )*};
}

mads! {
    gf_2vect_mad_sse 2; gf_2vect_mad_avx 2; gf_2vect_mad_avx2 2; gf_2vect_mad_avx512 2; gf_2vect_mad_avx2_gfni 2;
    gf_2vect_mad_avx512_gfni 2;
    gf_3vect_mad_sse 3; gf_3vect_mad_avx 3; gf_3vect_mad_avx2 3; gf_3vect_mad_avx512 3; gf_3vect_mad_avx2_gfni 3;
    gf_3vect_mad_avx512_gfni 3;
    gf_4vect_mad_sse 4; gf_4vect_mad_avx 4; gf_4vect_mad_avx2 4; gf_4vect_mad_avx512 4; gf_4vect_mad_avx2_gfni 4;
    gf_4vect_mad_avx512_gfni 4;
    gf_5vect_mad_sse 5; gf_5vect_mad_avx 5; gf_5vect_mad_avx2 5; gf_5vect_mad_avx512 5; gf_5vect_mad_avx2_gfni 5;
    gf_5vect_mad_avx512_gfni 5;
    gf_6vect_mad_sse 6; gf_6vect_mad_avx 6; gf_6vect_mad_avx2 6; gf_6vect_mad_avx512 6; gf_6vect_mad_avx512_gfni 6;
}

/// Lengths of [`gf_vect_mul`] are multiples of this.
const MULTIPLE: c_int = 32;

macro_rules! multiply {
    ($($name:ident)*) => {$(
        /// Multiplies a block. Returns 0, or 1 for a length that is not a multiple of 32.
        ///
        /// # Safety
        /// `table` has 32 bytes, both blocks have `len` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            len: c_int,
            table: *const u8,
            source: *const c_void,
            output: *mut c_void,
        ) -> c_int {
            if len % MULTIPLE != 0 {
                return 1;
            }
            let (source, output) = (source.cast::<u8>(), output.cast::<u8>());
            // SAFETY: the caller's promise; one source, one output.
            unsafe { dot_products(len, 1, 1, table, &raw const source, &raw const output) };
            0
        }
    )*};
}

multiply! { gf_vect_mul gf_vect_mul_sse gf_vect_mul_avx gf_vect_mul_avx2_gfni }

/// Multiplies a block by the second byte of the table. Returns 0, or -1 for a length that is not a multiple of 32.
///
/// # Safety
/// `table` has 32 bytes, both blocks have `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_vect_mul_base(
    len: c_int,
    table: *const u8,
    source: *const u8,
    output: *mut u8,
) -> c_int {
    if len % MULTIPLE != 0 {
        return -1;
    }
    // SAFETY: the caller's promise.
    let coefficient = unsafe { table.add(1).read() };
    for at in 0..count(len) {
        // SAFETY: as above.
        unsafe { output.add(at).write(mul(coefficient, source.add(at).read())) };
    }
    0
}

/// As [`ec_encode_data`], byte by byte; the second byte of a table is its coefficient.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ec_encode_data_base(
    len: c_int,
    k: c_int,
    rows: c_int,
    tables: *const u8,
    data: *const *const u8,
    coding: *const *mut u8,
) {
    let shape = (count(k), count(rows));
    // SAFETY: the caller's promise.
    let work =
        || unsafe { portable::dot_products(Reading::Coefficient, shape, count(len), tables, data, coding) };
    // It has no panics of its own; see `contained`.
    contained(work);
}

/// As [`ec_encode_data_update`], byte by byte; the second byte of a table is its coefficient.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ec_encode_data_update_base(
    len: c_int,
    k: c_int,
    rows: c_int,
    vec_i: c_int,
    tables: *const u8,
    data: *const u8,
    coding: *const *mut u8,
) {
    // SAFETY: the caller's promise: `vec_i` is below k.
    unsafe {
        let tables = tables.add(count(vec_i) * BYTES);
        portable::multiply_add(
            Reading::Coefficient,
            (count(k), count(rows)),
            count(len),
            tables,
            data,
            coding,
        );
    }
}

/// As [`gf_vect_dot_prod`], byte by byte; the second byte of a table is its coefficient.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_vect_dot_prod_base(
    len: c_int,
    vlen: c_int,
    tables: *const u8,
    sources: *const *const u8,
    output: *mut u8,
) {
    // SAFETY: the caller's promise; one output.
    unsafe { ec_encode_data_base(len, vlen, 1, tables, sources, &raw const output) };
}

/// As [`gf_vect_mad`], byte by byte; the second byte of a table is its coefficient.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gf_vect_mad_base(
    len: c_int,
    vec: c_int,
    vec_i: c_int,
    tables: *const u8,
    source: *const u8,
    output: *mut u8,
) {
    // SAFETY: the caller's promise; one output.
    unsafe { ec_encode_data_update_base(len, vec, 1, vec_i, tables, source, &raw const output) };
}
