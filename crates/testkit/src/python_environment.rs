//! The virtual environment of Python.

use std::path::PathBuf;

/// The virtual environment with the packages that tests need, which `cargo xtask test` makes and names in
/// `GABION_PYTHON`. `None`, with a skip of `test`, without it.
pub fn python(test: &str) -> Option<PathBuf> {
    let place = std::env::var_os("GABION_PYTHON").map(PathBuf::from);
    let found = place.filter(|place| place.join("bin/python").is_file());
    if found.is_none() {
        crate::skip(test, "GABION_PYTHON names no virtual environment; `cargo xtask test` makes one");
    }
    found
}
