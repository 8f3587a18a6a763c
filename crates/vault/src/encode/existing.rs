//! Existing redundancy of a file before it is encoded.

use super::EncodeError;
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
