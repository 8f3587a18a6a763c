//! Brings the redundancy of a whole tree up to date: scan, guard, changelog, workers.

pub(crate) mod renamed;

use crate::catalogue::{CatalogueError, Change as Found, Class, State};
use crate::changelog::{self, Change, When};
use crate::coder::Coders;
use crate::displaced::{self, Awaited};
use crate::examine::{self, ExamineError, Subject};
use crate::format::header::Version;
use crate::guard::{self, GuardError, Held};
use crate::missing;
use crate::redundancy::REDUNDANCY;
use crate::run::{Progress, RunContext};
use crate::scan::{ScanError, Scanner, Seen};
use crate::throttle::Throttle;
use crate::tree;
use crate::vault::Vault;
use crate::worker::{self, Admission, Done, Judged, Known, Scanned, WorkError, Worker};
use crate::world::{Nanos, unique_id};
use crate::write_once;
use std::collections::BTreeSet;

/// What a run did.
#[derive(Debug)]
pub struct Report {
    /// What was seen.
    pub seen: Seen,
    /// What was done.
    pub done: Done,
    /// Changes that wait for an approval.
    pub held: Option<Held>,
    /// Changes that are still due afterwards: those of files that failed, and what others recorded meanwhile.
    pub pending: u64,
    /// Files that are known to be damaged, degraded or lost, by state; those of a pool by which targets answer now.
    pub affected: Vec<(State, u64)>,
    /// Why mirrors of a pool's namespace that missed changes could not be brought up to date.
    pub unhealed: Vec<String>,
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ProtectError {
    /// Looking at the tree failed.
    #[error(transparent)]
    Scan(#[from] ScanError),
    /// The guard cannot say.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// Working failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The catalogue fails.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The changelog fails.
    #[error("the changelog: {0}")]
    Changelog(#[from] changelog::Error),
    /// The operating system refuses.
    #[error("the repository: {0}")]
    Io(#[from] std::io::Error),
}

/// Looks at the tree; the change-set is in the catalogue afterwards.
///
/// # Errors
/// See [`ScanError`].
pub fn scan(vault: &Vault, context: RunContext<'_>) -> Result<Seen, ScanError> {
    scan_within(vault, &[Vec::new()], context)
}

/// Looks at parts of the tree; the change-set of these is in the catalogue afterwards.
///
/// # Errors
/// See [`ScanError`].
pub fn scan_within(vault: &Vault, within: &[Vec<u8>], context: RunContext<'_>) -> Result<Seen, ScanError> {
    look(vault, within, None, context)
}

/// Says in the catalogue that all redundancy is of the newest version of the format.
const FORMAT: &str = "redundancy format";

/// Looks at everything, and at the version of redundancy until all of it is of the newest one.
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
    let seen = look(vault, &[Vec::new()], Some(&vault.coders), context)?;
    // What is damaged is not looked at before it is repaired, and what the catalogue did not know not before the next run.
    let is_all = seen.known > 0 && seen.unreadable.is_empty() && vault.catalogue.affected()?.is_empty();
    if seen.outdated == 0 && is_all {
        vault.catalogue.set_note(FORMAT, Some(&newest))?;
    }
    Ok(seen)
}

/// Whether a vault of a directory has no redundancy at all, as when it is new. A pool may have some on targets that do not answer.
fn has_no_redundancy(vault: &Vault) -> bool {
    let is_empty = |tree: &tree::Tree, top: &[u8]| {
        let names = tree::absent_is_none(tree.directory(top).and_then(|directory| directory.names()));
        names.is_ok_and(|names| names.is_none_or(|names| names.get(0).is_none()))
    };
    let tops = [REDUNDANCY, displaced::DISPLACED];
    !vault.storage.keeps_by_identity()
        && vault.storage.repositories().iter().all(|it| tops.iter().all(|top| is_empty(&it.tree, top)))
}

fn look(
    vault: &Vault,
    within: &[Vec<u8>],
    renews: Option<&Coders>,
    context: RunContext<'_>,
) -> Result<Seen, ScanError> {
    (context.progress)(Progress::Step("looking", None));
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
    if guard::depends_on_restored(&vault.catalogue, &vault.policy.guard, seen.known, vault.clock.now())? {
        look_at_restored(vault, context)?;
        seen.changes = vault.catalogue.count_changes()?;
    }
    Ok(seen)
}

/// Looks into files that have the size and the time of what was protected and are other files: whoever encrypts a tree can give
/// all of them their old times. What differs is changed, and counts for guards.
fn look_at_restored(vault: &Vault, context: RunContext<'_>) -> Result<(), ScanError> {
    (context.progress)(Progress::Step("comparing", None));
    let throttle = Throttle::new(context.rate.or(vault.policy.rate));
    let RunContext { threads, stopped, .. } = context;
    let progress = |bytes: u64| throttle.take(bytes);
    let look = examine::ExamineOptions { threads, from_medium: false, progress: &progress, stopped };
    vault.catalogue.each_change(Class::Restored, |page| -> Result<(), ScanError> {
        for found in page {
            let subject = Subject::open(&*vault.storage, &vault.coders, &found.path);
            match subject.and_then(|subject| examine::examine(&subject, look)) {
                Ok(findings) if findings.has_bad_data() => {
                    vault.catalogue.reclassify(&found.path, Class::Restored, Class::Changed)?;
                }
                Err(ExamineError::Stopped) => return Err(ScanError::Stopped),
                // Where nothing can be compared there is nothing to hold either.
                _ => {}
            }
            (context.progress)(Progress::Done(1, 0));
        }
        Ok(())
    })
}

/// What the guard says of the last scan, and would say of one that finds the same.
///
/// # Errors
/// See [`GuardError`].
pub fn would_hold(vault: &Vault, seen: &Seen) -> Result<Option<Held>, GuardError> {
    let now = vault.clock.now();
    guard::check(&vault.catalogue, &vault.policy.guard, seen.known, seen.is_nothing(), &vault.repository, now)
}

/// What the guard says of the last scan. What it holds is noted: files that are others at the next look are restless.
///
/// # Errors
/// See [`GuardError`].
pub fn held(vault: &Vault, seen: &Seen) -> Result<Option<Held>, GuardError> {
    if would_hold(vault, seen)?.is_none() {
        return Ok(None);
    }
    vault.catalogue.note_held()?;
    would_hold(vault, seen)
}

/// What an approval of a change-set would find.
#[derive(Debug)]
pub enum Approval {
    /// It is the one that is held now.
    Held(Held),
    /// It was approved before, and not carried out yet.
    Given,
    /// This one is held instead.
    Other(Held),
    /// Nothing is held.
    Nothing,
}

/// Looks whether a change-set is the one that is held now: then [`guard::approve`] releases it. What is held now is noted, unless
/// nobody wants to change anything (`dry`).
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
    let held = if dry { would_hold(vault, &seen) } else { held(vault, &seen) };
    Ok(match held? {
        Some(held) if held.digest == *digest => Approval::Held(held),
        Some(held) => Approval::Other(held),
        None if guard::is_approved(&vault.repository, digest)? => Approval::Given,
        None => Approval::Nothing,
    })
}

/// Brings mirrors of a pool's namespace up to date that missed changes while their targets were away and that answer again. Until then every change
/// of names lies on fewer targets than the pool has promised, so that the loss of one could take it. Says what failed: the next run tries again,
/// and files can be protected all the same.
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

/// Protects everything that is not. The caller has the vault for himself.
///
/// # Errors
/// See [`ProtectError`].
pub fn protect(vault: &Vault, context: RunContext<'_>) -> Result<Report, ProtectError> {
    let unhealed = heal_mirrors(vault);
    let began = vault.clock.now();
    hasten(vault)?;
    // What someone records while we look may not have been seen.
    let scanned = Scanned::whole(vault.changelog.sequence()?);
    worker::recover(&*vault.storage, &vault.coders, &vault.catalogue)?;
    let seen = scan_and_renew(vault, context)?;
    write_once::note(&vault.catalogue, &seen.write_once)?;
    let held = held(vault, &seen)?;
    if held.is_none() {
        renamed::follow(vault)?;
    }
    let order = order(held.is_some());
    // What is only moved or removed is not read.
    let bytes = order.iter().filter(|class| !matches!(class, Class::Moved | Class::Removed));
    let bytes = bytes.map(|&class| seen.changes.of(class).1).sum();
    let files = order.iter().map(|&class| seen.changes.of(class).0).sum();
    (context.progress)(Progress::Step("protecting", Some((files, bytes))));
    // Someone has looked at this change-set: copies with other content are meant.
    let approved = held.is_none() && guard::is_any_approved(&vault.repository);
    // What the scan let pass is recorded by us. Others may record more.
    let judged = if approved { Judged::Approved } else { Judged::Passed };
    let admission = held.is_none().then(|| admission(vault, judged)).transpose()?;
    let terms = Terms { approved, hold: held.is_some(), ..Terms::by_hand(&scanned) };
    let done =
        with_worker(vault, context, terms, |worker| carry_out(vault, &order, worker, admission.as_ref()))?;
    if held.is_none() {
        guard::clear(&vault.repository, &vault.catalogue, &vault.policy.guard, vault.clock.now())?;
    }
    if [Class::Removed, Class::Moved].iter().any(|&class| seen.changes.of(class).0 > 0) {
        vault.catalogue.forget_empty_directories()?;
    }
    // What cannot be removed now is counted by status, and removed by a later run.
    let _ = vault.purge_replaced();
    vault.catalogue.set_note("last protect", Some(&vault.clock.now().to_string()))?;
    let pending = vault.changelog.pending()?.entries();
    let is_all = pending == 0 && held.is_none() && done.failures == 0 && seen.unreadable.is_empty();
    purge_displaced(vault, if is_all { Awaited::ByNobody(began) } else { Awaited::Likely });
    Ok(Report { seen, done, held, pending, affected: missing::affected(vault)?, unhealed })
}

/// Removes redundancy that was set aside and that no file will ask for. What cannot be removed now is removed by a later run.
pub(crate) fn purge_displaced(vault: &Vault, awaited: Awaited) {
    if vault.storage.keeps_by_identity() {
        return;
    }
    for repository in vault.storage.writable_repositories() {
        let _ = displaced::purge(&repository, &vault.coders, &vault.catalogue, awaited, vault.clock.now());
    }
}

/// Works off what is due, beside others if there are any.
///
/// # Errors
/// See [`WorkError`].
pub fn work(vault: &Vault, context: RunContext<'_>) -> Result<Done, WorkError> {
    let scanned = Scanned::default();
    let run = |terms: Terms<'_>, admission: Option<&Admission<'_>>| {
        with_worker(vault, context, terms, |worker| worker.drain(Some(&vault.catalogue), admission))
    };
    let free = Terms::by_hand(&scanned);
    let done = run(free, Some(&admission(vault, Judged::No)?))?;
    // Known files wait for a scan and an approval. Files that are new do not.
    if !done.refused {
        return Ok(done);
    }
    Ok(done.and(run(Terms { hold: true, ..free }, None)?))
}

/// Counts what is pending against the bounds of the policy's guard.
pub(crate) fn admission(vault: &Vault, judged: Judged) -> Result<Admission<'_>, WorkError> {
    let Vault { storage, catalogue, changelog, policy, clock, .. } = vault;
    let known = Known { storage: &**storage, catalogue, changelog: &**changelog, guard: &policy.guard };
    Admission::new(known, judged, clock)
}

/// The classes of changes to carry out, in the order in which they happened, as far as that can be known: what is gone made
/// room for what is new.
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

/// What a worker has to know of those who sent it.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) scanned: &'a Scanned,
    pub(crate) hold: bool,
    pub(crate) retry: Nanos,
    pub(crate) links: bool,
    pub(crate) approved: bool,
}

impl<'a> Terms<'a> {
    fn by_hand(scanned: &'a Scanned) -> Terms<'a> {
        Terms { scanned, hold: false, retry: worker::RETRY, links: false, approved: false }
    }
}

pub(crate) fn with_worker<T, E: From<WorkError>>(
    vault: &Vault,
    context: RunContext<'_>,
    terms: Terms<'_>,
    work: impl FnOnce(&Worker<'_>) -> Result<T, E>,
) -> Result<T, E> {
    let throttle = Throttle::new(context.rate.or(vault.policy.rate));
    let progress = |files: u64, bytes: u64| {
        throttle.take(bytes);
        (context.progress)(Progress::Done(files, bytes));
    };
    let failed = |source| WorkError::Repository { path: vault.root.clone(), source };
    let id = unique_id().map_err(failed)?;
    if let Some(pool) = &vault.pool {
        pool.relocate_all_former_redundancy(&vault.coders).map_err(|error| failed(error.into()))?;
    }
    work(&Worker {
        storage: &*vault.storage,
        coders: &vault.coders,
        clock: &vault.clock,
        policy: &vault.policy,
        changelog: &*vault.changelog,
        threads: context.threads.max(1),
        scanned: terms.scanned,
        hold: terms.hold,
        retry: terms.retry,
        links: terms.links,
        approved: terms.approved,
        name: worker::name(u32::from_le_bytes([id[0], id[1], id[2], id[3]])),
        progress: &progress,
        stopped: context.stopped,
    })
}

/// Changes that are recorded before they are worked off: what is pending stays small, however large the tree.
const SLICE: usize = 32_768;

/// Tells the changelog what the scan found, and works it off.
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
                done = std::mem::take(&mut done).and(worker.drain(Some(&vault.catalogue), admission)?);
            }
            Ok(())
        })?;
    }
    done = done.and(worker.drain_all(Some(&vault.catalogue), admission)?);
    if order.contains(&Class::Removed) {
        let now = vault.clock.now();
        let gone =
            absent_that_wait(vault)?.into_iter().map(|path| Change::delete(path, When::now(now, u8::MAX)));
        let gone: Vec<Change> = gone.collect();
        if !gone.is_empty() {
            vault.changelog.record(&gone)?;
            done = done.and(worker.drain_all(Some(&vault.catalogue), admission)?);
        }
    }
    Ok(done)
}

/// What someone who watches waits for word of, because it is absent: the scan has found all that has other names now, so the rest is gone.
fn absent_that_wait(vault: &Vault) -> Result<Vec<Vec<u8>>, ProtectError> {
    let waits = |entry: &changelog::Entry| {
        let absent = || matches!(vault.storage.find(&entry.path), Ok(None));
        entry.kind != changelog::Kind::Delete && entry.attempts > 0 && absent()
    };
    Ok(put_off(vault, waits)?.into_iter().map(|entry| entry.path).collect())
}

/// Files that were moved and could not be seen to. A further move leaves their time alone, but who protects by hand does not
/// want to wait for it.
fn moves_that_wait(vault: &Vault) -> Result<BTreeSet<Vec<u8>>, ProtectError> {
    let failed = |entry: &changelog::Entry| entry.kind == changelog::Kind::Move && entry.attempts > 0;
    Ok(put_off(vault, failed)?.into_iter().map(|entry| entry.path).collect())
}

/// Makes due at once what a worker put off: a file that could not be protected a moment ago, or a gap that only a scan closes. The scan records no change of a file
/// that is as it was protected by now, and what was put off would still be pending when everything is protected. Call it before the scan, which then
/// covers these gaps.
fn hasten(vault: &Vault) -> Result<(), ProtectError> {
    use changelog::Kind;
    let waits = |entry: &changelog::Entry| entry.attempts > 0 && entry.token.is_none();
    let now = vault.clock.now();
    let again = |entry: changelog::Entry| {
        let when = When::now(now, entry.priority);
        let found = vault.storage.find(&entry.path).ok().flatten().map(|stat| stat.kind);
        match (entry.kind, found) {
            (Kind::Modify, Some(tree::Kind::File)) => Some(Change::modify_whole(entry.path, when)),
            // The entry keeps the name from which a directory was moved.
            (Kind::Gap, _) | (Kind::Move, Some(tree::Kind::Directory)) => Some(Change::gap(entry.path, when)),
            _ => None,
        }
    };
    let changes: Vec<Change> = put_off(vault, waits)?.into_iter().filter_map(again).collect();
    if !changes.is_empty() {
        vault.changelog.record(&changes)?;
    }
    Ok(())
}

/// Entries that are not due yet and are such as is asked for.
fn put_off(
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

/// What the scan found, as the changelog has it.
fn change(found: &Found, now: Nanos) -> Change {
    // Asked for by hand, so due at once; what makes room goes first.
    let removed = found.class == Class::Removed;
    change_at(found, When::now(now, if removed { u8::MAX } else { found.priority }))
}

/// What the scan found, as the changelog has it, with other times.
pub(crate) fn change_at(found: &Found, when: When) -> Change {
    match (found.class, &found.from) {
        (Class::Moved, Some(from)) => Change::rename(from.clone(), found.path.clone(), when),
        (Class::Removed, _) => Change::delete(found.path.clone(), when),
        _ => Change::modify_whole(found.path.clone(), when),
    }
}
