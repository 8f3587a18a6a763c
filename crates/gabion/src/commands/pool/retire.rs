//! `gabion pool retire`.

use super::terminal::{Talk, Which};
use anyhow::ensure;
use gabion::exit::Outcome;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gabion pool retire tank d3

Nothing new goes to the target. What is there stays and is read as before.";

/// Arguments of `gabion pool retire`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The target's name
    target: String,
    /// Check and say what would be done, but do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    talk: Talk,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, target, dry_run, talk } = self;
        let pool = which.open()?;
        match dry_run {
            true => {
                let known = pool.config().target.iter().any(|member| member.name == target);
                ensure!(known, "pool {} has no target {target}", pool.config().name);
            }
            false => pool.retire(&target)?,
        }
        if talk.json {
            println!("{}", json!({ "command": "pool retire", "dry_run": dry_run, "target": target }));
        }
        let verb = if dry_run { "would retire" } else { "retired" };
        talk.say(format!("{verb} target {target}: nothing new goes there"));
        Ok(Outcome::Fine)
    }
}
