//! Verification of blocks of an open file: a block that was not written since it was protected must match its
//! signature.
//!
//! Damage elsewhere in a file must neither be returned to a program that writes to it, nor be included in the next
//! redundancy. So blocks are verified when they are read, and before they are partly overwritten, truncated or punched:
//! the rest of such a block counts as written from then on. Verification does not wait for redundancy that is being
//! updated; such blocks are not verified.

use super::file::{CurrentPaths, LiveFile, write_all};
use super::lock;
use super::state::OpenState;
use crate::bit_set::AtomicBitSet;
use crate::degraded::Report;
use crate::examine::{BlockFault, BlockState, ExamineError, ProtectedFile, StripeBuffer};
use crate::geometry::merge;
use crate::reconstruct::{ReconstructError, reconstruct_ranges};
use crate::storage::pool::error::PoolError;
use crate::world::Stopwatch;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long signature tables are cached: redundancy may have been updated, and valid blocks may have become corrupt.
const RECHECK_AFTER: Duration = Duration::from_secs(10);

/// Retry interval while no tables are found: the redundancy may be just being updated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Cached redundancy information of an open file.
#[derive(Debug, Default)]
pub(super) struct BlockGuard {
    seen: Option<Stopwatch>,
    tables: Option<Arc<SignatureTables>>,
    report: Report,
}

/// Signatures of the blocks of a version.
#[derive(Debug)]
struct SignatureTables {
    protected: ProtectedFile,
    /// Blocks that matched their signature.
    right: AtomicBitSet,
    /// Whether all tables are the latest ones, checked on first use.
    sure: OnceLock<bool>,
}

/// Whether blocks that were verified before are verified again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recheck {
    SkipVerified,
    All,
}

/// Bytes adjacent to a range in its first and last block, if these are partly covered.
pub(super) fn edges(range: &Range<u64>, block: u64) -> Vec<Range<u64>> {
    let before = (!range.start.is_multiple_of(block)).then(|| range.start - 1..range.start);
    let after = (!range.end.is_multiple_of(block)).then(|| range.end..range.end + 1);
    before.into_iter().chain(after).collect()
}

impl LiveFile {
    /// Returns, and resets, the report of reconstructed blocks.
    pub fn take_report(&self) -> Report {
        std::mem::take(&mut lock(&self.guard).report)
    }

    /// Signature tables of the redundancy of the file, if the ranges written since it was encoded are known.
    fn tables(&self, state: &OpenState, current_paths: CurrentPaths<'_>) -> Option<Arc<SignatureTables>> {
        if !state.has_versions() {
            return None;
        }
        let mut guard = lock(&self.guard);
        let max_age = if guard.tables.is_some() { RECHECK_AFTER } else { RETRY_AFTER };
        if guard.seen.is_none_or(|seen| seen.elapsed() > max_age) {
            guard.tables = self.find_tables(state, current_paths).map(Arc::new);
            guard.seen = Some(Stopwatch::start());
        }
        guard.tables.clone()
    }

    fn find_tables(&self, state: &OpenState, current_paths: CurrentPaths<'_>) -> Option<SignatureTables> {
        let (pool, coders) = (&self.inner.pool, &self.inner.coders);
        let knows_version = |subject: &ProtectedFile| state.knows_version(&subject.header.generation);
        let paths = self.inner.redundancy_paths(&current_paths());
        let subject = paths.iter().find_map(|path| {
            Some((path, ProtectedFile::try_open(pool, coders, path).ok().filter(knows_version)?))
        });
        let (path, subject) = subject?;
        let protected = subject.for_reading(pool, path).ok()?;
        protected.unlock().ok()?;
        let blocks = protected.cut().stripes() * protected.header.code.k() as u64;
        Some(SignatureTables { protected, right: AtomicBitSet::with_len(blocks), sure: OnceLock::new() })
    }

    /// Blocks overlapping `ranges` that differ from their signature although they were not written since.
    fn damaged(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        ranges: &[Range<u64>],
        recheck: Recheck,
    ) -> Vec<Range<u64>> {
        let Some(tables) = self.tables(state, current_paths) else { return Vec::new() };
        let protected = &tables.protected;
        let (cut, header) = (protected.cut(), &protected.header);
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
                let max_age = recheck == Recheck::SkipVerified && tables.right.contains(bit);
                if max_age || found.contains(&cell) || !state.is_unchanged_since(&header.generation, &cell) {
                    continue;
                }
                let mut block = vec![0; run.block as usize];
                let bytes = (cell.end - cell.start) as usize;
                // Unreadable blocks are reconstructed by the caller.
                if !self.read_columns(state, cell.start, &mut block[..bytes]).is_empty() {
                    continue;
                }
                if loaded != Some(stripe) {
                    protected.begin(&mut stripe_buffer, stripe);
                    loaded = Some(stripe);
                }
                match protected.check(&stripe_buffer, column, &block) {
                    Ok(BlockState::Verified) => {
                        tables.right.insert(bit);
                    }
                    Ok(BlockState::Faulty(Some(BlockFault::Wrong))) if tables.is_sure() => found.push(cell),
                    _ => {}
                }
            }
        }
        found
    }

    /// Replaces bytes that were read from damaged blocks by the protected content.
    ///
    /// # Errors
    /// [`PoolError::Lost`] if they cannot be reconstructed.
    pub(super) fn check_read(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), PoolError> {
        let asked = offset..offset + buffer.len() as u64;
        let damaged = self.damaged(state, current_paths, std::slice::from_ref(&asked), Recheck::SkipVerified);
        if damaged.is_empty() {
            return Ok(());
        }
        let pieces: Vec<Range<u64>> = damaged
            .iter()
            .map(|cell| cell.start.max(asked.start)..cell.end.min(asked.end))
            .filter(|piece| !piece.is_empty())
            .collect();
        let made = self.reconstruct(state, current_paths, &pieces, |range, made| {
            buffer[(range.start - offset) as usize..][..made.len()].copy_from_slice(made);
            Ok(())
        });
        match made {
            Ok(()) => Ok(()),
            // The redundancy is gone, so the bytes cannot be judged any more.
            Err(ReconstructError::Outdated | ReconstructError::Examine(_)) => Ok(()),
            Err(why) => {
                let column = state.stub.pieces(pieces[0].clone()).next().map_or(0, |piece| piece.column);
                let target = state.stub.targets[column].clone();
                let path = current_paths().into_iter().next().unwrap_or_default();
                let why = why.because("it is corrupt, and ");
                Err(PoolError::Lost { path, column, target, why })
            }
        }
    }

    /// Repairs damaged blocks that overlap the ranges and are about to be partly changed. Blocks that cannot be
    /// repaired stay as they are, so that the write can go on.
    pub(super) fn repair_before_write(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        ranges: &[Range<u64>],
    ) {
        for cell in self.damaged(state, current_paths, ranges, Recheck::All) {
            let _ = self.rewrite_block(state, current_paths, &cell);
        }
    }

    /// Restores the protected content of damaged blocks that were not written since, as far as possible.
    pub fn repair_blocks(&self, current_paths: CurrentPaths<'_>, cells: &[Range<u64>]) {
        let state = self.lock_state();
        // The caller has found damage, so the cache is dropped.
        lock(&self.guard).seen = None;
        self.repair_before_write(&state, current_paths, cells);
    }

    fn rewrite_block(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        cell: &Range<u64>,
    ) -> Result<(), ReconstructError> {
        self.reconstruct(state, current_paths, std::slice::from_ref(cell), |range, made| {
            let mut rest = made;
            for piece in state.stub.pieces(range) {
                let (now, later) = rest.split_at(piece.bytes as usize);
                rest = later;
                let failed = |error| ReconstructError::Examine(ExamineError::Read(error));
                let file = self.existing_object(state, piece.column).map_err(|error| failed(error.into()))?;
                let file = file.ok_or(ReconstructError::TooLittle)?;
                self.note_unsynced(piece.column);
                write_all(&file, &mut [IoSlice::new(now)], piece.offset).map_err(failed)?;
            }
            Ok(())
        })
    }

    /// Reconstructs parts of damaged blocks, and counts them.
    fn reconstruct(
        &self,
        state: &OpenState,
        current_paths: CurrentPaths<'_>,
        pieces: &[Range<u64>],
        give: impl FnMut(Range<u64>, &[u8]) -> Result<(), ReconstructError>,
    ) -> Result<(), ReconstructError> {
        let paths = self.inner.redundancy_paths(&current_paths());
        let is_unchanged_since = |version: &_, range: &_| state.is_unchanged_since(version, range);
        reconstruct_ranges(&self.inner.pool, &self.inner.coders, &paths, pieces, is_unchanged_since, give)?;
        let report = &mut lock(&self.guard).report;
        for range in merge(pieces.to_vec()) {
            for piece in state.stub.pieces(range) {
                let target = state.stub.targets[piece.column].clone();
                *report.faults.entry(target.into()).or_default().entry(BlockFault::Wrong).or_default() += 1;
                report.reconstructed += 1;
                report.reconstructed_bytes += piece.bytes;
            }
        }
        Ok(())
    }
}

impl SignatureTables {
    /// A disk that lost a write has tables of older blocks; blocks that differ from these may be newer.
    fn is_sure(&self) -> bool {
        *self.sure.get_or_init(|| self.protected.has_current_frames())
    }
}
