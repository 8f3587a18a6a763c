//! Intel's ISA-L, through the static library that the crate `isal-sys` builds.
//!
//! `isal-sys` brings the source and the linking but declares only the compression half of the
//! library, so the few erasure-code entry points used here are declared by hand, from
//! `erasure_code.h`. Everything `unsafe` about ISA-L stays in this file.

#![allow(unsafe_code)] // calls into C; each block says what it relies on

// The link directive for libisal comes with the crate only if the crate is named somewhere.
use isal_sys as _;

use std::ffi::c_int;
use std::marker::PhantomData;

/// What `made_by` and records say about this library.
pub(crate) const VERSION: &str = "ISA-L 2.31.0 commit 496255c (isal-sys 0.5.3)";

// Signatures: isa-l/include/erasure_code.h. Const-ness differs: the C side takes `unsigned char *`
// for arrays that it only reads, Rust declares those `*const u8`, which has the same ABI.
unsafe extern "C" {
    fn ec_init_tables(k: c_int, rows: c_int, coefficients: *const u8, tables: *mut u8);
    fn ec_encode_data(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *const u8,
        data: *const *const u8,
        coding: *const *mut u8,
    );
    fn ec_init_tables_base(k: c_int, rows: c_int, coefficients: *const u8, tables: *mut u8);
    fn ec_encode_data_base(
        len: c_int,
        k: c_int,
        rows: c_int,
        tables: *const u8,
        data: *const *const u8,
        coding: *const *mut u8,
    );
    fn gf_gen_rs_matrix(matrix: *mut u8, rows: c_int, k: c_int);
    fn gf_gen_cauchy1_matrix(matrix: *mut u8, rows: c_int, k: c_int);
    fn gf_invert_matrix(input: *mut u8, output: *mut u8, n: c_int) -> c_int;
    safe fn gf_mul(a: u8, b: u8) -> u8;
}

/// Which matrix ISA-L is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generator {
    /// `gf_gen_cauchy1_matrix`: 1 / (row XOR column).
    Cauchy,
    /// `gf_gen_rs_matrix`: powers of 1, 2, 4, …; not MDS for every shape.
    PowersOfTwo,
}

/// The m × k redundancy rows of a generator, row after row.
pub(crate) fn redundancy_rows(generator: Generator, k: usize, m: usize) -> Vec<u8> {
    assert!(k > 0 && m > 0 && k + m <= 256, "GF(256) has 256 points");
    let mut matrix = vec![0; (k + m) * k];
    let (rows, columns) = (as_int(k + m), as_int(k));
    match generator {
        // SAFETY: both functions write exactly rows * columns bytes, the length of `matrix`.
        Generator::Cauchy => unsafe { gf_gen_cauchy1_matrix(matrix.as_mut_ptr(), rows, columns) },
        // SAFETY: as above.
        Generator::PowersOfTwo => unsafe { gf_gen_rs_matrix(matrix.as_mut_ptr(), rows, columns) },
    }
    matrix.split_off(k * k)
}

/// Product in GF(256) modulo 0x11d, from ISA-L's log tables.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    gf_mul(a, b)
}

/// Inverse of an n × n matrix, `None` if it is singular.
pub(crate) fn invert(matrix: &[u8], n: usize) -> Option<Vec<u8>> {
    assert_eq!(matrix.len(), n * n);
    let mut scratch = matrix.to_vec();
    let mut inverse = vec![0; n * n];
    // SAFETY: both buffers hold n * n bytes; the first may be overwritten and is our own copy.
    let status = unsafe { gf_invert_matrix(scratch.as_mut_ptr(), inverse.as_mut_ptr(), as_int(n)) };
    (status == 0).then_some(inverse)
}

/// Which of ISA-L's implementations to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// What its run-time dispatch picks for this CPU.
    Dispatched,
    /// Its portable C code, the check of the dispatched one.
    Portable,
}

/// Coefficients in the form that one of ISA-L's paths wants, with the shape they belong to.
pub(crate) struct Encoder {
    path: Path,
    k: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Encoder {
    /// Prepares `rows` × `k` coefficients.
    pub(crate) fn new(path: Path, k: usize, rows: usize, coefficients: &[u8]) -> Self {
        assert!(k > 0 && rows > 0);
        assert_eq!(coefficients.len(), k * rows);
        let mut tables = vec![0; 32 * k * rows];
        let (columns, count) = (as_int(k), as_int(rows));
        let (source, target) = (coefficients.as_ptr(), tables.as_mut_ptr());
        match path {
            // SAFETY: reads k * rows coefficients, asserted; writes at most 32 bytes for each of
            // them, which is what `tables` holds.
            Path::Dispatched => unsafe { ec_init_tables(columns, count, source, target) },
            // SAFETY: as above, exactly 32 bytes each.
            Path::Portable => unsafe { ec_init_tables_base(columns, count, source, target) },
        }
        Self { path, k, rows, tables }
    }

    /// Encodes once. Collects pointers on the way; for timing use [`Encoder::bind`].
    pub(crate) fn encode(&self, data: &[&[u8]], out: &mut [&mut [u8]]) {
        self.bind(data, out).run();
    }

    /// Checks the buffers and collects their addresses once, as a C program would.
    pub(crate) fn bind<'a>(&'a self, data: &[&'a [u8]], out: &'a mut [&mut [u8]]) -> Call<'a> {
        assert_eq!(data.len(), self.k);
        assert_eq!(out.len(), self.rows);
        let len = data[0].len();
        assert!(data.iter().all(|block| block.len() == len));
        assert!(out.iter().all(|block| block.len() == len));
        Call {
            encoder: self,
            len: as_int(len),
            data: data.iter().map(|block| block.as_ptr()).collect(),
            out: out.iter_mut().map(|block| block.as_mut_ptr()).collect(),
            buffers: PhantomData,
        }
    }
}

/// An encoder with its buffers, ready to run any number of times.
pub(crate) struct Call<'a> {
    encoder: &'a Encoder,
    len: c_int,
    data: Vec<*const u8>,
    out: Vec<*mut u8>,
    buffers: PhantomData<&'a mut [u8]>,
}

impl Call<'_> {
    /// One pass over the buffers.
    pub(crate) fn run(&mut self) {
        let Encoder { path, k, rows, tables } = self.encoder;
        let (k, rows, tables) = (as_int(*k), as_int(*rows), tables.as_ptr());
        let (data, out) = (self.data.as_ptr(), self.out.as_ptr());
        match path {
            // SAFETY: `bind` checked that there are k source and `rows` output addresses, each of
            // `len` bytes, borrowed (outputs mutably) for as long as `self` lives; the tables were
            // made by the same path for this k and `rows`.
            Path::Dispatched => unsafe { ec_encode_data(self.len, k, rows, tables, data, out) },
            // SAFETY: as above.
            Path::Portable => unsafe { ec_encode_data_base(self.len, k, rows, tables, data, out) },
        }
    }
}

/// Whether the dispatched path uses GFNI, seen in the tables it makes: with GFNI a coefficient
/// becomes one 8-byte bit matrix, without it a pair of 16-byte nibble tables. ISA-L's two
/// dispatchers (tables and encoding) take the same decision, or it could not work at all.
pub(crate) fn uses_gfni() -> bool {
    const IDENTITY: [u8; 8] = 0x0102_0408_1020_4080_u64.to_le_bytes();
    let one = Encoder::new(Path::Dispatched, 1, 1, &[1]);
    one.tables[..8] == IDENTITY && one.tables[8..].iter().all(|&byte| byte == 0)
}

fn as_int(value: usize) -> c_int {
    c_int::try_from(value).expect("sizes here are far below 2 GiB")
}

#[cfg(test)]
mod tests {
    use super::{Encoder, Generator, Path, invert, multiply, redundancy_rows, uses_gfni};

    #[test]
    fn multiplication_is_modulo_0x11d() {
        assert_eq!(multiply(0x80, 2), 0x1d);
    }

    #[test]
    fn inverse_times_matrix_is_the_identity() {
        let matrix = redundancy_rows(Generator::Cauchy, 3, 3);
        let inverse = invert(&matrix, 3).expect("a Cauchy matrix is invertible");
        for row in 0..3 {
            for column in 0..3 {
                let cell =
                    (0..3).fold(0, |sum, i| sum ^ multiply(inverse[row * 3 + i], matrix[i * 3 + column]));
                assert_eq!(cell, u8::from(row == column));
            }
        }
        assert_eq!(invert(&[1, 2, 1, 2], 2), None);
    }

    #[test]
    fn gfni_is_used_where_the_cpu_has_it() {
        // ISA-L asks for AVX-512 of Ice Lake's kind or for AVX2, with GFNI.
        let cpu = std::arch::is_x86_feature_detected!("gfni") && std::arch::is_x86_feature_detected!("avx2");
        assert_eq!(uses_gfni(), cpu);
    }

    #[test]
    fn dispatched_and_portable_paths_agree() {
        let rows = redundancy_rows(Generator::Cauchy, 5, 7);
        for len in [1, 31, 63, 64, 65, 257, 4096] {
            let data: Vec<Vec<u8>> = (0..5)
                .map(|block| (0..len).map(|i| (i * 7 + block * 31 + i / 256) as u8).collect())
                .collect();
            let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let results = [Path::Dispatched, Path::Portable].map(|path| {
                let mut out = vec![vec![0_u8; len]; 7];
                let mut blocks: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                Encoder::new(path, 5, 7, &rows).encode(&data, &mut blocks);
                out
            });
            assert_eq!(results[0], results[1], "block of {len} bytes");
        }
    }
}
