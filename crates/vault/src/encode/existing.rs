//! Redundancy that a file has before it is encoded, and what of it may be replaced.

use super::EncodeError;
use crate::coder::Coders;
use crate::redundancy::{Part, PartPath};

/// What is at a place.
#[derive(Default)]
pub(super) struct Opened {
    pub(super) part: Option<Part>,
    /// A damaged redundancy file that nothing can use.
    pub(super) is_unusable: bool,
}

/// Opens the redundancy that is there. What is damaged, or no redundancy file at all, is replaced by what is made now. What a later program wrote, and what
/// cannot be read now where new redundancy would go, is left alone, and the file is named.
pub(super) fn open_old(place: &PartPath, coders: &Coders, is_home: bool) -> Result<Opened, EncodeError> {
    match place.open_to_update(coders) {
        Ok(part) => Ok(Opened { part, is_unusable: false }),
        Err(error) if error.is_later() || (is_home && error.is_unreadable()) => {
            Err(EncodeError::Redundancy { path: place.tree.shown(&place.path), source: Box::new(error) })
        }
        Err(error) => Ok(Opened { part: None, is_unusable: error.is_unusable() }),
    }
}
