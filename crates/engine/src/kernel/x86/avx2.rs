//! 256 bits: nibble tables by `vpshufb`, or affine maps where the CPU has GFNI.

use super::{TIMES_2, TIMES_4, isa, vector_moves};
use crate::bytemap::{AffineMatrix, NibbleTables};
use crate::compiler::Target;
use crate::kernel::vector::Vector;
use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_cmpgt_epi8, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_packus_epi16,
    _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_stream_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
    _mm256_xor_si256,
};

/// An AVX2 register that maps bytes by nibble tables.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Ymm(__m256i);

/// An AVX2 register that maps bytes by affine instructions.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct GfniYmm(__m256i);

macro_rules! ymm_moves {
    () => {
        vector_moves!(
            __m256i, zero _mm256_setzero_si256, load _mm256_loadu_si256, store _mm256_storeu_si256, stream _mm256_stream_si256,
            xor _mm256_xor_si256, and _mm256_and_si256, shift _mm256_srli_epi16,
            set16 _mm256_set1_epi16, pack _mm256_packus_epi16, low _mm256_unpacklo_epi8,
            high _mm256_unpackhi_epi8
        );
    };
}

impl Vector for Ymm {
    const BYTES: usize = 32;
    const GROUP: usize = 4;
    const UNROLL: usize = 2;
    type Map = NibbleTables;
    /// Low nibbles, high nibbles.
    type Operand = (__m256i, __m256i);

    ymm_moves!();

    #[inline(always)]
    unsafe fn operand(self) -> (__m256i, __m256i) {
        // SAFETY: AVX2 is there by the trait's contract.
        unsafe {
            let nibble = _mm256_set1_epi8(15);
            let high = _mm256_and_si256(_mm256_srli_epi16::<4>(self.0), nibble);
            (_mm256_and_si256(self.0, nibble), high)
        }
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: (__m256i, __m256i), map: &NibbleTables) -> Ymm {
        // SAFETY: AVX2 is there by the trait's contract; a table has 16 bytes.
        unsafe {
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(map.low.as_ptr().cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(map.high.as_ptr().cast()));
            let (low, high) = (_mm256_shuffle_epi8(low, x.0), _mm256_shuffle_epi8(high, x.1));
            Ymm(_mm256_xor_si256(self.0, _mm256_xor_si256(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: AVX2 is there by the trait's contract.
        unsafe {
            let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduced = _mm256_and_si256(carries, _mm256_set1_epi8(0x1d));
            Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduced))
        }
    }
}

impl Vector for GfniYmm {
    const BYTES: usize = 32;
    const GROUP: usize = 6;
    const UNROLL: usize = 2;
    type Map = AffineMatrix;
    type Operand = __m256i;

    ymm_moves!();

    #[inline(always)]
    unsafe fn operand(self) -> __m256i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: __m256i, map: &AffineMatrix) -> GfniYmm {
        // SAFETY: AVX2 and GFNI are there by the trait's contract.
        unsafe {
            let matrix = _mm256_set1_epi64x(map.0 as i64);
            GfniYmm(_mm256_xor_si256(self.0, _mm256_gf2p8affine_epi64_epi8::<0>(x, matrix)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> GfniYmm {
        // SAFETY: GFNI is there by the trait's contract.
        unsafe { GfniYmm(_mm256_gf2p8affine_epi64_epi8::<0>(self.0, _mm256_set1_epi64x(TIMES_2 as i64))) }
    }

    #[inline(always)]
    unsafe fn quadruple(self) -> GfniYmm {
        // SAFETY: GFNI is there by the trait's contract.
        unsafe { GfniYmm(_mm256_gf2p8affine_epi64_epi8::<0>(self.0, _mm256_set1_epi64x(TIMES_4 as i64))) }
    }
}

isa!(Avx2, Ymm, "avx2", enable "avx2", detect ["avx2"], needs "AVX2", target Target::AVX2);
isa!(
    GfniAvx2, GfniYmm, "gfni-avx2", enable "avx2,gfni", detect ["avx2", "gfni"],
    needs "AVX2 and GFNI", target Target::GFNI_AVX2
);
