//! Detection of blocks that differ from their signatures although they were not written.
//!
//! Redundancy of a damaged block would protect the damage. If the storage knows which ranges were written since the
//! file was protected, every other differing block is damaged and is reconstructed first. Without that knowledge, a
//! file that only grew can be compared too: blocks that existed before and differ were changed by a program or by
//! corruption, and are reported.
//!
//! The changelog may know the written ranges as well, recorded by a mount in another process. They are used to read
//! less, if the versions with which they begin and end are those of the redundancy and of the file, or if windows of
//! mounts on several hosts lead from one to the other ([`super::fenced`]). They do not prove damage.

use super::{EncodeError, EncodeOptions, ParityFilePlan, Recorded, RedundancyPlan, SMALL_PART};
use crate::changelog::Kind;
use crate::coder::Coder;
use crate::format::Frame;
use crate::format::frame::Seal;
use crate::geometry::{Cut, Run, merge};
use crate::redundancy::Part;
use crate::storage::{Content, Storage};
use crate::tree::{Generation, Stat};
use crate::version::{is_doubtful, name_of};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of changed blocks that are listed for a file that grew. A file with more of them was edited.
const MAX_LISTED: usize = 1024;

/// Existing redundancy to compare with, and the rule for differences.
#[derive(Debug)]
pub(super) struct WriteTracker {
    /// Revision of the redundancy files that describe the protected version.
    revision: u64,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    /// Only these ranges were written (sorted, disjoint). Other differing blocks are damaged.
    Written(Vec<Range<u64>>),
    /// The same from the changelog, without a statement on other differing blocks.
    Recorded(Vec<Range<u64>>),
    /// The written ranges are unknown; the file is longer than before.
    Grown,
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Differing cells; for a file that grew, the first [`MAX_LISTED`].
    differing: Vec<Range<u64>>,
    /// More cells differ than are listed.
    is_more: bool,
    /// Start of the last cell that is unchanged.
    last_same: Option<u64>,
}

impl Compared {
    pub(super) fn and(mut self, other: Compared) -> Compared {
        self.differing.extend(other.differing);
        self.is_more |= other.is_more;
        self.last_same = self.last_same.max(other.last_same);
        self
    }
}

/// Ranges that were written between two versions by the changelog. None unless its entry begins with the first and ends
/// with the second one, or windows lead from the first to the second one.
fn recorded_between(recorded: Recorded<'_>, was: &Generation, now: &Generation) -> Option<Vec<Range<u64>>> {
    let Recorded { entry, fenced } = recorded;
    if let Some(written) = fenced.and_then(|fenced| fenced.between(was, now)) {
        return Some(written);
    }
    let span = entry.span.filter(|_| entry.kind == Kind::Modify)?;
    let is_it = name_of(was)? == span.from && name_of(now)? == span.to;
    is_it.then(|| entry.ranges.as_slice().to_vec())
}

impl WriteTracker {
    /// None if there is nothing to compare with, or a difference would have no meaning.
    pub(super) fn of(
        storage: &dyn Storage,
        path: &[u8],
        plan: &RedundancyPlan,
        stat: &Stat,
        recorded: Option<Recorded<'_>>,
    ) -> Option<WriteTracker> {
        let old =
            plan.parity_files.iter().filter_map(|parity_file| parity_file.old.as_ref()).chain(&plan.former);
        let newest = &old.max_by_key(|old| old.header.revision)?.header;
        let (was, now) = (&newest.generation, stat.generation());
        let revision = newest.revision;
        // The file may have been written within the same timestamp tick, before its signatures were made.
        if is_doubtful(newest) {
            return None;
        }
        if let Some(written) = storage.written_since(path, was, &now) {
            return Some(WriteTracker { revision, rule: Rule::Written(written) });
        }
        if let Some(written) = recorded.and_then(|it| recorded_between(it, was, &now)) {
            return Some(WriteTracker { revision, rule: Rule::Recorded(written) });
        }
        let has_grown = !storage.keeps_by_identity() && was.inode == now.inode && was.size < now.size;
        has_grown.then_some(WriteTracker { revision, rule: Rule::Grown })
    }

    fn has(&self, cell: &Range<u64>) -> bool {
        let written = match &self.rule {
            Rule::Written(written) => written,
            Rule::Recorded(_) => return false,
            Rule::Grown => return true,
        };
        let next = written.partition_point(|written| written.end <= cell.start);
        written.get(next).is_none_or(|written| cell.end <= written.start)
    }

    fn note(&self, cell: Range<u64>, same: bool, compared: &mut Compared) {
        match (same, &self.rule) {
            (true, _) => compared.last_same = compared.last_same.max(Some(cell.start)),
            (false, Rule::Grown) if compared.differing.len() >= MAX_LISTED => compared.is_more = true,
            (false, _) => compared.differing.push(cell),
        }
    }

    /// Damaged cells: they differ and were not written.
    pub(super) fn damaged(&self, compared: &Compared) -> Vec<Range<u64>> {
        match self.rule {
            Rule::Written(_) => compared.differing.clone(),
            Rule::Recorded(_) | Rule::Grown => Vec::new(),
        }
    }

    /// For a file that grew: cells that differ although a later cell does not. An insertion shifts everything behind it
    /// and is not reported.
    pub(super) fn changed(&self, compared: &Compared) -> Vec<Range<u64>> {
        match self.rule {
            Rule::Grown if !compared.is_more => {
                let is_before = |cell: &&Range<u64>| compared.last_same.is_some_and(|last| cell.start < last);
                compared.differing.iter().filter(is_before).cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Stripes that were written, if all writes are known and all redundancy files describe the protected version:
    /// frames of the other stripes are valid for the present version. None if all stripes have to be read.
    /// Files with little redundancy are read as a whole, which verifies them as well.
    pub(super) fn written_stripes(
        &self,
        plan: &RedundancyPlan,
        old_coders: &[Option<Arc<Coder>>],
        coder: &Coder,
        cut: &Cut,
    ) -> Option<Vec<Range<u64>>> {
        let (Rule::Written(written) | Rule::Recorded(written)) = &self.rule else { return None };
        let is_current = |(parity_file, old_coder): (&ParityFilePlan, &Option<Arc<Coder>>)| {
            parity_file.old.as_ref().is_some_and(|old| self.is_described_by(old))
                && parity_file.records.file() > SMALL_PART
                && old_coder.as_ref().is_some_and(|old_coder| old_coder.version() == coder.version())
        };
        let all = !plan.unmodified && plan.parity_files.iter().zip(old_coders).all(is_current);
        all.then(|| merge(written.iter().flat_map(|range| cut.stripes_of(range.clone())).collect()))
    }

    /// True if the redundancy file describes the protected version.
    pub(super) fn is_described_by(&self, old: &Part) -> bool {
        old.header.revision == self.revision
    }

    /// Compares the cells of a row with a frame of a redundancy file that [describes](WriteTracker::is_described_by)
    /// the protected version.
    pub(super) fn compare_row(
        &self,
        run: &Run,
        row: u64,
        frame: &Frame<'_>,
        seals: &[Seal],
        compared: &mut Compared,
    ) {
        for (column, (was, now)) in frame.data().zip(seals).enumerate() {
            let cell = run.cell(row, column);
            if !cell.is_empty() && self.has(&cell) {
                self.note(cell, was == *now, compared);
            }
        }
    }

    /// Compares blocks whose division has changed, so that rows cannot be compared: those at the end of a file that
    /// grew or shrank, or all blocks after a change of block size or code.
    pub(super) fn compare_others(
        &self,
        content: &dyn Content,
        plan: &RedundancyPlan,
        old_coders: &[Option<Arc<Coder>>],
        former: Option<&Arc<Coder>>,
        options: EncodeOptions<'_>,
    ) -> Result<Compared, EncodeError> {
        let mut compared = Compared::default();
        if matches!(self.rule, Rule::Recorded(_)) {
            return Ok(compared);
        }
        let told = |old: &&Part| self.is_described_by(old) && old.header.columns > 0;
        let found = plan.parity_files.iter().zip(old_coders).find_map(|(parity_file, old_coder)| {
            let old = parity_file.old.as_ref().filter(told)?;
            Some((old, old_coder.as_ref()?, parity_file.records.cut()))
        });
        if let Some((old, coder, now)) = found {
            let was = old.records.cut();
            if was != now {
                let first = was.full_stripes().min(now.full_stripes());
                self.compare_from(first, old, coder, (content, now.size()), options, &mut compared)?;
            }
        } else if let (Some(old), Some(coder)) = (plan.former.as_ref().filter(told), former) {
            let size = content.stat().map_err(EncodeError::read)?.size;
            self.compare_from(0, old, coder, (content, size), options, &mut compared)?;
        }
        Ok(compared)
    }

    fn compare_from(
        &self,
        first: u64,
        old: &Part,
        coder: &Coder,
        (content, size): (&dyn Content, u64),
        options: EncodeOptions<'_>,
        compared: &mut Compared,
    ) -> Result<(), EncodeError> {
        let was = old.records.cut();
        let mut records = Vec::new();
        for stripe in first..was.stripes() {
            let run = was.run(stripe, 1);
            // Bytes behind the present end were truncated.
            if run.cell(0, 0).start >= size {
                break;
            }
            if (options.stopped)() {
                return Err(EncodeError::Stopped);
            }
            old.read_records(stripe, 1, &mut records).map_err(EncodeError::read)?;
            let bytes = run.block as usize + coder.table_bytes();
            // Any intact frame holds the signatures of all data blocks.
            let mut frames = old.columns().zip(records.chunks_exact(bytes));
            let Some(frame) = frames.find_map(|(column, bytes)| old.frame(bytes, column, stripe)) else {
                continue;
            };
            let mut block = vec![0; run.block as usize];
            for (column, wanted) in frame.data().enumerate() {
                let cell = run.cell(0, column);
                if cell.is_empty() || cell.end > size || !self.has(&cell) {
                    continue;
                }
                let got = content.read(&run, 0, column, &mut block).map_err(EncodeError::Read)?;
                if got as u64 == cell.end - cell.start {
                    self.note(cell, coder.sign(&block)? == wanted, compared);
                }
            }
        }
        Ok(())
    }
}
