//! Test parameters from environment variables.

/// The number in the environment variable `name`; `usual` if it is not set.
///
/// # Panics
/// The value is not a number.
pub fn chosen(name: &str, usual: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"));
    std::env::var(name).map_or(usual, number)
}
