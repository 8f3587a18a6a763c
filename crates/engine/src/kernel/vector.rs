//! The trait of SIMD registers: the few byte operations that all kernels are written with.

use crate::bytemap::{BitImages, MapForm};

/// A register of bytes and the operations on it.
///
/// # Safety
/// Every method requires a CPU with the instruction set of the implementing type; the callers are entry points that
/// hold an [`Isa`](super::generic::Isa) value, which exists only on such a CPU.
pub(super) trait Vector: Copy {
    /// Bytes in a register.
    const BYTES: usize;
    /// Outputs computed in one pass over the inputs, for symbols of one byte: as many as fit in the registers.
    const GROUP: usize;
    /// Registers per input in flight, for symbols of one byte.
    const UNROLL: usize;
    /// Maximum outputs for which inputs are read in pairs: an instruction that adds three registers adds both products.
    const PAIRED_OUTPUTS: usize = 0;

    /// A byte map in the form that [`add_mapped`](Vector::add_mapped) takes.
    type Map: MapForm;
    /// An input prepared for any number of maps.
    type Operand: Copy;

    /// All bytes zero.
    unsafe fn zero() -> Self;
    /// Reads `BYTES` bytes at any address.
    unsafe fn load(from: *const u8) -> Self;
    /// Writes `BYTES` bytes at any address.
    unsafe fn store(self, to: *mut u8);
    /// Non-temporal store of `BYTES` bytes to an address that is a multiple of `BYTES`; ordered by
    /// [`fence`](Vector::fence) only. An ordinary store on instruction sets without one.
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on unchanged.
        unsafe { self.store(to) }
    }
    /// Orders non-temporal stores before all later stores.
    #[inline(always)]
    unsafe fn fence() {}
    /// Prefetches the cache line at an address, which need not be readable.
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    /// Prefetches the cache line at an address for writing; the address need not be writable.
    #[inline(always)]
    unsafe fn prefetch_to_write(_: *const u8) {}
    /// Sum of two registers.
    unsafe fn xor(self, other: Self) -> Self;
    /// Prepares an input for maps.
    unsafe fn operand(self) -> Self::Operand;
    /// `self` + map(x), byte by byte.
    unsafe fn add_mapped(self, x: Self::Operand, map: &Self::Map) -> Self;
    /// Every byte times x in GF(2^8).
    unsafe fn double(self) -> Self;
    /// Every byte times x^2 in GF(2^8).
    #[inline(always)]
    unsafe fn quadruple(self) -> Self {
        // SAFETY: the instruction set is there by the trait's contract.
        unsafe { self.double().double() }
    }
    /// Even and odd bytes of the 16-byte lanes of `a` and `b`: lane by lane, first those of `a`.
    unsafe fn unzip(a: Self, b: Self) -> (Self, Self);
    /// Undoes [`unzip`](Vector::unzip).
    unsafe fn zip(even: Self, odd: Self) -> (Self, Self);
}

/// Sixteen bytes without SIMD instructions, for the scalar kernel set.
#[derive(Clone, Copy)]
pub(super) struct Scalar([u64; 2]);

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

impl Vector for Scalar {
    const BYTES: usize = 16;
    const GROUP: usize = 4;
    const UNROLL: usize = 1;
    type Map = BitImages;
    type Operand = Scalar;

    #[inline(always)]
    unsafe fn zero() -> Scalar {
        Scalar([0; 2])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Scalar {
        // SAFETY: the caller gives 16 readable bytes; the read is unaligned.
        let bytes: [u8; 16] = unsafe { from.cast::<[u8; 16]>().read_unaligned() };
        let both = u128::from_le_bytes(bytes);
        Scalar([both as u64, (both >> 64) as u64])
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        let both = u128::from(self.0[0]) | u128::from(self.0[1]) << 64;
        // SAFETY: the caller gives 16 writable bytes; the write is unaligned.
        unsafe { to.cast::<[u8; 16]>().write_unaligned(both.to_le_bytes()) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Scalar) -> Scalar {
        Scalar([self.0[0] ^ other.0[0], self.0[1] ^ other.0[1]])
    }

    #[inline(always)]
    unsafe fn operand(self) -> Scalar {
        self
    }

    /// Eight bytes at a time: bit i of each byte, moved to the lowest bit, times the image of bit i is that image in
    /// every byte with the bit set.
    #[inline(always)]
    unsafe fn add_mapped(self, x: Scalar, map: &BitImages) -> Scalar {
        let mut sum = self.0;
        for (bit, &image) in map.0.iter().enumerate() {
            for (sum, x) in sum.iter_mut().zip(x.0) {
                *sum ^= (x >> bit & LOW_BITS) * u64::from(image);
            }
        }
        Scalar(sum)
    }

    #[inline(always)]
    unsafe fn double(self) -> Scalar {
        Scalar(self.0.map(|half| {
            // The top bit of each byte, moved to the lowest bit, selects the polynomial 0x1d.
            let carries = half >> 7 & LOW_BITS;
            ((half & !(LOW_BITS << 7)) << 1) ^ (carries * 0x1d)
        }))
    }

    #[inline(always)]
    unsafe fn unzip(a: Scalar, b: Scalar) -> (Scalar, Scalar) {
        let split = |half: u64, odd: usize| -> u64 {
            let bytes = half.to_le_bytes();
            (0..4).fold(0, |packed, i| packed | u64::from(bytes[2 * i + odd]) << (8 * i))
        };
        let gather = |odd| Scalar([a, b].map(|v| split(v.0[0], odd) | split(v.0[1], odd) << 32));
        (gather(0), gather(1))
    }

    #[inline(always)]
    unsafe fn zip(even: Scalar, odd: Scalar) -> (Scalar, Scalar) {
        let merge = |even: u64, odd: u64| -> [u64; 2] {
            let (even, odd) = (even.to_le_bytes(), odd.to_le_bytes());
            std::array::from_fn(|half| {
                (0..4).fold(0, |merged, i| {
                    let pair = u64::from(even[4 * half + i]) | u64::from(odd[4 * half + i]) << 8;
                    merged | pair << (16 * i)
                })
            })
        };
        (Scalar(merge(even.0[0], odd.0[0])), Scalar(merge(even.0[1], odd.0[1])))
    }
}
