//! The x86-64 instruction sets: a register type and entry points for each.
//!
//! `vector_moves!` generates the methods that differ between register widths only in the names of intrinsics; `isa!`
//! generates the proof type and its two entry points.

mod avx2;
mod avx512;
mod ssse3;

pub(super) use avx2::{Avx2, GfniAvx2};
pub(super) use avx512::{Avx512, GfniAvx512};
pub(super) use ssse3::Ssse3;

/// Multiplication by 2 and by 4 in GF(2^8) as operands of `gf2p8affineqb`; a test derives them.
const TIMES_2: u64 = 0x8001_8284_8810_2040;
const TIMES_4: u64 = 0x4080_41c2_c488_1020;

/// Moves, sums and byte shuffles of a [`Vector`](super::vector::Vector), from the intrinsics of one
/// register width.
macro_rules! vector_moves {
    (
        $register:ty, zero $zero:ident, load $load:ident, store $store:ident, stream $stream:ident, xor $xor:ident,
        and $and:ident, shift $shift:ident, set16 $set16:ident, pack $pack:ident,
        low $low:ident, high $high:ident
    ) => {
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: the instruction set is there by the trait's contract.
            Self(unsafe { $zero() })
        }

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller gives BYTES readable bytes; the load takes any alignment.
            Self(unsafe { $load(from.cast()) })
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller gives BYTES writable bytes; the store takes any alignment.
            unsafe { $store(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller gives BYTES writable bytes at a multiple of BYTES.
            unsafe { $stream(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn fence() {
            // SAFETY: SSE is there by the trait's contract.
            unsafe { std::arch::x86_64::_mm_sfence() }
        }

        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch has no visible effect and never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }

        #[inline(always)]
        unsafe fn prefetch_to_write(at: *const u8) {
            // SAFETY: as above; the instruction is a `nop` on CPUs without it. The intrinsic would become a read
            // prefetch where the compiler cannot assume the feature.
            unsafe { std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) }
        }

        #[inline(always)]
        unsafe fn xor(self, other: Self) -> Self {
            // SAFETY: the instruction set is there by the trait's contract.
            Self(unsafe { $xor(self.0, other.0) })
        }

        #[inline(always)]
        unsafe fn unzip(a: Self, b: Self) -> (Self, Self) {
            // SAFETY: the instruction set is there by the trait's contract.
            unsafe {
                let low_bytes = $set16(0xff);
                let even = $pack($and(a.0, low_bytes), $and(b.0, low_bytes));
                let odd = $pack($shift::<8>(a.0), $shift::<8>(b.0));
                (Self(even), Self(odd))
            }
        }

        #[inline(always)]
        unsafe fn zip(even: Self, odd: Self) -> (Self, Self) {
            // SAFETY: the instruction set is there by the trait's contract.
            unsafe { (Self($low(even.0, odd.0)), Self($high(even.0, odd.0))) }
        }
    };
}

/// The proof that this CPU has the features, and the entry points compiled with them.
macro_rules! isa {
    (
        $isa:ident, $vector:ty, $name:literal, enable $enable:literal, detect [$($feature:tt),+],
        needs $needs:literal $(, target $target:expr)?
    ) => {
        #[doc = concat!("Proof that this CPU has ", $needs, ".")]
        #[derive(Clone, Copy)]
        pub(in crate::kernel) struct $isa(());

        impl crate::kernel::generic::Isa for $isa {
            type V = $vector;
            const NAME: &'static str = $name;
            const NEEDS: &'static str = $needs;
            $(const TARGET: crate::compiler::Target = $target;)?

            fn detect() -> Option<Self> {
                (true $(&& std::arch::is_x86_feature_detected!($feature))+).then_some($isa(()))
            }

            fn run(self, work: crate::kernel::generic::Work<'_, '_, $vector>) {
                #[target_feature(enable = $enable)]
                unsafe fn entry(work: crate::kernel::generic::Work<'_, '_, $vector>) {
                    // SAFETY: this function is compiled for, and called only on, such a CPU.
                    unsafe { work.execute() }
                }
                // SAFETY: `self` exists, so `detect` found the features.
                unsafe { entry(work) }
            }

            fn transform(self, work: crate::kernel::generic::Transforming<'_, '_, $vector>) {
                #[target_feature(enable = $enable)]
                unsafe fn entry(work: crate::kernel::generic::Transforming<'_, '_, $vector>) {
                    // SAFETY: this function is compiled for, and called only on, such a CPU.
                    unsafe { work.execute() }
                }
                // SAFETY: `self` exists, so `detect` found the features.
                unsafe { entry(work) }
            }
        }
    };
}

use {isa, vector_moves};

#[cfg(test)]
mod tests {
    use crate::bytemap::{AffineMatrix, MapForm};

    #[test]
    fn the_matrices_of_two_and_four() {
        let products = AffineMatrix::gf8_products();
        assert_eq!((super::TIMES_2, super::TIMES_4), (products[2].0, products[4].0));
    }
}
