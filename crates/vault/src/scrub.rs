//! Proves that files can be brought back: examines them one after the other, and remembers what it found.

mod due;

pub(crate) use due::Due;
pub use due::{Overdue, overdue};

use crate::catalogue::{CatalogueError, Entry, Piece, Problem, State};
use crate::damage::{Trouble, margin, trouble};
use crate::examine::{self, ExamineError, Findings, Subject, examine};
use crate::run::{Progress, RunContext};
use crate::throttle::Throttle;
use crate::tree::Stat;
use crate::vault::Vault;
use crate::world::Nanos;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files up to this size are examined side by side, larger ones by all threads.
const SMALL_FILE: u64 = 16 << 20;

/// Which files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those whose last scrub is older than this.
    OlderThan(Nanos),
    /// Those whose last complete verification is older than the interval of their policy (`scrub`).
    Due,
    /// This share of all files, those first whose last scrub is the oldest.
    Percent(u8),
}

/// How to scrub.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which files.
    pub selection: Selection,
    /// Read from the medium, not from what the system keeps in memory.
    pub from_medium: bool,
    /// Go on where a run that was interrupted stopped.
    pub resume: bool,
}

/// What a scrub found.
#[derive(Debug, Default)]
pub struct Report {
    /// Files that were examined.
    pub files: u64,
    /// Bytes that were read for that, redundancy included.
    pub bytes: u64,
    /// Files with something wrong, by name.
    pub trouble: Vec<Trouble>,
    /// Files that are gone since they were protected.
    pub gone: u64,
    /// Files that were written, protected or moved while they were examined. Nothing is said of them.
    pub changing: u64,
    /// Files that were examined before an interruption, and left out now.
    pub resumed: u64,
    /// Files that could not be examined, and why.
    pub failed: Vec<(Vec<u8>, String)>,
    /// It was stopped before its end.
    pub stopped: bool,
}

impl Report {
    /// The worst that was found.
    pub fn worst(&self) -> State {
        self.trouble.iter().map(|trouble| trouble.state).max().unwrap_or(State::Protected)
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
    let catalogue = &vault.catalogue;
    let now = vault.clock.now();
    let interrupted = catalogue.note(NOTE)?.and_then(|note| note.parse::<Nanos>().ok());
    let since = match interrupted.filter(|_| options.resume) {
        Some(since) => since,
        None => {
            catalogue.set_note(NOTE, Some(&now.to_string()))?;
            now
        }
    };
    // Of many files with the same time, or with none, no more are taken than were asked for.
    let mut left = u64::MAX;
    let limit = match options.selection {
        Selection::All | Selection::Due => None,
        Selection::OlderThan(age) => Some(now.saturating_sub(age)),
        Selection::Percent(share) => {
            left = (catalogue.count()? * u64::from(share)).div_ceil(100);
            Some(catalogue.oldest_scrubbed(left, now)?.unwrap_or(Nanos::MIN))
        }
    };
    let total = catalogue.matrix(path)?.iter().fold((0, 0), |sum, row| (sum.0 + row.2, sum.1 + row.3));
    (context.progress)(Progress::Step("scrubbing", Some(total)));
    let throttle = Throttle::new(context.rate.or(vault.policy.rate));
    let mut report = Report::default();
    let by_policy = Due::new(&vault.policy, &*vault.storage, now);
    catalogue.each_page(path, |page| -> Result<(), CatalogueError> {
        let chosen = |path: &[u8], entry: &Entry| {
            let last = entry.scrubbed_at;
            // A time that lies ahead is from before the clock was set back, and says nothing.
            let last = last.filter(|last| *last <= now);
            let due = match options.selection {
                Selection::Due => by_policy.since(path, entry).is_some(),
                _ => limit.is_none_or(|limit| last.is_none_or(|last| last <= limit)),
            };
            let done = interrupted.is_some() && options.resume && last.is_some_and(|last| last >= since);
            (due && !done, done)
        };
        report.resumed += page.iter().filter(|(path, entry)| chosen(path, entry).1).count() as u64;
        let mut page: Vec<_> = page.into_iter().filter(|(path, entry)| chosen(path, entry).0).collect();
        page.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= page.len() as u64;
        if !(context.stopped)() {
            let seen = examine_page(vault, &page, options.from_medium, &throttle, context);
            catalogue.together(|| note_page(vault, page, seen, &mut report))?;
        }
        Ok(())
    })?;
    report.stopped = (context.stopped)();
    // What cannot be removed now is counted by status, and removed by a later run.
    let _ = vault.purge_replaced();
    if !report.stopped {
        catalogue.set_note(NOTE, None)?;
        if options.selection == Selection::All && path.is_empty() {
            catalogue.set_note("last scrub", Some(&vault.clock.now().to_string()))?;
        }
    }
    Ok(report)
}

/// What was found of a file.
pub(crate) type Examined = Result<(Subject, Findings), ExamineError>;

/// Examines files: small ones side by side, then large ones. In the order of the page.
fn examine_page(
    vault: &Vault,
    page: &[(Vec<u8>, Entry)],
    from_medium: bool,
    throttle: &Throttle,
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
        let found = examine_resting(how, || Subject::open_known(storage, coders, path, entry));
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

/// How often a file that is written while it is read is examined.
const TRIES: u32 = 3;

/// Examines a file. One that is written meanwhile is examined again: what was read of it may be of two versions, and is no damage. If it has
/// become another version by then, there is nothing to say of it.
fn examine_resting(
    how: examine::ExamineOptions<'_>,
    open: impl Fn() -> Result<Subject, ExamineError>,
) -> Examined {
    let mut was_written = false;
    for _ in 0..TRIES {
        let subject = open()?;
        let (Some(content), Some(before)) = (&subject.content, subject.stat) else {
            return Ok((subject, Findings::default()));
        };
        let findings = examine(&subject, how)?;
        let is_same = |now: Stat| now.generation().is_unwritten_since(&before.generation());
        let rests = content.stat().is_ok_and(is_same);
        if findings.is_clean() || (rests && !(was_written && subject.is_changed())) {
            return Ok((subject, findings));
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
        // Whoever protects at the same time knows better what it is now.
        let is_overtaken = vault.catalogue.find(&path)?.as_ref() != Some(&entry);
        match seen {
            None | Some(Err(ExamineError::Stopped)) => {}
            Some(_) if is_overtaken => report.changing += 1,
            Some(Err(ExamineError::Changed)) => report.changing += 1,
            Some(Ok((subject, _))) if subject.content.is_none() => report.gone += 1,
            // What it has went elsewhere a moment ago, and that is not in the catalogue yet.
            Some(Err(ExamineError::Unprotected)) if waits(vault, &path) => report.changing += 1,
            Some(Err(ExamineError::Unprotected | ExamineError::Unusable(_))) if is_gone(vault, &path) => {
                report.gone += 1;
            }
            Some(Err(ExamineError::Unprotected)) if is_replaced(vault, &path, &entry) => report.changing += 1,
            // Another file has the name by now: what is known of the name is not about it.
            Some(Ok((subject, _))) if by_identity && subject.header.id != entry.id => report.changing += 1,
            Some(Ok((subject, findings))) => {
                report.files += 1;
                report.bytes += findings.bytes;
                let trouble = trouble(&path, &subject, &findings);
                entry.scrubbed_at = Some(vault.clock.now());
                entry.state = trouble.as_ref().map_or(State::Protected, |trouble| trouble.state);
                entry.columns = margin(&subject, &findings);
                vault.catalogue.put(&path, &entry)?;
                let problems = trouble.as_ref().map_or(&[][..], |trouble| &trouble.problems);
                vault.catalogue.set_problems(&path, problems, vault.clock.now())?;
                report.trouble.extend(trouble);
            }
            Some(Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_)))) => {
                report.files += 1;
                report.trouble.push(note_bare(vault, path, entry, &error)?);
            }
            Some(Err(error)) => report.failed.push((path, error.to_string())),
        }
    }
    Ok(())
}

/// Whether nothing has this name any more: the file was removed or renamed, and its redundancy may have gone with it. That is no loss. A storage that cannot
/// say so does not.
pub(crate) fn is_gone(vault: &Vault, path: &[u8]) -> bool {
    vault.storage.find(path).is_ok_and(|found| found.is_none())
}

/// Whether a storage that knows files by their identity has another file at this name than the one that was protected, and all of that file can be
/// read: nothing is wrong with it, it only waits for `protect`.
pub(crate) fn is_replaced(vault: &Vault, path: &[u8], entry: &Entry) -> bool {
    is_of_another(vault, path, entry) && unreadable(vault, path, entry).is_empty()
}

/// Whether a storage that knows files by their identity has another file at this name than the one that was protected. What is found of that one must not
/// be noted for the other, which may have got another name.
pub(crate) fn is_of_another(vault: &Vault, path: &[u8], entry: &Entry) -> bool {
    let is_another = |stat: Stat| stat.inode != entry.generation.inode;
    vault.storage.keeps_by_identity()
        && vault.storage.find(path).is_ok_and(|found| found.is_some_and(is_another))
}

/// Whether a change of a file is known and will be seen to. A changelog that cannot say knows of none.
fn waits(vault: &Vault, path: &[u8]) -> bool {
    vault.changelog.is_pending(path).unwrap_or(false)
}

/// Notes that a file has no redundancy that can be used.
pub(crate) fn note_bare(
    vault: &Vault,
    path: Vec<u8>,
    mut entry: Entry,
    why: &ExamineError,
) -> Result<Trouble, CatalogueError> {
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
    Ok(Trouble { path, state: entry.state, problems, changed: false, notes: vec![why.to_string()] })
}

/// What cannot be read of a file that has no redundancy which could bring it back.
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

/// Bytes of a block, where any will do.
const BLOCK: u64 = 1 << 16;
