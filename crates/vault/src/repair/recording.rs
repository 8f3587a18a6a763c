//! Catalogue updates for files that need no repair or cannot be repaired.

use super::{RepairError, Repaired};
use crate::catalogue::{CatalogueError, Entry, Piece, State};
use crate::examine::ExamineError;
use crate::scrub::record_unprotected;
use crate::vault::Vault;

/// Records that a file is intact.
pub(super) fn note_right(
    vault: &Vault,
    path: &[u8],
    mut entry: Entry,
    remaining: u32,
) -> Result<(), CatalogueError> {
    entry.state = State::Protected;
    entry.columns = remaining;
    vault.catalogue.together(|| {
        vault.catalogue.put(path, &entry)?;
        vault.catalogue.set_problems(path, &[], vault.clock.now())
    })
}

/// Handles a file without usable redundancy: unreadable data is lost; otherwise the file only has to be protected.
pub(super) fn without_redundancy(
    vault: &Vault,
    path: &[u8],
    why: ExamineError,
) -> Result<Repaired, RepairError> {
    let Some(entry) = vault.catalogue.find(path)? else { return Err(why.into()) };
    let found = record_unprotected(vault, path.to_vec(), entry, &why)?;
    let lost = found.problems.into_iter().filter(|problem| problem.piece == Piece::Lost);
    let lost = lost.map(|problem| problem.range).collect();
    let notes = vec![why.to_string(), "redundancy is made again by `gabion protect`".to_owned()];
    Ok(Repaired { state: found.state, lost, notes, ..Repaired::new(path) })
}
