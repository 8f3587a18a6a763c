//! The stripe reader: all code that reads blocks of a protected file verifies and reconstructs them here.
//!
//! A stripe is k data blocks and m redundancy blocks; any k of them give the others. Each redundancy block lies in a
//! *frame*, together with a table of the signatures of all data blocks of its stripe. So every frame says how all data
//! must look. A reader fills a [`StripeBuffer`], which holds the blocks with the state of each, and lists the faults
//! that were found. There are two modes:
//!
//! - **Strict** ([`ProtectedFile::read_run`] and [`judge`](ProtectedFile::judge), or
//!   [`read_whole`](ProtectedFile::read_whole) for a single stripe): all k + m blocks and all tables are read, and each
//!   block is judged. Tables may contradict each other, since a write can be lost. The table of the newest revision is
//!   used, among several of these the one that matches the most blocks. Scrub, repair and reconstruction of blocks
//!   that are known to be bad use it.
//! - **Lazy** ([`ProtectedFile::begin`] and [`load`](ProtectedFile::load)): one table is read, then only the blocks
//!   that the caller wants. If one of these is missing, further blocks are read until k are correct. Degraded reads,
//!   mounts and rebuilds use it. A block that was read but differs from its signature ends the lazy mode for its
//!   stripe: either the block or the table may be wrong, and only the strict mode can tell which.
//!
//! In both modes, [`StripeBuffer::restore`] reconstructs bad blocks and verifies the results.
//!
//! A file is opened for the lazy mode with [`open_to_read`](ProtectedFile::open_to_read) or
//! [`for_reading`](ProtectedFile::for_reading). Redundancy of another version than the present one is not used then.

use super::stripe::{BlockFault, BlockState, StripeBuffer, Table};
use super::{ExamineError, ExamineOptions, Findings, ProtectedFile, examine};
use crate::coder::Coders;
use crate::format::frame::{Seal, toggle};
use crate::format::{Frame, Header};
use crate::geometry::Run;
use crate::redundancy::{Part, read_up_to};
use crate::storage::deadline_io::DeadlineIo;
use crate::storage::plain::{DATA, REPOSITORY};
use crate::storage::{Fault, Storage};
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// What the lazy mode needs besides the open file.
#[derive(Debug, Default)]
pub(super) struct LazyState {
    /// Per redundancy file: access with the deadline of its disk, if that has one.
    deadlines: Vec<Option<(Arc<File>, Arc<DeadlineIo>)>>,
    /// Targets by column, redundancy last; empty for a column without a target.
    targets: Vec<Vec<u8>>,
    /// Findings of the whole file, made when a stripe is in doubt; none inside if all frames are those that the headers
    /// describe.
    verdict: Mutex<Option<Arc<Option<Findings>>>>,
}

/// The strict mode.
impl ProtectedFile {
    /// Reads the frames of a run, whose stripes can be judged then. An unreadable redundancy file counts as missing.
    pub(super) fn read_run(&self, stripe_buffer: &mut StripeBuffer, run: &Run) {
        stripe_buffer.records.resize_with(self.parts.len(), Vec::new);
        for (part, buffer) in self.parts.iter().zip(&mut stripe_buffer.records) {
            if part.read_records(run.first, run.count, buffer).is_err() {
                buffer.fill(0);
            }
        }
    }

    /// Reads the data of the stripe in `row` of `run`, whose frames were read, and judges all blocks of the stripe.
    ///
    /// # Errors
    /// The code fails.
    pub(super) fn judge(
        &self,
        stripe_buffer: &mut StripeBuffer,
        run: &Run,
        row: u64,
    ) -> Result<(), ExamineError> {
        let (k, blocks, block) = (self.header.code.k(), self.header.code.blocks(), run.block as usize);
        (stripe_buffer.stripe, stripe_buffer.block) = (run.first + row, block);
        stripe_buffer.blocks.resize_with(blocks, Vec::new);
        stripe_buffer.blocks.iter_mut().for_each(|bytes| bytes.resize(block, 0));
        stripe_buffer.states.resize(blocks, BlockState::Unread);
        stripe_buffer.present.clear();
        stripe_buffer.present.resize(blocks, false);
        for column in 0..k {
            let read = self.read_data(run, row, column, &mut stripe_buffer.blocks[column]);
            stripe_buffer.present[column] = read.is_ok();
        }
        let tables = self.take_frames(stripe_buffer, row);
        let mut actual: Vec<Seal> = Vec::with_capacity(blocks);
        if !tables.is_empty() {
            for bytes in &stripe_buffer.blocks {
                actual.push(self.coder.sign(bytes)?);
            }
        }
        // Of equal results the first is used, that of the first frame.
        let verdicts =
            tables.into_iter().rev().map(|table| table.judge(self, &stripe_buffer.present, &actual));
        let best = verdicts.max_by_key(|(_, good)| good.iter().filter(|&&good| good).count());
        let good = match best {
            Some((seals, good)) => {
                stripe_buffer.seals = seals;
                good
            }
            None => {
                let seals = self.compare_without_seals(stripe_buffer)?;
                let good = (0..blocks).map(|column| column < k && seals.is_some()).collect();
                stripe_buffer.seals =
                    seals.map_or(vec![None; blocks], |seals| seals.into_iter().map(Some).collect());
                good
            }
        };
        for (state, good) in stripe_buffer.states.iter_mut().zip(good) {
            *state = match (good, *state) {
                (true, _) => BlockState::Verified,
                (false, BlockState::Faulty(why)) => BlockState::Faulty(why),
                (false, _) => BlockState::Faulty(None),
            };
        }
        Ok(())
    }

    /// Reads and judges a single stripe.
    ///
    /// # Errors
    /// The code fails.
    pub fn read_whole(&self, stripe_buffer: &mut StripeBuffer, stripe: u64) -> Result<(), ExamineError> {
        let run = self.cut().run(stripe, 1);
        self.read_run(stripe_buffer, &run);
        self.judge(stripe_buffer, &run, 0)
    }

    /// Takes the blocks from the frames, and the tables of the newest revision that has any for this stripe.
    fn take_frames(&self, stripe_buffer: &mut StripeBuffer, row: u64) -> Vec<Table> {
        let (k, m) = (self.header.code.k(), self.header.code.m());
        let StripeBuffer { stripe, block, blocks, present, records, .. } = stripe_buffer;
        let frame = *block + self.coder.table_bytes();
        let (mut tables, mut newest): (Vec<Table>, u64) = (Vec::new(), 0);
        for (part, records) in self.parts.iter().zip(records) {
            let Header { first, columns, revision, .. } = part.header;
            let start = row as usize * columns * frame;
            for (at, bytes) in records[start..start + columns * frame].chunks_exact(frame).enumerate() {
                let column = first + at;
                blocks[k + column].copy_from_slice(&bytes[..*block]);
                present[k + column] = true;
                let Some(opened) = part.frame(bytes, column, *stripe) else { continue };
                // Redundancy files are sorted by revision.
                if tables.is_empty() {
                    newest = revision;
                }
                let known = tables.iter_mut().find(|table| opened.data().eq(table.data.iter().copied()));
                match known {
                    Some(table) => table.own[column] = Some(opened.own()),
                    None if revision == newest => {
                        let mut own = vec![None; m];
                        own[column] = Some(opened.own());
                        tables.push(Table { data: opened.data().collect(), own });
                    }
                    None => {}
                }
            }
        }
        tables
    }

    /// Without any table: if encoding the data gives a redundancy block that exists, both are correct. Returns the
    /// signatures then.
    fn compare_without_seals(&self, stripe_buffer: &StripeBuffer) -> Result<Option<Vec<Seal>>, ExamineError> {
        let (k, m) = (self.header.code.k(), self.header.code.m());
        let StripeBuffer { block, blocks, present, .. } = stripe_buffer;
        if !stripe_buffer.is_readable(k) {
            return Ok(None);
        }
        let data: Vec<&[u8]> = blocks[..k].iter().map(|bytes| &bytes[..]).collect();
        let mut made = vec![0; m * block];
        let mut outputs: Vec<&mut [u8]> = made.chunks_exact_mut(*block).collect();
        let seals = self.coder.encode(&data, &mut outputs)?;
        let mut made = made.chunks_exact(*block).enumerate();
        let same = made.any(|(column, bytes)| present[k + column] && blocks[k + column][..] == *bytes);
        Ok(same.then_some(seals))
    }
}

/// The lazy mode.
impl ProtectedFile {
    /// Opens a file for the lazy mode. Returns none if there is no redundancy for the present version: then the file's
    /// own bytes are all there is. Does not wait for redundancy that is being made.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open_to_read(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Option<ProtectedFile>, ExamineError> {
        let protected = match ProtectedFile::open_present(storage, coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(None),
            protected => protected?,
        };
        if protected.content.is_none() || protected.is_changed() {
            return Ok(None);
        }
        protected.for_reading(storage, path).map(Some)
    }

    /// Prepares the lazy mode, for the version that the redundancy describes.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn for_reading(
        mut self,
        storage: &dyn Storage,
        path: &[u8],
    ) -> Result<ProtectedFile, ExamineError> {
        let revision = self.header.revision;
        self.parts.retain(|part| part.header.revision == revision);
        let code = &self.header.code;
        let layout = storage.layout(path, code, self.header.geometry.block());
        let mut targets = layout.map_or_else(|_| Vec::new(), |layout| layout.targets);
        targets.resize(code.k(), DATA.to_vec());
        targets.resize(code.blocks(), Vec::new());
        let repositories = storage.repositories();
        let mut deadlines = Vec::new();
        for part in &self.parts {
            let with_file = |deadline| Ok((Arc::new(part.frames().try_clone()?), deadline));
            let deadline = storage.io_deadline(&part.place).map(with_file).transpose();
            deadlines.push(deadline.map_err(ExamineError::Read)?);
            let home = repositories.iter().find(|home| home.tree.path() == part.place.tree.path());
            let name = home.map(|home| home.target.clone()).filter(|name| !name.is_empty());
            for column in part.columns() {
                targets[code.k() + column] = name.clone().unwrap_or_else(|| REPOSITORY.to_vec());
            }
        }
        self.lazy = LazyState { deadlines, targets, verdict: Mutex::default() };
        Ok(self)
    }

    /// Lets other processes update the redundancy while it is open here. The checks detect their writes.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn unlock(&self) -> std::io::Result<()> {
        self.parts.iter().try_for_each(|part| part.file.unlock())
    }

    /// Target of a column; empty if it has none.
    pub fn target(&self, column: usize) -> &[u8] {
        self.lazy.targets.get(column).map_or(b"", |name| name)
    }

    /// Name to report for a column: its target, or the target that the header names.
    pub fn place_of(&self, column: usize) -> &[u8] {
        let was = self.header.targets.get(column).map_or(&b""[..], |name| name);
        [self.target(column), was].into_iter().find(|name| !name.is_empty()).unwrap_or(REPOSITORY)
    }

    /// Begins a stripe: reads the expected signatures. Returns false if no table can be read; loading may still
    /// succeed.
    pub fn begin(&self, stripe_buffer: &mut StripeBuffer, stripe: u64) -> bool {
        let blocks = self.header.code.blocks();
        let block = self.cut().block(stripe) as usize;
        (stripe_buffer.stripe, stripe_buffer.block) = (stripe, block);
        stripe_buffer.blocks.resize_with(blocks, Vec::new);
        stripe_buffer.states.clear();
        stripe_buffer.states.resize(blocks, BlockState::Unread);
        stripe_buffer.checks.clear();
        stripe_buffer.checks.resize(self.parts.len(), None);
        stripe_buffer.seals.clear();
        stripe_buffer.seals.resize(blocks, None);
        stripe_buffer.faults.clear();
        (stripe_buffer.unsure, stripe_buffer.is_judged) = (false, false);
        let mut table = vec![0; self.coder.table_bytes()];
        for (at, part) in self.parts.iter().enumerate() {
            let start = part.records.frame_offset(0, stripe) + block as u64;
            if part.header.columns == 0 || !self.read_part(at, &mut table, start) {
                continue;
            }
            let column = part.header.first;
            if let Some(frame) = part.frame(&table, column, stripe) {
                self.take_table(stripe_buffer, &frame, column);
                if part.header.columns == 1 {
                    stripe_buffer.checks[at] = Some(*frame.check());
                }
                return true;
            }
        }
        false
    }

    fn take_table(&self, stripe_buffer: &mut StripeBuffer, frame: &Frame<'_>, column: usize) {
        let k = self.header.code.k();
        let data: Vec<Seal> = frame.data().collect();
        let by_law = self.coder.redundancy_seals(&data);
        if by_law.is_none() {
            stripe_buffer.seals[k + column] = Some(frame.own());
        }
        let seals = data.into_iter().chain(by_law.into_iter().flatten());
        stripe_buffer.seals.iter_mut().zip(seals).for_each(|(place, seal)| *place = Some(seal));
    }

    /// Reads from a redundancy file; false if the range is incomplete.
    fn read_part(&self, part: usize, buffer: &mut [u8], offset: u64) -> bool {
        let got = match self.lazy.deadlines.get(part) {
            Some(Some((file, deadline))) => deadline.read(file, buffer, offset),
            _ => read_up_to(self.parts[part].frames(), buffer, offset).map_err(Fault::Io),
        };
        got.is_ok_and(|got| got == buffer.len())
    }

    /// Prefetches stripes. Adjacent stripes share one call, since each call visits every column.
    pub fn prefetch(&self, stripes: Range<u64>) {
        let cut = self.cut();
        let (mut next, end) = (stripes.start, stripes.end.min(cut.stripes()));
        while next < end {
            let run = cut.run(next, end - next);
            self.content.iter().for_each(|content| content.prefetch(&run));
            next += run.count;
        }
    }

    /// Prefetches the signature tables of stripes. They lie apart, each behind a redundancy block, so readahead does
    /// not find them.
    pub fn prefetch_tables(&self, stripes: Range<u64>) {
        let Some(part) = self.parts.iter().find(|part| part.header.columns > 0) else { return };
        let cut = self.cut();
        for stripe in stripes.start..stripes.end.min(cut.stripes()) {
            let start = part.records.frame_offset(0, stripe) + cut.block(stripe);
            announce(part, start, self.coder.table_bytes() as u64);
        }
    }

    /// Prefetches the first `count` redundancy blocks of a stripe.
    pub fn prefetch_frames(&self, stripe: u64, count: usize) {
        if stripe >= self.cut().stripes() {
            return;
        }
        let k = self.header.code.k();
        let held = (0..self.header.code.m()).filter(|&column| !self.target(k + column).is_empty());
        for column in held.take(count) {
            if let Some(at) = self.part_of(column) {
                let part = &self.parts[at];
                let start = part.records.frame_offset(column - part.header.first, stripe);
                announce(part, start, part.records.frame_bytes(stripe));
            }
        }
    }

    /// Number of the redundancy file with a redundancy column.
    fn part_of(&self, column: usize) -> Option<usize> {
        self.parts.iter().position(|part| part.columns().contains(&column))
    }

    /// Reads and verifies a block unless it was read before.
    ///
    /// # Errors
    /// The code fails.
    pub fn fetch(&self, stripe_buffer: &mut StripeBuffer, column: usize) -> Result<BlockState, ExamineError> {
        if stripe_buffer.states[column] == BlockState::Unread {
            let mut buffer = std::mem::take(&mut stripe_buffer.blocks[column]);
            buffer.resize(stripe_buffer.block, 0);
            let k = self.header.code.k();
            let state = match column < k {
                true => self.fetch_data(stripe_buffer, column, &mut buffer)?,
                false => self.fetch_redundancy(stripe_buffer, column - k, &mut buffer)?,
            };
            stripe_buffer.states[column] = state;
            stripe_buffer.blocks[column] = buffer;
            if let BlockState::Faulty(Some(why)) = state {
                stripe_buffer.faults.push((column, why));
            }
        }
        Ok(stripe_buffer.states[column])
    }

    fn fetch_data(
        &self,
        stripe_buffer: &StripeBuffer,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<BlockState, ExamineError> {
        let run = self.cut().run(stripe_buffer.stripe, 1);
        match self.read_data(&run, 0, column, buffer) {
            // Not judged: without a table its signature is not known.
            Ok(()) if run.cell(0, column).is_empty() => Ok(BlockState::Verified),
            Ok(()) => self.check(stripe_buffer, column, buffer),
            Err(fault) => Ok(BlockState::Faulty(Some(fault))),
        }
    }

    /// Compares bytes with the expected signature of a column.
    ///
    /// # Errors
    /// The code fails.
    pub fn check(
        &self,
        stripe_buffer: &StripeBuffer,
        column: usize,
        bytes: &[u8],
    ) -> Result<BlockState, ExamineError> {
        let Some(wanted) = stripe_buffer.seals[column] else { return Ok(BlockState::Faulty(None)) };
        Ok(match self.coder.sign(bytes)?.fits(&wanted) {
            true => BlockState::Verified,
            false => BlockState::Faulty(Some(BlockFault::Wrong)),
        })
    }

    fn fetch_redundancy(
        &self,
        stripe_buffer: &mut StripeBuffer,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<BlockState, ExamineError> {
        let (k, stripe, block) = (self.header.code.k(), stripe_buffer.stripe, stripe_buffer.block);
        let Some(at) = self.part_of(column) else { return Ok(BlockState::Faulty(Some(BlockFault::Lost))) };
        let part = &self.parts[at];
        let mut table = vec![0; self.coder.table_bytes()];
        let start = part.records.frame_offset(column - part.header.first, stripe);
        if !self.read_part(at, buffer, start) || !self.read_part(at, &mut table, start + block as u64) {
            return Ok(BlockState::Faulty(Some(BlockFault::Unreadable)));
        }
        let wrong = Ok(BlockState::Faulty(Some(BlockFault::Wrong)));
        let Some(opened) = part.frame(&table, column, stripe) else { return wrong };
        let agrees = opened.data().zip(&stripe_buffer.seals).all(|(says, seal)| Some(says) == *seal);
        // Without a law of signatures, only the frame itself gives its block's signature.
        let (own, by_law) = (opened.own(), stripe_buffer.seals[k + column]);
        let lawful = by_law.is_none_or(|law| own.fits(&law));
        if !agrees || !lawful || self.coder.sign(buffer)? != own {
            return wrong;
        }
        if part.header.columns == 1 {
            stripe_buffer.checks[at] = Some(*opened.check());
        }
        stripe_buffer.seals[k + column] = Some(own);
        Ok(BlockState::Verified)
    }

    /// Loads the `wanted` columns of the stripe that was begun: reads them, or reconstructs them from k others and
    /// verifies the result. Returns false if some are not available.
    ///
    /// # Errors
    /// The code fails, or the redundancy may be older than the data and this cannot be decided.
    pub fn load(&self, stripe_buffer: &mut StripeBuffer, wanted: &[usize]) -> Result<bool, ExamineError> {
        let k = self.header.code.k();
        let has_all = |it: &StripeBuffer| wanted.iter().all(|&column| it.is_correct(column));
        if stripe_buffer.is_judged {
            return Ok(has_all(stripe_buffer));
        }
        if stripe_buffer.has_seals(k) {
            for &column in wanted {
                self.fetch(stripe_buffer, column)?;
            }
            if has_all(stripe_buffer) {
                return Ok(true);
            }
            // Data first, since it is read in file order anyway.
            for column in 0..self.header.code.blocks() {
                if stripe_buffer.correct() >= k {
                    break;
                }
                self.fetch(stripe_buffer, column)?;
            }
            let is_doubt =
                |state: &BlockState| matches!(state, BlockState::Faulty(None | Some(BlockFault::Wrong)));
            if !stripe_buffer.states.iter().any(is_doubt)
                && stripe_buffer.restore(&self.coder, wanted.iter().copied())?
            {
                return Ok(true);
            }
        }
        self.settle_doubt(stripe_buffer)?;
        Ok(has_all(stripe_buffer))
    }

    /// Continues a stripe in the strict mode, with the age of its redundancy taken into account.
    fn settle_doubt(&self, stripe_buffer: &mut StripeBuffer) -> Result<(), ExamineError> {
        stripe_buffer.is_judged = true;
        let (verdict, k) = (self.verdict()?, self.header.code.k());
        self.read_whole(stripe_buffer, stripe_buffer.stripe)?;
        if let Some(findings) = &*verdict {
            let fault = findings.faults.iter().find(|fault| fault.stripe == stripe_buffer.stripe);
            if fault.is_some_and(|fault| fault.stale) {
                return stripe_buffer.trust_data(&self.coder);
            }
            // The data may be newer than what reconstruction would produce.
            if findings.doubtful && fault.is_some_and(|fault| !fault.data.is_empty()) {
                stripe_buffer.unsure = stripe_buffer.is_readable(k);
                for state in &mut stripe_buffer.states[..k] {
                    *state = match stripe_buffer.unsure || state.is_correct() {
                        true => BlockState::Verified,
                        false => BlockState::Faulty(None),
                    };
                }
                return Ok(());
            }
        }
        stripe_buffer.restore(&self.coder, 0..self.header.code.blocks())?;
        Ok(())
    }

    /// Returns the verdict on the redundancy, computed once.
    fn verdict(&self) -> Result<Arc<Option<Findings>>, ExamineError> {
        let mut known = self.lazy.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = &*known {
            return Ok(verdict.clone());
        }
        let verdict = match self.has_current_frames() {
            true => None,
            false => Some(examine(self, ExamineOptions::quiet(1, &|| false))?),
        };
        Ok(known.insert(Arc::new(verdict)).clone())
    }

    /// True if all frames are those that the headers describe. Reads all tables.
    pub(crate) fn has_current_frames(&self) -> bool {
        (0..self.parts.len()).all(|at| self.root_matches(at).unwrap_or(false))
    }

    /// True if the sum of a redundancy file's checks equals the root in its header; none if a table cannot be read.
    fn root_matches(&self, at: usize) -> Option<bool> {
        let (part, cut) = (&self.parts[at], self.cut());
        let mut sum = [0; 16];
        let mut table = vec![0; self.coder.table_bytes()];
        for stripe in 0..cut.stripes() {
            for (within, column) in part.columns().enumerate() {
                let start = part.records.frame_offset(within, stripe) + cut.block(stripe);
                let was_read = self.read_part(at, &mut table, start);
                let frame = was_read.then(|| part.frame(&table, column, stripe)).flatten()?;
                toggle(&mut sum, frame.check());
            }
        }
        Some(sum == part.header.root)
    }
}

/// Both modes.
impl ProtectedFile {
    /// Reads a data block. A block wholly behind the end of the file is zero by definition.
    fn read_data(&self, run: &Run, row: u64, column: usize, buffer: &mut [u8]) -> Result<(), BlockFault> {
        let cell = run.cell(row, column);
        if cell.is_empty() {
            buffer.fill(0);
            return Ok(());
        }
        let content = self.content.as_ref().ok_or(BlockFault::Lost)?;
        match content.read(run, row, column, buffer) {
            Ok(got) if got as u64 == cell.end - cell.start => Ok(()),
            Ok(_) => Err(BlockFault::Lost),
            Err(fault) => Err(BlockFault::of(&fault)),
        }
    }
}

/// Prefetches a range of a redundancy file.
fn announce(part: &Part, start: u64, length: u64) {
    // Advice only: an error makes reading slower.
    let _ = rustix::fs::fadvise(part.frames(), start, NonZeroU64::new(length), rustix::fs::Advice::WillNeed);
}
