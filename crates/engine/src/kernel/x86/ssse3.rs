//! 128 bits: nibble tables by `pshufb`.

use super::{isa, vector_moves};
use crate::bytemap::NibbleTables;
use crate::kernel::vector::Vector;
use std::arch::x86_64::{
    __m128i, _mm_add_epi8, _mm_and_si128, _mm_cmpgt_epi8, _mm_loadu_si128, _mm_packus_epi16, _mm_set1_epi8,
    _mm_set1_epi16, _mm_setzero_si128, _mm_shuffle_epi8, _mm_srli_epi16, _mm_storeu_si128, _mm_stream_si128,
    _mm_unpackhi_epi8, _mm_unpacklo_epi8, _mm_xor_si128,
};

/// An SSE register.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Xmm(__m128i);

impl Vector for Xmm {
    const BYTES: usize = 16;
    const GROUP: usize = 4;
    const UNROLL: usize = 2;
    type Map = NibbleTables;
    /// Low nibbles, high nibbles.
    type Operand = (__m128i, __m128i);

    vector_moves!(
        __m128i, zero _mm_setzero_si128, load _mm_loadu_si128, store _mm_storeu_si128, stream _mm_stream_si128,
        xor _mm_xor_si128, and _mm_and_si128, shift _mm_srli_epi16, set16 _mm_set1_epi16,
        pack _mm_packus_epi16, low _mm_unpacklo_epi8, high _mm_unpackhi_epi8
    );

    #[inline(always)]
    unsafe fn operand(self) -> (__m128i, __m128i) {
        // SAFETY: SSSE3 is there by the trait's contract.
        unsafe {
            let nibble = _mm_set1_epi8(15);
            (_mm_and_si128(self.0, nibble), _mm_and_si128(_mm_srli_epi16::<4>(self.0), nibble))
        }
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: (__m128i, __m128i), map: &NibbleTables) -> Xmm {
        // SAFETY: SSSE3 is there by the trait's contract; a table has 16 bytes.
        unsafe {
            let low = _mm_shuffle_epi8(_mm_loadu_si128(map.low.as_ptr().cast()), x.0);
            let high = _mm_shuffle_epi8(_mm_loadu_si128(map.high.as_ptr().cast()), x.1);
            Xmm(_mm_xor_si128(self.0, _mm_xor_si128(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> Xmm {
        // SAFETY: SSE2 is there by the trait's contract.
        unsafe {
            let carries = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
            let reduced = _mm_and_si128(carries, _mm_set1_epi8(0x1d));
            Xmm(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduced))
        }
    }
}

isa!(Ssse3, Xmm, "ssse3", enable "ssse3", detect ["ssse3"], needs "SSSE3");
