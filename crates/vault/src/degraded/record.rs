//! Counters of a reader, and their sum over all degraded reads, which is stored as a note in the catalogue.

use crate::catalogue::{Catalogue, CatalogueError};
use crate::examine::BlockFault;
use crate::world::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const NOTE: &str = "degraded reads";

/// Counters of a reader.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Blocks that were verified.
    pub verified: u64,
    /// Blocks that were reconstructed.
    pub reconstructed: u64,
    /// Bytes that were reconstructed.
    pub reconstructed_bytes: u64,
    /// Bytes that were returned without verification.
    pub unverified_bytes: u64,
    /// Number of faulty blocks, by target and fault.
    pub faults: BTreeMap<String, BTreeMap<BlockFault, u64>>,
    /// Stripe and column of the first blocks that did not match their signatures.
    pub wrong: Vec<(u64, usize)>,
}

/// Maximum number of listed blocks. All are counted.
pub(super) const MAX_LISTED: usize = 1000;

impl Report {
    /// True if blocks were reconstructed.
    pub fn is_degraded(&self) -> bool {
        self.reconstructed > 0
    }

    /// Text with the faults of each target.
    pub fn causes(&self) -> String {
        let of = |(target, why): (&String, &BTreeMap<BlockFault, u64>)| {
            let why: Vec<String> =
                why.iter().map(|(why, count)| format!("{count} {}", why.words())).collect();
            format!("{target}: {}", why.join(", "))
        };
        self.faults.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

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
    #[serde(with = "crate::nanoseconds")]
    pub last: Timestamp,
    /// Faulty blocks by target.
    pub targets: BTreeMap<String, u64>,
}

/// Adds a reader's counters if blocks were reconstructed.
///
/// # Errors
/// The catalogue fails.
pub fn note(catalogue: &Catalogue, report: &Report, now: Timestamp) -> Result<(), CatalogueError> {
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
