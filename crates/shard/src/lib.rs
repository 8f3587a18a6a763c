//! Shard sets: a file split into k + m shard files, any k of which restore it.
//!
//! `docs/reference/shards.md` is the normative description of the format. Modules: [`mod@format`] (header and set
//! identity), [`frame`] (blocks and their seals), [`geometry`] (offsets and lengths), [`set`] (the shards of a
//! directory, by set), and one module per operation: [`split`], [`join`], [`verify`], [`repair`]. They share
//! [`pipeline`] (stripes in parallel, results in order), [`sources`] (blocks of a set, read or reconstructed),
//! [`draft`] (files that appear complete or not at all) and [`DisplayPath`] (names made safe to print).
//!
//! The back end that computes is a value of the caller, [`Run::backends`]: the CPU's own kernels, one device, or a
//! choice between them.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

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
pub use gabion_platform::display_path::DisplayPath;
pub use pipeline::{Progress, Run};
pub use set::Scan;
