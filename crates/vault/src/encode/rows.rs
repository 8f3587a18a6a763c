//! Encoding of rows into frames.

use super::row_source::RowSource;
use super::write_buffer::WriteBuffer;
use super::write_tracker::WriteTracker;
use super::{EncodeError, ParityFilePlan, Totals};
use crate::coder::Coder;
use crate::format::Frame;
use crate::format::frame::{Seal, toggle};
use crate::geometry::Run;
use crate::redundancy::redo;
use crate::storage::Content;
use std::ops::Range;
use std::sync::Arc;

/// State of one thread between runs.
pub(super) struct Scratch {
    /// Data blocks.
    pub(super) source: RowSource,
    /// Frames of a run, per redundancy file and column.
    frames: Vec<Vec<WriteBuffer>>,
    /// Existing frames.
    old: Vec<Vec<u8>>,
    /// Redundancy blocks without a placement.
    unplaced: Vec<u8>,
}

impl Scratch {
    pub(super) fn new(parity_files: &[ParityFilePlan]) -> Scratch {
        let columns = |parity_file: &ParityFilePlan| {
            (0..parity_file.placement.columns).map(|_| WriteBuffer::default()).collect()
        };
        let old = parity_files.iter().map(|_| Vec::new()).collect();
        let frames = parity_files.iter().map(columns).collect();
        Scratch { source: RowSource::default(), frames, old, unplaced: Vec::new() }
    }
}

/// Input of the encoding, shared by all threads.
pub(super) struct Rows<'a> {
    pub(super) coder: &'a Arc<Coder>,
    /// For each existing redundancy file, the coder of its format version.
    pub(super) old_coders: &'a [Option<Arc<Coder>>],
    pub(super) content: &'a dyn Content,
    pub(super) parity_files: &'a [ParityFilePlan],
    pub(super) tracker: Option<&'a WriteTracker>,
    /// Stripes that were written since the existing redundancy was made, sorted and disjoint, if they are known. All
    /// other frames are kept without reading their data.
    pub(super) written: Option<&'a [Range<u64>]>,
    pub(super) in_place: bool,
}

impl Rows<'_> {
    /// Written stripes within a range of stripes; none if any may have been written.
    fn written_in(&self, stripes: &Range<u64>) -> Option<impl Iterator<Item = Range<u64>>> {
        let written = self.written?;
        let first = written.partition_point(|range| range.end <= stripes.start);
        let Range { start, end } = *stripes;
        let inside = written[first..].iter().take_while(move |range| range.start < end);
        Some(inside.map(move |range| range.start.max(start)..range.end.min(end)))
    }

    /// True if data of the run has to be read.
    pub(super) fn is_read(&self, run: &Run) -> bool {
        let stripes = run.first..run.first + run.count;
        self.written_in(&stripes).is_none_or(|mut written| written.next().is_some())
    }

    /// Stripes of a run that have to be processed. An update in place needs only the written ones; a new file needs all
    /// frames.
    pub(super) fn parts(&self, run: &Run) -> Vec<Range<u64>> {
        let stripes = run.first..run.first + run.count;
        let written = self.written_in(&stripes).filter(|_| self.in_place);
        written.map(Iterator::collect).unwrap_or_else(|| vec![stripes.clone()])
    }

    /// True if roots are updated by the differences, because not all existing frames are read.
    pub(super) fn keeps_roots(&self) -> bool {
        self.in_place && self.written.is_some()
    }

    /// Encodes a run and writes its frames to the drafts or, for an update in place, records the changes.
    pub(super) fn encode(
        &self,
        run: &Run,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<(), EncodeError> {
        let (k, block) = (self.coder.code().k(), run.block as usize);
        let frame = block + self.coder.table_bytes();
        scratch.unplaced.resize(self.coder.code().m() * block, 0);
        for (parity_file, columns) in self.parity_files.iter().zip(&mut scratch.frames) {
            for (column, frames) in columns.iter_mut().enumerate() {
                let (offset, bytes) =
                    (parity_file.records.frame_offset(column, run.first), frame * run.count as usize);
                let write = EncodeError::write(&parity_file.placement.place);
                frames.begin(offset, bytes, parity_file.draft.as_ref()).map_err(write)?;
            }
        }
        let has_old = self.read_old(run, scratch)?;
        for row in 0..run.count {
            let stripe = run.first + row;
            if has_old
                && !self.is_read(&run.row(row))
                && self.keep_unread(stripe, row, frame, scratch, totals)?
            {
                totals.kept += 1;
                continue;
            }
            scratch.source.load(self.content, run, row, k)?;
            totals.read +=
                (0..k).map(|column| run.cell(row, column)).map(|cell| cell.end - cell.start).sum::<u64>();
            if has_old && self.keep(run, row, frame, scratch, totals)? {
                totals.kept += 1;
                continue;
            }
            if self.keeps_roots() {
                self.take_checks_out(stripe, row, frame, scratch, totals);
            }
            self.encode_row(stripe, row, frame, scratch, totals)?;
            totals.encoded += 1;
            if self.in_place {
                self.note_changes(stripe, row, frame, scratch, totals);
            }
        }
        let buffers = scratch.frames.iter().map(Vec::len).sum();
        for (parity_file, columns) in self.parity_files.iter().zip(&mut scratch.frames) {
            for frames in columns {
                let write = EncodeError::write(&parity_file.placement.place);
                frames.end(parity_file.draft.as_ref(), buffers).map_err(write)?;
            }
        }
        Ok(())
    }

    /// Writes all buffered frames of a thread after its last run.
    pub(super) fn flush(&self, scratch: &mut Scratch) -> Result<(), EncodeError> {
        for (parity_file, columns) in self.parity_files.iter().zip(&mut scratch.frames) {
            for frames in columns {
                frames
                    .flush(parity_file.draft.as_ref())
                    .map_err(EncodeError::write(&parity_file.placement.place))?;
            }
        }
        Ok(())
    }

    /// Reads the existing records of this run if they cover the same cells.
    fn read_old(&self, run: &Run, scratch: &mut Scratch) -> Result<bool, EncodeError> {
        for (parity_file, buffer) in self.parity_files.iter().zip(&mut scratch.old) {
            let Some(old) = &parity_file.old else { return Ok(false) };
            let (was, now) = (old.records.cut(), parity_file.records.cut());
            // The division of full segments does not depend on the file's size.
            let last = run.first + run.count;
            if was != now && last > was.full_stripes().min(now.full_stripes()) {
                return Ok(false);
            }
            old.read_records(run.first, run.count, buffer).map_err(EncodeError::read)?;
        }
        Ok(!self.parity_files.is_empty())
    }

    /// Keeps the frames of a row if its data matches their signatures.
    fn keep(
        &self,
        run: &Run,
        row: u64,
        frame: usize,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<bool, EncodeError> {
        let (k, stripe) = (self.coder.code().k(), run.first + row);
        let block = frame - self.coder.table_bytes();
        let data = scratch.source.blocks(stripe, k, block);
        let mut seals: Vec<Seal> = Vec::with_capacity(k);
        let mut signed = None;
        let mut same_version = true;
        // All frames of a row hold the same signatures, so one comparison suffices.
        let mut to_compare = self.tracker;
        for ((parity_file, old_coder), records) in
            self.parity_files.iter().zip(self.old_coders).zip(&scratch.old)
        {
            let Some(old_coder) = old_coder else { return Ok(false) };
            if signed != Some(old_coder.version()) {
                seals.clear();
                for data in &data {
                    seals.push(old_coder.sign(data)?);
                }
                signed = Some(old_coder.version());
            }
            same_version &= old_coder.version() == self.coder.version();
            let Some(old) = &parity_file.old else { return Ok(false) };
            for (column, bytes) in row_of(records, row, frame, parity_file.placement.columns).enumerate() {
                let column = parity_file.placement.first + column;
                let Some(opened) = old.frame(bytes, column, stripe) else { return Ok(false) };
                if let Some(tracker) = to_compare.take_if(|it| it.is_described_by(old)) {
                    tracker.compare_row(run, row, &opened, &seals, &mut totals.compared);
                }
                // Damaged frames must not be copied into new redundancy.
                if !opened.data().eq(seals.iter().copied()) || old_coder.sign(opened.block)? != opened.own() {
                    return Ok(false);
                }
            }
        }
        // Frames of an older format prove that the data is intact, but their signatures differ from the new ones.
        if !same_version {
            return Ok(false);
        }
        self.copy_frames(row, frame, scratch, totals);
        Ok(true)
    }

    /// Keeps intact frames of a row that was not written, without reading its data.
    fn keep_unread(
        &self,
        stripe: u64,
        row: u64,
        frame: usize,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<bool, EncodeError> {
        for ((parity_file, old_coder), records) in
            self.parity_files.iter().zip(self.old_coders).zip(&scratch.old)
        {
            let (Some(old), Some(old_coder)) = (&parity_file.old, old_coder) else { return Ok(false) };
            for (column, bytes) in row_of(records, row, frame, parity_file.placement.columns).enumerate() {
                let column = parity_file.placement.first + column;
                let Some(opened) = old.frame(bytes, column, stripe) else { return Ok(false) };
                if old_coder.sign(opened.block)? != opened.own() {
                    return Ok(false);
                }
            }
        }
        self.copy_frames(row, frame, scratch, totals);
        Ok(true)
    }

    fn copy_frames(&self, row: u64, frame: usize, scratch: &mut Scratch, totals: &mut Totals) {
        for (at, parity_file) in self.parity_files.iter().enumerate() {
            let old = row_of(&scratch.old[at], row, frame, parity_file.placement.columns);
            for (frames, bytes) in scratch.frames[at].iter_mut().zip(old) {
                frames.fresh()[row_range(row, frame)].copy_from_slice(bytes);
                if let Some(check) = bytes.last_chunk::<16>().filter(|_| !self.keeps_roots()) {
                    toggle(&mut totals.roots[at], check);
                }
            }
        }
    }

    /// Removes the checks of replaced frames from the roots.
    fn take_checks_out(&self, stripe: u64, row: u64, frame: usize, scratch: &Scratch, totals: &mut Totals) {
        for (at, parity_file) in self.parity_files.iter().enumerate() {
            let Some(old) = &parity_file.old else {
                totals.root_is_unknown = true;
                return;
            };
            for (column, bytes) in
                row_of(&scratch.old[at], row, frame, parity_file.placement.columns).enumerate()
            {
                let column = parity_file.placement.first + column;
                match old.frame(bytes, column, stripe) {
                    Some(opened) => toggle(&mut totals.roots[at], opened.check()),
                    None => totals.root_is_unknown = true,
                }
            }
        }
    }

    fn encode_row(
        &self,
        stripe: u64,
        row: u64,
        frame: usize,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<(), EncodeError> {
        let (k, m) = (self.coder.code().k(), self.coder.code().m());
        let block = frame - self.coder.table_bytes();
        let Scratch { source, frames, unplaced, .. } = scratch;
        let data = source.blocks(stripe, k, block);
        let mut outputs: Vec<Option<&mut [u8]>> =
            unplaced.chunks_exact_mut(block).take(m).map(Some).collect();
        for (parity_file, columns) in self.parity_files.iter().zip(frames.iter_mut()) {
            for (column, frames) in columns.iter_mut().enumerate() {
                let bytes = &mut frames.fresh()[row_range(row, frame)];
                outputs[parity_file.placement.first + column] = Some(&mut bytes[..block]);
            }
        }
        let mut outputs: Vec<&mut [u8]> = outputs.into_iter().flatten().collect();
        let seals = self.coder.encode(&data, &mut outputs)?;
        let (data_seals, own_seals) = seals.split_at(k);
        for (at, parity_file) in self.parity_files.iter().enumerate() {
            for (column, frames) in frames[at].iter_mut().enumerate() {
                let bytes = &mut frames.fresh()[row_range(row, frame)];
                let column = parity_file.placement.first + column;
                let key = parity_file.header.frame_key();
                let check = Frame::seal(bytes, key, column, stripe, data_seals, &own_seals[column]);
                toggle(&mut totals.roots[at], &check);
            }
        }
        Ok(())
    }

    fn note_changes(&self, stripe: u64, row: u64, frame: usize, scratch: &mut Scratch, totals: &mut Totals) {
        for (at, parity_file) in self.parity_files.iter().enumerate() {
            for (column, frames) in scratch.frames[at].iter_mut().enumerate() {
                totals.change_bytes += frame;
                // Beyond this limit the file is rewritten and the recorded changes are not used.
                if totals.change_bytes <= redo::MAX_BYTES {
                    let bytes = frames.fresh()[row_range(row, frame)].to_vec();
                    totals.changes[at].push((parity_file.records.frame_offset(column, stripe), bytes));
                }
            }
        }
    }
}

/// Position of a row's frame among the frames of one column.
fn row_range(row: u64, frame: usize) -> std::ops::Range<usize> {
    let start = row as usize * frame;
    start..start + frame
}

/// Frames of a row within records, which hold the frames of all columns for each row.
fn row_of(records: &[u8], row: u64, frame: usize, columns: usize) -> impl Iterator<Item = &[u8]> {
    let start = row as usize * columns * frame;
    records[start..start + columns * frame].chunks_exact(frame)
}
