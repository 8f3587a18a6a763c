//! Number of inputs of tests that do what fuzzers do, and of rounds of other tests with random cases.

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

/// Environment variable: `all` has tests with many random cases run all of them, and not a quarter. `cargo xtask test --full` sets it.
pub const ROUNDS: &str = "GABION_ROUNDS";

/// How many of `all` rounds to run: a quarter, at least one. Seeds are fixed, so two runs try the same.
///
/// # Panics
/// The variable is set to anything but `all`.
pub fn rounds(all: usize) -> usize {
    match std::env::var(ROUNDS) {
        Ok(text) if text == "all" => all,
        Ok(text) => panic!("{ROUNDS}={text}: only `all` is known"),
        Err(_) => all.div_ceil(4),
    }
}
