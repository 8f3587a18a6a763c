//! Stripe reader: provides single blocks of a file, verified against their signatures and reconstructed where they are
//! missing or corrupt.
//!
//! The fast path reads as little as possible: the signature table of one redundancy file describes every block of the
//! stripe, and any k blocks that match it suffice. A mismatch ends the fast path. Then the whole stripe is read and
//! judged as in a scrub ([`examine`](mod@crate::examine)), including the question whether the redundancy is older than
//! the data. Redundancy of another version than the present one is not used.

use crate::coder::{Coder, Coders};
use crate::examine::{self, ExamineError, Findings, ProtectedFile, Stripe, examine};
use crate::format::frame::{Check, Seal, toggle};
use crate::format::{Frame, Header};
use crate::geometry::{Cut, Run};
use crate::redundancy::{Part, read_up_to};
use crate::storage::deadline_io::DeadlineIo;
use crate::storage::plain::{DATA, REPOSITORY};
use crate::storage::{Content, Fault, Storage};
use crate::version;
use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Reader for one file.
#[derive(Debug)]
pub struct StripeReader {
    protected: ProtectedFile,
    cut: Cut,
    /// Per redundancy file: the open file, and the deadline of its disk if it has one.
    files: Vec<(Arc<File>, Option<Arc<DeadlineIo>>)>,
    /// Targets by column, redundancy last; empty for a column without a target.
    targets: Vec<Vec<u8>>,
    /// Verdict on the redundancy as a whole, once it was needed.
    verdict: Mutex<Option<Arc<Verdict>>>,
}

/// Verdict on the age of the redundancy.
#[derive(Debug)]
enum Verdict {
    /// All frames are those that the headers describe.
    Sure,
    /// Some frames are not; the findings are of the whole file.
    Examined(Findings),
}

/// Fault of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockFault {
    /// The target is offline or does not have the block.
    Lost,
    /// The target did not answer in time.
    Timeout,
    /// The operating system reported a read error.
    Unreadable,
    /// The block was read and does not match its signature.
    Wrong,
}

/// State of a block in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockState {
    /// Not read yet.
    #[default]
    Unread,
    /// Read, and matches its signature.
    Verified,
    /// Reconstructed from other blocks.
    Reconstructed,
    /// Not available; the fault is given where it is known.
    Faulty(Option<BlockFault>),
}

impl BlockState {
    /// True if the buffer holds the correct content.
    pub fn is_correct(self) -> bool {
        matches!(self, BlockState::Verified | BlockState::Reconstructed)
    }
}

/// Buffer for one stripe, reused from stripe to stripe.
#[derive(Debug, Default)]
pub struct StripeBuffer {
    /// Number of the stripe.
    pub stripe: u64,
    /// Size of a block in bytes.
    pub block: usize,
    /// Blocks of all k + m columns, as far as they were loaded.
    pub blocks: Vec<Vec<u8>>,
    /// State of each block.
    pub states: Vec<BlockState>,
    /// Expected signature of each block; the first k are present whenever a table was read.
    pub seals: Vec<Option<Seal>>,
    /// Per redundancy file: the check of its frame, if it was read.
    pub checks: Vec<Option<Check>>,
    /// The data of this stripe could not be verified and is returned as it was read.
    pub unsure: bool,
    /// Faulty blocks by column, until a caller counts and removes them.
    pub faults: Vec<(usize, BlockFault)>,
    examined: bool,
}

impl StripeReader {
    /// Opens a file. Returns none if there is no redundancy for the present version: then the file's own bytes are all
    /// there is. Does not wait for redundancy that is being made.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Option<StripeReader>, ExamineError> {
        let protected = match ProtectedFile::open_to_read(storage, coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(None),
            protected => protected?,
        };
        if protected.content.is_none() || protected.is_changed() {
            return Ok(None);
        }
        StripeReader::of(protected, storage, path).map(Some)
    }

    /// Opens the version of a file that its redundancy describes.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn of(
        mut protected: ProtectedFile,
        storage: &dyn Storage,
        path: &[u8],
    ) -> Result<StripeReader, ExamineError> {
        let revision = protected.header.revision;
        protected.parts.retain(|part| part.header.revision == revision);
        let code = protected.header.code.clone();
        let layout = storage.layout(path, &code, protected.header.geometry.block());
        let mut targets = layout.map_or_else(|_| Vec::new(), |layout| layout.targets);
        targets.resize(code.k(), DATA.to_vec());
        targets.resize(code.blocks(), Vec::new());
        let repositories = storage.repositories();
        let mut files = Vec::new();
        for part in &protected.parts {
            let file = part.file.try_clone().map_err(ExamineError::Read)?;
            files.push((Arc::new(file), storage.io_deadline(&part.place)));
            let home = repositories.iter().find(|home| home.tree.path() == part.place.tree.path());
            let name = home.map(|home| home.target.clone()).filter(|name| !name.is_empty());
            for column in part.columns() {
                targets[code.k() + column] = name.clone().unwrap_or_else(|| REPOSITORY.to_vec());
            }
        }
        let cut = protected.cut();
        Ok(StripeReader { protected, cut, files, targets, verdict: Mutex::default() })
    }

    /// Lets other processes update the redundancy while this reader is open. The checks detect their writes.
    ///
    /// # Errors
    /// The operating system fails.
    pub fn unlock(&self) -> std::io::Result<()> {
        self.protected.parts.iter().try_for_each(|part| part.file.unlock())
    }

    /// Division of the file into blocks.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Header of the newest revision.
    pub fn header(&self) -> &Header {
        &self.protected.header
    }

    /// Prepared code.
    pub fn coder(&self) -> &Arc<Coder> {
        &self.protected.coder
    }

    /// Redundancy files, all of the newest revision.
    pub fn parts(&self) -> &[Part] {
        &self.protected.parts
    }

    /// Target of a column; empty if it has none.
    pub fn target(&self, column: usize) -> &[u8] {
        self.targets.get(column).map_or(b"", |name| name)
    }

    /// Name to report for a column: its target, or the target that the header names.
    pub fn place_of(&self, column: usize) -> &[u8] {
        let was = self.header().targets.get(column).map_or(&b""[..], |name| name);
        [self.target(column), was].into_iter().find(|name| !name.is_empty()).unwrap_or(REPOSITORY)
    }

    /// The open file.
    pub fn content(&self) -> Option<&dyn Content> {
        self.protected.content.as_deref()
    }

    /// True if the file was modified since the redundancy was made.
    pub fn is_changed(&self) -> bool {
        let now = self.content().and_then(|content| content.stat().ok());
        now.is_none_or(|now| !version::is_unchanged(&self.protected.header, &now.generation()))
    }

    /// Begins a stripe: reads the expected signatures. Returns false if no table can be read; judging may still
    /// succeed.
    pub fn begin(&self, stripe_buffer: &mut StripeBuffer, stripe: u64) -> bool {
        let blocks = self.header().code.blocks();
        let block = self.cut.block(stripe) as usize;
        stripe_buffer.stripe = stripe;
        stripe_buffer.block = block;
        stripe_buffer.blocks.resize_with(blocks, Vec::new);
        stripe_buffer.states.clear();
        stripe_buffer.states.resize(blocks, BlockState::Unread);
        stripe_buffer.checks.clear();
        stripe_buffer.checks.resize(self.protected.parts.len(), None);
        stripe_buffer.seals.clear();
        stripe_buffer.seals.resize(blocks, None);
        stripe_buffer.faults.clear();
        (stripe_buffer.unsure, stripe_buffer.examined) = (false, false);
        let mut table = vec![0; self.coder().table_bytes()];
        for at in 0..self.protected.parts.len() {
            let part = &self.protected.parts[at];
            let start = part.records.frame_offset(0, stripe) + block as u64;
            if part.header.columns == 0 || !self.read(at, &mut table, start) {
                continue;
            }
            let (key, column) = (part.header.frame_key(), part.header.first);
            if let Some(frame) = Frame::open(&table, self.coder().shape(), key, column, stripe) {
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
        let k = self.header().code.k();
        let data: Vec<Seal> = frame.data().collect();
        for (place, seal) in stripe_buffer.seals.iter_mut().zip(&data) {
            *place = Some(*seal);
        }
        match self.protected.coder.redundancy_seals(&data) {
            Some(seals) => {
                let places = stripe_buffer.seals[k..].iter_mut();
                places.zip(seals).for_each(|(place, seal)| *place = Some(seal));
            }
            None => stripe_buffer.seals[k + column] = Some(frame.own()),
        }
    }

    /// Reads from a redundancy file; false if the range is incomplete.
    fn read(&self, part: usize, buffer: &mut [u8], offset: u64) -> bool {
        let (file, deadline) = &self.files[part];
        let got = match deadline {
            Some(deadline) => deadline.read(file, buffer, offset),
            None => read_up_to(file, buffer, offset).map_err(Fault::Io),
        };
        got.is_ok_and(|got| got == buffer.len())
    }

    fn run(&self, stripe: u64) -> Run {
        self.cut.run(stripe, 1)
    }

    /// Prefetches stripes. Adjacent stripes share one call, since each call visits every column.
    pub fn prefetch(&self, stripes: Range<u64>) {
        let (mut next, end) = (stripes.start, stripes.end.min(self.cut.stripes()));
        while next < end {
            let run = self.cut.run(next, end - next);
            self.content().iter().for_each(|content| content.prefetch(&run));
            next += run.count;
        }
    }

    /// Prefetches the signature tables of stripes. They lie apart, each behind a redundancy block, so readahead does
    /// not find them.
    pub fn prefetch_tables(&self, stripes: Range<u64>) {
        let Some(at) = self.protected.parts.iter().position(|part| part.header.columns > 0) else { return };
        let length = std::num::NonZeroU64::new(self.coder().table_bytes() as u64);
        for stripe in stripes.start..stripes.end.min(self.cut.stripes()) {
            let start = self.protected.parts[at].records.frame_offset(0, stripe) + self.cut.block(stripe);
            // Advice only: an error makes reading slower.
            let _ = rustix::fs::fadvise(&self.files[at].0, start, length, rustix::fs::Advice::WillNeed);
        }
    }

    /// Prefetches the first `count` redundancy blocks of a stripe.
    pub fn prefetch_frames(&self, stripe: u64, count: usize) {
        if stripe >= self.cut.stripes() {
            return;
        }
        let k = self.header().code.k();
        let held = (0..self.header().code.m()).filter(|&column| !self.target(k + column).is_empty());
        for column in held.take(count) {
            let Some(at) = self.protected.parts.iter().position(|part| part.columns().contains(&column))
            else {
                continue;
            };
            let part = &self.protected.parts[at];
            let start = part.records.frame_offset(column - part.header.first, stripe);
            let length = std::num::NonZeroU64::new(part.records.frame_bytes(stripe));
            // Advice only: an error makes reading slower.
            let _ = rustix::fs::fadvise(&self.files[at].0, start, length, rustix::fs::Advice::WillNeed);
        }
    }

    /// Reads and verifies a block unless it was read before.
    ///
    /// # Errors
    /// The code fails.
    pub fn fetch(&self, stripe_buffer: &mut StripeBuffer, column: usize) -> Result<BlockState, ExamineError> {
        if stripe_buffer.states[column] == BlockState::Unread {
            let mut buffer = std::mem::take(&mut stripe_buffer.blocks[column]);
            buffer.resize(stripe_buffer.block, 0);
            let k = self.header().code.k();
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
        let run = self.run(stripe_buffer.stripe);
        let cell = run.cell(0, column);
        if cell.is_empty() {
            buffer.fill(0);
            return Ok(BlockState::Verified);
        }
        let Some(content) = self.content() else { return Ok(BlockState::Faulty(Some(BlockFault::Lost))) };
        match content.read(&run, 0, column, buffer) {
            Ok(got) if got as u64 == cell.end - cell.start => self.check(stripe_buffer, column, buffer),
            Ok(_) => Ok(BlockState::Faulty(Some(BlockFault::Lost))),
            Err(fault) => Ok(BlockState::Faulty(Some(BlockFault::of(&fault)))),
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
        Ok(match self.protected.coder.sign(bytes)?.fits(&wanted) {
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
        let (k, stripe, block) = (self.header().code.k(), stripe_buffer.stripe, stripe_buffer.block);
        let holder = |part: &Part| part.columns().contains(&column);
        let Some(at) = self.protected.parts.iter().position(holder) else {
            return Ok(BlockState::Faulty(Some(BlockFault::Lost)));
        };
        let part = &self.protected.parts[at];
        let mut table = vec![0; self.coder().table_bytes()];
        let start = part.records.frame_offset(column - part.header.first, stripe);
        if !self.read(at, buffer, start) || !self.read(at, &mut table, start + block as u64) {
            return Ok(BlockState::Faulty(Some(BlockFault::Unreadable)));
        }
        let wrong = Ok(BlockState::Faulty(Some(BlockFault::Wrong)));
        let key = part.header.frame_key();
        let Some(opened) = Frame::open(&table, self.coder().shape(), key, column, stripe) else {
            return wrong;
        };
        let agrees = opened.data().zip(&stripe_buffer.seals).all(|(says, seal)| Some(says) == *seal);
        // Without a law of signatures, only the frame itself gives its block's signature.
        let (own, by_law) = (opened.own(), stripe_buffer.seals[k + column]);
        let lawful = by_law.is_none_or(|law| own.fits(&law));
        if !agrees || !lawful || self.protected.coder.sign(buffer)? != own {
            return wrong;
        }
        if part.header.columns == 1 {
            stripe_buffer.checks[at] = Some(*opened.check());
        }
        stripe_buffer.seals[k + column] = Some(own);
        Ok(BlockState::Verified)
    }

    /// Loads the `wanted` columns: reads them, or reconstructs them from k others and verifies the result. Returns
    /// false if some are not available.
    ///
    /// # Errors
    /// The code fails, or the redundancy may be older than the data and this cannot be decided.
    pub fn load(&self, stripe_buffer: &mut StripeBuffer, wanted: &[usize]) -> Result<bool, ExamineError> {
        let k = self.header().code.k();
        let has_table = stripe_buffer.seals[..k].iter().all(Option::is_some);
        let right = |stripe_buffer: &StripeBuffer| {
            wanted.iter().all(|&column| stripe_buffer.states[column].is_correct())
        };
        if has_table && !stripe_buffer.examined {
            for &column in wanted {
                self.fetch(stripe_buffer, column)?;
            }
            if right(stripe_buffer) {
                return Ok(true);
            }
            // Data first, since it is read in file order anyway.
            for column in 0..self.header().code.blocks() {
                let good = stripe_buffer.states.iter().filter(|state| state.is_correct()).count();
                if good >= k {
                    break;
                }
                self.fetch(stripe_buffer, column)?;
            }
            let doubt =
                |state: &BlockState| matches!(state, BlockState::Faulty(None | Some(BlockFault::Wrong)));
            if !stripe_buffer.states.iter().any(doubt) && self.reconstruct(stripe_buffer, wanted)? {
                return Ok(true);
            }
        }
        if !stripe_buffer.examined {
            self.examine_stripe(stripe_buffer)?;
        }
        Ok(right(stripe_buffer))
    }

    /// Reconstructs the missing ones of `wanted`. Returns false if fewer than k blocks are correct or the result does
    /// not match its signature.
    fn reconstruct(&self, stripe_buffer: &mut StripeBuffer, wanted: &[usize]) -> Result<bool, ExamineError> {
        let (k, block) = (self.header().code.k(), stripe_buffer.block);
        let missing: Vec<usize> =
            wanted.iter().copied().filter(|&column| !stripe_buffer.states[column].is_correct()).collect();
        if stripe_buffer.states.iter().filter(|state| state.is_correct()).count() < k {
            return Ok(false);
        }
        let mut made: Vec<Vec<u8>> = missing
            .iter()
            .map(|&column| {
                let mut buffer = std::mem::take(&mut stripe_buffer.blocks[column]);
                buffer.resize(block, 0);
                buffer
            })
            .collect();
        let stripe: Vec<Option<&[u8]>> = stripe_buffer
            .blocks
            .iter()
            .zip(&stripe_buffer.states)
            .map(|(bytes, state)| state.is_correct().then_some(&bytes[..]))
            .collect();
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|buffer| &mut buffer[..]).collect();
        self.protected.coder.repair(&stripe, &missing, &mut outputs)?;
        let mut all_right = true;
        for (&column, bytes) in missing.iter().zip(made) {
            let seal = self.protected.coder.sign(&bytes)?;
            let right = stripe_buffer.seals[column].is_none_or(|wanted| wanted.fits(&seal));
            if right {
                stripe_buffer.seals[column] = Some(seal);
                stripe_buffer.states[column] = BlockState::Reconstructed;
            }
            stripe_buffer.blocks[column] = bytes;
            all_right &= right;
        }
        Ok(all_right)
    }

    /// Reads the whole stripe and judges it as a scrub does.
    fn examine_stripe(&self, stripe_buffer: &mut StripeBuffer) -> Result<(), ExamineError> {
        stripe_buffer.examined = true;
        let verdict = self.verdict()?;
        let (run, k, block) = (self.run(stripe_buffer.stripe), self.header().code.k(), stripe_buffer.block);
        let mut stripe = Stripe::default();
        stripe.read_records(&self.protected, &run);
        let (_, readable) = stripe.examine(&self.protected, &run, 0)?;
        if let Verdict::Examined(findings) = &*verdict {
            let fault = findings.faults.iter().find(|fault| fault.stripe == stripe_buffer.stripe);
            let bad_data = fault.is_some_and(|fault| !fault.data.is_empty());
            if fault.is_some_and(|fault| fault.stale) {
                stripe = stripe.trusting(&self.protected, block)?;
            } else if findings.doubtful && bad_data {
                // The data may be newer than what reconstruction would produce.
                accept_data(stripe_buffer, &stripe, k, readable);
                return Ok(());
            }
        }
        let found = stripe.good.clone();
        stripe.restore(&self.protected, block)?;
        for (column, bytes) in stripe.blocks.chunks_exact(block).enumerate() {
            let was = stripe_buffer.states[column];
            stripe_buffer.states[column] = match (found[column], stripe.good[column]) {
                (true, _) => BlockState::Verified,
                (false, true) => BlockState::Reconstructed,
                (false, false) => {
                    BlockState::Faulty(if let BlockState::Faulty(why) = was { why } else { None })
                }
            };
            stripe_buffer.blocks[column].clear();
            stripe_buffer.blocks[column].extend_from_slice(bytes);
            stripe_buffer.seals[column] = stripe.seals.as_ref().map(|seals| seals[column]);
        }
        Ok(())
    }

    /// Returns the verdict on the redundancy, computed once.
    fn verdict(&self) -> Result<Arc<Verdict>, ExamineError> {
        let mut known = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = &*known {
            return Ok(verdict.clone());
        }
        let verdict = match self.is_current() {
            true => Verdict::Sure,
            false => {
                let examine_options = examine::ExamineOptions {
                    threads: 1,
                    from_medium: false,
                    progress: &|_| {},
                    stopped: &|| false,
                };
                Verdict::Examined(examine(&self.protected, examine_options)?)
            }
        };
        Ok(known.insert(Arc::new(verdict)).clone())
    }

    /// True if all frames are those that the headers describe. Reads all tables.
    pub(crate) fn is_current(&self) -> bool {
        (0..self.protected.parts.len()).all(|at| self.root_matches(at))
    }

    /// True if the sum of a redundancy file's checks equals the root in its header. Reads tables only.
    fn root_matches(&self, at: usize) -> bool {
        let part = &self.protected.parts[at];
        let (shape, key) = (self.coder().shape(), part.header.frame_key());
        let Header { first, columns, root, .. } = &part.header;
        let mut sum = [0; 16];
        let mut table = vec![0; self.coder().table_bytes()];
        for stripe in 0..self.cut.stripes() {
            for column in 0..*columns {
                let start = part.records.frame_offset(column, stripe) + self.cut.block(stripe);
                if !self.read(at, &mut table, start) {
                    return false;
                }
                let Some(frame) = Frame::open(&table, shape, key, first + column, stripe) else {
                    return false;
                };
                toggle(&mut sum, frame.check());
            }
        }
        sum == *root
    }
}

/// Accepts the data of a stripe as it was read, if all of it was read.
fn accept_data(stripe_buffer: &mut StripeBuffer, stripe: &Stripe, k: usize, readable: bool) {
    stripe_buffer.unsure = readable;
    for column in 0..k {
        let state =
            if readable || stripe.good[column] { BlockState::Verified } else { BlockState::Faulty(None) };
        stripe_buffer.states[column] = state;
        let bytes = &stripe.blocks[column * stripe_buffer.block..][..stripe_buffer.block];
        stripe_buffer.blocks[column] = bytes.to_vec();
    }
}

impl BlockFault {
    fn of(fault: &Fault) -> BlockFault {
        match fault {
            Fault::Lost(_) => BlockFault::Lost,
            Fault::Timeout(_) => BlockFault::Timeout,
            Fault::Io(_) => BlockFault::Unreadable,
        }
    }

    /// Text for messages.
    pub fn words(self) -> &'static str {
        match self {
            BlockFault::Lost => "missing",
            BlockFault::Timeout => "not responding",
            BlockFault::Unreadable => "unreadable",
            BlockFault::Wrong => "corrupt",
        }
    }
}
