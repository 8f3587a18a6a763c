//! Events of a source: what its jobs found, and what about it needs attention or no longer does.

use super::events::{EventData, EventKind};
use super::job::{Ended, Job, Work};
use super::source::Source;
use crate::report::daemon::{JobReport, RepairJobReport, Timed};
use crate::report::{DamagedFile, PathName, RepairedFile};
use gabion_vault::catalogue::State;
use gabion_vault::scrub::Selection;
use std::collections::BTreeSet;

/// Publishes the beginning of a job that people may want to know of.
pub(super) fn began(source: &Source, job: &Job) {
    let data =
        EventData { job: Some(job.work.word().to_owned()), job_id: Some(job.id), ..EventData::default() };
    match &job.work {
        // Every hour, and mostly for no file.
        Work::Scrub { selection: Selection::Due, .. } if job.scheduled => {}
        Work::Scrub { .. } => source.publish(EventKind::ScrubStarted, "scrub: started", data),
        Work::Rebuild { targets, .. } => {
            let data = EventData { targets: targets.clone(), ..data };
            source.publish(EventKind::RebuildStarted, "rebuild: started", data);
        }
        _ => {}
    }
}

/// Publishes the end of a job and what it found.
pub(super) fn ended(source: &Source, job: &Job, ended: &Result<Ended, String>) {
    let word = job.work.word();
    let data = EventData { job: Some(word.to_owned()), job_id: Some(job.id), ..EventData::default() };
    let Ended { outcome, report: Timed { report, seconds }, .. } = match ended {
        Ok(ended) => ended,
        Err(why) => {
            let data = EventData { error: Some(why.clone()), ..data };
            return source.publish(EventKind::JobFailed, &format!("{word}: {why}"), data);
        }
    };
    let text = format!("{word}: {outcome}{}", report.summary());
    let data = EventData { outcome: Some((*outcome).to_owned()), seconds: Some(*seconds), ..data };
    let is_fine = *outcome == "fine";
    match report {
        JobReport::Scrub(scrub) => {
            let (files, bytes) = (Some(scrub.files), Some(scrub.bytes));
            if !(is_fine && job.scheduled && scrub.files == 0) {
                source.publish(EventKind::ScrubFinished, &text, EventData { files, bytes, ..data.clone() });
            }
            found(source, scrub.damaged as u64, &scrub.damage, scrub.repair.is_some(), &data);
            if let Some(repair) = &scrub.repair {
                repaired(source, repair, &data);
            }
            if scrub.repair.as_ref().map_or(&scrub.failed, |repair| &repair.failed).is_empty() {
                return;
            }
            source.warning(&text);
        }
        JobReport::Repair(repair) => {
            repaired(source, repair, &data);
            if is_fine || *outcome == "stopped" { source.message(&text) } else { source.warning(&text) }
        }
        JobReport::Rebuild(rebuild) => {
            let (files, bytes) = (Some(rebuild.files), Some(rebuild.bytes));
            let data = EventData { files, bytes, ..data };
            match is_fine {
                true => source.publish(EventKind::RebuildFinished, &text, data),
                false => source.publish(EventKind::RebuildIncomplete, &text, data),
            }
        }
        // Scheduled ones repeat; only their findings are reported.
        _ if is_fine && job.scheduled => {}
        _ if is_fine || *outcome == "stopped" => source.message(&text),
        _ => source.warning(&text),
    }
}

/// Publishes damage that a scrub found; lost files are reported by the repair, if there was one.
fn found(source: &Source, files: u64, damage: &[DamagedFile], has_repair: bool, data: &EventData) {
    if files == 0 {
        return;
    }
    let paths =
        |lost: bool| damage.iter().filter(move |it| (it.state == State::Lost) == lost).map(|it| &it.path);
    let lost = paths(true).count() as u64;
    if lost > 0 && !has_repair {
        announce_lost(source, paths(true), lost, data);
    }
    if files > lost {
        let some: Vec<&PathName> = paths(false).collect();
        let text = format!("{} damaged: {}", number(files - lost), first(&some));
        let data = EventData { files: Some(files - lost), ..data.clone() };
        source.publish(EventKind::DamageFound, &text, data.with_paths(some));
    }
}

fn repaired(source: &Source, repair: &RepairJobReport, data: &EventData) {
    let of = |state: State| {
        repair.repaired.iter().filter(move |it: &&RepairedFile| it.state == state).map(|it| &it.path)
    };
    let good: Vec<&PathName> = of(State::Protected).collect();
    let lost = of(State::Lost).count() as u64;
    if lost > 0 {
        announce_lost(source, of(State::Lost), lost, data);
    }
    if !good.is_empty() {
        // The list has the first names only; the rest has the state of most of them.
        let files = (repair.files - (repair.repaired.len() - good.len())) as u64;
        let text = format!("{} repaired: {}", number(files), first(&good));
        let data = EventData { files: Some(files), ..data.clone() };
        source.publish(EventKind::Repaired, &text, data.with_paths(good));
    }
}

fn announce_lost<'a>(
    source: &Source,
    paths: impl Iterator<Item = &'a PathName>,
    files: u64,
    data: &EventData,
) {
    let paths: Vec<&PathName> = paths.collect();
    let text = format!("{} LOST beyond repair: {}", number(files), first(&paths));
    let data = EventData { files: Some(files), ..data.clone() };
    source.publish(EventKind::Lost, &text, data.with_paths(paths));
}

fn number(files: u64) -> String {
    if files == 1 { "1 file".to_owned() } else { format!("{files} files") }
}

fn first(paths: &[&PathName]) -> String {
    let names: Vec<String> = paths.iter().take(3).map(|path| path.to_string()).collect();
    names.join(", ")
}

/// What needed attention at the last turn.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    held: Option<String>,
    gone: BTreeSet<String>,
    question: Option<String>,
    overdue: bool,
    trouble: Option<String>,
    /// Unknown until files were counted.
    well: Option<bool>,
}

impl Conditions {
    /// Compares the state of a running source with that of the last turn, and publishes what changed.
    pub(super) fn turn(&mut self, source: &Source) {
        let state = source.state();
        let live = state.live.as_ref();
        let trouble = live.and_then(super::source::trouble).cloned();
        let held = live.and_then(|live| live.held.clone());
        let pool = state.targets.as_ref().map(super::targets::Targets::report);
        let overdue = state.overdue.as_ref().map(|overdue| overdue.files);
        let affected = state.files.as_ref().map(|(_, affected)| affected.iter().map(|it| it.1).sum::<u64>());
        drop(state);
        let gone: BTreeSet<String> = pool
            .iter()
            .flat_map(|pool| &pool.targets)
            .filter(|it| it.is_absent())
            .map(|it| it.name.to_string())
            .collect();
        let question = pool.as_ref().and_then(|pool| pool.ask.clone());

        if trouble != self.trouble {
            match &trouble {
                Some(why) => {
                    let data = EventData { error: Some(why.clone()), ..EventData::default() };
                    source.publish(EventKind::SourceFailed, &format!("failed: {why}"), data);
                }
                None => source.publish(EventKind::SourceRunning, "running again", EventData::default()),
            }
            self.trouble.clone_from(&trouble);
        }
        let digest = held.as_ref().map(|held| held.digest.to_string());
        if digest != self.held {
            match (&held, &digest) {
                (Some(held), Some(digest)) => {
                    let text = format!(
                        "held: of {} files, {} disappeared and {} changed at once; approve with {digest}",
                        held.known, held.removed, held.changed
                    );
                    let files = Some(held.removed + held.changed);
                    let data = EventData { digest: Some(digest.clone()), files, ..EventData::default() };
                    source.publish(EventKind::ChangeSetHeld, &text, data);
                }
                _ => {
                    let data = EventData { digest: self.held.take(), ..EventData::default() };
                    source.publish(EventKind::Approved, "the held changes were approved or undone", data);
                }
            }
            self.held.clone_from(&digest);
        }
        self.compare_targets(source, gone);
        let asked = question.as_ref().map(|it| it.agreement.clone());
        if asked != self.question {
            if let Some(question) = question {
                let targets: Vec<String> = question.gone.iter().map(ToString::to_string).collect();
                let text =
                    format!("{}: {}; confirm with {}", question.why, targets.join(", "), question.agreement);
                let data = EventData { digest: asked.clone(), targets, ..EventData::default() };
                source.publish(EventKind::RebuildConfirmation, &text, data);
            }
            self.question = asked;
        }
        if let Some(files) = overdue
            && (files > 0) != self.overdue
        {
            self.overdue = files > 0;
            let data = EventData { files: Some(files), ..EventData::default() };
            match self.overdue {
                true => {
                    let text = format!("the scrub of {} is overdue by the policy", number(files));
                    source.publish(EventKind::ScrubOverdue, &text, data);
                }
                false => source.publish(EventKind::ScrubCurrent, "no scrub is overdue", data),
            }
        }
        if let Some(affected) = affected {
            let well = affected == 0
                && self.trouble.is_none()
                && self.held.is_none()
                && self.gone.is_empty()
                && self.question.is_none()
                && !self.overdue;
            if well && self.well == Some(false) {
                source.publish(EventKind::AllWell, "nothing needs attention any more", EventData::default());
            }
            self.well = Some(well);
        }
    }

    fn compare_targets(&mut self, source: &Source, gone: BTreeSet<String>) {
        let (lost, back): (Vec<String>, Vec<String>) =
            (gone.difference(&self.gone).cloned().collect(), self.gone.difference(&gone).cloned().collect());
        if !lost.is_empty() {
            let text = format!("targets gone: {}", lost.join(", "));
            source.publish(EventKind::TargetGone, &text, EventData { targets: lost, ..EventData::default() });
        }
        if !back.is_empty() {
            let text = format!("targets back, or replaced: {}", back.join(", "));
            source.publish(EventKind::TargetBack, &text, EventData { targets: back, ..EventData::default() });
        }
        self.gone = gone;
    }

    /// The source ended or failed: that needs attention, and its other conditions are found anew.
    pub(super) fn failed(&mut self) {
        self.well = Some(false);
        self.trouble = None;
    }
}
