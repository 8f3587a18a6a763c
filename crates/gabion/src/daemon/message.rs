//! Messages of the API: bodies of requests and answers.

use super::events::Event;
use super::refusal::{ErrorCode, Refusal};
use crate::report::daemon::{JobReport, PoolTargets, ProgressReport, SourceStatus, Timed};
use crate::report::{PathName, ProblemReport, Time};
use gabion_vault::catalogue::State;
use gabion_vault::storage::pool::config::TargetName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the API, in every answer and in the path of every route.
pub(crate) const VERSION: u64 = 1;

/// An answer with the version of the API.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}Answer")]
pub(crate) struct Versioned<T> {
    pub(crate) version: u64,
    #[serde(flatten)]
    pub(crate) body: T,
}

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorAnswer {
    version: u64,
    error: ErrorBody,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorBody {
    code: ErrorCode,
    /// For people.
    message: String,
}

impl ErrorAnswer {
    pub(crate) fn new(refusal: &Refusal) -> ErrorAnswer {
        let error = ErrorBody { code: refusal.code, message: refusal.message.clone() };
        ErrorAnswer { version: VERSION, error }
    }
}

/// The sources.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sources {
    pub(crate) sources: Vec<SourceStatus>,
}

/// One source.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OneSource {
    pub(crate) source: SourceStatus,
}

/// A page of files.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Files {
    pub(crate) files: Vec<FileEntry>,
    /// Give it as `cursor` for the next page; null after the last one.
    pub(crate) next_cursor: Option<String>,
    /// Targets of a pool that are not present. The files have the states that the last scrub or repair found; what they
    /// miss on these targets is in `pool.files` of the source's status.
    #[schemars(with = "Vec<String>")]
    pub(crate) targets_absent: Vec<TargetName>,
}

/// A protected file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FileEntry {
    #[serde(flatten)]
    pub(crate) path: PathName,
    #[schemars(with = "String")]
    pub(crate) state: State,
    /// Bytes of the protected version.
    pub(crate) size: u64,
    pub(crate) modified: Time,
    pub(crate) code: String,
    /// Redundancy blocks per stripe that the policy asks for, and that exist.
    pub(crate) configured_redundancy: u32,
    pub(crate) actual_redundancy: u32,
    pub(crate) redundancy_bytes: u64,
    pub(crate) protected_at: Time,
    pub(crate) scrubbed_at: Option<Time>,
    /// Recorded damage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) problems: Vec<ProblemReport>,
}

/// Events, oldest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Event>,
    /// Give it as `after` for the next page.
    pub(crate) last_sequence: u64,
}

/// The targets of a pool.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Targets {
    pub(crate) targets: Vec<TargetEntry>,
    /// What is decided about them; absent for a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pool: Option<PoolTargets>,
}

/// A target.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TargetEntry {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) state: String,
    pub(crate) free_bytes: Option<u64>,
    pub(crate) total_bytes: Option<u64>,
}

/// A job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct JobEntry {
    pub(crate) id: u64,
    pub(crate) source: String,
    pub(crate) work: String,
    pub(crate) state: JobState,
    /// True if it was due by a schedule, false if it was requested.
    pub(crate) scheduled: bool,
    pub(crate) requested: Time,
    /// Absent before it began, and after it ended.
    pub(crate) progress: Option<ProgressReport>,
    /// `fine`, `open` (something is left), `stopped` or `lost`.
    pub(crate) outcome: Option<String>,
    pub(crate) report: Option<Timed<JobReport>>,
    pub(crate) error: Option<String>,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobState {
    /// It waits for its turn.
    Queued,
    /// It runs.
    Running,
    /// It has ended, with an outcome.
    Ended,
    /// It ended with an error.
    Failed,
}

/// One job.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OneJob {
    pub(crate) job: JobEntry,
}

/// The jobs that wait and run, and the last ones that ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Jobs {
    pub(crate) jobs: Vec<JobEntry>,
}

/// Sources whose work was suspended or continues.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Paused {
    pub(crate) paused: bool,
    pub(crate) sources: Vec<String>,
}

/// An approved change-set.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Approved {
    pub(crate) approved: String,
}

/// A configuration that was read again: names of sources.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Reloaded {
    pub(crate) ended: Vec<String>,
    pub(crate) begun: Vec<String>,
    pub(crate) kept: Vec<String>,
    pub(crate) troubles: Vec<String>,
}

/// The daemon stops.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Stopping {
    pub(crate) stopping: bool,
    pub(crate) process: u32,
}

/// Durability of a code on disks.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ForecastAnswer {
    pub(crate) code: String,
    pub(crate) disks: u32,
    pub(crate) overhead: f64,
    /// By model: `unchecked` and `checked` reads during a rebuild.
    pub(crate) models: BTreeMap<String, ForecastModel>,
}

/// Durability by one model.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ForecastModel {
    pub(crate) mean_years: Option<f64>,
    pub(crate) loss_per_year: f64,
    pub(crate) nines: f64,
}

/// Files that a loss of targets affects.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WhatIfAnswer {
    pub(crate) lose: Vec<String>,
    pub(crate) unaffected: Amount,
    /// They keep their data and lose redundancy.
    pub(crate) exposed: Amount,
    /// They can be reconstructed.
    pub(crate) degraded: Amount,
    pub(crate) lost: Amount,
    /// Files whose headers could not be read.
    pub(crate) unknown: u64,
    /// No target with the current namespace of the pool would be left.
    pub(crate) namespace_lost: bool,
    /// The first of the lost files.
    pub(crate) lost_files: Vec<PathName>,
}

/// Files and bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Amount {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// The rule of the policy that applies to a file.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PolicyAnswer {
    #[serde(flatten)]
    pub(crate) path: PathName,
    pub(crate) rule: String,
    /// Null if the file is not protected.
    pub(crate) treatment: Option<TreatmentAnswer>,
    pub(crate) because: Vec<String>,
    /// Rules before it that do not apply, with the reason.
    pub(crate) passed_over: Vec<PassedOver>,
}

/// What a rule asks for.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TreatmentAnswer {
    pub(crate) code: String,
    pub(crate) block: u64,
    pub(crate) quiet_seconds: u64,
    pub(crate) priority: u8,
    pub(crate) scrub_seconds: u64,
    pub(crate) write_once: bool,
    pub(crate) strong: bool,
    pub(crate) share_duplicates: bool,
}

/// A rule that does not apply.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PassedOver {
    pub(crate) rule: String,
    pub(crate) why: String,
}

/// A request without parameters.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}

/// Scrub now.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScrubRequest {
    /// Only this percentage of the files, the longest unscrubbed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) percent: Option<u8>,
    /// Only files last scrubbed more than this many seconds ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) older_than_seconds: Option<u64>,
    /// Only files whose last complete verification is older than their policy's interval.
    pub(crate) due: bool,
    /// Start over, even if the last scrub was interrupted.
    pub(crate) restart: bool,
    /// Repair damaged files at once, except those written since they were protected.
    pub(crate) repair: bool,
}

/// Find out what a repair would do.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RepairPlanRequest {
    /// Only files that a scrub found damaged.
    pub(crate) known: bool,
    /// Skip files that were written since they were protected.
    pub(crate) keep_changed: bool,
    /// Also restore missing files.
    pub(crate) missing: bool,
}

/// Carry out the last plan, or approve a change-set.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DigestRequest {
    pub(crate) digest: String,
}

/// Rebuild now, or confirm the loss of targets.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RebuildRequest {
    /// Only these targets; by default all that are gone, retired or back.
    pub(crate) targets: Vec<String>,
    /// Digest of the question: confirms that the targets are lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agree: Option<String>,
}
