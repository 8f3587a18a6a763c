//! GF(2^64) built over a smaller field: polynomials in Y of degree below 64/w with coefficients in
//! GF(2^w), modulo a primitive polynomial.
//!
//! A block of symbols of GF(2^w), read 64 bits at a time, is a block of tower elements, and a constant of GF(2^w)
//! multiplies them coefficient by coefficient. So every map that is linear over the tower, such as a signature,
//! commutes with a code over GF(2^w), and still has 64-bit components and a period of 2^64 - 1.

use crate::error::Error;
use crate::field::Field;

/// A tower of 64 bits over GF(2^w), w = 4, 8, 16 or 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tower {
    base: Field,
    /// The polynomial in Y has coefficients 1 and 2 only. This mask has bit i·w for every coefficient 1 of Y^i, without
    /// the leading term.
    ones: u64,
    /// The same mask for the coefficients 2.
    twos: u64,
}

impl Tower {
    /// The tower over `base`.
    ///
    /// # Errors
    /// [`Error::NoSignatures`] for an unsupported base field.
    pub fn over(base: Field) -> Result<Tower, Error> {
        let w = base.w();
        let places = |powers: &[u32]| powers.iter().fold(0, |places, power| places | 1 << (power * w));
        let (ones, twos) = match w {
            // Y^16 + Y^15 + Y + 2, Y^8 + Y^7 + Y + 2
            4 | 8 => (places(&[64 / w - 1, 1]), places(&[0])),
            // Y^4 + Y^3 + Y^2 + 2
            16 => (places(&[3, 2]), places(&[0])),
            // Y^2 + 2·Y + 2
            32 => (0, places(&[1, 0])),
            w => return Err(Error::NoSignatures { widths: "4, 8, 16 or 32", w }),
        };
        Ok(Tower { base, ones, twos })
    }

    /// The field of the coefficients.
    pub fn base(self) -> Field {
        self.base
    }

    /// Every coefficient times a constant of the base field.
    pub fn scale(self, a: u64, constant: u64) -> u64 {
        let (mut doubled, mut sum) = (a, 0);
        for bit in 0..self.base.w() {
            sum ^= doubled & all_if(constant >> bit);
            doubled = self.double(doubled);
        }
        sum
    }

    /// Every coefficient times 2, in parallel: the polynomial is added to the coefficients that overflow.
    fn double(self, a: u64) -> u64 {
        let w = self.base.w();
        let lowest = u64::MAX / self.base.mask();
        let overflows = a >> (w - 1) & lowest;
        ((a ^ overflows << (w - 1)) << 1) ^ (overflows * self.base.polynomial())
    }

    /// Product with Y, which is primitive: the coefficient that overflows is added back times the polynomial. An
    /// integer product with a mask places a copy at each of its bits.
    pub fn times_y(self, a: u64) -> u64 {
        let w = self.base.w();
        let overflow = a >> (64 - w);
        // Twice the coefficient, reduced without a branch: block content is unpredictable.
        let polynomial = 1 << w | self.base.polynomial();
        let doubled = (overflow << 1) ^ ((overflow >> (w - 1)) * polynomial);
        (a << w) ^ (overflow * self.ones) ^ (doubled * self.twos)
    }

    /// Product with Y^8 over GF(2^8): all coefficients overflow.
    ///
    /// The quotient of a·Y^8 by Y^8 + Y^7 + Y + 2 has, from the top down, q_i = a_i + q_(i+1), plus q_7 in q_0; its
    /// product with Y^7 + Y + 2 below Y^8 is the remainder.
    pub(crate) fn times_y8_of_gf8(self, a: u64) -> u64 {
        debug_assert_eq!(self.base, Field::GF8);
        let sums = a ^ a >> 8;
        let sums = sums ^ sums >> 16;
        let sums = sums ^ sums >> 32;
        let quotient = sums ^ sums >> 56;
        quotient << 56 ^ quotient << 8 ^ self.double(quotient)
    }

    /// Product of two elements.
    pub fn mul(self, a: u64, b: u64) -> u64 {
        let w = self.base.w();
        let mut doubled = [a; 64];
        for bit in 1..w as usize {
            doubled[bit] = self.double(doubled[bit - 1]);
        }
        (0..64 / w).rev().fold(0, |sum, i| {
            let coefficient = b >> (i * w);
            (0..w)
                .fold(self.times_y(sum), |sum, bit| sum ^ doubled[bit as usize] & all_if(coefficient >> bit))
        })
    }

    /// `a` to the power `exponent`.
    pub fn pow(self, a: u64, exponent: u64) -> u64 {
        crate::field::reference::pow_by(a, exponent, |a, b| self.mul(a, b))
    }
}

/// All ones if the lowest bit is set, else zeros, without a branch: the operand is unpredictable.
fn all_if(bit: u64) -> u64 {
    (bit & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn towers() -> [Tower; 4] {
        [4, 8, 16, 32].map(|w| Tower::over(Field::new(w).unwrap()).unwrap())
    }

    /// Y of order 2^64 - 1 also proves that the tower is a field: every non-zero element is a power.
    #[test]
    fn y_is_primitive() {
        let primes = [3u64, 5, 17, 257, 641, 65537, 6_700_417];
        assert_eq!(primes.iter().product::<u64>(), u64::MAX);
        for tower in towers() {
            let y = tower.times_y(1);
            assert_eq!(tower.pow(y, u64::MAX), 1, "{tower:?}");
            for prime in primes {
                assert_ne!(tower.pow(y, u64::MAX / prime), 1, "{tower:?} {prime}");
            }
        }
        assert!(Tower::over(Field::GF64).is_err());
    }

    proptest! {
        #[test]
        fn laws(a: u64, b: u64, c: u64, which in 0..4usize) {
            let tower = towers()[which];
            let constant = c & tower.base().mask();
            prop_assert_eq!(tower.mul(a, b), tower.mul(b, a));
            prop_assert_eq!(tower.mul(tower.mul(a, b), c), tower.mul(a, tower.mul(b, c)));
            prop_assert_eq!(tower.mul(a, b ^ c), tower.mul(a, b) ^ tower.mul(a, c));
            prop_assert_eq!(tower.scale(tower.mul(a, b), constant), tower.mul(tower.scale(a, constant), b));
            prop_assert_eq!(tower.scale(a, constant), tower.mul(a, constant));
            prop_assert_eq!(tower.times_y(a), tower.mul(a, 1 << tower.base().w()));
        }

        /// Coefficient by coefficient with the field's own product.
        #[test]
        fn a_scaled_element_has_scaled_coefficients(a: u64, constant: u64, which in 0..4usize) {
            let tower = towers()[which];
            let (w, mask) = (tower.base().w(), tower.base().mask());
            let want = (0..64 / w).fold(0, |scaled, i| {
                scaled | tower.base().mul(a >> (i * w) & mask, constant & mask) << (i * w)
            });
            prop_assert_eq!(tower.scale(a, constant & mask), want);
        }

        #[test]
        fn eight_steps_at_once(a: u64) {
            let tower = Tower::over(Field::GF8).unwrap();
            prop_assert_eq!(tower.times_y8_of_gf8(a), (0..8).fold(a, |a, _| tower.times_y(a)));
        }
    }
}
