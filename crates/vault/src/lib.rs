//! The protector as a library: redundancy per file, beside storage that people already have.
//!
//! Nothing is printed here and no argument parsed. Time and chance come through [`world`] alone.

#![forbid(unsafe_code)]

pub mod changelog;
pub mod world;
