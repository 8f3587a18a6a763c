//! What is left to do when all files have been looked at.

use super::survey::each_file;
use super::{FileError, RebuildError, Report};
use crate::format::FileId;
use crate::storage::pool::{Pool, PoolError};
use crate::vault::Vault;
use std::collections::{BTreeSet, HashMap};

/// Names files that got other names while they were rebuilt: what is missing of them still is, and their redundancy has to follow
/// them first.
pub(super) fn name_moved(pool: &Pool, report: &mut Report) -> Result<(), PoolError> {
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

/// Takes targets back on which everything has been looked at, and clears from them what belongs to nothing any more.
pub(super) fn conclude(vault: &Vault, pool: &Pool, report: &mut Report) -> Result<(), RebuildError> {
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
    if !settled.is_empty() {
        pool.reinstate(&settled)?;
        report.taken_back.extend(settled);
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
