//! Reports of `gabion protect` with selected files.

use super::vault::{ClassReport, IgnoredPolicy, changes, user_policies};
use super::{DamagedFile, FileFailure, FileRanges, PathName, path_names};
use gabion_vault::catalogue::State;
use gabion_vault::guard::Held;
use gabion_vault::protect::selected::{SelectedReport, Selection};
use gabion_vault::scan::Seen;
use gabion_vault::vault::Vault;
use serde::Serialize;

/// A file that the policy excludes, and the rule.
#[derive(Debug, Clone, Serialize)]
struct ExcludedFile {
    #[serde(flatten)]
    path: PathName,
    rule: String,
}

/// A file that is not fully protected.
#[derive(Debug, Clone, Serialize)]
struct AffectedFile {
    #[serde(flatten)]
    path: PathName,
    state: State,
}

/// Numbers of held files. A digest to approve needs a scan of the tree.
#[derive(Debug, Clone, Serialize)]
struct HeldSelection {
    removed: u64,
    changed: u64,
    known: u64,
}

impl HeldSelection {
    fn new(held: &Held) -> HeldSelection {
        HeldSelection { removed: held.removed, changed: held.changed, known: held.known }
    }
}

fn excluded(selection: &Selection) -> Vec<ExcludedFile> {
    let one =
        |(path, rule): &(Vec<u8>, String)| ExcludedFile { path: PathName::new(path), rule: rule.clone() };
    selection.excluded.iter().map(one).collect()
}

/// `gabion protect FILE... --dry-run`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "protect")]
pub struct ProtectSelectedPlan {
    dry_run: bool,
    selected: bool,
    files: u64,
    bytes: u64,
    left_out: u64,
    changes: ClassReport,
    excluded: Vec<ExcludedFile>,
    missing: Vec<PathName>,
    failed: Vec<FileFailure>,
    held: Option<HeldSelection>,
}

impl ProtectSelectedPlan {
    /// Of the result of a scan.
    pub fn new(selection: &Selection, seen: &Seen, held: Option<&Held>) -> ProtectSelectedPlan {
        ProtectSelectedPlan {
            dry_run: true,
            selected: true,
            files: seen.files,
            bytes: seen.bytes,
            left_out: seen.left_out,
            changes: changes(&seen.changes),
            excluded: excluded(selection),
            missing: path_names(&selection.missing),
            failed: selection.refused.iter().chain(&seen.unreadable).map(FileFailure::new).collect(),
            held: held.map(HeldSelection::new),
        }
    }
}

/// `gabion protect FILE...`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "command", rename = "protect")]
pub struct ProtectSelectedReport {
    dry_run: bool,
    selected: bool,
    root: PathName,
    repository: PathName,
    files: u64,
    bytes: u64,
    left_out: u64,
    changes: ClassReport,
    encoded: u64,
    encoded_bytes: u64,
    adopted: u64,
    moved: u64,
    reduced_redundancy: u64,
    redundancy_bytes: u64,
    failures: u64,
    failed: Vec<FileFailure>,
    excluded: Vec<ExcludedFile>,
    missing: Vec<PathName>,
    affected: u64,
    affected_files: Vec<AffectedFile>,
    damaged: Vec<DamagedFile>,
    changed_in_growth: Vec<FileRanges>,
    write_once_changed: Vec<PathName>,
    held: Option<HeldSelection>,
    pending: u64,
    user_policies: Vec<IgnoredPolicy>,
    seconds: f64,
}

impl ProtectSelectedReport {
    /// Of the report of the vault.
    pub fn new(
        vault: &Vault,
        selection: &Selection,
        report: &SelectedReport,
        seconds: f64,
    ) -> ProtectSelectedReport {
        let SelectedReport { seen, done, held, pending, affected, affected_files } = report;
        let refused = selection.refused.len() + seen.unreadable.len();
        let failed = done.failed.iter().chain(&seen.unreadable).chain(&selection.refused);
        let file =
            |(path, state): &(Vec<u8>, State)| AffectedFile { path: PathName::new(path), state: *state };
        ProtectSelectedReport {
            dry_run: false,
            selected: true,
            root: PathName::system(&vault.root),
            repository: PathName::system(vault.repository.path()),
            files: seen.files,
            bytes: seen.bytes,
            left_out: seen.left_out,
            changes: changes(&seen.changes),
            encoded: done.encoded,
            encoded_bytes: done.encoded_bytes,
            adopted: done.adopted,
            moved: done.moved,
            reduced_redundancy: done.reduced_redundancy,
            redundancy_bytes: done.redundancy_bytes,
            failures: done.failures + (refused + selection.missing.len()) as u64,
            failed: failed.map(FileFailure::new).collect(),
            excluded: excluded(selection),
            missing: path_names(&selection.missing),
            affected: *affected_files,
            affected_files: affected.iter().map(file).collect(),
            damaged: done.damaged.iter().map(DamagedFile::new).collect(),
            changed_in_growth: done.changed.iter().map(FileRanges::new).collect(),
            write_once_changed: path_names(&seen.write_once),
            held: held.as_ref().map(HeldSelection::new),
            pending: *pending,
            user_policies: user_policies(seen),
            seconds,
        }
    }
}
