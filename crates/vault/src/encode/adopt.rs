//! Files whose redundancy is there already, for the version that they are.

use super::{EncodeError, Encoded, Encoder, Making};
use crate::coder::Coder;
use crate::examine::{ExamineError, Subject};
use crate::format::{FileId, Header};
use crate::tree::{Generation, Stat};
use crate::version::is_doubtful;
use crate::world::Nanos;
use std::sync::Arc;

impl Encoder<'_> {
    /// What a file has that cannot be read completely now, if that is about the file as it is: it got another name, or lost redundancy, while targets
    /// are gone. It counts for as much as there is of it. Nothing otherwise.
    pub(super) fn adopt_degraded(&self, path: &[u8]) -> Result<Option<Encoded>, EncodeError> {
        if !self.storage.keeps_by_identity() {
            return Ok(None);
        }
        let subject = match Subject::open(self.storage, self.coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(None),
            subject => subject?,
        };
        let (Some(content), Some(stat)) = (&subject.content, subject.stat) else { return Ok(None) };
        // Other permissions have to go into the headers, which is done when the file can be read.
        let metadata = content.metadata().map_err(EncodeError::read)?;
        if subject.is_changed() || metadata != subject.header.metadata {
            return Ok(None);
        }
        let header = &subject.header;
        let columns = (subject.columns(), header.code.m());
        let redundancy_bytes = subject.parts.iter().map(|part| part.records.file()).sum();
        Ok(Some(unread((header.id, stat, header.protected_at), header.coding(), columns, redundancy_bytes)))
    }
}

/// Redundancy that is there for this very version of the file, made by someone else or before the catalogue was lost. A column that has no place now may
/// be on a target that does not answer: it is whole again when that comes back, so that nothing is gained by making the others anew without it.
pub(super) fn adopt(makings: &[Making], coder: &Arc<Coder>, stat: &Stat, moved: bool) -> Option<Encoded> {
    let same = |was: &Header, now: &Header| {
        let renamed = Generation { ctime: now.generation.ctime, ..was.generation };
        let only_renamed = renamed == now.generation && was.metadata == now.metadata;
        !is_doubtful(was) && (was.generation == now.generation || (moved && only_renamed))
    };
    let first = makings.first()?.header.id;
    let fits = |making: &Making| {
        let old = making.old.as_ref()?;
        let whole = old.head_damage.is_none() && same(&old.header, &making.header);
        // An older version of the format is replaced.
        let whole = whole && old.header.version == making.header.version;
        (whole && are_same_places(&old.header, &making.header)).then_some(old.records.file())
    };
    let sizes: Option<Vec<u64>> = makings.iter().map(fits).collect();
    let olds = || makings.iter().filter_map(|making| making.old.as_ref());
    // Columns of different revisions are not used together.
    let revision = olds().map(|old| old.header.revision).max();
    if olds().any(|old| Some(old.header.revision) != revision) {
        return None;
    }
    let protected_at = olds().map(|old| old.header.protected_at).min()?;
    let columns = (makings.iter().map(|making| making.home.columns).sum(), coder.code().m());
    Some(unread((first, *stat, protected_at), coder.coding(), columns, sizes?.iter().sum()))
}

/// Whether columns are where they would be put now. One that has no place now may be where it was.
fn are_same_places(was: &Header, now: &Header) -> bool {
    let same = |(was, now): (&Vec<u8>, &Vec<u8>)| now.is_empty() || was == now;
    was.targets.len() == now.targets.len() && was.targets.iter().zip(&now.targets).all(same)
}

/// Nothing to do for a file: identity and version with the time of its redundancy, code, columns that are there and wanted, bytes of redundancy.
fn unread(
    (id, stat, protected_at): (FileId, Stat, Nanos),
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
        trouble: None,
        spoilt: Vec::new(),
        mended: Vec::new(),
        changed: Vec::new(),
        drafts: Vec::new(),
        published: Vec::new(),
        obsolete: Vec::new(),
    }
}
