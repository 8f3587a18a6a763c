//! What is noted of files that need no repair, or that nothing can repair.

use super::{RepairError, Repaired};
use crate::catalogue::{CatalogueError, Entry, Piece, State};
use crate::examine::ExamineError;
use crate::scrub::note_bare;
use crate::vault::Vault;

/// Notes that a file is what was protected.
pub(super) fn note_right(
    vault: &Vault,
    path: &[u8],
    mut entry: Entry,
    margin: u32,
) -> Result<(), CatalogueError> {
    entry.state = State::Protected;
    entry.columns = margin;
    vault.catalogue.together(|| {
        vault.catalogue.put(path, &entry)?;
        vault.catalogue.set_problems(path, &[], vault.clock.now())
    })
}

/// There is nothing to repair a file from. What cannot be read of it is lost; otherwise it only has to be protected.
pub(super) fn without_redundancy(
    vault: &Vault,
    path: &[u8],
    why: ExamineError,
) -> Result<Repaired, RepairError> {
    let Some(entry) = vault.catalogue.find(path)? else { return Err(why.into()) };
    let found = note_bare(vault, path.to_vec(), entry, &why)?;
    let lost = found.problems.into_iter().filter(|problem| problem.piece == Piece::Lost);
    let lost = lost.map(|problem| problem.range).collect();
    let notes = vec![why.to_string(), "redundancy is made anew by `gabion protect`".to_owned()];
    Ok(Repaired { state: found.state, lost, notes, ..Repaired::new(path) })
}
