//! Existing redundancy of a file before it is encoded.

use super::{EncodeError, ParityFilePlan, RedundancyPlan, newer};
use crate::coder::Coders;
use crate::redundancy::{Part, PartPath};

/// Content of a redundancy path.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) part: Option<Part>,
    /// The file is damaged beyond any use.
    pub(super) is_unusable: bool,
}

/// Opens existing redundancy. A damaged or foreign file is replaced. A file of a newer format, or one that cannot be
/// read at a planned placement, is left unchanged and reported as an error.
pub(super) fn open_old(place: &PartPath, coders: &Coders, is_planned: bool) -> Result<Opened, EncodeError> {
    match place.open_to_update(coders) {
        Ok(part) => Ok(Opened { part, is_unusable: false }),
        Err(error) if error.is_later() || (is_planned && error.is_unreadable()) => {
            Err(EncodeError::Redundancy { path: place.tree.shown(&place.path), source: Box::new(error) })
        }
        Err(error) => Ok(Opened { part: None, is_unusable: error.is_unusable() }),
    }
}

impl RedundancyPlan {
    /// Takes redundancy with another number of columns as that of another code, and so what is shared with other files,
    /// which must not change: none of its frames is kept.
    pub(super) fn encode_again(&mut self) {
        let take = |file: &mut ParityFilePlan| {
            file.other_columns.take().or_else(|| file.old.take_if(|old| old.is_shared()))
        };
        for old in self.parity_files.iter_mut().filter_map(take) {
            self.former = newer(self.former.take(), Some(old));
        }
    }
}
