//! Blocks that nobody wrote to since they were protected, and that are other ones all the same: they are damaged. Redundancy that was made
//! of them now would make the damage last, so whoever knows what was written, the storage, puts them right first.

use super::{EncodeError, Making};
use crate::coder::Coder;
use crate::format::Frame;
use crate::format::frame::Seal;
use crate::geometry::Run;
use crate::redundancy::Part;
use crate::storage::{Content, Storage};
use std::ops::Range;
use std::sync::Arc;

/// What was written to a file since it was protected, where the storage knows that.
#[derive(Debug)]
pub(super) struct Untouched {
    /// Redundancy files of this revision speak of what was protected.
    revision: u64,
    /// In order, and apart.
    written: Vec<Range<u64>>,
}

impl Untouched {
    /// Nothing where nobody knows.
    pub(super) fn of(storage: &dyn Storage, path: &[u8], makings: &[Making]) -> Option<Untouched> {
        let newest = makings.iter().filter_map(|making| making.old.as_ref());
        let newest = &newest.max_by_key(|old| old.header.revision)?.header;
        let written = storage.written_since(path, &newest.generation)?;
        Some(Untouched { revision: newest.revision, written })
    }

    fn has(&self, cell: &Range<u64>) -> bool {
        let next = self.written.partition_point(|written| written.end <= cell.start);
        self.written.get(next).is_none_or(|written| cell.end <= written.start)
    }

    /// Adds the cells of a row that are not what `old` says, and were not written.
    pub(super) fn find_damage(
        &self,
        old: &Part,
        run: &Run,
        row: u64,
        frame: &Frame<'_>,
        seals: &[Seal],
        damaged: &mut Vec<Range<u64>>,
    ) {
        if old.header.revision != self.revision {
            return;
        }
        for (column, (was, now)) in frame.data().zip(seals).enumerate() {
            let cell = run.cell(row, column);
            if was != *now && !cell.is_empty() && self.has(&cell) && !damaged.contains(&cell) {
                damaged.push(cell);
            }
        }
    }

    /// The end of a file that became longer or shorter is cut otherwise than before, so that frames say nothing of its blocks as they are cut now:
    /// those of the end as it was are looked at.
    pub(super) fn find_damage_at_end(
        &self,
        judges: &[Option<Arc<Coder>>],
        content: &dyn Content,
        makings: &[Making],
    ) -> Result<Vec<Range<u64>>, EncodeError> {
        let speaks = |old: &Part| old.header.revision == self.revision && old.header.columns > 0;
        let found = makings.iter().zip(judges).find_map(|(making, judge)| {
            let old = making.old.as_ref().filter(|old| speaks(old))?;
            Some((making, old, judge.as_ref()?))
        });
        let Some((making, old, coder)) = found else { return Ok(Vec::new()) };
        let (was, now) = (old.records.cut(), making.records.cut());
        let (mut damaged, mut records) = (Vec::new(), Vec::new());
        if was == now {
            return Ok(damaged);
        }
        for stripe in was.full_stripes().min(now.full_stripes())..was.stripes() {
            let run = was.run(stripe, 1);
            // What is behind the end now was cut off.
            if run.cell(0, 0).start >= now.size() {
                break;
            }
            old.read_records(stripe, 1, &mut records).map_err(EncodeError::read)?;
            let bytes = run.block as usize + coder.table_bytes();
            let key = old.header.frame_key();
            let frame = records
                .get(..bytes)
                .and_then(|bytes| Frame::open(bytes, coder.shape(), key, old.header.first, stripe));
            let Some(frame) = frame else { continue };
            let mut block = vec![0; run.block as usize];
            for (column, wanted) in frame.data().enumerate() {
                let cell = run.cell(0, column);
                if cell.is_empty() || cell.end > now.size() || !self.has(&cell) {
                    continue;
                }
                let got = content.read(&run, 0, column, &mut block).map_err(EncodeError::Read)?;
                if got as u64 == cell.end - cell.start && coder.sign(&block)? != wanted {
                    damaged.push(cell);
                }
            }
        }
        Ok(damaged)
    }
}
