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
mod faults;
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
