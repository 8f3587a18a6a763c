//! The command line: one file per command.

mod engine;
mod figures;
mod files;
#[cfg(feature = "gpu")]
mod gpu;
mod hosts;
mod machine;
mod mount;
mod mounted;
mod paper;
mod rebuild;
mod vault;
mod watch;
mod workers;

use clap::{Parser, Subcommand};
use gabion::exit::Outcome;

/// Measures Gabion on this machine.
#[derive(Parser)]
#[command(name = "gabion-bench", version, about, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 fine, 2 error.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Coding, repair, update, region multiplication and signatures, in memory
    Engine(engine::Args),
    /// The machine itself: instructions, loads, streams and latency of memory, without any coding
    Machine(machine::Args),
    /// A GPU: kernels on data that is there, and whole runs from host memory
    #[cfg(feature = "gpu")]
    Gpu(gpu::Args),
    /// The protector: protect, scrub and changelog on real files, beside the disk and other tools
    Vault(vault::Args),
    /// The mount: reading and writing through it, beside the directory itself and mergerfs
    Mount(mount::Args),
    /// Live protection: the cost of watching for programs that write
    Watch(watch::Args),
    /// Several workers: how evenly they share a backlog
    Workers(workers::Args),
    /// One deployment on several hosts: how much faster they are than one, its changelog, and memory
    Hosts(hosts::Args),
    /// The experiments of the papers, run again with this engine
    Paper(paper::Args),
    /// Rebuild of a lost target of a pool, and reads without it, beside the machine's limits
    Rebuild(rebuild::Args),
    /// Race against other libraries in one interleaved run
    #[cfg(feature = "libraries")]
    Compare(crate::compare::Options),
    /// Write the known answers (vectors/*.json) with the other libraries
    #[cfg(feature = "libraries")]
    Vectors {
        /// Where the files go; existing ones are replaced
        directory: std::path::PathBuf,
    },
}

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Engine(args) => args.run(),
            Command::Machine(args) => args.run(),
            #[cfg(feature = "gpu")]
            Command::Gpu(args) => args.run(),
            Command::Vault(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Watch(args) => args.run(),
            Command::Workers(args) => args.run(),
            Command::Hosts(args) => args.run(),
            Command::Paper(args) => args.run(),
            Command::Rebuild(args) => args.run(),
            #[cfg(feature = "libraries")]
            Command::Compare(options) => crate::compare::compare(&options).map(|()| Outcome::Fine),
            #[cfg(feature = "libraries")]
            Command::Vectors { directory } => crate::vectors::write_all(&directory).map(|()| Outcome::Fine),
        }
    }
}
