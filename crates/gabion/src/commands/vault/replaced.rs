//! `gabion replaced`.

use super::{Which, lock};
use crate::output::{OutputArgs, ago, bytes, count, files, print_json};
use clap::Subcommand;
use gabion::exit::Outcome;
use gabion::report::{ReplacedReport, ReplacedRun};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::policy::DurationText;
use gabion_vault::replaced::{self, Run};
use gabion_vault::vault::Vault;
use std::io::{IsTerminal, stdin};

const EXAMPLES: &str = "\
Examples:
  gabion replaced list /srv/photos
  gabion replaced purge /srv/photos --older-than 7d
  gabion replaced purge /srv/photos --run 2026-11-18-20-50-48-UTC --yes

Before a repair overwrites bytes, it keeps them in the directory replaced of the repository, in a sparse file of the same name: \
the bytes that were replaced are at their offsets, all else is a hole. What is older than the policy allows ([replaced] keep) \
is removed by the next scrub or repair.
Exit codes: 0 done, or nothing is kept, 2 error.";

/// Arguments of `gabion replaced`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the content that repair replaced, by run and file
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Remove content that repair replaced
    Purge(Purge),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("selection").required(true).multiple(false))]
struct Purge {
    #[command(flatten)]
    which: Which,
    /// Of this run; may be repeated
    #[arg(long, value_name = "NAME", group = "selection")]
    run: Vec<String>,
    /// Of runs that are older, such as 7d
    #[arg(long, value_name = "AGE", group = "selection")]
    older_than: Option<DurationText>,
    /// Of all runs
    #[arg(long, group = "selection")]
    all: bool,
    /// Remove without asking
    #[arg(long)]
    yes: bool,
    /// Print what would be removed, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        match self.command {
            Command::List { which, output } => list(&which, &output),
            Command::Purge(purge) => purge.run(),
        }
    }
}

fn list(which: &Which, output: &OutputArgs) -> anyhow::Result<Outcome> {
    let (vault, _) = which.open_to_examine()?;
    let runs = replaced::runs(&vault.repository)?;
    print(&vault, &runs, output, None)?;
    Ok(Outcome::Fine)
}

/// Prints runs; with `removed`, as what was removed or would be.
fn print(vault: &Vault, runs: &[Run], output: &OutputArgs, removed: Option<bool>) -> anyhow::Result<()> {
    let now = vault.clock.now();
    let mut report = ReplacedReport { removed, runs: Vec::new() };
    if runs.is_empty() {
        output.print_line("no content that repair replaced is kept");
    }
    for run in runs {
        let mut listed = ReplacedRun::new(run);
        replaced::files(&vault.repository, run, &mut |path, size, allocated| {
            listed.add(path, size, allocated)
        })?;
        let name = DisplayPath::bytes(&run.name);
        let (number, size) = (files(run.files), bytes(run.bytes));
        output.print_line(format!("{name}  {}  {number}, {size}", ago(now, run.at)));
        if removed.is_none() {
            for (path, allocated) in listed.files() {
                output.print_line(format!("  {:>10}  {path}", bytes(allocated)));
            }
        }
        report.runs.push(listed);
    }
    if output.json {
        print_json(&report);
    }
    Ok(())
}

impl Purge {
    fn run(self) -> anyhow::Result<Outcome> {
        let (vault, _) = self.which.open()?;
        let now = vault.clock.now();
        let all = replaced::runs(&vault.repository)?;
        for name in &self.run {
            let is_there = all.iter().any(|run| run.name == name.as_bytes());
            anyhow::ensure!(is_there, "there is no run {name}: `gabion replaced list` shows all");
        }
        let goes = |run: &&Run| {
            self.all
                || self.run.iter().any(|name| run.name == name.as_bytes())
                || self.older_than.is_some_and(|age| now.since(run.at) > age.0)
        };
        let runs: Vec<Run> = all.iter().filter(goes).cloned().collect();
        let _lock = match self.dry_run {
            true => None,
            false => Some(lock(&vault, "replaced purge", false, &self.output)?),
        };
        if !self.dry_run && !runs.is_empty() {
            anyhow::ensure!(self.yes || self.confirmed(&runs)?, "nothing was removed");
        }
        print(&vault, &runs, &self.output, Some(!self.dry_run))?;
        if !self.dry_run {
            for run in &runs {
                replaced::remove(&vault.repository, run)?;
            }
            self.output.print_line(format!(
                "removed {} of {} runs",
                count(runs.len() as u64),
                count(all.len() as u64)
            ));
        }
        Ok(Outcome::Fine)
    }

    fn confirmed(&self, runs: &[Run]) -> anyhow::Result<bool> {
        let number = files(runs.iter().map(|run| run.files).sum());
        anyhow::ensure!(
            stdin().is_terminal() && !self.output.json,
            "no terminal to ask on: use --yes to remove the replaced content of {number}, or --dry-run"
        );
        out!("Remove the replaced content of {number}? [y/N] ");
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }
}
