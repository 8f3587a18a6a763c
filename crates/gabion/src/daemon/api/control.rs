//! Requests that change something: jobs, pauses, approvals, the daemon itself.

use super::Api;
use super::routes::{Call, Reply, job_number};
use crate::daemon::job::Work;
use crate::daemon::message::{
    Approved, DigestRequest, Empty, OneJob, Paused, RebuildRequest, RepairPlanRequest, ScrubRequest, Stopping,
};
use crate::daemon::refusal::{ErrorCode, Refusal};
use gabion_vault::repair;
use gabion_vault::scrub::Selection;
use std::sync::Arc;
use std::time::Duration;

/// Adds a job to the queue of its source, and answers with the job.
fn enqueue(api: &Api, call: &Call, work: Work) -> Result<Reply, Refusal> {
    let source = api.daemon.source(call.name())?;
    let job = source.enqueue(work)?;
    Ok(Reply::new(202, OneJob { job: job.entry(source.name()) }))
}

pub(super) fn scrub(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let ScrubRequest { percent, older_than_seconds, due, restart, repair } = call.read()?;
    let selection = match (percent, older_than_seconds) {
        (Some(_), Some(_)) => return Err(Refusal::invalid("either percent or older_than_seconds")),
        (None, None) if due => Selection::Due,
        _ if due => return Err(Refusal::invalid("either due or percent or older_than_seconds")),
        (Some(share), None) if (1..=100).contains(&share) => Selection::Percent(share),
        (Some(share), None) => {
            return Err(Refusal::invalid(format!("percent = {share} is not from 1 to 100")));
        }
        (None, Some(age)) => Selection::OlderThan(Duration::from_secs(age)),
        (None, None) => Selection::All,
    };
    enqueue(api, call, Work::Scrub { selection, restart, repair, rhythm: None })
}

pub(super) fn protect(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    enqueue(api, call, Work::Protect)
}

pub(super) fn plan_repair(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let RepairPlanRequest { known, keep_changed, missing } = call.read()?;
    let options = repair::Options { known_only: known, keep_changed, missing };
    enqueue(api, call, Work::PlanRepair(options))
}

pub(super) fn repair(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let DigestRequest { digest } = call.read()?;
    let source = api.daemon.source(call.name())?;
    let plan = source.take_plan(&digest)?;
    match source.enqueue(Work::Repair(plan.clone())) {
        Ok(job) => Ok(Reply::new(202, OneJob { job: job.entry(source.name()) })),
        Err(refusal) => {
            source.keep_plan(plan);
            Err(refusal)
        }
    }
}

pub(super) fn rebuild(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let RebuildRequest { targets, agree } = call.read()?;
    let source = api.daemon.source(call.name())?;
    if let Some(agreement) = &agree {
        // Confirmed: no delay and no second question. If nothing is asked, the rebuild itself compares the digest.
        let _ = source.agree(agreement);
    }
    let job = source.enqueue(Work::Rebuild { targets, agreed: agree })?;
    Ok(Reply::new(202, OneJob { job: job.entry(source.name()) }))
}

pub(super) fn approve(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let DigestRequest { digest } = call.read()?;
    api.daemon.source(call.name())?.approve(&digest)?;
    Reply::ok(Approved { approved: digest })
}

fn set_paused(api: &Api, source: Option<&str>, paused: bool) -> Result<Reply, Refusal> {
    let sources = match source {
        Some(name) => vec![api.daemon.source(name)?],
        None => api.daemon.sources(),
    };
    sources.iter().for_each(|source| source.pause(paused));
    Reply::ok(Paused { paused, sources: sources.iter().map(|source| source.name().to_owned()).collect() })
}

pub(super) fn pause(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    set_paused(api, Some(call.name()), true)
}

pub(super) fn resume(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    set_paused(api, Some(call.name()), false)
}

pub(super) fn pause_all(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    set_paused(api, None, true)
}

pub(super) fn resume_all(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    set_paused(api, None, false)
}

pub(super) fn stop_job(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    let (source, job) = api.daemon.job(job_number(call)?)?;
    job.stop();
    Ok(Reply::new(202, OneJob { job: job.entry(&source) }))
}

pub(super) fn reload(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    let reloaded = api.daemon.reload();
    Reply::ok(reloaded.map_err(|why| Refusal::new(ErrorCode::ConfigurationRefused, why))?)
}

pub(super) fn stop(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let Empty {} = call.read()?;
    api.daemon.stop();
    Ok(Reply::new(202, Stopping { stopping: true, process: gabion_vault::world::process() }))
}
