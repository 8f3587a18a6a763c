//! Erasure codes as plans over GF(2^w), compiled into kernels for the machine at hand.
//!
//! ```
//! use gabion_engine::{Code, Engine};
//!
//! let code: Code = "4+2".parse()?;
//! let engine = Engine::new(0)?;
//! let data = [[1u8; 64], [2; 64], [3; 64], [4; 64]];
//! let (mut p, mut q) = ([0u8; 64], [0u8; 64]);
//! engine.compile(&code.encode_plan()?)?.run(
//!     &data.each_ref().map(|block| &block[..]),
//!     &mut [&mut p, &mut q],
//! )?;
//!
//! // Blocks 1 and 4 are lost; the plan says which of the others it wants, in which order.
//! let plan = code.repair_plan(&[1, 4], &[0, 2, 3, 5])?;
//! assert_eq!(plan.inputs(), [0, 2, 3, 5]);
//! let (mut lost_data, mut lost_redundancy) = ([0u8; 64], [0u8; 64]);
//! engine.compile(&plan)?.run(
//!     &[&data[0], &data[2], &data[3], &q],
//!     &mut [&mut lost_data, &mut lost_redundancy],
//! )?;
//! assert_eq!((lost_data, lost_redundancy), (data[1], p));
//! # Ok::<(), gabion_engine::Error>(())
//! ```
//!
//! The rooms, from the bottom up: [`field`] and [`tower`] (numbers), [`matrix`] (what codes are made
//! of), [`code`] (identities), [`plan`] (matrices over columns of a stripe), [`kernel`] (plans
//! compiled for a CPU), [`signature`] (linear checksums), [`engine`] (all of it, ready to use). [`conformance`] is the suite
//! that every back end has to pass.

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
pub use compiler::measure;
pub use engine::{Compiled, Engine, Signed};
pub use error::Error;
pub use field::Field;
pub use plan::{Mode, Plan, Structure};
pub use planar::Planar;
pub use repairer::Repairer;
pub use signature::{Signature, Signer};
