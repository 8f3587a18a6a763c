//! 512 bits: nibble tables by `vpshufb`, or affine maps where the CPU has GFNI.

use super::{TIMES_2, TIMES_4, isa, vector_moves};
use crate::bytemap::{AffineMatrix, NibbleTables};
use crate::compiler::Target;
use crate::kernel::vector::Vector;
use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm512_add_epi8, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_maskz_mov_epi8, _mm512_movepi8_mask,
    _mm512_packus_epi16, _mm512_set1_epi8, _mm512_set1_epi16, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_storeu_si512, _mm512_stream_si512, _mm512_unpackhi_epi8,
    _mm512_unpacklo_epi8, _mm512_xor_si512,
};

/// An AVX-512 register that maps bytes by nibble tables.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Zmm(__m512i);

/// An AVX-512 register that maps bytes by affine instructions.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct GfniZmm(__m512i);

macro_rules! zmm_moves {
    () => {
        vector_moves!(
            __m512i, zero _mm512_setzero_si512, load _mm512_loadu_si512, store _mm512_storeu_si512, stream _mm512_stream_si512,
            xor _mm512_xor_si512, and _mm512_and_si512, shift _mm512_srli_epi16,
            set16 _mm512_set1_epi16, pack _mm512_packus_epi16, low _mm512_unpacklo_epi8,
            high _mm512_unpackhi_epi8
        );
    };
}

impl Vector for Zmm {
    const BYTES: usize = 64;
    const GROUP: usize = 6;
    const UNROLL: usize = 2;
    type Map = NibbleTables;
    /// Low nibbles, high nibbles.
    type Operand = (__m512i, __m512i);

    zmm_moves!();

    #[inline(always)]
    unsafe fn operand(self) -> (__m512i, __m512i) {
        // SAFETY: AVX-512BW is there by the trait's contract.
        unsafe {
            let nibble = _mm512_set1_epi8(15);
            let high = _mm512_and_si512(_mm512_srli_epi16::<4>(self.0), nibble);
            (_mm512_and_si512(self.0, nibble), high)
        }
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: (__m512i, __m512i), map: &NibbleTables) -> Zmm {
        // SAFETY: AVX-512BW is there by the trait's contract; a table has 16 bytes.
        unsafe {
            let low = _mm512_broadcast_i32x4(_mm_loadu_si128(map.low.as_ptr().cast()));
            let high = _mm512_broadcast_i32x4(_mm_loadu_si128(map.high.as_ptr().cast()));
            let (low, high) = (_mm512_shuffle_epi8(low, x.0), _mm512_shuffle_epi8(high, x.1));
            Zmm(_mm512_xor_si512(self.0, _mm512_xor_si512(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: AVX-512BW is there by the trait's contract.
        unsafe {
            let carries = _mm512_movepi8_mask(self.0);
            let reduced = _mm512_maskz_mov_epi8(carries, _mm512_set1_epi8(0x1d));
            Self(_mm512_xor_si512(_mm512_add_epi8(self.0, self.0), reduced))
        }
    }
}

impl Vector for GfniZmm {
    const BYTES: usize = 64;
    const GROUP: usize = 6;
    const UNROLL: usize = 4;
    /// 16 sums, 8 inputs, and registers for products and maps.
    const PAIRED_OUTPUTS: usize = 4;
    type Map = AffineMatrix;
    type Operand = __m512i;

    zmm_moves!();

    #[inline(always)]
    unsafe fn operand(self) -> __m512i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: __m512i, map: &AffineMatrix) -> GfniZmm {
        // SAFETY: AVX-512F and GFNI are there by the trait's contract.
        unsafe {
            let matrix = _mm512_set1_epi64(map.0 as i64);
            GfniZmm(_mm512_xor_si512(self.0, _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> GfniZmm {
        // SAFETY: GFNI is there by the trait's contract.
        unsafe { GfniZmm(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, _mm512_set1_epi64(TIMES_2 as i64))) }
    }

    #[inline(always)]
    unsafe fn quadruple(self) -> GfniZmm {
        // SAFETY: GFNI is there by the trait's contract.
        unsafe { GfniZmm(_mm512_gf2p8affine_epi64_epi8::<0>(self.0, _mm512_set1_epi64(TIMES_4 as i64))) }
    }
}

isa!(
    Avx512, Zmm, "avx512", enable "avx512f,avx512bw", detect ["avx512f", "avx512bw"],
    needs "AVX-512F and AVX-512BW", target Target::AVX512
);
isa!(
    GfniAvx512, GfniZmm, "gfni-avx512", enable "avx512f,avx512bw,gfni",
    detect ["avx512f", "avx512bw", "avx512vbmi", "gfni"], needs "AVX-512F, BW, VBMI and GFNI", target Target::GFNI_AVX512
);
