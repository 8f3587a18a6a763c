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
    for target in &settled {
        report.removed += forget_strangers(pool, target)?;
    }
    if !settled.is_empty() {
        pool.take_back(&settled)?;
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
