//! Reports of the commands on vaults.

use super::{DamagedFile, FileFailure, FileRanges, HeldReport, RepairedFile, path_text, path_texts};
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::{Class, Counts, State};
use gabion_vault::protect;
use gabion_vault::repair::{Plan, Repaired};
use gabion_vault::retry::Failure;
use gabion_vault::scrub;
use gabion_vault::vault::Vault;
use gabion_vault::worker::Done;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Numbers of files and bytes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FileAmount {
    files: u64,
    bytes: u64,
}

impl FileAmount {
    /// Of a pair of files and bytes.
    pub fn new((files, bytes): (u64, u64)) -> FileAmount {
        FileAmount { files, bytes }
    }
}

/// Files and bytes by class of change.
pub type ClassReport = BTreeMap<&'static str, FileAmount>;

/// Files and bytes of each class.
pub fn changes(counts: &Counts) -> ClassReport {
    Class::ALL.into_iter().map(|class| (class.word(), FileAmount::new(counts.of(class)))).collect()
}

/// A file that was in the place of a redundancy file, and its new path.
#[derive(Debug, Clone, Serialize)]
pub struct SetAside {
    path: String,
    to: String,
}

/// `gabion protect --dry-run`.
#[derive(Debug, Clone, Serialize)]
pub struct ProtectPlanReport {
    command: &'static str,
    dry_run: bool,
    files: u64,
    bytes: u64,
    changes: ClassReport,
    held: Option<HeldReport>,
}

impl ProtectPlanReport {
    /// Of the result of a scan.
    pub fn new(files: u64, bytes: u64, counts: &Counts, held: Option<HeldReport>) -> ProtectPlanReport {
        ProtectPlanReport { command: "protect", dry_run: true, files, bytes, changes: changes(counts), held }
    }
}

/// `gabion protect`.
#[derive(Debug, Clone, Serialize)]
pub struct ProtectReport {
    command: &'static str,
    dry_run: bool,
    root: String,
    repository: String,
    files: u64,
    bytes: u64,
    left_out: u64,
    links: u64,
    special: u64,
    changes: ClassReport,
    encoded: u64,
    encoded_bytes: u64,
    adopted: u64,
    moved: u64,
    removed: u64,
    reduced_redundancy: u64,
    redundancy_bytes: u64,
    stripes_encoded: u64,
    stripes_kept: u64,
    failures: u64,
    failed: Vec<FileFailure>,
    set_aside: Vec<SetAside>,
    damaged: Vec<DamagedFile>,
    changed_in_growth: Vec<FileRanges>,
    write_once_changed: Vec<String>,
    held: Option<HeldReport>,
    pending: u64,
    seconds: f64,
    affected: BTreeMap<&'static str, u64>,
    mirrors_not_healed: Vec<String>,
    peak_memory: Option<u64>,
}

impl ProtectReport {
    /// Of the report of the vault.
    pub fn new(vault: &Vault, report: &protect::Report, seconds: f64) -> ProtectReport {
        let protect::Report { seen, done, held, pending, affected, unhealed } = report;
        let aside = |(path, aside): &(Vec<u8>, PathBuf)| SetAside {
            path: path_text(path),
            to: DisplayPath::path(aside).to_string(),
        };
        ProtectReport {
            command: "protect",
            dry_run: false,
            root: DisplayPath::path(&vault.root).to_string(),
            repository: DisplayPath::path(vault.repository.path()).to_string(),
            files: seen.files,
            bytes: seen.bytes,
            left_out: seen.left_out,
            links: seen.links,
            special: seen.special,
            changes: changes(&seen.changes),
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            adopted: done.adopted,
            moved: done.moved,
            removed: done.removed,
            reduced_redundancy: done.reduced_redundancy,
            redundancy_bytes: done.redundancy_bytes,
            stripes_encoded: done.stripes.0,
            stripes_kept: done.stripes.1,
            failures: done.failures + seen.unreadable.len() as u64,
            failed: done.failed.iter().chain(&seen.unreadable).map(FileFailure::new).collect(),
            set_aside: done.set_aside.iter().map(aside).collect(),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
            changed_in_growth: done.changed.iter().map(FileRanges::new).collect(),
            write_once_changed: path_texts(&seen.write_once),
            held: held.as_ref().map(HeldReport::new),
            pending: *pending,
            seconds,
            affected: affected.iter().map(|(state, files)| (state.word(), *files)).collect(),
            mirrors_not_healed: unhealed.clone(),
            peak_memory: crate::machine::peak_memory(),
        }
    }
}

/// `gabion scrub`.
#[derive(Debug, Clone, Serialize)]
pub struct ScrubReport {
    command: &'static str,
    files: u64,
    bytes: u64,
    gone: u64,
    changing: u64,
    resumed: u64,
    recorded: bool,
    stopped: bool,
    worst: State,
    damage: Vec<DamagedFile>,
    failed: Vec<FileFailure>,
    seconds: f64,
}

impl ScrubReport {
    /// Of the report of the vault; `recorded` is false if the repository is read-only.
    pub fn new(report: &scrub::Report, seconds: f64, recorded: bool) -> ScrubReport {
        ScrubReport {
            command: "scrub",
            files: report.files,
            bytes: report.bytes,
            gone: report.gone,
            changing: report.changing,
            resumed: report.resumed,
            recorded,
            stopped: report.stopped,
            worst: report.worst(),
            damage: report.damage.iter().map(DamagedFile::new).collect(),
            failed: report.failed.iter().map(FileFailure::new).collect(),
            seconds,
        }
    }
}

/// `gabion repair`.
#[derive(Debug, Clone, Serialize)]
pub struct RepairReport {
    command: &'static str,
    dry_run: bool,
    carried_out: bool,
    examined: u64,
    plan: Vec<DamagedFile>,
    kept: Vec<DamagedFile>,
    repaired: Vec<RepairedFile>,
    failed: Vec<FileFailure>,
}

impl RepairReport {
    /// Of a plan, and of its results if it was carried out.
    pub fn new(
        plan: &Plan,
        repaired: &[Repaired],
        failed: &[(Vec<u8>, Failure)],
        dry_run: bool,
        carried_out: bool,
    ) -> RepairReport {
        RepairReport {
            command: "repair",
            dry_run,
            carried_out,
            examined: plan.examined,
            plan: plan.files.iter().map(DamagedFile::new).collect(),
            kept: plan.kept.iter().map(DamagedFile::new).collect(),
            repaired: repaired.iter().map(RepairedFile::new).collect(),
            failed: failed.iter().map(FileFailure::new).collect(),
        }
    }
}

/// `gabion work`.
#[derive(Debug, Clone, Serialize)]
pub struct WorkReport {
    command: &'static str,
    encoded: u64,
    encoded_bytes: u64,
    moved: u64,
    removed: u64,
    held: u64,
    failures: u64,
    claimed_by_others: u64,
    not_due: u64,
    write_once_changed: Vec<String>,
    damaged: Vec<DamagedFile>,
}

impl WorkReport {
    /// Of the result of a worker, and of the numbers of entries that are left.
    pub fn new(done: &Done, claimed_by_others: u64, not_due: u64) -> WorkReport {
        WorkReport {
            command: "work",
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            moved: done.moved,
            removed: done.removed,
            held: done.held,
            failures: done.failures,
            claimed_by_others,
            not_due,
            write_once_changed: path_texts(&done.write_once),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
        }
    }
}
