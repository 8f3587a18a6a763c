//! Report of `gabion forget`.

use super::PathName;
use gabion_vault::vault::Removal;
use serde::Serialize;

/// What `gabion forget` removed, or would remove.
#[derive(Debug, Serialize)]
#[serde(tag = "command", rename = "forget")]
pub struct ForgetReport {
    removed: bool,
    root: PathName,
    repository: PathName,
    pointer: Option<PathName>,
    files: u64,
    bytes: u64,
    replaced_files: u64,
    kept: Vec<PathName>,
    resumed: bool,
}

impl ForgetReport {
    /// Of the removal, and whether it was carried out.
    pub fn new(removal: &Removal, removed: bool) -> ForgetReport {
        ForgetReport {
            removed,
            root: PathName::system(&removal.root),
            repository: PathName::system(&removal.repository),
            pointer: removal.pointer.as_deref().map(PathName::system),
            files: removal.files,
            bytes: removal.bytes,
            replaced_files: removal.replaced,
            kept: removal.foreign.iter().map(|path| PathName::system(path)).collect(),
            resumed: removal.is_resumed,
        }
    }
}
