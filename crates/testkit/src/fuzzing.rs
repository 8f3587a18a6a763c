//! Number of inputs of fuzz-like tests, and of rounds of other tests with random cases.

/// Environment variable with an integer by which the inputs of fuzz-like tests are multiplied. Seeds are fixed and
/// inputs are counted, not timed: two runs with the same number try the same inputs.
pub const FUZZ_FACTOR: &str = "GABION_FUZZ_FACTOR";

/// Number of inputs to try; a plain `cargo test` tries `usual`.
///
/// # Panics
/// The variable is set and not a number.
pub fn fuzz_inputs(usual: usize) -> usize {
    let Ok(factor) = std::env::var(FUZZ_FACTOR) else { return usual };
    let factor: usize = factor.parse().unwrap_or_else(|error| panic!("{FUZZ_FACTOR}={factor}: {error}"));
    usual * factor
}

/// Environment variable: with `all`, tests with many random cases run all of them instead of a quarter. `cargo xtask
/// test --full` sets it.
pub const ROUNDS: &str = "GABION_ROUNDS";

/// Number of rounds to run out of `all`: a quarter, at least one. Seeds are fixed, so two runs try the same cases.
///
/// # Panics
/// The variable is set to another value than `all`.
pub fn rounds(all: usize) -> usize {
    match std::env::var(ROUNDS) {
        Ok(text) if text == "all" => all,
        Ok(text) => panic!("{ROUNDS}={text}: only `all` is known"),
        Err(_) => all.div_ceil(4),
    }
}
