//! Removal of a target from a pool, after a rebuild has moved or reconstructed everything that was on it.

use super::RebuildError;
use super::survey::{TargetStates, each_file, survey};
use crate::storage::pool::config::TargetName;
use crate::vault::Vault;

/// Removes a target that was given up or retired from the pool. Refused while a file has a column on it, or misses one
/// because of it. The caller holds the lock of the vault.
///
/// # Errors
/// See [`RebuildError`].
pub fn forget(vault: &Vault, target: &str) -> Result<TargetName, RebuildError> {
    let pool = vault.pool.as_ref().ok_or(RebuildError::NoPool)?;
    pool.probe();
    let target = pool.target(target)?;
    let states = TargetStates::of(pool);
    let (mut files, mut first, mut failed) = (0, None, None);
    each_file(pool, &mut |path, stub| match stub {
        Ok(stub) => {
            let found = survey(pool, &vault.coders, &states, &path, &stub);
            // A file that cannot be surveyed may need it.
            let needs = found.map_or(true, |found| found.targets.contains(&target));
            if needs || stub.targets.contains(&target) {
                files += 1;
                first.get_or_insert(path);
            }
        }
        Err(error) => failed = Some(error),
    })?;
    match (failed, first) {
        (Some(error), _) => Err(error.into()),
        (None, Some(first)) => Err(RebuildError::Needed { target, files, first }),
        (None, None) => Ok(pool.forget(&target)?),
    }
}
