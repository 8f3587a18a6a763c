//! Redundancy that files with equal content share.

use gabion_vault::deduplication::{SharedAmount, Sharing};
use schemars::JsonSchema;
use serde::Serialize;

/// Files that began to share their redundancy.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SharingReport {
    files: u64,
    saved_bytes: u64,
    removed_bytes: u64,
    failed: Vec<String>,
}

impl SharingReport {
    /// Of the results of a comparison.
    pub fn new(Sharing { files, saved, removed, failed }: &Sharing) -> SharingReport {
        SharingReport { files: *files, saved_bytes: *saved, removed_bytes: *removed, failed: failed.clone() }
    }
}

/// Files that share their redundancy.
#[derive(Debug, Clone, Serialize)]
pub struct SharedReport {
    files: u64,
    saved_bytes: u64,
}

impl SharedReport {
    /// Of what a vault shares.
    pub fn new(shared: SharedAmount) -> SharedReport {
        SharedReport { files: shared.files, saved_bytes: shared.saved }
    }
}
