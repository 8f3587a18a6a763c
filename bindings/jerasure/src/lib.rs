#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! From the bottom up: `memory` (arrays that the caller frees), `square` (inverses of matrices), `plans` (compiled
//! plans by their coefficients), `devices` (the caller's data and coding blocks), and the exported functions:
//! `matrices`, `words` (symbols of whole bytes), `packets` (bit matrices).

// Pointers of C programs; every block names the promise of the caller that it relies on.
#![allow(unsafe_code)]

mod devices;
pub mod matrices;
mod memory;
pub mod packets;
mod plans;
mod square;
pub mod words;
