#![doc = include_str!("../README.md")]
//!
//! # Modules
//!
//! From the bottom up: `field` (GF(2^8)), `gate` (a lock that survives `fork`), `tables` (expanded tables of
//! coefficients), `portable` (loops over raw pointers, one byte at a time), `plans` (compiled plans by their tables),
//! `blocks` (the caller's blocks as slices), `product` (products of blocks by either), and the exported functions:
//! `matrices`, `erasure_code`, `raid`.

// Pointers of C programs; every block names the promise of the caller that it relies on.
#![allow(unsafe_code)]

mod blocks;
pub mod erasure_code;
mod field;
mod gate;
pub mod matrices;
mod plans;
mod portable;
mod product;
pub mod raid;
mod tables;
