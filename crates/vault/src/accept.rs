//! Acceptance of changed write-once files by a person.

use crate::changelog::{Change, When};
use crate::protect::{ProtectError, scan};
use crate::run::RunContext;
use crate::tree::{Kind, is_below};
use crate::vault::Vault;

/// Changed write-once files at and below a path, found by a scan.
///
/// # Errors
/// See [`ProtectError`].
pub fn changed(vault: &Vault, below: &[u8], context: RunContext<'_>) -> Result<Vec<Vec<u8>>, ProtectError> {
    let mut paths = scan(vault, context)?.write_once;
    paths.retain(|path| is_below(path, below));
    Ok(paths)
}

/// Accepts the present versions of changed write-once files, so that they are protected next. A file that changes again
/// is reported again. Returns the accepted paths.
///
/// # Errors
/// See [`ProtectError`].
pub fn accept(vault: &Vault, paths: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, ProtectError> {
    let now = vault.clock.now();
    let (mut accepted, mut changes) = (Vec::new(), Vec::new());
    for path in paths {
        let Some(stat) = vault.storage.find(path)?.filter(|stat| stat.kind == Kind::File) else { continue };
        vault.catalogue.accept(path, &stat.generation())?;
        let decision = vault.policy.decide(path, &stat, now);
        let priority = decision.treatment.map_or(vault.policy.default.priority, |it| it.priority);
        changes.push(Change::modify_whole(path.clone(), When::now(now, priority)));
        accepted.push(path.clone());
    }
    if !changes.is_empty() {
        vault.changelog.record(&changes)?;
    }
    Ok(accepted)
}
