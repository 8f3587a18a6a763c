//! Report of `gabion init`.

use super::PathName;
use serde::Serialize;
use std::path::Path;

/// `gabion init`.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "init")]
pub struct InitReport<'a> {
    config: PathName,
    written: bool,
    text: &'a str,
}

impl<'a> InitReport<'a> {
    /// Of a configuration.
    pub fn new(config: &Path, written: bool, text: &'a str) -> InitReport<'a> {
        InitReport { config: PathName::system(config), written, text }
    }
}
