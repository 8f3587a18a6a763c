//! `gabion pool rebuild`.

use super::terminal::Which;
use crate::commands::device::{self, DeviceArgs};
use crate::commands::served::{self, Turn};
use crate::commands::vault::{BEGUN, Effort, FIRST};
use crate::output::{OutputArgs, bytes, files, print_json};
use gabion::compute::{Compute, DeviceChoice};
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::pool::{PoolRebuildPlanReport, PoolRebuildReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::pool_rebuild::{
    Plan, PlannedFile, RebuildOptions, RebuildReport, check_mass_failure, plan, rebuild,
};
use gabion_vault::storage::pool::Pool;
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch};

const EXAMPLES: &str = "\
Examples:
  gabion pool rebuild tank                     all targets that are gone, retired, or back
  gabion pool rebuild tank --dry-run           print the plan and the lost files
  gabion pool rebuild tank --target d3         only the content of d3
  gabion pool rebuild tank --limit 100MiB/s    limit the load on the disks

Reconstructs the data and redundancy of targets that are gone from the remaining columns, on other targets in different \
failure domains. The files with the least remaining redundancy come first. A target that is gone is first marked as given up; when it \
comes back, run this command again: its columns are verified, those that were reconstructed elsewhere are removed from it, and it is \
used for new files again. With --target, a target in service is verified. \
The command can be interrupted or killed at any time; the next run continues with the rest. \
If more targets are gone than files have redundancy, or more than half of them, nothing is done until an operator confirms the \
loss of these targets with --agree.
Exit codes: 0 nothing to do or complete, 1 incomplete, 2 error or interrupted, 3 data lost.";

/// Arguments of `gabion pool rebuild`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Only columns of these targets
    #[arg(long = "target", value_name = "TARGET", num_args = 1..)]
    targets: Vec<String>,
    /// Print the plan, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Confirm the loss of the targets that a refusal named
    #[arg(long, value_name = "DIGEST")]
    agree: Option<String>,
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
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let compute = self.device.open()?;
        let pool = self.which.open()?;
        for target in &self.targets {
            let known = pool.config().target.iter().any(|member| member.name == *target);
            anyhow::ensure!(known, "pool {} has no target {target}", pool.config().name);
        }
        let options = RebuildOptions { targets: self.targets, agreed: self.agree, release: false };
        let (output, effort) = (&self.output, &self.effort);
        let run = RebuildRun { output, effort, compute: &compute, all: self.files, wait: self.wait };
        match self.dry_run {
            true => run.plan(&pool, &options),
            false => run.rebuild(&pool, &options, "pool rebuild"),
        }
    }
}

/// A rebuild with its options for threads and output.
pub(super) struct RebuildRun<'a> {
    pub(super) output: &'a OutputArgs,
    pub(super) effort: &'a Effort,
    pub(super) compute: &'a Compute,
    /// List all files.
    pub(super) all: bool,
    /// Wait for the vault.
    pub(super) wait: bool,
}

/// The vault of a pool; created if there is none.
pub(super) fn vault(pool: &Pool) -> anyhow::Result<Vault> {
    let location = Location::of_pool(pool)?;
    let first = !location.repository.join("vault.toml").exists();
    let all_answer = pool.status().targets.iter().all(|target| target.reason.is_none());
    if first && all_answer {
        return Ok(Vault::create(&location, None, Clock::System)?);
    }
    let (vault, begun) = Vault::of_pool(pool, Clock::System)?;
    if begun {
        errln!("gabion: warning: {BEGUN}");
    }
    Ok(vault)
}

impl RebuildRun<'_> {
    pub(super) fn plan(&self, pool: &Pool, options: &RebuildOptions) -> anyhow::Result<Outcome> {
        let vault = vault(pool)?;
        let plan = self.output.run(self.effort, |context| plan(&vault, options, context))??;
        let refused = vault
            .pool
            .as_ref()
            .map(|pool| check_mass_failure(pool, &vault.coders, options.agreed.as_deref()));
        let refused = refused.and_then(Result::err).map(|error| error.to_string());
        if self.output.json {
            print_json(&PoolRebuildPlanReport::new(&plan, refused.as_deref()));
        } else {
            self.print_plan(&plan);
        }
        refused.iter().for_each(|why| errln!("gabion: {why}"));
        Ok(match () {
            () if !plan.lost.is_empty() => Outcome::Unrecoverable,
            () if !plan.files.is_empty() || !plan.unreadable.is_empty() => Outcome::Found,
            () => Outcome::Fine,
        })
    }

    pub(super) fn rebuild(
        &self,
        pool: &Pool,
        options: &RebuildOptions,
        command: &str,
    ) -> anyhow::Result<Outcome> {
        let mut vault = vault(pool)?;
        vault.coders = self.compute.coders(self.effort.threads())?;
        let turn = served::turn(&vault, command, self.wait, self.output, |source| {
            let plain =
                self.effort.is_usual() && !options.release && self.compute.choice() == DeviceChoice::Cpu;
            let (targets, agree, wait) = (options.targets.clone(), options.agreed.clone(), true);
            plain.then_some(Request::Rebuild { source, targets, agree, wait })
        })?;
        let _lock = match turn {
            Turn::Ours(lock) => lock,
            Turn::Theirs(outcome) => return Ok(outcome),
        };
        let clock = Stopwatch::start();
        let report = self.output.run(self.effort, |context| rebuild(&vault, options, context))??;
        let seconds = clock.seconds();
        if self.output.json {
            print_json(&device::add_to(PoolRebuildReport::new(command, &report, seconds), self.compute));
        } else {
            self.print(&report, seconds);
            device::print(self.compute, |line| self.output.print_line(line));
        }
        for (path, error) in &report.failed {
            errln!("gabion: {}: {error}", DisplayPath::bytes(path));
        }
        for (path, why) in &report.plan.unreadable {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        for error in &report.healed.failed {
            errln!("gabion: {error}");
        }
        Ok(match () {
            () if report.has_losses() => Outcome::Unrecoverable,
            () if report.stopped => Outcome::Failed,
            () if !report.is_whole() => Outcome::Found,
            () => Outcome::Fine,
        })
    }

    fn names<'b>(&self, word: &str, items: impl ExactSizeIterator<Item = (&'b [u8], String)>) {
        let total = items.len();
        let shown = if self.all { total } else { FIRST };
        for (path, what) in items.take(shown) {
            self.output.print_line(format!("  {word:<9} {}{what}", DisplayPath::bytes(path)));
        }
        if total > shown {
            self.output
                .print_line(format!("  and {} more; --files lists all", files((total - shown) as u64)));
        }
    }

    fn print_targets(&self, plan: &Plan) {
        let said = [("gone", &plan.gone), ("retired", &plan.retired), ("to be verified", &plan.returned)];
        for (word, targets) in said.into_iter().filter(|(_, targets)| !targets.is_empty()) {
            self.output.print_line(format!("{word}: {}", targets.join(", ")));
        }
    }

    fn print_plan(&self, plan: &Plan) {
        self.print_targets(plan);
        if plan.files.is_empty() && plan.lost.is_empty() {
            self.output.print_line(format!("{} examined, nothing to rebuild", files(plan.examined)));
            return;
        }
        self.output.print_line(format!(
            "{} of {} to rebuild, {} to write or verify:",
            files(plan.files.len() as u64),
            plan.examined,
            bytes(plan.bytes())
        ));
        let what = |item: &PlannedFile| format!(" ({} to spare; {})", item.spare, item.targets.join(", "));
        self.names("rebuild", plan.files.iter().map(|item| (&item.path[..], what(item))));
        self.names("LOST", plan.lost.iter().map(|item| (&item.path[..], missing(item))));
    }

    fn print(&self, report: &RebuildReport, seconds: f64) {
        self.print_targets(&report.plan);
        let plan = &report.plan;
        if plan.files.is_empty() && plan.lost.is_empty() {
            self.output.print_line(format!("{} examined, nothing to rebuild", files(plan.examined)));
        } else {
            let rate = report.bytes as f64 / seconds.max(1e-9);
            self.output.print_line(format!(
                "rebuilt   {} of {}: {} data and {} redundancy columns, {} in {seconds:.1} s ({}/s)",
                files(report.files),
                plan.files.len() + plan.lost.len(),
                report.data,
                report.redundancy,
                bytes(report.bytes),
                bytes(rate as u64)
            ));
        }
        if report.verified + report.removed + report.swept > 0 {
            self.output.print_line(format!(
                "verified  {} columns in place; removed {} files that were reconstructed elsewhere, and {} leftovers",
                report.verified, report.removed, report.swept
            ));
        }
        if report.wrong > 0 {
            self.output.print_line(format!(
                "WARNING: {} blocks failed verification and were reconstructed from others: run a scrub",
                report.wrong
            ));
        }
        if !report.unverified.is_empty() {
            let targets: Vec<&str> = report.unverified.iter().map(TargetName::as_str).collect();
            self.output.print_line(format!(
                "INCOMPLETE: {} came back, and columns that were reconstructed in its place are damaged. Repair them, and \
                run this command again",
                targets.join(", ")
            ));
        }
        if !report.reinstated.is_empty() {
            self.output.print_line(format!("in service again: {}", report.reinstated.join(", ")));
        }
        if !report.unplaced.is_empty() {
            self.output.print_line(format!(
                "NOT SAFE: {} have columns without a target in a separate failure domain: add a target",
                files(report.unplaced.len() as u64)
            ));
            let what = |columns: usize| format!(": {columns} columns are not placed");
            self.names("exposed", report.unplaced.iter().map(|(path, columns)| (&path[..], what(*columns))));
        }
        if !report.unmoved.is_empty() {
            self.output.print_line(
                "NOT EMPTY: a retired target keeps columns that no other target can take: add a target",
            );
            let what = |columns: usize| format!(": {columns} columns stay");
            self.names("stays", report.unmoved.iter().map(|(path, columns)| (&path[..], what(*columns))));
        }
        self.names("LOST", report.plan.lost.iter().map(|item| (&item.path[..], missing(item))));
        if report.stopped {
            self.output.print_line("stopped; the next run continues");
        }
    }
}

fn missing(item: &PlannedFile) -> String {
    format!(": {} blocks too few; missing on {}", -item.spare, item.targets.join(", "))
}
