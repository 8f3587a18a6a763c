//! Adoption of redundancy that already exists for the present version of a file.

use super::{EncodeError, Encoded, Encoder, ParityFilePlan};
use crate::coder::Coder;
use crate::examine::{ExamineError, ProtectedFile};
use crate::format::{FileId, Header};
use crate::redundancy::Part;
use crate::tree::{Generation, Stat};
use crate::version::is_doubtful;
use crate::world::Timestamp;
use std::sync::Arc;

impl Encoder<'_> {
    /// Adopts the redundancy of a file that cannot be read completely, if it describes the present version: the file
    /// was renamed, or lost redundancy, while targets are offline. The available columns are counted. Returns none
    /// otherwise.
    pub(super) fn adopt_degraded(&self, path: &[u8]) -> Result<Option<Encoded>, EncodeError> {
        if !self.storage.keeps_by_identity() {
            return Ok(None);
        }
        let protected = match ProtectedFile::open(self.storage, self.coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(None),
            protected => protected?,
        };
        let (Some(content), Some(stat)) = (&protected.content, protected.stat) else { return Ok(None) };
        // Changed permissions have to be written to the headers, which happens once the file can be read.
        let metadata = content.metadata().map_err(EncodeError::read)?;
        if protected.is_changed() || metadata != protected.header.metadata {
            return Ok(None);
        }
        let header = &protected.header;
        let columns = (protected.columns(), header.code.m());
        let redundancy_bytes = protected.parts.iter().map(Part::bytes).sum();
        Ok(Some(adopted((header.id, stat, header.protected_at), header.coding(), columns, redundancy_bytes)))
    }
}

/// Adopts redundancy of this version that another process made, or that was made before the catalogue was lost. A
/// column without a placement may be on an offline target: it is complete again when the target returns, so rewriting
/// the others without it would gain nothing.
pub(super) fn adopt(
    parity_files: &[ParityFilePlan],
    coder: &Arc<Coder>,
    stat: &Stat,
    moved: bool,
) -> Option<Encoded> {
    let same = |was: &Header, now: &Header| {
        let renamed = Generation { ctime: now.generation.ctime, ..was.generation };
        let only_renamed = renamed == now.generation && was.metadata == now.metadata;
        !is_doubtful(was) && (was.generation == now.generation || (moved && only_renamed))
    };
    let first = parity_files.first()?.header.id;
    let fits = |parity_file: &ParityFilePlan| {
        let old = parity_file.old.as_ref()?;
        let whole = old.head_damage.is_none() && same(&old.header, &parity_file.header);
        // Older format versions are replaced.
        let whole = whole && old.header.version == parity_file.header.version;
        (whole && are_same_places(&old.header, &parity_file.header)).then_some(old.bytes())
    };
    let sizes: Option<Vec<u64>> = parity_files.iter().map(fits).collect();
    let olds = || parity_files.iter().filter_map(|parity_file| parity_file.old.as_ref());
    // Columns of different revisions are not combined.
    let revision = olds().map(|old| old.header.revision).max();
    if olds().any(|old| Some(old.header.revision) != revision) {
        return None;
    }
    let protected_at = olds().map(|old| old.header.protected_at).min()?;
    let columns =
        (parity_files.iter().map(|parity_file| parity_file.placement.columns).sum(), coder.code().m());
    Some(adopted((first, *stat, protected_at), coder.coding(), columns, sizes?.iter().sum()))
}

/// True if the columns are where they would be placed now. A column without a placement now may be in its old place.
fn are_same_places(was: &Header, now: &Header) -> bool {
    let same = |(was, now): (&Vec<u8>, &Vec<u8>)| now.is_empty() || was == now;
    was.targets.len() == now.targets.len() && was.targets.iter().zip(&now.targets).all(same)
}

/// Result for a file that needs no encoding: identity, version and protection time; code; columns present and wanted;
/// bytes of redundancy.
fn adopted(
    (id, stat, protected_at): (FileId, Stat, Timestamp),
    code: String,
    (columns, wanted): (usize, usize),
    redundancy_bytes: u64,
) -> Encoded {
    Encoded {
        id,
        stat,
        protected_at,
        code,
        columns,
        wanted,
        redundancy_bytes,
        read_bytes: 0,
        adopted: true,
        encoded: 0,
        kept: 0,
        damage: None,
        unrecoverable: Vec::new(),
        reconstructed: Vec::new(),
        changed: Vec::new(),
        drafts: Vec::new(),
        published: Vec::new(),
        replaced: Vec::new(),
        obsolete: Vec::new(),
    }
}
