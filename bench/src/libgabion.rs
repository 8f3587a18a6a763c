//! libgabion, loaded while running: the C interface as a C program calls it. Everything `unsafe` about it stays here.

#![allow(unsafe_code)] // calls into C; each block says what it relies on

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use anyhow::{Context as _, ensure};

type CodecNew = unsafe extern "C" fn(*const c_char, usize, *mut *mut c_void) -> c_int;
type CodecFree = unsafe extern "C" fn(*mut c_void);
type Encode = unsafe extern "C" fn(*const c_void, usize, *const *const u8, *const *mut u8) -> c_int;

/// A codec of the library, for one stripe.
pub(crate) struct Codec {
    codec: *mut c_void,
    encode: Encode,
    free: CodecFree,
    shape: (usize, usize),
    /// Kept loaded.
    _library: libloading::Library,
}

impl Codec {
    /// A codec on the calling thread.
    pub(crate) fn new(library: &Path, (k, m): (usize, usize)) -> anyhow::Result<Codec> {
        // SAFETY: the library's initialisers run here; the user who names the file vouches for it.
        let library = unsafe { libloading::Library::new(library) }
            .with_context(|| format!("loading {}", library.display()))?;
        let code = CString::new(format!("{k}+{m}"))?;
        let mut codec = std::ptr::null_mut();
        // SAFETY: names and types are those of gabion.h; the code is a string and `codec` a place for a pointer.
        let (status, encode, free) = unsafe {
            let new = library.get::<CodecNew>(b"gabion_codec_new")?;
            let status = new(code.as_ptr(), 1, &raw mut codec);
            (
                status,
                *library.get::<Encode>(b"gabion_encode")?,
                *library.get::<CodecFree>(b"gabion_codec_free")?,
            )
        };
        ensure!(status == 0, "gabion_codec_new: status {status}");
        Ok(Codec { codec, encode, free, shape: (k, m), _library: library })
    }

    /// Addresses of blocks, as a C program has them.
    pub(crate) fn addresses(data: &[&[u8]]) -> Vec<*const u8> {
        data.iter().map(|block| block.as_ptr()).collect()
    }

    /// Encodes `data`, whose addresses are `addresses`.
    pub(crate) fn encode(&self, data: &[&[u8]], addresses: &[*const u8], out: &mut [&mut [u8]]) {
        let len = data[0].len();
        assert!(addresses.len() == data.len() && (data.len(), out.len()) == self.shape);
        assert!(data.iter().all(|block| block.len() == len) && out.iter().all(|block| block.len() == len));
        // A C program has these at hand; few, so that filling them does not count.
        let mut outputs = [std::ptr::null_mut(); 4];
        assert!(out.len() <= outputs.len());
        outputs.iter_mut().zip(out.iter_mut()).for_each(|(place, block)| *place = block.as_mut_ptr());
        // SAFETY: k and m addresses of blocks of `len` bytes, borrowed for the call, the outputs mutably.
        let status = unsafe { (self.encode)(self.codec, len, addresses.as_ptr(), outputs.as_ptr()) };
        assert_eq!(status, 0, "the same call went well before the race");
    }
}

impl Drop for Codec {
    fn drop(&mut self) {
        // SAFETY: made by the library, and used by nothing else.
        unsafe { (self.free)(self.codec) };
    }
}
