//! The run-time compiler: plan → program → passes → registers → machine code, or an interpreter.
//!
//! A plan is lowered to a [`program`] (maybe several: by its matrix, by its structure), passes make it
//! better, and what comes out is a list of [`machine`] steps on registers. On x86-64 they become machine code;
//! elsewhere, and where code is switched off, the kernels interpret them.

mod cache;
mod choose;
#[cfg(all(feature = "compiler", target_arch = "x86_64"))]
mod emit;
mod explain;
#[cfg_attr(not(all(feature = "compiler", target_arch = "x86_64")), path = "compiler/no_kernel.rs")]
mod kernel;
mod lower;
mod machine;
pub mod measure;
mod pass;
mod program;
#[cfg(all(feature = "compiler", target_arch = "x86_64"))]
mod routine;
mod target;

pub(crate) use cache::{Purpose, Ready, Slot};
pub(crate) use choose::is_considered;
pub(crate) use explain::explain;
pub(crate) use kernel::CodeKernel;
pub(crate) use machine::{Allocated, Operand, Register, Step};
pub(crate) use program::Location;
pub(crate) use target::Target;

#[cfg(test)]
mod tests;
