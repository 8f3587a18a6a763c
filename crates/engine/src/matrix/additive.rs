//! The constants of additive FFTs over all of GF(2^16), where every point is its own number (see [`cosets`](super::cosets)): a polynomial of degree
//! below n = 2^L is a sum of c_i · X_i, where X_i is the product of s_j over the bits j of i, and
//!
//! ```text
//! s_j(x) = W_h(x) / W_h(h)     h = 2^j
//! ```
//!
//! so that a butterfly at distance h in a block that starts at x has the factor s_j(x). W_h is linear over GF(2); what it is at single bits says
//! everything. Its derivative is the product of all non-zero v below h, for which p_j stands here, and so that of s_j is the constant d_j =
//! p_j / W_h(h).

use crate::field::Field;
use std::sync::OnceLock;

/// Bits of a symbol.
const W: usize = 16;

/// The constants of GF(2^16).
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
    /// W_h(x) / p_j at single bits.
    scales: [u16; W],
}

impl Additive {
    /// Those of GF(2^16), made on first use and kept.
    pub(crate) fn of_gf16() -> &'static Additive {
        static CONSTANTS: OnceLock<Additive> = OnceLock::new();
        CONSTANTS.get_or_init(|| Additive::new(Field::GF16))
    }

    fn new(field: Field) -> Additive {
        let quotients = |images: &[u64; W], divisor: u64| -> [u16; W] {
            let inverse = field.inv(divisor).expect("W_h(h) and products of non-zero points are not zero");
            images.map(|image| field.mul(image, inverse) as u16)
        };
        let mut images: [u64; W] = std::array::from_fn(|bit| 1 << bit);
        let (mut nonzero, mut levels) = (1, Vec::with_capacity(W + 1));
        for j in 0..=W {
            // Beyond the last level there is no butterfly, but a coset: the whole field.
            let step = images.get(j).copied().unwrap_or(1);
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

    /// W_n(x) / p, n = 2^log: what the values on a coset at x of the polynomials that are 1 at one point p of 0..n and 0 at the others are, times
    /// x + p. The same holds with the coset and 0..n exchanged.
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
        let (additive, cosets) = (Additive::of_gf16(), Cosets::of(Field::GF16));
        for (level, at) in [(0, 0), (0, 2), (0, 0xabce), (1, 0x1234), (3, 0xfff0), (6, 0x8000), (7, 0x4200)] {
            let factor = additive.factor(level, at);
            assert_eq!(u64::from(factor), cosets.twiddle(1 << level, at as u64), "{level} {at:x}");
        }
        for (log, at) in [(0, 1), (1, 6), (4, 0x30), (6, 0xff40), (8, 0x0100)] {
            assert_eq!(additive.scale(log, at), cosets.scale(1 << log, at), "{log} {at:x}");
        }
    }

    /// s_j is a polynomial whose derivative is its coefficient of x: the sum of s_j(x) / x over the points x of a subspace that is
    /// large enough, but for zero, since the powers of x sum up to zero there unless they are constant.
    #[test]
    fn derivatives_are_the_coefficients_of_x() {
        let additive = Additive::of_gf16();
        for level in 0..W {
            let quotient = |x: u64| {
                let [low, high] = &additive.levels[level].factors;
                let value = low[x as usize & 255] ^ high[x as usize >> 8];
                Field::GF16.div(u64::from(value), x).unwrap()
            };
            let sum = (1..=Field::GF16.mask()).fold(0, |sum, x| sum ^ quotient(x));
            assert_eq!(sum, u64::from(additive.derivative(level)), "{level}");
        }
    }
}
