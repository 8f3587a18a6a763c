//! Format of redundancy files; `docs/reference/redundancy.md` is normative. All input is treated as hostile.
//!
//! A redundancy file is a header, frames, and the header again. There is one frame per stripe and redundancy column in
//! the file: the block, the signatures of all data blocks of the stripe, its own signature, and a check over these.
//! Version 2 has one section of frames per column, version 1 one record of frames per stripe. This module converts
//! between values and bytes; it opens no file.

pub mod binding;
mod fields;
pub mod frame;
pub mod header;

pub use binding::Binding;
pub use frame::{Check, Frame, FrameKey, Records, Seal};
pub use header::{FileId, Header, HeaderError, Metadata, Version};
