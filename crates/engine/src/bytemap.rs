//! Byte maps: multiplication by a constant as GF(2)-linear maps on bytes, in the forms that instructions take.
//!
//! A product of a symbol of B bytes with a constant is B x B maps from byte to byte. Vector kernels are independent of
//! fields: they apply such maps, by nibble tables or by `gf2p8affineqb`.

use crate::field::Field;
use crate::field::reference::times_x;
use std::sync::OnceLock;

/// A GF(2)-linear map on symbols of up to 64 bits that fill whole bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearMap {
    /// images[i] is the image of bit i; there are 8 per byte of the symbol.
    images: Vec<u64>,
}

impl LinearMap {
    /// The map on symbols of `bytes` bytes whose image of a single bit is `image(bit)`.
    ///
    /// # Panics
    /// If `bytes` is not 1, 2, 4 or 8.
    pub fn new(bytes: usize, image: impl Fn(u64) -> u64) -> LinearMap {
        assert!(matches!(bytes, 1 | 2 | 4 | 8), "a symbol has 1, 2, 4 or 8 bytes, not {bytes}");
        LinearMap { images: (0..8 * bytes).map(|bit| image(1 << bit)).collect() }
    }

    /// Multiplication by `constant` in the words layout of `field`.
    pub(crate) fn multiplication(field: Field, constant: u64) -> LinearMap {
        let bytes = field.word_bytes().expect("a words layout was checked by the plan");
        // The image of each bit is x times the previous one. With w = 4 a byte holds two symbols.
        let (w, mut product) = (field.w() as usize, constant);
        let image = |bit: usize| {
            let image = if bit.is_multiple_of(w) { constant } else { times_x(field, product) };
            product = image;
            image << (bit / w * w)
        };
        LinearMap { images: (0..8 * bytes).map(image).collect() }
    }

    /// Bytes of a symbol.
    pub(crate) fn bytes(&self) -> usize {
        self.images.len() / 8
    }

    /// The image of any symbol.
    pub fn apply(&self, symbol: u64) -> u64 {
        let bits = self.images.iter().enumerate().filter(|(bit, _)| symbol >> bit & 1 == 1);
        bits.fold(0, |sum, (_, image)| sum ^ image)
    }

    /// All byte maps of the map, in the form `M`, input byte by input byte.
    pub(crate) fn prepare<M: MapForm>(&self) -> impl Iterator<Item = M> {
        let bytes = self.bytes();
        (0..bytes * bytes).map(move |i| M::prepare(self.byte_map(i % bytes, i / bytes)))
    }

    /// The part of the map that goes from input byte `from` to output byte `to`.
    pub(crate) fn byte_map(&self, to: usize, from: usize) -> ByteMap {
        ByteMap(std::array::from_fn(|bit| (self.images[8 * from + bit] >> (8 * to)) as u8))
    }
}

/// A GF(2)-linear map on one byte: the image of each of its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ByteMap([u8; 8]);

impl ByteMap {
    /// Multiplication by a constant, in a field whose symbols fill a byte.
    pub(crate) fn multiplication(field: Field, constant: u64) -> ByteMap {
        LinearMap::multiplication(field, constant).byte_map(0, 0)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.0 == [0; 8]
    }

    pub(crate) fn is_identity(self) -> bool {
        self.0 == std::array::from_fn(|bit| 1 << bit)
    }

    pub(crate) fn apply(self, byte: u8) -> u8 {
        (0..8).filter(|bit| byte >> bit & 1 == 1).fold(0, |sum, bit| sum ^ self.0[bit])
    }
}

/// A byte map in the form that an instruction takes.
pub(crate) trait MapForm: Copy + Send + Sync + 'static {
    /// Brings a map into this form.
    fn prepare(map: ByteMap) -> Self;

    /// The map whose images are the sums of those of two.
    fn sum(self, other: Self) -> Self;

    /// Multiplication by every constant of GF(2^8), prepared once per process: plans over the most used field are
    /// compiled by copying.
    fn gf8_products() -> &'static [Self; 256];
}

fn all_gf8_products<M: MapForm>() -> Box<[M; 256]> {
    let product =
        |constant| M::prepare(LinearMap::multiplication(Field::GF8, constant as u64).byte_map(0, 0));
    Box::new(std::array::from_fn(product))
}

#[inline(always)]
fn sum_of_bytes<const N: usize>(mut a: [u8; N], b: [u8; N]) -> [u8; N] {
    for i in 0..N {
        a[i] ^= b[i];
    }
    a
}

/// A byte map as the images of the eight bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BitImages(pub(crate) [u8; 8]);

impl MapForm for BitImages {
    fn prepare(map: ByteMap) -> BitImages {
        BitImages(map.0)
    }

    #[inline(always)]
    fn sum(self, other: BitImages) -> BitImages {
        BitImages(sum_of_bytes(self.0, other.0))
    }

    fn gf8_products() -> &'static [BitImages; 256] {
        static PRODUCTS: OnceLock<Box<[BitImages; 256]>> = OnceLock::new();
        PRODUCTS.get_or_init(all_gf8_products)
    }
}

/// A byte map as two lookup tables of 16 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct NibbleTables {
    /// Image of 0..16.
    pub(crate) low: [u8; 16],
    /// Image of 0x00, 0x10, … 0xf0.
    pub(crate) high: [u8; 16],
}

impl MapForm for NibbleTables {
    fn prepare(map: ByteMap) -> NibbleTables {
        NibbleTables {
            low: std::array::from_fn(|nibble| map.apply(nibble as u8)),
            high: std::array::from_fn(|nibble| map.apply((nibble as u8) << 4)),
        }
    }

    #[inline(always)]
    fn sum(self, other: NibbleTables) -> NibbleTables {
        NibbleTables { low: sum_of_bytes(self.low, other.low), high: sum_of_bytes(self.high, other.high) }
    }

    fn gf8_products() -> &'static [NibbleTables; 256] {
        static PRODUCTS: OnceLock<Box<[NibbleTables; 256]>> = OnceLock::new();
        PRODUCTS.get_or_init(all_gf8_products)
    }
}

/// A byte map as the operand of `gf2p8affineqb`: byte 7 - i selects the input bits of output bit i.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AffineMatrix(pub(crate) u64);

#[cfg(target_arch = "x86_64")]
impl MapForm for AffineMatrix {
    fn prepare(map: ByteMap) -> AffineMatrix {
        // Transposition of 8 x 8 bits in three steps: blocks of 1, 2 and 4 bits are swapped across the diagonal.
        let mut matrix = u64::from_le_bytes(map.0);
        for (distance, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0xf0f0_f0f0)] {
            let across = (matrix ^ matrix >> distance) & mask;
            matrix ^= across ^ across << distance;
        }
        AffineMatrix(matrix.swap_bytes())
    }

    #[inline(always)]
    fn sum(self, other: AffineMatrix) -> AffineMatrix {
        AffineMatrix(self.0 ^ other.0)
    }

    fn gf8_products() -> &'static [AffineMatrix; 256] {
        static PRODUCTS: OnceLock<Box<[AffineMatrix; 256]>> = OnceLock::new();
        PRODUCTS.get_or_init(all_gf8_products)
    }
}
