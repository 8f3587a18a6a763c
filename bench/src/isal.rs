//! Intel's ISA-L: the static library that the crate `isal-sys` builds, or a newer one loaded while running.
//!
//! `isal-sys` brings the source and the linking but declares only the compression half of the
//! library, so the few erasure-code entry points used here are declared by hand, from
//! `erasure_code.h`. Everything `unsafe` about ISA-L stays in this file.

#![allow(unsafe_code)] // calls into C; each block says what it relies on

// The link directive for libisal comes with the crate only if the crate is named somewhere.
use isal_sys as _;

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::path::Path as FilePath;
use std::sync::OnceLock;

use anyhow::Context as _;

/// What `made_by` and records say about the static library.
pub(crate) const VERSION: &str = "ISA-L 2.31.0 commit 496255c (isal-sys 0.5.3)";

// Signatures: isa-l/include/erasure_code.h. Const-ness differs: the C side takes `unsigned char *`
// for arrays that it only reads, Rust declares those `*const u8`, which has the same ABI.
type InitTables = unsafe extern "C" fn(k: c_int, rows: c_int, coefficients: *const u8, tables: *mut u8);
type EncodeData = unsafe extern "C" fn(
    len: c_int,
    k: c_int,
    rows: c_int,
    tables: *const u8,
    data: *const *const u8,
    coding: *const *mut u8,
);
type GenerateMatrix = unsafe extern "C" fn(matrix: *mut u8, rows: c_int, k: c_int);
type InvertMatrix = unsafe extern "C" fn(input: *mut u8, output: *mut u8, n: c_int) -> c_int;
type Multiply = unsafe extern "C" fn(a: u8, b: u8) -> u8;

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
    fn ec_encode_data_avx2(
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
    fn gf_mul(a: u8, b: u8) -> u8;
}

/// The entry points of one build of ISA-L.
struct Functions {
    version: String,
    init_tables: InitTables,
    encode_data: EncodeData,
    /// What the dispatch picks where a CPU has AVX2 and neither AVX-512 nor GFNI.
    encode_data_avx2: EncodeData,
    gen_rs_matrix: GenerateMatrix,
    gen_cauchy_matrix: GenerateMatrix,
    invert_matrix: InvertMatrix,
    mul: Multiply,
}

impl Functions {
    /// The library that is linked in.
    fn bundled() -> Self {
        Self {
            version: VERSION.to_owned(),
            init_tables: ec_init_tables,
            encode_data: ec_encode_data,
            encode_data_avx2: ec_encode_data_avx2,
            gen_rs_matrix: gf_gen_rs_matrix,
            gen_cauchy_matrix: gf_gen_cauchy1_matrix,
            invert_matrix: gf_invert_matrix,
            mul: gf_mul,
        }
    }

    fn load(path: &FilePath) -> anyhow::Result<Self> {
        // SAFETY: a shared library's initialisers run here; ISA-L has none, and the user who names
        // another file vouches for it as for any program started by hand.
        let library = unsafe { libloading::Library::new(path) }?;
        // SAFETY: the names and types are those of ISA-L's header, which has not changed them since 2.0; the
        // library stays loaded, below.
        let functions = unsafe {
            Self {
                version: loaded_version(&library, path),
                init_tables: *library.get(b"ec_init_tables")?,
                encode_data: *library.get(b"ec_encode_data")?,
                encode_data_avx2: *library.get(b"ec_encode_data_avx2")?,
                gen_rs_matrix: *library.get(b"gf_gen_rs_matrix")?,
                gen_cauchy_matrix: *library.get(b"gf_gen_cauchy1_matrix")?,
                invert_matrix: *library.get(b"gf_invert_matrix")?,
                mul: *library.get(b"gf_mul")?,
            }
        };
        // The functions are used until the process ends.
        std::mem::forget(library);
        Ok(functions)
    }
}

/// Version that the library reports, and the file that a link such as `libisal.so` leads to.
///
/// # Safety
/// The library is ISA-L.
unsafe fn loaded_version(library: &libloading::Library, path: &FilePath) -> String {
    let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let file = file.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    // SAFETY: `isal_get_version_str` takes nothing and gives a string constant; versions before it lack the name.
    let version = unsafe {
        let function = library.get::<unsafe extern "C" fn() -> *const c_char>(b"isal_get_version_str");
        function.ok().map(|function| CStr::from_ptr(function()).to_string_lossy().into_owned())
    };
    match version {
        Some(version) => format!("ISA-L {version} ({file})"),
        None => format!("ISA-L ({file})"),
    }
}

/// Build of ISA-L.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The loaded one, where there is one.
    Newest,
    /// The static one.
    Bundled,
    /// Our drop-in library; [`load_drop_in`] has loaded it.
    DropIn,
}

static DROP_IN: OnceLock<Functions> = OnceLock::new();
static BUNDLED: OnceLock<Functions> = OnceLock::new();
static LOADED: OnceLock<Functions> = OnceLock::new();

fn functions(build: Build) -> &'static Functions {
    let loaded = match build {
        Build::Newest => LOADED.get(),
        Build::Bundled => None,
        Build::DropIn => Some(DROP_IN.get().expect("the drop-in library is loaded before its races")),
    };
    loaded.unwrap_or_else(|| BUNDLED.get_or_init(Functions::bundled))
}

/// Loads the shared library at `path` as [`Build::Newest`] for the rest of the process.
pub(crate) fn load(path: &FilePath) -> anyhow::Result<()> {
    let functions =
        Functions::load(path).with_context(|| format!("loading ISA-L from {}", path.display()))?;
    // Only a second call could find it set; the first library stays then.
    let _ = LOADED.set(functions);
    Ok(())
}

/// Loads our drop-in library as [`Build::DropIn`] for the rest of the process.
pub(crate) fn load_drop_in(path: &FilePath) -> anyhow::Result<()> {
    let functions = Functions::load(path).with_context(|| format!("loading {}", path.display()))?;
    let _ = DROP_IN.set(functions);
    Ok(())
}

/// True if a library was loaded.
pub(crate) fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// What a record says about the library raced against.
pub(crate) fn version() -> &'static str {
    &functions(Build::Newest).version
}

/// Generator matrix of ISA-L.
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
    let library = functions(Build::Newest);
    match generator {
        // SAFETY: both functions write exactly rows * columns bytes, the length of `matrix`.
        Generator::Cauchy => unsafe { (library.gen_cauchy_matrix)(matrix.as_mut_ptr(), rows, columns) },
        // SAFETY: as above.
        Generator::PowersOfTwo => unsafe { (library.gen_rs_matrix)(matrix.as_mut_ptr(), rows, columns) },
    }
    matrix.split_off(k * k)
}

/// Product in GF(256) modulo 0x11d, from ISA-L's log tables.
pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    // SAFETY: any two bytes are elements; nothing else is touched.
    unsafe { (functions(Build::Newest).mul)(a, b) }
}

/// Inverse of an n × n matrix, `None` if it is singular.
pub(crate) fn invert(matrix: &[u8], n: usize) -> Option<Vec<u8>> {
    assert_eq!(matrix.len(), n * n);
    let mut scratch = matrix.to_vec();
    let mut inverse = vec![0; n * n];
    // SAFETY: both buffers hold n * n bytes; the first may be overwritten and is our own copy.
    let status = unsafe {
        (functions(Build::Newest).invert_matrix)(scratch.as_mut_ptr(), inverse.as_mut_ptr(), as_int(n))
    };
    (status == 0).then_some(inverse)
}

/// Implementation of ISA-L to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// The choice of its run-time dispatch on this CPU.
    Dispatched,
    /// Its choice on a CPU with AVX2 and neither AVX-512 nor GFNI; this CPU has AVX2.
    Avx2,
    /// The portable C code of the static library, the check of the dispatched one.
    Portable,
}

impl Path {
    fn functions(self, build: Build) -> (InitTables, EncodeData) {
        match self {
            Path::Dispatched => (functions(build).init_tables, functions(build).encode_data),
            // Without GFNI all paths take the tables that the portable code makes.
            Path::Avx2 => (ec_init_tables_base, functions(build).encode_data_avx2),
            Path::Portable => (ec_init_tables_base, ec_encode_data_base),
        }
    }
}

/// Coefficients in the form of one of ISA-L's paths, with their shape.
pub(crate) struct Encoder {
    encode_data: EncodeData,
    k: usize,
    rows: usize,
    tables: Vec<u8>,
}

impl Encoder {
    /// Prepares `rows` × `k` coefficients.
    pub(crate) fn new(path: Path, k: usize, rows: usize, coefficients: &[u8]) -> Self {
        Self::of_build(Build::Newest, path, k, rows, coefficients)
    }

    /// As [`Encoder::new`], with the build given.
    pub(crate) fn of_build(build: Build, path: Path, k: usize, rows: usize, coefficients: &[u8]) -> Self {
        assert!(k > 0 && rows > 0);
        assert_eq!(coefficients.len(), k * rows);
        let mut tables = vec![0; 32 * k * rows];
        let (init_tables, encode_data) = path.functions(build);
        // SAFETY: reads k * rows coefficients, asserted; writes at most 32 bytes for each of them, which is
        // what `tables` holds.
        unsafe { init_tables(as_int(k), as_int(rows), coefficients.as_ptr(), tables.as_mut_ptr()) };
        Self { encode_data, k, rows, tables }
    }

    /// Encodes once. Collects pointers on the way; for timing use [`Encoder::bind`].
    pub(crate) fn encode(&self, data: &[&[u8]], out: &mut [&mut [u8]]) {
        self.bind(data, out.iter_mut().map(|block| &mut **block).collect()).run();
    }

    /// Checks the buffers and collects their addresses once, as a C program would.
    pub(crate) fn bind<'a>(&'a self, data: &[&'a [u8]], out: Vec<&'a mut [u8]>) -> Call<'a> {
        assert_eq!(data.len(), self.k);
        assert_eq!(out.len(), self.rows);
        let len = data[0].len();
        assert!(data.iter().all(|block| block.len() == len));
        assert!(out.iter().all(|block| block.len() == len));
        Call {
            encoder: self,
            len: as_int(len),
            data: data.iter().map(|block| block.as_ptr()).collect(),
            addresses: Vec::with_capacity(out.len()),
            out,
            inputs: PhantomData,
        }
    }
}

/// An encoder with its buffers, ready to run any number of times. Between its passes the outputs may be lent to
/// other contenders, so that everybody writes to the same addresses.
pub(crate) struct Call<'a> {
    encoder: &'a Encoder,
    len: c_int,
    data: Vec<*const u8>,
    out: Vec<&'a mut [u8]>,
    /// Of the outputs; empty after they were lent, since addresses taken before that are no longer ours to use.
    addresses: Vec<*mut u8>,
    inputs: PhantomData<&'a [u8]>,
}

impl<'a> Call<'a> {
    /// One pass over the buffers.
    pub(crate) fn run(&mut self) {
        self.run_with(self.encoder);
    }

    /// One pass of another encoder of the same shape over the same buffers.
    pub(crate) fn run_with(&mut self, encoder: &Encoder) {
        let Encoder { encode_data, k, rows, tables } = encoder;
        assert_eq!((*k, *rows), (self.data.len(), self.out.len()));
        if self.addresses.is_empty() {
            // The borrower may have exchanged the slices, not only written to them.
            assert!(self.out.iter().all(|block| as_int(block.len()) == self.len));
            self.addresses.extend(self.out.iter_mut().map(|block| block.as_mut_ptr()));
        }
        let (data, out) = (self.data.as_ptr(), self.addresses.as_ptr());
        // SAFETY: there are k source and `rows` output addresses, each of `len` bytes, borrowed (outputs mutably)
        // for as long as `self` lives, and nobody was lent the outputs since their addresses were taken; the
        // tables were made by the same path for this k and `rows`.
        unsafe { encode_data(self.len, as_int(*k), as_int(*rows), tables.as_ptr(), data, out) };
    }

    /// Lends the outputs to another contender.
    pub(crate) fn outputs(&mut self) -> &mut [&'a mut [u8]] {
        self.addresses.clear();
        &mut self.out
    }
}

/// Whether the dispatched path of the newest build uses GFNI, seen in the tables it makes: with GFNI those of a
/// coefficient begin with its 8-byte bit matrix (alone or several times, by version), without it with the
/// products of 0 to 15. ISA-L's two dispatchers (tables and encoding) take the same decision, or it could not work
/// at all.
pub(crate) fn uses_gfni() -> bool {
    const IDENTITY: [u8; 8] = 0x0102_0408_1020_4080_u64.to_le_bytes();
    Encoder::new(Path::Dispatched, 1, 1, &[1]).tables.starts_with(&IDENTITY)
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
            let results = [Path::Dispatched, Path::Avx2, Path::Portable].map(|path| {
                let mut out = vec![vec![0_u8; len]; 7];
                let mut blocks: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                Encoder::new(path, 5, 7, &rows).encode(&data, &mut blocks);
                out
            });
            assert_eq!(results[0], results[2], "block of {len} bytes");
            assert_eq!(results[1], results[2], "block of {len} bytes, AVX2");
        }
    }
}
