//! The command line: one file per command.

mod bench;
mod completions;
mod daemon;
mod device;
mod doctor;
mod forecast;
mod groups;
mod info;
mod init;
mod manual;
mod mount;
mod notify;
mod pool;
mod served;
mod shard;
mod vault;
mod workers;

use clap::{Parser, Subcommand};
use gabion::exit::Outcome;

/// Protects files with erasure codes.
#[derive(Parser)]
#[command(name = "gabion", version, about, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 fine, 1 something needs attention, 2 error or interrupted, 3 data lost beyond repair."
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
    /// Show how well files are protected: configured and actual redundancy, pending changes, damaged files
    Status(vault::status::Args),
    /// List what changed since the last protect
    Diff(vault::diff::Args),
    /// Verify data and redundancy, and report damage
    Scrub(vault::scrub::Args),
    /// Check files before they are used, such as the inputs of a job, and repair them
    Check(vault::check::Args),
    /// Restore damaged files to their protected content
    Repair(vault::repair::Args),
    /// Put files that lost bytes with targets of a parallel file system on other targets
    Rebuild(vault::rebuild::Args),
    /// Check a policy, or explain which rule applies to a file
    Policy(vault::policy::Args),
    /// Show which files the loss of targets would affect
    Whatif(vault::whatif::Args),
    /// Approve a held change-set, or the change of a write-once file
    Approve(vault::approve::Args),
    /// List or remove content that repair replaced
    Replaced(vault::replaced::Args),
    /// End the protection of a directory: remove its redundancy, not its files
    Forget(vault::forget::Args),
    /// Rebuild the catalogue from the redundancy files
    Catalogue(vault::catalogue::Args),
    /// Move the changelog to a server, for several hosts, or back
    Changelog(vault::move_changelog::Args),
    /// Protect pending changes, in parallel with other workers
    Work(vault::work::Args),
    /// Mount a directory or pool, and protect what is written through the mount
    Mount(mount::Args),
    /// List what the daemon recorded: damage, repairs, scrubs, lost targets, decisions
    Events(vault::history::Args),
    /// Sum protected files by directory, owner or extension
    Report(vault::report::Args),
    /// Write a first configuration of the daemon, with questions and explanations
    Init(init::Args),
    /// Protect, scrub and rebuild many directories and pools from one process
    Daemon(daemon::Args),
    /// Test the receivers of notifications of a daemon's configuration
    Notify(notify::Args),
    /// Stripe files over several disks, and survive the loss of some of them
    Pool(pool::Args),
    /// Split a file into shards, any k of which restore it
    Shard(shard::Args),
    /// Forecast the durability of codes or of a pool: mean time to data loss, probability per year, nines
    Forecast(Box<forecast::Args>),
    /// Show what is known of a file system: where a file lies, targets and their state, sources of changes
    Doctor(doctor::Args),
    /// Look at a path in a process of its own, for `doctor`
    #[command(hide = true)]
    ProbePath(doctor::ProbeArgs),
    /// Show this machine and the kernel that the engine chose
    Info(info::Args),
    /// Print a script that completes commands and options in a shell
    Completions(completions::Args),
    /// Write the manual pages into a directory
    Manual(manual::Args),
    #[command(hide = true, disable_help_flag = true)]
    Bench(bench::Args),
}

impl Cli {
    /// The command line, with its commands in groups.
    pub(crate) fn grouped() -> clap::Command {
        let command = <Cli as clap::CommandFactory>::command();
        let template = groups::template(&command);
        command.help_template(template)
    }

    /// True if the command only prints: then it may end when its reader closes the pipe.
    pub(crate) fn only_reads(&self) -> bool {
        match &self.command {
            Command::Status(_) | Command::Diff(_) | Command::Policy(_) | Command::Whatif(_) => true,
            Command::Forecast(_) | Command::Info(_) | Command::Bench(_) => true,
            Command::Events(_) | Command::Report(_) => true,
            Command::Completions(_) | Command::Doctor(_) | Command::ProbePath(_) => true,
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
            Command::Check(args) => args.run(),
            Command::Repair(args) => args.run(),
            Command::Rebuild(args) => args.run(),
            Command::Policy(args) => args.run(),
            Command::Whatif(args) => args.run(),
            Command::Approve(args) => args.run(),
            Command::Replaced(args) => args.run(),
            Command::Forget(args) => args.run(),
            Command::Catalogue(args) => args.run(),
            Command::Changelog(args) => args.run(),
            Command::Work(args) => args.run(),
            Command::Mount(args) => args.run(),
            Command::Daemon(args) => args.run(),
            Command::Events(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Init(args) => args.run(),
            Command::Notify(args) => args.run(),
            Command::Pool(args) => args.run(),
            Command::Shard(args) => args.run(),
            Command::Forecast(args) => args.run(),
            Command::Doctor(args) => args.run(),
            Command::ProbePath(args) => args.run(),
            Command::Info(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Manual(args) => args.run(),
            Command::Bench(args) => args.run(),
        }
    }
}
