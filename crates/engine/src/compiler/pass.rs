//! Passes: programs to better programs with the same meaning, each with its own tests.
//!
//! | pass | what it does |
//! | --- | --- |
//! | [`flatten`] | a sum that is used once, by another sum, becomes part of it; equal terms cancel |
//! | [`nibbles`] | maps become look-ups by half bytes, for machines without `gf2p8affineqb` |
//! | [`share`] | two or three terms that several sums have in common are added up once |
//! | [`sign`] | every input is divided besides, for its signature |
//! | [`fuse`] | sums become chains of two- or three-input instructions, placed where their terms appear |
//! | [`allocate`] | values get registers, those without one a place in memory |

pub(super) mod allocate;
pub(super) mod flatten;
pub(super) mod fuse;
pub(super) mod nibbles;
pub(super) mod share;
pub(super) mod sign;
