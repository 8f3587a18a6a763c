//! Reports of the daemon: its status and the reports of its jobs.

use super::notifications::ReceiverReport;
use super::pool::{FileColumns, IncompleteFile};
use super::{
    DamagedFile, FileFailure, HeldReport, OverdueReport, PathName, RepairedFile, SharingReport, Time,
};
use gabion_vault::catalogue::State;
use gabion_vault::monitor::Status;
use gabion_vault::pool_rebuild::survey::FileHealth;
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::world::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The daemon.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct DaemonStatus {
    pub(crate) config: PathName,
    pub(crate) host: String,
    pub(crate) process: u32,
    pub(crate) program: String,
    pub(crate) since: Time,
    pub(crate) now: Time,
    pub(crate) socket: PathName,
    /// Sequence number of the last event.
    pub(crate) last_sequence: u64,
    pub(crate) sources: Vec<SourceStatus>,
    pub(crate) notifications: Vec<ReceiverReport>,
}

/// A source.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct SourceStatus {
    pub(crate) name: String,
    pub(crate) kind: String,
    #[serde(flatten)]
    pub(crate) path: PathName,
    pub(crate) at: Option<PathName>,
    pub(crate) repository: Option<PathName>,
    pub(crate) state: String,
    pub(crate) since: Time,
    pub(crate) reason: Option<String>,
    pub(crate) retry_at: Option<Time>,
    pub(crate) paused: bool,
    pub(crate) live: Option<LiveSummary>,
    pub(crate) files: Option<FileCounts>,
    pub(crate) job: Option<ProgressReport>,
    pub(crate) waiting: usize,
    pub(crate) last: BTreeMap<String, LastJob>,
    pub(crate) scrub: Option<ScrubSchedule>,
    pub(crate) scrub_overdue: Option<OverdueReport>,
    pub(crate) pool: Option<PoolTargets>,
}

/// Status of the watch or mount of a source.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LiveSummary {
    source: &'static str,
    events: u64,
    recorded: u64,
    gaps: u64,
    pending: u64,
    lag_seconds: f64,
    scans: u64,
    last_scan: Option<Time>,
    encoded: u64,
    encoded_bytes: u64,
    failures: u64,
    held: Option<HeldReport>,
    filesystem_wide: Option<String>,
}

impl LiveSummary {
    /// Of a status at the time `now`.
    pub(crate) fn new(live: &Status, now: Timestamp) -> LiveSummary {
        LiveSummary {
            source: live.source,
            events: live.events,
            recorded: live.recorded,
            gaps: live.gaps,
            pending: live.pending,
            lag_seconds: live.lag(now).as_secs_f64(),
            scans: live.scans,
            last_scan: live.last_scan.map(Time),
            encoded: live.done.encoded,
            encoded_bytes: live.done.encoded_bytes,
            failures: live.done.failures,
            held: live.held.as_ref().map(HeldReport::new),
            filesystem_wide: live.filesystem_wide.clone(),
        }
    }
}

/// Number of files in the catalogue, and by state.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct FileCounts {
    known: u64,
    degraded: u64,
    damaged: u64,
    lost: u64,
}

impl FileCounts {
    /// Of all files, and of those that are not protected.
    pub(crate) fn new(known: u64, affected: &[(State, u64)]) -> FileCounts {
        let of = |state: State| affected.iter().find(|it| it.0 == state).map_or(0, |it| it.1);
        let (degraded, damaged, lost) = (of(State::Degraded), of(State::Damaged), of(State::Lost));
        FileCounts { known, degraded, damaged, lost }
    }
}

/// The schedule of scrubs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ScrubSchedule {
    pub(crate) every_seconds: u64,
    pub(crate) percent: u8,
    pub(crate) repair: bool,
    pub(crate) by_policy: bool,
    pub(crate) last: Option<Time>,
    pub(crate) next: Option<Time>,
}

/// The targets of a pool, and what is decided about them.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct PoolTargets {
    pub(crate) targets: Vec<TargetReport>,
    pub(crate) automatic: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) files: Option<Timed<SurveyReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notice: Option<GoneReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) rebuild: Option<Vec<TargetName>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) verify: Option<Vec<TargetName>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ask: Option<QuestionReport>,
}

/// A target of a pool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct TargetReport {
    #[schemars(with = "String")]
    pub(crate) name: TargetName,
    pub(crate) state: &'static str,
}

impl TargetReport {
    /// True if nothing on it can be read now.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.state, "gone" | "given up")
    }
}

/// Targets that are gone.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct GoneReport {
    #[schemars(with = "Vec<String>")]
    pub(crate) gone: Vec<TargetName>,
    pub(crate) given_up_at: Option<Time>,
}

/// Targets whose loss an operator has to confirm.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct QuestionReport {
    #[schemars(with = "Vec<String>")]
    pub(crate) gone: Vec<TargetName>,
    pub(crate) agreement: String,
    pub(crate) why: String,
}

/// Progress of a job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ProgressReport {
    pub(crate) job_id: u64,
    pub(crate) work: String,
    pub(crate) scheduled: bool,
    pub(crate) since: Time,
    pub(crate) step: String,
    pub(crate) waiting_for: Option<String>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) total_files: Option<u64>,
    pub(crate) total_bytes: Option<u64>,
    /// Estimate of the remaining time of the step.
    pub(crate) eta_seconds: Option<f64>,
}

/// The last end of a kind of job.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct LastJob {
    pub(crate) began: Time,
    pub(crate) ended: Time,
    pub(crate) scheduled: bool,
    pub(crate) outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<Timed<JobReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A report with the time that the job took.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct Timed<R> {
    #[serde(flatten)]
    pub(crate) report: R,
    pub(crate) seconds: f64,
}

/// Report of a job. Its lists have at most 100 names.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum JobReport {
    Scrub(ScrubJobReport),
    RepairPlan(RepairPlanReport),
    Repair(RepairJobReport),
    Rebuild(RebuildJobReport),
    Protect(ProtectJobReport),
    Survey(SurveyReport),
}

/// Report of a scrub.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ScrubJobReport {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) gone: u64,
    pub(crate) changing: u64,
    pub(crate) resumed: u64,
    pub(crate) stopped: bool,
    #[schemars(with = "String")]
    pub(crate) worst: State,
    pub(crate) damaged: usize,
    pub(crate) damage: Vec<DamagedFile>,
    pub(crate) failed: Vec<FileFailure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) repair: Option<RepairJobReport>,
}

/// Plan of a repair.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RepairPlanReport {
    /// Names the plan: a repair carries it out by this digest.
    pub(crate) digest: String,
    pub(crate) examined: u64,
    /// Number of files to repair.
    pub(crate) files: usize,
    /// The first of them.
    pub(crate) repair: Vec<DamagedFile>,
    /// Files that were written since they were protected and are left alone.
    pub(crate) kept: Vec<DamagedFile>,
    pub(crate) failed: Vec<FileFailure>,
    pub(crate) stopped: bool,
}

/// Report of a repair.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RepairJobReport {
    pub(crate) examined: u64,
    pub(crate) files: usize,
    pub(crate) repaired: Vec<RepairedFile>,
    pub(crate) kept: Vec<DamagedFile>,
    pub(crate) failed: Vec<FileFailure>,
    pub(crate) stopped: bool,
}

/// Report of a rebuild.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct RebuildJobReport {
    #[schemars(with = "Vec<String>")]
    pub(crate) gone: Vec<TargetName>,
    #[schemars(with = "Vec<String>")]
    pub(crate) retired: Vec<TargetName>,
    #[schemars(with = "Vec<String>")]
    pub(crate) returned: Vec<TargetName>,
    pub(crate) files: u64,
    pub(crate) total: usize,
    pub(crate) bytes: u64,
    pub(crate) verified_columns: u64,
    #[schemars(with = "Vec<String>")]
    pub(crate) reinstated: Vec<TargetName>,
    pub(crate) unplaced: Vec<FileColumns>,
    pub(crate) unmoved: Vec<FileColumns>,
    #[schemars(with = "Vec<String>")]
    pub(crate) unverified: BTreeSet<TargetName>,
    pub(crate) lost: Vec<IncompleteFile>,
    pub(crate) failed: Vec<FileFailure>,
    pub(crate) unreadable: Vec<FileFailure>,
    pub(crate) stopped: bool,
}

/// Report of protecting.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ProtectJobReport {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) encoded: u64,
    pub(crate) encoded_bytes: u64,
    pub(crate) moved: u64,
    pub(crate) removed: u64,
    pub(crate) reduced_redundancy: u64,
    pub(crate) failures: u64,
    pub(crate) failed: Vec<FileFailure>,
    pub(crate) held: Option<HeldReport>,
    pub(crate) pending: u64,
    pub(crate) damaged: Vec<DamagedFile>,
    pub(crate) affected: BTreeMap<String, u64>,
    pub(crate) write_once_changed: Vec<PathName>,
    pub(crate) mirrors_not_healed: Vec<String>,
    pub(crate) sharing: SharingReport,
}

/// Report of a survey: files of a pool by the columns that they miss.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct SurveyReport {
    pub(crate) whole: u64,
    pub(crate) pending: u64,
    pub(crate) draining: u64,
    pub(crate) degraded: u64,
    pub(crate) lost: u64,
    pub(crate) unreadable: u64,
    pub(crate) named: Vec<SurveyedFile>,
    /// Targets that files miss.
    #[schemars(with = "Vec<String>")]
    pub(crate) missed: BTreeSet<TargetName>,
}

/// A degraded or lost file of a pool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct SurveyedFile {
    #[schemars(with = "String")]
    pub(crate) health: FileHealth,
    #[serde(flatten)]
    pub(crate) file: IncompleteFile,
}

impl JobReport {
    /// Main numbers and first names, for one line of the log.
    pub(crate) fn summary(&self) -> String {
        let numbers = match self {
            JobReport::Scrub(scrub) => {
                let repaired = scrub.repair.as_ref().map(|repair| (repair.files as u64, "repaired"));
                [(scrub.files, "files"), (scrub.damaged as u64, "damaged")]
                    .into_iter()
                    .chain(repaired)
                    .collect()
            }
            JobReport::Repair(repair) => vec![(repair.files as u64, "files")],
            JobReport::RepairPlan(plan) => {
                vec![(plan.examined, "examined"), (plan.files as u64, "to repair")]
            }
            JobReport::Rebuild(rebuild) => vec![(rebuild.files, "files")],
            JobReport::Protect(done) => {
                vec![(done.files, "files"), (done.encoded, "encoded"), (done.failures, "failed")]
            }
            JobReport::Survey(survey) => vec![(survey.degraded, "degraded")],
        };
        let failed = |failed: &[FileFailure]| names("failed", failed, |it| &it.path);
        let named = match self {
            JobReport::Scrub(scrub) => {
                vec![names("damage", &scrub.damage, |it| &it.path), failed(&scrub.failed)]
            }
            JobReport::Repair(repair) => vec![failed(&repair.failed)],
            JobReport::RepairPlan(plan) => {
                vec![names("repair", &plan.repair, |it| &it.path), failed(&plan.failed)]
            }
            JobReport::Rebuild(rebuild) => vec![
                failed(&rebuild.failed),
                names("lost", &rebuild.lost, IncompleteFile::path),
                names("unplaced", &rebuild.unplaced, FileColumns::path),
            ],
            JobReport::Protect(done) => vec![failed(&done.failed)],
            JobReport::Survey(survey) => vec![names("named", &survey.named, |it| it.file.path())],
        };
        let numbers = numbers.iter().map(|(number, word)| format!("{number} {word}"));
        let parts: Vec<String> = numbers.chain(named.into_iter().flatten()).collect();
        format!(" ({})", parts.join("; "))
    }
}

/// The first names of a list, with their label.
fn names<T>(label: &str, list: &[T], path: impl Fn(&T) -> &PathName) -> Option<String> {
    let names: Vec<String> = list.iter().take(3).map(|item| path(item).to_string()).collect();
    (!names.is_empty()).then(|| format!("{label}: {}", names.join(", ")))
}
