//! GF(2^64) built over a smaller field: polynomials in Y of degree below 64/w with coefficients in
//! GF(2^w), modulo a primitive polynomial.
//!
//! A block of symbols of GF(2^w), read 64 bits at a time, is a block of tower elements, and a constant
//! of GF(2^w) multiplies them coefficient by coefficient. So whatever is linear over the tower, such as
//! a signature, commutes with a code over GF(2^w), and yet has 64-bit strength and a period of 2^64 - 1.

use crate::error::Error;
use crate::field::Field;

/// A tower of 64 bits over GF(2^w), w = 4, 8, 16 or 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tower {
    base: Field,
    /// The polynomial in Y has coefficients 1 and 2 only; these are the places of the ones, without the
    /// leading term, bit i·w standing for Y^i.
    ones: u64,
    /// The places of the twos.
    twos: u64,
}

impl Tower {
    /// The tower over `base`.
    ///
    /// # Errors
    /// [`Error::NoSignatures`] for a base that has no tower here.
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
        let w = self.base.w();
        (0..64 / w).fold(0, |scaled, i| {
            let coefficient = a >> (i * w) & self.base.mask();
            scaled | self.base.mul(coefficient, constant) << (i * w)
        })
    }

    /// Product with Y, which is primitive: the coefficient that overflows comes back times the polynomial.
    /// An integer product with places sets a copy at each of them.
    pub fn times_y(self, a: u64) -> u64 {
        let w = self.base.w();
        let overflow = a >> (64 - w);
        // Twice the coefficient, reduced without a branch: what blocks hold cannot be predicted.
        let polynomial = 1 << w | self.base.polynomial();
        let doubled = (overflow << 1) ^ ((overflow >> (w - 1)) * polynomial);
        (a << w) ^ (overflow * self.ones) ^ (doubled * self.twos)
    }

    /// Product of two elements.
    pub fn mul(self, a: u64, b: u64) -> u64 {
        let w = self.base.w();
        (0..64 / w).rev().fold(0, |sum, i| self.times_y(sum) ^ self.scale(a, b >> (i * w) & self.base.mask()))
    }

    /// `a` to the power `exponent`.
    pub fn pow(self, a: u64, exponent: u64) -> u64 {
        crate::field::reference::pow_by(a, exponent, |a, b| self.mul(a, b))
    }
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
        }
    }
}
