//! Statistics of degraded reads, stored as a note in the catalogue.

use super::Report;
use crate::catalogue::{Catalogue, CatalogueError};
use crate::world::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const NOTE: &str = "degraded reads";

/// Sum of all degraded reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Number of files read with reconstruction.
    pub reads: u64,
    /// Blocks that were reconstructed.
    pub blocks: u64,
    /// Bytes that were reconstructed.
    pub bytes: u64,
    /// Time of the last one.
    pub last: Nanos,
    /// Faulty blocks by target.
    pub targets: BTreeMap<String, u64>,
}

/// Adds a reader's counters if blocks were reconstructed.
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
        for (target, why) in &report.faults {
            *record.targets.entry(target.clone()).or_default() += why.values().sum::<u64>();
        }
        let text = serde_json::to_string(&record).unwrap_or_default();
        catalogue.set_note(NOTE, Some(&text))
    })
}

/// The recorded statistics; none if there were no degraded reads or the note is not readable.
///
/// # Errors
/// The catalogue fails.
pub fn recorded(catalogue: &Catalogue) -> Result<Option<Record>, CatalogueError> {
    Ok(catalogue.note(NOTE)?.and_then(|text| serde_json::from_str(&text).ok()))
}
