#![doc = include_str!("../README.md")]
//!
//! # Rooms
//!
//! From the bottom up: [`field`] and [`tower`] (numbers), [`matrix`] (what codes are made of), [`code`] (identities),
//! [`plan`] (matrices over columns of a stripe), [`kernel`] (plans compiled for a CPU), [`signature`] (linear
//! checksums), [`engine`] (all of it, ready to use). [`conformance`] is the suite that every back end has to pass.

mod bytemap;
pub mod code;
mod compiler;
pub mod conformance;
mod division;
pub mod engine;
pub mod error;
mod explanation;
pub mod field;
pub mod kernel;
pub mod layout;
pub mod matrix;
pub mod plan;
pub mod planar;
pub mod raidz;
pub mod repairer;
pub mod signature;
pub mod tower;
mod tuning;

pub use code::{Code, Family};
pub use compiler::measure;
pub use engine::{Compiled, Engine, Signed};
pub use error::Error;
pub use field::Field;
pub use layout::Layout;
pub use plan::{Mode, Plan, Structure};
pub use planar::Planar;
pub use repairer::Repairer;
pub use signature::{Signature, Signer};
