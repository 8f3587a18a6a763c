//! Rows of a file turned into frames.

use super::outflow::Outflow;
use super::source::Source;
use super::untouched::Untouched;
use super::{EncodeError, Making, Totals};
use crate::coder::Coder;
use crate::format::Frame;
use crate::format::frame::{Seal, toggle};
use crate::geometry::Run;
use crate::redundancy::redo;
use crate::storage::Content;
use std::ops::Range;
use std::sync::Arc;

/// What a thread keeps between runs.
pub(super) struct Scratch {
    /// The data blocks.
    pub(super) source: Source,
    /// The frames of a run, per redundancy file and column.
    frames: Vec<Vec<Outflow>>,
    /// What stands there now.
    old: Vec<Vec<u8>>,
    /// Redundancy blocks that have no place.
    unplaced: Vec<u8>,
}

impl Scratch {
    pub(super) fn new(makings: &[Making]) -> Scratch {
        let columns = |making: &Making| (0..making.home.columns).map(|_| Outflow::default()).collect();
        let old = makings.iter().map(|_| Vec::new()).collect();
        let frames = makings.iter().map(columns).collect();
        Scratch { source: Source::default(), frames, old, unplaced: Vec::new() }
    }
}

/// Turns rows into frames.
pub(super) struct Rows<'a> {
    pub(super) coder: &'a Arc<Coder>,
    /// Per redundancy file that is there, what makes signatures of its version.
    pub(super) judges: &'a [Option<Arc<Coder>>],
    pub(super) content: &'a dyn Content,
    pub(super) makings: &'a [Making],
    pub(super) untouched: Option<&'a Untouched>,
    /// The only stripes in which a byte was written since the redundancy that is there was made, in order and apart, where that is known.
    /// The frames of the others are kept, and their data is not read.
    pub(super) written: Option<&'a [Range<u64>]>,
    pub(super) in_place: bool,
}

impl Rows<'_> {
    /// Written stripes within a range of stripes. None if all may have been written.
    fn written_in(&self, stripes: &Range<u64>) -> Option<impl Iterator<Item = Range<u64>>> {
        let written = self.written?;
        let first = written.partition_point(|range| range.end <= stripes.start);
        let Range { start, end } = *stripes;
        let inside = written[first..].iter().take_while(move |range| range.start < end);
        Some(inside.map(move |range| range.start.max(start)..range.end.min(end)))
    }

    /// Whether data of a run has to be read.
    pub(super) fn is_read(&self, run: &Run) -> bool {
        let stripes = run.first..run.first + run.count;
        self.written_in(&stripes).is_none_or(|mut written| written.next().is_some())
    }

    /// Stripes of a run that have to be looked at. A redundancy file that is updated in place has the frames of the others already; a new
    /// one gets them all.
    pub(super) fn parts(&self, run: &Run) -> Vec<Range<u64>> {
        let stripes = run.first..run.first + run.count;
        let written = self.written_in(&stripes).filter(|_| self.in_place);
        written.map(Iterator::collect).unwrap_or_else(|| vec![stripes.clone()])
    }

    /// Whether the roots of the redundancy that is there are changed by what differs, as not all of its frames are read.
    pub(super) fn keeps_roots(&self) -> bool {
        self.in_place && self.written.is_some()
    }

    /// Encodes a run and writes its frames to the drafts or, in place, notes what changes.
    pub(super) fn encode(
        &self,
        run: &Run,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<(), EncodeError> {
        let (k, block) = (self.coder.code().k(), run.block as usize);
        let frame = block + self.coder.table_bytes();
        scratch.unplaced.resize(self.coder.code().m() * block, 0);
        for (making, columns) in self.makings.iter().zip(&mut scratch.frames) {
            for (column, frames) in columns.iter_mut().enumerate() {
                let (offset, bytes) =
                    (making.records.frame_offset(column, run.first), frame * run.count as usize);
                let write = EncodeError::write(&making.home.place);
                frames.begin(offset, bytes, making.draft.as_ref()).map_err(write)?;
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
        let outflows = scratch.frames.iter().map(Vec::len).sum();
        for (making, columns) in self.makings.iter().zip(&mut scratch.frames) {
            for frames in columns {
                let write = EncodeError::write(&making.home.place);
                frames.end(making.draft.as_ref(), outflows).map_err(write)?;
            }
        }
        Ok(())
    }

    /// Writes what a thread holds back: all its runs are encoded.
    pub(super) fn flush(&self, scratch: &mut Scratch) -> Result<(), EncodeError> {
        for (making, columns) in self.makings.iter().zip(&mut scratch.frames) {
            for frames in columns {
                frames.flush(making.draft.as_ref()).map_err(EncodeError::write(&making.home.place))?;
            }
        }
        Ok(())
    }

    /// Reads the records that are there for this run, if there are any for the same cells.
    fn read_old(&self, run: &Run, scratch: &mut Scratch) -> Result<bool, EncodeError> {
        for (making, buffer) in self.makings.iter().zip(&mut scratch.old) {
            let Some(old) = &making.old else { return Ok(false) };
            let (was, now) = (old.records.cut(), making.records.cut());
            // The cut of full segments does not depend on the size.
            let last = run.first + run.count;
            if was != now && last > was.full_stripes().min(now.full_stripes()) {
                return Ok(false);
            }
            old.read_records(run.first, run.count, buffer).map_err(EncodeError::read)?;
        }
        Ok(!self.makings.is_empty())
    }

    /// Keeps the frames of a row whose data is what they were made of.
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
        // Every frame of the row has the same signatures.
        let mut to_compare = self.untouched;
        for ((making, judge), records) in self.makings.iter().zip(self.judges).zip(&scratch.old) {
            let Some(judge) = judge else { return Ok(false) };
            if signed != Some(judge.version()) {
                seals.clear();
                for data in &data {
                    seals.push(judge.sign(data)?);
                }
                signed = Some(judge.version());
            }
            same_version &= judge.version() == self.coder.version();
            let Some(old) = &making.old else { return Ok(false) };
            for (column, bytes) in row_of(records, row, frame, making.home.columns).enumerate() {
                let column = making.home.first + column;
                let Some(opened) = Frame::open(bytes, judge.shape(), old.header.frame_key(), column, stripe)
                else {
                    return Ok(false);
                };
                if let Some(untouched) = to_compare.take_if(|it| it.is_told_by(old)) {
                    untouched.compare_row(run, row, &opened, &seals, &mut totals.compared);
                }
                // Damage must not be carried over into what is called new.
                if !opened.data().eq(seals.iter().copied()) || judge.sign(opened.block)? != opened.own() {
                    return Ok(false);
                }
            }
        }
        // Frames of an earlier version say that the data is right; the new ones have other signatures.
        if !same_version {
            return Ok(false);
        }
        self.copy_frames(row, frame, scratch, totals);
        Ok(true)
    }

    /// Keeps the frames of a row in which nobody wrote, without a look at its data, if they are whole.
    fn keep_unread(
        &self,
        stripe: u64,
        row: u64,
        frame: usize,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<bool, EncodeError> {
        for ((making, judge), records) in self.makings.iter().zip(self.judges).zip(&scratch.old) {
            let (Some(old), Some(judge)) = (&making.old, judge) else { return Ok(false) };
            for (column, bytes) in row_of(records, row, frame, making.home.columns).enumerate() {
                let column = making.home.first + column;
                let opened = Frame::open(bytes, judge.shape(), old.header.frame_key(), column, stripe);
                let Some(opened) = opened else { return Ok(false) };
                if judge.sign(opened.block)? != opened.own() {
                    return Ok(false);
                }
            }
        }
        self.copy_frames(row, frame, scratch, totals);
        Ok(true)
    }

    fn copy_frames(&self, row: u64, frame: usize, scratch: &mut Scratch, totals: &mut Totals) {
        for (at, making) in self.makings.iter().enumerate() {
            let old = row_of(&scratch.old[at], row, frame, making.home.columns);
            for (frames, bytes) in scratch.frames[at].iter_mut().zip(old) {
                frames.fresh()[row_range(row, frame)].copy_from_slice(bytes);
                if let Some(check) = bytes.last_chunk::<16>().filter(|_| !self.keeps_roots()) {
                    toggle(&mut totals.roots[at], check);
                }
            }
        }
    }

    /// Takes the checks of frames that are replaced out of the roots.
    fn take_checks_out(&self, stripe: u64, row: u64, frame: usize, scratch: &Scratch, totals: &mut Totals) {
        for (at, (making, judge)) in self.makings.iter().zip(self.judges).enumerate() {
            let (Some(old), Some(judge)) = (&making.old, judge) else {
                totals.root_is_unknown = true;
                return;
            };
            for (column, bytes) in row_of(&scratch.old[at], row, frame, making.home.columns).enumerate() {
                let column = making.home.first + column;
                match Frame::open(bytes, judge.shape(), old.header.frame_key(), column, stripe) {
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
        for (making, columns) in self.makings.iter().zip(frames.iter_mut()) {
            for (column, frames) in columns.iter_mut().enumerate() {
                let bytes = &mut frames.fresh()[row_range(row, frame)];
                outputs[making.home.first + column] = Some(&mut bytes[..block]);
            }
        }
        let mut outputs: Vec<&mut [u8]> = outputs.into_iter().flatten().collect();
        let seals = self.coder.encode(&data, &mut outputs)?;
        let (data_seals, own_seals) = seals.split_at(k);
        for (at, making) in self.makings.iter().enumerate() {
            for (column, frames) in frames[at].iter_mut().enumerate() {
                let bytes = &mut frames.fresh()[row_range(row, frame)];
                let column = making.home.first + column;
                let key = making.header.frame_key();
                let check = Frame::seal(bytes, key, column, stripe, data_seals, &own_seals[column]);
                toggle(&mut totals.roots[at], &check);
            }
        }
        Ok(())
    }

    fn note_changes(&self, stripe: u64, row: u64, frame: usize, scratch: &mut Scratch, totals: &mut Totals) {
        for (at, making) in self.makings.iter().enumerate() {
            for (column, frames) in scratch.frames[at].iter_mut().enumerate() {
                totals.change_bytes += frame;
                // Beyond the bound the file is made anew, and these are not needed.
                if totals.change_bytes <= redo::MAX_BYTES {
                    let bytes = frames.fresh()[row_range(row, frame)].to_vec();
                    totals.changes[at].push((making.records.frame_offset(column, stripe), bytes));
                }
            }
        }
    }
}

/// The frame of a row among the frames of one column.
fn row_range(row: u64, frame: usize) -> std::ops::Range<usize> {
    let start = row as usize * frame;
    start..start + frame
}

/// The frames of a row among records, which have the frames of all columns for each row.
fn row_of(records: &[u8], row: u64, frame: usize, columns: usize) -> impl Iterator<Item = &[u8]> {
    let start = row as usize * columns * frame;
    records[start..start + columns * frame].chunks_exact(frame)
}
