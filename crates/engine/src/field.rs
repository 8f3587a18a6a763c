//! The fields GF(2^w): polynomials over GF(2) modulo one primitive polynomial of degree w.
//!
//! An element is a `u64` below 2^w whose bit i is the coefficient of x^i; addition is XOR. There are four
//! multiplication methods, which the tests compare with each other:
//!
//! | where | method | used for |
//! | --- | --- | --- |
//! | [`mod@reference`] | shift and add | reference |
//! | [`barrett`] | carry-less product, Barrett reduction | w > 16 |
//! | [`tables`] | logarithms | w <= 16 |
//! | [`tables`] | full table (w <= 8), split tables | comparison, kernels |
//!
//! [`Field::mul`] uses the fastest method for its width. Arguments must be elements ([`Field::contains`]); other
//! numbers cause a panic or a meaningless result.

pub mod barrett;
pub mod reference;
pub mod tables;

use crate::error::Error;
use barrett::Barrett;
use std::fmt;
use tables::LogTables;

/// A field GF(2^w), w = 2 to 16, 32 or 64.
///
/// Its arithmetic takes elements ([`contains`](Field::contains)). Any other number may cause a panic or a meaningless
/// result, so untrusted values are checked first; matrices do so ([`Matrix::from_fn`](crate::matrix::Matrix::from_fn)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Field {
    w: u8,
}

/// The polynomials without their leading term x^w, for w = 2..=16. All are primitive, so x generates the multiplicative
/// group. Jerasure and ISA-L use the same ones.
const SMALL_POLYNOMIALS: [u64; 15] =
    [0x3, 0x3, 0x3, 0x5, 0x3, 0x9, 0x1d, 0x11, 0x9, 0x5, 0x53, 0x1b, 0x443, 0x3, 0x100b];

impl Field {
    /// GF(2^4) modulo 0x13.
    pub const GF4: Field = Field { w: 4 };
    /// GF(2^8) modulo 0x11d.
    pub const GF8: Field = Field { w: 8 };
    /// GF(2^16) modulo 0x1100b.
    pub const GF16: Field = Field { w: 16 };
    /// GF(2^32) modulo 0x100400007.
    pub const GF32: Field = Field { w: 32 };
    /// GF(2^64) modulo x^64 + x^4 + x^3 + x + 1.
    pub const GF64: Field = Field { w: 64 };

    /// The fields whose symbols fill whole bytes and so have a words layout.
    pub const WORDS: [Field; 5] = [Self::GF4, Self::GF8, Self::GF16, Self::GF32, Self::GF64];

    /// The field of 2^w elements.
    ///
    /// # Errors
    /// [`Error::UnknownField`] for an unsupported width.
    pub const fn new(w: u32) -> Result<Field, Error> {
        match w {
            2..=16 | 32 | 64 => Ok(Field { w: w as u8 }),
            _ => Err(Error::UnknownField { w }),
        }
    }

    /// All supported fields, from narrow to wide.
    pub fn all() -> impl Iterator<Item = Field> {
        (2..=16).chain([32, 64]).map(|w| Field { w })
    }

    /// Bits in a symbol.
    pub const fn w(self) -> u32 {
        self.w as u32
    }

    /// The field's polynomial without its leading term x^w.
    pub const fn polynomial(self) -> u64 {
        match self.w {
            32 => 0x0040_0007,
            64 => 0x1b,
            w => SMALL_POLYNOMIALS[w as usize - 2],
        }
    }

    /// The largest element: all w bits set. Also the number of non-zero elements, and so the
    /// order of a primitive element.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.w as u32)
    }

    /// Number of elements, saturated to `usize::MAX`.
    pub fn order(self) -> usize {
        1usize.checked_shl(self.w()).unwrap_or(usize::MAX)
    }

    /// Bytes of one symbol in the words layout, or of the smallest group of whole symbols
    /// (w = 4: two symbols in one byte).
    ///
    /// # Errors
    /// [`Error::NoWordsLayout`] for widths that do not fill whole bytes.
    pub const fn word_bytes(self) -> Result<usize, Error> {
        match self.w {
            4 | 8 => Ok(1),
            16 | 32 | 64 => Ok(self.w as usize / 8),
            w => Err(Error::NoWordsLayout { w: w as u32 }),
        }
    }

    /// True if `a` is an element.
    pub const fn contains(self, a: u64) -> bool {
        a <= self.mask()
    }

    /// Returns an error for a number that is not an element.
    pub(crate) const fn check(self, value: u64) -> Result<(), Error> {
        match self.contains(value) {
            true => Ok(()),
            false => Err(Error::NotAnElement { value, w: self.w() }),
        }
    }

    /// Product of two elements.
    pub fn mul(self, a: u64, b: u64) -> u64 {
        match LogTables::of(self) {
            Some(tables) => tables.mul(a, b),
            None => Barrett::of(self).mul(a, b),
        }
    }

    /// Product of elements; 1 for an empty list.
    pub fn product(self, elements: impl IntoIterator<Item = u64>) -> u64 {
        match LogTables::of(self) {
            Some(tables) => tables.product(elements),
            None => elements.into_iter().fold(1, |product, a| Barrett::of(self).mul(product, a)),
        }
    }

    /// Adds `factor` times each element of `from` to the element of `to` at the same index. Faster than single
    /// products, since lookups that depend on the field and the factor are done once.
    pub fn add_multiple(self, to: &mut [u64], from: &[u64], factor: u64) {
        match LogTables::of(self) {
            _ if factor == 0 => {}
            Some(tables) => tables.add_multiple(to, from, factor),
            None => {
                let barrett = Barrett::of(self);
                to.iter_mut().zip(from).for_each(|(to, &a)| *to ^= barrett.mul(a, factor));
            }
        }
    }

    /// The inverse, or `None` for zero.
    pub fn inv(self, a: u64) -> Option<u64> {
        match LogTables::of(self) {
            Some(tables) => tables.inv(a),
            // a^(2^w - 2) = a^-1, because the multiplicative group has 2^w - 1 elements.
            None => (a != 0).then(|| self.pow(a, self.mask() - 1)),
        }
    }

    /// Quotient a / b, or `None` for b = 0.
    pub fn div(self, a: u64, b: u64) -> Option<u64> {
        self.inv(b).map(|inverse| self.mul(a, inverse))
    }

    /// `a` to the power `exponent`; 0^0 is 1.
    pub fn pow(self, a: u64, exponent: u64) -> u64 {
        reference::pow_by(a, exponent, |a, b| self.mul(a, b))
    }

    /// x^exponent, a power of the primitive element.
    pub fn exp(self, exponent: u64) -> u64 {
        self.pow(2, exponent)
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GF(2^{})", self.w)
    }
}

#[cfg(test)]
mod tests;
