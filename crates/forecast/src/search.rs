//! Codes that give what someone wants.

use crate::exact::Rational;
use crate::model::{Model, Reading};
use crate::parameters::Parameters;
use crate::promise::{Forecast, ForecastError, forecast};
use crate::scheme::{Scheme, SchemeError};

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// Disks there are.
    pub disks: u32,
    /// Disks are used in groups that share nothing, not spread.
    pub grouped: bool,
    /// Highest probability of loss in a year.
    pub at_most: Option<Rational>,
    /// Highest redundancy per data.
    pub overhead: Option<Rational>,
}

/// Why a code does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It takes more redundancy.
    Overhead,
    /// It loses data more often.
    Loss,
    /// Disks would be left over.
    Uneven,
}

/// A code and what speaks against it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What it promises; of a code that leaves disks over, what one group promises.
    pub forecast: Forecast,
    /// Nothing, for a code that does.
    pub obstacles: Vec<Obstacle>,
}

impl Candidate {
    /// Whether it is what was wanted.
    pub fn qualifies(&self) -> bool {
        self.obstacles.is_empty()
    }
}

/// All codes for so many disks: the cheapest first, of equal ones the safest.
///
/// # Errors
/// Too many disks, or a chain without an end.
pub fn candidates(
    wish: &Wish,
    model: Model,
    parameters: &Parameters,
    reading: Reading,
) -> Result<Vec<Candidate>, SearchError> {
    let mut found = Vec::new();
    for redundancy in 0..wish.disks {
        for data in 1..=wish.disks - redundancy {
            let code = Scheme::new(data, redundancy)?;
            let mut obstacles = Vec::new();
            let scheme = match wish.grouped {
                false => code.spread_over(wish.disks)?,
                true => code.grouped_on(wish.disks).unwrap_or_else(|_| {
                    obstacles.push(Obstacle::Uneven);
                    code
                }),
            };
            let forecast = forecast(scheme, model, parameters, reading)?;
            if wish.overhead.as_ref().is_some_and(|most| code.overhead() > *most) {
                obstacles.push(Obstacle::Overhead);
            }
            if wish.at_most.as_ref().is_some_and(|most| forecast.promise.per_year() > *most) {
                obstacles.push(Obstacle::Loss);
            }
            found.push(Candidate { forecast, obstacles });
        }
    }
    found.sort_by(|a, b| {
        let by_cost = a.forecast.scheme.overhead().cmp(&b.forecast.scheme.overhead());
        by_cost.then_with(|| b.forecast.promise.mean_hours().cmp(a.forecast.promise.mean_hours()))
    });
    Ok(found)
}

/// Why nothing was found out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// Disks that no code can have.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A code without a forecast.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
}
