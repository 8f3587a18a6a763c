//! Report of `gabion replaced`.

use super::{PathName, Time, path_text};
use gabion_vault::replaced::Run;
use serde::Serialize;

/// Content that repair replaced.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "replaced")]
pub struct ReplacedReport {
    /// Whether these runs were removed; none for a list.
    pub removed: Option<bool>,
    /// The runs, oldest first.
    pub runs: Vec<ReplacedRun>,
}

/// Content that one run of repair replaced.
#[derive(Debug, Serialize)]
pub struct ReplacedRun {
    run: String,
    at: Time,
    bytes: u64,
    files: Vec<ReplacedFile>,
}

#[derive(Debug, Serialize)]
struct ReplacedFile {
    #[serde(flatten)]
    path: PathName,
    size: u64,
    bytes: u64,
}

impl ReplacedRun {
    /// Of a run, without its files.
    pub fn new(run: &Run) -> ReplacedRun {
        ReplacedRun { run: path_text(&run.name), at: Time(run.at), bytes: run.bytes, files: Vec::new() }
    }

    /// Adds a file by its path in the tree, its size and its allocated bytes.
    pub fn add(&mut self, path: &[u8], size: u64, bytes: u64) {
        self.files.push(ReplacedFile { path: PathName::new(path), size, bytes });
    }

    /// Paths for display, with allocated bytes.
    pub fn files(&self) -> impl Iterator<Item = (&PathName, u64)> {
        self.files.iter().map(|file| (&file.path, file.bytes))
    }
}
