//! `gabion changelog`.

use super::Which;
use crate::output::{OutputArgs, files, print_json};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::ChangelogReport;
use gabion_vault::vault::{LockError, Vault, VaultError};
use gabion_vault::world::Clock;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  gabion changelog move /srv/shared --to redis://127.0.0.1:6379
  gabion changelog move /srv/shared --to embedded

Stop watches, mounts, daemons and workers of the vault on all hosts before: the move is refused while any are known. Those \
that were killed are known for up to 20 s; --wait waits until they are forgotten. Nothing is lost: the next `gabion protect`, \
mount or watch scans the tree and finds what was pending.";

/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// True if a process uses the vault, which ends.
fn is_use(error: &VaultError) -> bool {
    matches!(
        error,
        VaultError::Attended { .. }
            | VaultError::CatalogueInUse { .. }
            | VaultError::Lock(LockError::Held { .. })
    )
}

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
        /// Wait until nothing uses the vault any more
        #[arg(long, conflicts_with = "force")]
        wait: bool,
        /// Move even if the changelog knows mounts, watches or workers, or cannot say: what they record afterwards is
        /// lost until a scan finds it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        output: OutputArgs,
    },
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let Command::Move { which, to, wait, force, output } = self.command;
        let location = which.remains()?;
        let mut said = false;
        let moved = loop {
            match Vault::move_changelog(&location, &to, force, "changelog move", Clock::System) {
                Err(error) if wait && is_use(&error) => {
                    if !said {
                        errln!("gabion: waiting: {error}");
                        said = true;
                    }
                    std::thread::sleep(PAUSE);
                }
                moved => break moved?,
            }
        };
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
