#![doc = include_str!("../README.md")]
//!
//! # Updates, signatures, repair without a plan
//!
//! ```
//! use gabion_engine::raidz::Reconstruction;
//! use gabion_engine::{Code, Engine, Plan, Signer};
//!
//! fn main() -> Result<(), gabion_engine::Error> {
//!     // Symbols of two bytes: the length of every block is a multiple of two.
//!     let code: Code = "4+2:w16".parse()?;
//!     let engine = Engine::new(1)?;
//!     let encoder = engine.compile(&code.encode_plan()?)?;
//!     let signer = Signer::tower(code.field(), 1)?;
//!     let mut data = [[1u8; 64], [2; 64], [3; 64], [4; 64]];
//!     let (mut p, mut q) = ([0u8; 64], [0u8; 64]);
//!     let signed =
//!         encoder.run_signed(&signer, &data.each_ref().map(|block| &block[..]), &mut [&mut p, &mut q])?;
//!     assert_eq!(signed.outputs, [signer.sign(&p)?, signer.sign(&q)?]);
//!
//!     // Block 2 changes: the difference of the old and the new block updates all redundancy.
//!     let (new, mut difference) = ([9u8; 64], [0u8; 64]);
//!     engine.compile(&Plan::difference())?.run(&[&data[2], &new], &mut [&mut difference])?;
//!     engine.compile(&code.update_plan(&[2])?)?.run(&[&difference], &mut [&mut p, &mut q])?;
//!     data[2] = new;
//!
//!     // Blocks 2 and 3 are lost: repair of a single stripe, without a plan.
//!     let stripe = [Some(&data[0][..]), Some(&data[1]), None, None, Some(&p), Some(&q)];
//!     let (mut third, mut fourth) = ([0u8; 64], [0u8; 64]);
//!     engine.repairer(&code).repair(&stripe, &[2, 3], &mut [&mut third, &mut fourth])?;
//!     assert_eq!((third, fourth), (data[2], data[3]));
//!
//!     // RAID-Z reconstructions by name: two blocks from P and R.
//!     let plan = Reconstruction::PR.plan(&"raidz:4+3".parse()?, &[0, 3])?;
//!     assert_eq!(plan.inputs(), [1, 2, 4, 6]);
//!     Ok(())
//! }
//! ```
//!
//! # Lifetimes
//!
//! - [`Engine`] is cheap to clone and owns the thread pool: create one per process. The first one takes some
//!   milliseconds to measure the kernel sets of the CPU; the environment variable `GABION_KERNEL` selects one instead.
//! - [`Compiled`] is a plan ready to run, on any number of threads at once. Keep it while there are stripes of the same
//!   kind. It starts with a generic kernel; after half a megabyte per block it switches to machine code.
//! - [`Repairer`] is for stripes with different erasure patterns; it caches the plan of a repeated pattern.
//! - Store the identity of a code (`code.to_string()`) with the data: the same identity produces the same bytes on
//!   every machine and in every version.
//!
//! # Errors
//!
//! Invalid codes, plans and calls return an [`Error`] with the violated limit; outputs are not written then. Code
//! identities may come from untrusted sources: one that would take too much memory or time is refused. A block with
//! wrong content is not detected and produces wrong results: sign blocks ([`Signer`]) and leave out of the stripe those
//! that do not match their signature.
//!
//! # Modules
//!
//! From the bottom up: [`field`] and [`tower`] (arithmetic), [`matrix`] (matrices of codes), [`code`] (identities),
//! [`plan`] (matrices over columns of a stripe), [`kernel`] (plans compiled for a CPU), [`signature`] (linear
//! checksums), [`engine`] (kernels on a thread pool). The feature `testing` adds
//! `conformance`, the suite that every back end must pass.

pub mod backends;
mod bytemap;
pub mod code;
mod compiler;
#[cfg(any(test, feature = "testing"))]
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
pub mod reed_solomon;
pub mod repairer;
pub mod signature;
pub mod tower;
mod tuning;

pub use code::{Code, Family};
#[cfg(feature = "measure")]
pub use compiler::measure;
pub use engine::{Compiled, Engine, Signed};
pub use error::Error;
pub use field::Field;
pub use layout::Layout;
pub use plan::{Mode, Plan, Structure};
pub use planar::Planar;
pub use reed_solomon::{ReedSolomon, StreamError};
pub use repairer::Repairer;
pub use signature::{Signature, Signer};
