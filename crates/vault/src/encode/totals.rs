//! Distribution of rows over threads, and the sum of their results.

use super::rows::{Rows, Scratch};
use super::write_tracker::Compared;
use super::{EncodeError, EncodeOptions};
use crate::format::frame::toggle;
use crate::geometry::Cut;
use crate::redundancy::redo;
use crate::runs::{each_run_of, large_pieces};
use std::ops::Range;

/// Sum of the results of all threads.
#[derive(Debug)]
pub(super) struct Totals {
    /// Per redundancy file, the sum of its frames' checks.
    pub(super) roots: Vec<[u8; 16]>,
    /// Per redundancy file, the records to write in place.
    pub(super) changes: Vec<Vec<(u64, Vec<u8>)>>,
    pub(super) change_bytes: usize,
    pub(super) encoded: u64,
    pub(super) kept: u64,
    /// Bytes of data that were read.
    pub(super) read: u64,
    /// A frame of a written stripe is damaged, so its check cannot be removed from the root.
    pub(super) root_is_unknown: bool,
    /// Comparison of blocks with their former signatures.
    pub(super) compared: Compared,
}

impl Totals {
    pub(super) fn new(files: usize) -> Totals {
        let changes = (0..files).map(|_| Vec::new()).collect();
        let roots = vec![[0; 16]; files];
        let compared = Compared::default();
        Totals {
            roots,
            changes,
            change_bytes: 0,
            encoded: 0,
            kept: 0,
            read: 0,
            root_is_unknown: false,
            compared,
        }
    }

    pub(super) fn and(mut self, other: Totals) -> Totals {
        self.roots.iter_mut().zip(&other.roots).for_each(|(root, other)| toggle(root, other));
        let changes = self.changes.iter_mut().zip(other.changes);
        changes.for_each(|(all, mut changes)| all.append(&mut changes));
        self.change_bytes += other.change_bytes;
        self.encoded += other.encoded;
        self.kept += other.kept;
        self.read += other.read;
        self.root_is_unknown |= other.root_is_unknown;
        self.compared = self.compared.and(other.compared);
        self
    }

    pub(super) fn changes_are_too_many(&self) -> bool {
        self.change_bytes > redo::MAX_BYTES
    }
}

/// Bytes of data whose redundancy is written at once, small enough to be in the cache still.
const PIECE_BYTES: u64 = 1 << 20;

/// Rows of a piece.
pub(super) fn rows_of_piece(k: usize, block: u64) -> u64 {
    (PIECE_BYTES / (k as u64 * block)).max(1)
}

/// Encodes a range of the stripes of a file, or only written ones of it where these are known.
pub(super) fn encode_rows(
    rows: &Rows<'_>,
    cut: &Cut,
    stripes: Range<u64>,
    options: EncodeOptions<'_>,
) -> Result<Totals, EncodeError> {
    let (k, files) = (rows.coder.code().k(), rows.parity_files.len());
    let state = || (Scratch::new(rows.parity_files), Totals::new(files));
    let states = each_run_of(
        cut,
        stripes,
        large_pieces(k.max(rows.coder.code().m())),
        // Prefetched data would be read by the system.
        rows.written.is_none().then_some(rows.content),
        options.threads,
        state,
        |run, (scratch, totals)| {
            if (options.stopped)() {
                return Err(EncodeError::Stopped);
            }
            let parts = rows.parts(run);
            totals.kept += run.count - parts.iter().map(|part| part.end - part.start).sum::<u64>();
            for part in parts {
                let run = cut.run(part.start, part.end - part.start);
                if rows.is_read(&run) {
                    scratch.source.begin(rows.content, &run, k);
                }
                let mut next = part.start;
                while next < part.end {
                    let piece = cut.run(next, rows_of_piece(k, run.block).min(part.end - next));
                    rows.encode(&piece, scratch, totals)?;
                    next += piece.count;
                }
                scratch.source.end(rows.content, k)?;
            }
            (options.progress)(
                (0..k).map(|column| run.piece(column)).map(|piece| piece.end - piece.start).sum(),
            );
            Ok(())
        },
    )?;
    let mut totals = Totals::new(files);
    if rows.keeps_roots() {
        let roots = rows
            .parity_files
            .iter()
            .map(|parity_file| parity_file.old.as_ref().map_or([0; 16], |old| old.header.root));
        totals.roots = roots.collect();
    }
    states.into_iter().try_fold(totals, |all, (mut scratch, totals)| {
        rows.flush(&mut scratch)?;
        Ok(all.and(totals))
    })
}
