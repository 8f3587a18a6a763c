//! Write-once files: a change of their content is damage until a person accepts it.
//!
//! A rule with `write_once` holds for the version that is protected as well as for the one that is there now. A rule about age or size (`older`,
//! `larger`) would otherwise stop to apply with the very change that it forbids.

use crate::catalogue::{Catalogue, CatalogueError, Entry, State};
use crate::changelog::{Change, When};
use crate::policy::Policy;
use crate::protect::{Manner, ProtectError, scan};
use crate::status::is_below;
use crate::tree::{Kind, Stat};
use crate::vault::Vault;
use crate::worker::is_another_version;
use crate::world::Nanos;

/// True if the content of a protected file changed although a rule makes the file write-once, and no person accepted this version.
///
/// # Errors
/// The catalogue fails.
pub(crate) fn is_violated(
    catalogue: &Catalogue,
    policy: &Policy,
    path: &[u8],
    known: &Entry,
    stat: &Stat,
    now: Nanos,
) -> Result<bool, CatalogueError> {
    if !is_another_version(known, stat) {
        return Ok(false);
    }
    let before = Stat { size: known.generation.size, mtime: known.generation.mtime, ..*stat };
    let is_once = |stat: &Stat| policy.decide(path, stat, now).treatment.is_some_and(|it| it.write_once);
    Ok((is_once(stat) || is_once(&before)) && !catalogue.is_accepted(path, &stat.generation())?)
}

/// Records changed write-once files as damaged, so that every later look finds them, also one that does not scan.
///
/// # Errors
/// The catalogue fails.
pub(crate) fn note(catalogue: &Catalogue, paths: &[Vec<u8>]) -> Result<(), CatalogueError> {
    if paths.is_empty() {
        return Ok(());
    }
    catalogue.together(|| {
        for path in paths {
            if let Some(entry) = catalogue.find(path)?.filter(|entry| entry.state < State::Damaged) {
                catalogue.put(path, &Entry { state: State::Damaged, ..entry })?;
            }
        }
        Ok(())
    })
}

/// Changed write-once files at and below a path, as a scan finds them.
///
/// # Errors
/// See [`ProtectError`].
pub fn changed(vault: &Vault, below: &[u8], manner: Manner<'_>) -> Result<Vec<Vec<u8>>, ProtectError> {
    let mut paths = scan(vault, manner)?.write_once;
    paths.retain(|path| is_below(path, below));
    Ok(paths)
}

/// Accepts the present versions of changed write-once files: they are due at once, for whoever protects next. A file that changes again is
/// reported again. Gives those that were accepted.
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
