//! The command line: one file per command.

mod bench;
mod info;
mod shard;

use clap::{Parser, Subcommand};
use gabion::exit::Outcome;

/// Protects files with erasure codes.
#[derive(Parser)]
#[command(name = "gabion", version, about, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 fine, 1 damage found or nothing to do, 2 error, 3 data lost beyond repair."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Split a file into shards, any k of which bring it back
    Shard(shard::Args),
    /// Show this machine and what the engine makes of it
    Info(info::Args),
    /// Measure the engine on this machine
    Bench(bench::Args),
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Shard(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Bench(args) => args.run(),
        }
    }
}
