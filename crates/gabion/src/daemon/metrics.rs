//! Metrics of the daemon for Prometheus. Everything is counted already when it is asked for: no catalogue is read.

use super::Daemon;
use super::events::Severity;
use super::job::JobTotals;
use super::source::Source;
use crate::exposition::{Exposition, Kind};
use gabion_vault::catalogue::State;
use gabion_vault::world::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// What is told of a source, taken at once.
struct Snapshot {
    name: String,
    is_healthy: bool,
    paused: bool,
    /// By state: files, and bytes once they were counted.
    files: Vec<(State, u64)>,
    bytes: Vec<(State, u64)>,
    pending: Option<u64>,
    exposure: Option<Duration>,
    encoded: Option<(u64, u64, u64)>,
    held: u64,
    overdue: Option<u64>,
    last_scrub: Option<Timestamp>,
    waiting: u64,
    totals: JobTotals,
    targets: Vec<(String, bool)>,
    needs_confirmation: Option<bool>,
}

const STATES: [State; 4] = [State::Protected, State::Degraded, State::Damaged, State::Lost];

impl Snapshot {
    fn of(source: &Source, now: Timestamp) -> Snapshot {
        let is_healthy = source.is_healthy();
        let state = source.state();
        let live = state.live.as_ref();
        let files = state.counted().map_or_else(Vec::new, |(known, affected)| {
            let of = |state: State| affected.iter().find(|it| it.0 == state).map_or(0, |it| it.1);
            let others: u64 = affected.iter().map(|it| it.1).sum();
            let count = |state| match state {
                State::Protected => known.saturating_sub(others),
                state => of(state),
            };
            STATES.into_iter().map(|state| (state, count(state))).collect()
        });
        let bytes = state.sizes.as_ref().map_or_else(Vec::new, |sizes| {
            let of = |state: State| sizes.iter().find(|it| it.0 == state).map_or(0, |it| it.2);
            STATES.into_iter().map(|state| (state, of(state))).collect()
        });
        let mut totals = state.totals.clone();
        if let Some(job) = &state.job {
            *totals.bytes.entry(job.work.word()).or_default() += job.bytes();
        }
        let pool = state.targets.as_ref().map(super::targets::Targets::report);
        let targets = pool.iter().flat_map(|pool| &pool.targets);
        Snapshot {
            name: source.name().to_owned(),
            is_healthy,
            paused: state.paused,
            files,
            bytes,
            pending: live.map(|live| live.pending),
            exposure: live.map(|live| live.lag(now)),
            encoded: live.map(|live| (live.done.encoded, live.done.encoded_bytes, live.done.failures)),
            held: live.and_then(|live| live.held.as_ref()).map_or(0, |held| held.removed + held.changed),
            overdue: state.overdue.as_ref().map(|overdue| overdue.files),
            last_scrub: state.scrub.and_then(|scrub| scrub.last),
            waiting: state.waiting.len() as u64 + u64::from(state.job.is_some()),
            totals,
            targets: targets.map(|target| (target.name.to_string(), !target.is_absent())).collect(),
            needs_confirmation: pool.as_ref().map(|pool| pool.ask.is_some()),
        }
    }
}

/// Seconds since 1970.
fn seconds(time: Timestamp) -> f64 {
    time.nanoseconds() as f64 / 1e9
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// The text of all metrics.
pub(super) fn text(daemon: &Daemon, now: Timestamp) -> String {
    let all: Vec<Snapshot> =
        daemon.sources().iter().map(|source: &Arc<Source>| Snapshot::of(source, now)).collect();
    let mut out = Exposition::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    out.family("gabion_build_info", Kind::Gauge, "Version of the daemon.").sample(&version, 1.0);
    let began = seconds(daemon.began);
    out.family("gabion_start_time_seconds", Kind::Gauge, "Start of the daemon, since 1970.")
        .sample(&[], began);
    let mut gauge = |name, help, value: &dyn Fn(&Snapshot) -> Option<f64>| {
        let mut family = out.family(name, Kind::Gauge, help);
        for source in &all {
            if let Some(value) = value(source) {
                family.sample(&[("source", &source.name)], value);
            }
        }
    };
    gauge("gabion_source_up", "1 if the source runs and protects files.", &|it| Some(flag(it.is_healthy)));
    gauge("gabion_source_paused", "1 if work on the source is suspended.", &|it| Some(flag(it.paused)));
    gauge("gabion_pending_changes", "Changes that are not protected yet.", &|it| {
        it.pending.map(|it| it as f64)
    });
    gauge("gabion_exposure_seconds", "Age of the oldest change that is not protected yet.", &|it| {
        it.exposure.map(|age| age.as_secs_f64())
    });
    gauge("gabion_held_files", "Files of the change-set that waits for approval.", &|it| {
        Some(it.held as f64)
    });
    gauge("gabion_scrub_overdue_files", "Files whose scrub is overdue by the policy.", &|it| {
        it.overdue.map(|files| files as f64)
    });
    gauge(
        "gabion_last_scrub_timestamp_seconds",
        "Start of the last scheduled or full scrub, since 1970.",
        &|it| it.last_scrub.map(seconds),
    );
    gauge(
        "gabion_last_scrub_age_seconds",
        "Time since the start of the last scheduled or full scrub.",
        &|it| it.last_scrub.map(|last| now.since(last).as_secs_f64()),
    );
    gauge("gabion_jobs_queued", "Jobs that wait or run.", &|it| Some(it.waiting as f64));
    gauge("gabion_confirmation_needed", "1 if a person has to confirm the loss of targets.", &|it| {
        it.needs_confirmation.map(flag)
    });
    for (name, help, of) in [
        ("gabion_files", "Files by state.", (|it| &it.files) as fn(&Snapshot) -> &Vec<(State, u64)>),
        ("gabion_bytes", "Bytes of files by state, counted about once a minute.", |it| &it.bytes),
    ] {
        let mut family = out.family(name, Kind::Gauge, help);
        for source in &all {
            for (state, value) in of(source) {
                family.sample(&[("source", &source.name), ("state", state.word())], *value as f64);
            }
        }
    }
    let mut targets = out.family("gabion_target_up", Kind::Gauge, "1 if the target of the pool answers.");
    for source in &all {
        for (target, up) in &source.targets {
            targets.sample(&[("source", &source.name), ("target", target)], flag(*up));
        }
    }
    let mut counter = |name, help, value: fn(&(u64, u64, u64)) -> u64| {
        let mut family = out.family(name, Kind::Counter, help);
        for source in &all {
            if let Some(encoded) = &source.encoded {
                family.sample(&[("source", &source.name)], value(encoded) as f64);
            }
        }
    };
    counter("gabion_encoded_files_total", "Files encoded since the source was started.", |it| it.0);
    counter("gabion_encoded_bytes_total", "Bytes of files encoded since the source was started.", |it| it.1);
    counter("gabion_encode_failures_total", "Files that could not be encoded.", |it| it.2);
    let mut jobs = out.family("gabion_jobs_total", Kind::Counter, "Ended jobs by kind and outcome.");
    for source in &all {
        for ((job, outcome), number) in &source.totals.jobs {
            jobs.sample(&[("source", &source.name), ("job", job), ("outcome", outcome)], *number as f64);
        }
    }
    let mut bytes =
        out.family("gabion_job_bytes_total", Kind::Counter, "Bytes that jobs read or reconstructed.");
    for source in &all {
        for (job, number) in &source.totals.bytes {
            bytes.sample(&[("source", &source.name), ("job", job)], *number as f64);
        }
    }
    let mut events = out.family("gabion_events_total", Kind::Counter, "Events by kind.");
    for ((source, kind), number) in daemon.context.events.counts() {
        let severity = match kind.severity() {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let labels = [("source", source.as_str()), ("kind", kind.word()), ("severity", severity)];
        events.sample(&labels, number as f64);
    }
    out.finish()
}
