//! A line of `--progress`.

use serde::Serialize;

/// How far a step of a command is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename = "progress")]
pub struct ProgressReport {
    step: &'static str,
    files: u64,
    bytes: u64,
    total_files: Option<u64>,
    total_bytes: Option<u64>,
}

impl ProgressReport {
    /// Of a step that begins, and the files and bytes ahead if they are known.
    pub fn new(step: &'static str, total: Option<(u64, u64)>) -> ProgressReport {
        ProgressReport {
            step,
            files: 0,
            bytes: 0,
            total_files: total.map(|(files, _)| files),
            // Some steps count only files.
            total_bytes: total.map(|(_, bytes)| bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// Counts what was done.
    pub fn add(&mut self, files: u64, bytes: u64) {
        self.files += files;
        self.bytes += bytes;
    }
}
