//! Check of files before they are used, for example the inputs of a job: which have their protected content, which need
//! a repair, and which cannot be vouched for.
//!
//! A file whose size, mtime and inode are those of the protected version, and in which no scrub found damage, is not
//! read unless that is asked for: otherwise a check takes as long as the job that reads the file. Scrubs find bit rot.
//! Any other file is compared with the signatures of its redundancy. Files that were written since they were protected
//! are never repaired: their content is newer than their redundancy.

use crate::catalogue::{CatalogueError, Entry, State};
use crate::damage::{DamageReport, damage_report, remaining_redundancy};
use crate::examine::{ExamineError, ExamineOptions, ProtectedFile, examine};
use crate::host_limits::throttled;
use crate::missing::{UnavailableTargets, apply_losses};
use crate::repair::repair;
use crate::repair_mark::Interrupted;
use crate::retry::Failure;
use crate::run::{Progress, RunContext};
use crate::throttle::Throttle;
use crate::tree::{Kind, Stat, join};
use crate::vault::Vault;
use crate::version;
use crate::worker;
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Largest file that is examined by one thread, in bytes. Larger ones use all threads.
const SMALL_FILE: u64 = 16 << 20;

/// Options of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Read files, too, whose size and times are those of the protected version.
    pub read_all: bool,
    /// Repair what is damaged or missing. The caller holds the vault's lock.
    pub repair: bool,
}

/// Result for one file, from best to worst.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Size, mtime and inode are those of the protected version; not read.
    Unchanged,
    /// Read: it has the protected content.
    Verified,
    /// It was damaged or missing, and has the protected content again.
    Repaired,
    /// Its data is complete, some of its redundancy is missing or damaged.
    Degraded,
    /// It was written since it was protected. Its content cannot be verified.
    Changed,
    /// It has no redundancy.
    Unprotected,
    /// Its data is damaged and can be restored.
    Damaged,
    /// There is no file of this name.
    Missing,
    /// It could not be checked.
    Failed(Failure),
    /// Its data is damaged and cannot be restored.
    Lost,
}

impl Verdict {
    /// The word for output.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Unchanged => "unchanged",
            Verdict::Verified => "verified",
            Verdict::Repaired => "repaired",
            Verdict::Degraded => "degraded",
            Verdict::Changed => "changed",
            Verdict::Unprotected => "unprotected",
            Verdict::Damaged => "damaged",
            Verdict::Missing => "missing",
            Verdict::Failed(_) => "failed",
            Verdict::Lost => "lost",
        }
    }
}

/// A file that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Path relative to the vault's root.
    pub path: Vec<u8>,
    /// Result.
    pub verdict: Verdict,
    /// Additional remarks.
    pub notes: Vec<String>,
    /// Bytes that were read.
    pub bytes: u64,
}

impl Checked {
    fn new(path: Vec<u8>, verdict: Verdict) -> Checked {
        Checked { path, verdict, notes: Vec::new(), bytes: 0 }
    }

    fn failed(path: Vec<u8>, why: impl Into<Failure>) -> Checked {
        Checked::new(path, Verdict::Failed(why.into()))
    }
}

/// What an examination found wrong with a file that nobody has written.
struct Finding {
    damage: DamageReport,
    /// Redundancy columns that are left.
    columns: u32,
}

/// A file that has to be read.
struct Suspect {
    path: Vec<u8>,
    entry: Entry,
    stat: Option<Stat>,
}

/// Checks files, and the files below directories, in parallel. Calls `report` for each, in no particular order. Stops
/// without a result for the others if `context` says so.
///
/// # Errors
/// The catalogue fails.
pub fn check(
    vault: &Vault,
    paths: impl IntoIterator<Item = Vec<u8>>,
    options: Options,
    context: RunContext<'_>,
    mut report: impl FnMut(Checked),
) -> Result<(), CatalogueError> {
    let unavailable = UnavailableTargets::of(&vault.storage.targets());
    // If the marks cannot be read, no repair counts as interrupted; `protect` reports the error.
    let interrupted = Interrupted::of(&*vault.storage).unwrap_or_default();
    let (mut suspects, mut seen) = (Vec::new(), BTreeSet::new());
    let mut left: Vec<Vec<u8>> = paths.into_iter().collect();
    left.reverse();
    while let Some(path) = left.pop() {
        if (context.stopped)() {
            return Ok(());
        }
        if !seen.insert(path.clone()) {
            continue;
        }
        let stat = match vault.storage.find(&path) {
            Ok(stat) => stat,
            Err(error) => {
                report(Checked::failed(path, error));
                continue;
            }
        };
        match stat.map(|stat| stat.kind) {
            Some(Kind::Directory) => match below(vault, &path) {
                Ok(inside) => left.extend(inside),
                Err(error) => report(Checked::failed(path, error)),
            },
            Some(Kind::Link | Kind::Special) => report(Checked::new(path, Verdict::Unprotected)),
            Some(Kind::File) | None => {
                let Some(mut entry) = vault.catalogue.find(&path)? else {
                    let verdict = if stat.is_some() { Verdict::Unprotected } else { Verdict::Missing };
                    report(Checked::new(path, verdict));
                    continue;
                };
                if vault.pool.is_some() && !unavailable.untrusted.is_empty() {
                    apply_losses(vault, &path, &unavailable, &mut entry);
                }
                let is_begun = interrupted.has(&path, stat.as_ref());
                match stat.filter(|stat| !options.read_all && !is_begun && is_as_protected(&entry, stat)) {
                    Some(_) if entry.state == State::Protected && entry.columns >= entry.wanted => {
                        (context.progress)(Progress::Done(1, 0));
                        report(Checked::new(path, Verdict::Unchanged));
                    }
                    _ => suspects.push(Suspect { path, entry, stat }),
                }
            }
        }
    }
    let mut broken = Vec::new();
    let name = worker::unique_name().ok();
    throttled(vault, context, name.as_ref(), |throttle| {
        examine_all(vault, suspects, &interrupted, context, throttle, |mut checked, entry, finding| {
            match (finding, options.repair) {
                (Judged::ToRepair(_), true) => return broken.push(checked),
                (Judged::ToRepair(Some(finding)), false) => {
                    if let Err(error) = record(vault, &checked.path, entry, &finding) {
                        checked.notes.push(format!("this is not recorded: {error}"));
                    }
                }
                (Judged::ToRepair(None) | Judged::Final, _) => {}
            }
            report(checked);
        });
    });
    for checked in broken {
        if (context.stopped)() {
            break;
        }
        report(repaired(vault, checked, context));
    }
    Ok(())
}

/// Records damage, so that `status` and the next check know it. Not that of a file which was protected again meanwhile.
fn record(vault: &Vault, path: &[u8], seen: &Entry, finding: &Finding) -> Result<(), CatalogueError> {
    vault.catalogue.together(|| {
        let Some(mut entry) = vault.catalogue.find(path)? else { return Ok(()) };
        if (entry.id, &entry.generation) != (seen.id, &seen.generation) {
            return Ok(());
        }
        (entry.state, entry.columns) = (finding.damage.state, finding.columns);
        vault.catalogue.put(path, &entry)?;
        vault.catalogue.set_problems(path, &finding.damage.problems, vault.clock.now())
    })
}

/// Paths in a directory.
fn below(vault: &Vault, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let folder = vault.storage.folder(path)?;
    Ok(folder.names().iter().map(|(name, _)| join(path, name)).collect())
}

/// True if nothing was written to a file since it was protected, as far as size, times and inode tell.
fn is_as_protected(entry: &Entry, stat: &Stat) -> bool {
    stat.generation().is_unwritten_since(&entry.generation)
        && !version::is_in_doubt(stat.mtime, entry.protected_at)
}

/// Examines files: large ones with all threads, one after the other, then small ones side by side. `found` is called
/// with each result, with what the catalogue says, and with whether a repair can change it.
fn examine_all(
    vault: &Vault,
    suspects: Vec<Suspect>,
    interrupted: &Interrupted,
    context: RunContext<'_>,
    throttle: &Throttle<'_>,
    mut found: impl FnMut(Checked, &Entry, Judged),
) {
    let progress = |bytes: u64| {
        throttle.take(bytes);
        (context.progress)(Progress::Done(0, bytes));
    };
    let (storage, coders) = (&*vault.storage, &vault.coders);
    let one = |suspect: &Suspect, threads: usize| {
        let look =
            ExamineOptions { threads, from_medium: false, progress: &progress, stopped: context.stopped };
        let opened = ProtectedFile::open_known(storage, coders, &suspect.path, &suspect.entry);
        let result = opened.and_then(|it| examine(&it, look).map(|findings| (it, findings)));
        let is_begun = interrupted.has(&suspect.path, suspect.stat.as_ref());
        (context.progress)(Progress::Done(1, 0));
        judged(suspect, result, is_begun)
    };
    let is_small = |suspect: &Suspect| suspect.entry.generation.size <= SMALL_FILE;
    let (small, large): (Vec<Suspect>, Vec<Suspect>) = suspects.into_iter().partition(is_small);
    for suspect in &large {
        if let Some((checked, judged)) = one(suspect, context.threads) {
            found(checked, &suspect.entry, judged);
        }
    }
    let (next, (send, receive)) = (AtomicUsize::new(0), mpsc::channel());
    std::thread::scope(|scope| {
        for _ in 0..context.threads.clamp(1, small.len().max(1)) {
            let (send, small, next, one) = (send.clone(), &small, &next, &one);
            scope.spawn(move || {
                while let Some(suspect) = small.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if (context.stopped)() {
                        break;
                    }
                    if let Some(result) = one(suspect, 1) {
                        // The receiver lives as long as the scope.
                        let _ = send.send((result, &suspect.entry));
                    }
                }
            });
        }
        drop(send);
        for ((checked, judged), entry) in receive {
            found(checked, entry, judged);
        }
    });
}

/// Whether a repair can change a verdict.
enum Judged {
    /// It cannot.
    Final,
    /// It may. With what is known of the damage.
    ToRepair(Option<Finding>),
}

/// Verdict on a file that was examined; none if the examination was stopped.
fn judged(
    suspect: &Suspect,
    result: Result<(ProtectedFile, crate::examine::Findings), ExamineError>,
    is_begun: bool,
) -> Option<(Checked, Judged)> {
    let mut checked = Checked::new(suspect.path.clone(), Verdict::Verified);
    let mut judged = if is_begun { Judged::ToRepair(None) } else { Judged::Final };
    match result {
        Err(ExamineError::Stopped) => return None,
        Err(ExamineError::Unprotected) if suspect.stat.is_none() => checked.verdict = Verdict::Missing,
        Err(error @ (ExamineError::Unprotected | ExamineError::Unusable(_))) => {
            checked.notes.push(error.to_string());
            checked.verdict = Verdict::Unprotected;
        }
        Err(ExamineError::Changed) => checked.verdict = Verdict::Changed,
        Err(error) => checked.verdict = Verdict::Failed(error.into()),
        Ok((protected, findings)) => {
            checked.bytes = findings.bytes;
            let damage = damage_report(&suspect.path, &protected, &findings);
            let (is_gone, has_bad_data) = (protected.content.is_none(), findings.has_bad_data());
            checked.verdict = match &damage {
                _ if is_gone => Verdict::Missing,
                None => Verdict::Verified,
                Some(damage) if damage.changed && !is_begun => Verdict::Changed,
                Some(_) if findings.is_lost() => Verdict::Lost,
                Some(_) if has_bad_data || findings.doubtful => Verdict::Damaged,
                Some(_) => Verdict::Degraded,
            };
            if let Some(damage) = &damage {
                checked.notes.clone_from(&damage.notes);
            }
            let columns = remaining_redundancy(&protected, &findings);
            judged = match damage.filter(|damage| !damage.changed) {
                Some(damage) if !is_gone => Judged::ToRepair(Some(Finding { damage, columns })),
                damage if is_gone || damage.is_some() => Judged::ToRepair(None),
                _ => judged,
            };
        }
    }
    Some((checked, judged))
}

/// Repairs a file.
fn repaired(vault: &Vault, checked: Checked, context: RunContext<'_>) -> Checked {
    let was = checked.verdict.clone();
    match repair(vault, &checked.path, context) {
        Ok(done) => {
            let verdict = match done.state {
                State::Protected => Verdict::Repaired,
                // A missing file that redundancy cannot restore is not there.
                _ if was == Verdict::Missing => Verdict::Missing,
                State::Lost => Verdict::Lost,
                State::Damaged => Verdict::Damaged,
                State::Degraded => Verdict::Degraded,
            };
            Checked { verdict, notes: done.notes, ..checked }
        }
        Err(error) => {
            let mut notes = checked.notes;
            notes.push(format!("it cannot be repaired: {error}"));
            Checked { notes, ..checked }
        }
    }
}
