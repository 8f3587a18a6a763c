//! `gabion pool`: the commands on pools.

mod add;
mod balance;
mod create;
mod forget;
mod get;
mod ls;
mod mv;
mod put;
mod rebuild;
mod replace;
mod retire;
mod rm;
mod status;
mod terminal;

use gabion::exit::Outcome;
pub(super) use terminal::Names;

const EXAMPLES: &str = "\
Examples:
  gabion pool create tank --targets /mnt/d1 /mnt/d2 /mnt/d3 /mnt/d4 /mnt/d5 /mnt/d6 --stripe 4 --block 1MiB
  gabion pool put tank photos /                copy a directory into the pool
  gabion pool ls tank photos -l                list files and their targets
  gabion pool get tank photos/cat.jpg          copy a file out
  gabion pool status tank                      targets, and files with missing columns
  gabion pool rebuild tank                     after the loss of a disk: reconstruct its content on others
  gabion pool retire tank d3                   before a disk is removed: move its content to others
  gabion pool replace tank d3 /mnt/new         a new disk for a dead or old one

A pool is given by its name or by the directory of any of its targets. pool:NAME is always a name, ./NAME always a directory.
Exit codes: 0 success, 1 needs attention, 2 error.";

/// Arguments of `gabion pool`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a pool from directories
    Create(create::Args),
    /// Add a directory to a pool
    Add(add::Args),
    /// Stop writing to a target, and move its content to others
    Retire(retire::Args),
    /// Reconstruct the content of lost or retired targets on others, and verify targets that came back
    Rebuild(rebuild::Args),
    /// Put a new target in the place of another one, dead or alive
    Replace(replace::Args),
    /// Remove a target that was given up or retired from the pool
    Forget(forget::Args),
    /// Move columns from full targets to emptier ones
    Balance(balance::Args),
    /// Show targets, mirrors of the namespace, and warnings
    Status(status::Args),
    /// Copy files into a pool
    Put(put::Args),
    /// Copy files out of a pool
    Get(get::Args),
    /// List files
    Ls(ls::Args),
    /// Remove files
    Rm(rm::Args),
    /// Move or rename a file or directory
    Mv(mv::Args),
}

impl Args {
    /// True if the command only prints.
    pub(super) fn only_reads(&self) -> bool {
        match &self.command {
            Command::Status(_) | Command::Ls(_) => true,
            Command::Get(args) => args.only_reads(),
            _ => false,
        }
    }

    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::Create(args) => args.run(),
            Command::Add(args) => args.run(),
            Command::Retire(args) => args.run(),
            Command::Rebuild(args) => args.run(),
            Command::Replace(args) => args.run(),
            Command::Forget(args) => args.run(),
            Command::Balance(args) => args.run(),
            Command::Status(args) => args.run(),
            Command::Put(args) => args.run(),
            Command::Get(args) => args.run(),
            Command::Ls(args) => args.run(),
            Command::Rm(args) => args.run(),
            Command::Mv(args) => args.run(),
        }
    }
}
