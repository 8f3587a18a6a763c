//! `gabion pool replace`.

use super::rebuild::{RebuildRun, vault};
use super::terminal::Which;
use crate::commands::device::DeviceArgs;
use crate::commands::vault::Effort;
use crate::output::OutputArgs;
use gabion::exit::Outcome;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::pool_rebuild::{RebuildOptions, forget};
use gabion_vault::storage::TargetState;
use gabion_vault::storage::pool::config::{Member, TargetName};
use gabion_vault::storage::pool::{NewTarget, Pool};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  gabion pool replace tank d3 /mnt/new        the content of d3 goes to other targets, also to the new one
  gabion pool replace tank d3 /mnt/d3         a new, empty disk is mounted where the dead one was

Adds the directory as a target in the failure domain of the old one, restores or moves what the old one held, and then removes the \
old one from the pool. It need not be reachable. New files are spread over all targets; `gabion pool balance` moves existing \
columns as well. The command can be interrupted or killed: the same command continues.
Exit codes: 0 replaced, 1 columns could not be placed or moved, 2 error, 3 data lost. The old target stays part of the pool unless \
the code is 0.";

/// Arguments of `gabion pool replace`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Name of the target to be replaced
    target: String,
    /// Directory of the new target, empty or missing
    dir: PathBuf,
    /// Failure domain; by default that of the old target, or its own if that was named after the old target
    #[arg(long)]
    domain: Option<String>,
    /// Confirm the loss of the targets that a refusal named
    #[arg(long, value_name = "DIGEST")]
    agree: Option<String>,
    /// Check, print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let compute = self.device.open()?;
        let pool = self.which.open()?;
        let old = pool.target(&self.target)?;
        let members = pool.config().target;
        let own = members.iter().find(|member| member.name == old);
        let domain = own.map(|member| member.domain.clone()).filter(|domain| old != *domain);
        let target = NewTarget { path: self.dir.clone(), domain: self.domain.clone().or(domain) };
        let there = self.added_before(&pool, &old);
        let run = RebuildRun {
            output: &self.output,
            effort: &self.effort,
            compute: &compute,
            all: false,
            wait: self.wait,
        };
        let options =
            RebuildOptions { targets: vec![self.target.clone()], agreed: self.agree.clone(), release: true };
        if self.dry_run {
            if there.is_none() {
                let planned = pool.plan_add(&target, Some(&self.target))?;
                self.output
                    .print_line(format!("would add target {}, domain {}", planned.name, planned.domain));
            }
            return run.plan(&pool, &options);
        }
        let new = match there {
            Some(member) => member.name,
            None => pool.add_in_place_of(&target, Some(&self.target))?,
        };
        self.which.record(&pool)?;
        self.output
            .print_line(format!("target {new} takes the place of {old}: {}", DisplayPath::path(&self.dir)));
        let states = pool.status().targets;
        if states.iter().any(|target| target.name == old && target.state == TargetState::Online) {
            pool.retire(&old)?;
        }
        let outcome = run.rebuild(&pool, &options, "pool replace")?;
        if outcome != Outcome::Fine {
            return Ok(outcome);
        }
        let vault = vault(&pool)?;
        let _lock = crate::commands::vault::lock(&vault, "pool replace", self.wait, &self.output)?;
        forget(&vault, &old)?;
        self.which.record(&pool)?;
        self.output.print_line(format!("target {old} is no longer part of the pool"));
        Ok(Outcome::Fine)
    }

    /// The new target, if an interrupted run has added it.
    fn added_before(&self, pool: &Pool, old: &TargetName) -> Option<Member> {
        let path = std::path::absolute(&self.dir).ok()?;
        let members = pool.config().target;
        let states = pool.status().targets;
        members.into_iter().find(|member| {
            let is_online = states.iter().any(|it| it.name == member.name && it.state == TargetState::Online);
            member.name != *old && path == Path::new(&member.path) && is_online
        })
    }
}
