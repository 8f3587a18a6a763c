//! Measurements of the engine, of GPUs and of the machine, and the experiments of papers, as a library: no argument is
//! parsed and nothing printed here.

#![forbid(unsafe_code)]

pub mod engine;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod machine;
pub mod paper;
pub mod plot;
