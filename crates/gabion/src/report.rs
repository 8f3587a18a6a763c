//! JSON reports of the commands and the daemon, as types. `docs/reference/json.md` documents their keys.
//!
//! Times are [`Time`], in RFC 3339, and paths [`PathName`]: their text, and their bytes where that is not exact.

mod account;
mod check;
pub(crate) mod daemon;
mod doctor;
mod events;
pub mod forecast;
mod forget;
mod init;
pub mod notifications;
pub mod pool;
mod progress;
mod rebuild;
mod replaced;
mod selected;
pub mod shard;
mod sharing;
pub mod status;
mod time;
mod vault;
pub mod work;

pub use account::{AccountReport, GroupName};
pub use check::{CheckReport, CheckedFile};
pub use doctor::DoctorReport;
pub use events::{Event, LiveStatus, SourceEvent, WorkerReport};
pub use forget::ForgetReport;
pub use init::InitReport;
pub use progress::ProgressReport;
pub use rebuild::{RebuildPlanReport, RebuildReport, TargetLoss};
pub use replaced::{ReplacedReport, ReplacedRun};
pub use time::{NoTime, PathName, Time};

pub use sharing::{SharedReport, SharingReport};

pub use selected::{ProtectSelectedPlan, ProtectSelectedReport};
pub use vault::{
    AcceptReport, ApproveReport, CatalogueReport, ChangeReport, ChangelogReport, ClassReport, DiffReport,
    FileAmount, IgnoredPolicy, PolicyReport, ProtectPlanReport, ProtectReport, RefusalReport, RepairReport,
    RuleDecisionReport, RuleReport, ScrubReport, SetAside, TreatmentReport, WhatIfReport, WorkReport,
    changes,
};

use crate::compute;
use gabion_platform::display_path::DisplayPath;
use gabion_vault::catalogue::{Piece, Problem, State};
use gabion_vault::damage::DamageReport;
use gabion_vault::guard::Held;
use gabion_vault::repair::Repaired;
use gabion_vault::scrub::Overdue;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Display;
use std::ops::Range;
use std::path::Path;

/// A report as one line of JSON, without its line feed. The keys are in alphabetical order.
pub fn line(report: &impl Serialize) -> String {
    // By way of a value, which sorts the keys.
    match serde_json::to_value(report) {
        Ok(value) => value.to_string(),
        Err(error) => line(&ErrorReport { error: error.to_string() }),
    }
}

/// Version of the documents that commands print. Keys are added within a version; a change of a key's meaning is a new
/// version.
pub const VERSION: u32 = 1;

/// A document that a command prints, with its version, as one line of JSON.
pub fn document(report: &impl Serialize) -> String {
    match serde_json::to_value(report) {
        Ok(Value::Object(mut keys)) => {
            keys.entry("version").or_insert(VERSION.into());
            Value::Object(keys).to_string()
        }
        Ok(value) => value.to_string(),
        Err(error) => document(&ErrorReport { error: error.to_string() }),
    }
}

/// An error that ended a command.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorReport {
    /// The error.
    pub error: String,
}

/// A report with the device that computed; null if nothing was computed.
#[derive(Debug, Serialize)]
pub struct WithDevice<R> {
    /// The report.
    #[serde(flatten)]
    pub report: R,
    /// The device.
    pub device: Option<compute::Report>,
}

/// Escaped text of a path.
pub fn path_text(path: &[u8]) -> String {
    DisplayPath::bytes(path).to_string()
}

/// Escaped text of a path of the system.
pub fn system_path_text(path: &Path) -> String {
    DisplayPath::path(path).to_string()
}

/// Names of paths.
pub fn path_names(paths: &[Vec<u8>]) -> Vec<PathName> {
    paths.iter().map(|path| PathName::new(path)).collect()
}

/// An error of one file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FileFailure {
    #[serde(flatten)]
    pub(crate) path: PathName,
    why: String,
}

impl FileFailure {
    /// Of a path and its error.
    pub fn new((path, why): &(Vec<u8>, impl Display)) -> FileFailure {
        FileFailure { path: PathName::new(path), why: why.to_string() }
    }

    /// Of a path of the system and its error.
    pub fn of_system(path: &Path, why: &str) -> FileFailure {
        FileFailure { path: PathName::system(path), why: why.to_owned() }
    }
}

impl Display for FileFailure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.path, self.why)
    }
}

/// Files whose scrub is overdue.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct OverdueReport {
    files: u64,
    oldest: Option<OldestScrub>,
}

/// The file that was verified the longest time ago.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct OldestScrub {
    #[serde(flatten)]
    path: PathName,
    verified: Time,
}

impl OverdueReport {
    /// Of a count.
    pub fn new(overdue: &Overdue) -> OverdueReport {
        let oldest = overdue.oldest.as_ref();
        OverdueReport {
            files: overdue.files,
            oldest: oldest
                .map(|(path, verified)| OldestScrub { path: PathName::new(path), verified: Time(*verified) }),
        }
    }
}

/// A range of bytes.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// Of a range.
    pub fn new(range: &Range<u64>) -> ByteRange {
        ByteRange { start: range.start, end: range.end }
    }
}

/// Byte ranges of one file, as pairs of start and end.
#[derive(Debug, Clone, Serialize)]
pub struct FileRanges {
    #[serde(flatten)]
    path: PathName,
    ranges: Vec<[u64; 2]>,
}

impl FileRanges {
    /// Of a path and its ranges.
    pub fn new((path, ranges): &(Vec<u8>, Vec<Range<u64>>)) -> FileRanges {
        FileRanges {
            path: PathName::new(path),
            ranges: ranges.iter().map(|range| [range.start, range.end]).collect(),
        }
    }
}

/// A damaged range of a file or of its redundancy file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ProblemReport {
    #[schemars(with = "String")]
    piece: Piece,
    start: u64,
    end: u64,
}

impl ProblemReport {
    /// Of a problem.
    pub fn new(problem: &Problem) -> ProblemReport {
        ProblemReport { piece: problem.piece, start: problem.range.start, end: problem.range.end }
    }
}

/// A damaged file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DamagedFile {
    #[serde(flatten)]
    pub(crate) path: PathName,
    #[schemars(with = "String")]
    pub(crate) state: State,
    changed: bool,
    missing: bool,
    problems: Vec<ProblemReport>,
    notes: Vec<String>,
}

impl DamagedFile {
    /// With all problems.
    pub fn new(damage: &DamageReport) -> DamagedFile {
        DamagedFile::with_at_most(damage, usize::MAX)
    }

    /// With the first `most` problems.
    pub fn with_at_most(damage: &DamageReport, most: usize) -> DamagedFile {
        DamagedFile {
            path: PathName::new(&damage.path),
            state: damage.state,
            changed: damage.changed,
            missing: damage.is_missing(),
            problems: damage.problems.iter().take(most).map(ProblemReport::new).collect(),
            notes: damage.notes.clone(),
        }
    }
}

/// A repaired file.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RepairedFile {
    #[serde(flatten)]
    pub(crate) path: PathName,
    #[schemars(with = "String")]
    pub(crate) state: State,
    data_blocks: u64,
    redundancy_blocks: u64,
    lost: Vec<ByteRange>,
    replaced: Option<PathName>,
    notes: Vec<String>,
}

impl RepairedFile {
    /// Of the result of a repair.
    pub fn new(repaired: &Repaired) -> RepairedFile {
        RepairedFile {
            path: PathName::new(&repaired.path),
            state: repaired.state,
            data_blocks: repaired.data_blocks,
            redundancy_blocks: repaired.redundancy_blocks,
            lost: repaired.lost.iter().map(ByteRange::new).collect(),
            replaced: repaired.replaced.as_deref().map(PathName::system),
            notes: repaired.notes.clone(),
        }
    }
}

/// A held change-set.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct HeldReport {
    digest: String,
    removed: u64,
    changed: u64,
    known: u64,
    before: HeldBefore,
}

/// Files that disappeared or changed shortly before a held change-set.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct HeldBefore {
    removed: u64,
    changed: u64,
}

impl HeldReport {
    /// Of a held change-set.
    pub fn new(held: &Held) -> HeldReport {
        HeldReport {
            digest: held.digest.to_string(),
            removed: held.removed,
            changed: held.changed,
            known: held.known,
            before: HeldBefore { removed: held.before.removed, changed: held.before.changed },
        }
    }
}
