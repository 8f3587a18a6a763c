#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! From the bottom up: `status` (results and their texts), `blocks` (the caller's blocks as slices), and the exported
//! functions: `codec`, `plan`, `raidz`, `signature`. The header is the documentation of the functions; a test compares
//! both.

// Pointers of C programs; every block names the promise of the caller that it relies on.
#![allow(unsafe_code)]

mod blocks;
pub mod codec;
pub mod plan;
pub mod raidz;
pub mod signature;
pub mod status;
