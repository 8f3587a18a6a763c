//! The `gabion` command. It parses, calls the library, prints, and maps the result to an exit code.

#![forbid(unsafe_code)]

mod commands;

use clap::Parser;
use gabion::exit::Outcome;
use std::process::ExitCode;

fn main() -> ExitCode {
    let result = commands::Cli::parse().run();
    if let Err(error) = &result {
        eprintln!("gabion: {error:#}");
    }
    Outcome::of(result).into()
}
