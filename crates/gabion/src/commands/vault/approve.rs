//! `gabion approve`.

use super::protect::{held_as_json, reason};
use super::{Effort, Talk, Which};
use crate::commands::served;
use gabion::exit::Outcome;
use gabion_vault::guard::{self, Digest};
use gabion_vault::protect::{Approval, approval};
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gabion approve 3f0a9c5e11d84b7fa2c6e0d94b1877aa /srv/photos

Releases the change-set that `gabion protect` held, and only that: it is known by its digest, so if anything else \
vanishes or changes before the next protect, that is held again. Files that are written without a pause (other \
ones at each look) are known by their names alone, as long as they are fewer than the guard lets pass by themselves.";

/// Arguments of `gabion approve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The digest that `gabion protect` printed
    digest: Digest,
    /// Say what would be approved, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    talk: Talk,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, _) = self.which.open()?;
        let found =
            self.talk.run(&Effort::ALL, |manner| approval(&vault, &self.digest, self.dry_run, manner))??;
        let held = match found {
            Approval::Held(held) => Some(held),
            Approval::Given => None,
            Approval::Other(held) => {
                anyhow::bail!("the change-set that is held now is {}, not this one", held.digest)
            }
            Approval::Nothing => anyhow::bail!("no change-set is held"),
        };
        if held.is_some() && !self.dry_run {
            guard::approve(&vault.repository, &self.digest)?;
        }
        if self.talk.json {
            let (digest, given) = (self.digest.to_string(), held.is_none());
            let held = held.as_ref().map(held_as_json);
            outln!(
                "{}",
                json!({ "command": "approve", "dry_run": self.dry_run, "digest": digest, "held": held,
                        "approved_before": given })
            );
        }
        let who = match served::by(&vault) {
            Some(_) => "the daemon carries it out",
            None => "`gabion protect` carries it out",
        };
        self.talk.say(match &held {
            Some(held) if self.dry_run => format!("would approve: {}", reason(held)),
            Some(held) => format!("approved: {}; {who}", reason(held)),
            None => format!("it was approved before; {who}"),
        });
        Ok(Outcome::Fine)
    }
}
