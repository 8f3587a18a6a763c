//! Wanted and actual redundancy of the files of a source.

use super::Api;
use super::routes::{Call, Reply};
use crate::daemon::refusal::Refusal;
use gabion_vault::storage::pool::config::TargetName;
use gabion_vault::vault::Vault;
use schemars::JsonSchema;
use serde::Serialize;
use std::sync::Arc;

/// Files by redundancy.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Redundancy {
    matrix: Vec<RedundancyCell>,
    /// Targets of a pool that are not present; columns on them are counted here as if they were.
    #[schemars(with = "Vec<String>")]
    targets_absent: Vec<TargetName>,
}

/// Files with a configured and an actual number of redundancy blocks per stripe.
#[derive(Debug, Serialize, JsonSchema)]
struct RedundancyCell {
    configured: u32,
    actual: u32,
    files: u64,
    bytes: u64,
}

/// Counts all files in the catalogue.
pub(super) fn redundancy(api: &Arc<Api>, call: &Call) -> Result<Reply, Refusal> {
    let source = api.daemon.source(call.name())?;
    let catalogue = Vault::catalogue_of(&source.location()?).map_err(Refusal::internal)?;
    let cells = catalogue.matrix(b"").map_err(Refusal::internal)?;
    let cell = |(configured, actual, files, bytes)| RedundancyCell { configured, actual, files, bytes };
    let targets_absent = source.targets_absent();
    Reply::ok(Redundancy { matrix: cells.into_iter().map(cell).collect(), targets_absent })
}
