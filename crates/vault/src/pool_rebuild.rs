//! What was on targets that are gone, or are to be emptied, is brought onto others.
//!
//! What is to be done is told by stubs and headers, so nothing has to be remembered: a run that is killed is continued by the next
//! one, which finds what is still missing. The most exposed files come first. Targets that are gone are *given up* before: when one comes
//! back, nothing on it counts until this room has verified it, and what was made anew meanwhile is removed from it.

mod clearing;
mod conclusion;
mod file;
pub mod layouts;
mod planning;
mod report;
pub mod survey;

pub use file::{FileDone, FileError};
pub use planning::{Item, Plan};
pub use report::Report;

use crate::catalogue::{CatalogueError, Entry, State};
use crate::coder::Coders;
use crate::damage::{damage_report, remaining_redundancy};
use crate::examine::{ExamineOptions, ProtectedFile, examine};
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::storage::pool::config::MemberState;
use crate::storage::pool::{Pool, PoolError};
use crate::throttle::Throttle;
use crate::vault::Vault;
use crate::watchdog::{Policy, TooMany, agreement};
use conclusion::{conclude, name_moved};
use file::Rebuilder;
use planning::make_plan;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use survey::{Places, Standing, each_file, survey};

/// How often, and after which pauses, files are tried again that are being written: most of them rest soon.
const LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// The share of targets that may be gone before a person is asked, in percent.
pub const DEFAULT_SHARE: u8 = 50;

/// Which targets, and whether a person agreed.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Only these; all that are gone, retired or came back if empty. One that is in service is verified.
    pub targets: Vec<String>,
    /// What a person agreed to: see [`agreement`].
    pub agreed: Option<String>,
}

/// Why nothing was rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Storage of another kind.
    #[error("only pools have targets to rebuild")]
    NoPool,
    /// The pool fails.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// So many targets are gone that a person has to look.
    #[error("{why}: {}. Look whether they are only unplugged; if they are lost, agree to just these: {agreement}", .gone.join(", "))]
    Ask {
        /// Why.
        why: TooMany,
        /// Which.
        gone: Vec<String>,
        /// What to agree to.
        agreement: String,
    },
}

/// Whether so many targets are gone that a person has to be asked first.
///
/// # Errors
/// [`RebuildError::Ask`].
pub fn check_mass(pool: &Pool, coders: &Coders, agreed: Option<&str>) -> Result<(), RebuildError> {
    let config = pool.config();
    let serving: BTreeSet<&String> = config
        .target
        .iter()
        .filter(|member| member.state != MemberState::Retired)
        .map(|member| &member.name)
        .collect();
    let gone = Places::of(pool).in_state(TargetState::Offline);
    let mut gone: Vec<String> = gone.into_iter().filter(|name| serving.contains(name)).collect();
    let policy = Policy { delay: 0, redundancy: config.redundancy, share: DEFAULT_SHARE };
    if policy.too_many(gone.len(), serving.len()).is_some() {
        // Those that were given up before and that no file misses any more are no danger.
        let mut missed = BTreeSet::new();
        let places = Places::of(pool);
        each_file(pool, &mut |path, stub| {
            match stub.map(|stub| survey(pool, coders, &places, &path, &stub)) {
                Ok(Ok(found)) => missed.extend(found.targets),
                // It may miss any of them.
                Ok(Err(_)) => missed.extend(gone.iter().cloned()),
                Err(_) => {}
            }
        })?;
        let away = |name: &String| {
            config.target.iter().any(|member| member.name == *name && member.state == MemberState::Away)
        };
        gone.retain(|name| !away(name) || missed.contains(name));
    }
    let Some(why) = policy.too_many(gone.len(), serving.len()) else { return Ok(()) };
    let agreement = agreement(&config.pool, gone.iter().map(String::as_str));
    match agreed == Some(agreement.as_str()) {
        true => Ok(()),
        false => Err(RebuildError::Ask { why, gone, agreement }),
    }
}

/// Says what would be done, and changes nothing.
///
/// # Errors
/// See [`RebuildError`].
pub fn plan(vault: &Vault, options: &Options, context: RunContext<'_>) -> Result<Plan, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    let behind = pool.outdated_targets();
    let mut plan = make_plan(vault, pool, options, context)?;
    // What is verified in a real run as well.
    plan.returned.extend(behind);
    Ok(plan)
}

/// Gives up targets that are gone, and brings what they had, and what retired ones have, onto others; verifies targets that came
/// back. The caller has the vault for himself.
///
/// # Errors
/// See [`RebuildError`]; what concerns single files is in the report.
pub fn rebuild(vault: &Vault, options: &Options, context: RunContext<'_>) -> Result<Report, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    check_mass(pool, &vault.coders, options.agreed.as_deref())?;
    let mut report = Report::default();
    prepare(pool, options)?;
    report.healed = pool.heal()?;
    pool.relocate_all_former_redundancy(&vault.coders)?;
    report.swept = pool.sweep(true)?.orphans.len() as u64;
    report.plan = make_plan(vault, pool, options, context)?;
    round(vault, pool, &mut report, context)?;
    if report.has_new_room() {
        let first = report.begin_again(make_plan(vault, pool, options, context)?);
        round(vault, pool, &mut report, context)?;
        report.plan.follow(first);
    }
    report.failed.sort_by(|a, b| (!a.1.is_loss(), &a.0).cmp(&(!b.1.is_loss(), &b.0)));
    Ok(report)
}

/// Carries out the plan of a report.
fn round(
    vault: &Vault,
    pool: &Pool,
    report: &mut Report,
    context: RunContext<'_>,
) -> Result<(), RebuildError> {
    work(vault, pool, report, context)?;
    name_moved(pool, report)?;
    report.stopped = (context.stopped)();
    if !report.stopped {
        conclude(vault, pool, report)?;
    }
    Ok(())
}

/// Notes in the pool which targets are not to be believed.
fn prepare(pool: &Pool, options: &Options) -> Result<(), PoolError> {
    let config = pool.config();
    let chosen = |name: &String| options.targets.is_empty() || options.targets.contains(name);
    let places = Places::of(pool);
    let mut doubtful = pool.outdated_targets();
    doubtful.extend(places.in_state(TargetState::Offline));
    doubtful.retain(chosen);
    // Who names a target that is in service wants it looked at.
    doubtful.extend(options.targets.iter().cloned());
    let serving = |name: &String| {
        config.target.iter().all(|member| member.name != *name || member.state == MemberState::Online)
    };
    doubtful.retain(serving);
    doubtful.sort();
    doubtful.dedup();
    if doubtful.is_empty() { Ok(()) } else { pool.give_up(&doubtful, options.agreed.is_some()) }
}

/// Puts the files of the plan in order: side by side as long as there is one for each thread, and the rest by all threads. Names of one
/// file are for one thread, one after the other: the first brings the data back, for all.
fn work(
    vault: &Vault,
    pool: &Pool,
    report: &mut Report,
    context: RunContext<'_>,
) -> Result<(), CatalogueError> {
    let files = std::mem::take(&mut report.plan.files);
    (context.progress)(Progress::Step(
        "rebuilding",
        Some((files.len() as u64, files.iter().map(|item| item.bytes).sum())),
    ));
    let throttle = Throttle::new(context.rate.or(vault.policy.rate));
    let progress = |read: u64, done: u64| {
        throttle.take(read);
        (context.progress)(Progress::Done(0, done));
    };
    let places = Places::of(pool);
    let rebuilder = Rebuilder {
        pool,
        coders: &vault.coders,
        clock: &vault.clock,
        places,
        progress: &progress,
        stopped: context.stopped,
    };
    // Half of them wait for a disk while the others compute.
    let threads = 2 * context.threads.max(1);
    let units: Vec<&[Item]> = files.chunk_by(|one, other| one.id == other.id).collect();
    let apart = units.len() - units.len() % threads;
    let next = AtomicUsize::new(0);
    let (mut outcome, mut busy) = (Ok(()), Vec::new());
    std::thread::scope(|scope| {
        let (send, results) = channel();
        for _ in 0..threads {
            let (send, next, units, rebuilder) = (send.clone(), &next, &units, &rebuilder);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(names) = units.get(at).filter(|_| !(context.stopped)()) else { break };
                    // The last ones are shared by all threads, which would be idle otherwise.
                    let helpers = if at < apart { 1 } else { threads };
                    for item in *names {
                        let done = rebuild_file(rebuilder, item, helpers);
                        (context.progress)(Progress::Done(1, 0));
                        // Nobody listens any more if the catalogue failed.
                        let _ = send.send((item, done));
                    }
                }
            });
        }
        drop(send);
        for (item, done) in results {
            if is_busy(&done) {
                busy.push((item, done));
                continue;
            }
            let noted = note(vault, &rebuilder, item, done, report);
            if outcome.is_ok() {
                outcome = noted;
            }
        }
    });
    for _ in 0..LOOKS {
        if busy.is_empty() || outcome.is_err() || (context.stopped)() {
            break;
        }
        std::thread::sleep(PAUSE);
        busy.iter_mut().for_each(|(item, done)| *done = rebuild_file(&rebuilder, item, threads));
        for (item, done) in busy.extract_if(.., |(_, done)| !is_busy(done)) {
            outcome = outcome.and(note(vault, &rebuilder, item, done, report));
        }
    }
    for (item, done) in busy {
        outcome = outcome.and(note(vault, &rebuilder, item, done, report));
    }
    report.plan.files = files;
    outcome
}

/// Whether a file was being written, or changed all the time.
fn is_busy(done: &Result<FileDone, FileError>) -> bool {
    matches!(done, Err(FileError::Pool(error)) if error.kind() == std::io::ErrorKind::ResourceBusy)
}

/// Rebuilds one file, again if it changed meanwhile.
fn rebuild_file(rebuilder: &Rebuilder<'_>, item: &Item, helpers: usize) -> Result<FileDone, FileError> {
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match rebuilder.file(&item.path, item.code.as_deref(), helpers) {
            Err(FileError::Pool(PoolError::Changed { .. })) if attempts > 0 => {}
            done => return done,
        }
    }
}

/// Notes what came of a file.
fn note(
    vault: &Vault,
    rebuilder: &Rebuilder<'_>,
    item: &Item,
    done: Result<FileDone, FileError>,
    report: &mut Report,
) -> Result<(), CatalogueError> {
    let path = &item.path;
    let done = match done {
        Ok(done) => done,
        Err(FileError::Stopped) => return Ok(()),
        // Whoever changes it put it where it should be.
        busy if is_busy(&busy) && rebuilder.standing(path).is_ok_and(|it| it <= Standing::Pending) => {
            return Ok(());
        }
        Err(FileError::Pool(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            report.vanished.push((path.clone(), item.id));
            return Ok(());
        }
        Err(error) => {
            report.failed.push((path.clone(), error));
            return Ok(());
        }
    };
    report.files += u64::from(!report.was_placed_in_part(path));
    report.data += done.data as u64;
    report.redundancy += done.redundancy as u64;
    report.bytes += done.bytes;
    report.verified += done.verified as u64;
    report.reconstructed += done.reconstructed;
    report.wrong += done.wrong;
    report.removed += done.removed;
    if !done.unplaced.is_empty() {
        report.unplaced.push((path.clone(), done.unplaced.len()));
    }
    report.unsettled.extend(done.kept.iter().cloned());
    if done.unmoved > 0 {
        report.unmoved.push((path.clone(), done.unmoved));
    }
    // The catalogue may know another file by this name, which was moved.
    let known = vault.catalogue.find(path)?.filter(|entry| entry.generation.inode == item.id.inode());
    let (Some(remaining), Some(entry)) = (done.remaining_redundancy(), known) else { return Ok(()) };
    let state = match entry.state {
        State::Protected | State::Degraded if remaining < entry.wanted => State::Degraded,
        State::Protected | State::Degraded => State::Protected,
        State::Damaged | State::Lost => {
            return note_after_damage(vault, path, Entry { columns: remaining, ..entry });
        }
    };
    vault.catalogue.put(path, &Entry { columns: remaining, state, ..entry })
}

/// Examines a rebuilt file that a scrub had found damaged, and notes its state. The damage may have been the columns that were gone, which are
/// there again, or corruption elsewhere in the file, which stays.
fn note_after_damage(vault: &Vault, path: &[u8], entry: Entry) -> Result<(), CatalogueError> {
    let look = ExamineOptions { threads: 1, from_medium: false, progress: &|_| {}, stopped: &|| false };
    let found = ProtectedFile::open_known(&*vault.storage, &vault.coders, path, &entry)
        .and_then(|protected| examine(&protected, look).map(|findings| (protected, findings)));
    let catalogue = &vault.catalogue;
    match found {
        Ok((protected, findings)) if !protected.is_changed() => {
            let left = damage_report(path, &protected, &findings);
            let state = left.as_ref().map_or(State::Protected, |left| left.state);
            let columns =
                left.as_ref().map_or(entry.columns, |_| remaining_redundancy(&protected, &findings));
            let problems = left.map_or(Vec::new(), |left| left.problems);
            catalogue.together(|| {
                catalogue.put(path, &Entry { state, columns, ..entry })?;
                catalogue.set_problems(path, &problems, vault.clock.now())
            })
        }
        // All of it could be read or made; a scrub has to say what else is wrong.
        _ => catalogue.put(path, &Entry { state: State::Damaged, ..entry }),
    }
}
