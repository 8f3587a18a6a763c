//! Reference arithmetic of a field: short, slow, never optimised. All other methods are compared with it.

use super::Field;

/// Product by shift and add: for every bit of `b`, add `a` times that power of x.
pub fn mul(field: Field, a: u64, b: u64) -> u64 {
    let (mut shifted, mut sum) = (a, 0);
    for bit in 0..field.w() {
        if b >> bit & 1 == 1 {
            sum ^= shifted;
        }
        shifted = times_x(field, shifted);
    }
    sum
}

/// Product with x: shift, and subtract the polynomial where the degree reached w.
pub fn times_x(field: Field, a: u64) -> u64 {
    let overflows = a >> (field.w() - 1) & 1 == 1;
    let shifted = (a << 1) & field.mask();
    if overflows { shifted ^ field.polynomial() } else { shifted }
}

/// a^exponent by repeated squaring.
pub fn pow(field: Field, a: u64, exponent: u64) -> u64 {
    pow_by(a, exponent, |a, b| mul(field, a, b))
}

/// Repeated squaring with any multiplication.
pub(crate) fn pow_by(a: u64, mut exponent: u64, mul: impl Fn(u64, u64) -> u64) -> u64 {
    let (mut square, mut product) = (a, 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            product = mul(product, square);
        }
        square = mul(square, square);
        exponent >>= 1;
    }
    product
}

/// The inverse by Fermat: a^(2^w - 2); `None` for zero.
pub fn inv(field: Field, a: u64) -> Option<u64> {
    (a != 0).then(|| pow(field, a, field.mask() - 1))
}
