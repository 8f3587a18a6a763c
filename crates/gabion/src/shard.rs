//! Shards: a file cut into k + m files, any k of which bring it back.
//!
//! `docs/reference/shards.md` is the normative description of what is on disk. The rooms: [`mod@format`] (header and
//! set identity), [`frame`] (blocks and their seals), [`geometry`] (what lies where), [`set`]
//! (which shards of which set are in a directory), then one room per command: [`split`], [`join`],
//! [`verify`], [`repair`]. They share [`pipeline`] (stripes in parallel, results in order), [`sources`]
//! (blocks of a set, whole or rebuilt), [`draft`] (files that appear complete or not at all) and [`Shown`]
//! (names made safe to print).

pub mod draft;
pub mod error;
pub mod format;
pub mod frame;
pub mod geometry;
pub mod join;
pub mod pipeline;
pub mod repair;
pub mod set;
pub mod sources;
pub mod split;
pub mod stripe_list;
pub mod verify;

pub use error::Error;
pub use gabion_vault::shown::Shown;
pub use pipeline::{Progress, Run};
pub use set::Scan;
