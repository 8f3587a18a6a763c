//! The thread of a source: starts the monitor or mount, restarts it after failures, and runs jobs that are due or
//! requested.

use super::LogEntry;
use super::announce::{self, Conditions};
use super::config::{SourceConfig, What};
use super::events::{EventData, EventKind};
use super::hooks;
use super::job::{Ended, Job, Limits, Work};
use super::note;
use super::overdue::Counting;
use super::source::{Phase, ScrubTimes, Source};
use super::targets::{Next, Targets, presences};
use crate::live::{self, LiveError, MountPlan, MountedSource};
use crate::report::Time;
use crate::report::daemon::{JobReport, LastJob, Timed};
use gabion_mount::Outage;
use gabion_vault::monitor::{self, Live, MonitorError, Notify};
use gabion_vault::schedule::Backoff;
use gabion_vault::scrub::Selection;
use gabion_vault::storage::pool::{self, Pool};
use gabion_vault::vault::{Location, Vault};
use gabion_vault::world::{SECOND, Stopwatch, Timestamp};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between turns.
const TICK: Duration = Duration::from_millis(250);

/// Interval between counts of files.
const COUNT: Duration = Duration::from_secs(5);

/// Shortest and longest pause before a failed source is started again.
const FIRST_PAUSE: Duration = SECOND;
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Running time after which the pause starts over.
const RECOVERED: Duration = Duration::from_secs(60);

/// Shortest and longest pause before a failed scrub is tried again.
const SCRUB_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_SCRUB_PAUSE: Duration = Duration::from_secs(3600);

/// Key in the catalogue: start of the last scheduled scrub.
const SCRUBBED: &str = "last scheduled scrub";

/// A running source.
enum Running {
    Watched(Live, Location),
    Mounted(Box<MountedSource>, Option<Pool>),
}

impl Running {
    fn live(&self) -> Option<&Live> {
        match self {
            Running::Watched(live, _) => Some(live),
            Running::Mounted(mounted, _) => mounted.live(),
        }
    }

    fn location(&self) -> &Location {
        match self {
            Running::Watched(_, location) => location,
            Running::Mounted(mounted, _) => mounted.location(),
        }
    }

    /// Why it has to be restarted, if so.
    fn failure(&self) -> Option<String> {
        let location = self.location();
        if !location.repository.join("vault.toml").exists() {
            return Some(format!("the repository {} is gone", location.repository.display()));
        }
        if !location.root.is_dir() {
            return Some(format!("{} is gone", location.root.display()));
        }
        match self {
            Running::Mounted(mounted, _) if mounted.is_unmounted() => {
                Some("it was unmounted from outside".to_owned())
            }
            _ if self.live().is_some_and(Live::is_over) => Some("it ended by itself".to_owned()),
            _ => None,
        }
    }

    fn stop(self, patience: Duration) -> Result<bool, LiveError> {
        match self {
            Running::Watched(live, _) => live.stop().map(|_| false).map_err(LiveError::from),
            Running::Mounted(mounted, _) => mounted.stop(patience),
        }
    }
}

/// Runs a source until it is to stop.
pub(super) fn run(source: &Arc<Source>) {
    let mut supervisor = Supervisor {
        source: Arc::clone(source),
        running: None,
        backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE),
        scrub_backoff: Backoff::new(SCRUB_PAUSE, LONGEST_SCRUB_PAUSE),
        began: Stopwatch::start(),
        counted: None,
        overdue: Counting::default(),
        looked: None,
        next: Next::Nothing,
        last_message: None,
        conditions: Conditions::default(),
        job: None,
        is_paused: false,
    };
    while !source.is_stopping() {
        supervisor.turn();
        source.sleep(TICK);
    }
    source.set_in_turn(false);
    supervisor.end();
}

struct Supervisor {
    source: Arc<Source>,
    running: Option<Running>,
    backoff: Backoff,
    scrub_backoff: Backoff,
    /// Start of the current run.
    began: Stopwatch,
    counted: Option<Stopwatch>,
    overdue: Counting,
    looked: Option<Stopwatch>,
    /// Next action for the targets.
    next: Next,
    /// Last message about the targets.
    last_message: Option<String>,
    /// What needed attention at the last turn.
    conditions: Conditions,
    job: Option<(Arc<Job>, JoinHandle<()>)>,
    is_paused: bool,
}

impl Supervisor {
    fn config(&self) -> &SourceConfig {
        &self.source.config
    }

    fn turn(&mut self) {
        let now = self.source.clock.now();
        self.source.set_in_turn(self.running.is_some());
        self.collect(now);
        match self.running.as_ref().map(Running::failure) {
            None if self.backoff.is_over(now) => self.start(now),
            None => {}
            Some(Some(why)) => self.give_up(&why, now),
            Some(None) => self.maintain(now),
        }
    }

    /// Starts the source.
    fn start(&mut self, now: Timestamp) {
        match self.begin() {
            Ok(running) => {
                let location = running.location().clone();
                if let Err(error) =
                    note::write(&location.repository, self.source.name(), &self.source.context.socket)
                {
                    self.source.warning(&format!("other commands will not find this daemon: {error}"));
                }
                self.source.context.events.attach(self.source.name(), &location.repository);
                let catalogue = Vault::catalogue_of(&location);
                *self.source.catalogue() =
                    catalogue.map_err(|error| self.source.warning(&error.to_string())).ok();
                self.source.state().location = Some(location);
                self.running = Some(running);
                (self.began, self.counted, self.looked) = (Stopwatch::start(), None, None);
                self.is_paused = false;
                self.maintain(now);
                self.source.enter(Phase::Running);
                self.source.publish(EventKind::SourceRunning, "running", EventData::default());
            }
            Err(error) => self.failed(&error.to_string(), now),
        }
    }

    fn failed(&mut self, why: &str, now: Timestamp) {
        let retry_at = self.backoff.failed(now);
        self.conditions.failed();
        self.source.enter(Phase::Failed { why: why.to_owned(), retry_at });
        let pause = retry_at.since(now).as_secs();
        let text = format!("failed: {why}; tried again in {pause} s");
        let (error, retry_at) = (Some(why.to_owned()), Some(Time(retry_at)));
        self.source.publish(
            EventKind::SourceFailed,
            &text,
            EventData { error, retry_at, ..EventData::default() },
        );
    }

    fn begin(&self) -> Result<Running, LiveError> {
        let config = self.config();
        let theirs = Arc::clone(&self.source);
        let notify: Notify =
            Arc::new(move |notice| (theirs.context.tell)(theirs.name(), LogEntry::Notice(notice)));
        let mut keeping = monitor::Options {
            command: "daemon run",
            threads: config.workers,
            rate: config.limit,
            rescan: config.rescan,
            ..monitor::Options::default()
        };
        let compute = self.source.compute()?;
        let (source, show, verify) = match &config.what {
            What::Watch { path, events } => {
                live::directory(path)?;
                let location = Location::to_protect(path, config.repository.as_deref())?;
                let mut vault = config.protection.set_up(&location, &|text| self.source.warning(text))?;
                vault.coders = compute.coders(config.workers)?;
                keeping.source = *events;
                return Ok(Running::Watched(Live::start(vault, keeping, notify)?, location));
            }
            What::Mount { path, show, verify } => {
                (live::Source::Directory(path.clone(), config.repository.clone()), show, *verify)
            }
            What::Pool { pool: name, base, show, .. } => {
                let registry = self.source.context.registry.as_ref();
                let pool = Pool::open_from(base, name.as_os_str(), registry, pool::Options::default())?;
                (live::Source::Pool(pool, name.clone()), show, true)
            }
        };
        let pool = match &source {
            live::Source::Pool(pool, _) => Some(pool.clone()),
            live::Source::Directory(..) => None,
        };
        let plan = MountPlan {
            source,
            mountpoint: show.at.clone(),
            protection: config.protection.clone(),
            compute,
            keeping,
            threads: show.threads,
            access: show.access,
            read_only: show.read_only,
            suid: show.suid,
            dev: show.dev,
            verify,
            passthrough: false,
            outage: if show.continue_without_changelog { Outage::Continue } else { Outage::Wait },
        };
        let theirs = Arc::clone(&self.source);
        let mut mounted = plan.start(Arc::new(move |text| theirs.warning(text)))?;
        if let Err(error) = mounted.keep(notify) {
            mounted.stop(Duration::ZERO)?;
            return Err(error);
        }
        Ok(Running::Mounted(Box::new(mounted), pool))
    }

    /// Stops a failed source, to start it again later.
    fn give_up(&mut self, why: &str, now: Timestamp) {
        self.source.set_in_turn(false);
        self.end_job();
        let mut why = why.to_owned();
        if let Some(running) = self.running.take() {
            match running.stop(self.source.context.patience) {
                // The cause is more specific than "it ended".
                Err(LiveError::Monitor(error @ (MonitorError::Source(_) | MonitorError::Io(_)))) => {
                    why = error.to_string();
                }
                Err(error) => self.source.warning(&error.to_string()),
                Ok(_) => {}
            }
        }
        *self.source.catalogue() = None;
        {
            let mut state = self.source.state();
            (state.live, state.files, state.sizes, state.overdue) = (None, None, None, None);
        }
        self.failed(&why, now);
    }

    /// One turn of a running source.
    fn maintain(&mut self, now: Timestamp) {
        if self.began.elapsed() >= RECOVERED {
            self.backoff.succeeded();
        }
        let Some(running) = &self.running else { return };
        let paused = {
            let mut state = self.source.state();
            state.live = running.live().map(Live::status);
            state.paused
        };
        if paused != self.is_paused {
            running.live().iter().for_each(|live| live.pause(paused));
            self.is_paused = paused;
        }
        self.overdue.turn(&self.source, running.location());
        if self.counted.is_none_or(|since| since.elapsed() >= COUNT) {
            self.counted = Some(Stopwatch::start());
            self.source.count();
        }
        self.look(now);
        self.conditions.turn(&self.source);
        let next_scrub = self.next_scrub(now);
        if self.source.is_stopping() || paused {
            return;
        }
        if self.job.is_some() {
            self.yield_to_rebuild();
            return;
        }
        if let Some(job) = self.choose(now, next_scrub) {
            self.begin_job(job);
        }
    }

    /// Examines the targets of a pool.
    fn look(&mut self, now: Timestamp) {
        let Some(config) = self.config().rebuild().copied() else { return };
        let Some(Running::Mounted(_, Some(pool))) = &self.running else { return };
        let every = config.look;
        if self.looked.is_some_and(|since| since.elapsed() < every) {
            return;
        }
        self.looked = Some(Stopwatch::start());
        let (seen, identity) = (presences(pool), pool.config());
        let message = {
            let mut state = self.source.state();
            let targets = match state.targets.take() {
                Some(targets) if targets.is_of(&identity.pool) => targets,
                _ => Targets::new(&identity.pool, identity.redundancy, config.after),
            };
            let targets = state.targets.insert(targets);
            self.next = targets.look(now, seen);
            targets.words()
        };
        if message != self.last_message {
            match &message {
                Some(text) => self.source.warning(text),
                None => self.source.message("all targets are in order"),
            }
            self.last_message = message;
        }
    }

    /// Time of the next scheduled scrub.
    fn next_scrub(&mut self, now: Timestamp) -> Option<Timestamp> {
        let scrub = self.config().scrub?;
        let known = self.source.state().scrub;
        let last = match known {
            Some(times) => times.last,
            None => self.source.catalogue().as_ref()?.time_note(SCRUBBED).ok()?,
        };
        let next = scrub.rhythm.next(last, now);
        self.source.state().scrub = Some(ScrubTimes { last, next });
        Some(next)
    }

    /// Stops a scheduled scrub if a rebuild is due.
    fn yield_to_rebuild(&self) {
        let urgent = matches!(self.next, Next::Rebuild { .. });
        let is_due = |job: &Job| job.scheduled && matches!(job.work, Work::Scrub { .. });
        if let Some((job, _)) = self.job.as_ref().filter(|(job, _)| urgent && is_due(job)) {
            job.stop();
        }
    }

    /// The next job, if any.
    fn choose(&mut self, now: Timestamp, next_scrub: Option<Timestamp>) -> Option<Arc<Job>> {
        let due = |work| Some(self.source.new_job(work, true));
        if let Next::Rebuild { targets, agreed } = std::mem::replace(&mut self.next, Next::Nothing) {
            let targets = targets.into_iter().map(String::from).collect();
            return due(Work::Rebuild { targets, agreed });
        }
        if let Some(job) = self.source.next_waiting() {
            return Some(job);
        }
        if self.source.state().targets.as_ref().is_some_and(Targets::wants_survey) {
            return due(Work::Survey);
        }
        let scrub = self.config().scrub?;
        if next_scrub.is_none_or(|next| next > now) || !self.scrub_backoff.is_over(now) {
            return None;
        }
        let selection = match scrub.by_policy {
            true => Selection::Due,
            false => Selection::Percent(scrub.rhythm.percent),
        };
        let rhythm = Some(scrub.rhythm);
        due(Work::Scrub { selection, restart: false, repair: scrub.repair, rhythm })
    }

    fn begin_job(&mut self, job: Arc<Job>) {
        let Some(location) = self.running.as_ref().map(|running| running.location().clone()) else {
            return self.give_up_job(&job, "the source ended before its turn came".to_owned());
        };
        let config = self.config();
        let limits = Limits {
            threads: config.workers,
            scrub: config.scrub.and_then(|scrub| scrub.limit),
            rebuild: config.rebuild().and_then(|rebuild| rebuild.limit),
            protect: config.limit,
        };
        self.source.state().job = Some(Arc::clone(&job));
        announce::began(&self.source, &job);
        let (theirs, source) = (Arc::clone(&job), Arc::clone(&self.source));
        let work = move || {
            let compute = source.compute().map_err(|error| error.to_string());
            let ended = compute.and_then(|compute| {
                hooks::around(&source, &theirs, || {
                    theirs.run(&location, limits, &compute).map_err(|error| error.to_string())
                })
            });
            // Before the result is set: a client that waits for it may request the status next.
            if let Ok(Ended { files, overdue, plan, .. }) = &ended {
                let mut state = source.state();
                if plan.is_some() {
                    state.plan.clone_from(plan);
                }
                state.files = Some(files.clone());
                state.overdue = overdue.clone().or(state.overdue.take());
            }
            theirs.end(ended);
        };
        match std::thread::Builder::new().name(job.work.word().to_owned()).spawn(work) {
            Ok(thread) => self.job = Some((job, thread)),
            Err(error) => self.give_up_job(&job, format!("cannot start a thread: {error}")),
        }
    }

    /// Handles the end of a job.
    fn collect(&mut self, now: Timestamp) {
        let Some((job, thread)) = self.job.take_if(|(_, thread)| thread.is_finished()) else { return };
        if thread.join().is_err() {
            job.end(Err("it ended unexpectedly".to_owned()));
        }
        let ended = job.ended().unwrap_or_else(|| Err("it ended unexpectedly".to_owned()));
        self.source.keep(&job);
        self.report_ended(&job, &ended, now);
        self.counted = None;
        let is_done = ended.as_ref().is_ok_and(|ended| ended.outcome != "stopped");
        match &job.work {
            Work::Scrub { selection, .. } => {
                if is_done && (job.scheduled || *selection == Selection::All) {
                    self.note_scrub(job.began);
                }
                match &ended {
                    Ok(_) => self.scrub_backoff.succeeded(),
                    Err(_) => drop(self.scrub_backoff.failed(now)),
                }
            }
            Work::Rebuild { .. } => {
                let is_whole = ended.as_ref().is_ok_and(|ended| ended.outcome == "fine");
                if let Some(targets) = &mut self.source.state().targets {
                    targets.rebuilt(is_whole, now);
                }
                self.looked = None;
            }
            Work::Survey => {
                if let Ok(Ended { report: Timed { report: JobReport::Survey(survey), seconds }, .. }) =
                    ended.clone()
                    && let Some(targets) = &mut self.source.state().targets
                {
                    targets.surveyed(Timed { report: survey, seconds });
                }
                self.looked = None;
            }
            Work::Repair(_) | Work::PlanRepair(_) | Work::Protect => {}
        }
        let outcome = ended.as_ref().map_or("failed", |ended| ended.outcome);
        let mut state = self.source.state();
        // At once, so that sums never fall.
        state.job = None;
        *state.totals.jobs.entry((job.work.word(), outcome)).or_default() += 1;
        *state.totals.bytes.entry(job.work.word()).or_default() += job.bytes();
    }

    fn note_scrub(&mut self, began: Timestamp) {
        if let Some(Err(error)) = self.source.catalogue().as_ref().map(|it| it.set_time_note(SCRUBBED, began))
        {
            self.source.warning(&error.to_string());
        }
        self.source.state().scrub = Some(ScrubTimes { last: Some(began), next: began });
    }

    fn report_ended(&self, job: &Job, ended: &Result<Ended, String>, now: Timestamp) {
        announce::ended(&self.source, job, ended);
        let (began, ended_at, scheduled) = (Time(job.began), Time(now), job.scheduled);
        let last = match ended {
            Ok(Ended { outcome, report, .. }) => {
                let report = Some(report.clone());
                LastJob { began, ended: ended_at, scheduled, outcome, report, error: None }
            }
            Err(why) => {
                let error = Some(why.clone());
                LastJob { began, ended: ended_at, scheduled, outcome: "failed", report: None, error }
            }
        };
        self.source.state().last.insert(job.work.word(), last);
    }

    fn end_job(&mut self) {
        if let Some((job, thread)) = self.job.take() {
            job.stop();
            if thread.join().is_err() {
                job.end(Err("it ended unexpectedly".to_owned()));
            }
            self.source.keep(&job);
        }
        self.source.state().job = None;
        while let Some(job) = self.source.next_waiting() {
            self.give_up_job(&job, "the source ended before its turn came".to_owned());
        }
    }

    /// Ends a job that never ran.
    fn give_up_job(&self, job: &Arc<Job>, why: String) {
        job.end(Err(why));
        self.source.keep(job);
        self.source.state().job = None;
    }

    fn end(mut self) {
        self.source.enter(Phase::Stopping);
        self.end_job();
        if let Some(running) = self.running.take() {
            let repository = running.location().repository.clone();
            match running.stop(self.source.context.patience) {
                Ok(true) => self.source.warning("programs still used the mount: it was detached"),
                Ok(false) => {}
                Err(error) => self.source.warning(&error.to_string()),
            }
            note::remove(&repository);
        }
        *self.source.catalogue() = None;
        self.source.publish(EventKind::SourceStopped, "stopped", EventData::default());
        self.source.enter(Phase::Stopped);
    }
}
