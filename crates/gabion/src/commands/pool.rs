//! `gabion pool`: parses, calls the library, prints.

mod add;
mod create;
mod get;
mod ls;
mod mv;
mod put;
mod rebuild;
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
  gabion pool ls tank photos -l                what is there, and on which targets
  gabion pool get tank photos/cat.jpg          copy a file out
  gabion pool status tank                      how the targets are, and which files miss something
  gabion pool rebuild tank                     after a disk is lost: make anew elsewhere what it had
  gabion pool retire tank d3                   before a disk goes: bring what it has onto others

A pool is named by its name or by the directory of any of its targets. pool:NAME is always the name, ./NAME always the directory.
Exit codes: 0 fine, 1 something to look after, 2 error.";

/// Arguments of `gabion pool`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a pool of directories
    Create(create::Args),
    /// Add a directory to a pool
    Add(add::Args),
    /// Let nothing new go to a target, and bring what it has onto others
    Retire(retire::Args),
    /// Bring what was on lost or retired targets onto others, and verify targets that came back
    Rebuild(rebuild::Args),
    /// Show targets, mirrors of the namespace, and what to look after
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
    /// True if all that the command does is to print.
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
            Command::Status(args) => args.run(),
            Command::Put(args) => args.run(),
            Command::Get(args) => args.run(),
            Command::Ls(args) => args.run(),
            Command::Rm(args) => args.run(),
            Command::Mv(args) => args.run(),
        }
    }
}
