//! `gabion shard`: parses, calls the library, prints.

mod join;
mod repair;
mod split;
mod terminal;
mod verify;

use gabion::exit::{DataLoss, Outcome};
use gabion_shard::Error;

const EXAMPLES: &str = "\
Examples:
  gabion shard split photos.tar --code 10+4 --out /mnt/shards   make 14 shards, any 10 suffice
  gabion shard verify /mnt/shards                               read everything, report damage
  gabion shard repair /mnt/shards                               rebuild missing and damaged shards
  gabion shard join /mnt/shards -o photos.tar                   restore the file

Shards are identified by their content: names and directories do not matter.
Exit codes: 0 fine, 1 damage found or nothing to do, 2 error, 3 data lost beyond repair.";

/// Arguments of `gabion shard`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Cut a file into k+m shards
    Split(split::Args),
    /// Restore the file from any k shards
    Join(join::Args),
    /// Read all shards and report damage
    Verify(verify::Args),
    /// Rebuild missing and damaged shards
    Repair(repair::Args),
}

impl Args {
    /// True if all that the command does is to print.
    pub(super) fn only_reads(&self) -> bool {
        matches!(&self.command, Command::Join(args) if args.only_reads())
    }

    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let result = match self.command {
            Command::Split(args) => args.run(),
            Command::Join(args) => args.run(),
            Command::Verify(args) => args.run(),
            Command::Repair(args) => args.run(),
        };
        // The exit code tells lost data from commands that could not run.
        result.map_err(|error| match error.downcast_ref::<Error>() {
            Some(loss) if loss.is_data_loss() => DataLoss(loss.to_string()).into(),
            _ => error,
        })
    }
}
