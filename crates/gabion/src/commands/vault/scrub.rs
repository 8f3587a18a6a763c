//! `gabion scrub`.

use super::{Effort, FIRST, Which, ranges};
use crate::commands::device::{self, DeviceArgs};
use crate::commands::served::{self, Turn};
use crate::output::{OutputArgs, bytes, files, print_json};
use gabion::compute::Compute;
use gabion::daemon::client::Request;
use gabion::exit::Outcome;
use gabion::report::ScrubReport;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::{Piece, State};
use gabion_vault::damage::DamageReport;
use gabion_vault::policy::DurationText;
use gabion_vault::scrub::{Options, Report, Selection, scrub};
use gabion_vault::vault::Vault;
use gabion_vault::world::Stopwatch;

const EXAMPLES: &str = "\
Examples:
  gabion scrub /srv/photos
  gabion scrub /srv/photos --older-than 10d --limit 100MiB/s
  gabion scrub /srv/photos --percent 8
  gabion scrub /srv/photos --due                files whose scrub is due by the policy
  gabion scrub /srv/photos/2026/beach.jpg

Reads data and redundancy from the disk and verifies them: data and redundancy against their signatures, and the \
signatures against each other. Damage is printed by file and byte range and recorded for `gabion status`; \
`gabion repair` repairs it. An interrupted scrub continues where it stopped.
Exit codes: 0 no damage, 1 repairable damage, 2 some files could not be read, 3 data lost.";

/// Arguments of `gabion scrub`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// All files (default)
    #[arg(long)]
    all: bool,
    /// Only files whose last scrub is older than this, such as 10d
    #[arg(long, value_name = "AGE", conflicts_with_all = ["all", "percent"])]
    older_than: Option<DurationText>,
    /// Only files whose last complete verification is older than their policy's interval (scrub = "30d")
    #[arg(long, conflicts_with_all = ["all", "percent", "older_than"])]
    due: bool,
    /// Only this percentage of all files, the longest unscrubbed first
    #[arg(long, value_name = "SHARE", conflicts_with = "all", value_parser = clap::value_parser!(u8).range(1..=100))]
    percent: Option<u8>,
    /// Start over, even if the last scrub was interrupted
    #[arg(long)]
    restart: bool,
    /// Read from the page cache instead of the disk
    #[arg(long)]
    cached: bool,
    /// List all damaged files, not only the first ten
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
        if let Some(why) = &vault.read_only {
            errln!("gabion: note: findings are not recorded: {why}");
        }
        let _lock = match self.turn(&vault, &inside)? {
            Turn::Ours(lock) => lock,
            Turn::Theirs(outcome) => return Ok(outcome),
        };
        let selection = match (self.older_than, self.percent) {
            _ if self.due => Selection::Due,
            (Some(age), _) => Selection::OlderThan(age.0),
            (_, Some(share)) => Selection::Percent(share),
            _ => Selection::All,
        };
        let options = Options { selection, from_medium: !self.cached, resume: !self.restart };
        let start = Stopwatch::start();
        let report = self.output.run(&self.effort, |context| scrub(&vault, &inside, options, context))??;
        self.print(&report, &compute, start.seconds(), vault.read_only.is_none());
        Ok(match report.worst() {
            State::Lost => Outcome::Unrecoverable,
            _ if !report.failed.is_empty() || report.stopped => Outcome::Failed,
            State::Protected => Outcome::Fine,
            _ => Outcome::Found,
        })
    }

    /// Locks the vault, or has the daemon that uses it do the scrub.
    fn turn(&self, vault: &Vault, inside: &[u8]) -> anyhow::Result<Turn> {
        let plain = inside.is_empty() && !self.cached && self.effort.is_usual() && self.device.is_usual();
        served::turn(vault, "scrub", self.wait, &self.output, |source| {
            let older_than = self.older_than.map(|age| age.0.as_secs());
            let (percent, due, restart, repair, wait) = (self.percent, self.due, self.restart, false, true);
            plain.then_some(Request::Scrub { source, percent, older_than, due, restart, repair, wait })
        })
    }

    fn print(&self, report: &Report, compute: &Compute, seconds: f64, recorded: bool) {
        if self.output.json {
            return print_json(&device::add_to(ScrubReport::new(report, seconds, recorded), compute));
        }
        let rate = bytes((report.bytes as f64 / seconds.max(1e-9)) as u64);
        self.output.print_line(format!(
            "scrubbed {} ({} with redundancy) in {seconds:.1} s, {rate}/s",
            files(report.files),
            bytes(report.bytes)
        ));
        device::print(compute, |line| self.output.print_line(line));
        if report.resumed > 0 {
            self.output
                .print_line(format!("{} were scrubbed before the interruption", files(report.resumed)));
        }
        if report.gone > 0 {
            let verb = if report.gone == 1 { "is" } else { "are" };
            self.output.print_line(format!("{} {verb} gone since the last protect", files(report.gone)));
        }
        if report.changing > 0 {
            self.output
                .print_line(format!("{} were written, protected or moved meanwhile", files(report.changing)));
        }
        print_damage(&report.damage, self.files);
        for (path, why) in &report.failed {
            errln!("gabion: {}: {why}", DisplayPath::bytes(path));
        }
        if report.stopped {
            outln!("stopped; the next scrub continues from here");
        } else if report.damage.is_empty() && report.failed.is_empty() {
            self.output.print_line(if report.files > 0 { "no damage" } else { "nothing to scrub" });
        } else if report.damage.iter().any(|damage| damage.state != State::Lost) {
            self.output.print_line("`gabion repair` repairs the recoverable files");
        }
        if report.damage.iter().any(|damage| damage.changed && !damage.is_missing()) {
            self.output.print_line("if a change is intended, `gabion protect` protects the current content");
        }
    }
}

/// Prints damaged files, one per line, with the byte ranges below.
pub(super) fn print_damage(damage: &[DamageReport], all: bool) {
    let shown = if all { damage.len() } else { FIRST };
    for report in damage.iter().take(shown) {
        let DamageReport { path, state, problems, notes, .. } = report;
        let how = match report.changed {
            _ if report.is_missing() => ", and the file is missing",
            true => ", and its size or time changed since it was protected",
            false => "",
        };
        outln!("{:<9} {}{how}", state.word(), DisplayPath::bytes(path));
        for piece in [Piece::Lost, Piece::Data, Piece::Redundancy, Piece::Header] {
            let of: Vec<_> = problems.iter().filter(|it| it.piece == piece).map(|it| &it.range).collect();
            if !of.is_empty() {
                outln!("          {}: bytes {}", piece.words(), ranges(of.into_iter()));
            }
        }
        notes.iter().for_each(|note| outln!("          {note}"));
    }
    if damage.len() > shown {
        outln!("and {} more; --files lists all", files((damage.len() - shown) as u64));
    }
}
