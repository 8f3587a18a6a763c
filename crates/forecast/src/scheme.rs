//! Codes and their disks.

use crate::exact::{Rational, fraction};
use std::fmt;

/// Maximum disks of one code or pool.
pub const MAX_DISKS: u32 = 1024;

/// A code k + m on disks. Replication is 1 + m.
///
/// The blocks of a stripe are on k + m different disks of `disks`. With more disks, stripes are assumed to be spread so
/// that any m + 1 disks share blocks of some stripe, as in pools with many files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scheme {
    data: u32,
    redundancy: u32,
    disks: u32,
    groups: u32,
}

/// Reason why a scheme is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// No data block.
    #[error("a code needs at least one data block")]
    NoData,
    /// Fewer disks than blocks.
    #[error("{disks} disks are too few for {data}+{redundancy}, which needs {}", data + redundancy)]
    Disks {
        /// Number of disks.
        disks: u32,
        /// Data blocks.
        data: u32,
        /// Redundancy blocks.
        redundancy: u32,
    },
    /// Too many disks.
    #[error("{0} disks are more than {MAX_DISKS}")]
    TooMany(u64),
    /// Disks that are not a multiple of the group size.
    #[error("{disks} disks do not make whole groups of {width}")]
    Uneven {
        /// Number of disks.
        disks: u32,
        /// Disks of a group.
        width: u32,
    },
    /// A text that is not a code.
    #[error("'{0}' is not a code: write 10+4, or 3x for three copies")]
    Syntax(String),
}

impl Scheme {
    /// A code on as many disks as it has blocks.
    ///
    /// # Errors
    /// See [`SchemeError`].
    pub fn new(data: u32, redundancy: u32) -> Result<Scheme, SchemeError> {
        if data == 0 {
            return Err(SchemeError::NoData);
        }
        let disks = u64::from(data) + u64::from(redundancy);
        let fits = u32::try_from(disks).ok().filter(|disks| *disks <= MAX_DISKS);
        let disks = fits.ok_or(SchemeError::TooMany(disks))?;
        Ok(Scheme { data, redundancy, disks, groups: 1 })
    }

    /// A code that tolerates `erasures` lost disks of `disks`.
    ///
    /// # Errors
    /// At least as many erasures as disks.
    pub fn tolerating(disks: u32, erasures: u32) -> Result<Scheme, SchemeError> {
        match disks.checked_sub(erasures) {
            Some(data) if data > 0 => Scheme::new(data, erasures),
            _ => Err(SchemeError::Disks { disks, data: 1, redundancy: erasures }),
        }
    }

    /// The same code spread over this many disks.
    ///
    /// # Errors
    /// Too few or too many disks.
    pub fn spread_over(self, disks: u32) -> Result<Scheme, SchemeError> {
        if disks > MAX_DISKS {
            return Err(SchemeError::TooMany(u64::from(disks)));
        }
        if disks < self.width() {
            return Err(SchemeError::Disks { disks, data: self.data, redundancy: self.redundancy });
        }
        Ok(Scheme { disks, groups: 1, ..self })
    }

    /// The same code on this many disks in independent groups of its width.
    ///
    /// # Errors
    /// Too few disks, or disks left over.
    pub fn grouped_on(self, disks: u32) -> Result<Scheme, SchemeError> {
        let scheme = self.spread_over(disks)?;
        let width = self.width();
        match disks % width {
            0 => Ok(Scheme { disks: width, groups: disks / width, ..scheme }),
            _ => Err(SchemeError::Uneven { disks, width }),
        }
    }

    /// Parses 10+4 or 3x.
    ///
    /// # Errors
    /// See [`SchemeError`].
    pub fn parse(text: &str) -> Result<Scheme, SchemeError> {
        let syntax = || SchemeError::Syntax(text.to_owned());
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| syntax());
        if let Some(copies) = text.strip_suffix('x') {
            let copies = number(copies)?;
            return Scheme::new(1, copies.checked_sub(1).ok_or_else(syntax)?);
        }
        let (data, redundancy) = text.split_once('+').ok_or_else(syntax)?;
        Scheme::new(number(data)?, number(redundancy)?)
    }

    /// Data blocks of a stripe, which is the number of blocks that a rebuild reads.
    pub fn data(self) -> u32 {
        self.data
    }

    /// Redundancy blocks of a stripe: erasures it tolerates.
    pub fn redundancy(self) -> u32 {
        self.redundancy
    }

    /// Blocks of a stripe.
    pub fn width(self) -> u32 {
        self.data + self.redundancy
    }

    /// Disks of one group.
    pub fn disks(self) -> u32 {
        self.disks
    }

    /// Number of independent groups.
    pub fn groups(self) -> u32 {
        self.groups
    }

    /// Redundancy per data: 0.4 for 10+4, 2 for three copies.
    pub fn overhead(self) -> Rational {
        fraction(u64::from(self.redundancy), u64::from(self.data))
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data {
            1 => f.pad(&format!("{}x", self.width())),
            _ => f.pad(&format!("{}+{}", self.data, self.redundancy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_and_written() {
        for text in ["10+4", "3x", "6+2", "1x", "5+0"] {
            assert_eq!(Scheme::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Scheme::parse("1+2").unwrap().to_string(), "3x");
        for text in ["", "10", "0x", "a+b", "-1+2", "4+", "3.5x"] {
            assert_eq!(Scheme::parse(text), Err(SchemeError::Syntax(text.to_owned())));
        }
        assert_eq!(Scheme::parse("0+3"), Err(SchemeError::NoData));
        assert_eq!(Scheme::parse("4000000000+4000000000"), Err(SchemeError::TooMany(8_000_000_000)));
        assert_eq!(Scheme::tolerating(3, 3), Err(SchemeError::Disks { disks: 3, data: 1, redundancy: 3 }));
        assert_eq!(Scheme::tolerating(3, 9), Err(SchemeError::Disks { disks: 3, data: 1, redundancy: 9 }));
    }

    #[test]
    fn disks_are_spread_or_grouped() {
        let code = Scheme::new(4, 2).unwrap();
        let spread = code.spread_over(24).unwrap();
        assert_eq!((spread.disks(), spread.groups()), (24, 1));
        let grouped = code.grouped_on(24).unwrap();
        assert_eq!((grouped.disks(), grouped.groups()), (6, 4));
        assert_eq!(code.grouped_on(25), Err(SchemeError::Uneven { disks: 25, width: 6 }));
        assert!(matches!(code.spread_over(5), Err(SchemeError::Disks { disks: 5, .. })));
    }
}
