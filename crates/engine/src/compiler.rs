//! Run-time compiler: plan → program → passes → registers → machine code or interpreted steps.
//!
//! A plan is lowered to one or more [`program`]s (by its matrix, by its structure); passes optimise them; register
//! allocation produces a list of [`machine`] steps. On x86-64 these become machine code; elsewhere, and without the
//! feature `compiler`, the kernels interpret them.

mod cache;
mod choose;
#[cfg(all(feature = "compiler", target_arch = "x86_64"))]
mod emit;
mod explain;
#[cfg_attr(not(all(feature = "compiler", target_arch = "x86_64")), path = "compiler/no_kernel.rs")]
mod kernel;
mod lower;
mod machine;
#[cfg(feature = "measure")]
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
