//! Signatures over the tower of GF(2^8) by division, register by register.
//!
//! The tower is GF(2^8) extended by a root Y of f = Y^8 + Y^7 + Y + 2. Squaring is additive in characteristic 2, so for
//! n, a power of two, f^n has as few terms as f:
//!
//! ```text
//! Z^8 + Z^7 + Z + 2^n = 0    with Z = Y^n
//! ```
//!
//! Let n symbols fill a register. Then a block is a polynomial in Z whose coefficients are its registers, and the
//! remainder modulo this polynomial, 8 registers, is a short block with the same signature. The division takes one byte
//! map and three sums per register; the symbols keep their order in memory. Other points have other constant terms in
//! place of 2.

use super::planes::padded;
use crate::bytemap::MapForm;
use crate::division::SignaturePoints;
use crate::field::Field;
use crate::kernel::vector::Vector;

/// The degree of the tower: coefficients of a remainder.
const DEGREE: usize = 8;

/// Divisors of a block, one per component.
pub(in crate::kernel) struct Division<V: Vector> {
    /// The product with the constant term.
    constants: Vec<V::Map>,
}

impl<V: Vector> Division<V> {
    /// Prepares divisions for signatures at these points. Their polynomials differ in the constant term only.
    pub(in crate::kernel) fn new(points: SignaturePoints) -> Division<V> {
        let symbols = (V::BYTES / DEGREE) as u64;
        let constant = |exponent: &u64| Field::GF8.exp(symbols * exponent) as usize;
        let products = V::Map::gf8_products();
        Division { constants: points.exponents().iter().map(|it| products[constant(it)]).collect() }
    }

    /// Bytes of the remainders of all components.
    pub(in crate::kernel) fn lane_bytes(&self) -> usize {
        self.constants.len() * DEGREE * V::BYTES
    }
}

/// Prepends `piece` to the block with the remainders `lanes`, and continues the division.
#[inline(always)]
pub(super) unsafe fn run<V: Vector>(division: &Division<V>, piece: &[u8], lanes: &mut [u8]) {
    assert_eq!(lanes.len(), division.lane_bytes());
    // SAFETY: lanes holds a remainder per component, checked above.
    unsafe {
        match division.constants.as_slice() {
            [constant] => divide::<V, 1>([constant], piece, lanes),
            [first, second] => divide::<V, 2>([first, second], piece, lanes),
            _ => unreachable!("a division has one or two components"),
        }
    }
}

#[inline(always)]
unsafe fn divide<V: Vector, const N: usize>(constants: [&V::Map; N], piece: &[u8], lanes: &mut [u8]) {
    let step = DEGREE * V::BYTES;
    // SAFETY: lanes holds N steps; whole steps of the piece are read in place, its end through a padded copy.
    unsafe {
        let mut remainders = [[V::zero(); DEGREE]; N];
        for n in 0..N {
            for i in 0..DEGREE {
                remainders[n][i] = V::load(lanes.as_ptr().add(n * step + i * V::BYTES));
            }
        }
        let mut at = piece.len() / step * step;
        if at < piece.len() {
            let end = padded(piece.as_ptr().add(at), piece.len() - at);
            remainders = divide_step(constants, remainders, end.as_ptr());
        }
        while at > 0 {
            at -= step;
            remainders = divide_step(constants, remainders, piece.as_ptr().add(at));
        }
        for n in 0..N {
            for i in 0..DEGREE {
                remainders[n][i].store(lanes.as_mut_ptr().add(n * step + i * V::BYTES));
            }
        }
    }
}

/// Processes as many registers as a remainder has, from the last to the first. Each multiplication by Z frees the
/// lowest coefficient for the next register, and the overflow, top · Z^8, is added back as top · (Z^7 + Z + 2^n). The
/// coefficients are not moved; the index of the top decreases instead, and is back at its start after a step.
#[inline(always)]
unsafe fn divide_step<V: Vector, const N: usize>(
    constants: [&V::Map; N],
    mut remainders: [[V; DEGREE]; N],
    from: *const u8,
) -> [[V; DEGREE]; N] {
    // SAFETY: the caller gives DEGREE registers of readable bytes.
    unsafe {
        for i in (0..DEGREE).rev() {
            let register = V::load(from.add(i * V::BYTES));
            for n in 0..N {
                let remainder = &mut remainders[n];
                let top = remainder[i];
                remainder[i] = register.add_mapped(top.operand(), constants[n]);
                let (seventh, first) = ((i + DEGREE - 1) % DEGREE, (i + 1) % DEGREE);
                remainder[seventh] = remainder[seventh].xor(top);
                remainder[first] = remainder[first].xor(top);
            }
        }
        remainders
    }
}
