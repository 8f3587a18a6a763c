//! Reports of `gabion rebuild`.

use super::{FileFailure, PathName};
use gabion_vault::placed_rebuild::{Plan, PlannedFile};
use serde::Serialize;
use std::fmt;

/// `gabion rebuild --dry-run`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "rebuild")]
pub struct RebuildPlanReport<'a> {
    dry_run: bool,
    failed: &'a [String],
    targets: &'a [TargetLoss],
    files: Vec<AffectedFile>,
    unaffected: u64,
    lost: Vec<PathName>,
    unknown: Vec<PathName>,
}

/// `gabion rebuild`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "rebuild")]
pub struct RebuildReport<'a> {
    dry_run: bool,
    failed: &'a [String],
    targets: &'a [TargetLoss],
    rebuilt: Vec<AffectedFile>,
    left: Vec<FileFailure>,
    lost: Vec<PathName>,
    unknown: Vec<PathName>,
}

/// Files with data on a failed target, before the rebuild.
#[derive(Debug, Serialize)]
pub struct TargetLoss {
    name: String,
    files: u64,
    bytes: u64,
}

/// A file that loses data or redundancy.
#[derive(Debug, Serialize)]
struct AffectedFile {
    #[serde(flatten)]
    path: PathName,
    size: u64,
    loses_data: bool,
    margin: usize,
}

impl TargetLoss {
    /// Without files.
    pub fn new(name: String) -> TargetLoss {
        TargetLoss { name, files: 0, bytes: 0 }
    }

    /// Counts a file of `bytes` bytes.
    pub fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl fmt::Display for TargetLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, bytes) = (super::path_text(self.name.as_bytes()), self.bytes);
        write!(f, "target     {name}: {} with data on it, of {bytes} bytes", count(self.files))
    }
}

fn count(files: u64) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}

impl AffectedFile {
    fn new(file: &PlannedFile) -> AffectedFile {
        let PlannedFile { path, size, loses_data, margin } = file;
        AffectedFile { path: PathName::new(path), size: *size, loses_data: *loses_data, margin: *margin }
    }
}

fn names(paths: &[Vec<u8>]) -> Vec<PathName> {
    paths.iter().map(|path| PathName::new(path)).collect()
}

impl<'a> RebuildPlanReport<'a> {
    /// Of a plan.
    pub fn new(failed: &'a [String], targets: &'a [TargetLoss], plan: &Plan) -> RebuildPlanReport<'a> {
        RebuildPlanReport {
            dry_run: true,
            failed,
            targets,
            files: plan.files.iter().map(AffectedFile::new).collect(),
            unaffected: plan.unaffected,
            lost: names(&plan.lost),
            unknown: names(&plan.unknown),
        }
    }
}

impl<'a> RebuildReport<'a> {
    /// Of the rebuilt files, those that were left with reasons, and a plan of what is affected now.
    pub fn new(
        failed: &'a [String],
        targets: &'a [TargetLoss],
        rebuilt: &[PlannedFile],
        left: &[(Vec<u8>, String)],
        rest: &Plan,
    ) -> RebuildReport<'a> {
        RebuildReport {
            dry_run: false,
            failed,
            targets,
            rebuilt: rebuilt.iter().map(AffectedFile::new).collect(),
            left: left.iter().map(FileFailure::new).collect(),
            lost: names(&rest.lost),
            unknown: names(&rest.unknown),
        }
    }
}
