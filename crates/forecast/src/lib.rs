//! How long codes and pools of disks keep data.
//!
//! Disks fail, are rebuilt, and errors met while rebuilding make it worse: a Markov chain whose states count what is missing, and
//! whose end is corrupt or lost data. Two [`Model`]s differ in whether blocks are verified while they are read for a rebuild. A chain
//! is solved exactly, over rational numbers ([`Chain`]), because as a matrix it is so ill-conditioned that floating point gives
//! nonsense for good codes. [`simulate`] plays the same process with single disks, to be compared; [`Placement`] takes the
//! layouts of real files. Where the formulas are from, and what they leave out, is in `docs/reference/forecast.md`.
//!
//! Everything here is mathematics: no file is opened, nothing printed, and chance comes from a seed.

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
pub use search::{Candidate, Obstacle, Wish, candidates};
pub use simulation::{MOST_EVENTS, Simulated, SimulationError, simulate};
