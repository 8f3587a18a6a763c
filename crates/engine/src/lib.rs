#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! From the bottom up: [`field`] and [`tower`] (numbers), [`matrix`] (what codes are made
//! of), [`code`] (identities), [`plan`] (matrices over columns of a stripe), [`kernel`] (plans
//! compiled for a CPU), [`signature`] (linear checksums), [`engine`] (all of it, ready to use). [`conformance`] is the suite
//! that every back end has to pass.

pub mod backends;
pub mod code;
mod compiler;
pub mod conformance;
pub mod engine;
pub mod error;
pub mod field;
pub mod kernel;
pub mod matrix;
pub mod plan;
pub mod planar;
pub mod raidz;
pub mod repairer;
pub mod signature;
pub mod tower;

pub use code::{Code, Family, Layout};
#[cfg(feature = "measure")]
pub use compiler::measure;
pub use engine::{Compiled, Engine, Signed};
pub use error::Error;
pub use field::Field;
pub use plan::{Mode, Plan, Structure};
pub use planar::Planar;
pub use repairer::Repairer;
pub use signature::{Signature, Signer};
