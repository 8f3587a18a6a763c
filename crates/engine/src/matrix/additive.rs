//! Constants of additive FFTs over all of GF(2^8) or GF(2^16), where every point is its own number (see
//! [`cosets`](super::cosets)): a polynomial of degree below n = 2^L is a sum of c_i · X_i, where X_i is the product of
//! s_j over the bits j of i, and
//!
//! ```text
//! s_j(x) = W_h(x) / W_h(h)     h = 2^j
//! ```
//!
//! so that a butterfly at distance h in a block that starts at x has the factor s_j(x). W_h is linear over GF(2), so
//! its values at single bits determine it. Its derivative is p_j, the product of all non-zero v below h, so the
//! derivative of s_j is the constant d_j = p_j / W_h(h).

use crate::field::Field;
use std::sync::OnceLock;

/// Largest symbol, in bits.
const W: usize = 16;

/// The constants of one field.
#[derive(Debug)]
pub(crate) struct Additive {
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    /// s_j of the low byte and of the high byte of a number.
    factors: [[u16; 256]; 2],
    /// d_j.
    derivative: u16,
    /// W_h(x) / p_j at single bits; 0 for bits beyond the field.
    scales: [u16; W],
}

impl Additive {
    /// The constants of GF(2^8) or GF(2^16), computed on first use and cached.
    ///
    /// # Panics
    /// For any other field.
    pub(crate) fn of(field: Field) -> &'static Additive {
        static OF_GF8: OnceLock<Additive> = OnceLock::new();
        static OF_GF16: OnceLock<Additive> = OnceLock::new();
        let kept = match field {
            Field::GF8 => &OF_GF8,
            Field::GF16 => &OF_GF16,
            _ => panic!("transforms are over GF(2^8) and GF(2^16), not {field:?}"),
        };
        kept.get_or_init(|| Additive::new(field))
    }

    fn new(field: Field) -> Additive {
        let quotients = |images: &[u64; W], divisor: u64| -> [u16; W] {
            let inverse = field.inv(divisor).expect("W_h(h) and products of non-zero points are not zero");
            images.map(|image| field.mul(image, inverse) as u16)
        };
        let w = field.w() as usize;
        let mut images: [u64; W] = std::array::from_fn(|bit| (1 << bit) & field.mask());
        let (mut nonzero, mut levels) = (1, Vec::with_capacity(w + 1));
        for j in 0..=w {
            // The last level has no butterfly, only a coset: the whole field.
            let step = if j < w { images[j] } else { 1 };
            let bits = quotients(&images, step);
            let factors = std::array::from_fn(|byte| {
                std::array::from_fn(|value| linear(&bits[8 * byte..][..8], value))
            });
            let derivative = field.div(nonzero, step).expect("as above") as u16;
            levels.push(Level { factors, derivative, scales: quotients(&images, nonzero) });
            nonzero = field.mul(nonzero, step);
            images = images.map(|image| field.mul(image, image ^ step));
        }
        Additive { levels }
    }

    /// The factor of a butterfly at distance 2^level in the block that starts at `at`.
    #[inline(always)]
    pub(crate) fn factor(&self, level: usize, at: usize) -> u16 {
        let [low, high] = &self.levels[level].factors;
        low[at & 255] ^ high[at >> 8 & 255]
    }

    /// The derivative of s_j.
    #[inline(always)]
    pub(crate) fn derivative(&self, level: usize) -> u16 {
        self.levels[level].derivative
    }

    /// W_n(x) / p, n = 2^log: the value at x of the polynomial that is 1 at one point p of 0..n and 0 at the others,
    /// times x + p. The same holds with the coset and 0..n exchanged.
    pub(crate) fn scale(&self, log: usize, at: u64) -> u64 {
        u64::from(linear(&self.levels[log].scales, at as usize))
    }
}

/// The sum of the images of the bits that are set.
fn linear(images: &[u16], number: usize) -> u16 {
    let set = images.iter().enumerate().filter(|(bit, _)| number >> bit & 1 == 1);
    set.fold(0, |sum, (_, image)| sum ^ image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::cosets::Cosets;

    #[test]
    fn factors_are_those_of_cosets() {
        for field in [Field::GF8, Field::GF16] {
            let (additive, cosets) = (Additive::of(field), Cosets::of(field));
            let points = [(0, 0), (0, 2), (0, 0xabce), (1, 0x1234), (3, 0xfff0), (6, 0x8080), (7, 0x4200)];
            for (level, at) in points.map(|(level, at)| (level, at & field.mask() as usize)) {
                let factor = additive.factor(level, at);
                assert_eq!(
                    u64::from(factor),
                    cosets.twiddle(1 << level, at as u64),
                    "{field:?} {level} {at:x}"
                );
            }
            let starts = [(0, 1), (1, 6), (4, 0x30), (6, 0xff40), (7, 0x0180)];
            for (log, at) in starts.map(|(log, at)| (log, at & field.mask())) {
                assert_eq!(additive.scale(log, at), cosets.scale(1 << log, at), "{field:?} {log} {at:x}");
            }
        }
    }

    /// The derivative of s_j is its coefficient of x: the sum of s_j(x) / x over the non-zero points x of a large
    /// enough subspace, because all non-constant powers of x sum to zero there.
    #[test]
    fn derivatives_are_the_coefficients_of_x() {
        for field in [Field::GF8, Field::GF16] {
            let additive = Additive::of(field);
            for level in 0..field.w() as usize {
                let quotient = |x: u64| field.div(u64::from(additive.factor(level, x as usize)), x).unwrap();
                let sum = (1..=field.mask()).fold(0, |sum, x| sum ^ quotient(x));
                assert_eq!(sum, u64::from(additive.derivative(level)), "{field:?} {level}");
            }
        }
    }
}
