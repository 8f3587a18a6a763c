//! Exact rational numbers, and the few functions on them that round.
//!
//! Rates are rational numbers. Only powers and exponentials are rounded, to [`BITS`] significant bits, with formulas
//! that avoid cancellation, so that probabilities of 1e-300 have as many correct digits as those of one half.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Pow, Signed, ToPrimitive, Zero};

/// An exact rational number.
pub type Rational = BigRational;

/// Significant bits of rounded results: about 77 decimal digits.
pub const BITS: u64 = 256;

/// Largest accepted power of ten.
const MOST_EXPONENT: i64 = 1000;

/// Reason why a text is not a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumberError {
    /// Invalid syntax.
    #[error("'{0}' is not a decimal number")]
    Syntax(String),
    /// Out of range.
    #[error("'{0}' is beyond 1e{MOST_EXPONENT}")]
    Range(String),
}

/// An integer.
pub fn whole(number: u64) -> Rational {
    Rational::from_integer(BigInt::from(number))
}

/// A fraction. The denominator is not 0.
pub(crate) fn fraction(numerator: u64, denominator: u64) -> Rational {
    Rational::new(BigInt::from(numerator), BigInt::from(denominator))
}

/// Parses a decimal number such as 12, 0.003 or 1e-15 exactly.
///
/// # Errors
/// Text that is not a number, including "nan" and "inf".
pub fn decimal(text: &str) -> Result<Rational, NumberError> {
    let syntax = || NumberError::Syntax(text.to_owned());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| syntax())?),
        None => (text, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (before, after) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{before}{after}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax());
    }
    if exponent.abs() > MOST_EXPONENT || all.len() as i64 > MOST_EXPONENT {
        return Err(NumberError::Range(text.to_owned()));
    }
    let number = BigInt::parse_bytes(all.as_bytes(), 10).ok_or_else(syntax)?;
    let value = Rational::from_integer(if negative { -number } else { number });
    Ok(value * power_of_ten(exponent - after.len() as i64))
}

fn power_of_ten(exponent: i64) -> Rational {
    let power = Rational::from_integer(Pow::pow(BigInt::from(10), exponent.unsigned_abs()));
    if exponent < 0 { power.recip() } else { power }
}

/// The nearest floating point number.
pub fn float(value: &Rational) -> f64 {
    value.to_f64().unwrap_or(f64::NAN)
}

/// A non-negative number truncated to [`BITS`] bits: mantissa · 2^exponent. Fractions would be reduced after every
/// operation, which costs more than the operation.
#[derive(Clone)]
struct Binary {
    mantissa: BigInt,
    exponent: i64,
}

fn shifted(number: &BigInt, by: i64) -> BigInt {
    if by < 0 { number >> by.unsigned_abs() } else { number << by.unsigned_abs() }
}

impl Binary {
    fn new(mantissa: BigInt, exponent: i64) -> Binary {
        let excess = (mantissa.bits() as i64 - BITS as i64).max(0);
        Binary { mantissa: shifted(&mantissa, -excess), exponent: exponent + excess }
    }

    fn quotient(numerator: &BigInt, denominator: &BigInt) -> Binary {
        // With this shift the quotient has BITS or BITS + 1 bits, or is exact.
        let shift = (BITS as i64 + 1 + denominator.bits() as i64 - numerator.bits() as i64).max(0);
        Binary::new(shifted(numerator, shift) / denominator, -shift)
    }

    fn of(value: &Rational) -> Binary {
        Binary::quotient(value.numer(), value.denom())
    }

    fn one() -> Binary {
        Binary { mantissa: BigInt::one(), exponent: 0 }
    }

    fn times(&self, other: &Binary) -> Binary {
        Binary::new(&self.mantissa * &other.mantissa, self.exponent + other.exponent)
    }

    fn over(&self, divisor: u64) -> Binary {
        let divided = Binary::quotient(&self.mantissa, &BigInt::from(divisor));
        Binary { exponent: divided.exponent + self.exponent, ..divided }
    }

    /// Sum, or difference for `minus`; the result must not be negative.
    fn plus(&self, other: &Binary, minus: bool) -> Binary {
        let least = self.exponent.min(other.exponent);
        let (a, b) = (
            shifted(&self.mantissa, self.exponent - least),
            shifted(&other.mantissa, other.exponent - least),
        );
        Binary::new(if minus { a - b } else { a + b }, least)
    }

    fn rest(&self) -> Binary {
        Binary::one().plus(self, true)
    }

    /// Probability that at least one of two independent events happens.
    fn either(&self, other: &Binary) -> Binary {
        self.plus(&other.times(&self.rest()), false)
    }

    fn rational(&self) -> Rational {
        // A fraction with an odd numerator over a power of two is reduced.
        let zeros = self.mantissa.trailing_zeros().unwrap_or(0) as i64;
        let (odd, exponent) = (shifted(&self.mantissa, -zeros), self.exponent + zeros);
        match self.mantissa.is_zero() {
            true => Rational::zero(),
            false if exponent >= 0 => Rational::from_integer(shifted(&odd, exponent)),
            false => Rational::new_raw(odd, shifted(&BigInt::one(), -exponent)),
        }
    }
}

/// Truncates a non-negative value to [`BITS`] significant bits.
pub fn rounded(value: &Rational) -> Rational {
    rounded_quotient(value.numer(), value.denom())
}

/// The same for a fraction that need not be reduced.
pub(crate) fn rounded_quotient(numerator: &BigInt, denominator: &BigInt) -> Rational {
    Binary::quotient(numerator, denominator).rational()
}

/// The probability that at least one of `count` independent events of the given `probability` happens: 1 - (1 - p)^n.
///
/// Doubling works on the probability itself, p ← p (2 - p): the power of a number just below 1 would lose precision.
pub fn any_of(probability: &Rational, count: &BigInt) -> Rational {
    let probability = Binary::of(probability);
    let mut result = Binary { mantissa: BigInt::zero(), exponent: 0 };
    for bit in (0..count.bits()).rev() {
        result = result.either(&result);
        if count.bit(bit) {
            result = result.either(&probability);
        }
    }
    result.rational()
}

/// 1 - e^-x for non-negative x: the probability that an event of rate x happens in one unit of time.
pub fn chance(exponent: &Rational) -> Rational {
    if exponent.is_zero() {
        return Rational::zero();
    }
    // Beyond this it differs from 1 by less than one part in 2^BITS.
    if *exponent > whole(BITS) {
        return Rational::one();
    }
    let (mut small, mut doublings) = (Binary::of(exponent), 0);
    // Halve until the value is at most one half.
    while small.mantissa.bits() as i64 + small.exponent > -1 {
        small.exponent -= 1;
        doublings += 1;
    }
    // x (1 - x/2 (1 - x/3 (1 - …))): no cancellation, and sixty factors are more than enough.
    let mut sum = Binary::one();
    for index in (2..=60u64).rev() {
        sum = small.times(&sum).over(index).rest();
    }
    sum = small.times(&sum);
    for _ in 0..doublings {
        sum = sum.either(&sum);
    }
    sum.rational()
}

/// Decimal digits of a positive value without leading zeros, and the power of ten of the first digit.
fn digits_of(value: &Rational, digits: usize) -> (BigInt, i64) {
    let bits = value.numer().bits() as f64 - value.denom().bits() as f64;
    let mut exponent = (bits * std::f64::consts::LOG10_2).floor() as i64;
    let least = Pow::pow(BigInt::from(10), digits as u64 - 1);
    loop {
        let scaled = value * power_of_ten(digits as i64 - 1 - exponent);
        let number = (scaled + fraction(1, 2)).floor().to_integer();
        if number < least {
            exponent -= 1;
        } else if number >= &least * 10 {
            exponent += 1;
        } else {
            return (number, exponent);
        }
    }
}

/// Formats a value with `digits` significant digits, at least one: 1.234e-15, or 12.34 where that is as short.
pub fn shown(value: &Rational, digits: usize) -> String {
    if value.is_zero() {
        return "0".to_owned();
    }
    let sign = if value.is_negative() { "-" } else { "" };
    let digits = digits.max(1);
    let (number, exponent) = digits_of(&value.abs(), digits);
    let text = number.to_string();
    if (-3..digits as i64).contains(&exponent) {
        let plain = match usize::try_from(exponent) {
            Ok(whole) => format!("{}.{}", &text[..=whole], &text[whole + 1..]),
            Err(_) => format!("0.{}{text}", "0".repeat((-exponent - 1) as usize)),
        };
        return format!("{sign}{}", plain.trim_end_matches('.'));
    }
    let rest = &text[1..];
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{rest}e{exponent}", &text[..1])
}

/// The decimal logarithm of a positive value of any size, as floating point.
pub fn log10(value: &Rational) -> f64 {
    let (number, exponent) = digits_of(value, 17);
    number.to_f64().unwrap_or(f64::NAN).log10() - 16.0 + exponent as f64
}

/// The least common multiple of all denominators.
pub(crate) fn common_denominator<'a>(values: impl Iterator<Item = &'a Rational>) -> BigInt {
    values.fold(BigInt::one(), |common, value| common.lcm(value.denom()))
}

/// True for a negative value.
pub(crate) fn is_negative(value: &Rational) -> bool {
    value.numer().sign() == Sign::Minus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_without_rounding() {
        assert_eq!(decimal("12").unwrap(), whole(12));
        assert_eq!(decimal("0.25").unwrap(), fraction(1, 4));
        assert_eq!(decimal("1e-15").unwrap(), fraction(1, 1_000_000_000_000_000));
        assert_eq!(decimal("-2.5e1").unwrap(), -whole(25));
        assert_eq!(decimal(".5").unwrap(), fraction(1, 2));
        for text in ["", ".", "nan", "inf", "1e", "e5", "1,5", "0x10", "--1", "1 000"] {
            assert_eq!(decimal(text), Err(NumberError::Syntax(text.to_owned())), "{text}");
        }
        assert_eq!(decimal("1e9999999"), Err(NumberError::Range("1e9999999".into())));
    }

    #[test]
    fn numbers_are_formatted() {
        let written = |text: &str, digits| shown(&decimal(text).unwrap(), digits);
        assert_eq!(written("0", 4), "0");
        assert_eq!(written("12", 4), "12.00");
        assert_eq!(written("999.96", 4), "1000");
        assert_eq!(written("9999.96", 4), "1.000e4");
        assert_eq!(written("0.0012345", 3), "0.00123");
        assert_eq!(written("0.00012345", 3), "1.23e-4");
        assert_eq!(written("-1e-300", 1), "-1e-300");
        assert_eq!(shown(&fraction(1, 3), 12), "0.333333333333");
    }

    #[test]
    fn logarithms_exceed_the_range_of_floats() {
        assert_eq!(log10(&decimal("1e-900").unwrap()), -900.0);
        assert!((log10(&decimal("2e500").unwrap()) - 500.301_029_995_664).abs() < 1e-9);
    }

    /// Compared with floating point where that is accurate, and with the definition where the power can be multiplied
    /// out.
    #[test]
    fn powers_and_exponentials_are_right() {
        let p = fraction(1, 7);
        for count in [0u64, 1, 2, 3, 10, 25] {
            let power = (0..count).fold(Rational::one(), |power, _| power * (Rational::one() - &p));
            let error = any_of(&p, &BigInt::from(count)) - (Rational::one() - power);
            assert!(error.abs() < power_of_ten(-70), "{count}");
        }
        for (rate, count) in [(1e-15_f64, 192_000_000_000_000_u64), (1e-15, 1), (1e-9, 12345), (0.5, 8)] {
            let ours = float(&any_of(&decimal(&format!("{rate:e}")).unwrap(), &BigInt::from(count)));
            let theirs = -(count as f64 * (-rate).ln_1p()).exp_m1();
            assert!((ours / theirs - 1.0).abs() < 1e-13, "{rate} {count}: {ours} {theirs}");
        }
        for text in ["1e-30", "0.001", "0.5", "0.7", "3", "50", "200", "1000"] {
            let exponent: f64 = text.parse().unwrap();
            let ours = float(&chance(&decimal(text).unwrap()));
            assert!((ours / -(-exponent).exp_m1() - 1.0).abs() < 1e-14, "{text}: {ours}");
        }
        assert_eq!(shown(&chance(&decimal("1e-900").unwrap()), 3), "1.00e-900");
        assert!(chance(&Rational::zero()).is_zero());
    }

    #[test]
    fn rounding_keeps_the_first_bits() {
        let third = fraction(1, 3) * power_of_ten(-200);
        let cut = rounded(&third);
        assert!(cut.numer().bits() <= BITS);
        assert!((&third - &cut) / &third < power_of_ten(-76));
        let large = power_of_ten(500) / whole(3);
        assert!((&large - rounded(&large)) / &large < power_of_ten(-76));
    }
}
