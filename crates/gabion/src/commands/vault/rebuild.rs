//! `gabion rebuild`.

use super::placed::Placed;
use super::{Effort, FIRST, Which, lock};
use crate::output::{OutputArgs, bytes, files, print_json};
use anyhow::Context;
use gabion::exit::Outcome;
use gabion::report::{FileFailure, RebuildPlanReport, RebuildReport, TargetLoss};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::placed_rebuild::{Plan, plan, rebuild_data, remove_set_aside, set_redundancy_aside};
use gabion_vault::protect::selected::{Selection, protect_selected};
use gabion_vault::run::Progress;
use gabion_vault::vault::Vault;
use std::collections::BTreeMap;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gabion rebuild /mnt/mfs/data --failed 10.0.0.7:9422 --dry-run    what the loss affects
  gabion rebuild /mnt/mfs/data --failed 10.0.0.7:9422

For a directory on MooseFS, after chunk servers were lost; `gabion doctor` lists their names. Targets that are offline \
count as failed, too. What is lost of a file is reconstructed from its redundancy, and the file is written anew, verified, \
and put in the place of the old one: owner, permissions, attributes and times stay, the inode does not. Files with the \
least remaining redundancy come first. Redundancy that is lost is made anew. \
Programs must not write to the files meanwhile. A file with several hard links, or that cannot be restored in full, is left as it \
is and named. The command can be interrupted; the next run continues with the rest.
Exit codes: 0 nothing is left on failed targets, 1 something is left or unknown, 2 error, 3 files are lost.";

/// Arguments of `gabion rebuild`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// The targets that failed
    #[arg(long, value_name = "TARGET", required = true, num_args = 1..)]
    failed: Vec<String>,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// A directory with tools of the file system that are not in PATH
    #[arg(long, value_name = "DIR")]
    tools: Vec<PathBuf>,
    /// List all files, not only the first ten
    #[arg(long)]
    files: bool,
    /// Wait if another command is using the vault
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let (vault, inside) = self.which.open()?;
        anyhow::ensure!(
            vault.pool.is_none(),
            "this is a pool: `gabion pool rebuild` restores what its targets held"
        );
        let placed = Placed::of(&vault, &self.failed, &self.tools)?;
        let placed = placed.context("it is on a file system that does not tell where files lie")?;
        let found = self.output.run(&self.effort, |context| plan(&vault, &inside, &placed, context))??;
        let targets = self.targets(&vault, &placed, &found);
        if self.dry_run {
            match self.output.json {
                true => print_json(&RebuildPlanReport::new(&self.failed, &targets, &found)),
                false => self.print_plan(&targets, &found),
            }
            return Ok(outcome(&found, found.files.len()));
        }
        let _lock = lock(&vault, "rebuild", self.wait, &self.output)?;
        remove_set_aside(&vault)?;
        let (mut done, mut left) = (Vec::new(), Vec::new());
        self.output.run(&self.effort, |context| {
            let all = found.files.iter().map(|file| file.size).sum();
            (context.progress)(Progress::Step("rebuilding", Some((found.files.len() as u64, all))));
            for file in &found.files {
                if (context.stopped)() {
                    left.push((file.path.clone(), "the command was interrupted".to_owned()));
                    continue;
                }
                let result = match file.loses_data {
                    true => rebuild_data(&vault, &file.path, &placed).map_err(|error| error.to_string()),
                    false => set_redundancy_aside(&vault, &file.path).map_err(|error| error.to_string()),
                };
                match result {
                    Ok(()) => done.push(file.clone()),
                    Err(why) => left.push((file.path.clone(), why)),
                }
                (context.progress)(Progress::Done(1, file.size));
            }
        })?;
        let selection = Selection::of(&vault, done.iter().map(|file| file.path.clone()));
        let protected =
            self.output.run(&self.effort, |context| protect_selected(&vault, &selection, context))??;
        if protected.done.failures > 0 || protected.pending > 0 || protected.held.is_some() {
            errln!("gabion: warning: not all rebuilt files are protected again; `gabion protect` says why");
        }
        remove_set_aside(&vault)?;
        // Where everything is now: new files and new redundancy may be on failed targets again.
        let rest = self.output.run(&self.effort, |context| plan(&vault, &inside, &placed, context))??;
        let explained = |path: &[u8]| left.iter().any(|(known, _)| known == path);
        let again = rest.files.iter().filter(|file| !explained(&file.path));
        let again: Vec<_> =
            again.map(|file| (file.path.clone(), "it is on a failed target again".to_owned())).collect();
        left.extend(again);
        done.retain(|file| !left.iter().any(|(path, _)| *path == file.path));
        match self.output.json {
            true => print_json(&RebuildReport::new(&self.failed, &targets, &done, &left, &rest)),
            false => {
                let data = done.iter().filter(|file| file.loses_data);
                let size = data.clone().map(|file| file.size).sum();
                self.output.print_line(format!(
                    "rebuilt    {} ({}); redundancy of {} made anew",
                    files(data.count() as u64),
                    bytes(size),
                    files(done.iter().filter(|file| !file.loses_data).count() as u64)
                ));
                self.print_list("left", left.iter().map(|file| FileFailure::new(file).to_string()));
                self.print_rest(&rest);
            }
        }
        Ok(outcome(&rest, left.len()))
    }

    /// Affected files by failed target.
    fn targets(&self, vault: &Vault, placed: &Placed, plan: &Plan) -> Vec<TargetLoss> {
        let mut targets: BTreeMap<String, TargetLoss> = BTreeMap::new();
        for file in plan.files.iter().filter(|file| file.loses_data) {
            for name in placed.failed_targets_of(&vault.storage.shown(&file.path)) {
                let loss = targets.entry(name.clone()).or_insert_with(|| TargetLoss::new(name));
                loss.add(file.size);
            }
        }
        targets.into_values().collect()
    }

    fn print_plan(&self, targets: &[TargetLoss], plan: &Plan) {
        for target in targets {
            self.output.print_line(target.to_string());
        }
        self.print_list(
            "rebuild",
            plan.files.iter().map(|file| {
                let what = if file.loses_data { "data" } else { "redundancy" };
                let path = DisplayPath::bytes(&file.path);
                format!("{path} ({}; loses {what}, margin {})", bytes(file.size), file.margin)
            }),
        );
        self.print_rest(plan);
    }

    fn print_rest(&self, plan: &Plan) {
        self.print_list("unknown", plan.unknown.iter().map(|path| DisplayPath::bytes(path).to_string()));
        self.print_list("lost", plan.lost.iter().map(|path| DisplayPath::bytes(path).to_string()));
    }

    /// Prints the first lines, or all with `--files`, and the number of the others.
    fn print_list(&self, word: &str, lines: impl ExactSizeIterator<Item = String>) {
        let (all, most) = (lines.len(), if self.files { usize::MAX } else { FIRST });
        lines.take(most).for_each(|line| self.output.print_line(format!("{word:<10} {line}")));
        if all > most {
            self.output
                .print_line(format!("{word:<10} and {} more; --files lists all", files((all - most) as u64)));
        }
    }
}

fn outcome(plan: &Plan, left: usize) -> Outcome {
    match () {
        () if !plan.lost.is_empty() => Outcome::Unrecoverable,
        () if left > 0 || !plan.unknown.is_empty() => Outcome::Found,
        () => Outcome::Fine,
    }
}
