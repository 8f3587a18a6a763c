//! Other erasure-coding libraries beside Gabion: known answers made with them, and races against
//! them. See `README.md`.

// Foreign functions are called in `isal`, `jerasure` and `parpar` only.
#![deny(unsafe_code)]

mod blocks;
mod compare;
mod isal;
mod jerasure;
mod ours;
mod painted;
mod parpar;
mod vectors;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "gabion-bench", about, version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the known answers (vectors/*.json) with the other libraries.
    Vectors {
        /// Where the files go; existing ones are replaced.
        directory: PathBuf,
    },
    /// Race against other libraries in one interleaved run.
    Compare(compare::Options),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Vectors { directory } => vectors::write_all(&directory),
        Command::Compare(options) => compare::compare(&options),
    }
}
