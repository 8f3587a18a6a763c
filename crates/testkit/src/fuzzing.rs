//! Number of inputs of tests that do what fuzzers do.

/// Environment variable: a whole number by which the inputs of such tests are multiplied. Seeds are fixed and inputs are counted, not timed: two
/// runs with the same number try the same.
pub const FUZZ_FACTOR: &str = "GABION_FUZZ_FACTOR";

/// How many inputs to try where a plain `cargo test` tries `usual`.
///
/// # Panics
/// The variable is set and no number.
pub fn fuzz_inputs(usual: usize) -> usize {
    let Ok(factor) = std::env::var(FUZZ_FACTOR) else { return usual };
    let factor: usize = factor.parse().unwrap_or_else(|error| panic!("{FUZZ_FACTOR}={factor}: {error}"));
    usual * factor
}
