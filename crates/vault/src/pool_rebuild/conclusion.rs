//! Final steps of a rebuild, after all files were processed.

use super::survey::each_file;
use super::{FileError, RebuildError, RebuildReport};
use crate::format::FileId;
use crate::storage::pool::config::TargetName;
use crate::storage::pool::{Pool, PoolError};
use crate::vault::Vault;
use std::collections::{BTreeSet, HashMap};

/// Reports files that were renamed during the rebuild: their missing columns still are, and their redundancy has to
/// follow them first.
pub(super) fn record_moved(pool: &Pool, report: &mut RebuildReport) -> Result<(), PoolError> {
    if report.vanished.is_empty() {
        return Ok(());
    }
    let planned: BTreeSet<&Vec<u8>> = report.plan.files.iter().map(|item| &item.path).collect();
    let vanished: HashMap<FileId, &Vec<u8>> = report.vanished.iter().map(|(path, id)| (*id, path)).collect();
    let mut moved = Vec::new();
    each_file(pool, &mut |path, stub| {
        let old = stub.ok().and_then(|stub| vanished.get(&stub.id));
        if let Some(old) = old.filter(|_| !planned.contains(&path)) {
            moved.push(((*old).clone(), FileError::Moved(path)));
        }
    })?;
    report.failed.extend(moved);
    Ok(())
}

/// Returns verified targets to service, and removes unreferenced files from them.
pub(super) fn finish(vault: &Vault, pool: &Pool, report: &mut RebuildReport) -> Result<(), RebuildError> {
    let returned = report.plan.returned.clone();
    let unverified = |name: &TargetName| {
        let failed = report.failed.iter().map(|(path, _)| path);
        let failed: BTreeSet<&Vec<u8>> = failed.collect();
        let items = report.plan.files.iter().filter(|item| failed.contains(&item.path));
        let missed = items.chain(&report.plan.lost).any(|item| item.targets.contains(name));
        missed || report.unverified.contains(name) || !report.plan.unreadable.is_empty()
    };
    let (kept, verified_targets): (Vec<TargetName>, Vec<TargetName>) =
        returned.into_iter().partition(unverified);
    drop(kept);
    if !verified_targets.is_empty() {
        pool.reinstate(&verified_targets)?;
        report.reinstated.extend(verified_targets);
        let healed = pool.heal()?;
        report.healed.written += healed.written;
        report.healed.removed += healed.removed;
        report.healed.mirrors.extend(healed.mirrors);
        report.healed.failed.extend(healed.failed);
        report.swept += pool.sweep(true)?.orphans.len() as u64;
    }
    vault.catalogue.set_time_note("last rebuild", vault.clock.now())?;
    Ok(())
}
