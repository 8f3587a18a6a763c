//! Hooks: commands of the configuration before and after scrubs, rebuilds and requested protecting.
//!
//! A hook that fails before a job skips it. One that fails after a job changes nothing about its outcome.

use super::child::{self, ChildError};
use super::config::notify::HookPoint;
use super::job::{Ended, Job, JobError, Work};
use super::source::Source;
use gabion_vault::run::Progress;
use gabion_vault::world::Stopwatch;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Most bytes of the output of a hook that are kept for an error message.
const MAX_OUTPUT: usize = 4096;

/// How long a hook may still run when the source stops.
const GRACE: Duration = Duration::from_secs(10);

/// The hooks of a kind of job.
fn points(work: &Work) -> Option<(HookPoint, HookPoint)> {
    match work {
        Work::Scrub { .. } => Some((HookPoint::BeforeScrub, HookPoint::AfterScrub)),
        Work::Protect => Some((HookPoint::BeforeProtect, HookPoint::AfterProtect)),
        Work::Rebuild { .. } => Some((HookPoint::BeforeRebuild, HookPoint::AfterRebuild)),
        Work::Repair { .. } | Work::PlanRepair(_) | Work::Survey => None,
    }
}

/// Runs a job between its hooks.
///
/// # Errors
/// That of the job, or of the hook before it, as text.
pub(super) fn around(
    source: &Source,
    job: &Job,
    run: impl FnOnce() -> Result<Ended, String>,
) -> Result<Ended, String> {
    let Some((before, after)) = points(&job.work) else { return run() };
    if source.config.hooks.command(before).is_some() {
        match hook(source, job, before, None) {
            Ok(()) => {}
            Err(ChildError::Stopped { .. }) => return Err(JobError::Stopped.to_string()),
            Err(error) => return Err(format!("skipped, because the hook {} failed: {error}", before.word())),
        }
    }
    let ended = run();
    if source.config.hooks.command(after).is_some()
        && let Err(error) = hook(source, job, after, Some(&ended))
    {
        source.warning(&format!("the hook {} failed: {error}", after.word()));
    }
    ended
}

fn hook(
    source: &Source,
    job: &Job,
    point: HookPoint,
    ended: Option<&Result<Ended, String>>,
) -> Result<(), ChildError> {
    let Some(command) = source.config.hooks.command(point) else { return Ok(()) };
    job.note(Progress::Step(point.word(), None));
    let mut environment: Vec<(&'static str, OsString)> = vec![
        ("GABION_HOOK", point.word().into()),
        ("GABION_SOURCE", source.name().into()),
        ("GABION_KIND", source.config.kind().into()),
        ("GABION_PATH", source.config.path().into()),
        ("GABION_JOB", job.work.word().into()),
        ("GABION_SCHEDULED", if job.scheduled { "1" } else { "0" }.into()),
    ];
    let mut input = Vec::new();
    match ended {
        None => {}
        Some(Ok(ended)) => {
            environment.push(("GABION_OUTCOME", ended.outcome.into()));
            // A report consists of numbers and texts, which always have a form in JSON.
            input = serde_json::to_vec(&ended.report).unwrap_or_default();
        }
        Some(Err(why)) => {
            environment.push(("GABION_OUTCOME", "failed".into()));
            environment.push(("GABION_ERROR", why.into()));
        }
    }
    let since = Stopwatch::start();
    // What a hook before a job did has to be undone after it, also if the job was stopped: a disk is unmounted, say.
    let stopped = || match ended {
        None => job.is_stopped(),
        Some(_) => source.is_stopping() && since.elapsed() >= GRACE,
    };
    let run = child::Run {
        command,
        directory: Path::new("/"),
        environment: &environment,
        input: &input,
        deadline: source.config.hooks.timeout,
        most_output: MAX_OUTPUT,
        stopped: &stopped,
    };
    child::run(run)?.success(command)?;
    Ok(())
}
