//! `gabion pool retire`.

use super::rebuild::RebuildRun;
use super::terminal::Which;
use crate::commands::vault::{Effort, OutputArgs};
use anyhow::ensure;
use gabion::exit::Outcome;
use gabion_vault::pool_rebuild::Options;
use serde_json::json;

const EXAMPLES: &str = "\
Examples:
  gabion pool retire tank d3                 empty d3: bring what it has onto other targets
  gabion pool retire tank d3 --no-rebuild    only let nothing new go there

Nothing new goes to the target. What it has is copied onto others in failure domains of their own, checked against \
signatures; what cannot be read from it is made from redundancy. Then it is removed from there, and the disk may go. \
It can be interrupted: `gabion pool rebuild` goes on with the rest.
Exit codes: 0 the target is empty, 1 something is left on it, 2 error, 3 data lost.";

/// Arguments of `gabion pool retire`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// The target's name
    target: String,
    /// Leave what it has where it is
    #[arg(long)]
    no_rebuild: bool,
    /// Check and say what would be done, but do nothing
    #[arg(long)]
    dry_run: bool,
    /// If another command has the vault, wait for it
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, target, no_rebuild, dry_run, wait, effort, output } = self;
        let pool = which.open()?;
        match dry_run {
            true => {
                let known = pool.config().target.iter().any(|member| member.name == target);
                ensure!(known, "pool {} has no target {target}", pool.config().name);
            }
            false => pool.retire(&target)?,
        }
        let verb = if dry_run { "would retire" } else { "retired" };
        output.print_line(format!("{verb} target {target}: nothing new goes there"));
        if dry_run || no_rebuild {
            if output.json {
                outln!("{}", json!({ "command": "pool retire", "dry_run": dry_run, "target": target }));
            }
            return Ok(Outcome::Fine);
        }
        let options = Options { targets: vec![target], agreed: None };
        let run = RebuildRun { output: &output, effort: &effort, all: false, wait };
        run.rebuild(&pool, &options, "pool retire")
    }
}
