//! Balancing: columns move from full targets to emptier ones, for example to one that was added.
//!
//! The goal is the same share of each target's room, which is what the pool has there plus what is free. A column moves
//! like one of a retired target: it is copied, verified and published before the old one is removed. Nothing is stored:
//! a run that is killed is continued by the next one.

use super::RebuildError;
use super::file::{FileError, Rebuilder};
use super::rebuild_file;
use super::survey::{TargetStates, each_file, parts};
use crate::host_limits::throttled;
use crate::retry::Retry;
use crate::retry::Retryable;
use crate::run::{Progress, RunContext};
use crate::storage::TargetState;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::stub::Stub;
use crate::storage::pool::{Pool, PoolError, occupied};
use crate::throttle::Throttle;
use crate::vault::Vault;
use crate::worker;
use std::collections::{BTreeMap, BTreeSet};

/// How full a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetFill {
    /// Its name.
    pub name: TargetName,
    /// Bytes that the pool occupies.
    pub used: u64,
    /// These and the free ones.
    pub room: u64,
    /// Bytes that it would occupy if all targets were equally full.
    pub goal: u64,
}

impl TargetFill {
    /// Bytes above the goal.
    fn excess(&self) -> i128 {
        i128::from(self.used) - i128::from(self.goal)
    }
}

/// Result of balancing.
#[derive(Debug, Default)]
pub struct BalanceReport {
    /// Targets before.
    pub before: Vec<TargetFill>,
    /// Bytes that have to move.
    pub planned: u64,
    /// Files of which a column moved.
    pub files: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// Files that could not be moved, with the error.
    pub failed: Vec<(Vec<u8>, FileError)>,
    /// The run was stopped.
    pub stopped: bool,
}

/// Moves columns until no target is fuller than the goal by more than `tolerance` percent of its room; with `dry`, only
/// says how full the targets are. The caller holds the lock of the vault.
///
/// # Errors
/// See [`RebuildError`]; errors of single files are in the report.
pub fn balance(
    vault: &Vault,
    tolerance: u8,
    dry: bool,
    context: RunContext<'_>,
) -> Result<BalanceReport, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    let states = TargetStates::of(pool);
    let mut wrong = states.in_state(TargetState::Offline);
    wrong.extend(states.in_state(TargetState::Returned));
    if !wrong.is_empty() {
        return Err(RebuildError::NotInService(wrong));
    }
    let before = fills(&states)?;
    let mut balancing = Balancing::new(&before, tolerance);
    let mut report = BalanceReport { planned: balancing.planned(), before, ..BalanceReport::default() };
    if dry || report.planned == 0 {
        return Ok(report);
    }
    let name = worker::unique_name().ok();
    throttled(vault, context, name.as_ref(), |throttle| {
        balancing.run((vault, pool, &states), &mut report, context, throttle)
    })?;
    report.stopped = (context.stopped)();
    Ok(report)
}

/// How full the targets in service are.
fn fills(states: &TargetStates) -> Result<Vec<TargetFill>, RebuildError> {
    let mut found = Vec::new();
    for name in states.in_state(TargetState::Online) {
        let Some(tree) = states.tree(&name) else { continue };
        let failed = |error| PoolError::target(&name, "measuring it")(error);
        let (used, free) = (occupied(tree).map_err(failed)?, tree.space().map_err(failed)?.0);
        found.push(TargetFill { name, used, room: used.saturating_add(free), goal: 0 });
    }
    let sum = |of: fn(&TargetFill) -> u64| found.iter().map(|it| u128::from(of(it))).sum::<u128>();
    let (used, room) = (sum(|it| it.used), sum(|it| it.room).max(1));
    for fill in &mut found {
        fill.goal = u64::try_from(used * u128::from(fill.room) / room).unwrap_or(u64::MAX);
    }
    Ok(found)
}

/// Bytes that targets have too many, or (negative) that they can still take.
struct Balancing {
    excess: BTreeMap<TargetName, i128>,
}

/// A column of a file.
struct Column {
    target: TargetName,
    bytes: u64,
}

impl Balancing {
    fn new(fills: &[TargetFill], tolerance: u8) -> Balancing {
        let excess = fills.iter().map(|fill| {
            let allowed = i128::from(fill.room) * i128::from(tolerance) / 100;
            let excess = fill.excess();
            // Within the tolerance a target neither gives nor takes more than to its goal.
            (fill.name.clone(), if (0..=allowed).contains(&excess) { 0 } else { excess })
        });
        Balancing { excess: excess.collect() }
    }

    /// Bytes to move.
    fn planned(&self) -> u64 {
        let bytes: i128 = self.excess.values().filter(|excess| **excess > 0).sum();
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// The column of a file that is best moved: on the target with the most excess. One that would make it emptier
    /// than its goal by more than it is fuller now stays.
    fn choose<'a>(&self, columns: &'a [Column]) -> Option<&'a Column> {
        let excess = |column: &Column| self.excess.get(&column.target).copied().unwrap_or(0);
        let fits = |column: &&Column| column.bytes > 0 && 2 * excess(column) > i128::from(column.bytes);
        columns.iter().filter(fits).max_by_key(|column| excess(column))
    }

    /// Targets that can take nothing of this size.
    fn excluded(&self, bytes: u64) -> BTreeSet<TargetName> {
        let full = self.excess.iter().filter(|(_, excess)| 2 * **excess + i128::from(bytes) > 0);
        full.map(|(name, _)| name.clone()).collect()
    }

    fn run(
        &mut self,
        (vault, pool, states): (&Vault, &Pool, &TargetStates),
        report: &mut BalanceReport,
        context: RunContext<'_>,
        throttle: &Throttle<'_>,
    ) -> Result<(), PoolError> {
        (context.progress)(Progress::Step("balancing", Some((0, report.planned))));
        let progress = |read: u64, done: u64| {
            throttle.take(read);
            (context.progress)(Progress::Done(0, done));
        };
        // Reading the namespace and changing it take turns.
        let mut files = Vec::new();
        each_file(pool, &mut |path, stub| files.extend(stub.is_ok().then_some(path)))?;
        for path in files {
            if (context.stopped)() || self.planned() == 0 {
                break;
            }
            let columns_of = |stub: &Stub| columns(vault, pool, states, &path, stub);
            // A file that vanished, or whose redundancy cannot be identified, stays as it is.
            let Ok(stub) = pool.stub(&path) else { continue };
            let Some(before) = columns_of(&stub) else { continue };
            let Some(Column { target, bytes }) = self.choose(&before) else { continue };
            let rebuilder = Rebuilder {
                pool,
                coders: &vault.coders,
                clock: &vault.clock,
                target_states: states.with(target, TargetState::Retired),
                excluded: self.excluded(*bytes),
                progress: &progress,
                stopped: context.stopped,
            };
            match rebuild_file(&rebuilder, &path, None, context.threads) {
                Ok(_) => {}
                Err(FileError::Stopped) => break,
                // It is being written: the next run tries again.
                Err(error) if error.retry() == Retry::Now => continue,
                Err(FileError::Pool(error)) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => {
                    report.failed.push((path, error));
                    continue;
                }
            }
            let Some(after) = pool.stub(&path).ok().and_then(|stub| columns_of(&stub)) else { continue };
            let moved = self.count(&before, &after);
            report.files += u64::from(moved > 0);
            report.bytes += moved;
        }
        Ok(())
    }

    /// Counts what moved; gives its bytes.
    fn count(&mut self, before: &[Column], after: &[Column]) -> u64 {
        let mut moved = 0;
        for (columns, sign) in [(before, -1), (after, 1)] {
            for column in columns {
                *self.excess.entry(column.target.clone()).or_default() += sign * i128::from(column.bytes);
            }
        }
        for column in after.iter().filter(|it| before.iter().all(|other| other.target != it.target)) {
            moved += column.bytes;
        }
        moved
    }
}

/// Columns of a file with their targets; none if its redundancy cannot be identified.
fn columns(
    vault: &Vault,
    pool: &Pool,
    states: &TargetStates,
    path: &[u8],
    stub: &Stub,
) -> Option<Vec<Column>> {
    let data = stub.targets.iter().enumerate();
    let data = data.map(|(column, target)| Column {
        target: target.clone(),
        bytes: stub.object_bytes(column, stub.size),
    });
    let found = parts(pool, &vault.coders, states, path, stub).ok()?;
    let redundancy = found
        .current
        .iter()
        .map(|(target, part)| Column { target: target.clone(), bytes: part.records.file() });
    Some(data.chain(redundancy).collect())
}
