//! Multiplication by a constant, seen as what the hardware sees: a GF(2)-linear map on bytes.
//!
//! A symbol of B bytes times a constant is B x B maps from byte to byte. Vector kernels know nothing
//! of fields: they apply such maps, by nibble tables or by `gf2p8affineqb`.

use crate::field::Field;

/// A GF(2)-linear map on symbols of up to 64 bits that fill whole bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinearMap {
    /// images[i] is the image of bit i; there are 8 per byte of the symbol.
    images: Vec<u64>,
}

impl LinearMap {
    /// The map on symbols of `bytes` bytes whose image of a single bit is `image(bit)`.
    pub fn new(bytes: usize, image: impl Fn(u64) -> u64) -> LinearMap {
        assert!(matches!(bytes, 1 | 2 | 4 | 8), "a symbol has 1, 2, 4 or 8 bytes, not {bytes}");
        LinearMap { images: (0..8 * bytes).map(|bit| image(1 << bit)).collect() }
    }

    /// Multiplication by `constant` in the words layout of `field`.
    pub(crate) fn multiplication(field: Field, constant: u64) -> LinearMap {
        let bytes = field.word_bytes().expect("a words layout was checked by the plan");
        LinearMap::new(bytes, |bit| match field.w() {
            // Two symbols in the byte, each multiplied by itself.
            4 => field.mul(constant, bit & 15) | field.mul(constant, bit >> 4) << 4,
            _ => field.mul(constant, bit),
        })
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

    /// The part of the map that goes from input byte `from` to output byte `to`.
    pub(crate) fn byte_map(&self, to: usize, from: usize) -> ByteMap {
        ByteMap(std::array::from_fn(|bit| (self.images[8 * from + bit] >> (8 * to)) as u8))
    }
}

/// A GF(2)-linear map on one byte: the image of each of its bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByteMap([u8; 8]);

impl ByteMap {
    fn apply(self, byte: u8) -> u8 {
        (0..8).filter(|bit| byte >> bit & 1 == 1).fold(0, |sum, bit| sum ^ self.0[bit])
    }

    /// The images of the 16 low nibbles, then of the 16 high nibbles.
    pub(crate) fn nibble_tables(self) -> NibbleTables {
        NibbleTables {
            low: std::array::from_fn(|nibble| self.apply(nibble as u8)),
            high: std::array::from_fn(|nibble| self.apply((nibble as u8) << 4)),
        }
    }

    /// The operand of `gf2p8affineqb`: byte 7 - i selects the input bits that make output bit i.
    pub(crate) fn affine_matrix(self) -> u64 {
        let mut matrix = 0;
        for (bit, image) in self.0.iter().enumerate() {
            for to in (0..8).filter(|to| image >> to & 1 == 1) {
                matrix |= 1 << (8 * (7 - to) + bit);
            }
        }
        matrix
    }
}

/// A byte map as two look-ups in 16 bytes each.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct NibbleTables {
    /// Image of 0..16.
    pub(crate) low: [u8; 16],
    /// Image of 0x00, 0x10, … 0xf0.
    pub(crate) high: [u8; 16],
}
