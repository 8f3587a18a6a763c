//! `gabion pool status`.

use super::terminal::Which;
use crate::commands::vault::FIRST;
use crate::output::{OutputArgs, bytes, print_json, table};
use gabion::exit::Outcome;
use gabion::report::pool::{FilesReport, HealedReport, PoolStatusReport, SweptReport};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::coder::Coders;
use gabion_vault::policy::Size;
use gabion_vault::pool_rebuild::survey::{FileHealth, PoolOverview, overview};
use gabion_vault::storage::TargetState;
use gabion_vault::storage::pool::config::Mirror;
use gabion_vault::storage::pool::{Status, Sweep, TargetStatus};

const EXAMPLES: &str = "\
Examples:
  gabion pool status tank
  gabion pool status /mnt/d1 --json | jq .warnings
  gabion pool status tank --heal          update stale mirrors of the namespace
  gabion pool status tank --sweep         remove objects without a file

Lists files with missing columns, from their recorded placement; no content is read.
Exit codes: 0 all well, 1 needs attention, 2 error, 3 files are lost.";

/// Arguments of `gabion pool status`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,
    /// Update all mirrors of the namespace
    #[arg(long)]
    heal: bool,
    /// Remove leftovers of crashes and absent targets; with --dry-run only list them
    #[arg(long)]
    sweep: bool,
    /// List all files with missing columns, not only the first ten, even if all targets are online
    #[arg(long)]
    files: bool,
    /// Remove nothing
    #[arg(long, requires = "sweep", conflicts_with = "heal")]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

impl Args {
    pub(super) fn run(self) -> anyhow::Result<Outcome> {
        let Args { which, heal, sweep, files, dry_run, output } = self;
        let pool = which.open()?;
        let healed = if heal { Some(pool.heal()?) } else { None };
        let swept = if sweep { Some(pool.sweep(!dry_run)?) } else { None };
        pool.probe();
        let status = pool.status();
        // If all targets are online, no file has missing columns.
        let wrong = status.targets.iter().any(|target| target.state != TargetState::Online);
        let names = if files || output.json { usize::MAX } else { FIRST };
        let overview = if wrong || files { Some(overview(&pool, &Coders::new()?, names)) } else { None };
        let overview = overview.transpose();
        let failed: Vec<String> =
            healed.iter().flat_map(|healed| &healed.failed).map(ToString::to_string).collect();
        if output.json {
            print_json(&PoolStatusReport {
                status: &status,
                healed: healed.as_ref().map(|healed| HealedReport::new(healed, &failed)),
                swept: swept.as_ref().map(|swept| SweptReport::new(swept, dry_run)),
                files: overview.as_ref().ok().and_then(Option::as_ref).map(FilesReport::new),
            });
        } else {
            print(&status, &output);
            if let Ok(Some(overview)) = &overview {
                tell_files(overview, &output);
            }
            if let Some(healed) = &healed {
                output.print_line(format!(
                    "healed: {} entries written, {} removed; mirrors now current: {}",
                    healed.written,
                    healed.removed,
                    if healed.mirrors.is_empty() {
                        "as before".to_owned()
                    } else {
                        healed.mirrors.join(", ")
                    }
                ));
            }
            if let Some(swept) = &swept {
                tell_swept(swept, dry_run, &output);
            }
        }
        failed.iter().for_each(|text| errln!("gabion: {text}"));
        if let Err(error) = &overview {
            errln!("gabion: cannot determine the state of files: {error}");
        }
        let lost = matches!(&overview, Ok(Some(overview)) if overview.files.contains_key(&FileHealth::Lost));
        for warning in &status.warnings {
            errln!("gabion: warning: {warning}");
        }
        Ok(match (failed.is_empty(), status.warnings.is_empty()) {
            _ if lost => Outcome::Unrecoverable,
            (false, _) => Outcome::Failed,
            (true, false) => Outcome::Found,
            (true, true) => Outcome::Fine,
        })
    }
}

fn tell_files(overview: &PoolOverview, output: &OutputArgs) {
    let count = |health: FileHealth| overview.files.get(&health).copied().unwrap_or(0);
    output.print_line(format!(
        "files: {} whole, {} pending, {} to be moved, {} degraded, {} lost",
        count(FileHealth::Whole),
        count(FileHealth::Pending),
        count(FileHealth::Draining),
        count(FileHealth::Degraded),
        count(FileHealth::Lost)
    ));
    for (path, health, targets) in &overview.named {
        let word = if *health == FileHealth::Lost { "LOST" } else { "degraded" };
        output.print_line(format!(
            "  {word:<9} {} (missing on {})",
            DisplayPath::bytes(path),
            targets.join(", ")
        ));
    }
    let affected = count(FileHealth::Degraded) + count(FileHealth::Lost);
    if affected > overview.named.len() as u64 {
        output
            .print_line(format!("  and {} more; --files lists all", affected - overview.named.len() as u64));
    }
    for (path, why) in &overview.unreadable {
        errln!("gabion: {}: {why}", DisplayPath::bytes(path));
    }
}

fn tell_swept(swept: &Sweep, dry_run: bool, output: &OutputArgs) {
    let verb = if dry_run { "left over" } else { "removed" };
    for orphan in &swept.orphans {
        output.print_line(format!(
            "{verb}: {} on {}, {}",
            DisplayPath::bytes(&orphan.path),
            orphan.target,
            bytes(orphan.bytes)
        ));
    }
    output.print_line(format!(
        "{} files that nothing refers to, {} being written",
        swept.orphans.len(),
        swept.busy
    ));
}

fn print(status: &Status, output: &OutputArgs) {
    output.print_line(format!(
        "pool {}  {}  epoch {}  stripe {}  redundancy {}  block {}",
        status.name,
        status.pool,
        status.epoch,
        status.stripe,
        status.redundancy,
        Size(status.block)
    ));
    let mut rows = vec![
        ["target", "domain", "state", "mirror", "used", "free", "objects", "path"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(status.targets.iter().map(row));
    table(&rows, |at| (4..7).contains(&at)).iter().for_each(|line| output.print_line(line));
    let current = status
        .targets
        .iter()
        .filter(|target| target.mirror == Mirror::Current && target.state == TargetState::Online);
    let current = current.count();
    output.print_line(format!("namespace on {current} targets, {} required", status.required_mirrors));
}

fn row(target: &TargetStatus) -> Vec<String> {
    let known = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
    let state = match target.state {
        TargetState::Online => "online",
        TargetState::Offline => "OFFLINE",
        TargetState::Retired => "retired",
        TargetState::Returned => "returned",
    };
    let mirror = match target.mirror {
        Mirror::None => "-",
        Mirror::Current => "current",
        Mirror::Stale => "STALE",
    };
    let objects = target.objects.map_or_else(|| "-".to_owned(), |objects| objects.to_string());
    let path = DisplayPath::path(&target.path).to_string();
    let (name, domain) = (target.name.to_string(), target.domain.clone());
    let (used, free) = (known(target.used), known(target.free));
    vec![name, domain, state.to_owned(), mirror.to_owned(), used, free, objects, path]
}
