//! Degraded reads that were served, as a small note in the catalogue.

use super::Report;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::world::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const NOTE: &str = "degraded reads";

/// All degraded reads that were noted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How often a file was read with the help of redundancy.
    pub reads: u64,
    /// Blocks that were made for them.
    pub blocks: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// When that happened last.
    pub last: Nanos,
    /// Blocks that could not be used, by target.
    pub targets: BTreeMap<String, u64>,
}

/// Notes what a reader did, if that was more than reading.
///
/// # Errors
/// The catalogue fails.
pub fn note(catalogue: &Catalogue, report: &Report, now: Nanos) -> Result<(), CatalogueError> {
    if !report.is_degraded() {
        return Ok(());
    }
    catalogue.together(|| -> Result<(), CatalogueError> {
        let mut record = recorded(catalogue)?.unwrap_or_default();
        record.reads += 1;
        record.blocks += report.reconstructed;
        record.bytes += report.reconstructed_bytes;
        record.last = record.last.max(now);
        for (target, why) in &report.ailing {
            *record.targets.entry(target.clone()).or_default() += why.values().sum::<u64>();
        }
        let text = serde_json::to_string(&record).unwrap_or_default();
        catalogue.set_note(NOTE, Some(&text))
    })
}

/// What was noted; nothing if there never was a degraded read. A note that is none counts as that.
///
/// # Errors
/// The catalogue fails.
pub fn recorded(catalogue: &Catalogue) -> Result<Option<Record>, CatalogueError> {
    Ok(catalogue.note(NOTE)?.and_then(|text| serde_json::from_str(&text).ok()))
}
