//! aarch64: 128 bits, nibble tables by `tbl`.

use super::generic::{Isa, Transforming, Work};
use super::vector::Vector;
use crate::bytemap::NibbleTables;
use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vcltq_s8, vdupq_n_s8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8,
    vreinterpretq_s8_u8, vshlq_n_u8, vshrq_n_u8, vst1q_u8, vuzp1q_u8, vuzp2q_u8, vzip1q_u8, vzip2q_u8,
};

/// A NEON register.
#[derive(Clone, Copy)]
pub(super) struct NeonRegister(uint8x16_t);

impl Vector for NeonRegister {
    const BYTES: usize = 16;
    const GROUP: usize = 4;
    const UNROLL: usize = 2;
    type Map = NibbleTables;
    /// Low nibbles, high nibbles.
    type Operand = (uint8x16_t, uint8x16_t);

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is there by the trait's contract.
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller gives 16 readable bytes; the load takes any alignment.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller gives 16 writable bytes; the store takes any alignment.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: NEON is there by the trait's contract.
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn operand(self) -> (uint8x16_t, uint8x16_t) {
        // SAFETY: NEON is there by the trait's contract.
        unsafe { (vandq_u8(self.0, vdupq_n_u8(15)), vshrq_n_u8::<4>(self.0)) }
    }

    #[inline(always)]
    unsafe fn add_mapped(self, x: (uint8x16_t, uint8x16_t), map: &NibbleTables) -> Self {
        // SAFETY: NEON is there by the trait's contract; a table has 16 bytes.
        unsafe {
            let low = vqtbl1q_u8(vld1q_u8(map.low.as_ptr()), x.0);
            let high = vqtbl1q_u8(vld1q_u8(map.high.as_ptr()), x.1);
            Self(veorq_u8(self.0, veorq_u8(low, high)))
        }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: NEON is there by the trait's contract.
        unsafe {
            let carries = vcltq_s8(vreinterpretq_s8_u8(self.0), vdupq_n_s8(0));
            let reduced = vandq_u8(carries, vdupq_n_u8(0x1d));
            Self(veorq_u8(vshlq_n_u8::<1>(self.0), reduced))
        }
    }

    #[inline(always)]
    unsafe fn unzip(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: NEON is there by the trait's contract.
        unsafe { (Self(vuzp1q_u8(a.0, b.0)), Self(vuzp2q_u8(a.0, b.0))) }
    }

    #[inline(always)]
    unsafe fn zip(even: Self, odd: Self) -> (Self, Self) {
        // SAFETY: NEON is there by the trait's contract.
        unsafe { (Self(vzip1q_u8(even.0, odd.0)), Self(vzip2q_u8(even.0, odd.0))) }
    }
}

/// Proof that this CPU has NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Isa for Neon {
    type V = NeonRegister;
    const NAME: &'static str = "neon";
    const NEEDS: &'static str = "NEON";

    fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }

    fn run(self, work: Work<'_, '_, NeonRegister>) {
        #[target_feature(enable = "neon")]
        unsafe fn entry(work: Work<'_, '_, NeonRegister>) {
            // SAFETY: this function is compiled for, and called only on, such a CPU.
            unsafe { work.execute() }
        }
        // SAFETY: `self` exists, so `detect` found NEON.
        unsafe { entry(work) }
    }

    fn transform(self, work: Transforming<'_, '_, NeonRegister>) {
        #[target_feature(enable = "neon")]
        unsafe fn entry(work: Transforming<'_, '_, NeonRegister>) {
            // SAFETY: this function is compiled for, and called only on, such a CPU.
            unsafe { work.execute() }
        }
        // SAFETY: `self` exists, so `detect` found NEON.
        unsafe { entry(work) }
    }
}
