//! Conditions of a source, from its state.

use super::super::affected::AffectedFiles;
use super::super::events::{Event, EventKind};
use super::super::job::JobError;
use super::super::source::{Phase, Source, State};
use super::super::targets::Targets;
use super::topic::{Condition, Topic, files};
use crate::report::PathName;
use crate::report::daemon::{JobReport, LastJob};
use crate::shell;
use gabion_platform::display_path::DisplayPath;
use gabion_platform::local_time::local;
use gabion_vault::catalogue;

/// Scheduled jobs whose failure is told. The result of a requested one is seen by the person who requested it.
const JOBS: [&str; 2] = ["scrub", "rebuild"];

/// What is known of a source now.
#[derive(Debug)]
pub(in crate::daemon) struct SourceView {
    pub(in crate::daemon) name: String,
    /// False while it starts: nothing is known yet.
    pub(in crate::daemon) is_settled: bool,
    pub(in crate::daemon) conditions: Vec<Condition>,
    /// Topics, or single objects of topics, of which nothing is known now: what was known of them still holds.
    pub(in crate::daemon) undetermined: Vec<(Topic, Option<&'static str>)>,
}

impl SourceView {
    /// True if nothing is known now of what a condition is about.
    pub(super) fn keeps(&self, condition: &Condition) -> bool {
        self.undetermined.iter().any(|(topic, object)| {
            *topic == condition.topic && object.is_none_or(|it| it == condition.object)
        })
    }

    fn undetermined(&mut self, topics: &[Topic]) {
        self.undetermined.extend(topics.iter().map(|topic| (*topic, None)));
    }
}

/// The conditions of a source.
pub(super) fn view(source: &Source) -> SourceView {
    let state = source.state();
    let mut view = SourceView {
        name: source.name().to_owned(),
        is_settled: true,
        conditions: Vec::new(),
        undetermined: Vec::new(),
    };
    match &state.phase {
        Phase::Running => {}
        Phase::Failed { why, .. } => {
            view.conditions.push(failed(source, why));
            view.undetermined(
                &Topic::ALL.map(|it| if it == Topic::SourceFailed { Topic::Repaired } else { it }),
            );
            return view;
        }
        Phase::Starting | Phase::Stopping | Phase::Stopped => {
            view.is_settled = false;
            view.undetermined(&Topic::ALL);
            return view;
        }
    }
    match &state.live {
        Some(live) => {
            view.conditions
                .extend(live.trouble.as_ref().or(live.unrecorded.as_ref()).map(|why| failed(source, why)));
            view.conditions.extend(live.held.as_ref().map(|held| {
                let digest = held.digest.to_string();
                let summary = format!(
                    "{} disappeared and {} changed at once: their redundancy is kept until this is approved",
                    files(held.removed),
                    held.changed
                );
                let known = format!(
                    "of {} (shortly before: {} and {})",
                    files(held.known),
                    held.before.removed,
                    held.before.changed
                );
                let name = source.name();
                Condition::new(Topic::ChangeSetHeld, name, 1, &summary)
                    .of(&digest)
                    .detailed([known])
                    .next(&format!("Look at the changes{}", on_tree("gabion diff", source, "")))
                    .next(&format!("If they are intended, type: gabion daemon approve {name} {digest}"))
                    .next(&format!(
                        "If not, restore the files: gabion daemon repair {name} --changed --missing"
                    ))
            }));
        }
        // A mount that leaves encoding to others has no monitor.
        None => view.undetermined(&[Topic::ChangeSetHeld]),
    }
    match state.affected.as_ref().filter(|_| state.files.is_some()) {
        Some(affected) => damage(source, &state, affected, &mut view),
        None => {
            view.is_settled = false;
            view.undetermined(&[Topic::DamageFound, Topic::Lost]);
        }
    }
    match &state.overdue {
        Some(overdue) if overdue.files > 0 => {
            let summary = format!("{} not scrubbed for longer than the policy says", files(overdue.files));
            let oldest = overdue.oldest.as_ref().map(|(path, verified)| {
                format!("{}, last verified {}", DisplayPath::bytes(path), local(*verified))
            });
            view.conditions.push(
                Condition::new(Topic::ScrubOverdue, source.name(), 1, &summary)
                    .detailed(oldest)
                    .next(&format!("Scrub them: gabion daemon scrub {} --due", source.name())),
            );
        }
        Some(_) => {}
        None => view.undetermined(&[Topic::ScrubOverdue]),
    }
    match &state.targets {
        Some(targets) => pool(source, targets, &mut view),
        None if source.config.rebuild().is_some() => {
            view.undetermined(&[Topic::TargetGone, Topic::RebuildConfirmation]);
        }
        None => {}
    }
    for job in JOBS {
        match state.last.get(job) {
            Some(last) if (last.scheduled || last.outcome == "fine") && !was_stopped(last) => {
                view.conditions.extend(job_condition(source, job, last));
            }
            _ => {
                view.undetermined.push((Topic::JobFailed, Some(job)));
                view.undetermined.push((Topic::RebuildIncomplete, Some(job)));
            }
        }
    }
    view
}

fn failed(source: &Source, why: &str) -> Condition {
    let name = source.name();
    Condition::new(Topic::SourceFailed, name, 1, "nothing is protected")
        .detailed([why])
        .next("The daemon tries again by itself, at least every 5 minutes. Remove the cause.")
        .next(&format!("See how it goes: gabion daemon status {name}"))
}

fn damage(source: &Source, state: &State, affected: &AffectedFiles, view: &mut SourceView) {
    let name = source.name();
    let list = on_tree("gabion status", source, " --files");
    let damaged = affected.count(catalogue::State::Damaged);
    if damaged > 0 {
        let summary = format!("{} damaged; redundancy is left to restore them", files(damaged));
        let left = source.config.scrub.is_some_and(|scrub| scrub.repair).then_some(
            "Automatic repair leaves files alone that were written since they were protected, or are in use",
        );
        view.conditions.push(
            Condition::new(Topic::DamageFound, name, damaged, &summary)
                .detailed(&affected.damaged)
                .detailed(left)
                .next(&format!("List them{list}"))
                .next(&format!("Repair them: gabion daemon repair {name} --known"))
                .next(&format!(
                    "Also revert those that were written since: gabion daemon repair {name} --changed"
                )),
        );
    }
    let lost = affected.count(catalogue::State::Lost);
    if state.targets.as_ref().is_some_and(Targets::wants_survey) {
        // Files that miss too many targets are known by a survey only.
        view.undetermined(&[Topic::Lost]);
    }
    let missed = state.targets.as_ref().and_then(|targets| targets.report().files);
    let missed = missed.map_or(0, |survey| survey.report.lost);
    if lost.max(missed) > 0 {
        let summary = format!("{} cannot be restored from redundancy", files(lost.max(missed)));
        view.conditions.push(
            Condition::new(Topic::Lost, name, lost.max(missed), &summary)
                .detailed(&affected.lost)
                .next(&format!("List them{list}"))
                .next(&format!("Restore them from a backup, then type: gabion daemon protect {name}")),
        );
    }
}

fn pool(source: &Source, targets: &Targets, view: &mut SourceView) {
    let (name, report) = (source.name(), targets.report());
    let survey = report.files.as_ref().map(|survey| &survey.report);
    let short = survey.filter(|survey| survey.degraded > 0);
    let short =
        short.map(|survey| format!("{} have less redundancy than they should", files(survey.degraded)));
    for target in report.targets.iter().filter(|target| matches!(target.state, "gone" | "given up")) {
        let until = report.notice.as_ref().and_then(|notice| notice.given_up_at);
        let next = match until {
            _ if target.state == "given up" => {
                "Its content is rebuilt on other targets. Replace the disk.".to_owned()
            }
            Some(until) => format!(
                "Reconnect it until {}. Then it is given up, and its content is rebuilt on other targets.",
                local(until.0)
            ),
            None => format!(
                "Reconnect it, or rebuild its content on others: gabion daemon rebuild {name} --target {}",
                target.name
            ),
        };
        let word = if target.state == "gone" { "does not answer" } else { "was given up" };
        let summary = format!("target {} {word}", target.name);
        view.conditions.push(
            Condition::new(Topic::TargetGone, name, 1, &summary)
                .of(&target.name.to_string())
                .detailed(&short)
                .next(&next),
        );
    }
    if let Some(ask) = &report.ask {
        let gone: Vec<String> = ask.gone.iter().map(ToString::to_string).collect();
        let summary = format!("nothing is rebuilt until the loss of {} is confirmed", gone.join(", "));
        view.conditions.push(
            Condition::new(Topic::RebuildConfirmation, name, 1, &summary)
                .of(&ask.agreement)
                .detailed([&ask.why])
                .next("If they can be reconnected, do that.")
                .next(&format!(
                    "If they are lost, type: gabion daemon rebuild {name} --agree {}",
                    ask.agreement
                )),
        );
    }
}

/// True if a job made room for another one, or the daemon stopped: that says nothing about its success.
fn was_stopped(last: &LastJob) -> bool {
    last.outcome == "stopped" || last.error.as_ref().is_some_and(|why| *why == JobError::Stopped.to_string())
}

fn job_condition(source: &Source, job: &'static str, last: &LastJob) -> Option<Condition> {
    let name = source.name();
    let again = format!("Try again: gabion daemon {job} {name}");
    if let Some(why) = &last.error {
        let condition = Condition::new(Topic::JobFailed, name, 1, &format!("the scheduled {job} failed"));
        return Some(condition.of(job).detailed([why]).next(&again));
    }
    match &last.report.as_ref()?.report {
        JobReport::Scrub(scrub) if !scrub.failed.is_empty() => {
            let number = scrub.failed.len() as u64;
            let summary = format!("the scheduled scrub could not read {}", files(number));
            let names = scrub.failed.iter().map(|failure| shown(&failure.path));
            Some(
                Condition::new(Topic::JobFailed, name, number, &summary).of(job).detailed(names).next(&again),
            )
        }
        JobReport::Rebuild(rebuild) if last.outcome != "fine" => {
            let left =
                rebuild.unplaced.len() + rebuild.failed.len() + rebuild.unreadable.len() + rebuild.lost.len();
            let summary = format!("the rebuild left {} undone", files(left as u64));
            let names = rebuild.failed.iter().chain(&rebuild.unreadable).map(|failure| shown(&failure.path));
            let next = "It is tried again by itself, after pauses of up to 6 h, and when targets change.";
            let condition = Condition::new(Topic::RebuildIncomplete, name, left as u64, &summary).of(job);
            Some(condition.detailed(names).next(next).next(&format!("See why: gabion daemon status {name}")))
        }
        _ => None,
    }
}

/// A command on the directory of a source, after a colon.
fn on_tree(command: &str, source: &Source, options: &str) -> String {
    format!(": {command} {}{options}", shell::word(source.config.path()))
}

/// A path as one printable line.
fn shown(path: &PathName) -> String {
    DisplayPath::bytes(path.path.as_bytes()).to_string()
}

/// What a receiver is told of an event that does not last.
pub(super) fn happened(event: &Event) -> Option<Condition> {
    let source = event.source.as_deref()?;
    let data = &event.data;
    let number = data.files.unwrap_or(data.paths.len() as u64);
    let summary = format!("{} repaired", files(number));
    let next = "Damage is rare. If it comes again, look at the health of the disk: smartctl -a /dev/...";
    (event.kind == EventKind::Repaired).then(|| {
        Condition::new(Topic::Repaired, source, number, &summary)
            .detailed(data.paths.iter().map(shown))
            .next(next)
    })
}
