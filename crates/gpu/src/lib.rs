//! Plans of the engine on graphics processors.
//!
//! [`cuda`] and [`opencl`] compile any [`Plan`](gabion_engine::Plan) into a kernel of the device. Both libraries are loaded when
//! they are first asked for: a machine that has neither runs everything else, and asking gives
//! [`GpuError::Unavailable`] with the reason.

mod cache;
pub mod check;
mod choice;
pub mod cuda;
mod error;
pub mod opencl;
mod rounds;
pub mod shape;
pub mod source;
pub mod tuning;

pub use choice::{AUTOMATIC_BYTES, Choice, Form, Growing};
pub use error::{Api, GpuError};
