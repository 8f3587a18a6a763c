//! Rows of a file turned into records.

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
use std::sync::Arc;

/// What a thread keeps between runs.
pub(super) struct Scratch {
    /// The data blocks.
    pub(super) source: Source,
    /// The records of a run, per redundancy file.
    records: Vec<Outflow>,
    /// What stands there now.
    old: Vec<Vec<u8>>,
    /// Redundancy blocks that have no place.
    homeless: Vec<u8>,
}

impl Scratch {
    pub(super) fn new(files: usize) -> Scratch {
        let records = (0..files).map(|_| Outflow::default()).collect();
        let old = (0..files).map(|_| Vec::new()).collect();
        Scratch { source: Source::default(), records, old, homeless: Vec::new() }
    }
}

/// Turns rows into records.
pub(super) struct Rows<'a> {
    pub(super) coder: &'a Arc<Coder>,
    pub(super) content: &'a dyn Content,
    pub(super) makings: &'a [Making],
    pub(super) untouched: Option<&'a Untouched>,
    pub(super) in_place: bool,
}

impl Rows<'_> {
    /// Encodes a run and writes its records to the drafts or, in place, notes what changes.
    pub(super) fn encode(
        &self,
        run: &Run,
        scratch: &mut Scratch,
        totals: &mut Totals,
    ) -> Result<(), EncodeError> {
        let (k, block) = (self.coder.code().k(), run.block as usize);
        let frame = block + self.coder.table_bytes();
        scratch.homeless.resize(self.coder.code().m() * block, 0);
        for (making, records) in self.makings.iter().zip(&mut scratch.records) {
            let bytes = making.home.columns * frame * run.count as usize;
            let write = EncodeError::write(&making.home.place);
            records.begin(making.records.offset(run.first), bytes, making.draft.as_ref()).map_err(write)?;
        }
        let has_old = self.read_old(run, scratch)?;
        for row in 0..run.count {
            let stripe = run.first + row;
            scratch.source.load(self.content, run, row, k)?;
            if has_old && self.keep(run, row, frame, scratch, totals)? {
                totals.kept += 1;
                continue;
            }
            self.encode_row(stripe, row, frame, scratch, totals)?;
            totals.encoded += 1;
            if self.in_place {
                self.note_changes(stripe, row, frame, scratch, totals);
            }
        }
        for (making, records) in self.makings.iter().zip(&mut scratch.records) {
            let write = EncodeError::write(&making.home.place);
            records.end(making.draft.as_ref(), self.makings.len()).map_err(write)?;
        }
        Ok(())
    }

    /// Writes what a thread holds back: all its runs are encoded.
    pub(super) fn flush(&self, scratch: &mut Scratch) -> Result<(), EncodeError> {
        for (making, records) in self.makings.iter().zip(&mut scratch.records) {
            records.flush(making.draft.as_ref()).map_err(EncodeError::write(&making.home.place))?;
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
        let mut seals: Vec<Seal> = Vec::with_capacity(k);
        for data in scratch.source.blocks(stripe, k, block) {
            seals.push(self.coder.sign(data)?);
        }
        for (making, old) in self.makings.iter().zip(&scratch.old) {
            for (column, bytes) in row_of(old, row, frame, making.home.columns).enumerate() {
                let column = making.home.first + column;
                let Some(opened) = Frame::open(bytes, self.coder.shape(), making.header.id, column, stripe)
                else {
                    return Ok(false);
                };
                if let (Some(untouched), Some(old)) = (self.untouched, &making.old) {
                    untouched.find_damage(old, run, row, &opened, &seals, &mut totals.damaged);
                }
                // Rot must not be carried over into what is called new.
                if !opened.data().eq(seals.iter().copied()) || self.coder.sign(opened.block)? != opened.own()
                {
                    return Ok(false);
                }
            }
        }
        for (at, making) in self.makings.iter().enumerate() {
            let range = row_range(row, frame, making.home.columns);
            scratch.records[at].fresh()[range.clone()].copy_from_slice(&scratch.old[at][range.clone()]);
            for bytes in scratch.old[at][range].chunks_exact(frame) {
                if let Some(check) = bytes.last_chunk::<16>() {
                    toggle(&mut totals.roots[at], check);
                }
            }
        }
        Ok(true)
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
        let Scratch { source, records, homeless, .. } = scratch;
        let data = source.blocks(stripe, k, block);
        let mut outputs: Vec<Option<&mut [u8]>> =
            homeless.chunks_exact_mut(block).take(m).map(Some).collect();
        for (making, records) in self.makings.iter().zip(records.iter_mut()) {
            let range = row_range(row, frame, making.home.columns);
            for (column, bytes) in records.fresh()[range].chunks_exact_mut(frame).enumerate() {
                outputs[making.home.first + column] = Some(&mut bytes[..block]);
            }
        }
        let mut outputs: Vec<&mut [u8]> = outputs.into_iter().flatten().collect();
        let seals = self.coder.encode(&data, &mut outputs)?;
        let (data_seals, own_seals) = seals.split_at(k);
        for (at, making) in self.makings.iter().enumerate() {
            let range = row_range(row, frame, making.home.columns);
            for (column, bytes) in records[at].fresh()[range].chunks_exact_mut(frame).enumerate() {
                let column = making.home.first + column;
                let id = making.header.id;
                let check = Frame::seal(bytes, id, column, stripe, data_seals, &own_seals[column]);
                toggle(&mut totals.roots[at], &check);
            }
        }
        Ok(())
    }

    fn note_changes(&self, stripe: u64, row: u64, frame: usize, scratch: &mut Scratch, totals: &mut Totals) {
        for (at, making) in self.makings.iter().enumerate() {
            let range = row_range(row, frame, making.home.columns);
            totals.change_bytes += range.len();
            // Beyond the bound the file is made anew, and nobody needs these.
            if totals.change_bytes <= redo::MAX_BYTES {
                let bytes = scratch.records[at].fresh()[range].to_vec();
                totals.changes[at].push((making.records.offset(stripe), bytes));
            }
        }
    }
}

fn row_range(row: u64, frame: usize, columns: usize) -> std::ops::Range<usize> {
    let start = row as usize * columns * frame;
    start..start + columns * frame
}

fn row_of(records: &[u8], row: u64, frame: usize, columns: usize) -> impl Iterator<Item = &[u8]> {
    records[row_range(row, frame, columns)].chunks_exact(frame)
}
