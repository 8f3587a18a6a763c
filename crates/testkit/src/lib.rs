//! Test support that several crates share. Only tests and benches depend on this crate.
//!
//! - [`skip()`]: records that a test is skipped, with a reason. `GABION_REQUIRE_ALL=1` turns every skip into a failure.
//! - [`chosen`]: a number that an environment variable sets.
//! - [`fuzz_inputs`]: number of inputs of a fuzz-like test.
//! - [`python`]: the virtual environment that `cargo xtask test` makes.
//! - [`rounds`]: number of random cases of a long test.
//! - [`Hosts`]: hosts in network namespaces.
//! - [`kill`]: kills a child process at a counted system call, so that a crash test does not depend on the machine's
//!   speed.
//! - [`MooseFs`], [`GlusterFs`]: real parallel file systems on this machine.
//! - [`port()`]: a TCP port for a server, reserved among all tests.
//! - [`unmount_image`]: unmounts a file system in an image so that the image can be changed and mounted again.
//! - [`until`]: waits for a condition, with a timeout that only a hanging program reaches.

#![forbid(unsafe_code)]

mod disk;
mod env_number;
mod fuzzing;
mod hosts;
pub mod kill;
mod parallel;
mod port;
mod python_environment;
mod skipping;
mod waiting;

pub use disk::{unmount, unmount_image};
pub use env_number::chosen;
pub use fuzzing::{FUZZ_FACTOR, ROUNDS, fuzz_inputs, rounds};
pub use hosts::Hosts;
pub use parallel::{GlusterFs, MooseFs};
pub use port::port;
pub use python_environment::python;
pub use skipping::{REQUIRE_ALL, SKIP_LOG, skip, skip_for_kernel, skip_line, skip_without_file_system};
pub use waiting::{PATIENCE, until, until_some};

/// [`skip`](fn@skip) with one format string for both, as in `skip!("name of the test: {reason}")`.
#[macro_export]
macro_rules! skip {
    ($($text:tt)*) => { $crate::skip_line(&format!($($text)*)) };
}
