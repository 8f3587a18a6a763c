//! Report of a rebuild, over one or two rounds.

use super::{FileError, Plan};
use crate::format::FileId;
use crate::storage::pool::HealReport;
use crate::storage::pool::config::TargetName;
use std::collections::BTreeSet;

/// Report of a rebuild.
#[derive(Debug, Default)]
pub struct RebuildReport {
    /// The plan.
    pub plan: Plan,
    /// Files rebuilt, completely or as far as there was space.
    pub files: u64,
    /// Data columns reconstructed or moved.
    pub data: u64,
    /// Redundancy columns reconstructed or moved.
    pub redundancy: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Columns on returned targets that were valid.
    pub verified: u64,
    /// Blocks reconstructed.
    pub reconstructed: u64,
    /// Corrupt source blocks; a scrub reports details.
    pub wrong: u64,
    /// Files removed from returned targets because they were reconstructed elsewhere.
    pub removed: u64,
    /// Files with columns for which no target in a separate failure domain was found, with their number.
    pub unplaced: Vec<(Vec<u8>, usize)>,
    /// Files with columns that stay on a retired target for lack of another target, with their number.
    pub unmoved: Vec<(Vec<u8>, usize)>,
    /// Files that could not be rebuilt, with the error; lost files first.
    pub failed: Vec<(Vec<u8>, FileError)>,
    /// Returned targets with content that may still be needed, because what was reconstructed in its place is damaged.
    pub unverified: BTreeSet<TargetName>,
    /// Targets that returned to service.
    pub reinstated: Vec<TargetName>,
    /// Unreferenced files of interrupted runs that were removed.
    pub swept: u64,
    /// Changes of the namespace by healing.
    pub healed: HealReport,
    /// The run was stopped.
    pub stopped: bool,
    /// Paths that no longer existed when they were processed.
    pub(super) vanished: Vec<(Vec<u8>, FileId)>,
    /// Files that were partly placed before targets returned to service.
    placed_in_part: BTreeSet<Vec<u8>>,
}

impl RebuildReport {
    /// True if nothing is left to do.
    pub fn is_whole(&self) -> bool {
        self.plan.lost.is_empty()
            && self.plan.unreadable.is_empty()
            && self.failed.is_empty()
            && self.unplaced.is_empty()
            && self.unmoved.is_empty()
            && self.unverified.is_empty()
            && self.healed.failed.is_empty()
            && !self.stopped
    }

    /// True if files are lost.
    pub fn has_losses(&self) -> bool {
        !self.plan.lost.is_empty() || self.failed.iter().any(|(_, error)| error.is_loss())
    }

    /// True if targets returned to service that may have space for unplaced columns.
    pub(super) fn can_place_more(&self) -> bool {
        let displaced = !self.unplaced.is_empty() || !self.unmoved.is_empty();
        !self.stopped && !self.reinstated.is_empty() && displaced
    }

    /// Starts the second round with another plan, which replaces the results of its files. Returns the executed plan.
    pub(super) fn start_second_round(&mut self, plan: Plan) -> Plan {
        let planned: BTreeSet<&Vec<u8>> =
            plan.files.iter().chain(&plan.lost).map(|item| &item.path).collect();
        self.failed.retain(|(path, _)| !planned.contains(path));
        let again = |(path, _): &mut (Vec<u8>, usize)| planned.contains(path);
        let unplaced = self.unplaced.extract_if(.., again);
        let displaced = unplaced.chain(self.unmoved.extract_if(.., again));
        self.placed_in_part = displaced.map(|(path, _)| path).collect();
        self.vanished.clear();
        std::mem::replace(&mut self.plan, plan)
    }

    /// True if a file was counted in the first round.
    pub(super) fn was_placed_in_part(&self, path: &[u8]) -> bool {
        self.placed_in_part.contains(path)
    }
}
