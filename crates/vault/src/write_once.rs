//! Write-once files: a change of their content is damage until a person accepts it.
//!
//! A `write_once` rule is applied to the protected version as well as to the present one. Otherwise a rule about age or
//! size (`older`, `larger`) would stop to match with the very change that it forbids.

use crate::catalogue::{Catalogue, CatalogueError, Entry, State};
use crate::policy::Policy;
use crate::tree::Stat;
use crate::world::Timestamp;

/// True if the content of a protected file changed although a rule makes the file write-once, and no person accepted
/// this version.
///
/// # Errors
/// The catalogue fails.
pub(crate) fn is_violated(
    catalogue: &Catalogue,
    policy: &Policy,
    path: &[u8],
    known: &Entry,
    stat: &Stat,
    now: Timestamp,
) -> Result<bool, CatalogueError> {
    if !known.is_another_version(stat) {
        return Ok(false);
    }
    let before = Stat { size: known.generation.size, mtime: known.generation.mtime, ..*stat };
    let is_once = |stat: &Stat| policy.decide(path, stat, now).treatment.is_some_and(|it| it.write_once);
    Ok((is_once(stat) || is_once(&before)) && !catalogue.is_accepted(path, &stat.generation())?)
}

/// Records changed write-once files as damaged, so that commands that do not scan report them too.
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
