//! What was on targets that are gone, or are to be emptied, is brought onto others.
//!
//! What is to be done is told by stubs and headers, so nothing has to be remembered: a run that is killed is continued by the next
//! one, which finds what is still missing. The most exposed files come first. Targets that are gone are *given up* before: when one comes
//! back, nothing on it counts until this room has verified it, and what was made anew meanwhile is removed from it.

mod clearing;
mod file;
pub mod layouts;
pub mod survey;

pub use file::{FileDone, FileError};

use crate::catalogue::{CatalogueError, Entry, State};
use crate::coder::Coders;
use crate::protect::{Manner, Progress};
use crate::storage::TargetState;
use crate::storage::pool::config::Standing as Membership;
use crate::storage::pool::stub::Stub;
use crate::storage::pool::{Healed, Pool, PoolError};
use crate::throttle::Throttle;
use crate::vault::Vault;
use crate::watchdog::{Policy, TooMany, agreement};
use file::Rebuilder;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use survey::{Places, Standing, each_file, survey};

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

/// A file to be put in order.
#[derive(Debug, Clone)]
pub struct Item {
    /// Which one.
    pub path: Vec<u8>,
    /// How it stands.
    pub standing: Standing,
    /// Blocks of a stripe that can be had beyond those that are needed.
    pub spare: i64,
    /// Bytes to write or verify.
    pub bytes: u64,
    /// Targets that it misses or leaves.
    pub targets: Vec<String>,
    /// All of its redundancy is gone, and its data is there: it is protected anew with this code.
    pub code: Option<String>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Targets that are gone.
    pub gone: Vec<String>,
    /// Targets that are to be emptied.
    pub retired: Vec<String>,
    /// Targets that came back, or are to be looked at, and have to be verified.
    pub returned: Vec<String>,
    /// Files to put in order, the most exposed first.
    pub files: Vec<Item>,
    /// Files that are lost by where their parts were, with the targets that they miss.
    pub lost: Vec<Item>,
    /// Files whose stubs cannot be read, and why.
    pub unreadable: Vec<(Vec<u8>, String)>,
    /// Files that were looked at.
    pub examined: u64,
}

impl Plan {
    /// Bytes to write or verify.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|item| item.bytes).sum()
    }
}

/// What a run did.
#[derive(Debug, Default)]
pub struct Report {
    /// What was to be done.
    pub plan: Plan,
    /// Files that were put in order, wholly or as far as there was room.
    pub files: u64,
    /// Columns of data that were made or moved.
    pub data: u64,
    /// Columns of redundancy that were made or moved.
    pub redundancy: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Columns that were found right on targets that came back.
    pub verified: u64,
    /// Blocks that were made from others.
    pub reconstructed: u64,
    /// Blocks of sources that were not what was protected; a scrub says more.
    pub wrong: u64,
    /// Files on targets that came back which were made anew elsewhere, and are removed.
    pub removed: u64,
    /// Files with columns that found no place in a domain of their own, and how many.
    pub homeless: Vec<(Vec<u8>, usize)>,
    /// Files with columns that stay on a target which is to be emptied, because they found no other place, and how many.
    pub unmoved: Vec<(Vec<u8>, usize)>,
    /// Files that could not be put in order, and why; those that are lost first.
    pub failed: Vec<(Vec<u8>, FileError)>,
    /// Targets that came back and have something that may still be needed: what was made anew in its place is damaged.
    pub unsettled: BTreeSet<String>,
    /// Targets that are in service again.
    pub taken_back: Vec<String>,
    /// What was left over from runs that did not come to their end.
    pub swept: u64,
    /// What was done to the namespace.
    pub healed: Healed,
    /// It was stopped before its end.
    pub stopped: bool,
}

impl Report {
    /// Whether everything is as it should be.
    pub fn is_whole(&self) -> bool {
        self.plan.lost.is_empty()
            && self.plan.unreadable.is_empty()
            && self.failed.is_empty()
            && self.homeless.is_empty()
            && self.unmoved.is_empty()
            && self.unsettled.is_empty()
            && self.healed.failed.is_empty()
            && !self.stopped
    }

    /// Whether files are lost.
    pub fn has_losses(&self) -> bool {
        !self.plan.lost.is_empty() || self.failed.iter().any(|(_, error)| error.is_loss())
    }
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
        .filter(|member| member.state != Membership::Retired)
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
            missed
                .extend(stub.map_or(Vec::new(), |stub| survey(pool, coders, &places, &path, &stub).targets));
        })?;
        let away = |name: &String| {
            config.target.iter().any(|member| member.name == *name && member.state == Membership::Away)
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
pub fn plan(vault: &Vault, options: &Options, manner: Manner<'_>) -> Result<Plan, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    let behind = pool.behind();
    let mut plan = make_plan(vault, pool, options, manner)?;
    // What is verified in a real run as well.
    plan.returned.extend(behind);
    Ok(plan)
}

fn make_plan(
    vault: &Vault,
    pool: &Pool,
    options: &Options,
    manner: Manner<'_>,
) -> Result<Plan, RebuildError> {
    (manner.progress)(Progress::Step("looking where files are", None));
    let places = Places::of(pool);
    let chosen = |name: &String| options.targets.is_empty() || options.targets.contains(name);
    let of = |state: TargetState| places.in_state(state).into_iter().filter(chosen).collect::<Vec<_>>();
    let mut plan = Plan {
        gone: of(TargetState::Offline),
        retired: of(TargetState::Retired),
        returned: of(TargetState::Returned),
        ..Plan::default()
    };
    let mut failed = None;
    each_file(pool, &mut |path, stub| {
        plan.examined += 1;
        (manner.progress)(Progress::Done(1, 0));
        let stub = match stub {
            Ok(stub) => stub,
            Err(error) => return plan.unreadable.push((path, error.to_string())),
        };
        let found = survey(pool, &vault.coders, &places, &path, &stub);
        let mut code = None;
        if matches!(found.standing, Standing::Pending | Standing::Leaving) && found.spare == 0 {
            match stripped(vault, pool, &places, &path, &stub) {
                Ok(was) => code = was,
                Err(error) => failed = Some(error),
            }
        }
        let ours = found.targets.iter().any(chosen) || found.leftover || code.is_some();
        let item = Item {
            path,
            standing: found.standing,
            spare: found.spare,
            bytes: found.bytes,
            targets: found.targets,
            code,
        };
        match found.standing {
            _ if item.code.is_some() => plan.files.push(item),
            _ if !ours => {}
            Standing::Lost => plan.lost.push(item),
            Standing::Degraded | Standing::Leaving => plan.files.push(item),
            Standing::Whole | Standing::Pending if found.leftover => plan.files.push(item),
            _ => {}
        }
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    plan.files.sort_by(|a, b| (a.spare, &a.path).cmp(&(b.spare, &b.path)));
    plan.lost.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(plan)
}

/// The code of a file that was protected as it is and has no redundancy left.
fn stripped(
    vault: &Vault,
    pool: &Pool,
    places: &Places,
    path: &[u8],
    stub: &Stub,
) -> Result<Option<String>, CatalogueError> {
    let Some(entry) = vault.catalogue.find(path)?.filter(|entry| entry.wanted > 0) else { return Ok(None) };
    let (was, now) = (entry.generation, stub.stat(0).generation());
    let same = (was.size, was.mtime, was.inode) == (now.size, now.mtime, now.inode);
    let none = same && survey::parts(pool, &vault.coders, places, path, stub).0.is_empty();
    Ok(none.then_some(entry.code))
}

/// Gives up targets that are gone, and brings what they had, and what retired ones have, onto others; verifies targets that came
/// back. The caller has the vault for himself.
///
/// # Errors
/// See [`RebuildError`]; what concerns single files is in the report.
pub fn rebuild(vault: &Vault, options: &Options, manner: Manner<'_>) -> Result<Report, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    check_mass(pool, &vault.coders, options.agreed.as_deref())?;
    let mut report = Report { ..Report::default() };
    prepare(pool, options)?;
    report.healed = pool.heal()?;
    report.swept = pool.sweep(true)?.orphans.len() as u64;
    report.plan = make_plan(vault, pool, options, manner)?;
    work(vault, pool, &mut report, manner)?;
    report.stopped = (manner.stopped)();
    if !report.stopped {
        conclude(vault, pool, &mut report)?;
    }
    Ok(report)
}

/// Notes in the pool which targets are not to be believed.
fn prepare(pool: &Pool, options: &Options) -> Result<(), PoolError> {
    let config = pool.config();
    let chosen = |name: &String| options.targets.is_empty() || options.targets.contains(name);
    let places = Places::of(pool);
    let mut doubtful = pool.behind();
    doubtful.extend(places.in_state(TargetState::Offline));
    doubtful.retain(chosen);
    // Who names a target that is in service wants it looked at.
    doubtful.extend(options.targets.iter().cloned());
    let serving = |name: &String| {
        config.target.iter().all(|member| member.name != *name || member.state == Membership::Online)
    };
    doubtful.retain(serving);
    doubtful.sort();
    doubtful.dedup();
    if doubtful.is_empty() { Ok(()) } else { pool.give_up(&doubtful, options.agreed.is_some()) }
}

/// Puts the files of the plan in order: side by side as long as there is one for each thread, and the rest by all threads.
fn work(vault: &Vault, pool: &Pool, report: &mut Report, manner: Manner<'_>) -> Result<(), CatalogueError> {
    let files = std::mem::take(&mut report.plan.files);
    (manner.progress)(Progress::Step(
        "rebuilding",
        Some((files.len() as u64, files.iter().map(|item| item.bytes).sum())),
    ));
    let throttle = Throttle::new(manner.rate.or(vault.policy.rate));
    let progress = |read: u64, done: u64| {
        throttle.take(read);
        (manner.progress)(Progress::Done(0, done));
    };
    let places = Places::of(pool);
    let rebuilder = Rebuilder {
        pool,
        coders: &vault.coders,
        clock: &vault.clock,
        places,
        progress: &progress,
        stopped: manner.stopped,
    };
    // Half of them wait for a disk while the others compute.
    let threads = 2 * manner.threads.max(1);
    let apart = files.len() - files.len() % threads;
    let next = AtomicUsize::new(0);
    let mut outcome = Ok(());
    std::thread::scope(|scope| {
        let (send, results) = channel();
        for _ in 0..threads {
            let (send, next, files, rebuilder) = (send.clone(), &next, &files, &rebuilder);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = files.get(at).filter(|_| !(manner.stopped)()) else { break };
                    // The last ones are shared by all threads, which would be idle otherwise.
                    let helpers = if at < apart { 1 } else { threads };
                    let done = rebuild_file(rebuilder, item, helpers);
                    (manner.progress)(Progress::Done(1, 0));
                    // Nobody listens any more if the catalogue failed.
                    let _ = send.send((item, done));
                }
            });
        }
        drop(send);
        for (item, done) in results {
            let noted = note(vault, &rebuilder, item, done, report);
            if outcome.is_ok() {
                outcome = noted;
            }
        }
    });
    report.plan.files = files;
    report.failed.sort_by(|a, b| (!a.1.is_loss(), &a.0).cmp(&(!b.1.is_loss(), &b.0)));
    outcome
}

/// Rebuilds one file, again if it changed meanwhile: another name of it may have got its data to other places.
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
        // Whoever changed it meanwhile put it where it should be, or the next run sees to it.
        Err(FileError::Pool(PoolError::Changed { .. }))
            if rebuilder.standing(path).is_ok_and(|it| it <= Standing::Pending) =>
        {
            return Ok(());
        }
        Err(FileError::Pool(error)) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            report.failed.push((path.clone(), error));
            return Ok(());
        }
    };
    report.files += 1;
    report.data += done.data as u64;
    report.redundancy += done.redundancy as u64;
    report.bytes += done.bytes;
    report.verified += done.verified as u64;
    report.reconstructed += done.reconstructed;
    report.wrong += done.wrong;
    report.removed += done.removed;
    if !done.homeless.is_empty() {
        report.homeless.push((path.clone(), done.homeless.len()));
    }
    report.unsettled.extend(done.kept.iter().cloned());
    if done.unmoved > 0 {
        report.unmoved.push((path.clone(), done.unmoved));
    }
    let (Some(margin), Some(entry)) = (done.margin(), vault.catalogue.find(path)?) else { return Ok(()) };
    let state = match entry.state {
        State::Protected | State::Degraded if margin < entry.wanted => State::Degraded,
        State::Protected | State::Degraded => State::Protected,
        // All of it could be read or made; what else is wrong a scrub has to say.
        State::Damaged | State::Lost => State::Damaged,
    };
    vault.catalogue.put(path, &Entry { columns: margin, state, ..entry })
}

/// Takes targets back on which everything has been looked at, and clears from them what belongs to nothing any more.
fn conclude(vault: &Vault, pool: &Pool, report: &mut Report) -> Result<(), RebuildError> {
    let returned = report.plan.returned.clone();
    let unsettled = |name: &String| {
        let failed = report.failed.iter().map(|(path, _)| path);
        let failed: BTreeSet<&Vec<u8>> = failed.collect();
        let items = report.plan.files.iter().filter(|item| failed.contains(&item.path));
        let missed = items.chain(&report.plan.lost).any(|item| item.targets.contains(name));
        missed || report.unsettled.contains(name) || !report.plan.unreadable.is_empty()
    };
    let (kept, settled): (Vec<String>, Vec<String>) = returned.into_iter().partition(unsettled);
    drop(kept);
    for target in &settled {
        report.removed += forget_strangers(pool, target)?;
    }
    if !settled.is_empty() {
        pool.take_back(&settled)?;
        report.taken_back = settled;
        let healed = pool.heal()?;
        report.healed.written += healed.written;
        report.healed.removed += healed.removed;
        report.healed.mirrors.extend(healed.mirrors);
        report.healed.failed.extend(healed.failed);
        report.swept += pool.sweep(true)?.orphans.len() as u64;
    }
    let now = vault.clock.now().to_string();
    vault.catalogue.set_note("last rebuild", Some(&now))?;
    Ok(())
}

/// Removes redundancy from a target that was away of files that are gone from the namespace, and from all other targets as well:
/// they were removed, or moved, meanwhile.
fn forget_strangers(pool: &Pool, target: &str) -> Result<u64, PoolError> {
    use crate::storage::Storage;
    let Some(own) = pool.repository(target) else { return Ok(0) };
    let others: Vec<_> =
        pool.repositories().into_iter().filter(|other| other.target != target.as_bytes()).collect();
    let mut strangers = Vec::new();
    let failed = |error: std::io::Error| PoolError::Target {
        target: target.to_owned(),
        doing: "looking through its redundancy",
        source: error,
    };
    crate::rebuild::walk(&own.tree, &mut |path| {
        let gone = matches!(pool.find(path), Ok(None));
        let elsewhere = |other: &crate::storage::Repository| {
            !matches!(other.tree.find(&other.place(path).path), Ok(None))
        };
        if gone && !others.iter().any(elsewhere) {
            strangers.push(path.to_vec());
        }
        Ok(())
    })
    .map_err(|error| failed(std::io::Error::other(error)))?;
    for path in &strangers {
        let place = own.place(path);
        place.tree.remove(&place.path).map_err(failed)?;
        let above = crate::tree::split(&place.path).0;
        place.tree.remove_empty(above, crate::redundancy::REDUNDANCY).map_err(failed)?;
    }
    Ok(strangers.len() as u64)
}
