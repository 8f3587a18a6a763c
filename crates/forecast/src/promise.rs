//! Durability figures of a chain in common units.

use crate::chain::{Chain, ChainError};
use crate::exact::{Rational, chance, log10, rounded, rounded_quotient, whole};
use crate::model::{Model, Reading};
use crate::parameters::Parameters;
use crate::scheme::Scheme;
use num_traits::{One, Zero};

/// Hours of a year, as in equation 1.1 of the thesis.
pub const HOURS_PER_YEAR: u64 = 8760;

/// Durability of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    mean_hours: Rational,
}

/// Reason why there is no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// The chain has no mean time.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl Promise {
    /// The durability of `groups` independent chains: the first loss counts.
    pub fn of(chain: &Chain, groups: u32) -> Promise {
        let (numerator, denominator) = chain.mean_fraction();
        Promise { mean_hours: rounded_quotient(&numerator, &(denominator * groups.max(1))) }
    }

    /// The mean time to data corruption in hours, computed exactly and truncated to 77 digits.
    pub fn mean_hours(&self) -> &Rational {
        &self.mean_hours
    }

    /// The same in years of 8760 hours.
    pub fn mean_years(&self) -> Rational {
        &self.mean_hours / whole(HOURS_PER_YEAR)
    }

    /// The probability of corruption or loss within a year.
    ///
    /// Computed for a constant rate, 1 over the mean time: chains return to their first state again and again and have
    /// no memory, so the time to the end is nearly exponential if rebuilds are much shorter than a year.
    pub fn per_year(&self) -> Rational {
        chance(&rounded(&(whole(HOURS_PER_YEAR) / &self.mean_hours)))
    }

    /// Number of nines of the probability of keeping all data for a year: 3 for 0.999.
    pub fn nines(&self) -> f64 {
        let loss = self.per_year();
        if loss.is_zero() || loss.is_one() { 0.0 } else { -log10(&loss) }
    }
}

/// Forecast for a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// The code and its disks.
    pub scheme: Scheme,
    /// The model.
    pub model: Model,
    /// The result.
    pub promise: Promise,
}

/// The forecast for a code on disks with these parameters.
///
/// # Errors
/// See [`ForecastError`].
pub fn forecast(
    scheme: Scheme,
    model: Model,
    parameters: &Parameters,
    reading: Reading,
) -> Result<Forecast, ForecastError> {
    let chain = model.chain(scheme, parameters, reading)?;
    Ok(Forecast { scheme, model, promise: Promise::of(&chain, scheme.groups()) })
}
