//! `gabion protect`: brings the redundancy of a whole tree up to date. Scan, guard, changelog, workers.

pub(crate) mod renamed;
pub mod selected;

use crate::catalogue::{CatalogueError, Change as ScannedChange, Class, LONG_JOURNAL, State};
use crate::changelog::{self, Change, When, WorkerId};
use crate::coder::Coders;
use crate::deduplication::{self, Sharing};
use crate::displaced::{self, Awaited};
use crate::examine::{self, ExamineError, ProtectedFile};
use crate::format::header::Version;
use crate::guard::{self, GuardError, Held, Judgement};
use crate::host_limits::throttled;
use crate::missing;
use crate::portions::OfVault;
use crate::redundancy::REDUNDANCY;
use crate::repair_mark::Interrupted;
use crate::run::{Progress, RunContext};
use crate::scan::{ScanError, Scanner, Seen};
use crate::throttle::Throttle;
use crate::tree;
use crate::vault::{Vault, VaultError};
use crate::worker::{
    self, Admission, AdmissionContext, Batch, Done, GuardVerdict, Scanned, WorkError, WorkedVault, Worker,
    WorkerOptions,
};
use crate::world::Timestamp;
use crate::write_once;
use std::collections::BTreeSet;

/// Results of a run.
#[derive(Debug)]
pub struct Report {
    /// Results of the scan.
    pub seen: Seen,
    /// Results of the workers.
    pub done: Done,
    /// Change-set that waits for an approval.
    pub held: Option<Held>,
    /// Changes that are still pending: those of failed files, and those that others recorded meanwhile.
    pub pending: u64,
    /// Number of degraded, damaged and lost files by state. For a pool, the targets that are online now decide.
    pub affected: Vec<(State, u64)>,
    /// Reasons why mirrors of a pool's namespace that missed changes could not be brought up to date.
    pub unhealed: Vec<String>,
    /// Redundancy that files began to share.
    pub sharing: Sharing,
}

/// Error that ends a run.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// The scan failed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The guard could not decide.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// A worker failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The catalogue failed.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The changelog failed.
    #[error("the changelog: {0}")]
    Changelog(#[from] changelog::Error),
    /// The catalogue could not be made.
    #[error(transparent)]
    Vault(#[from] Box<VaultError>),
    /// The operating system returned an error.
    #[error("the repository: {0}")]
    Io(#[from] std::io::Error),
}

/// Scans the tree and stores its change-set in the catalogue.
///
/// # Errors
/// See [`ScanError`].
pub fn scan(vault: &Vault, context: RunContext<'_>) -> Result<Seen, ScanError> {
    scan_within(vault, &[Vec::new()], context)
}

/// Scans parts of the tree and stores their change-set in the catalogue.
///
/// # Errors
/// See [`ScanError`].
pub fn scan_within(vault: &Vault, within: &[Vec<u8>], context: RunContext<'_>) -> Result<Seen, ScanError> {
    scan_tree(vault, within, None, context)
}

/// Catalogue note with the format version of all redundancy, set once every file has the newest one.
const FORMAT: &str = "redundancy format";

/// Scans the tree and, until all redundancy has the newest format version, also checks the version of each file's
/// redundancy.
fn scan_and_renew(vault: &Vault, context: RunContext<'_>) -> Result<Seen, ScanError> {
    let newest = Version::NEWEST.number().to_string();
    if vault.catalogue.note(FORMAT)?.as_deref() == Some(&newest) {
        return scan(vault, context);
    }
    if has_no_redundancy(vault) {
        // What this program makes is of the newest version.
        vault.catalogue.set_note(FORMAT, Some(&newest))?;
        return scan(vault, context);
    }
    let seen = scan_tree(vault, &[Vec::new()], Some(&vault.coders), context)?;
    // What is damaged is not looked at before it is repaired, and what the catalogue did not know not before the next
    // run.
    let is_all = seen.known > 0 && seen.unreadable.is_empty() && vault.catalogue.affected()?.is_empty();
    if seen.outdated == 0 && is_all {
        vault.catalogue.set_note(FORMAT, Some(&newest))?;
    }
    Ok(seen)
}

/// Whether a vault of a directory has no redundancy at all, as when it is new. A pool may have some on targets that
/// do not answer.
fn has_no_redundancy(vault: &Vault) -> bool {
    let is_empty = |tree: &tree::Tree, top: &[u8]| {
        let names = tree::absent_is_none(tree.directory(top).and_then(|directory| directory.names()));
        names.is_ok_and(|names| names.is_none_or(|names| names.get(0).is_none()))
    };
    let tops = [REDUNDANCY, displaced::DISPLACED];
    !vault.storage.keeps_by_identity()
        && vault.storage.repositories().iter().all(|it| tops.iter().all(|top| is_empty(&it.tree, top)))
}

fn scan_tree(
    vault: &Vault,
    within: &[Vec<u8>],
    renews: Option<&Coders>,
    context: RunContext<'_>,
) -> Result<Seen, ScanError> {
    (context.progress)(Progress::Step("scanning", None));
    let scanner = Scanner {
        storage: &*vault.storage,
        catalogue: &vault.catalogue,
        policy: &vault.policy,
        within,
        now: vault.clock.now(),
        renews,
        progress: &|files| (context.progress)(Progress::Done(files, 0)),
        stopped: context.stopped,
    };
    let mut seen = scanner.scan()?;
    if within.iter().any(Vec::is_empty) {
        note_user_policies(vault, seen.user_policies.len())?;
    }
    if guard::depends_on_restored(&vault.catalogue, &vault.policy.guard, seen.known, vault.clock.now())? {
        compare_restored(vault, context)?;
        seen.changes = vault.catalogue.count_changes()?;
    }
    Ok(seen)
}

/// Catalogue note with the number of warnings about users' policies at the last scan of the tree.
const USER_POLICIES: &str = "user policies";

fn note_user_policies(vault: &Vault, warnings: usize) -> Result<(), CatalogueError> {
    let (now, known) = (Some(warnings).filter(|&number| number > 0), user_policy_warnings(vault)?);
    match now == known {
        true => Ok(()),
        false => vault.catalogue.set_note(USER_POLICIES, now.map(|number| number.to_string()).as_deref()),
    }
}

/// Number of warnings about users' policies at the last scan of the tree, if there were any.
///
/// # Errors
/// The catalogue fails.
pub fn user_policy_warnings(vault: &Vault) -> Result<Option<usize>, CatalogueError> {
    Ok(vault.catalogue.note(USER_POLICIES)?.and_then(|number| number.parse().ok()))
}

/// Compares files that have the size and mtime of the protected version but another inode: ransomware can restore the
/// old mtimes after encrypting a tree. Files that differ are classified as changed and count for the guard.
fn compare_restored(vault: &Vault, context: RunContext<'_>) -> Result<(), ScanError> {
    (context.progress)(Progress::Step("comparing", None));
    throttled(vault, context, None, |throttle| compare_at_rate(vault, context, throttle))
}

fn compare_at_rate(vault: &Vault, context: RunContext<'_>, throttle: &Throttle<'_>) -> Result<(), ScanError> {
    let RunContext { threads, stopped, .. } = context;
    let progress = |bytes: u64| throttle.take(bytes);
    let examine_options =
        examine::ExamineOptions { threads, from_medium: false, progress: &progress, stopped };
    vault.catalogue.each_change(Class::Restored, |page| -> Result<(), ScanError> {
        for found in page {
            let protected = ProtectedFile::open(&*vault.storage, &vault.coders, &found.path);
            match protected.and_then(|protected| examine::examine(&protected, examine_options)) {
                Ok(findings) if findings.has_bad_data() => {
                    vault.catalogue.reclassify(&found.path, Class::Restored, Class::Changed)?;
                }
                Err(ExamineError::Stopped) => return Err(ScanError::Stopped),
                // Without usable redundancy there is nothing to compare and nothing to hold.
                _ => {}
            }
            (context.progress)(Progress::Done(1, 0));
        }
        Ok(())
    })
}

/// Judgement of the guard on the last scan. Records nothing.
///
/// # Errors
/// See [`GuardError`].
pub fn would_hold(vault: &Vault, seen: &Seen) -> Result<Judgement, GuardError> {
    let now = vault.clock.now();
    guard::check(&vault.catalogue, &vault.policy.guard, seen.known, seen.is_nothing(), &vault.repository, now)
}

/// Judgement of the guard on the last scan. If it holds the change-set, its files are recorded: those that change again
/// before the next scan are identified by path only.
///
/// # Errors
/// See [`GuardError`].
pub fn judge(vault: &Vault, seen: &Seen) -> Result<Judgement, GuardError> {
    match would_hold(vault, seen)? {
        Judgement::Held(_) => {
            vault.catalogue.note_held()?;
            would_hold(vault, seen)
        }
        judgement => Ok(judgement),
    }
}

/// Result of looking up a change-set for an approval.
#[derive(Debug)]
pub enum Approval {
    /// The change-set is held now.
    Held(Held),
    /// The change-set was approved earlier and is not carried out yet.
    Given,
    /// Another change-set is held.
    Other(Held),
    /// No change-set is held.
    Nothing,
}

/// Checks whether a change-set is the one that is held now, so that [`guard::approve`] can release it. Records the held
/// change-set unless `dry` is set.
///
/// # Errors
/// See [`ProtectError`].
pub fn approval(
    vault: &Vault,
    digest: &guard::Digest,
    dry: bool,
    context: RunContext<'_>,
) -> Result<Approval, ProtectError> {
    let seen = scan(vault, context)?;
    let judgement = if dry { would_hold(vault, &seen) } else { judge(vault, &seen) };
    Ok(match judgement? {
        Judgement::Held(held) if held.digest == *digest => Approval::Held(held),
        Judgement::Held(held) => Approval::Other(held),
        Judgement::Approved(approved) if approved == *digest => Approval::Given,
        Judgement::Approved(_) | Judgement::Passed => Approval::Nothing,
    })
}

/// Updates namespace mirrors of a pool that missed changes while their targets were offline. Until then namespace
/// changes are stored on fewer targets than configured. Returns the failures: the next run tries again, and files can
/// be protected nevertheless.
fn heal_mirrors(vault: &Vault) -> Vec<String> {
    let Some(pool) = vault.pool.as_ref().filter(|pool| !pool.mirrors().outdated.is_empty()) else {
        return Vec::new();
    };
    let mut why = match pool.heal() {
        Ok(healed) => healed.failed.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
    };
    let behind = pool.mirrors().outdated;
    if !behind.is_empty() {
        why.push(format!("missed changes of the namespace and could not be healed: {}", behind.join(", ")));
    }
    why
}

/// Protects all files that need it. The caller holds the vault's lock.
///
/// # Errors
/// See [`ProtectError`].
pub fn protect(vault: &Vault, context: RunContext<'_>) -> Result<Report, ProtectError> {
    vault.follow().map_err(Box::new)?;
    let unhealed = heal_mirrors(vault);
    let began = vault.clock.now();
    make_deferred_due(vault)?;
    // A change that is recorded during the scan may not have been seen by it.
    let scanned = Scanned::whole(vault.changelog.sequence()?);
    worker::recover(&*vault.storage, &vault.coders, &vault.catalogue)?;
    let known = guard::approvals(&vault.repository).map_err(GuardError::Io)?;
    let seen = scan_and_renew(vault, context)?;
    write_once::note(&vault.catalogue, &seen.write_once)?;
    let judgement = judge(vault, &seen)?;
    let held = judgement.held().cloned();
    if held.is_none() {
        renamed::follow(vault)?;
    }
    let order = order(held.is_some());
    // Files that were only moved or removed are not read.
    let bytes = order.iter().filter(|class| !matches!(class, Class::Moved | Class::Removed));
    let bytes = bytes.map(|&class| seen.changes.of(class).1).sum();
    let files = order.iter().map(|&class| seen.changes.of(class).0).sum();
    (context.progress)(Progress::Step("protecting", Some((files, bytes))));
    // A person approved this change-set, so copies with other content are intended.
    let approved = judgement.approved().is_some();
    // This run records what the scan passed; other processes may record more.
    let verdict = if approved { GuardVerdict::Approved } else { GuardVerdict::Passed };
    let admission = held.is_none().then(|| admission(vault, verdict)).transpose()?;
    // A person types this command: a drain is about workers.
    let heeds_drain = false;
    let options =
        WorkerOptions { approved, hold: held.is_some(), heeds_drain, ..WorkerOptions::new(&scanned) };
    let done =
        with_worker(vault, context, options, |worker| carry_out(vault, &order, worker, admission.as_ref()))?;
    if held.is_none() {
        let Vault { repository, catalogue, policy, clock, .. } = vault;
        guard::clear(repository, catalogue, &policy.guard, clock.now(), judgement.approved(), &known)?;
    }
    if [Class::Removed, Class::Moved].iter().any(|&class| seen.changes.of(class).0 > 0) {
        vault.catalogue.forget_empty_directories()?;
    }
    vault.catalogue.shorten_journal(LONG_JOURNAL)?;
    // A failure is counted by `gabion status`, and a later run tries again.
    let _ = vault.purge_replaced();
    vault.catalogue.set_time_note("last protect", vault.clock.now())?;
    let pending = vault.changelog.pending()?.entries();
    let is_all = pending == 0 && held.is_none() && done.failures == 0 && seen.unreadable.is_empty();
    purge_displaced(vault, if is_all { Awaited::ByNobody(began) } else { Awaited::Likely });
    let sharing = deduplication::share(vault, context)?;
    Ok(Report { seen, done, held, pending, affected: missing::affected(vault)?, unhealed, sharing })
}

/// Removes redundancy that was set aside and is not needed by any file. Failures are retried by a later run.
pub(crate) fn purge_displaced(vault: &Vault, awaited: Awaited) {
    if vault.storage.keeps_by_identity() {
        return;
    }
    // Without the marks nothing is known of repairs that have to be finished.
    let Ok(interrupted) = Interrupted::of(&*vault.storage) else { return };
    let (is_needed, now) = (|inode| interrupted.has_inode(inode), vault.clock.now());
    for repository in vault.storage.writable_repositories() {
        let _ = displaced::purge(&repository, &vault.coders, &vault.catalogue, awaited, &is_needed, now);
    }
}

/// Processes what is due, next to other workers.
///
/// # Errors
/// See [`WorkError`].
pub fn work(vault: &Vault, context: RunContext<'_>) -> Result<Done, WorkError> {
    vault.follow().map_err(Box::new)?;
    let scanned = Scanned::default();
    work_with(vault, context, WorkerOptions::new(&scanned), &unique_name(vault)?)
}

/// As [`work`], for an attending worker with a name, which has [followed](Vault::follow) the other hosts. `on_batch` is
/// called after each batch that did something.
///
/// # Errors
/// See [`WorkError`].
pub fn work_attending(
    vault: &Vault,
    context: RunContext<'_>,
    name: &WorkerId,
    on_batch: &(dyn Fn(Batch) + Sync),
) -> Result<Done, WorkError> {
    let scanned = Scanned::default();
    work_with(vault, context, WorkerOptions { attends: true, on_batch, ..WorkerOptions::new(&scanned) }, name)
}

fn work_with(
    vault: &Vault,
    context: RunContext<'_>,
    options: WorkerOptions<'_>,
    name: &WorkerId,
) -> Result<Done, WorkError> {
    let portions = OfVault { vault };
    let options = WorkerOptions { other_work: Some(&portions), ..options };
    let run = |options: WorkerOptions<'_>, admission: Option<&Admission<'_>>| {
        with_named_worker(vault, context, options, name.clone(), |worker| worker.drain(admission))
    };
    let done = run(options, Some(&admission(vault, GuardVerdict::Stale)?))?;
    // Known files wait for a scan and an approval; new files are protected now.
    if !done.refused {
        return Ok(done);
    }
    Ok(done.and(run(WorkerOptions { hold: true, ..options }, None)?))
}

/// Counts pending changes against the bounds of the policy's guard.
pub(crate) fn admission(vault: &Vault, verdict: GuardVerdict) -> Result<Admission<'_>, WorkError> {
    let Vault { storage, catalogue, changelog, policy, clock, .. } = vault;
    let context =
        AdmissionContext { storage: &**storage, catalogue, changelog: &**changelog, guard: &policy.guard };
    Admission::new(context, verdict, clock)
}

/// Classes of changes in the order in which they are carried out: deleted files first, since new ones may take their
/// places.
pub(crate) fn order(held: bool) -> Vec<Class> {
    let mut order = Class::ALL.to_vec();
    order.sort_by_key(|class| match class {
        Class::Removed => 0,
        Class::Moved => 1,
        _ => 2,
    });
    order.retain(|class| !held || !matches!(class, Class::Changed | Class::Removed));
    order
}

pub(crate) fn with_worker<T, E: From<WorkError>>(
    vault: &Vault,
    context: RunContext<'_>,
    options: WorkerOptions<'_>,
    work: impl FnOnce(&Worker<'_>) -> Result<T, E>,
) -> Result<T, E> {
    with_named_worker(vault, context, options, unique_name(vault)?, work)
}

fn unique_name(vault: &Vault) -> Result<WorkerId, WorkError> {
    worker::unique_name().map_err(|source| WorkError::Repository { path: vault.root.clone(), source })
}

fn with_named_worker<T, E: From<WorkError>>(
    vault: &Vault,
    context: RunContext<'_>,
    options: WorkerOptions<'_>,
    name: WorkerId,
    work: impl FnOnce(&Worker<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let failed = |source| WorkError::Repository { path: vault.root.clone(), source };
    if let Some(pool) = &vault.pool {
        pool.relocate_all_former_redundancy(&vault.coders).map_err(|error| failed(error.into()))?;
    }
    throttled(vault, context, Some(&name), |throttle| {
        let progress = |progress: Progress| {
            if let Progress::Done(_, bytes) = progress {
                throttle.take(bytes);
            }
            (context.progress)(progress);
        };
        let run = RunContext { threads: context.threads.max(1), progress: &progress, ..context };
        work(&Worker { vault: WorkedVault::of(vault), run, options, name: name.clone() })
    })
}

/// Number of changes that are recorded before they are processed, so that the changelog stays small for any tree.
const SLICE: usize = 32_768;

/// Records the change-set of the scan in the changelog and processes it.
fn carry_out(
    vault: &Vault,
    order: &[Class],
    worker: &Worker<'_>,
    admission: Option<&Admission<'_>>,
) -> Result<Done, ProtectError> {
    let mut done = Done::default();
    let mut recorded = 0;
    let waiting = moves_that_wait(vault)?;
    for &class in order {
        vault.catalogue.each_change(class, |page| -> Result<(), ProtectError> {
            let now = vault.clock.now();
            let mut changes: Vec<Change> = page.iter().map(|found| change(found, now)).collect();
            let again = page.iter().filter(|found| waiting.contains(&found.path));
            changes.extend(
                again.map(|found| Change::modify_whole(found.path.clone(), When::now(now, found.priority))),
            );
            vault.changelog.record(&changes)?;
            recorded += changes.len();
            if recorded >= SLICE {
                recorded = 0;
                done = std::mem::take(&mut done).and(worker.drain(admission)?);
            }
            Ok(())
        })?;
    }
    done = done.and(worker.drain_all(admission)?);
    if order.contains(&Class::Removed) {
        let now = vault.clock.now();
        let gone =
            missing_that_wait(vault)?.into_iter().map(|path| Change::delete(path, When::now(now, u8::MAX)));
        let gone: Vec<Change> = gone.collect();
        if !gone.is_empty() {
            vault.changelog.record(&gone)?;
            done = done.and(worker.drain_all(admission)?);
        }
    }
    Ok(done)
}

/// Entries that a running watch holds back because their path is missing. The scan has matched all renames, so these
/// files were deleted.
fn missing_that_wait(vault: &Vault) -> Result<Vec<Vec<u8>>, ProtectError> {
    let waits = |entry: &changelog::Entry| {
        let absent = || matches!(vault.storage.find(&entry.path), Ok(None));
        entry.kind != changelog::Kind::Delete && entry.attempts > 0 && absent()
    };
    Ok(deferred(vault, waits)?.into_iter().map(|entry| entry.path).collect())
}

/// Moved files that could not be processed. Another move does not change their due time, but a manual run does not wait
/// for it.
fn moves_that_wait(vault: &Vault) -> Result<BTreeSet<Vec<u8>>, ProtectError> {
    let failed = |entry: &changelog::Entry| entry.kind == changelog::Kind::Move && entry.attempts > 0;
    Ok(deferred(vault, failed)?.into_iter().map(|entry| entry.path).collect())
}

/// Makes deferred entries due now: files that failed a moment ago, and gaps that need a scan. The scan records no
/// change for a file that is protected by then, and the deferred entry would remain pending. Must run before the scan,
/// which then covers the gaps.
fn make_deferred_due(vault: &Vault) -> Result<(), ProtectError> {
    use changelog::Kind;
    let waits = |entry: &changelog::Entry| entry.attempts > 0 && entry.token.is_none();
    let now = vault.clock.now();
    let again = |entry: changelog::Entry| {
        let when = When::now(now, entry.priority);
        let found = vault.storage.find(&entry.path).ok().flatten().map(|stat| stat.kind);
        match (entry.kind, found) {
            (Kind::Modify | Kind::Move, Some(tree::Kind::File)) => {
                Some(Change::modify_whole(entry.path, when))
            }
            // The changelog keeps the origin of a moved directory.
            (Kind::Gap, _) | (Kind::Move, Some(tree::Kind::Directory)) => Some(Change::gap(entry.path, when)),
            _ => None,
        }
    };
    let changes: Vec<Change> = deferred(vault, waits)?.into_iter().filter_map(again).collect();
    if !changes.is_empty() {
        vault.changelog.record(&changes)?;
    }
    Ok(())
}

/// Entries that are not due yet and match a condition.
fn deferred(
    vault: &Vault,
    is_wanted: impl Fn(&changelog::Entry) -> bool,
) -> Result<Vec<changelog::Entry>, ProtectError> {
    let (mut found, now) = (Vec::new(), vault.clock.now());
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = vault.changelog.entries(after.as_deref(), changelog::MAX_PAGE)?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.path.clone());
        found.extend(page.into_iter().filter(|entry| entry.due > now && is_wanted(entry)));
    }
}

/// Converts a result of the scan to an entry of the changelog that is due now.
fn change(found: &ScannedChange, now: Timestamp) -> Change {
    // Due at once in a manual run; deletions first, since they make room.
    let removed = found.class == Class::Removed;
    change_at(found, When::now(now, if removed { u8::MAX } else { found.priority }))
}

/// Converts a result of the scan to an entry of the changelog with the given times.
pub(crate) fn change_at(found: &ScannedChange, when: When) -> Change {
    match (found.class, &found.from) {
        (Class::Moved, Some(from)) => Change::rename(from.clone(), found.path.clone(), when),
        (Class::Removed, _) => Change::delete(found.path.clone(), when),
        _ => Change::modify_whole(found.path.clone(), when),
    }
}
