//! What a redundancy file looks like: `docs/redundancy.md` is normative. Every byte that is read is hostile.
//!
//! A redundancy file is a header, one record per stripe, and the header again. A record has one frame for each
//! redundancy column that the file holds: the block, the signatures of all data blocks of the stripe, its own, and a
//! check over these. This room turns values into bytes and back; it opens no file.

mod fields;
pub mod frame;
pub mod header;

pub use frame::{Check, Frame, Records, Seal};
pub use header::{FileId, Header, HeaderError, Metadata};
