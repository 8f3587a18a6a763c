//! `gabion repair`.

use super::scrub::print_damage;
use super::{Effort, FIRST, Which, ranges};
use crate::commands::device::{self, DeviceArgs};
use crate::commands::served::{self, Turn};
use crate::output::{OutputArgs, count, files, print_json};
use gabion::compute::Compute;
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::RepairReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::State;
use gabion_vault::damage::DamageReport;
use gabion_vault::repair::{Options, Plan, Repaired, follow_renamed, plan, repair_all};
use gabion_vault::retry::{Failure, Retry};
use gabion_vault::vault::Vault;
use std::io::{IsTerminal, stdin};

const EXAMPLES: &str = "\
Examples:
  gabion repair /srv/photos
  gabion repair /srv/photos --dry-run
  gabion repair /srv/photos/2026/beach.jpg --yes
  gabion repair /srv/photos/2026/beach.jpg --revert-changes

Verifies the files, prints the damage and the plan, asks, and then restores every damaged block: it is reconstructed \
from good blocks, verified against its signature, and written in place. Files whose size or mtime \
changed since they were protected are listed and skipped; --revert-changes restores those too. Replaced content \
is kept in the repository under replaced/, by default for 30 days (`gabion status` counts it). Data that \
cannot be reconstructed is reported and not changed.
Exit codes: 0 nothing to do or all repaired, 1 not all repaired or some skipped, 2 error, 3 data lost.";

/// Arguments of `gabion repair`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Repair without asking
    #[arg(long, short)]
    yes: bool,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only files that a scrub found damaged
    #[arg(long)]
    known: bool,
    /// Also restore the protected version of files that were written since
    #[arg(long)]
    revert_changes: bool,
    /// Skip files that were written since they were protected (default)
    #[arg(long, conflicts_with = "revert_changes")]
    keep_changed: bool,
    /// Also restore missing files, if redundancy suffices (m ≥ k)
    #[arg(long)]
    missing: bool,
    /// List all files, not only the first ten
    #[arg(long)]
    files: bool,
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
    pub(crate) fn run(self) -> anyhow::Result<Outcome> {
        let compute = self.device.open()?;
        let (mut vault, inside) = self.which.open_to_examine()?;
        vault.coders = compute.coders(self.effort.threads())?;
        if let (Some(why), false) = (&vault.read_only, self.dry_run) {
            anyhow::bail!(
                "repair stores replaced content and its progress in the repository: {why}. Use --dry-run to print the plan, \
                or --repository with a writable copy"
            );
        }
        let _lock = match self.turn(&vault, &inside)? {
            Turn::Ours(lock) => lock,
            Turn::Theirs(outcome) => return Ok(outcome),
        };
        // A missing file that is named on the command line is restored.
        let named = vault.catalogue.find(&inside)?.is_some();
        let options = Options {
            known_only: self.known,
            keep_changed: !self.revert_changes,
            missing: self.missing || named,
        };
        // A renamed file is found under its new name.
        let mut failed = if self.dry_run { Vec::new() } else { follow_renamed(&vault)? };
        let plan = self.output.run(&self.effort, |context| plan(&vault, &inside, options, context))??;
        if !self.output.json {
            self.print_plan(&plan);
        }
        let go = !self.dry_run && !plan.files.is_empty() && (self.yes || self.confirmed(&plan)?);
        let mut repaired = Vec::new();
        failed.extend(plan.failed.iter().cloned());
        if go {
            let results = self.output.run(&self.effort, |context| repair_all(&vault, &plan, context))?;
            for (damage, result) in plan.files.iter().zip(results) {
                let stopped = || Err(Failure::new("stopped", Retry::Later));
                match result.unwrap_or_else(stopped) {
                    Ok(done) => repaired.push(done),
                    Err(why) => failed.push((damage.path.clone(), why)),
                }
            }
        }
        self.print_done(&plan, &repaired, &failed, go, &compute);
        // A file that is not repaired is as it was found.
        let now = |it: &DamageReport| {
            repaired.iter().find(|done| done.path == it.path).map_or(it.state, |done| done.state)
        };
        let worst = plan.files.iter().map(now).max().unwrap_or(State::Protected);
        Ok(match worst {
            State::Lost => Outcome::Unrecoverable,
            _ if !failed.is_empty() => Outcome::Failed,
            State::Protected if plan.kept.is_empty() => Outcome::Fine,
            _ => Outcome::Found,
        })
    }

    /// Locks the vault, or has the daemon that uses it do the repair. The daemon cannot ask, so --yes is required.
    fn turn(&self, vault: &Vault, inside: &[u8]) -> anyhow::Result<Turn> {
        let plain = inside.is_empty()
            && self.yes
            && !self.dry_run
            && self.effort.is_usual()
            && self.device.is_usual();
        served::turn(vault, "repair", self.wait, &self.output, |source| {
            let (known, keep_changed, missing, wait) = (self.known, !self.revert_changes, self.missing, true);
            plain.then_some(Request::Repair { source, known, keep_changed, missing, wait })
        })
    }

    fn print_plan(&self, plan: &Plan) {
        if plan.files.is_empty() {
            self.output.print_line(format!("{} examined, nothing to repair", files(plan.examined)));
        } else {
            let count = plan.files.len() as u64;
            outln!("{} of {} need{} repair:", files(count), plan.examined, if count == 1 { "s" } else { "" });
            print_damage(&plan.files, self.files);
        }
        if !plan.kept.is_empty() {
            outln!(
                "skipped, because their size or mtime changed since they were protected: {}",
                files(plan.kept.len() as u64)
            );
            print_damage(&plan.kept, self.files);
            outln!(
                "`gabion protect` protects their current content (write-once files after `gabion approve PATH`), `gabion repair --revert-changes` restores \
                the protected content"
            );
        }
    }

    fn confirmed(&self, plan: &Plan) -> anyhow::Result<bool> {
        anyhow::ensure!(
            stdin().is_terminal() && !self.output.json,
            "no terminal to ask on: use --yes to repair {}, or --dry-run",
            files(plan.files.len() as u64)
        );
        let changed = plan.files.iter().filter(|it| it.changed).count() as u64;
        if changed > 0 {
            outln!("{} were written since they were protected and will be reverted.", files(changed));
        }
        out!("Repair {}? [y/N] ", files(plan.files.len() as u64));
        let mut answer = String::new();
        stdin().read_line(&mut answer)?;
        Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    fn print_done(
        &self,
        plan: &Plan,
        repaired: &[Repaired],
        failed: &[(Vec<u8>, Failure)],
        went: bool,
        compute: &Compute,
    ) {
        if self.output.json {
            let report = RepairReport::new(plan, repaired, failed, self.dry_run, went);
            return print_json(&device::add_to(report, compute));
        }
        let (whole, partly): (Vec<_>, Vec<_>) =
            repaired.iter().partition(|done| done.state == State::Protected);
        self.print_repaired(&whole, "repaired");
        self.print_repaired(&partly, "not restored completely");
        let shown = if self.files { failed.len() } else { FIRST };
        for (path, why) in failed.iter().take(shown) {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        if failed.len() > shown {
            errln!("gabion: and {} more; --files lists all", files((failed.len() - shown) as u64));
        }
        if repaired.len() > 1 {
            self.output.print_line(format!(
                "repaired {} of {}",
                count(whole.len() as u64),
                files(plan.files.len() as u64)
            ));
        }
        device::print(compute, |line| self.output.print_line(line));
    }

    /// Prints as many files as the plan does.
    fn print_repaired(&self, repaired: &[&Repaired], what: &str) {
        let shown = if self.files { repaired.len() } else { FIRST };
        for done in repaired.iter().take(shown) {
            let blocks =
                format!("{} data and {} redundancy blocks", done.data_blocks, done.redundancy_blocks);
            match done.state {
                State::Protected => outln!("repaired  {}: {blocks}", DisplayPath::bytes(&done.path)),
                State::Lost => {
                    outln!(
                        "LOST      {}: bytes {}",
                        DisplayPath::bytes(&done.path),
                        ranges(done.lost.iter())
                    );
                    outln!("          restored: {blocks}");
                }
                state => outln!("{:<9} {}: {blocks}", state.word(), DisplayPath::bytes(&done.path)),
            }
            if let Some(path) = &done.replaced {
                outln!("          replaced content: {}", DisplayPath::path(path));
            }
            done.notes.iter().for_each(|note| outln!("          {note}"));
        }
        if repaired.len() > shown {
            outln!("and {} more {what}; --files lists all", files((repaired.len() - shown) as u64));
        }
    }
}
