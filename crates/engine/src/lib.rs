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
//! Updates, signatures, larger fields, RAID-Z and losses that are not known before go the same way:
//!
//! ```
//! use gabion_engine::raidz::Reconstruction;
//! use gabion_engine::{Code, Engine, Plan, Signer};
//!
//! // Symbols of two bytes, of which the length of every block is a multiple.
//! let code: Code = "4+2:w16".parse()?;
//! let engine = Engine::new(1)?;
//! let encoder = engine.compile(&code.encode_plan()?)?;
//! let signer = Signer::tower(code.field(), 1)?;
//! let mut data = [[1u8; 64], [2; 64], [3; 64], [4; 64]];
//! let (mut p, mut q) = ([0u8; 64], [0u8; 64]);
//! let signed =
//!     encoder.run_signed(&signer, &data.each_ref().map(|block| &block[..]), &mut [&mut p, &mut q])?;
//! assert_eq!(signed.outputs, [signer.sign(&p)?, signer.sign(&q)?]);
//!
//! // Block 2 changes: its difference, old and new added, is all that the redundancy has to know.
//! let (new, mut difference) = ([9u8; 64], [0u8; 64]);
//! engine.compile(&Plan::difference())?.run(&[&data[2], &new], &mut [&mut difference])?;
//! engine.compile(&code.update_plan(&[2])?)?.run(&[&difference], &mut [&mut p, &mut q])?;
//! data[2] = new;
//!
//! // Whatever is lost, without a plan: blocks 2 and 3 here.
//! let stripe = [Some(&data[0][..]), Some(&data[1]), None, None, Some(&p), Some(&q)];
//! let (mut third, mut fourth) = ([0u8; 64], [0u8; 64]);
//! engine.repairer(&code).repair(&stripe, &[2, 3], &mut [&mut third, &mut fourth])?;
//! assert_eq!((third, fourth), (data[2], data[3]));
//!
//! // RAID-Z by name: two blocks from P and R.
//! let plan = Reconstruction::PR.plan(&"raidz:4+3".parse()?, &[0, 3])?;
//! assert_eq!(plan.inputs(), [1, 2, 4, 6]);
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
