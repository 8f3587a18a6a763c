//! `gabion approve`.

use super::{Effort, Talk, Which};
use crate::commands::served;
use gabion::exit::Outcome;
use gabion_vault::guard::Digest;
use gabion_vault::protect::approve;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gabion approve 3f0a9c5e11d84b7fa2c6e0d94b1877aa /srv/photos

Releases the change-set that `gabion protect` held, and only that: it is known by its digest, so if anything else
vanishes or changes before the next protect, that is held again.";

/// Arguments of `gabion approve`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The digest that `gabion protect` printed
    digest: Digest,
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    talk: Talk,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, _) = self.which.open()?;
        match self.talk.run(&Effort::ALL, |manner| approve(&vault, &self.digest, manner))?? {
            Ok(()) => {
                if self.talk.json {
                    println!("{}", json!({ "command": "approve", "digest": self.digest.to_string() }));
                }
                self.talk.say(match served::by(&vault) {
                    Some(_) => "approved; the daemon carries it out",
                    None => "approved; `gabion protect` carries it out",
                });
                Ok(Outcome::Fine)
            }
            Err(Some(held)) => {
                anyhow::bail!("the change-set that is held now is {}, not this one", held.digest)
            }
            Err(None) => anyhow::bail!("no change-set is held"),
        }
    }
}
