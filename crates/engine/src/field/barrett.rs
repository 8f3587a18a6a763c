//! Multiplication as a carry-less product and a Barrett reduction (thesis 3.1).
//!
//! With c = a × b of up to 2w bits, c = c_high · x^w + c_low, the remainder modulo
//! p = x^w + p_low is
//!
//! ```text
//! q = high_w(c_high × q_plus)          q_plus = x^2w div p, degree w
//! r = c_low ^ low_w(q × p_low)
//! ```
//!
//! The quotient q is exact, because addition of polynomials has no carries.

use super::Field;

/// The constants of one field's reduction.
#[derive(Debug, Clone, Copy)]
pub struct Barrett {
    w: u32,
    mask: u64,
    p_low: u64,
    /// x^2w div p without its leading term x^w.
    q_low: u64,
}

impl Barrett {
    /// The constants for `field`.
    pub const fn new(field: Field) -> Barrett {
        let (w, p_low) = (field.w(), field.polynomial());
        // Long division of x^2w by p. After the first step the quotient has x^w and the
        // remainder is p_low · x^w; the w steps left give q_low from the top bit down.
        let (mut remainder, mut q_low, mut step) = (p_low, 0, 0);
        while step < w {
            let top = remainder >> (w - 1) & 1;
            q_low = q_low << 1 | top;
            remainder = (remainder << 1) & field.mask();
            if top == 1 {
                remainder ^= p_low;
            }
            step += 1;
        }
        Barrett { w, mask: field.mask(), p_low, q_low }
    }

    /// The constants for `field`, precomputed for the fields without logarithm tables: the division costs more than a
    /// product.
    pub const fn of(field: Field) -> Barrett {
        match field.w() {
            32 => const { Barrett::new(Field::GF32) },
            64 => const { Barrett::new(Field::GF64) },
            _ => Barrett::new(field),
        }
    }

    /// Product of two elements.
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        self.reduce(carryless(a, b))
    }

    /// Remainder of a polynomial of degree below 2w.
    pub fn reduce(&self, c: u128) -> u64 {
        let (high, low) = ((c >> self.w) as u64, c as u64 & self.mask);
        let quotient = high ^ (carryless(high, self.q_low) >> self.w) as u64;
        low ^ (carryless(quotient, self.p_low) as u64 & self.mask)
    }
}

/// Carry-less product of two polynomials over GF(2).
pub fn carryless(a: u64, b: u64) -> u128 {
    let (mut sum, mut rest) = (0, b);
    while rest != 0 {
        sum ^= u128::from(a) << rest.trailing_zeros();
        rest &= rest - 1;
    }
    sum
}
