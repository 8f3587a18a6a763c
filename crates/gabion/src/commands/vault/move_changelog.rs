//! `gabion changelog`.

use super::Which;
use crate::output::{OutputArgs, files, print_json};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::ChangelogReport;
use gabion_vault::vault::Vault;
use gabion_vault::world::Clock;

const EXAMPLES: &str = "\
Examples:
  gabion changelog move /srv/shared --to redis://127.0.0.1:6379
  gabion changelog move /srv/shared --to embedded

Stop watches, mounts, daemons and workers of the vault on all hosts before. Nothing is lost: the next `gabion protect`, mount \
or watch scans the tree and finds what was pending.";

/// Arguments of `gabion changelog`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Move the changelog to a Redis server, for several hosts, or back into the repository
    #[command(after_help = EXAMPLES)]
    Move {
        #[command(flatten)]
        which: Which,
        /// redis://HOST:PORT, rediss://HOST:PORT (TLS), or embedded
        #[arg(long, value_name = "ADDRESS")]
        to: String,
        #[command(flatten)]
        output: OutputArgs,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let Command::Move { which, to, output } = self.command;
        let location = which.remains()?;
        let moved = Vault::move_changelog(&location, &to, "changelog move", Clock::System)?;
        if let Some(error) = &moved.away {
            errln!("gabion: warning: {error}; what it has is left there");
        }
        if output.json {
            print_json(&ChangelogReport::new(&moved));
        } else {
            output.print_line(format!("the changelog is now {}", moved.to));
            let what = match moved.pending {
                Some(0) => "nothing was pending".to_owned(),
                Some(pending) => format!("{} pending", files(pending)),
                None => "what was pending is unknown".to_owned(),
            };
            output.print_line(format!("{what}: the next `gabion protect`, mount or watch scans the tree"));
        }
        Ok(Outcome::Fine)
    }
}
