//! Parameters of disks.

use crate::exact::{Rational, any_of, float, fraction, is_negative, shown, whole};
use num_bigint::BigInt;
use num_traits::{One, Zero};

/// Parameters in user units. The defaults are those of table 1-2 of the thesis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Bytes of a disk.
    pub capacity: Rational,
    /// Mean hours between failures of a disk.
    pub failure_hours: Rational,
    /// Mean hours of a rebuild.
    pub rebuild_hours: Rational,
    /// Read errors per bit read.
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

/// Reason why parameters are invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A value that must be positive.
    #[error("{what} of {value} is not more than 0")]
    NotPositive {
        /// The parameter.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// Not a probability.
    #[error("{what} of {value} is not between 0 and 1")]
    NoShare {
        /// The parameter.
        what: &'static str,
        /// The value.
        value: f64,
    },
    /// So large or small that it must be a mistake.
    #[error("{what} of {value:e} is out of range")]
    Beyond {
        /// The parameter.
        what: &'static str,
        /// The value.
        value: f64,
    },
}

/// Checked parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters {
    given: Given,
}

impl Given {
    /// Checks the values.
    ///
    /// # Errors
    /// See [`ParameterError`].
    pub fn checked(self) -> Result<Parameters, ParameterError> {
        let positive = [
            ("a capacity", &self.capacity),
            ("a mean time between failures", &self.failure_hours),
            ("a rebuild time", &self.rebuild_hours),
        ];
        // Between 1e-30 and 1e30 units.
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
    /// The given values.
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

    /// The probability of a read error while `disks` whole disks are read: h of the thesis for one, h_r for d - δ of
    /// them.
    pub fn read_error(&self, disks: u32) -> Rational {
        any_of(&self.given.read_errors, &(self.bits() * BigInt::from(disks)))
    }

    /// The same for this many bytes.
    pub(crate) fn read_error_in(&self, bytes: &Rational) -> Rational {
        any_of(&self.given.read_errors, &(bytes * whole(8)).ceil().to_integer())
    }

    /// A description for messages.
    pub fn words(&self) -> String {
        let terabytes = &self.given.capacity / whole(1_000_000_000_000);
        format!("disks of {} TB, {}", shown(&terabytes, 3), self.words_without_capacity())
    }

    /// The same without the capacity.
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

/// Mean hours between failures for an annual failure rate (equation 1.1 of the thesis, in hours).
///
/// # Errors
/// A rate that is not positive.
pub(crate) fn hours_of_share(share: &Rational) -> Result<Rational, ParameterError> {
    if is_negative(share) || share.is_zero() {
        return Err(ParameterError::NotPositive { what: "an annual failure rate", value: float(share) });
    }
    Ok(whole(8760) / share)
}

impl Given {
    /// Sets the mean time between failures by an annual failure rate: 0.0212 for 2.12 %.
    ///
    /// # Errors
    /// A rate that is not positive.
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
    fn invalid_parameters_are_refused() {
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
