//! Report of `gabion forget`.

use super::system_path_text;
use gabion_vault::vault::Removal;
use serde::Serialize;

/// What `gabion forget` removed, or would remove.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "forget")]
pub struct ForgetReport {
    removed: bool,
    root: String,
    repository: String,
    pointer: Option<String>,
    files: u64,
    bytes: u64,
    replaced_files: u64,
    kept: Vec<String>,
    resumed: bool,
}

impl ForgetReport {
    /// Of the removal, and whether it was carried out.
    pub fn new(removal: &Removal, removed: bool) -> ForgetReport {
        ForgetReport {
            removed,
            root: system_path_text(&removal.root),
            repository: system_path_text(&removal.repository),
            pointer: removal.pointer.as_deref().map(system_path_text),
            files: removal.files,
            bytes: removal.bytes,
            replaced_files: removal.replaced,
            kept: removal.foreign.iter().map(|path| system_path_text(path)).collect(),
            resumed: removal.is_resumed,
        }
    }
}
