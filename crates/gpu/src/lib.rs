#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! GPU back ends of the engine: plans on CUDA and OpenCL devices.
//!
//! [`cuda`] and [`opencl`] compile any [`Plan`](gabion_engine::Plan) into a kernel of the device. Both libraries are
//! loaded at run time on first use. On a machine without them, opening a device returns [`GpuError::Unavailable`] with
//! the reason, and everything else works.

mod cache;
#[cfg(feature = "measure")]
pub mod check;
mod choice;
pub mod cuda;
mod error;
mod faults;
#[cfg(feature = "measure")]
pub mod measure;
pub mod opencl;
mod pool;
mod prepared;
mod rounds;
pub mod shape;
pub mod source;
mod takeover;
pub mod tuning;

pub use choice::{AUTOMATIC_BYTES, Choice, Form, Growing, Make};
pub use error::{Api, GpuError};
pub use faults::{Fault, Faults, Step};
pub use takeover::{TakenOver, Takeover};
