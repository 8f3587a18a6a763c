//! Requests that only read.

use super::routes::{Call, Query, Reply};
use super::{Api, openapi};
use crate::daemon::events::Event;
use crate::daemon::message::{
    Amount, EventPage, FileEntry, Files, ForecastAnswer, ForecastModel, Jobs, OneSource, PassedOver,
    PolicyAnswer, Sources, TargetEntry, Targets, TreatmentAnswer, WhatIfAnswer,
};
use crate::daemon::metrics;
use crate::daemon::refusal::{ErrorCode, Refusal};
use crate::daemon::source::Source;
use crate::exposition;
use crate::report::{PathName, ProblemReport, Time};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gabion_forecast::exact::float;
use gabion_forecast::{Given, Model, Promise, Rational, Reading, Scheme, quantity};
use gabion_vault::catalogue::{Catalogue, Place, State, States};
use gabion_vault::run::RunContext;
use gabion_vault::vault::Vault;
use gabion_vault::whatif::what_if;
use gabion_vault::world::Clock;
use hyper::body::Bytes;
use std::sync::{Arc, OnceLock, TryLockError};

/// Items of a page: by default, and at most.
const PAGE: u64 = 100;
const MAX_PAGE: u64 = 1000;

/// Most names of lost files in an answer.
const MAX_NAMES: usize = 100;

/// Largest code and most disks of a forecast, which is computed exactly.
const MAX_DISKS: u32 = 64;

pub(super) fn document(_api: &Arc<Api>, _call: &Call) -> Result<Reply, Refusal> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let body = match DOCUMENT.get() {
        Some(body) => body.clone(),
        None => {
            let body = openapi::document().map_err(Refusal::internal)?;
            DOCUMENT.get_or_init(|| body.into()).clone()
        }
    };
    Ok(Reply { status: 200, content_type: "application/json", body })
}

/// Metrics for Prometheus.
pub(super) fn metrics(api: &Arc<Api>, _call: &Call) -> Result<Reply, Refusal> {
    let text = metrics::text(&api.daemon, Clock::System.now());
    Ok(Reply { status: 200, content_type: exposition::CONTENT_TYPE, body: text.into() })
}

pub(super) fn status(api: &Arc<Api>, _call: &Call) -> Result<Reply, Refusal> {
    Reply::ok(api.daemon.status())
}

pub(super) fn sources(api: &Arc<Api>, _call: &Call) -> Result<Reply, Refusal> {
    Reply::ok(Sources { sources: api.daemon.sources().iter().map(|source| source.status()).collect() })
}

pub(super) fn source(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    Reply::ok(OneSource { source: api.daemon.source(call.name())?.status() })
}

fn limit(query: &Query) -> Result<usize, Refusal> {
    match query.number("limit")?.unwrap_or(PAGE) {
        0 => Err(Refusal::invalid("limit is at least 1")),
        limit => Ok(limit.min(MAX_PAGE) as usize),
    }
}

pub(super) fn files(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let states = match call.query.text("state")? {
        None => States::Any,
        Some("protected") => States::One(State::Protected),
        Some("degraded") => States::One(State::Degraded),
        Some("damaged") => States::One(State::Damaged),
        Some("lost") => States::One(State::Lost),
        Some(other) => return Err(Refusal::invalid(format!("state = {other:?} is no state of files"))),
    };
    listing(api, call, states)
}

pub(super) fn problems(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    listing(api, call, States::Affected)
}

fn listing(api: &Api, call: &Call, states: States) -> Result<Reply, Refusal> {
    let prefix = call.query.bytes("prefix").unwrap_or_default();
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    let after = call.query.text("cursor")?.map(read_cursor).transpose()?;
    let limit = limit(&call.query)?;
    let source = api.daemon.source(call.name())?;
    // A catalogue of its own: a long listing does not hold up the thread of the source.
    let catalogue = open_catalogue(&source)?;
    let page = catalogue.page(prefix, states, after.as_ref(), limit).map_err(Refusal::internal)?;
    let mut files = Vec::with_capacity(page.files.len());
    for (path, entry) in page.files {
        let problems = match entry.state {
            State::Protected => Vec::new(),
            _ => catalogue.problems(&path).map_err(Refusal::internal)?,
        };
        files.push(FileEntry {
            path: PathName::new(&path),
            state: entry.state,
            size: entry.generation.size,
            modified: Time(entry.generation.mtime),
            code: entry.code,
            configured_redundancy: entry.wanted,
            actual_redundancy: entry.columns,
            redundancy_bytes: entry.redundancy,
            protected_at: Time(entry.protected_at),
            scrubbed_at: entry.scrubbed_at.map(Time),
            problems: problems.iter().take(MAX_NAMES).map(ProblemReport::new).collect(),
        });
    }
    let next_cursor = page.next.as_ref().map(write_cursor);
    Reply::ok(Files { files, next_cursor, targets_absent: source.targets_absent() })
}

fn open_catalogue(source: &Source) -> Result<Catalogue, Refusal> {
    Vault::catalogue_of(&source.location()?).map_err(Refusal::internal)
}

fn write_cursor(place: &Place) -> String {
    let mut bytes = place.directory.to_be_bytes().to_vec();
    bytes.extend(&place.name);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read_cursor(text: &str) -> Result<Place, Refusal> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let place = bytes.as_deref().and_then(|bytes| {
        let (directory, name) = bytes.split_first_chunk::<8>()?;
        Some(Place { directory: i64::from_be_bytes(*directory), name: name.to_vec() })
    });
    place.ok_or_else(|| Refusal::invalid("cursor is none of a page before"))
}

fn page_of(events: &[Arc<Event>], last_sequence: u64) -> Result<Reply, Refusal> {
    Reply::ok(EventPage { events: events.iter().map(|event| Event::clone(event)).collect(), last_sequence })
}

pub(super) fn history(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let source = api.daemon.source(call.name())?;
    let (after, kinds) = (call.query.number("after")?.unwrap_or(0), call.query.kinds()?);
    let events = &api.daemon.context.events;
    let mut found = events.history(source.name(), after, &kinds);
    found.truncate(limit(&call.query)?);
    let last_sequence = found.last().map_or(after, |event| event.sequence);
    page_of(&found, last_sequence)
}

pub(super) fn events(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let (mut after, kinds) = (call.query.number("after")?.unwrap_or(0), call.query.kinds()?);
    let limit = limit(&call.query)?;
    let events = &api.daemon.context.events;
    let mut found = Vec::new();
    loop {
        let page = events.after(after, MAX_PAGE as usize);
        let is_last = page.len() < MAX_PAGE as usize;
        for event in page {
            after = event.sequence;
            if kinds.is_empty() || kinds.contains(&event.kind) {
                found.push(event);
            }
            if found.len() == limit {
                return page_of(&found, after);
            }
        }
        if is_last {
            return page_of(&found, after);
        }
    }
}

pub(super) fn jobs(api: &Arc<Api>, _call: &Call) -> Result<Reply, Refusal> {
    let sources = api.daemon.sources();
    let jobs =
        sources.iter().flat_map(|source| source.jobs().into_iter().map(|job| job.entry(source.name())));
    Reply::ok(Jobs { jobs: jobs.collect() })
}

/// Opens the vault of a source to look at it.
fn open(source: &Source) -> Result<Vault, Refusal> {
    let opened = Vault::open_to_examine(&source.location()?, Clock::System);
    opened.map(|(vault, _)| vault).map_err(Refusal::internal)
}

pub(super) fn targets(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let source = api.daemon.source(call.name())?;
    let targets = open(&source)?.storage.targets();
    let entry = |target: gabion_vault::storage::Target| TargetEntry {
        name: String::from_utf8_lossy(&target.name).into_owned(),
        domain: target.domain,
        state: serde_json::to_value(target.state)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned))
            .unwrap_or_default(),
        free_bytes: target.space.map(|it| it.0),
        total_bytes: target.space.map(|it| it.1),
    };
    Reply::ok(Targets { targets: targets.into_iter().map(entry).collect(), pool: source.status().pool })
}

pub(super) fn policy(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let path = call.query.bytes("path").ok_or_else(|| Refusal::invalid("path is missing"))?;
    let source = api.daemon.source(call.name())?;
    let vault = open(&source)?;
    let not_found = || {
        let why = format!("there is no file {}", PathName::new(path).path);
        Refusal::new(ErrorCode::NotFound, why)
    };
    let is_plain =
        !path.is_empty() && path.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    if !is_plain {
        return Err(Refusal::invalid("path is relative to the source, without . and .."));
    }
    let stat = vault.storage.find(path).map_err(Refusal::internal)?.ok_or_else(not_found)?;
    let now = vault.clock.now();
    let decision = vault.policy.decide(path, &stat, now);
    let treatment = decision.treatment.as_deref().map(|treatment| TreatmentAnswer {
        code: treatment.identity.clone(),
        block: treatment.block,
        quiet_seconds: treatment.quiet.as_secs(),
        priority: treatment.priority,
        scrub_seconds: treatment.scrub.as_secs(),
        write_once: treatment.write_once,
        strong: treatment.strong,
        share_duplicates: treatment.share_duplicates,
    });
    let passed_over = vault.policy.refusals(path, &stat, now);
    Reply::ok(PolicyAnswer {
        path: PathName::new(path),
        rule: vault.policy.rule_name(decision.rule).to_owned(),
        treatment,
        because: vault.policy.reasons(decision.rule, path, &stat, now),
        passed_over: passed_over
            .into_iter()
            .map(|(rule, why)| PassedOver { rule: rule.to_owned(), why })
            .collect(),
    })
}

pub(super) fn whatif(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let lose = call.query.all("lose");
    let prefix = call.query.bytes("prefix").unwrap_or_default();
    // It reads the headers of all files: one at a time.
    let _turn = match api.survey.try_lock() {
        Ok(turn) => turn,
        Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
        Err(TryLockError::WouldBlock) => {
            return Err(Refusal::new(ErrorCode::TooMany, "another what-if is computed: try again later"));
        }
    };
    let source = api.daemon.source(call.name())?;
    let vault = open(&source)?;
    let known = vault.storage.targets();
    let names: Vec<Vec<u8>> = lose.iter().map(|name| name.clone().into_bytes()).collect();
    if lose.is_empty() || names.iter().any(|name| known.iter().all(|target| target.name != *name)) {
        let names: Vec<_> = known.iter().map(|target| String::from_utf8_lossy(&target.name)).collect();
        return Err(Refusal::invalid(format!("lose is the name of a target: {}", names.join(", "))));
    }
    let stopped = || source.is_stopping();
    let context = RunContext { threads: 1, rate: None, progress: &|_| {}, stopped: &stopped };
    let answer = what_if(&vault, prefix, &names, MAX_NAMES, context).map_err(Refusal::internal)?;
    let amount = |(files, bytes)| Amount { files, bytes };
    Reply::ok(WhatIfAnswer {
        lose,
        unaffected: amount(answer.unaffected),
        exposed: amount(answer.exposed),
        degraded: amount(answer.degraded),
        lost: amount(answer.lost),
        unknown: answer.unknown,
        namespace_lost: answer.namespace_lost,
        lost_files: answer.names.iter().map(|path| PathName::new(path)).collect(),
    })
}

pub(super) fn forecast(_api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let query = &call.query;
    let code = query.text("code")?.ok_or_else(|| Refusal::invalid("code is missing, for example 8+2"))?;
    let mut scheme = Scheme::parse(code).map_err(|error| Refusal::invalid(format!("code: {error}")))?;
    if let Some(disks) = query.number("disks")? {
        let disks = u32::try_from(disks).unwrap_or(u32::MAX).min(MAX_DISKS + 1);
        scheme = scheme.spread_over(disks).map_err(|error| Refusal::invalid(format!("disks: {error}")))?;
    }
    if scheme.disks() > MAX_DISKS {
        return Err(Refusal::invalid(format!(
            "a forecast here has at most {MAX_DISKS} disks; `gabion forecast` has no limit"
        )));
    }
    type Parse = fn(&str) -> Result<Rational, quantity::QuantityError>;
    let read = |name: &str, parse: Parse, usual: Rational| match query.text(name)? {
        Some(text) if text.len() > 32 => Err(Refusal::invalid(format!("{name} is too long"))),
        Some(text) => parse(text).map_err(|error| Refusal::invalid(format!("{name}: {error}"))),
        None => Ok(usual),
    };
    let usual = Given::default();
    let given = Given {
        capacity: read("capacity", quantity::bytes, usual.capacity)?,
        failure_hours: read("mtbf", quantity::hours, usual.failure_hours)?,
        rebuild_hours: read("rebuild", quantity::hours, usual.rebuild_hours)?,
        read_errors: read("read_errors", quantity::per_bit, usual.read_errors)?,
        silent: read("silent", quantity::share, usual.silent)?,
    };
    let checked = match query.text("afr")? {
        Some(_) => {
            let share = read("afr", quantity::share, Given::default().silent)?;
            given.with_annual_failure_rate(&share).and_then(Given::checked)
        }
        None => given.checked(),
    };
    let parameters = checked.map_err(|error| Refusal::invalid(error.to_string()))?;
    let finite = |value: &Rational| Some(float(value)).filter(|value| value.is_finite());
    let model = |promise: &Promise| ForecastModel {
        mean_years: finite(&promise.mean_years()),
        loss_per_year: float(&promise.per_year()),
        nines: promise.nines(),
    };
    let mut models = std::collections::BTreeMap::new();
    for kind in Model::ALL {
        let forecast = gabion_forecast::forecast(scheme, kind, &parameters, Reading::Meant);
        let forecast = forecast.map_err(|error| Refusal::invalid(error.to_string()))?;
        models.insert(kind.name().to_owned(), model(&forecast.promise));
    }
    Reply::ok(ForecastAnswer {
        code: code.to_owned(),
        disks: scheme.disks(),
        overhead: float(&scheme.overhead()),
        models,
    })
}
