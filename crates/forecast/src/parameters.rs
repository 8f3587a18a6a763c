//! What is known of the disks.

use crate::exact::{Rational, any_of, float, fraction, is_negative, shown, whole};
use num_bigint::BigInt;
use num_traits::{One, Zero};

/// Parameters as people know them. The default is what table 1-2 of the thesis gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Bytes of a disk.
    pub capacity: Rational,
    /// Mean hours between failures of a disk.
    pub failure_hours: Rational,
    /// Mean hours of a rebuild.
    pub rebuild_hours: Rational,
    /// Read errors per bit that is read.
    pub read_errors: Rational,
    /// The share of read errors that the disk does not report.
    pub silent: Rational,
}

impl Default for Given {
    fn default() -> Given {
        Given {
            capacity: whole(4_000_000_000_000),
            failure_hours: whole(1_000_000),
            rebuild_hours: whole(12),
            read_errors: fraction(1, 1_000_000_000_000_000),
            silent: fraction(1, 100),
        }
    }
}

/// Why disks cannot be as they are said to be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// Zero or less of what has to be more.
    #[error("{what} of {value} is not more than 0")]
    NotPositive {
        /// Which parameter.
        what: &'static str,
        /// What it was said to be.
        value: f64,
    },
    /// No probability.
    #[error("{what} of {value} is not between 0 and 1")]
    NoShare {
        /// Which parameter.
        what: &'static str,
        /// What it was said to be.
        value: f64,
    },
    /// So large or small that it is surely a slip.
    #[error("{what} of {value:e} is beyond what can be meant")]
    Beyond {
        /// Which parameter.
        what: &'static str,
        /// What it was said to be.
        value: f64,
    },
}

/// Parameters that can be computed with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters {
    given: Given,
}

impl Given {
    /// Checks that disks can be so.
    ///
    /// # Errors
    /// See [`ParameterError`].
    pub fn checked(self) -> Result<Parameters, ParameterError> {
        let positive = [
            ("a capacity", &self.capacity),
            ("a mean time between failures", &self.failure_hours),
            ("a rebuild time", &self.rebuild_hours),
        ];
        // Between a millionth of a unit and more bytes or hours than there will ever be.
        let most = whole(10).pow(30);
        for (what, value) in positive {
            if is_negative(value) || value.is_zero() {
                return Err(ParameterError::NotPositive { what, value: float(value) });
            }
            if *value > most || value.recip() > most {
                return Err(ParameterError::Beyond { what, value: float(value) });
            }
        }
        for (what, value) in
            [("a read error rate", &self.read_errors), ("a share of silent errors", &self.silent)]
        {
            if is_negative(value) || *value > Rational::one() {
                return Err(ParameterError::NoShare { what, value: float(value) });
            }
        }
        Ok(Parameters { given: self })
    }
}

impl Parameters {
    /// As they were given.
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// λ: failures of one disk per hour.
    pub fn failure_rate(&self) -> Rational {
        self.given.failure_hours.recip()
    }

    /// μ: rebuilds per hour.
    pub fn rebuild_rate(&self) -> Rational {
        self.given.rebuild_hours.recip()
    }

    /// Bits of a disk.
    pub(crate) fn bits(&self) -> BigInt {
        (&self.given.capacity * whole(8)).ceil().to_integer()
    }

    /// The probability of a read error while `disks` whole disks are read: h of the thesis for one, h_r for d - δ of them.
    pub fn read_error(&self, disks: u32) -> Rational {
        any_of(&self.given.read_errors, &(self.bits() * BigInt::from(disks)))
    }

    /// The same for so many bytes.
    pub(crate) fn read_error_in(&self, bytes: &Rational) -> Rational {
        any_of(&self.given.read_errors, &(bytes * whole(8)).ceil().to_integer())
    }

    /// In words, for people.
    pub fn words(&self) -> String {
        let terabytes = &self.given.capacity / whole(1_000_000_000_000);
        format!("disks of {} TB, {}", shown(&terabytes, 3), self.words_without_capacity())
    }

    /// The same where the capacity does not count.
    pub fn words_without_capacity(&self) -> String {
        let Given { failure_hours, rebuild_hours, read_errors, silent, .. } = &self.given;
        format!(
            "one failure in {} h ({} % per year), rebuilt in {} h, {} read errors per bit, {} % of them silent",
            shown(failure_hours, 7),
            shown(&(whole(8760 * 100) / failure_hours), 3),
            shown(rebuild_hours, 3),
            shown(read_errors, 2),
            shown(&(silent * whole(100)), 3),
        )
    }
}

/// The mean hours between failures of disks of which a share fails per year (equation 1.1 of the thesis, in hours).
///
/// # Errors
/// A share that is not above 0.
pub(crate) fn hours_of_share(share: &Rational) -> Result<Rational, ParameterError> {
    if is_negative(share) || share.is_zero() {
        return Err(ParameterError::NotPositive { what: "an annual failure rate", value: float(share) });
    }
    Ok(whole(8760) / share)
}

impl Given {
    /// With the mean time between failures that an annual failure rate says: 0.0212 for 2.12 %.
    ///
    /// # Errors
    /// A rate that is not above 0.
    pub fn with_annual_failure_rate(self, share: &Rational) -> Result<Given, ParameterError> {
        Ok(Given { failure_hours: hours_of_share(share)?, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::decimal;

    /// The thesis, section 1.2: an annual failure rate of 2.12 % is one failure in 413 207 hours.
    #[test]
    fn annual_rates_become_hours() {
        let given = Given::default().with_annual_failure_rate(&decimal("0.0212").unwrap()).unwrap();
        assert_eq!(float(&given.failure_hours).floor(), 413_207.0);
        let nothing = Given::default().with_annual_failure_rate(&Rational::zero());
        assert!(matches!(nothing, Err(ParameterError::NotPositive { .. })));
    }

    #[test]
    fn disks_that_cannot_be_are_refused() {
        let minus = || -whole(1);
        let zero = || whole(0);
        for capacity in [zero(), minus()] {
            let wrong = Given { capacity, ..Given::default() }.checked();
            assert!(matches!(wrong, Err(ParameterError::NotPositive { what: "a capacity", .. })));
        }
        let wrong = Given { failure_hours: minus(), ..Given::default() }.checked();
        assert!(matches!(wrong, Err(ParameterError::NotPositive { .. })));
        let wrong = Given { rebuild_hours: zero(), ..Given::default() }.checked();
        assert!(matches!(wrong, Err(ParameterError::NotPositive { .. })));
        let wrong = Given { read_errors: minus(), ..Given::default() }.checked();
        assert!(matches!(wrong, Err(ParameterError::NoShare { .. })));
        let wrong = Given { silent: whole(2), ..Given::default() }.checked();
        assert!(matches!(wrong, Err(ParameterError::NoShare { .. })));
        let wrong = Given { capacity: decimal("1e31").unwrap(), ..Given::default() }.checked();
        assert!(matches!(wrong, Err(ParameterError::Beyond { .. })));
        assert!(Given { read_errors: zero(), silent: zero(), ..Given::default() }.checked().is_ok());
    }

    /// Section 1.3 of the thesis: a rebuild of eight disks with two for redundancy meets an error with 17 %.
    #[test]
    fn read_errors_add_up() {
        let parameters = Parameters::default();
        assert_eq!(shown(&parameters.read_error(6), 4), "0.1747");
        assert_eq!(shown(&parameters.read_error(1), 5), "0.031493");
    }
}
