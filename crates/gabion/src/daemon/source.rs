//! State of a protected source and its queue of jobs. The thread that runs it is in `supervisor`.

use super::affected::AffectedFiles;
use super::config::SourceConfig;
use super::events::{EventData, EventKind, Events};
use super::job::{Counted, Job, JobTotals, RepairPlan, Work};
use super::refusal::{ErrorCode, Refusal};
use super::targets::Targets;
use super::{LogEntry, Tell};
use crate::compute::{Compute, DeviceError, Report};
use crate::report::daemon::{FileCounts, LastJob, LiveSummary, ScrubSchedule, SourceStatus};
use crate::report::{OverdueReport, PathName, Time};
use gabion_device::Options;
use gabion_platform::sync;
use gabion_vault::catalogue::{Catalogue, State as FileState};
use gabion_vault::guard::{self, Digest};
use gabion_vault::monitor;
use gabion_vault::protect::{self, Approval};
use gabion_vault::run::RunContext;
use gabion_vault::scrub::Overdue;
use gabion_vault::storage::pool::Registry;
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{Clock, Stopwatch, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most queued jobs; further ones are refused.
const MAX_WAITING: usize = 16;

/// Ended jobs that can be asked for.
const MAX_ENDED: usize = 32;

/// Settings that all sources share.
#[derive(Clone)]
pub(super) struct DaemonContext {
    pub(super) registry: Option<Registry>,
    pub(super) socket: PathBuf,
    pub(super) tell: Tell,
    pub(super) events: Arc<Events>,
    /// Number of the next job.
    pub(super) jobs: Arc<AtomicU64>,
    pub(super) patience: Duration,
    /// Where measured speeds and compiled kernels of devices are kept.
    pub(super) device_cache: Option<PathBuf>,
}

/// A protected source.
pub(super) struct Source {
    pub(super) config: SourceConfig,
    pub(super) context: DaemonContext,
    pub(super) clock: Clock,
    compute: Mutex<Option<Compute>>,
    stop: AtomicBool,
    state: Mutex<State>,
    /// Open while it runs.
    catalogue: Mutex<Option<Catalogue>>,
    wake: Condvar,
    /// Start of the current turn of its thread; `None` while it starts or stops, which may take long.
    turn_started: Mutex<Option<Stopwatch>>,
}

/// State of a source.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) since: Timestamp,
    pub(super) paused: bool,
    pub(super) location: Option<Location>,
    pub(super) live: Option<monitor::Status>,
    pub(super) files: Option<Counted>,
    /// Counts and first names of files that are not protected, for notifications.
    pub(super) affected: Option<AffectedFiles>,
    /// Files and bytes by state, at the last count.
    pub(super) sizes: Option<Vec<(FileState, u64, u64)>>,
    pub(super) totals: JobTotals,
    pub(super) waiting: VecDeque<Arc<Job>>,
    pub(super) job: Option<Arc<Job>>,
    /// The last ones, oldest first.
    pub(super) ended: VecDeque<Arc<Job>>,
    /// The last plan of a repair.
    pub(super) plan: Option<RepairPlan>,
    pub(super) last: BTreeMap<&'static str, LastJob>,
    pub(super) scrub: Option<ScrubTimes>,
    /// Files whose scrub is overdue, at the last count.
    pub(super) overdue: Option<Overdue>,
    pub(super) targets: Option<Targets>,
}

impl State {
    /// Files that are known, and those that are not whole by their state. A scrub of a pool has counted what was
    /// damaged, not what is on targets that are not present now: a survey counts that, and none is given before it has.
    pub(super) fn counted(&self) -> Option<Counted> {
        let (known, mut affected) = self.files.clone()?;
        let Some(targets) = &self.targets else { return Some((known, affected)) };
        let (degraded, lost) = targets.missing_files()?;
        for (state, number) in [(FileState::Degraded, degraded), (FileState::Lost, lost)] {
            match affected.iter_mut().find(|it| it.0 == state) {
                // A file may be in both counts.
                Some(it) => it.1 = it.1.max(number),
                None if number > 0 => affected.push((state, number)),
                None => {}
            }
        }
        Some((known, affected))
    }
}

/// Times of the last and the next scheduled scrub.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScrubTimes {
    pub(super) last: Option<Timestamp>,
    pub(super) next: Timestamp,
}

/// Phase of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Starting,
    Running,
    Failed { why: String, retry_at: Timestamp },
    Stopping,
    Stopped,
}

impl Phase {
    fn word(&self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Running => "running",
            Phase::Failed { .. } => "failed",
            Phase::Stopping => "stopping",
            Phase::Stopped => "stopped",
        }
    }
}

impl Source {
    pub(super) fn new(config: SourceConfig, context: DaemonContext) -> Source {
        let clock = Clock::System;
        let state = State {
            phase: Phase::Starting,
            since: clock.now(),
            paused: false,
            location: None,
            live: None,
            files: None,
            affected: None,
            sizes: None,
            totals: JobTotals::default(),
            waiting: VecDeque::new(),
            job: None,
            ended: VecDeque::new(),
            plan: None,
            last: BTreeMap::new(),
            scrub: None,
            overdue: None,
            targets: None,
        };
        let (stop, state, wake) = (AtomicBool::new(false), Mutex::new(state), Condvar::new());
        let (compute, catalogue, turn_started) = Default::default();
        Source { config, context, clock, compute, stop, state, catalogue, wake, turn_started }
    }

    /// The device of its configuration, opened by the first call. The choice of `auto` is an event.
    ///
    /// # Errors
    /// [`DeviceError::Unavailable`] if it cannot be used.
    pub(super) fn compute(self: &Arc<Source>) -> Result<Compute, DeviceError> {
        let mut compute = sync::lock(&self.compute);
        if let Some(compute) = &*compute {
            return Ok(compute.clone());
        }
        let options = Options {
            choice: self.config.device,
            cpu_takeover: self.config.cpu_takeover,
            cache: self.context.device_cache.clone(),
            ..Options::default()
        };
        // The source owns what it opens: a strong reference would keep both for ever.
        let source = Arc::downgrade(self);
        let notice = move |report: &Report| {
            if let Some(source) = source.upgrade() {
                source.message(&report.line());
            }
        };
        Ok(compute.insert(Compute::open(options, Some(Box::new(notice)))?).clone())
    }

    /// Notes that its thread begins a turn (`true`) or an operation that may take long.
    pub(super) fn set_in_turn(&self, in_turn: bool) {
        let now = in_turn.then(Stopwatch::start);
        *sync::lock(&self.turn_started) = now;
    }

    /// Duration of the current turn of its thread, if it is in one.
    pub(super) fn idle(&self) -> Option<Duration> {
        let turn_started = *sync::lock(&self.turn_started);
        turn_started.map(|since| since.elapsed())
    }

    pub(super) fn name(&self) -> &str {
        &self.config.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    pub(super) fn catalogue(&self) -> MutexGuard<'_, Option<Catalogue>> {
        sync::lock(&self.catalogue)
    }

    /// Counts files by state.
    pub(super) fn count(&self) {
        let catalogue = self.catalogue();
        if let Some(catalogue) = &*catalogue
            && let (Ok(all), Ok(affected)) = (catalogue.count(), catalogue.affected())
        {
            let names = AffectedFiles::read(catalogue, &affected, self.state().affected.take());
            let mut state = self.state();
            (state.files, state.affected) = (Some((all, affected)), Some(names));
        }
    }

    pub(super) fn message(&self, text: &str) {
        (self.context.tell)(self.name(), LogEntry::Message(text));
    }

    pub(super) fn warning(&self, text: &str) {
        (self.context.tell)(self.name(), LogEntry::Warning(text));
    }

    pub(super) fn publish(&self, kind: EventKind, text: &str, data: EventData) {
        self.context.events.publish(Some(self.name()), kind, text, data);
    }

    pub(super) fn enter(&self, phase: Phase) {
        let mut state = self.state();
        state.phase = phase;
        state.since = self.clock.now();
        self.wake.notify_all();
    }

    /// Asks it to stop.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(job) = &self.state().job {
            job.stop();
        }
        self.wake.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, unless it is woken by a request.
    pub(super) fn sleep(&self, time: Duration) {
        let state = self.state();
        if !self.is_stopping() {
            drop(self.wake.wait_timeout(state, time));
        }
    }

    /// Waits until its first start has succeeded or failed. False if that takes too long.
    pub(super) fn wait_until_tried(&self, patience: Duration) -> bool {
        let state = self.state();
        let starting = |state: &mut State| state.phase == Phase::Starting;
        let waited = self.wake.wait_timeout_while(state, patience, starting);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase != Phase::Starting
    }

    /// Waits until it has stopped. False if that takes too long.
    pub(super) fn wait_until_stopped(&self, patience: Duration) -> bool {
        let state = self.state();
        let going = |state: &mut State| state.phase != Phase::Stopped;
        let waited = self.wake.wait_timeout_while(state, patience, going);
        waited.unwrap_or_else(PoisonError::into_inner).0.phase == Phase::Stopped
    }

    pub(super) fn pause(&self, paused: bool) {
        let mut state = self.state();
        state.paused = paused;
        if let Some(job) = state.job.as_ref().filter(|_| paused) {
            job.stop();
        }
        self.wake.notify_all();
        drop(state);
        match paused {
            true => self.publish(EventKind::SourcePaused, "paused", EventData::default()),
            false => self.publish(EventKind::SourceResumed, "resumed", EventData::default()),
        }
    }

    /// Adds a job to the queue.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn enqueue(&self, work: Work) -> Result<Arc<Job>, Refusal> {
        let refused = |code, why: String| Err(Refusal::new(code, why));
        let mut state = self.state();
        let name = self.name();
        match &state.phase {
            Phase::Running if state.paused => {
                return refused(ErrorCode::SourcePaused, format!("{name} is paused: resume it first"));
            }
            Phase::Running => {}
            Phase::Failed { why, .. } => {
                return refused(ErrorCode::SourceNotRunning, format!("{name} does not run: {why}"));
            }
            phase => return refused(ErrorCode::SourceNotRunning, format!("{name} is {}", phase.word())),
        }
        if matches!(work, Work::Rebuild { .. } | Work::Survey) && self.config.rebuild().is_none() {
            return refused(ErrorCode::NotAPool, format!("{name} is no pool: it has no targets to rebuild"));
        }
        if state.waiting.len() >= MAX_WAITING {
            return refused(ErrorCode::TooMany, format!("{MAX_WAITING} jobs of {name} wait already"));
        }
        // A requested job goes before a scheduled scrub.
        if let Some(job) =
            state.job.as_ref().filter(|job| job.scheduled && matches!(job.work, Work::Scrub { .. }))
        {
            job.stop();
        }
        let job = self.new_job(work, false);
        state.waiting.push_back(Arc::clone(&job));
        self.wake.notify_all();
        Ok(job)
    }

    /// A job with a number of its own.
    pub(super) fn new_job(&self, work: Work, scheduled: bool) -> Arc<Job> {
        let id = self.context.jobs.fetch_add(1, Ordering::Relaxed);
        Arc::new(Job::new(id, work, scheduled, self.clock.now()))
    }

    /// The first job that waits. It counts as running from now on, so that it is known at every moment.
    pub(super) fn next_waiting(&self) -> Option<Arc<Job>> {
        let mut state = self.state();
        let job = state.waiting.pop_front()?;
        state.job = Some(Arc::clone(&job));
        Some(job)
    }

    /// Targets of a pool that are not present.
    pub(super) fn targets_absent(&self) -> Vec<TargetName> {
        self.state().targets.as_ref().map_or_else(Vec::new, Targets::absent)
    }

    /// All jobs that are known: ended, running, waiting.
    pub(super) fn jobs(&self) -> Vec<Arc<Job>> {
        let state = self.state();
        let running = state.job.iter().filter(|job| state.ended.iter().all(|ended| ended.id != job.id));
        state.ended.iter().chain(running).chain(&state.waiting).cloned().collect()
    }

    /// Keeps an ended job for those who ask for its report.
    pub(super) fn keep(&self, job: &Arc<Job>) {
        let mut state = self.state();
        if state.ended.len() >= MAX_ENDED {
            state.ended.pop_front();
        }
        state.ended.push_back(Arc::clone(job));
    }

    /// The directory or pool and its repository.
    ///
    /// # Errors
    /// It never ran.
    pub(super) fn location(&self) -> Result<Location, Refusal> {
        let missing = || Refusal::new(ErrorCode::SourceNotRunning, format!("{} does not run", self.name()));
        self.state().location.clone().ok_or_else(missing)
    }

    /// Takes the last plan of a repair, to carry it out.
    ///
    /// # Errors
    /// The last plan is another one.
    pub(super) fn take_plan(&self, digest: &str) -> Result<RepairPlan, Refusal> {
        let mut state = self.state();
        let mismatch = match &state.plan {
            Some(plan) if plan.digest() == digest => None,
            Some(plan) => Some(format!("the last plan is {}, not this one", plan.digest())),
            None => Some("there is no plan, or it was carried out: plan the repair first".to_owned()),
        };
        match (mismatch, state.plan.take()) {
            (None, Some(plan)) => Ok(plan),
            (mismatch, plan) => {
                state.plan = plan;
                Err(Refusal::new(ErrorCode::DigestMismatch, mismatch.unwrap_or_default()))
            }
        }
    }

    /// Puts a plan back that was not carried out.
    pub(super) fn keep_plan(&self, plan: RepairPlan) {
        self.state().plan.get_or_insert(plan);
    }

    /// Confirms that targets are lost.
    ///
    /// # Errors
    /// No confirmation is needed, or another one.
    pub(super) fn agree(&self, agreement: &str) -> Result<(), Refusal> {
        let mut state = self.state();
        let targets = state
            .targets
            .as_mut()
            .ok_or_else(|| Refusal::new(ErrorCode::NotAPool, format!("{} is no pool", self.name())))?;
        targets.agree(agreement).map_err(|why| Refusal::new(ErrorCode::DigestMismatch, why))?;
        self.wake.notify_all();
        Ok(())
    }

    /// Releases a change-set that is held.
    ///
    /// # Errors
    /// Another change-set is held, or the vault cannot be read.
    pub(super) fn approve(&self, digest: &str) -> Result<(), Refusal> {
        let mismatch = |why: String| Refusal::new(ErrorCode::DigestMismatch, why);
        let digest: Digest = digest
            .parse()
            .map_err(|error: gabion_vault::guard::NoDigest| Refusal::invalid(error.to_string()))?;
        let vault = Vault::open(&self.location()?, self.clock.clone()).map_err(Refusal::internal)?;
        let stopped = || self.is_stopping();
        let context = RunContext { threads: 1, rate: None, progress: &|_| {}, stopped: &stopped };
        match protect::approval(&vault, &digest, false, context).map_err(Refusal::internal)? {
            Approval::Held(_) => guard::approve(&vault.repository, &digest).map_err(Refusal::internal),
            Approval::Given => Ok(()),
            Approval::Other(held) => {
                Err(mismatch(format!("the change-set that is held now is {}, not this one", held.digest)))
            }
            Approval::Nothing => Err(mismatch("no change-set is held".to_owned())),
        }
    }

    /// Sets the policy of the configuration in the vault, if it changed.
    ///
    /// # Errors
    /// Why the policy is unchanged, as text.
    pub(super) fn refresh_policy(&self) -> Result<(), String> {
        let Some(location) = self.state().location.clone() else { return Ok(()) };
        let text = self.config.protection.policy_text().map_err(|error| error.to_string())?;
        let Some(text) = text else { return Ok(()) };
        let known = gabion_vault::private::read(&location.repository, "policy.toml").ok().flatten();
        if known.as_ref() == Some(&text) {
            return Ok(());
        }
        let vault = Vault::open(&location, self.clock.clone());
        vault.and_then(|mut vault| vault.set_policy(&text)).map_err(|error| error.to_string())
    }

    /// True if there is a monitor or mount to stop.
    pub(super) fn is_alive(&self) -> bool {
        matches!(self.state().phase, Phase::Running | Phase::Stopping)
    }

    /// A state that needs attention, in two words.
    pub(super) fn notice(&self) -> Option<&'static str> {
        let state = self.state();
        let held = state.live.as_ref().is_some_and(|live| live.held.is_some());
        if held { Some("holds changes") } else { state.targets.as_ref().and_then(Targets::notice) }
    }

    /// True if it is running and protecting files.
    pub(super) fn is_healthy(&self) -> bool {
        let state = self.state();
        state.phase == Phase::Running && state.live.as_ref().and_then(trouble).is_none()
    }

    /// Status, as in `daemon status`. Files are counted anew: another process may just have found damage.
    pub(super) fn status(&self) -> SourceStatus {
        self.count();
        let state = self.state();
        let now = self.clock.now();
        let trouble = state.live.as_ref().and_then(trouble);
        let (mut word, mut reason, mut retry_at) = (state.phase.word(), None, None);
        match (&state.phase, trouble) {
            (Phase::Failed { why, retry_at: at }, _) => (reason, retry_at) = (Some(why.clone()), Some(*at)),
            // It runs and retries by itself, but protects nothing meanwhile.
            (Phase::Running, Some(why)) => (word, reason) = ("failed", Some(why.clone())),
            (Phase::Running, None) if state.paused => word = "paused",
            _ => {}
        }
        let scrub = self.config.scrub.map(|config| ScrubSchedule {
            every_seconds: config.rhythm.every.as_secs(),
            percent: config.rhythm.percent,
            repair: config.repair,
            by_policy: config.by_policy,
            last: state.scrub.and_then(|it| it.last).map(Time),
            next: state.scrub.map(|it| Time(it.next)),
        });
        SourceStatus {
            name: self.name().to_owned(),
            kind: self.config.kind().to_owned(),
            path: PathName::system(self.config.path()),
            at: self.config.show().map(|show| PathName::system(&show.at)),
            repository: state.location.as_ref().map(|it| PathName::system(&it.repository)),
            state: word.to_owned(),
            since: Time(state.since),
            reason,
            retry_at: retry_at.map(Time),
            paused: state.paused,
            live: state.live.as_ref().map(|live| LiveSummary::new(live, now)),
            files: state.counted().map(|(known, affected)| FileCounts::new(known, &affected)),
            job: state.job.as_ref().map(|job| job.progress()),
            waiting: state.waiting.len(),
            last: state.last.iter().map(|(work, last)| ((*work).to_owned(), last.clone())).collect(),
            scrub,
            scrub_overdue: state.overdue.as_ref().map(OverdueReport::new),
            pool: state.targets.as_ref().map(Targets::report),
        }
    }
}

/// The error that keeps it from protecting files.
pub(super) fn trouble(live: &monitor::Status) -> Option<&String> {
    live.trouble.as_ref().or(live.unrecorded.as_ref())
}
