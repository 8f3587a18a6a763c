//! Jobs of the daemon on a source: scrub, repair, rebuild and protect, which lock the vault, and the survey of a pool,
//! which does not.

use super::message::{JobEntry, JobState};
use crate::compute::Compute;
use crate::report::daemon::{
    JobReport, ProgressReport, ProtectJobReport, RebuildJobReport, RepairJobReport, RepairPlanReport,
    ScrubJobReport, SurveyReport, SurveyedFile, Timed,
};
use crate::report::pool::{FileColumns, IncompleteFile};
use crate::report::{DamagedFile, FileFailure, HeldReport, PathName, RepairedFile, SharingReport, Time};
use gabion_platform::sync::lock;
use gabion_vault::catalogue::{CatalogueError, State};
use gabion_vault::damage::DamageReport;
use gabion_vault::pool_rebuild::survey::{FileHealth, TargetStates, each_file, survey};
use gabion_vault::pool_rebuild::{self, RebuildError};
use gabion_vault::protect::{self, ProtectError};
use gabion_vault::repair;
use gabion_vault::retry::Failure;
use gabion_vault::run::{Progress, RunContext};
use gabion_vault::schedule::Rhythm;
use gabion_vault::scrub::{self, Overdue, Selection};
use gabion_vault::storage::pool::PoolError;
use gabion_vault::vault::{Location, Lock, LockError, Vault, VaultError};
use gabion_vault::world::{Clock, Stopwatch, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Most file names in a report, which is kept in memory.
const MAX_NAMES: usize = 100;

/// Interval at which a locked vault is tried again.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Kind of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Work {
    /// Verify files.
    Scrub {
        /// Which files.
        selection: Selection,
        /// Start over, even if the last scrub was interrupted.
        restart: bool,
        /// Repair damaged files afterwards.
        repair: bool,
        /// Hours in which it may run.
        rhythm: Option<Rhythm>,
    },
    /// Repair damaged files.
    Repair(RepairPlan),
    /// Find out what a repair would do.
    PlanRepair(repair::Options),
    /// Reconstruct the columns of targets.
    Rebuild {
        /// Only these targets; if empty, all that are gone, retired or back.
        targets: Vec<String>,
        /// Confirmation that targets are lost.
        agreed: Option<String>,
    },
    /// Protect changed files, without waiting for their quiet period.
    Protect,
    /// Find out what the files of a pool miss.
    Survey,
}

impl Work {
    /// Its name.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Work::Scrub { .. } => "scrub",
            Work::Repair(_) => "repair",
            Work::PlanRepair(_) => "repair plan",
            Work::Rebuild { .. } => "rebuild",
            Work::Protect => "protect",
            Work::Survey => "survey",
        }
    }
}

/// Plan of a repair with its digest. It names the files and their damage; a repair examines each of them again.
#[derive(Debug, Clone)]
pub(super) struct RepairPlan(Arc<(String, repair::Plan)>);

impl RepairPlan {
    fn new(plan: repair::Plan) -> RepairPlan {
        // A plan is plain data: it can be written.
        let text = serde_json::to_vec(&(&plan.files, &plan.kept)).unwrap_or_default();
        let digest = blake3::hash(&text).to_hex()[..32].to_owned();
        RepairPlan(Arc::new((digest, plan)))
    }

    /// Names the plan.
    pub(super) fn digest(&self) -> &str {
        &self.0.0
    }
}

impl PartialEq for RepairPlan {
    fn eq(&self, other: &RepairPlan) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for RepairPlan {}

/// Remaining seconds of a step, from the time that it took so far.
fn eta(seconds: Option<f64>, done: (u64, u64), ahead: Option<(u64, u64)>) -> Option<f64> {
    let (seconds, ahead) = (seconds?, ahead?);
    let (done, total) = if ahead.1 > 0 { (done.1, ahead.1) } else { (done.0, ahead.0) };
    (done > 0 && seconds > 0.0).then(|| seconds / done as f64 * total.saturating_sub(done) as f64)
}

/// Result of a job.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    /// `fine`, `open`, `stopped` or `lost`.
    pub(super) outcome: &'static str,
    /// The report.
    pub(super) report: Timed<JobReport>,
    /// File counts right after the job.
    pub(super) files: Counted,
    /// Files whose scrub is overdue, right after the job.
    pub(super) overdue: Option<Overdue>,
    /// The plan of a repair, if the job made one.
    pub(super) plan: Option<RepairPlan>,
}

/// Number of files in the catalogue, and of those that are not protected, by state.
pub(super) type Counted = (u64, Vec<(State, u64)>);

/// Error of a job.
#[derive(Debug, thiserror::Error)]
pub(super) enum JobError {
    /// The vault cannot be opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The vault cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Error of the catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The rebuild failed or needs confirmation.
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
    /// Renamed files cannot be found.
    #[error(transparent)]
    Renamed(#[from] gabion_vault::catalogue_rebuild::RebuildError),
    /// Protecting failed.
    #[error(transparent)]
    Protect(#[from] ProtectError),
    /// Error of the pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// It was stopped before it began.
    #[error("stopped before it began")]
    Stopped,
}

/// Progress of a job.
#[derive(Debug, Clone, Default)]
struct JobProgress {
    /// Start of the step.
    began: Option<Stopwatch>,
    step: &'static str,
    waiting_for: Option<String>,
    done: (u64, u64),
    ahead: Option<(u64, u64)>,
}

/// A job, from request to result.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number.
    pub(super) id: u64,
    /// Kind.
    pub(super) work: Work,
    /// True if it was due, false if it was requested.
    pub(super) scheduled: bool,
    /// Time of the request.
    pub(super) began: Timestamp,
    has_begun: AtomicBool,
    /// Bytes of all steps so far.
    bytes: AtomicU64,
    stop: AtomicBool,
    progress: Mutex<JobProgress>,
    ended: Mutex<Option<Result<Ended, String>>>,
}

impl Job {
    /// A new job.
    pub(super) fn new(id: u64, work: Work, scheduled: bool, now: Timestamp) -> Job {
        Job {
            id,
            work,
            scheduled,
            began: now,
            has_begun: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            progress: Mutex::default(),
            ended: Mutex::default(),
        }
    }

    /// Asks it to stop. Completed work is kept.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// True if it was asked to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Its result, if it has ended.
    pub(super) fn ended(&self) -> Option<Result<Ended, String>> {
        lock(&self.ended).clone()
    }

    /// Sets its result.
    pub(super) fn end(&self, ended: Result<Ended, String>) {
        *lock(&self.ended) = Some(ended);
    }

    /// Progress of a job.
    pub(super) fn progress(&self) -> ProgressReport {
        let JobProgress { began, step, waiting_for, done, ahead } = lock(&self.progress).clone();
        ProgressReport {
            job_id: self.id,
            work: self.work.word().to_owned(),
            scheduled: self.scheduled,
            since: Time(self.began),
            step: step.to_owned(),
            waiting_for,
            files: done.0,
            bytes: done.1,
            total_files: ahead.map(|it| it.0),
            total_bytes: ahead.map(|it| it.1),
            eta_seconds: eta(began.as_ref().map(Stopwatch::seconds), done, ahead),
        }
    }

    /// Bytes that it read or reconstructed so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The job, as in answers.
    pub(super) fn entry(&self, source: &str) -> JobEntry {
        let ended = self.ended();
        let has_begun = self.has_begun.load(Ordering::Relaxed);
        let state = match &ended {
            Some(Ok(_)) => JobState::Ended,
            Some(Err(_)) => JobState::Failed,
            None if has_begun => JobState::Running,
            None => JobState::Queued,
        };
        let done = ended.as_ref().and_then(|ended| ended.as_ref().ok());
        JobEntry {
            id: self.id,
            source: source.to_owned(),
            work: self.work.word().to_owned(),
            state,
            scheduled: self.scheduled,
            requested: Time(self.began),
            progress: (state == JobState::Running).then(|| self.progress()),
            outcome: done.map(|done| done.outcome.to_owned()),
            report: done.map(|done| done.report.clone()),
            error: ended.as_ref().and_then(|ended| ended.as_ref().err().cloned()),
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// See [`JobError`].
    pub(super) fn run(
        &self,
        location: &Location,
        limits: Limits,
        compute: &Compute,
    ) -> Result<Ended, JobError> {
        self.has_begun.store(true, Ordering::Relaxed);
        let mut vault = Vault::open(location, Clock::System)?;
        vault.coders = compute.coders(limits.threads.max(1)).map_err(VaultError::from)?;
        let began = Stopwatch::start();
        let may_run = |rhythm: &Rhythm| rhythm.may_run(vault.clock.now());
        let stopped = || {
            let hours = matches!(&self.work, Work::Scrub { rhythm: Some(rhythm), .. } if !may_run(rhythm));
            self.stop.load(Ordering::Relaxed) || hours
        };
        let progress = |step: Progress| self.note(step);
        let threads = limits.threads.max(1);
        let context = |rate| RunContext { threads, rate, progress: &progress, stopped: &stopped };
        let _lock = match self.work {
            Work::Survey => None,
            _ => Some(self.lock_vault(&vault)?),
        };
        let mut plan = None;
        let (outcome, report) = match &self.work {
            Work::Scrub { selection, restart, repair, .. } => {
                let options = scrub::Options { selection: *selection, from_medium: true, resume: !restart };
                scrub_and_repair(&vault, options, *repair, context(limits.scrub))?
            }
            Work::Repair(plan) => {
                let (outcome, report) = carry_out(&vault, &plan.0.1, Vec::new(), context(limits.scrub));
                (outcome, JobReport::Repair(report))
            }
            Work::PlanRepair(options) => {
                let (made, outcome, report) = plan_repair(&vault, *options, context(limits.scrub))?;
                plan = Some(made);
                (outcome, JobReport::RepairPlan(report))
            }
            Work::Rebuild { targets, agreed } => {
                let options = pool_rebuild::RebuildOptions {
                    targets: targets.clone(),
                    agreed: agreed.clone(),
                    release: false,
                };
                rebuild(&vault, &options, context(limits.rebuild))?
            }
            Work::Protect => protect_all(&vault, context(limits.protect))?,
            Work::Survey => survey_pool(&vault, &stopped)?,
        };
        Ok(Ended {
            outcome,
            report: Timed { report, seconds: began.seconds() },
            files: (vault.catalogue.count()?, vault.catalogue.affected()?),
            overdue: scrub::overdue(&vault, &|| self.stop.load(Ordering::Relaxed))?,
            plan,
        })
    }

    /// Notes a step of its progress.
    pub(super) fn note(&self, step: Progress) {
        let mut progress = lock(&self.progress);
        match step {
            Progress::Step(step, ahead) => {
                let began = Some(Stopwatch::start());
                *progress = JobProgress { began, step, ahead, ..JobProgress::default() };
            }
            Progress::Done(files, bytes) | Progress::Elsewhere(files, bytes) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                progress.done = (progress.done.0 + files, progress.done.1 + bytes);
            }
        }
    }

    /// Locks the vault, waiting for its current holder.
    fn lock_vault(&self, vault: &Vault) -> Result<Lock, JobError> {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(JobError::Stopped);
            }
            match vault.lock(&format!("daemon run ({})", self.work.word())) {
                Err(LockError::Held { holder }) => {
                    lock(&self.progress).waiting_for = Some(holder);
                    std::thread::sleep(POLL_INTERVAL);
                }
                locked => {
                    lock(&self.progress).waiting_for = None;
                    return Ok(locked?);
                }
            }
        }
    }
}

/// Sums of a source since it was started.
#[derive(Debug, Clone, Default)]
pub(super) struct JobTotals {
    /// Jobs by kind and outcome.
    pub(super) jobs: BTreeMap<(&'static str, &'static str), u64>,
    /// Bytes that ended jobs read or reconstructed, by kind.
    pub(super) bytes: BTreeMap<&'static str, u64>,
}

/// Threads, and bytes per second for each kind of job.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// Threads.
    pub(super) threads: usize,
    /// For scrub and repair.
    pub(super) scrub: Option<u64>,
    /// For rebuild.
    pub(super) rebuild: Option<u64>,
    /// For protect.
    pub(super) protect: Option<u64>,
}

/// The first [`MAX_NAMES`] items of a list, converted.
fn first<'a, T: 'a, R>(items: impl IntoIterator<Item = &'a T>, convert: impl Fn(&T) -> R) -> Vec<R> {
    items.into_iter().take(MAX_NAMES).map(convert).collect()
}

fn damaged(damage: &DamageReport) -> DamagedFile {
    DamagedFile::with_at_most(damage, MAX_NAMES)
}

/// Outcome of a job.
fn outcome(lost: bool, stopped: bool, open: bool) -> &'static str {
    match () {
        () if lost => "lost",
        () if stopped => "stopped",
        () if open => "open",
        () => "fine",
    }
}

/// Outcome and report of a job.
type Done<R = JobReport> = Result<(&'static str, R), JobError>;

fn scrub_and_repair(vault: &Vault, options: scrub::Options, mend: bool, context: RunContext<'_>) -> Done {
    let report = scrub::scrub(vault, b"", options, context)?;
    let lost = report.worst() == State::Lost;
    let open = !report.damage.is_empty() || !report.failed.is_empty();
    let mut ended = outcome(lost, report.stopped, open);
    let mut repair = None;
    if mend && !report.damage.is_empty() && !report.stopped {
        let options = repair::Options { known_only: true, keep_changed: true, missing: false };
        let (repaired, done) = repair_all(vault, options, context)?;
        repair = Some(done);
        ended = if report.failed.is_empty() { repaired } else { outcome(lost, false, true) };
    }
    let report = ScrubJobReport {
        files: report.files,
        bytes: report.bytes,
        gone: report.gone,
        changing: report.changing,
        resumed: report.resumed,
        stopped: report.stopped,
        worst: report.worst(),
        damaged: report.damage.len(),
        damage: first(&report.damage, damaged),
        failed: first(&report.failed, FileFailure::new),
        repair,
    };
    Ok((ended, JobReport::Scrub(report)))
}

fn repair_all(vault: &Vault, options: repair::Options, context: RunContext<'_>) -> Done<RepairJobReport> {
    let failed = repair::follow_renamed(vault)?;
    let plan = repair::plan(vault, b"", options, context)?;
    Ok(carry_out(vault, &plan, failed, context))
}

/// Carries out a plan. Files that changed since it was made are left alone.
fn carry_out(
    vault: &Vault,
    plan: &repair::Plan,
    mut failed: Vec<(Vec<u8>, Failure)>,
    context: RunContext<'_>,
) -> (&'static str, RepairJobReport) {
    let mut done = Vec::new();
    failed.extend(plan.failed.iter().cloned());
    let mut lost = false;
    let mut open = !plan.kept.is_empty();
    let results = repair::repair_all(vault, plan, context);
    for (damage, result) in plan.files.iter().zip(results) {
        match result {
            Some(Ok(repaired)) => {
                lost |= repaired.state == State::Lost;
                open |= repaired.state != State::Protected;
                done.push(repaired);
            }
            Some(Err(why)) => failed.push((damage.path.clone(), why)),
            // It was stopped before.
            None => open = true,
        }
    }
    let stopped = (context.stopped)();
    let report = RepairJobReport {
        examined: plan.examined,
        files: done.len(),
        repaired: first(&done, RepairedFile::new),
        kept: first(&plan.kept, damaged),
        failed: first(&failed, FileFailure::new),
        stopped,
    };
    (outcome(lost, stopped, open || !failed.is_empty()), report)
}

/// Makes the plan of a repair.
fn plan_repair(
    vault: &Vault,
    options: repair::Options,
    context: RunContext<'_>,
) -> Result<(RepairPlan, &'static str, RepairPlanReport), JobError> {
    let failed = repair::follow_renamed(vault)?;
    let mut plan = repair::plan(vault, b"", options, context)?;
    plan.failed.extend(failed);
    let lost = plan.files.iter().any(|file| file.state == State::Lost);
    let stopped = (context.stopped)();
    let open = !(plan.files.is_empty() && plan.kept.is_empty() && plan.failed.is_empty());
    let plan = RepairPlan::new(plan);
    let report = RepairPlanReport {
        digest: plan.digest().to_owned(),
        examined: plan.0.1.examined,
        files: plan.0.1.files.len(),
        repair: first(&plan.0.1.files, damaged),
        kept: first(&plan.0.1.kept, damaged),
        failed: first(&plan.0.1.failed, FileFailure::new),
        stopped,
    };
    Ok((plan, outcome(lost, stopped, open), report))
}

fn rebuild(vault: &Vault, options: &pool_rebuild::RebuildOptions, context: RunContext<'_>) -> Done {
    let done = pool_rebuild::rebuild(vault, options, context)?;
    let ended = outcome(done.has_losses(), done.stopped, !done.is_whole());
    let report = RebuildJobReport {
        total: done.plan.files.len(),
        files: done.files,
        bytes: done.bytes,
        verified_columns: done.verified,
        unplaced: first(&done.unplaced, FileColumns::new),
        unmoved: first(&done.unmoved, FileColumns::new),
        lost: first(&done.plan.lost, |item| IncompleteFile::new(&item.path, &item.targets)),
        failed: first(&done.failed, FileFailure::new),
        unreadable: first(&done.plan.unreadable, FileFailure::new),
        gone: done.plan.gone,
        retired: done.plan.retired,
        returned: done.plan.returned,
        reinstated: done.reinstated,
        unverified: done.unverified,
        stopped: done.stopped,
    };
    Ok((ended, JobReport::Rebuild(report)))
}

fn protect_all(vault: &Vault, context: RunContext<'_>) -> Done {
    let protect::Report { seen, done, held, pending, affected, unhealed, sharing } =
        protect::protect(vault, context)?;
    let failures = done.failures + seen.unreadable.len() as u64;
    let lost = affected.iter().any(|(state, _)| *state == State::Lost);
    let waits = held.is_some() || pending > 0 || !seen.write_once.is_empty();
    let open =
        failures > 0 || waits || !affected.is_empty() || !unhealed.is_empty() || !sharing.failed.is_empty();
    let report = ProtectJobReport {
        files: seen.files,
        bytes: seen.bytes,
        encoded: done.encoded,
        encoded_bytes: done.encoded_bytes,
        moved: done.moved,
        removed: done.removed,
        reduced_redundancy: done.reduced_redundancy,
        failures,
        failed: first(done.failed.iter().chain(&seen.unreadable), FileFailure::new),
        held: held.as_ref().map(HeldReport::new),
        pending,
        damaged: first(&done.damaged, damaged),
        affected: affected.iter().map(|(state, files)| (state.word().to_owned(), *files)).collect(),
        write_once_changed: first(&seen.write_once, |path| PathName::new(path)),
        mirrors_not_healed: unhealed,
        sharing: SharingReport::new(&sharing),
    };
    Ok((outcome(lost, (context.stopped)(), open), JobReport::Protect(report)))
}

/// Counts the files of a pool by redundancy state, names degraded and lost ones, and lists the targets that files miss.
fn survey_pool(vault: &Vault, stopped: &dyn Fn() -> bool) -> Done {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    let places = TargetStates::of(pool);
    let mut report = SurveyReport::default();
    each_file(pool, &mut |path, stub| {
        if stopped() {
            return;
        }
        let Ok(stub) = stub else { return report.unreadable += 1 };
        let Ok(found) = survey(pool, &vault.coders, &places, &path, &stub) else {
            return report.unreadable += 1;
        };
        *match found.health {
            FileHealth::Whole => &mut report.whole,
            FileHealth::Pending => &mut report.pending,
            FileHealth::Draining => &mut report.draining,
            FileHealth::Degraded => &mut report.degraded,
            FileHealth::Lost => &mut report.lost,
        } += 1;
        if found.health >= FileHealth::Degraded {
            if report.named.len() < MAX_NAMES {
                let file = IncompleteFile::new(&path, &found.targets);
                report.named.push(SurveyedFile { health: found.health, file });
            }
            report.missed.extend(found.targets);
        }
    })?;
    let open = !report.named.is_empty() || report.unreadable > 0;
    Ok((outcome(report.lost > 0, stopped(), open), JobReport::Survey(report)))
}
