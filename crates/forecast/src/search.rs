//! Search for codes that meet a durability or overhead goal.

use crate::exact::Rational;
use crate::model::{Model, Reading};
use crate::parameters::Parameters;
use crate::promise::{Forecast, ForecastError, forecast};
use crate::scheme::{Scheme, SchemeError};

/// Goal of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchGoal {
    /// Number of disks.
    pub disks: u32,
    /// Use disks in independent groups instead of spreading.
    pub grouped: bool,
    /// Highest probability of loss in a year.
    pub at_most: Option<Rational>,
    /// Highest redundancy per data.
    pub overhead: Option<Rational>,
}

/// Reason why a code does not meet the goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Too much redundancy.
    Overhead,
    /// Too high a probability of loss.
    Loss,
    /// Disks would be left over.
    Uneven,
}

/// A code with the reasons against it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Its forecast; for a code that leaves disks over, that of one group.
    pub forecast: Forecast,
    /// Empty for a code that meets the goal.
    pub obstacles: Vec<Obstacle>,
}

impl Candidate {
    /// True if it meets the goal.
    pub fn qualifies(&self) -> bool {
        self.obstacles.is_empty()
    }
}

/// All codes for this many disks, by cost and then by durability.
///
/// # Errors
/// Too many disks, or a chain without an end.
pub fn candidates(
    goal: &SearchGoal,
    model: Model,
    parameters: &Parameters,
    reading: Reading,
) -> Result<Vec<Candidate>, SearchError> {
    let mut found = Vec::new();
    for redundancy in 0..goal.disks {
        for data in 1..=goal.disks - redundancy {
            let code = Scheme::new(data, redundancy)?;
            let mut obstacles = Vec::new();
            let scheme = match goal.grouped {
                false => code.spread_over(goal.disks)?,
                true => code.grouped_on(goal.disks).unwrap_or_else(|_| {
                    obstacles.push(Obstacle::Uneven);
                    code
                }),
            };
            let forecast = forecast(scheme, model, parameters, reading)?;
            if goal.overhead.as_ref().is_some_and(|most| code.overhead() > *most) {
                obstacles.push(Obstacle::Overhead);
            }
            if goal.at_most.as_ref().is_some_and(|most| forecast.promise.per_year() > *most) {
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

/// Reason why a search failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// An invalid number of disks.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
    /// A code without a forecast.
    #[error(transparent)]
    Forecast(#[from] ForecastError),
}
