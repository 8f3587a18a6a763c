//! What changed and is not yet protected.
