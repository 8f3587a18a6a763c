//! The `gabion-bench` command: benches of the engine, of GPUs and of the `gabion` program, experiments of papers, and
//! other erasure-coding libraries beside ours. See `README.md`.

// Foreign functions are called in `isal`, `jerasure`, `libgabion` and `parpar` only.
#![deny(unsafe_code)]

#[cfg(feature = "libraries")]
mod blocks;
#[macro_use]
mod output;
mod commands;
#[cfg(feature = "libraries")]
mod compare;
#[cfg(feature = "libraries")]
mod isal;
#[cfg(feature = "libraries")]
mod jerasure;
#[cfg(feature = "libraries")]
mod libgabion;
#[cfg(feature = "libraries")]
mod ours;
#[cfg(feature = "libraries")]
mod parpar;
mod program;
#[cfg(feature = "libraries")]
mod pseudo_random;
#[cfg(feature = "libraries")]
mod vectors;

use clap::Parser;
use gabion::exit::{Outcome, error_message};
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = commands::Cli::parse().run();
    if let Err(error) = &result {
        errln!("gabion-bench: {}", error_message(error));
    }
    output::finish(Outcome::of(result)).into()
}
