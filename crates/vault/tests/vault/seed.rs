//! The random numbers of [`test_rng`] under their former name, for suites of other crates.

#[path = "test_rng.rs"]
mod test_rng;

pub(crate) use test_rng::TestRng as Seed;
