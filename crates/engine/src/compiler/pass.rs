//! Optimisation passes: each maps a program to a cheaper one with the same meaning, and has its own tests.
//!
//! | pass | what it does |
//! | --- | --- |
//! | [`flatten`] | a sum that is used once, by another sum, becomes part of it; equal terms cancel |
//! | [`nibbles`] | maps become nibble lookups, for machines without `gf2p8affineqb` |
//! | [`share`] | two or three terms that several sums have in common are added up once |
//! | [`sign`] | adds the division of every input, for its signature |
//! | [`fuse`] | sums become chains of two- or three-input instructions, placed where their terms appear |
//! | [`allocate`] | assigns registers, and spill slots where they run out |

pub(super) mod allocate;
pub(super) mod flatten;
pub(super) mod fuse;
pub(super) mod nibbles;
pub(super) mod share;
pub(super) mod sign;
