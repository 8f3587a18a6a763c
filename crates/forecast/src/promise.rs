//! What a chain promises, in the units of people.

use crate::chain::{Chain, ChainError};
use crate::exact::{Rational, chance, log10, rounded, rounded_quotient, whole};
use crate::model::{Model, Reading};
use crate::parameters::Parameters;
use crate::scheme::Scheme;
use num_traits::{One, Zero};

/// Hours of a year, as in equation 1.1 of the thesis.
pub const HOURS_PER_YEAR: u64 = 8760;

/// How long data is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    mean_hours: Rational,
}

/// Why there is no forecast.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastError {
    /// The chain has no mean time.
    #[error(transparent)]
    Chain(#[from] ChainError),
}

impl Promise {
    /// Of a chain, and as many like it beside each other as `groups` says: the first one to lose something counts.
    pub fn of(chain: &Chain, groups: u32) -> Promise {
        let (numerator, denominator) = chain.mean_fraction();
        Promise { mean_hours: rounded_quotient(&numerator, &(denominator * groups.max(1))) }
    }

    /// The mean time to data corruption, in hours: that of the chain, which is exact, cut to 77 digits.
    pub fn mean_hours(&self) -> &Rational {
        &self.mean_hours
    }

    /// The same in years of 8760 hours.
    pub fn mean_years(&self) -> Rational {
        &self.mean_hours / whole(HOURS_PER_YEAR)
    }

    /// The probability of corruption or loss within a year.
    ///
    /// It is that of a constant rate, 1 over the mean time: chains return to their first state again and again, each time as if nothing had
    /// been, so the time to the end is nearly exponential wherever rebuilds are much shorter than a year.
    pub fn per_year(&self) -> Rational {
        chance(&rounded(&(whole(HOURS_PER_YEAR) / &self.mean_hours)))
    }

    /// How many nines the probability to keep everything for a year has: 3 for 0.999.
    pub fn nines(&self) -> f64 {
        let loss = self.per_year();
        if loss.is_zero() || loss.is_one() { 0.0 } else { -log10(&loss) }
    }
}

/// What a code promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forecast {
    /// The code and its disks.
    pub scheme: Scheme,
    /// Whether blocks are verified.
    pub model: Model,
    /// What comes of it.
    pub promise: Promise,
}

/// What a code promises on disks like these.
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
