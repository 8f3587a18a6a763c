//! Blocks of a file that differ from its redundancy although they should not.
//!
//! Redundancy that is made of a damaged block makes the damage last. Where the storage knows what was written since the file was protected, every other block that
//! differs is damaged, and is put right first. Where nobody knows, a file that only grew can be compared as well: blocks that it had before
//! and that differ were changed by a program or by corruption, and are reported.

use super::{EncodeError, EncodeOptions, Making, Planned, SMALL_PART};
use crate::coder::Coder;
use crate::format::Frame;
use crate::format::frame::Seal;
use crate::geometry::{Cut, Run, merge};
use crate::redundancy::Part;
use crate::storage::{Content, Storage};
use crate::tree::Stat;
use crate::version::is_doubtful;
use std::ops::Range;
use std::sync::Arc;

/// Blocks that are listed of a file that grew. A file with more changes than that was edited.
const MAX_LISTED: usize = 1024;

/// What blocks are compared with, and what a difference means.
#[derive(Debug)]
pub(super) struct Untouched {
    /// Redundancy files of this revision describe what was protected.
    revision: u64,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    /// These ranges were written, in order and apart. Other blocks that differ are damaged.
    Written(Vec<Range<u64>>),
    /// What was written is not known; the file is longer than it was.
    Grown,
}

/// What the comparison found.
#[derive(Debug, Default)]
pub(super) struct Compared {
    /// Cells that differ; for a file that grew, the first [`MAX_LISTED`] that were found.
    differing: Vec<Range<u64>>,
    /// There are more.
    is_more: bool,
    /// Start of the last cell that is what it was.
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

impl Untouched {
    /// Nothing where there is nothing to compare with, or a difference would mean nothing.
    pub(super) fn of(
        storage: &dyn Storage,
        path: &[u8],
        planned: &Planned,
        stat: &Stat,
    ) -> Option<Untouched> {
        let old = planned.makings.iter().filter_map(|making| making.old.as_ref()).chain(&planned.former);
        let newest = &old.max_by_key(|old| old.header.revision)?.header;
        let (was, now) = (&newest.generation, stat.generation());
        let revision = newest.revision;
        // A version in doubt may have been written again before its signatures were made.
        if is_doubtful(newest) {
            return None;
        }
        if let Some(written) = storage.written_since(path, was, &now) {
            return Some(Untouched { revision, rule: Rule::Written(written) });
        }
        let has_grown = !storage.keeps_by_identity() && was.inode == now.inode && was.size < now.size;
        has_grown.then_some(Untouched { revision, rule: Rule::Grown })
    }

    fn has(&self, cell: &Range<u64>) -> bool {
        let Rule::Written(written) = &self.rule else { return true };
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

    /// Cells that are damaged: nobody wrote to them.
    pub(super) fn damaged(&self, compared: &Compared) -> Vec<Range<u64>> {
        match self.rule {
            Rule::Written(_) => compared.differing.clone(),
            Rule::Grown => Vec::new(),
        }
    }

    /// Cells of a file that grew which differ although later ones do not. An insertion changes all that follows it, and does not count.
    pub(super) fn changed(&self, compared: &Compared) -> Vec<Range<u64>> {
        match self.rule {
            Rule::Grown if !compared.is_more => {
                let is_before = |cell: &&Range<u64>| compared.last_same.is_some_and(|last| cell.start < last);
                compared.differing.iter().filter(is_before).cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Stripes in which a byte was written, where every write is known and all redundancy files describe what was protected: the frames of the
    /// other stripes are valid for the present version. None if all stripes have to be read. Files with little redundancy are read as a whole, which
    /// verifies them as well.
    pub(super) fn written_stripes(
        &self,
        planned: &Planned,
        judges: &[Option<Arc<Coder>>],
        coder: &Coder,
        cut: &Cut,
    ) -> Option<Vec<Range<u64>>> {
        let Rule::Written(written) = &self.rule else { return None };
        let is_current = |(making, judge): (&Making, &Option<Arc<Coder>>)| {
            making.old.as_ref().is_some_and(|old| self.is_told_by(old))
                && making.records.file() > SMALL_PART
                && judge.as_ref().is_some_and(|judge| judge.version() == coder.version())
        };
        let all = !planned.unwritten && planned.makings.iter().zip(judges).all(is_current);
        all.then(|| merge(written.iter().flat_map(|range| cut.stripes_of(range.clone())).collect()))
    }

    /// Whether a redundancy file describes what was protected.
    pub(super) fn is_told_by(&self, old: &Part) -> bool {
        old.header.revision == self.revision
    }

    /// Compares the cells of a row with a frame of a redundancy file that [tells](Untouched::is_told_by) what they were.
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

    /// Compares blocks that are cut otherwise now than they were, so that rows cannot be compared: those at the end of a file that became longer or shorter, and
    /// all of them if the block size or the code is another one.
    pub(super) fn compare_others(
        &self,
        content: &dyn Content,
        planned: &Planned,
        judges: &[Option<Arc<Coder>>],
        former: Option<&Arc<Coder>>,
        options: EncodeOptions<'_>,
    ) -> Result<Compared, EncodeError> {
        let mut compared = Compared::default();
        let told = |old: &&Part| self.is_told_by(old) && old.header.columns > 0;
        let found = planned.makings.iter().zip(judges).find_map(|(making, judge)| {
            let old = making.old.as_ref().filter(told)?;
            Some((old, judge.as_ref()?, making.records.cut()))
        });
        if let Some((old, coder, now)) = found {
            let was = old.records.cut();
            if was != now {
                let first = was.full_stripes().min(now.full_stripes());
                self.compare_from(first, old, coder, (content, now.size()), options, &mut compared)?;
            }
        } else if let (Some(old), Some(coder)) = (planned.former.as_ref().filter(told), former) {
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
        let (was, key) = (old.records.cut(), old.header.frame_key());
        let mut records = Vec::new();
        for stripe in first..was.stripes() {
            let run = was.run(stripe, 1);
            // The bytes behind the present end were cut off.
            if run.cell(0, 0).start >= size {
                break;
            }
            if (options.stopped)() {
                return Err(EncodeError::Stopped);
            }
            old.read_records(stripe, 1, &mut records).map_err(EncodeError::read)?;
            let bytes = run.block as usize + coder.table_bytes();
            // Any frame that is left has the signatures of all data blocks.
            let frame = records.chunks_exact(bytes).enumerate().find_map(|(column, bytes)| {
                Frame::open(bytes, coder.shape(), key, old.header.first + column, stripe)
            });
            let Some(frame) = frame else { continue };
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
