//! The command line: one file per command.

mod bench;
mod daemon;
mod device;
mod forecast;
mod info;
mod mount;
mod pool;
mod served;
mod shard;
mod vault;

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
    /// Protect a directory: give every file redundancy, and bring it up to date
    Protect(vault::protect::Args),
    /// Watch a directory and protect what changes in it
    Watch(vault::watch::Args),
    /// Show how well files are protected: wanted beside actual redundancy, exposure, damage by name
    Status(vault::status::Args),
    /// List what changed since the last protect
    Diff(vault::diff::Args),
    /// Read everything and find damage
    Scrub(vault::scrub::Args),
    /// Bring damaged files back to what was protected
    Repair(vault::repair::Args),
    /// Check a policy, or explain what it gives a file
    Policy(vault::policy::Args),
    /// Show what the loss of targets would mean
    Whatif(vault::whatif::Args),
    /// Release a change-set that protect held
    Approve(vault::approve::Args),
    /// Make the catalogue anew
    Catalogue(vault::catalogue::Args),
    /// Work off pending changes beside other workers
    Work(vault::work::Args),
    /// Show a directory at another place, and protect what is written through it
    Mount(mount::Args),
    /// Keep many directories and pools protected, scrubbed and rebuilt, in one process
    Daemon(daemon::Args),
    /// Stripe files over disks, so that losing some loses nothing that is protected
    Pool(pool::Args),
    /// Split a file into shards, any k of which bring it back
    Shard(shard::Args),
    /// How long codes, or the files of a pool, keep data: mean time to loss, chance per year, nines
    Forecast(Box<forecast::Args>),
    /// Show this machine and what the engine makes of it
    Info(info::Args),
    #[command(hide = true, disable_help_flag = true)]
    Bench(bench::Args),
}

impl Cli {
    /// True if all that the command does is to print: then it may end with the reader of its output.
    pub(crate) fn only_reads(&self) -> bool {
        match &self.command {
            Command::Status(_) | Command::Diff(_) | Command::Policy(_) | Command::Whatif(_) => true,
            Command::Forecast(_) | Command::Info(_) | Command::Bench(_) => true,
            Command::Pool(args) => args.only_reads(),
            Command::Shard(args) => args.only_reads(),
            Command::Daemon(args) => args.only_reads(),
            _ => false,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Protect(args) => args.run(),
            Command::Watch(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Diff(args) => args.run(),
            Command::Scrub(args) => args.run(),
            Command::Repair(args) => args.run(),
            Command::Policy(args) => args.run(),
            Command::Whatif(args) => args.run(),
            Command::Approve(args) => args.run(),
            Command::Catalogue(args) => args.run(),
            Command::Work(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Daemon(args) => args.run(),
            Command::Pool(args) => args.run(),
            Command::Shard(args) => args.run(),
            Command::Forecast(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Bench(args) => args.run(),
        }
    }
}
