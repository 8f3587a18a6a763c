//! The second point of independent signatures, and sums of symbols with its powers.
//!
//! Signatures at Y and Y² have a weakness. If all changed symbols of a block differ by the same value e, the components
//! change by e · S(Y) and e · S(Y²), S a polynomial with coefficients 0 and 1; since S(Y²) = S(Y)², the second follows
//! from the first, and such a change is undetected with probability 2^-64 instead of 2^-128. The same holds for every
//! point Y^(2^i), and for Y^-1 where the changed positions are symmetric. Other points do not have this weakness. The
//! point P used here is a root of
//!
//! ```text
//! Z^8 + Z^7 + Z + 2^112
//! ```
//!
//! over GF(2^8): it has the same few terms as the polynomial of Y, so that kernels divide by it at the same cost. (Y^3
//! has no such polynomial.) P generates all non-zero elements, P / Y has order (2^64 - 1) / 3, so any change of two
//! symbols is detected with certainty.

use crate::tower::Tower;

/// P; byte i is the coefficient of Y^i.
pub(super) const POINT: u64 = 0x00f3_739c_1f29_2b7f;

/// Symbols of a remainder: the degree of the polynomial.
const DEGREE: usize = 8;

/// Maximum symbols of the lanes of a kernel: eight registers of 64 bytes.
const MOST: usize = 64;

/// Products with P.
pub(super) struct Products(Box<[[u64; 16]; 16]>);

impl Products {
    pub(super) fn new(tower: Tower) -> Products {
        let product = |nibble: usize, value: usize| tower.mul((value as u64) << (4 * nibble), POINT);
        Products(Box::new(std::array::from_fn(|nibble| std::array::from_fn(|value| product(nibble, value)))))
    }

    pub(super) fn times(&self, a: u64) -> u64 {
        let tables = self.0.iter().enumerate();
        tables.fold(0, |sum, (nibble, table)| sum ^ table[(a >> (4 * nibble) & 15) as usize])
    }

    /// `a` times P to the power `exponent`.
    pub(super) fn times_power(&self, a: u64, exponent: usize) -> u64 {
        (0..exponent).fold(a, |a, _| self.times(a))
    }

    /// The sum of symbols, symbol j times P^j.
    pub(super) fn folded(&self, symbols: &[u8]) -> u64 {
        let (symbols, rest) = symbols.as_chunks::<8>();
        assert!(rest.is_empty(), "a symbol has 8 bytes, not {}", rest.len());
        let value = |symbols: &[u64]| symbols.iter().rev().fold(0, |sum, &symbol| self.times(sum) ^ symbol);
        let mut values = [0; MOST];
        if symbols.len() > MOST || !symbols.len().is_power_of_two() {
            return symbols.iter().rev().fold(0, |sum, symbol| self.times(sum) ^ u64::from_le_bytes(*symbol));
        }
        values.iter_mut().zip(symbols).for_each(|(value, symbol)| *value = u64::from_le_bytes(*symbol));
        // For n a power of two, the n-th power of the polynomial has as few terms: Z^8 + Z^7 + Z + 2^(112 n) with Z =
        // P^n.
        if symbols.len() > 32 {
            halve::<4>(&mut values, |a| a ^ times_x::<3>(a) ^ times_x::<4>(a));
        }
        if symbols.len() > 16 {
            halve::<2>(&mut values, |a| times_x::<1>(a) ^ times_x::<4>(a));
        }
        if symbols.len() > 8 {
            halve::<1>(&mut values, |a| a ^ times_x::<3>(times_x::<4>(a)));
        }
        value(&values[..symbols.len().min(DEGREE)])
    }
}

/// Divides 16 · N symbols by the polynomial in Z = P^N; the remainder has 8 · N symbols. Bytes of a symbol are scaled
/// one by one, independent of the bases of symbols and of P.
fn halve<const N: usize>(values: &mut [u64; MOST], scale: impl Fn(u64) -> u64) {
    for power in (DEGREE..2 * DEGREE).rev() {
        for at in 0..N {
            let top = values[power * N + at];
            values[(power - 1) * N + at] ^= top;
            values[(power + 1 - DEGREE) * N + at] ^= top;
            values[(power - DEGREE) * N + at] ^= scale(top);
        }
    }
}

/// Every byte times x^N in GF(2^8), N up to 4: the overflow is added back times x^4 + x^3 + x^2 + 1, and does not
/// overflow again.
fn times_x<const N: u32>(a: u64) -> u64 {
    const { assert!(N <= 4, "a second overflow would be lost") };
    const BYTES: u64 = 0x0101_0101_0101_0101;
    let over = a >> (8 - N) & (BYTES * ((1 << N) - 1));
    (a & (BYTES * (0xff >> N))) << N ^ over ^ over << 2 ^ over << 3 ^ over << 4
}
