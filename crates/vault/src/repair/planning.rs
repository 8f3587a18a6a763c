//! Plan of a repair: files are examined, by all workers of a deployment, and their damage is listed.

use super::{Options, Plan, note_right};
use crate::catalogue::{CatalogueError, Entry, State};
use crate::changelog::WorkerId;
use crate::changelog::tasks::{Portion, TaskKind};
use crate::damage::{DamageReport, damage_report, remaining_redundancy, version_of};
use crate::examine::{ExamineError, ExamineOptions, ProtectedFile, examine};
use crate::host_limits::throttled;
use crate::repair_mark::Interrupted;
use crate::run::{Counted, Progress, RunContext};
use crate::scrub::record_unprotected;
use crate::scrub::{Files, is_gone, is_of_another, is_replaced, known_files, portion_bytes, portions};
use crate::team::{Divisible, Help, Team, Terms, put_paths, result_of, share};
use crate::throttle::Throttle;
use crate::vault::Vault;
use crate::worker;

/// Portions of plans.
pub(crate) const PLAN: TaskKind = TaskKind(b'p');

/// Examines the files at and below `path` and lists what a repair would do.
///
/// # Errors
/// The catalogue fails.
pub fn plan(
    vault: &Vault,
    path: &[u8],
    options: Options,
    context: RunContext<'_>,
) -> Result<Plan, CatalogueError> {
    // Without a name this worker is alone.
    let name = worker::unique_name().ok();
    let name = name.as_ref();
    throttled(vault, context, name, |throttle| plan_at_rate(vault, path, options, context, (name, throttle)))
}

fn plan_at_rate(
    vault: &Vault,
    path: &[u8],
    options: Options,
    context: RunContext<'_>,
    (name, throttle): (Option<&WorkerId>, &Throttle<'_>),
) -> Result<Plan, CatalogueError> {
    let total = vault.catalogue.matrix(path)?.iter().fold((0, 0), |sum, row| (sum.0 + row.2, sum.1 + row.3));
    (context.progress)(Progress::Step("examining", Some(total)));
    let counted = Counted::default();
    let progress = |step: Progress| {
        counted.add(step);
        if let Progress::Done(_, bytes) = step {
            throttle.take(bytes);
        }
        (context.progress)(step);
    };
    let mut planning = Planning::new(vault, options, RunContext { progress: &progress, ..context });
    let team = name.and_then(|worker| Some(Team { tasks: vault.changelog.tasks()?, worker }));
    let about = &serde_json::to_vec(&options).unwrap_or_default();
    let amounts = || counted.of(total);
    let terms = Terms { kind: PLAN, priority: 0, about, amounts: &amounts, stopped: context.stopped };
    share(team, &terms, &mut planning, |sharing| {
        vault.catalogue.each_page(path, |mut page| -> Result<(), CatalogueError> {
            page.retain(|(_, entry)| !options.known_only || entry.state != State::Protected);
            match sharing.is_alone() {
                true => sharing.add(page),
                false => {
                    let size = portion_bytes(context.threads);
                    portions(page, size).into_iter().try_for_each(|files| sharing.add(files))
                }
            }
        })
    })?;
    let mut plan = planning.plan;
    plan.files.sort_by(|one, other| one.path.cmp(&other.path));
    plan.kept.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(plan)
}

/// Does a portion of the plan of another worker.
pub(crate) fn help(vault: &Vault, portion: &Portion, context: RunContext<'_>) -> Help {
    let (Ok(options), Some((files, _))) =
        (serde_json::from_slice(&portion.about), known_files(vault, &portion.content))
    else {
        return Help::Failed;
    };
    let mut planning = Planning::new(vault, options, context);
    let examined = planning.examine(files);
    result_of(examined.map(|()| &planning.plan).ok(), context.stopped)
}

/// The plan of one worker.
struct Planning<'a> {
    vault: &'a Vault,
    options: Options,
    context: RunContext<'a>,
    interrupted: Interrupted,
    plan: Plan,
}

impl<'a> Planning<'a> {
    fn new(vault: &'a Vault, options: Options, context: RunContext<'a>) -> Planning<'a> {
        // If the marks cannot be read, no repair counts as interrupted; `protect` reports the error.
        let interrupted = Interrupted::of(&*vault.storage).unwrap_or_default();
        Planning { vault, options, context, interrupted, plan: Plan::default() }
    }

    fn examine(&mut self, files: Files) -> Result<(), CatalogueError> {
        for (path, entry) in files {
            if (self.context.stopped)() {
                break;
            }
            self.file(path, entry)?;
        }
        Ok(())
    }

    fn file(&mut self, path: Vec<u8>, entry: Entry) -> Result<(), CatalogueError> {
        let Planning { vault, options, context, ref interrupted, ref mut plan } = *self;
        let progress = |bytes: u64| (context.progress)(Progress::Done(0, bytes));
        let look = ExamineOptions {
            threads: context.threads,
            from_medium: false,
            progress: &progress,
            stopped: context.stopped,
        };
        let found = ProtectedFile::open_known(&*vault.storage, &vault.coders, &path, &entry)
            .and_then(|protected| examine(&protected, look).map(|findings| (protected, findings)));
        plan.examined += 1;
        (context.progress)(Progress::Done(1, 0));
        let stat = found.as_ref().ok().and_then(|(protected, _)| protected.stat);
        let is_begun = interrupted.has(&path, stat.as_ref());
        match found {
            Ok((protected, _)) if protected.content.is_none() && !options.missing => {}
            Ok((protected, findings)) => match damage_report(&path, &protected, &findings) {
                // A deleted file is to be restored; it cannot have been edited.
                Some(damage)
                    if damage.changed && options.keep_changed && !is_begun && protected.content.is_some() =>
                {
                    plan.kept.push(damage);
                }
                Some(damage) => plan.files.push(DamageReport { unfinished: is_begun, ..damage }),
                // The content is correct, but the times are not restored yet.
                None if is_begun => plan.files.push(DamageReport {
                    path,
                    state: State::Protected,
                    problems: Vec::new(),
                    changed: false,
                    notes: vec!["a repair of it was interrupted".to_owned()],
                    version: version_of(stat.as_ref()),
                    unfinished: true,
                }),
                // Repaired since the damage was found, under another name or by an interrupted repair.
                None if entry.state != State::Protected && !is_of_another(vault, &path, &entry) => {
                    note_right(vault, &path, entry, remaining_redundancy(&protected, &findings))?;
                }
                None => {}
            },
            // In storage that keeps redundancy by inode, nothing is left to restore.
            Err(ExamineError::Unprotected | ExamineError::Unusable(_))
                if (!options.missing || vault.storage.keeps_by_identity()) && is_gone(vault, &path) => {}
            Err(ExamineError::Unprotected) if is_replaced(vault, &path, &entry) => {}
            Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_))) => {
                plan.files.push(record_unprotected(vault, path, entry, &error)?);
            }
            Err(error) => plan.failed.push((path, error.into())),
        }
        Ok(())
    }
}

impl Divisible for Planning<'_> {
    type Portion = Files;
    type Error = CatalogueError;

    fn content(&self, files: &Files) -> Vec<u8> {
        put_paths(files.iter().map(|(path, _)| &path[..]))
    }

    fn work(&mut self, _: u64, files: Files) -> Result<(), CatalogueError> {
        self.examine(files)
    }

    fn collect(&mut self, _: u64, files: &Files, result: &[u8]) -> Result<bool, CatalogueError> {
        let Ok(part) = serde_json::from_slice::<Plan>(result) else { return Ok(false) };
        // A file that was moved or removed meanwhile was not examined.
        let is_asked = |path: &Vec<u8>| files.iter().any(|(asked, _)| asked == path);
        let named = part.files.iter().chain(&part.kept).map(|damage| &damage.path);
        if part.examined > files.len() as u64
            || !named.chain(part.failed.iter().map(|(path, _)| path)).all(is_asked)
        {
            return Ok(false);
        }
        let bytes = files.iter().map(|(_, entry)| entry.generation.size).sum();
        (self.context.progress)(Progress::Elsewhere(files.len() as u64, bytes));
        self.plan.examined += part.examined;
        self.plan.files.extend(part.files);
        self.plan.kept.extend(part.kept);
        self.plan.failed.extend(part.failed);
        Ok(true)
    }
}
