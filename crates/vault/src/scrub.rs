//! Scrub: examines files one after the other to prove that they are intact or recoverable, and records the results.

mod due;
mod shared;

pub(crate) use due::Due;
pub use due::{Overdue, overdue};
pub(crate) use shared::{Files, SCRUB, help, known_files, portion_bytes, portions};

use crate::catalogue::{CatalogueError, Entry, Piece, Problem, State};
use crate::changelog::WorkerId;
use crate::damage::{DamageReport, damage_report, remaining_redundancy};
use crate::examine::{self, ExamineError, Findings, ProtectedFile, examine};
use crate::host_limits::throttled;
use crate::retry::Failure;
use crate::run::{Counted, Progress, RunContext};
use crate::team::{Team, Terms, share};
use crate::throttle::Throttle;
use crate::tree::Stat;
use crate::vault::Vault;
use crate::worker;
use crate::world::Timestamp;
use serde::{Deserialize, Serialize};
use shared::Scrub;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Largest file that is examined by one thread, in bytes. Larger ones use all threads.
const SMALL_FILE: u64 = 16 << 20;

/// Files to scrub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All files.
    All,
    /// Files whose last scrub is older than this.
    OlderThan(Duration),
    /// Files whose last complete verification is older than the `scrub` interval of their policy.
    Due,
    /// This percentage of all files, those with the oldest scrub first.
    Percent(u8),
}

/// Options of a scrub.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Files to scrub.
    pub selection: Selection,
    /// Read from the medium instead of the page cache.
    pub from_medium: bool,
    /// Continue an interrupted scrub.
    pub resume: bool,
}

/// Results of a scrub.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Files examined.
    pub files: u64,
    /// Bytes read, including redundancy.
    pub bytes: u64,
    /// Damage reports.
    pub damage: Vec<DamageReport>,
    /// Files that were deleted since they were protected.
    pub gone: u64,
    /// Files that were written, protected or moved while they were examined; no result for them.
    pub changing: u64,
    /// Files examined before an interruption, skipped now.
    pub resumed: u64,
    /// Files that could not be examined, with reasons.
    pub failed: Vec<(Vec<u8>, Failure)>,
    /// True if the scrub was stopped.
    pub stopped: bool,
}

impl Report {
    /// Worst state that was found.
    pub fn worst(&self) -> State {
        self.damage.iter().map(|damage| damage.state).max().unwrap_or(State::Protected)
    }

    /// Adds the results for other files.
    fn add(&mut self, other: Report) {
        let Report { files, bytes, damage, gone, changing, resumed: _, failed, stopped: _ } = other;
        self.files += files;
        self.bytes = self.bytes.saturating_add(bytes);
        self.damage.extend(damage);
        self.gone += gone;
        self.changing += changing;
        self.failed.extend(failed);
    }
}

const NOTE: &str = "scrub under way since";

/// Scrubs the files at and below `path`.
///
/// # Errors
/// The catalogue fails; damage is no error.
pub fn scrub(
    vault: &Vault,
    path: &[u8],
    options: Options,
    context: RunContext<'_>,
) -> Result<Report, CatalogueError> {
    // Without a name this worker is alone.
    let name = worker::unique_name().ok();
    let name = name.as_ref();
    throttled(vault, context, name, |throttle| scrub_at_rate(vault, path, options, context, (name, throttle)))
}

fn scrub_at_rate(
    vault: &Vault,
    path: &[u8],
    options: Options,
    context: RunContext<'_>,
    (name, throttle): (Option<&WorkerId>, &Throttle<'_>),
) -> Result<Report, CatalogueError> {
    let catalogue = &vault.catalogue;
    let now = vault.clock.now();
    let interrupted = catalogue.time_note(NOTE)?;
    let since = match interrupted.filter(|_| options.resume) {
        Some(since) => since,
        None => {
            catalogue.set_time_note(NOTE, now)?;
            now
        }
    };
    // With many files of the same time, not more than the requested number are taken.
    let mut left = u64::MAX;
    let limit = match options.selection {
        Selection::All | Selection::Due => None,
        Selection::OlderThan(age) => Some(now - age),
        Selection::Percent(share) => {
            left = (catalogue.count()? * u64::from(share)).div_ceil(100);
            Some(catalogue.oldest_scrubbed(left, now)?.unwrap_or(Timestamp::MIN))
        }
    };
    let total = catalogue.matrix(path)?.iter().fold((0, 0), |sum, row| (sum.0 + row.2, sum.1 + row.3));
    (context.progress)(Progress::Step("scrubbing", Some(total)));
    let counted = Counted::default();
    let progress = |step: Progress| {
        counted.add(step);
        (context.progress)(step);
    };
    let (by_policy, from_medium) = (Due::new(&vault.policy, &*vault.storage, now), options.from_medium);
    let shared = RunContext { progress: &progress, ..context };
    let mut scrub = Scrub { vault, from_medium, throttle, context: shared, report: Report::default() };
    let (mut resumed, size) = (0, portion_bytes(context.threads));
    let team = name.and_then(|worker| Some(Team { tasks: vault.changelog.tasks()?, worker }));
    let terms = Terms {
        kind: SCRUB,
        priority: 0,
        about: &[u8::from(from_medium)],
        amounts: &|| counted.of(total),
        stopped: context.stopped,
    };
    share(team, &terms, &mut scrub, |sharing| {
        catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
            let chosen = |path: &[u8], entry: &Entry| {
                let last = entry.scrubbed_at;
                // A time in the future is from before the clock was set back and is ignored.
                let last = last.filter(|last| *last <= now);
                let due = match options.selection {
                    Selection::Due => by_policy.since(path, entry).is_some(),
                    _ => limit.is_none_or(|limit| last.is_none_or(|last| last <= limit)),
                };
                let done = interrupted.is_some() && options.resume && last.is_some_and(|last| last >= since);
                (due && !done, done)
            };
            resumed += page.iter().filter(|(path, entry)| chosen(path, entry).1).count() as u64;
            let mut page: Vec<_> = page.into_iter().filter(|(path, entry)| chosen(path, entry).0).collect();
            page.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= page.len() as u64;
            match sharing.is_alone() {
                true => sharing.add(page),
                false => portions(page, size).into_iter().try_for_each(|files| sharing.add(files)),
            }
        })
    })?;
    let mut report = Report { resumed, ..scrub.report };
    report.stopped = (context.stopped)();
    // A failure is counted by `gabion status`, and a later run tries again.
    let _ = vault.purge_replaced();
    if !report.stopped {
        catalogue.set_note(NOTE, None)?;
        if options.selection == Selection::All && path.is_empty() {
            catalogue.set_time_note("last scrub", vault.clock.now())?;
        }
    }
    Ok(report)
}

/// Result of one examination.
pub(crate) type Examined = Result<(ProtectedFile, Findings), ExamineError>;

/// Examines files: small ones one per thread, then large ones. Results are in the order of the page.
fn examine_page(
    vault: &Vault,
    page: &[(Vec<u8>, Entry)],
    from_medium: bool,
    throttle: &Throttle<'_>,
    context: RunContext<'_>,
) -> Vec<Option<Examined>> {
    let results: Vec<Mutex<Option<Examined>>> = page.iter().map(|_| Mutex::new(None)).collect();
    let progress = |bytes: u64| {
        throttle.take(bytes);
        (context.progress)(Progress::Done(0, bytes));
    };
    let (storage, coders) = (&*vault.storage, &vault.coders);
    let one = |index: usize, threads: usize| {
        if (context.stopped)() {
            return;
        }
        let how =
            examine::ExamineOptions { threads, from_medium, progress: &progress, stopped: context.stopped };
        let (path, entry) = &page[index];
        let found = examine_resting(how, || ProtectedFile::open_known(storage, coders, path, entry));
        (context.progress)(Progress::Done(1, 0));
        *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    };
    let is_large = |index: usize| page[index].1.generation.size > SMALL_FILE;
    let small: Vec<usize> = (0..page.len()).filter(|&index| !is_large(index)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&index) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
            one(index, 1);
        }
    };
    std::thread::scope(|scope| {
        (1..context.threads.min(small.len())).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    (0..page.len()).filter(|&index| is_large(index)).for_each(|index| one(index, context.threads));
    results.into_iter().map(|result| result.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// Attempts for a file that is written while it is read.
const TRIES: u32 = 3;

/// Examines a file. If it is written meanwhile, it is examined again: the data may have been of two versions, which is
/// no damage. No result if it has another version by then.
fn examine_resting(
    how: examine::ExamineOptions<'_>,
    open: impl Fn() -> Result<ProtectedFile, ExamineError>,
) -> Examined {
    let mut was_written = false;
    for _ in 0..TRIES {
        let protected = open()?;
        let (Some(content), Some(before)) = (&protected.content, protected.stat) else {
            return Ok((protected, Findings::default()));
        };
        let findings = examine(&protected, how)?;
        let is_same = |now: Stat| now.generation().is_unwritten_since(&before.generation());
        let rests = content.stat().is_ok_and(is_same);
        if findings.is_clean() || (rests && !(was_written && protected.is_changed())) {
            return Ok((protected, findings));
        }
        if rests {
            break;
        }
        was_written = true;
    }
    Err(ExamineError::Changed)
}

fn note_page(
    vault: &Vault,
    page: Vec<(Vec<u8>, Entry)>,
    seen: Vec<Option<Examined>>,
    report: &mut Report,
) -> Result<(), CatalogueError> {
    let by_identity = vault.storage.keeps_by_identity();
    for ((path, mut entry), seen) in page.into_iter().zip(seen) {
        // Another process may have protected the file meanwhile; its entry is newer.
        let is_overtaken = vault.catalogue.find(&path)?.as_ref() != Some(&entry);
        match seen {
            None | Some(Err(ExamineError::Stopped)) => {}
            Some(_) if is_overtaken => report.changing += 1,
            Some(Err(ExamineError::Changed)) => report.changing += 1,
            Some(Ok((protected, _))) if protected.content.is_none() => report.gone += 1,
            // The file was just moved, and the catalogue does not know it yet.
            Some(Err(ExamineError::Unprotected)) if waits(vault, &path) => report.changing += 1,
            Some(Err(ExamineError::Unprotected | ExamineError::Unusable(_))) if is_gone(vault, &path) => {
                report.gone += 1;
            }
            Some(Err(ExamineError::Unprotected)) if is_replaced(vault, &path, &entry) => report.changing += 1,
            // Another file has the name now, so the entry does not describe it.
            Some(Ok((protected, _))) if by_identity && protected.header.id != entry.id => {
                report.changing += 1
            }
            Some(Ok((protected, findings))) => {
                report.files += 1;
                report.bytes += findings.bytes;
                let damage = damage_report(&path, &protected, &findings);
                entry.scrubbed_at = Some(vault.clock.now());
                entry.state = damage.as_ref().map_or(State::Protected, |damage| damage.state);
                entry.columns = remaining_redundancy(&protected, &findings);
                vault.catalogue.put(&path, &entry)?;
                let problems = damage.as_ref().map_or(&[][..], |damage| &damage.problems);
                vault.catalogue.set_problems(&path, problems, vault.clock.now())?;
                report.damage.extend(damage);
            }
            Some(Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_)))) => {
                report.files += 1;
                report.damage.push(record_unprotected(vault, path, entry, &error)?);
            }
            Some(Err(error)) => report.failed.push((path, error.into())),
        }
    }
    Ok(())
}

/// True if the name no longer exists: the file was deleted or renamed, possibly with its redundancy. That is no loss.
/// False if the storage cannot tell.
pub(crate) fn is_gone(vault: &Vault, path: &[u8]) -> bool {
    vault.storage.find(path).is_ok_and(|found| found.is_none())
}

/// True if storage that identifies files by inode has another file under this name, and that file is readable. It is
/// not damaged, only not protected yet.
pub(crate) fn is_replaced(vault: &Vault, path: &[u8], entry: &Entry) -> bool {
    is_of_another(vault, path, entry) && unreadable(vault, path, entry).is_empty()
}

/// True if storage that identifies files by inode has another file under this name. Findings for it must not be
/// recorded for the old one, which may have another name.
pub(crate) fn is_of_another(vault: &Vault, path: &[u8], entry: &Entry) -> bool {
    let is_another = |stat: Stat| stat.inode != entry.generation.inode;
    vault.storage.keeps_by_identity()
        && vault.storage.find(path).is_ok_and(|found| found.is_some_and(is_another))
}

/// True if the changelog has an entry for the file. False if the changelog fails.
fn waits(vault: &Vault, path: &[u8]) -> bool {
    vault.changelog.is_pending(path).unwrap_or(false)
}

/// Records that a file has no usable redundancy.
pub(crate) fn record_unprotected(
    vault: &Vault,
    path: Vec<u8>,
    mut entry: Entry,
    why: &ExamineError,
) -> Result<DamageReport, CatalogueError> {
    let lost = unreadable(vault, &path, &entry).into_iter();
    let mut problems: Vec<Problem> = lost.map(|range| Problem { piece: Piece::Lost, range }).collect();
    entry.scrubbed_at = Some(vault.clock.now());
    entry.state = if problems.is_empty() { State::Degraded } else { State::Lost };
    entry.columns = 0;
    problems.push(Problem { piece: Piece::Redundancy, range: 0..entry.redundancy });
    if !is_of_another(vault, &path, &entry) {
        vault.catalogue.put(&path, &entry)?;
        vault.catalogue.set_problems(&path, &problems, vault.clock.now())?;
    }
    Ok(DamageReport {
        path,
        state: entry.state,
        problems,
        changed: false,
        notes: vec![why.to_string()],
        version: None,
        unfinished: false,
    })
}

/// Unreadable ranges of a file without usable redundancy.
fn unreadable(vault: &Vault, path: &[u8], entry: &Entry) -> Vec<std::ops::Range<u64>> {
    let whole = || std::iter::once(0..entry.generation.size.max(1)).collect();
    let Ok(content) = vault.storage.open(path) else { return whole() };
    let Ok(coder) = vault.coders.get(&entry.code) else { return whole() };
    let (Ok(stat), Ok(layout)) = (content.stat(), vault.storage.layout(path, coder.code(), BLOCK)) else {
        return whole();
    };
    let (mut lost, mut buffer) = (Vec::new(), Vec::new());
    for run in layout.geometry.cut(stat.size).runs(1) {
        buffer.resize(run.block as usize, 0);
        for column in 0..layout.geometry.k() {
            let cell = run.cell(0, column);
            let got = content.read(&run, 0, column, &mut buffer);
            if got.is_ok_and(|got| got as u64 == cell.end - cell.start) {
                continue;
            }
            lost.push(cell);
        }
    }
    crate::geometry::merge(lost)
}

/// Size of the blocks that are read, in bytes.
const BLOCK: u64 = 1 << 16;
