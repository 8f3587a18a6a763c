//! Blocks of an open file that nobody wrote to since they were protected: they are what was protected, or damaged.
//!
//! Who writes to a part of a file must neither be given damage of the rest, nor have it become part of the next redundancy. So blocks
//! that are read are checked, and so are those of which a part is written, cut off or made a hole: what is left of them counts as
//! written from then on. Nobody waits for redundancy that is being made; meanwhile nothing is known.

use super::file::{LiveFile, Name, write_all};
use super::lock;
use super::state::State;
use crate::degraded::Report;
use crate::examine::{ExamineError, ProtectedFile};
use crate::geometry::merge;
use crate::marks::Marks;
use crate::rescue::{RescueError, rescue};
use crate::storage::pool::error::PoolError;
use crate::stripe_reader::{BlockFault, BlockState, StripeBuffer, StripeReader};
use crate::world::Stopwatch;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long what was found is believed: redundancy may have been made since, and blocks that were right may have rotted.
const BELIEVED: Duration = Duration::from_secs(10);

/// How long it is believed that nothing can be found: someone may just be making redundancy.
const UNKNOWN: Duration = Duration::from_secs(1);

/// What is known of the redundancy of an open file.
#[derive(Debug, Default)]
pub(super) struct Guard {
    seen: Option<Stopwatch>,
    tables: Option<Arc<Tables>>,
    report: Report,
}

/// What blocks of a version have to be.
#[derive(Debug)]
struct Tables {
    stripe_reader: StripeReader,
    /// Blocks that were found right.
    right: Marks,
    /// Whether all of them are those that were written last, once there was a reason to ask.
    sure: OnceLock<bool>,
}

/// Whether blocks are looked at that were found right a moment ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Believing,
    Again,
}

/// What is next to a range in the blocks where it begins and ends: they are changed in part.
pub(super) fn edges(range: &Range<u64>, block: u64) -> Vec<Range<u64>> {
    let before = (!range.start.is_multiple_of(block)).then(|| range.start - 1..range.start);
    let after = (!range.end.is_multiple_of(block)).then(|| range.end..range.end + 1);
    before.into_iter().chain(after).collect()
}

impl LiveFile {
    /// What was done for readers and writers since this was asked last.
    pub fn take_report(&self) -> Report {
        std::mem::take(&mut lock(&self.guard).report)
    }

    /// Tables of the redundancy that the file has, if it is known what was written since it was made.
    fn tables(&self, state: &State, name: Name<'_>) -> Option<Arc<Tables>> {
        if !state.has_versions() {
            return None;
        }
        let mut guard = lock(&self.guard);
        let believed = if guard.tables.is_some() { BELIEVED } else { UNKNOWN };
        if guard.seen.is_none_or(|seen| seen.elapsed() > believed) {
            guard.tables = self.find_tables(state, name).map(Arc::new);
            guard.seen = Some(Stopwatch::start());
        }
        guard.tables.clone()
    }

    fn find_tables(&self, state: &State, name: Name<'_>) -> Option<Tables> {
        let (pool, coders) = (&self.inner.pool, &self.inner.coders);
        let is_known = |protected: &ProtectedFile| state.is_known(&protected.header.generation);
        let paths = self.inner.places(&name());
        let protected = paths.iter().find_map(|path| {
            Some((path, ProtectedFile::open_at_once(pool, coders, path).ok().filter(is_known)?))
        });
        let (path, protected) = protected?;
        let stripe_reader = StripeReader::of(protected, pool, path).ok()?;
        stripe_reader.unlock().ok()?;
        let blocks = stripe_reader.cut().stripes() * stripe_reader.header().code.k() as u64;
        Some(Tables { stripe_reader, right: Marks::none_of(blocks), sure: OnceLock::new() })
    }

    /// Blocks with bytes of `ranges` that are not what was protected, although nobody wrote to them since.
    fn damaged(&self, state: &State, name: Name<'_>, ranges: &[Range<u64>], look: Look) -> Vec<Range<u64>> {
        let Some(tables) = self.tables(state, name) else { return Vec::new() };
        let stripe_reader = &tables.stripe_reader;
        let (cut, header) = (stripe_reader.cut(), stripe_reader.header());
        let mut found: Vec<Range<u64>> = Vec::new();
        let (mut stripe_buffer, mut loaded) = (StripeBuffer::default(), None);
        for range in ranges {
            let (mut at, end) = (range.start, range.end.min(header.generation.size).min(state.stub.size));
            while at < end {
                let (stripe, column) = cut.locate(at);
                let run = cut.run(stripe, 1);
                let cell = run.cell(0, column);
                at = cell.end.max(at + 1);
                let bit = stripe * header.code.k() as u64 + column as u64;
                let believed = look == Look::Believing && tables.right.has(bit);
                if believed || found.contains(&cell) || !state.is_in(&header.generation, &cell) {
                    continue;
                }
                let mut block = vec![0; run.block as usize];
                let bytes = (cell.end - cell.start) as usize;
                // What cannot be read is made again by who needs it.
                if !self.read_columns(state, cell.start, &mut block[..bytes]).is_empty() {
                    continue;
                }
                if loaded != Some(stripe) {
                    stripe_reader.begin(&mut stripe_buffer, stripe);
                    loaded = Some(stripe);
                }
                match stripe_reader.check(&stripe_buffer, column, &block) {
                    Ok(BlockState::Verified) => {
                        tables.right.set(bit);
                    }
                    Ok(BlockState::Faulty(Some(BlockFault::Wrong))) if tables.is_sure() => found.push(cell),
                    _ => {}
                }
            }
        }
        found
    }

    /// Replaces bytes that were read from damaged blocks by what was protected.
    ///
    /// # Errors
    /// [`PoolError::Lost`] if they cannot be made again.
    pub(super) fn check_read(
        &self,
        state: &State,
        name: Name<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), PoolError> {
        let asked = offset..offset + buffer.len() as u64;
        let damaged = self.damaged(state, name, std::slice::from_ref(&asked), Look::Believing);
        if damaged.is_empty() {
            return Ok(());
        }
        let pieces: Vec<Range<u64>> = damaged
            .iter()
            .map(|cell| cell.start.max(asked.start)..cell.end.min(asked.end))
            .filter(|piece| !piece.is_empty())
            .collect();
        let made = self.make_again(state, name, &pieces, |range, made| {
            buffer[(range.start - offset) as usize..][..made.len()].copy_from_slice(made);
            Ok(())
        });
        match made {
            Ok(()) => Ok(()),
            // There is nothing any more that could tell what they were.
            Err(RescueError::Outdated | RescueError::Examine(_)) => Ok(()),
            Err(why) => {
                let column = state.stub.pieces(pieces[0].clone()).next().map_or(0, |piece| piece.column);
                let target = state.stub.targets[column].clone();
                let path = name().into_iter().next().unwrap_or_default();
                let why = format!("it is not what was protected, and {why}");
                Err(PoolError::Lost { path, column, target, why })
            }
        }
    }

    /// Puts blocks right that have a byte in one of the ranges and are about to be changed in part. What cannot be put right stays as it
    /// is: that must not keep anyone from writing.
    pub(super) fn mend_before(&self, state: &State, name: Name<'_>, ranges: &[Range<u64>]) {
        for cell in self.damaged(state, name, ranges, Look::Again) {
            let _ = self.put_back(state, name, &cell);
        }
    }

    /// Puts back what was protected of damaged blocks that nobody wrote to since, as far as that can be.
    pub fn repair_blocks(&self, name: Name<'_>, cells: &[Range<u64>]) {
        let state = self.change();
        // Those who ask have found out something.
        lock(&self.guard).seen = None;
        self.mend_before(&state, name, cells);
    }

    fn put_back(&self, state: &State, name: Name<'_>, cell: &Range<u64>) -> Result<(), RescueError> {
        self.make_again(state, name, std::slice::from_ref(cell), |range, made| {
            let mut rest = made;
            for piece in state.stub.pieces(range) {
                let (now, later) = rest.split_at(piece.bytes as usize);
                rest = later;
                let failed = |error| RescueError::Examine(ExamineError::Read(error));
                let file = self.existing(state, piece.column).map_err(|error| failed(error.into()))?;
                let file = file.ok_or(RescueError::TooLittle)?;
                self.note_unsynced(piece.column);
                write_all(&file, &mut [IoSlice::new(now)], piece.offset).map_err(failed)?;
            }
            Ok(())
        })
    }

    /// Makes parts of damaged blocks again, and counts them.
    fn make_again(
        &self,
        state: &State,
        name: Name<'_>,
        pieces: &[Range<u64>],
        give: impl FnMut(Range<u64>, &[u8]) -> Result<(), RescueError>,
    ) -> Result<(), RescueError> {
        let paths = self.inner.places(&name());
        let is_in = |version: &_, range: &_| state.is_in(version, range);
        rescue(&self.inner.pool, &self.inner.coders, &paths, pieces, is_in, give)?;
        let report = &mut lock(&self.guard).report;
        for range in merge(pieces.to_vec()) {
            for piece in state.stub.pieces(range) {
                let target = state.stub.targets[piece.column].clone();
                *report.faults.entry(target).or_default().entry(BlockFault::Wrong).or_default() += 1;
                report.reconstructed += 1;
                report.reconstructed_bytes += piece.bytes;
            }
        }
        Ok(())
    }
}

impl Tables {
    /// A disk that lost a write has tables of older blocks, and what differs from these may be newer.
    fn is_sure(&self) -> bool {
        *self.sure.get_or_init(|| self.stripe_reader.is_current())
    }
}
