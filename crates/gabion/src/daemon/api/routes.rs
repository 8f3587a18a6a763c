//! The routes of the API: one table, from which requests are served and the OpenAPI document is made.

use super::access::Role;
use super::redundancy::{self, Redundancy};
use super::stream::Wanted;
use super::{Api, MAX_BODY, control, queries};
use crate::daemon::events::{EventKind, Events};
use crate::daemon::job::Job;
use crate::daemon::message::{self, Empty, Versioned};
use crate::daemon::refusal::{ErrorCode, Refusal};
use crate::report;
use crate::report::daemon::DaemonStatus;
use hyper::body::Bytes;
use hyper::{HeaderMap, Method};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// Longest time to wait for a job in one request.
const MAX_WAIT: u64 = 60;

/// Most parameters of a query.
const MAX_PARAMETERS: usize = 64;

/// An answer.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

impl Reply {
    /// A body with the version.
    pub(super) fn new(status: u16, body: impl Serialize) -> Reply {
        let body = report::line(&Versioned { version: message::VERSION, body });
        Reply { status, content_type: "application/json", body: body.into() }
    }

    pub(super) fn ok(body: impl Serialize) -> Result<Reply, Refusal> {
        Ok(Reply::new(200, body))
    }
}

/// A request after it was routed.
pub(super) struct Call {
    pub(super) parameters: Vec<String>,
    pub(super) query: Query,
    pub(super) body: Bytes,
    pub(super) headers: HeaderMap,
}

impl Call {
    /// The first parameter of the path.
    pub(super) fn name(&self) -> &str {
        self.parameters.first().map_or("", String::as_str)
    }

    /// The body; an empty one stands for an object without keys.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let bytes: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(bytes).map_err(|error| Refusal::invalid(format!("the body: {error}")))
    }
}

/// The parameters of a query, decoded. `+` stands for itself.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    pub(super) fn parse(text: &str) -> Result<Query, Refusal> {
        let parts = text.split('&').filter(|part| !part.is_empty());
        let mut all = Vec::new();
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name =
                String::from_utf8(decode(name)?).map_err(|_| Refusal::invalid("a parameter is no UTF-8"))?;
            all.push((name, decode(value)?));
        }
        if all.len() > MAX_PARAMETERS {
            return Err(Refusal::invalid(format!("a query has at most {MAX_PARAMETERS} parameters")));
        }
        Ok(Query(all))
    }

    pub(super) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|it| it.0 == name).map(|it| it.1.as_slice())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Refusal> {
        let wrong = |_| Refusal::invalid(format!("{name} is no UTF-8"));
        self.bytes(name).map(std::str::from_utf8).transpose().map_err(wrong)
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let of_name = self.0.iter().filter(|it| it.0 == name);
        of_name.map(|it| String::from_utf8_lossy(&it.1).into_owned()).collect()
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let parse = |text: &str| {
            text.parse().map_err(|_| Refusal::invalid(format!("{name} = {text:?} is no number")))
        };
        self.text(name)?.map(parse).transpose()
    }

    pub(super) fn kinds(&self) -> Result<Vec<EventKind>, Refusal> {
        let kind = |text: String| {
            let unknown = format!("kind = {text:?} is no kind of events");
            serde_json::from_value(text.into()).map_err(|_| Refusal::invalid(unknown))
        };
        self.all("kind").into_iter().map(kind).collect()
    }

    /// Refuses parameters that the route does not have.
    fn check(&self, known: &[Parameter]) -> Result<(), Refusal> {
        match self.0.iter().find(|(name, _)| known.iter().all(|it| it.name != name)) {
            Some((name, _)) => Err(Refusal::invalid(format!("there is no parameter {name:?}"))),
            None => Ok(()),
        }
    }
}

/// Decodes `%XX`.
fn decode(text: &str) -> Result<Vec<u8>, Refusal> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err(Refusal::invalid(format!("{text:?}: % is followed by two hexadecimal digits")));
        };
        decoded.push((high * 16 + low) as u8);
    }
    Ok(decoded)
}

/// How a route is carried out.
pub(super) enum Task {
    /// In a thread that may block.
    Blocking(fn(&Arc<Api>, &Call) -> Result<Reply, Refusal>),
    /// Answers when a job ends.
    Job,
    /// A stream of events.
    Stream,
}

/// A parameter of a query.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
}

type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// A route.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) role: Role,
    pub(super) summary: &'static str,
    pub(super) query: &'static [Parameter],
    pub(super) body: Option<MakeSchema>,
    pub(super) status: u16,
    pub(super) answer: Option<MakeSchema>,
    pub(super) task: Task,
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

type Carry = fn(&Arc<Api>, &Call) -> Result<Reply, Refusal>;

/// A route that reads.
fn get<T: JsonSchema>(
    path: &'static str,
    summary: &'static str,
    query: &'static [Parameter],
    carry_out: Carry,
) -> Route {
    Route {
        method: Method::GET,
        path,
        role: Role::Read,
        summary,
        query,
        body: None,
        status: 200,
        answer: Some(schema::<Versioned<T>>),
        task: Task::Blocking(carry_out),
    }
}

/// A route that changes something, with a body `B` and an answer `T`.
fn post<B: JsonSchema, T: JsonSchema>(
    path: &'static str,
    status: u16,
    summary: &'static str,
    carry_out: Carry,
) -> Route {
    Route {
        method: Method::POST,
        path,
        role: Role::Admin,
        summary,
        query: &[],
        body: Some(schema::<B>),
        status,
        answer: Some(schema::<Versioned<T>>),
        task: Task::Blocking(carry_out),
    }
}

const AFTER: Parameter = Parameter { name: "after", text: "only events after this sequence number" };
const KIND: Parameter = Parameter { name: "kind", text: "only events of this kind; may be repeated" };
const LIMIT: Parameter =
    Parameter { name: "limit", text: "most items of the page, at most 1000; 100 by default" };
const CURSOR: Parameter = Parameter { name: "cursor", text: "next_cursor of the page before" };
const PREFIX: Parameter = Parameter { name: "prefix", text: "only files at or below this path" };

const FILES: &[Parameter] = &[
    Parameter { name: "state", text: "protected, degraded, damaged or lost; all by default" },
    PREFIX,
    CURSOR,
    LIMIT,
];
const PROBLEMS: &[Parameter] = &[PREFIX, CURSOR, LIMIT];
const EVENTS: &[Parameter] = &[AFTER, KIND, LIMIT];
const STREAM: &[Parameter] = &[AFTER, KIND, Parameter { name: "source", text: "only events of this source" }];
const JOB: &[Parameter] =
    &[Parameter { name: "wait", text: "seconds to wait for the end of the job, at most 60; 0 by default" }];
const POLICY: &[Parameter] = &[Parameter { name: "path", text: "path of the file in the source" }];
const WHATIF: &[Parameter] =
    &[Parameter { name: "lose", text: "name of a target that fails; may be repeated" }, PREFIX];
const FORECAST: &[Parameter] = &[
    Parameter { name: "code", text: "the code, such as 8+2" },
    Parameter {
        name: "disks",
        text: "number of disks over which it is spread; as many as the code has blocks",
    },
    Parameter { name: "capacity", text: "size of a disk, such as 4TB" },
    Parameter { name: "mtbf", text: "mean time between failures of a disk, such as 1000000h" },
    Parameter { name: "afr", text: "annual failure rate of a disk instead, such as 2.12%25" },
    Parameter { name: "rebuild", text: "mean time of a rebuild, such as 12h" },
    Parameter { name: "read_errors", text: "unrecoverable read errors per bit, such as 1e-15" },
    Parameter { name: "silent", text: "share of read errors that the disk does not report, such as 1%25" },
];

/// All routes.
pub(super) fn all() -> Vec<Route> {
    let job = Route {
        method: Method::GET,
        path: "/api/v1/jobs/{id}",
        role: Role::Read,
        summary: "One job, with its progress or its report; with `wait`, when it has ended",
        query: JOB,
        body: None,
        status: 200,
        answer: Some(schema::<Versioned<message::OneJob>>),
        task: Task::Job,
    };
    let stream = Route {
        method: Method::GET,
        path: "/api/v1/events/stream",
        role: Role::Read,
        summary: "Live events as server-sent events, after `Last-Event-ID` or `after`",
        query: STREAM,
        body: None,
        status: 200,
        answer: None,
        task: Task::Stream,
    };
    let document = Route {
        method: Method::GET,
        path: "/api/v1/openapi.json",
        role: Role::Read,
        summary: "This description of the API",
        query: &[],
        body: None,
        status: 200,
        answer: None,
        task: Task::Blocking(queries::document),
    };
    let metrics = Route {
        method: Method::GET,
        path: "/metrics",
        role: Role::Read,
        summary: "Metrics in the text format of Prometheus",
        query: &[],
        body: None,
        status: 200,
        answer: None,
        task: Task::Blocking(queries::metrics),
    };
    vec![
        document,
        metrics,
        get::<DaemonStatus>("/api/v1/status", "The daemon and its sources", &[], queries::status),
        get::<message::Sources>("/api/v1/sources", "All sources", &[], queries::sources),
        get::<message::OneSource>("/api/v1/sources/{source}", "One source", &[], queries::source),
        get::<message::Files>(
            "/api/v1/sources/{source}/files",
            "Protected files, by pages",
            FILES,
            queries::files,
        ),
        get::<message::Files>(
            "/api/v1/sources/{source}/problems",
            "Degraded, damaged and lost files with their damage, by pages",
            PROBLEMS,
            queries::problems,
        ),
        get::<message::Targets>(
            "/api/v1/sources/{source}/targets",
            "Targets of a source",
            &[],
            queries::targets,
        ),
        get::<Redundancy>(
            "/api/v1/sources/{source}/redundancy",
            "Files by wanted and actual redundancy, counted by this request",
            &[],
            redundancy::redundancy,
        ),
        get::<message::EventPage>(
            "/api/v1/sources/{source}/events",
            "History of a source, oldest first",
            EVENTS,
            queries::history,
        ),
        get::<message::PolicyAnswer>(
            "/api/v1/sources/{source}/policy",
            "The rule of the policy that applies to a file, and why",
            POLICY,
            queries::policy,
        ),
        get::<message::WhatIfAnswer>(
            "/api/v1/sources/{source}/whatif",
            "Files that the loss of targets would affect",
            WHATIF,
            queries::whatif,
        ),
        get::<message::ForecastAnswer>(
            "/api/v1/forecast",
            "Durability of a code on disks",
            FORECAST,
            queries::forecast,
        ),
        get::<message::EventPage>(
            "/api/v1/events",
            "Events of all sources, oldest first",
            EVENTS,
            queries::events,
        ),
        stream,
        get::<message::Jobs>("/api/v1/jobs", "Jobs that wait, run, or ended lately", &[], queries::jobs),
        job,
        post::<Empty, message::OneJob>(
            "/api/v1/jobs/{id}/stop",
            202,
            "Stops a job; what is done stays",
            control::stop_job,
        ),
        post::<Empty, message::Paused>(
            "/api/v1/pause",
            200,
            "Suspends work on all sources",
            control::pause_all,
        ),
        post::<Empty, message::Paused>(
            "/api/v1/resume",
            200,
            "Continues work on all sources",
            control::resume_all,
        ),
        post::<Empty, message::Paused>(
            "/api/v1/sources/{source}/pause",
            200,
            "Suspends work on a source",
            control::pause,
        ),
        post::<Empty, message::Paused>(
            "/api/v1/sources/{source}/resume",
            200,
            "Continues it",
            control::resume,
        ),
        post::<message::ScrubRequest, message::OneJob>(
            "/api/v1/sources/{source}/scrub",
            202,
            "Scrubs now",
            control::scrub,
        ),
        post::<Empty, message::OneJob>(
            "/api/v1/sources/{source}/protect",
            202,
            "Protects changed files now, without waiting for their quiet period",
            control::protect,
        ),
        post::<message::RepairPlanRequest, message::OneJob>(
            "/api/v1/sources/{source}/repair/plan",
            202,
            "Examines files and plans their repair; the report has the digest of the plan",
            control::plan_repair,
        ),
        post::<message::DigestRequest, message::OneJob>(
            "/api/v1/sources/{source}/repair",
            202,
            "Carries out the last plan, by its digest",
            control::repair,
        ),
        post::<message::RebuildRequest, message::OneJob>(
            "/api/v1/sources/{source}/rebuild",
            202,
            "Rebuilds now, or confirms the loss of targets by the digest of the question",
            control::rebuild,
        ),
        post::<message::DigestRequest, message::Approved>(
            "/api/v1/sources/{source}/approve",
            200,
            "Approves a held change-set by its digest",
            control::approve,
        ),
        post::<Empty, message::Reloaded>(
            "/api/v1/reload",
            200,
            "Reads the configuration again",
            control::reload,
        ),
        post::<Empty, message::Stopping>("/api/v1/stop", 202, "Stops the daemon", control::stop),
    ]
}

/// A route and the parameters of its path.
pub(super) struct Found {
    pub(super) route: Route,
    pub(super) parameters: Vec<String>,
}

/// The route of a request.
pub(super) fn find(method: &Method, path: &str) -> Result<Found, Refusal> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut other_method = None;
    for route in all() {
        let Some(parameters) = matches(route.path, path)? else { continue };
        if route.method == *method {
            return Ok(Found { route, parameters });
        }
        other_method = Some(route.method);
    }
    match other_method {
        Some(other) => {
            let why = format!("{path} is requested with {other}, not {method}");
            Err(Refusal::new(ErrorCode::MethodNotAllowed, why))
        }
        None => {
            let why = format!("there is no {path}; GET /api/v1/openapi.json describes what there is");
            Err(Refusal::new(ErrorCode::NotFound, why))
        }
    }
}

fn matches(pattern: &str, path: &str) -> Result<Option<Vec<String>>, Refusal> {
    let (pattern, path): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    if pattern.len() != path.len() {
        return Ok(None);
    }
    let mut parameters = Vec::new();
    for (wanted, given) in pattern.iter().zip(&path) {
        match wanted.starts_with('{') {
            true => parameters.push(given),
            false if wanted == given => {}
            false => return Ok(None),
        }
    }
    let text = |given: &&str| {
        String::from_utf8(decode(given)?).map_err(|_| Refusal::invalid("the path is no UTF-8"))
    };
    parameters.into_iter().map(text).collect::<Result<_, _>>().map(Some)
}

impl Found {
    /// Refuses parameters and bodies that the route does not have.
    pub(super) fn check(&self, query: &Query, body: &Bytes) -> Result<(), Refusal> {
        query.check(self.route.query)?;
        if self.route.body.is_none() && !body.is_empty() {
            return Err(Refusal::invalid("this request has no body"));
        }
        debug_assert!(body.len() <= MAX_BODY);
        Ok(())
    }
}

/// The job that a request waits for, and how long.
pub(super) fn job_to_wait_for(call: &Call) -> Result<(u64, Duration), Refusal> {
    let seconds = call.query.number("wait")?.unwrap_or(0);
    if seconds > MAX_WAIT {
        return Err(Refusal::invalid(format!("wait is at most {MAX_WAIT} seconds")));
    }
    Ok((job_number(call)?, Duration::from_secs(seconds)))
}

pub(super) fn job_number(call: &Call) -> Result<u64, Refusal> {
    let no = || Refusal::new(ErrorCode::NotFound, format!("there is no job {:?}", call.name()));
    call.name().parse().map_err(|_| no())
}

pub(super) fn job_reply((source, job): &(String, Arc<Job>)) -> Reply {
    Reply::new(200, message::OneJob { job: job.entry(source) })
}

/// The events that a stream begins with: after `Last-Event-ID`, after `after`, or from now on.
pub(super) fn wanted_events(call: &Call, events: &Events) -> Result<Wanted, Refusal> {
    let header = call.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let resumed = header.map(|text| text.trim().parse::<u64>());
    let resumed = resumed.transpose().map_err(|_| Refusal::invalid("Last-Event-ID is no sequence number"))?;
    let after = resumed.or(call.query.number("after")?).unwrap_or_else(|| events.last());
    Ok(Wanted { after, source: call.query.text("source")?.map(str::to_owned), kinds: call.query.kinds()? })
}
