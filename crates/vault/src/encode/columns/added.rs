//! New redundancy columns of data that is compared with its signatures while it is read.

use super::{Change, read_table};
use crate::coder::Coder;
use crate::encode::EncodeError;
use crate::encode::EncodeOptions;
use crate::encode::row_source::RowSource;
use crate::encode::totals::rows_of_piece;
use crate::format::Frame;
use crate::format::frame::{Check, Seal, toggle};
use crate::geometry::{Cut, Run};
use crate::redundancy::{Draft, Part};
use crate::runs::{each_run, large_pieces};
use crate::storage::Content;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A column to compute.
struct Column<'a> {
    /// Number of its redundancy file.
    file: usize,
    change: &'a Change<'a>,
    /// Number in the file.
    within: usize,
    /// Redundancy column.
    column: usize,
}

/// What was added.
pub(super) struct Added {
    /// Per redundancy file, the sum of the checks of its new frames.
    pub(super) roots: Vec<Check>,
    /// Bytes of data that were read.
    pub(super) read: u64,
}

/// Why it ended early.
enum Stop {
    /// The data is not what the redundancy describes, or its signatures cannot be read.
    Differs,
    Failed(EncodeError),
}

impl From<EncodeError> for Stop {
    fn from(error: EncodeError) -> Stop {
        Stop::Failed(error)
    }
}

/// State of a thread.
struct Scratch {
    source: RowSource,
    /// Frames of a piece, per column.
    frames: Vec<Vec<u8>>,
    table: Vec<u8>,
    added: Added,
}

/// Columns to compute for a file.
pub(super) struct AddedColumns<'a> {
    coder: &'a Arc<Coder>,
    content: &'a dyn Content,
    cut: Cut,
    files: usize,
    columns: Vec<Column<'a>>,
    /// Redundancy files with signatures of the data, newest first.
    tables: Vec<&'a Part>,
}

impl<'a> AddedColumns<'a> {
    pub(super) fn new(
        coder: &'a Arc<Coder>,
        content: &'a dyn Content,
        cut: Cut,
        changes: &'a [Change<'a>],
    ) -> AddedColumns<'a> {
        let columns = |(file, change): (usize, &'a Change<'a>)| {
            let first = change.plan.placement.first;
            let within = change.kept..change.header.columns;
            within.map(move |within| Column { file, change, within, column: first + within })
        };
        let mut tables: Vec<&Part> = changes.iter().filter_map(|change| change.part).collect();
        tables.sort_by_key(|part| std::cmp::Reverse(part.header.revision));
        AddedColumns {
            coder,
            content,
            cut,
            files: changes.len(),
            columns: changes.iter().enumerate().flat_map(columns).collect(),
            tables,
        }
    }

    /// Reads the data once and writes the columns. Returns none if the data is not what the redundancy describes.
    pub(super) fn run(&self, options: EncodeOptions<'_>) -> Result<Option<Added>, EncodeError> {
        let k = self.coder.code().k();
        let state = || Scratch {
            source: RowSource::default(),
            frames: vec![Vec::new(); self.columns.len()],
            table: Vec::new(),
            added: Added { roots: vec![[0; 16]; self.files], read: 0 },
        };
        let piece = large_pieces(k.max(self.coder.code().m()));
        let states =
            each_run(&self.cut, piece, Some(self.content), options.threads, state, |run, scratch| {
                if (options.stopped)() {
                    return Err(Stop::Failed(EncodeError::Stopped));
                }
                scratch.source.begin(self.content, run, k);
                let (mut next, end) = (run.first, run.first + run.count);
                while next < end {
                    let piece = self.cut.run(next, rows_of_piece(k, run.block).min(end - next));
                    self.piece(&piece, scratch)?;
                    next += piece.count;
                }
                scratch.source.end(self.content, k)?;
                let bytes = (0..k).map(|column| run.piece(column)).map(|piece| piece.end - piece.start).sum();
                scratch.added.read += bytes;
                (options.progress)(bytes);
                Ok(())
            });
        let states = match states {
            Ok(states) => states,
            Err(Stop::Differs) => return Ok(None),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let mut all = Added { roots: vec![[0; 16]; self.files], read: 0 };
        for Scratch { added, .. } in states {
            all.roots.iter_mut().zip(&added.roots).for_each(|(root, other)| toggle(root, other));
            all.read += added.read;
        }
        Ok(Some(all))
    }

    fn piece(&self, run: &Run, scratch: &mut Scratch) -> Result<(), Stop> {
        let (k, block) = (self.coder.code().k(), run.block as usize);
        let frame = block + self.coder.table_bytes();
        let wanted: Vec<usize> = self.columns.iter().map(|column| column.column).collect();
        scratch.frames.iter_mut().for_each(|frames| frames.resize(frame * run.count as usize, 0));
        for row in 0..run.count {
            let stripe = run.first + row;
            scratch.source.load(self.content, run, row, k)?;
            let data = scratch.source.blocks(stripe, k, block);
            let mut bytes: Vec<&mut [u8]> = scratch
                .frames
                .iter_mut()
                .map(|frames| &mut frames[row as usize * frame..][..frame])
                .collect();
            let mut outputs: Vec<&mut [u8]> = bytes.iter_mut().map(|bytes| &mut bytes[..block]).collect();
            let seals = self.coder.encode_columns(&wanted, &data, &mut outputs).map_err(EncodeError::from)?;
            let (data, own) = seals.split_at(k);
            if !self.are_right(stripe, data, &mut scratch.table) {
                return Err(Stop::Differs);
            }
            for ((column, bytes), own) in self.columns.iter().zip(bytes).zip(own) {
                let key = column.change.header.frame_key();
                let check = Frame::seal(bytes, key, column.column, stripe, data, own);
                toggle(&mut scratch.added.roots[column.file], &check);
            }
        }
        for (column, frames) in self.columns.iter().zip(&scratch.frames) {
            let offset = column.change.records.frame_offset(column.within, run.first);
            column.write(frames, offset).map_err(column.change.write_error())?;
        }
        Ok(())
    }

    /// True if blocks are what the first readable table of their stripe says.
    fn are_right(&self, stripe: u64, data: &[Seal], table: &mut Vec<u8>) -> bool {
        for part in &self.tables {
            for (at, column) in part.columns().enumerate() {
                let read = read_table(part, at, stripe, table);
                if let Some(opened) = read.and_then(|()| part.frame(table, column, stripe)) {
                    return opened.data().eq(data.iter().copied());
                }
            }
        }
        false
    }
}

impl Column<'_> {
    fn write(&self, frames: &[u8], offset: u64) -> io::Result<()> {
        match (&self.change.draft, self.change.part) {
            (Some(draft), _) => Draft::write(draft, offset, frames),
            (None, Some(part)) => part.file.write_all_at(frames, offset),
            (None, None) => Ok(()),
        }
    }
}
