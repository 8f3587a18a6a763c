//! Sizes, times and percentages in text form. The TOML reader adds line and column to errors.

use crate::format::header::MAX_COLUMNS;
use gabion_engine::Code;
use serde::{Deserialize, Deserializer, de::Error};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Splits text into number and unit.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..digits].parse().ok()?, text[digits..].trim_start()))
}

/// Units with their multiples of the smallest one.
type Units = &'static [(&'static str, u64)];

fn scaled(text: &str, units: Units) -> Option<u64> {
    let (number, unit) = split(text)?;
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// Formats with the largest unit that divides the value.
fn shown(f: &mut fmt::Formatter<'_>, value: u64, units: Units) -> fmt::Result {
    let fits =
        |(name, factor): &&(&str, u64)| !name.is_empty() && value.is_multiple_of(*factor) && value >= *factor;
    match units.iter().rev().find(fits) {
        Some((name, factor)) => write!(f, "{}{name}", value / factor),
        None => write!(f, "{value}"),
    }
}

const SIZES: Units = &[
    ("", 1),
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
];

const TIMES: Units = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 7 * 86400)];

/// Longest span: longer ones are not between any two timestamps of files.
const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// Size in bytes: 65536, 64KiB, 1GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

/// Rate in bytes per second: 200MiB/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Time span: 90s, 10m, 12h, 30d, 2w.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurationText(pub Duration);

/// Percentage: 20%.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u8);

/// Identity of a code.
#[derive(Clone)]
pub(super) struct CodeText(pub(super) Code);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        scaled(text, SIZES).map(Size).ok_or_else(|| format!("{text:?} is no size: write 65536, 64KiB, 1GiB"))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let size = text.strip_suffix("/s").and_then(|size| scaled(size, SIZES)).filter(|&rate| rate > 0);
        size.map(Rate).ok_or_else(|| format!("{text:?} is no rate: write 200MiB/s"))
    }
}

impl FromStr for DurationText {
    type Err = String;

    fn from_str(text: &str) -> Result<DurationText, String> {
        let span = scaled(text, TIMES).map(Duration::from_secs).filter(|span| *span <= LONGEST);
        span.map(DurationText).ok_or_else(|| format!("{text:?} is no time: write 90s, 10m, 12h, 30d, 2w"))
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Percent, String> {
        let share = split(text).filter(|(share, unit)| *share <= 100 && matches!(*unit, "%" | ""));
        share.map(|(share, _)| Percent(share as u8)).ok_or_else(|| format!("{text:?} is no share: write 20%"))
    }
}

impl Percent {
    /// True if `part` of `whole` is more than this percentage.
    pub fn is_exceeded(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 100 > u128::from(whole) * u128::from(self.0)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, self.0, SIZES)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        shown(f, self.0.as_secs(), TIMES)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(from: D) -> Result<T, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    text.parse().map_err(D::Error::custom)
}

macro_rules! read_from_text {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                parsed(from)
            }
        }
    )*};
}

read_from_text!(Size, Rate, DurationText, Percent);

impl<'de> Deserialize<'de> for CodeText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CodeText, D::Error> {
        usable(parsed(from)?).map(CodeText).map_err(D::Error::custom)
    }
}

/// A list that must not be empty: an empty list would match everything, which nobody intends.
pub(super) fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(from)?;
    match list.is_empty() {
        true => Err(D::Error::custom("an empty list: leave it out, or name what it is about")),
        false => Ok(list),
    }
}

/// Error for a code that cannot protect files.
#[derive(Debug, thiserror::Error)]
#[error("{0}: a code needs redundancy and at most {MAX_COLUMNS} columns")]
pub struct Unusable(Code);

/// Checks that a code can protect files.
///
/// # Errors
/// [`Unusable`].
pub fn usable(code: Code) -> Result<Code, Unusable> {
    if code.m() > 0 && code.blocks() <= MAX_COLUMNS { Ok(code) } else { Err(Unusable(code)) }
}
