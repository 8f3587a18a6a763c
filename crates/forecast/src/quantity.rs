//! Parser of quantities: 4TB, 12h, 2.12%, 1e-9/year.
//!
//! Not the parser of policies, whose sizes and times are whole numbers of bytes and seconds: data sheets of disks give
//! fractions, exponents, decimal units and years, and a forecast computes with them exactly.

use crate::exact::{NumberError, Rational, decimal, fraction, whole};
use crate::promise::HOURS_PER_YEAR;

/// Reason why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// An invalid number.
    #[error(transparent)]
    Number(#[from] NumberError),
    /// An unknown unit.
    #[error("unknown unit '{unit}' in '{text}'; known units: {known}")]
    Unit {
        /// The text.
        text: String,
        /// The unit.
        unit: String,
        /// The known units.
        known: String,
    },
}

/// A unit and its factor.
type Unit = (&'static str, Rational);

/// Splits number and unit: the unit is the trailing letters, so that the e of an exponent belongs to the number.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.rfind(|letter: char| letter.is_ascii_digit() || letter == '.').map_or(0, |at| at + 1);
    (text[..end].trim_end(), text[end..].trim_start())
}

fn scaled(text: &str, units: &[Unit]) -> Result<Rational, QuantityError> {
    let (number, unit) = split(text);
    // A text without a number is reported as an invalid number, not as an unknown unit.
    let value = decimal(if number.is_empty() { text } else { number })?;
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let known =
        || units.iter().map(|(name, _)| *name).filter(|name| !name.is_empty()).collect::<Vec<_>>().join(", ");
    let factor = factor.ok_or_else(|| QuantityError::Unit {
        text: text.to_owned(),
        unit: unit.to_owned(),
        known: known(),
    })?;
    Ok(value * factor)
}

/// Bytes: 4TB, 3.6TiB, 500GB. Without a unit they are bytes.
///
/// # Errors
/// See [`QuantityError`].
pub fn bytes(text: &str) -> Result<Rational, QuantityError> {
    let decimals = ["", "kB", "MB", "GB", "TB", "PB"].into_iter().enumerate();
    let binaries = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter().enumerate();
    let mut units: Vec<Unit> = decimals.map(|(index, name)| (name, whole(1000).pow(index as i32))).collect();
    units.extend(binaries.map(|(index, name)| (name, whole(1024).pow(index as i32))));
    scaled(text, &units)
}

/// Hours: 12h, 90min, 3d, 2w, 114y. Without a unit they are hours.
///
/// # Errors
/// See [`QuantityError`].
pub fn hours(text: &str) -> Result<Rational, QuantityError> {
    let units = [
        ("", whole(1)),
        ("h", whole(1)),
        ("s", fraction(1, 3600)),
        ("min", fraction(1, 60)),
        ("d", whole(24)),
        ("w", whole(168)),
        ("y", whole(HOURS_PER_YEAR)),
    ];
    scaled(text, &units)
}

/// A share: 2.12% or 0.0212.
///
/// # Errors
/// See [`QuantityError`].
pub fn share(text: &str) -> Result<Rational, QuantityError> {
    scaled(text, &[("", whole(1)), ("%", fraction(1, 100))])
}

/// A probability per year: 1e-9/year, or the same without "/year".
///
/// # Errors
/// See [`QuantityError`].
pub fn per_year(text: &str) -> Result<Rational, QuantityError> {
    scaled(
        text,
        &[
            ("", whole(1)),
            ("/year", whole(1)),
            ("/y", whole(1)),
            ("%", fraction(1, 100)),
            ("%/year", fraction(1, 100)),
        ],
    )
}

/// Errors per bit read: 1e-15, 1e-15/bit or 8e-15/B.
///
/// # Errors
/// See [`QuantityError`].
pub fn per_bit(text: &str) -> Result<Rational, QuantityError> {
    scaled(text, &[("", whole(1)), ("/bit", whole(1)), ("/B", fraction(1, 8)), ("/byte", fraction(1, 8))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_without_rounding() {
        assert_eq!(bytes("4TB").unwrap(), whole(4_000_000_000_000));
        assert_eq!(bytes("1.5 KiB").unwrap(), whole(1536));
        assert_eq!(bytes("4e12").unwrap(), whole(4_000_000_000_000));
        assert_eq!(hours("12").unwrap(), hours("12h").unwrap());
        assert_eq!(hours("90min").unwrap(), fraction(3, 2));
        assert_eq!(hours("2y").unwrap(), whole(17520));
        assert_eq!(share("2.12%").unwrap(), share("0.0212").unwrap());
        assert_eq!(per_year("1e-9/year").unwrap(), decimal("1e-9").unwrap());
        assert_eq!(per_bit("8e-15/B").unwrap(), per_bit("1e-15").unwrap());
    }

    #[test]
    fn invalid_quantities_are_refused_with_their_text() {
        for text in ["nan", "inf", "", "TB", "x5"] {
            assert!(matches!(bytes(text), Err(QuantityError::Number(_))), "{text}");
        }
        let wrong = hours("5 fortnights").unwrap_err().to_string();
        assert!(wrong.contains("fortnights") && wrong.contains("min"), "{wrong}");
        assert!(matches!(bytes("4tb"), Err(QuantityError::Unit { .. })));
    }
}
