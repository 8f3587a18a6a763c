#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! Durability forecasts for erasure codes and pools of disks.
//!
//! The model is a Markov chain: its states count the missing disks, transitions are disk failures, rebuilds and read
//! errors during rebuilds, and its absorbing state is corrupt or lost data. Two [`Model`]s differ in whether blocks
//! are verified while they are read for a rebuild. A chain is solved exactly, over rational numbers ([`Chain`]),
//! because its matrix is so ill-conditioned that floating point gives wrong results for good codes. [`simulate`] runs
//! the same process with single disks, for comparison; [`Placement`] uses the layouts of real files.
//! `docs/reference/forecast.md` has the sources of the formulas and their limits.
//!
//! The crate does no I/O, and random numbers come from a given seed.

#![forbid(unsafe_code)]

mod chain;
pub mod exact;
mod model;
mod parameters;
mod placement;
mod promise;
pub mod quantity;
mod scheme;
mod search;
mod simulation;

pub use chain::{Chain, ChainError, Step};
pub use exact::Rational;
pub use model::{Model, Reading};
pub use parameters::{Given, ParameterError, Parameters};
pub use placement::{Layout, Placement, PlacementError};
pub use promise::{Forecast, ForecastError, HOURS_PER_YEAR, Promise, forecast};
pub use scheme::{MAX_DISKS, Scheme, SchemeError};
pub use search::{Candidate, Obstacle, SearchGoal, candidates};
pub use simulation::{MOST_EVENTS, Simulated, SimulationError, simulate};
