//! What a redundancy file looks like: `docs/reference/redundancy.md` is normative. Every byte that is read is hostile.
//!
//! A redundancy file is a header, frames, and the header again. There is one frame for each stripe and each redundancy column that the
//! file holds: the block, the signatures of all data blocks of the stripe, its own, and a check over these. Version 2 has one section of
//! frames per column, version 1 one record of frames per stripe. This module turns values into bytes and back; it opens no file.

pub mod binding;
mod fields;
pub mod frame;
pub mod header;

pub use binding::Binding;
pub use frame::{Check, Frame, FrameKey, Records, Seal};
pub use header::{FileId, Header, HeaderError, Metadata, Version};
