//! What a run did, in one round or two.

use super::{FileError, Plan};
use crate::format::FileId;
use crate::storage::pool::HealReport;
use std::collections::BTreeSet;

/// What a run did.
#[derive(Debug, Default)]
pub struct Report {
    /// What was to be done.
    pub plan: Plan,
    /// Files that were put in order, wholly or as far as there was room.
    pub files: u64,
    /// Columns of data that were made or moved.
    pub data: u64,
    /// Columns of redundancy that were made or moved.
    pub redundancy: u64,
    /// Bytes that were written.
    pub bytes: u64,
    /// Columns that were found right on targets that came back.
    pub verified: u64,
    /// Blocks that were made from others.
    pub reconstructed: u64,
    /// Blocks of sources that were not what was protected; a scrub says more.
    pub wrong: u64,
    /// Files on targets that came back which were made anew elsewhere, and are removed.
    pub removed: u64,
    /// Files with columns that found no place in a domain of their own, and how many.
    pub unplaced: Vec<(Vec<u8>, usize)>,
    /// Files with columns that stay on a target which is to be emptied, because they found no other place, and how many.
    pub unmoved: Vec<(Vec<u8>, usize)>,
    /// Files that could not be put in order, and why; those that are lost first.
    pub failed: Vec<(Vec<u8>, FileError)>,
    /// Targets that came back and have something that may still be needed: what was made anew in its place is damaged.
    pub unsettled: BTreeSet<String>,
    /// Targets that are in service again.
    pub taken_back: Vec<String>,
    /// What was left over from runs that did not come to their end.
    pub swept: u64,
    /// What was done to the namespace.
    pub healed: HealReport,
    /// It was stopped before its end.
    pub stopped: bool,
    /// Names that were gone when it was their turn.
    pub(super) vanished: Vec<(Vec<u8>, FileId)>,
    /// Files that found room for a part of their columns before targets were taken back.
    placed_in_part: BTreeSet<Vec<u8>>,
}

impl Report {
    /// Whether everything is as it should be.
    pub fn is_whole(&self) -> bool {
        self.plan.lost.is_empty()
            && self.plan.unreadable.is_empty()
            && self.failed.is_empty()
            && self.unplaced.is_empty()
            && self.unmoved.is_empty()
            && self.unsettled.is_empty()
            && self.healed.failed.is_empty()
            && !self.stopped
    }

    /// Whether files are lost.
    pub fn has_losses(&self) -> bool {
        !self.plan.lost.is_empty() || self.failed.iter().any(|(_, error)| error.is_loss())
    }

    /// Whether targets were taken back that may have room for what found no place before.
    pub(super) fn has_new_room(&self) -> bool {
        let displaced = !self.unplaced.is_empty() || !self.unmoved.is_empty();
        !self.stopped && !self.taken_back.is_empty() && displaced
    }

    /// Takes another plan, which counts for what was left undone of the files in it, and gives the one that was carried out.
    pub(super) fn begin_again(&mut self, plan: Plan) -> Plan {
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

    /// Whether a file was counted already.
    pub(super) fn was_placed_in_part(&self, path: &[u8]) -> bool {
        self.placed_in_part.contains(path)
    }
}
