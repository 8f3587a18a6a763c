//! Rebuild of a pool: columns on lost or retired targets are reconstructed or copied to other targets.
//!
//! The work follows from stubs and headers, so no progress has to be stored: a run that is killed is continued by the
//! next one. The most exposed files come first. Lost targets are *given up* first: when one returns, nothing on it
//! counts until a rebuild has verified it and removed what was reconstructed elsewhere.

mod balancing;
mod clearing;
mod conclusion;
mod file;
mod forgetting;
pub mod layouts;
mod planning;
mod report;
mod shared;
pub mod survey;

pub use balancing::{BalanceReport, TargetFill, balance};
pub use file::{FileError, FileResult};
pub use forgetting::forget;
pub use planning::{Plan, PlannedFile};
pub use report::RebuildReport;
pub(crate) use shared::{REBUILD, help};

use crate::catalogue::{CatalogueError, Entry, State};
use crate::coder::Coders;
use crate::damage::{damage_report, remaining_redundancy};
use crate::display_path::DisplayPath;
use crate::examine::{ExamineOptions, ProtectedFile, examine};
use crate::retry::{Retry, Retryable};
use crate::run::RunContext;
use crate::storage::TargetState;
use crate::storage::pool::config::{MemberState, TargetName};
use crate::storage::pool::{Pool, PoolError};
use crate::vault::Vault;
use crate::watchdog::{Policy, TooMany, agreement};
use conclusion::{finish, record_moved};
use file::Rebuilder;
use planning::make_plan;
use shared::rebuild_files;
use std::collections::BTreeSet;
use std::time::Duration;
use survey::{FileHealth, TargetStates, each_file, survey};

/// Share of lost targets, in percent, beyond which the user must confirm.
pub const DEFAULT_SHARE: u8 = 50;

/// Scope of a rebuild, and the user's confirmation.
#[derive(Debug, Clone, Default)]
pub struct RebuildOptions {
    /// Only these targets; if empty, all that are lost, retired or returned. A named target in service is verified.
    pub targets: Vec<String>,
    /// Digest that the user confirmed: see [`agreement`].
    pub agreed: Option<String>,
    /// Also columns without bytes move, so that no file names the targets any more and they can be [forgotten](forget).
    pub release: bool,
}

impl RebuildOptions {
    fn includes(&self, name: &TargetName) -> bool {
        self.targets.is_empty() || self.targets.iter().any(|it| name == it)
    }
}

/// Why nothing was rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// Storage that is not a pool.
    #[error("only pools have targets to rebuild")]
    NoPool,
    /// Error of the pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Error of the catalogue.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// Targets are lost, or have to be verified.
    #[error("{} not in service: `gabion pool rebuild` comes first", .0.join(", "))]
    NotInService(Vec<TargetName>),
    /// Files have columns on a target that is to be removed from the pool.
    #[error(
        "target {target} cannot be removed from the pool: {files} files have columns on it, such as {}. \
         `gabion pool rebuild` restores what redundancy can; lost files have to be restored from a backup, or removed with \
         `gabion pool rm`",
        DisplayPath::bytes(.first)
    )]
    Needed {
        /// The target.
        target: TargetName,
        /// Number of files.
        files: u64,
        /// One of them.
        first: Vec<u8>,
    },
    /// So many targets are lost that the user must confirm.
    #[error("{why}: {}. Check whether they are only disconnected; if they are lost, confirm exactly these with: {agreement}", .gone.join(", "))]
    Ask {
        /// Reason.
        why: TooMany,
        /// Lost targets.
        gone: Vec<TargetName>,
        /// Digest to confirm.
        agreement: String,
    },
}

/// Checks whether so many targets are lost that the user must confirm.
///
/// # Errors
/// [`RebuildError::Ask`].
pub fn check_mass_failure(pool: &Pool, coders: &Coders, agreed: Option<&str>) -> Result<(), RebuildError> {
    let config = pool.config();
    let serving: BTreeSet<&TargetName> = config
        .target
        .iter()
        .filter(|member| member.state != MemberState::Retired)
        .map(|member| &member.name)
        .collect();
    let gone = TargetStates::of(pool).in_state(TargetState::Offline);
    let mut gone: Vec<TargetName> = gone.into_iter().filter(|name| serving.contains(name)).collect();
    let policy = Policy { delay: Duration::ZERO, redundancy: config.redundancy, share: DEFAULT_SHARE };
    if policy.too_many(gone.len(), serving.len()).is_some() {
        // Targets that were given up and that no file misses any more are no risk.
        let mut missed = BTreeSet::new();
        let target_states = TargetStates::of(pool);
        each_file(pool, &mut |path, stub| {
            match stub.map(|stub| survey(pool, coders, &target_states, &path, &stub)) {
                Ok(Ok(found)) => missed.extend(found.targets),
                // It may miss any of them.
                Ok(Err(_)) => missed.extend(gone.iter().cloned()),
                Err(_) => {}
            }
        })?;
        let away = |name: &TargetName| {
            config.target.iter().any(|member| member.name == *name && member.state == MemberState::Away)
        };
        gone.retain(|name| !away(name) || missed.contains(name));
    }
    let Some(why) = policy.too_many(gone.len(), serving.len()) else { return Ok(()) };
    let agreement = agreement(&config.pool, &gone);
    match agreed == Some(agreement.as_str()) {
        true => Ok(()),
        false => Err(RebuildError::Ask { why, gone, agreement }),
    }
}

/// Plans a rebuild without changing anything.
///
/// # Errors
/// See [`RebuildError`].
pub fn plan(vault: &Vault, options: &RebuildOptions, context: RunContext<'_>) -> Result<Plan, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    let behind = pool.outdated_targets();
    let mut plan = make_plan(vault, pool, options, context)?;
    // These are verified by a real run as well.
    plan.returned.extend(behind);
    Ok(plan)
}

/// Gives up lost targets, moves or reconstructs their columns and those of retired targets, and verifies returned
/// targets. The caller holds the lock of the vault.
///
/// # Errors
/// See [`RebuildError`]; errors of single files are in the report.
pub fn rebuild(
    vault: &Vault,
    options: &RebuildOptions,
    context: RunContext<'_>,
) -> Result<RebuildReport, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    check_mass_failure(pool, &vault.coders, options.agreed.as_deref())?;
    let mut report = RebuildReport::default();
    give_up_targets(pool, options)?;
    report.healed = pool.heal()?;
    pool.relocate_all_former_redundancy(&vault.coders)?;
    report.swept = pool.sweep(true)?.orphans.len() as u64;
    report.plan = make_plan(vault, pool, options, context)?;
    run_plan(vault, pool, &mut report, context)?;
    if report.can_place_more() {
        let first = report.start_second_round(make_plan(vault, pool, options, context)?);
        run_plan(vault, pool, &mut report, context)?;
        report.plan.append_to(first);
    }
    report.failed.sort_by(|a, b| (!a.1.is_loss(), &a.0).cmp(&(!b.1.is_loss(), &b.0)));
    Ok(report)
}

/// Executes the plan of a report.
fn run_plan(
    vault: &Vault,
    pool: &Pool,
    report: &mut RebuildReport,
    context: RunContext<'_>,
) -> Result<(), RebuildError> {
    rebuild_files(vault, pool, report, context)?;
    record_moved(pool, report)?;
    report.stopped = (context.stopped)();
    if !report.stopped {
        finish(vault, pool, report)?;
    }
    Ok(())
}

/// Gives up the targets whose content does not count.
fn give_up_targets(pool: &Pool, options: &RebuildOptions) -> Result<(), PoolError> {
    let config = pool.config();
    let target_states = TargetStates::of(pool);
    let mut doubtful = pool.outdated_targets();
    doubtful.extend(target_states.in_state(TargetState::Offline));
    doubtful.retain(|name| options.includes(name));
    // A named target in service is to be verified.
    for name in &options.targets {
        doubtful.push(pool.target(name)?);
    }
    let serving = |name: &TargetName| {
        config.target.iter().all(|member| member.name != *name || member.state == MemberState::Online)
    };
    doubtful.retain(serving);
    doubtful.sort();
    doubtful.dedup();
    if doubtful.is_empty() { Ok(()) } else { pool.give_up(&doubtful, options.agreed.is_some()) }
}

/// True if a file was being written, or kept changing.
fn is_busy(done: &Result<FileResult, FileError>) -> bool {
    done.as_ref().is_err_and(|error| error.retry() == Retry::Now)
}

/// Rebuilds one file, again if it changed meanwhile.
fn rebuild_file(
    rebuilder: &Rebuilder<'_>,
    path: &[u8],
    code: Option<&str>,
    threads: usize,
) -> Result<FileResult, FileError> {
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match rebuilder.file(path, code, threads) {
            Err(FileError::Pool(PoolError::Changed { .. })) if attempts > 0 => {}
            done => return done,
        }
    }
}

/// Records the result of a file.
fn record_result(
    vault: &Vault,
    rebuilder: &Rebuilder<'_>,
    item: &PlannedFile,
    done: Result<FileResult, FileError>,
    report: &mut RebuildReport,
) -> Result<(), CatalogueError> {
    let path = &item.path;
    let done = match done {
        Ok(done) => done,
        Err(FileError::Stopped) => return Ok(()),
        // The writer has already placed it on suitable targets.
        busy if is_busy(&busy) && rebuilder.health(path).is_ok_and(|it| it <= FileHealth::Pending) => {
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
    report.unverified.extend(done.retained.iter().cloned());
    if done.unmoved > 0 {
        report.unmoved.push((path.clone(), done.unmoved));
    }
    // The catalogue may know another, moved file by this name.
    let known = vault.catalogue.find(path)?.filter(|entry| entry.generation.inode == item.id.inode());
    let (Some(remaining), Some(entry)) = (done.remaining_redundancy(), known) else { return Ok(()) };
    let state = match entry.state {
        State::Protected | State::Degraded if remaining < entry.wanted => State::Degraded,
        State::Protected | State::Degraded => State::Protected,
        State::Damaged | State::Lost => {
            return reexamine_damaged(vault, path, Entry { columns: remaining, ..entry });
        }
    };
    vault.catalogue.put(path, &Entry { columns: remaining, state, ..entry })
}

/// Examines a rebuilt file that a scrub had found damaged, and records its state. The damage may have been the missing
/// columns, which are restored, or corruption elsewhere in the file, which stays.
fn reexamine_damaged(vault: &Vault, path: &[u8], entry: Entry) -> Result<(), CatalogueError> {
    let look = ExamineOptions::quiet(1, &|| false);
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
        // All blocks are available; a scrub must report what else is wrong.
        _ => catalogue.put(path, &Entry { state: State::Damaged, ..entry }),
    }
}
