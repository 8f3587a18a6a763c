//! Report of `gabion check`.

use super::{FileFailure, PathName};
use gabion_vault::check::{Checked, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// `gabion check`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(tag = "command", rename = "check")]
pub struct CheckReport {
    /// Number of files for each verdict that occurred.
    pub verdicts: BTreeMap<&'static str, u64>,
    /// Files that are neither unchanged nor verified.
    pub files: Vec<CheckedFile>,
    /// Named paths that were not checked before the deadline.
    pub unchecked: Vec<PathName>,
    /// Vaults that could not be opened or read.
    pub failed: Vec<FileFailure>,
    /// Bytes read.
    pub bytes: u64,
    /// Duration.
    pub seconds: f64,
}

/// A file with its verdict.
#[derive(Debug, Clone, Serialize)]
pub struct CheckedFile {
    /// Path, as far as possible as it was named.
    #[serde(flatten)]
    pub path: PathName,
    /// The verdict's word.
    pub verdict: &'static str,
    /// Reason of a failure, and remarks.
    pub notes: Vec<String>,
}

impl CheckReport {
    /// Adds a file. `path` is its path for people.
    pub fn add(&mut self, path: &[u8], checked: Checked) {
        let word = checked.verdict.word();
        *self.verdicts.entry(word).or_default() += 1;
        self.bytes += checked.bytes;
        if matches!(checked.verdict, Verdict::Unchanged | Verdict::Verified) {
            return;
        }
        let mut notes = checked.notes;
        if let Verdict::Failed(why) = &checked.verdict {
            notes.insert(0, why.to_string());
        }
        self.files.push(CheckedFile { path: PathName::new(path), verdict: word, notes });
    }

    /// Number of files with a verdict.
    pub fn count(&self, verdict: &str) -> u64 {
        self.verdicts.get(verdict).copied().unwrap_or(0)
    }

    /// Number of all files with a verdict.
    pub fn checked(&self) -> u64 {
        self.verdicts.values().sum()
    }
}
