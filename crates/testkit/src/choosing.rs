//! Numbers that whoever runs a test may choose.

/// The number in the environment variable `name`; `usual` where it is not set.
///
/// # Panics
/// It is no number.
pub fn chosen(name: &str, usual: u64) -> u64 {
    let number = |text: String| text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}"));
    std::env::var(name).map_or(usual, number)
}
