//! Instruction selection for both register widths.

use crate::compiler::target::Target;
use iced_x86::Code;

#[derive(Clone, Copy)]
pub(super) struct Vocabulary {
    pub(super) load: Code,
    pub(super) store: Code,
    pub(super) stream: Code,
    pub(super) copy: Code,
    pub(super) add: Code,
    pub(super) add_two: Code,
    pub(super) affine: Code,
    pub(super) and: Code,
    pub(super) shift_right: Code,
    pub(super) shuffle: Code,
    /// Permutes bytes across the whole register.
    pub(super) permute: Code,
    /// By multiples of eight bytes.
    pub(super) rotate: Code,
    /// Broadcasts 8 bytes from memory.
    pub(super) broadcast8: Code,
    /// Broadcasts 16 bytes from memory.
    pub(super) broadcast16: Code,
}

impl Vocabulary {
    pub(super) fn of(target: Target) -> Vocabulary {
        if target.width == 64 { AVX512 } else { AVX2 }
    }
}

const AVX512: Vocabulary = Vocabulary {
    load: Code::EVEX_Vmovdqu64_zmm_k1z_zmmm512,
    store: Code::EVEX_Vmovdqu64_zmmm512_k1z_zmm,
    stream: Code::EVEX_Vmovntdq_m512_zmm,
    copy: Code::EVEX_Vmovdqa64_zmm_k1z_zmmm512,
    add: Code::EVEX_Vpxorq_zmm_k1z_zmm_zmmm512b64,
    add_two: Code::EVEX_Vpternlogd_zmm_k1z_zmm_zmmm512b32_imm8,
    affine: Code::EVEX_Vgf2p8affineqb_zmm_k1z_zmm_zmmm512b64_imm8,
    and: Code::EVEX_Vpandq_zmm_k1z_zmm_zmmm512b64,
    shift_right: Code::EVEX_Vpsrlw_zmm_k1z_zmmm512_imm8,
    shuffle: Code::EVEX_Vpshufb_zmm_k1z_zmm_zmmm512,
    permute: Code::EVEX_Vpermb_zmm_k1z_zmm_zmmm512,
    rotate: Code::EVEX_Valignq_zmm_k1z_zmm_zmmm512b64_imm8,
    broadcast8: Code::EVEX_Vpbroadcastq_zmm_k1z_xmmm64,
    broadcast16: Code::EVEX_Vbroadcasti32x4_zmm_k1z_m128,
};

const AVX2: Vocabulary = Vocabulary {
    load: Code::VEX_Vmovdqu_ymm_ymmm256,
    store: Code::VEX_Vmovdqu_ymmm256_ymm,
    stream: Code::VEX_Vmovntdq_m256_ymm,
    copy: Code::VEX_Vmovdqa_ymm_ymmm256,
    add: Code::VEX_Vpxor_ymm_ymm_ymmm256,
    // Programs for this width have no sums of three.
    add_two: Code::INVALID,
    affine: Code::VEX_Vgf2p8affineqb_ymm_ymm_ymmm256_imm8,
    and: Code::VEX_Vpand_ymm_ymm_ymmm256,
    shift_right: Code::VEX_Vpsrlw_ymm_ymm_imm8,
    shuffle: Code::VEX_Vpshufb_ymm_ymm_ymmm256,
    // Nor cross-lane permutations.
    permute: Code::INVALID,
    rotate: Code::INVALID,
    broadcast8: Code::VEX_Vpbroadcastq_ymm_xmmm64,
    broadcast16: Code::VEX_Vbroadcasti128_ymm_m128,
};
