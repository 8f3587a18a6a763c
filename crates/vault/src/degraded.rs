//! Degraded reads: a file with damage is read as if it were intact.
//!
//! Every block is verified against the signatures of the redundancy before its bytes are returned, and is reconstructed
//! if it is missing or corrupt. A file without redundancy for its present version is read as it is, since older
//! redundancy could only give older content. The work is counted in a [`Report`].
//!
//! A block is verified once; later reads of parts of it read only these parts. A few stripes with reconstructed blocks
//! are cached, since the next reads usually need neighbouring blocks.

mod of_open;
mod record;

use record::MAX_LISTED;
pub use record::{Record, Report, note, recorded};

use crate::bit_set::AtomicBitSet;
use crate::coder::Coders;
use crate::display_path::DisplayPath;
use crate::examine::{BlockFault, BlockState, ExamineError, ProtectedFile, StripeBuffer};
use crate::geometry::Tail;
use crate::retry::{Failure, Retry, Retryable};
use crate::storage::{Content, Fault, Storage};
use crate::tree::Stat;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for cached stripes, in bytes; at least one stripe is cached.
const KEPT_BYTES: usize = 32 << 20;

/// Maximum number of cached stripes.
const KEPT: usize = 8;

/// Prefetch distance for a sequential reader, in bytes.
const AHEAD: u64 = 8 << 20;

/// Error of a read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file does not exist or cannot be opened.
    #[error("it cannot be opened: {0}")]
    Open(io::Error),
    /// The range cannot be read and has no redundancy of this version.
    #[error("bytes {}-{} cannot be read and have no redundancy: {fault}", .range.start, .range.end)]
    Unprotected {
        /// Unreadable range.
        range: Range<u64>,
        /// Error of the storage.
        fault: Fault,
    },
    /// Too few blocks of a stripe are left.
    #[error("bytes {}-{} are lost: {}", .range.start, .range.end, .why)]
    Lost {
        /// Lost range.
        range: Range<u64>,
        /// Faults of the blocks of the stripe.
        why: Failure,
    },
    /// The redundancy cannot be used.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// The file was truncated while it was read.
    #[error("it was truncated to {0} bytes while it was read")]
    Short(u64),
}

impl Retryable for ReadError {
    fn retry(&self) -> Retry {
        match self {
            ReadError::Open(error) => error.retry(),
            ReadError::Unprotected { fault, .. } => fault.retry(),
            ReadError::Lost { why, .. } => why.retry(),
            ReadError::Examine(error) => error.retry(),
            ReadError::Short(_) => Retry::Now,
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Open(error) => error,
            error => io::Error::other(error),
        }
    }
}

/// A file that is open for degraded reads; can be shared by threads.
#[derive(Debug)]
pub struct DegradedReader {
    inner: Arc<Inner>,
    /// Threads that load stripes ahead of a sequential reader once blocks have to be reconstructed.
    ahead: Mutex<Option<Sender<u64>>>,
}

#[derive(Debug)]
struct Inner {
    /// Properties of the file when it was opened.
    stat: Stat,
    mode: Mode,
    cache: Mutex<VecDeque<(u64, Arc<Mutex<StripeBuffer>>)>>,
    kept: usize,
    /// A data column was faulty: from now on complete stripes are loaded.
    suspicious: AtomicBool,
    /// Blocks that were found right.
    verified: AtomicBitSet,
    /// Where the last read ended, how far the storage was told of, and the first stripe that nobody gathers ahead yet.
    last: AtomicU64,
    announced: AtomicU64,
    loaded_until: AtomicU64,
    report: Mutex<Report>,
}

#[derive(Debug)]
enum Mode {
    Plain(Box<dyn Content>),
    Guarded(Box<ProtectedFile>),
}

impl DegradedReader {
    /// Opens a file of any storage.
    ///
    /// # Errors
    /// See [`ReadError`]; damage is no error.
    pub fn open(storage: &dyn Storage, coders: &Coders, path: &[u8]) -> Result<DegradedReader, ReadError> {
        storage.check_size_known(path).map_err(ReadError::Open)?;
        if let Some(protected) = ProtectedFile::open_to_read(storage, coders, path)? {
            return DegradedReader::guarded(protected);
        }
        let content = storage.open(path).map_err(ReadError::Open)?;
        let stat = content.stat().map_err(ReadError::Open)?;
        Ok(DegradedReader::new(Mode::Plain(content), stat))
    }

    /// Opens a file of any storage if its blocks can be checked; nothing if there is no redundancy for it as it is.
    ///
    /// # Errors
    /// See [`ReadError`]; damage is no error.
    pub fn open_guarded(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Option<DegradedReader>, ReadError> {
        let Some(protected) = ProtectedFile::open_to_read(storage, coders, path)? else { return Ok(None) };
        storage.check_size_known(path).map_err(ReadError::Open)?;
        DegradedReader::guarded(protected).map(Some)
    }

    fn guarded(protected: ProtectedFile) -> Result<DegradedReader, ReadError> {
        protected.unlock().map_err(ReadError::Open)?;
        let stat = protected.content.as_deref().map(Content::stat).transpose().map_err(ReadError::Open)?;
        let stat = stat.ok_or_else(|| ReadError::Open(io::ErrorKind::NotFound.into()))?;
        Ok(DegradedReader::new(Mode::Guarded(Box::new(protected)), stat))
    }

    fn new(mode: Mode, stat: Stat) -> DegradedReader {
        let (mut kept, mut bits) = (0, 0);
        if let Mode::Guarded(protected) = &mode {
            let code = &protected.header.code;
            let stripe = code.blocks() * protected.header.geometry.block() as usize;
            kept = (KEPT_BYTES / stripe.max(1)).clamp(1, KEPT);
            bits = protected.cut().stripes() * code.k() as u64;
        }
        let inner = Arc::new(Inner {
            stat,
            mode,
            cache: Mutex::default(),
            kept,
            suspicious: AtomicBool::new(false),
            verified: AtomicBitSet::with_len(bits),
            last: AtomicU64::new(u64::MAX),
            announced: AtomicU64::new(0),
            loaded_until: AtomicU64::new(0),
            report: Mutex::default(),
        });
        DegradedReader { inner, ahead: Mutex::default() }
    }

    /// Size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.inner.stat.size
    }

    /// Properties of the file when it was opened.
    pub fn stat(&self) -> &Stat {
        &self.inner.stat
    }

    /// True if blocks are verified, because redundancy of this version exists.
    pub fn is_guarded(&self) -> bool {
        matches!(self.inner.mode, Mode::Guarded(_))
    }

    /// Counters so far.
    pub fn report(&self) -> Report {
        self.inner.counted().clone()
    }

    /// Reads from `offset` until the buffer is full or the file ends; returns the number of bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let sequential = self.inner.last.load(Ordering::Relaxed) == offset;
        if !sequential {
            self.inner.loaded_until.store(0, Ordering::Relaxed);
        }
        let got = self.inner.read(offset, buffer)?;
        if sequential && self.inner.suspicious.load(Ordering::Relaxed) {
            self.load_ahead(offset + got as u64);
        }
        Ok(got)
    }

    /// True if a fault was found. Data is then read through complete stripes only.
    pub fn is_suspicious(&self) -> bool {
        self.inner.suspicious.load(Ordering::Relaxed)
    }

    /// True if these bytes, obtained from `offset` by any way, are the protected content: each belongs to a block that
    /// was verified before, or forms a complete block that is verified now. False means unknown;
    /// [`read`](DegradedReader::read) decides.
    pub fn vouches_for(&self, offset: u64, bytes: &[u8]) -> bool {
        match &self.inner.mode {
            Mode::Plain(_) => false,
            Mode::Guarded(protected) => self.inner.vouches_for(protected, offset, bytes).unwrap_or(false),
        }
    }

    /// Loads the stripes behind `offset` in other threads.
    fn load_ahead(&self, offset: u64) {
        let Mode::Guarded(protected) = &self.inner.mode else { return };
        if offset >= self.size() || protected.header.geometry.tail() != Tail::Striped {
            return;
        }
        let stripe = protected.cut().locate(offset).0;
        let until = (stripe + self.inner.kept as u64).saturating_sub(1).min(protected.cut().stripes());
        let next = self.inner.loaded_until.fetch_max(until, Ordering::Relaxed).max(stripe + 1);
        if next >= until {
            return;
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let send = ahead.get_or_insert_with(|| start(&self.inner));
        // If no thread can be started, reading is slower.
        for stripe in next..until {
            let _ = send.send(stripe);
        }
    }
}

/// Starts threads that load stripes until the sender is dropped.
fn start(inner: &Arc<Inner>) -> Sender<u64> {
    let (send, receive) = channel::<u64>();
    let receive = Arc::new(Mutex::new(receive));
    for _ in 0..LOADERS {
        let (inner, receive) = (inner.clone(), receive.clone());
        let work = move || {
            loop {
                let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(stripe) = next else { break };
                inner.load_stripe(stripe);
            }
        };
        let _ = std::thread::Builder::new().name("load ahead".to_owned()).spawn(work);
    }
    send
}

/// Number of threads that load ahead.
const LOADERS: usize = 2;

impl Inner {
    /// Loads all data of a stripe. Errors are returned to the reader that needs the block.
    fn load_stripe(&self, stripe: u64) {
        let Mode::Guarded(protected) = &self.mode else { return };
        let slot = self.slot(stripe);
        let mut stripe_buffer = begun(protected, &slot, stripe);
        let run = protected.cut().run(stripe, 1);
        for column in 0..protected.header.code.k() {
            if self.load(protected, &mut stripe_buffer, column, run.cell(0, column)).is_err() {
                return;
            }
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let want = (buffer.len() as u64).min(self.stat.size.saturating_sub(offset)) as usize;
        let buffer = &mut buffer[..want];
        match &self.mode {
            Mode::Plain(content) => {
                let got = content
                    .read_at(offset, buffer)
                    .map_err(|fault| ReadError::Unprotected { range: offset..offset + want as u64, fault })?;
                self.counted().unverified_bytes += got as u64;
                if got < want { Err(ReadError::Short(offset + got as u64)) } else { Ok(got) }
            }
            Mode::Guarded(protected) => {
                self.forget_if_changed(protected)?;
                self.announce(protected, offset, want as u64);
                let mut done = 0;
                while done < want {
                    done += self.read_cell(protected, offset + done as u64, &mut buffer[done..])?;
                }
                Ok(want)
            }
        }
    }

    fn vouches_for(&self, protected: &ProtectedFile, offset: u64, bytes: &[u8]) -> Result<bool, ReadError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if self.suspicious.load(Ordering::Relaxed) || end > self.stat.size {
            return Ok(false);
        }
        self.forget_if_changed(protected)?;
        self.announce(protected, offset, bytes.len() as u64);
        let mut at = offset;
        while at < end {
            let (stripe, column) = protected.cut().locate(at);
            let run = protected.cut().run(stripe, 1);
            let cell = run.cell(0, column);
            let bit = stripe * protected.header.code.k() as u64 + column as u64;
            if !self.verified.contains(bit) {
                // The end of a file is no whole block: it is checked with zeros behind it.
                let is_whole = cell.start == at && cell.end - cell.start == run.block;
                let Some(block) =
                    bytes.get((at - offset) as usize..(cell.end - offset) as usize).filter(|_| is_whole)
                else {
                    return Ok(false);
                };
                let slot = self.slot(stripe);
                let stripe_buffer = begun(protected, &slot, stripe);
                if stripe_buffer.states[column] != BlockState::Unread
                    || protected.check(&stripe_buffer, column, block)? != BlockState::Verified
                {
                    return Ok(false);
                }
                self.note_verified(bit);
            }
            at = cell.end;
        }
        Ok(true)
    }

    /// For storage with mutable files: checks that the version is the same. Otherwise the states of blocks are invalid
    /// and reconstruction would give older content.
    fn forget_if_changed(&self, protected: &ProtectedFile) -> Result<(), ReadError> {
        let Some(content) = protected.content.as_deref().filter(|content| !content.is_immutable()) else {
            return Ok(());
        };
        let now = content.stat().map_err(ReadError::Open)?;
        // A change of permissions or names changes the ctime only.
        match now.generation().is_same_content(&self.stat.generation()) {
            true => Ok(()),
            // The reader has to open the file again.
            false => Err(ReadError::Open(io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                "it was changed while it was read",
            ))),
        }
    }

    /// Prefetches behind a read near the end of the last one. Reads of several threads are not exactly in order.
    fn announce(&self, protected: &ProtectedFile, offset: u64, bytes: u64) {
        let end = offset + bytes;
        if self.last.swap(end, Ordering::Relaxed).abs_diff(offset) > AHEAD / 2 && offset != 0 {
            return;
        }
        let until = (end + AHEAD).min(self.stat.size);
        let mut at = self.announced.load(Ordering::Relaxed);
        if at < offset || at > until + AHEAD {
            at = offset;
        }
        // In steps, so that not every small read needs a system call.
        if until < at + AHEAD / 2 && until < self.stat.size || at >= until {
            return;
        }
        self.announced.store(until, Ordering::Relaxed);
        let suspicious = self.suspicious.load(Ordering::Relaxed);
        // Columns of a contiguous file are far apart: the other columns of a stripe are not read next.
        let in_one_piece = protected.header.geometry.tail() != Tail::Striped;
        for stripes in protected.cut().stripes_of(at..until) {
            if suspicious || !in_one_piece {
                protected.prefetch(stripes.clone());
            }
            match suspicious {
                true => stripes.for_each(|stripe| protected.prefetch_frames(stripe, 1)),
                false => protected.prefetch_tables(stripes),
            }
        }
    }

    /// Reads the part of the block at `offset` that fits in `buffer`.
    fn read_cell(
        &self,
        protected: &ProtectedFile,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError> {
        let (stripe, column) = protected.cut().locate(offset);
        let run = protected.cut().run(stripe, 1);
        let cell = run.cell(0, column);
        let within = (offset - cell.start) as usize;
        let bytes = ((cell.end - offset) as usize).min(buffer.len());
        let buffer = &mut buffer[..bytes];
        let bit = stripe * protected.header.code.k() as u64 + column as u64;
        let kept = self.kept(stripe);
        if kept.is_none() && self.verified.contains(bit) {
            let content = protected.content.as_deref().map(|content| content.read_at(offset, buffer));
            if let Some(Ok(got)) = content
                && got == bytes
            {
                return Ok(bytes);
            }
        }
        let slot = kept.unwrap_or_else(|| self.slot(stripe));
        let mut stripe_buffer = begun(protected, &slot, stripe);
        // A complete block is read directly into the caller's buffer.
        let whole = bytes as u64 == run.block && !self.suspicious.load(Ordering::Relaxed);
        if whole && stripe_buffer.states[column] == BlockState::Unread {
            let read = protected.content.as_deref().map(|content| content.read(&run, 0, column, buffer));
            if matches!(read, Some(Ok(got)) if got == bytes)
                && protected.check(&stripe_buffer, column, buffer)? == BlockState::Verified
            {
                self.note_verified(bit);
                return Ok(bytes);
            }
        }
        self.load(protected, &mut stripe_buffer, column, cell)?;
        buffer.copy_from_slice(&stripe_buffer.blocks[column][within..within + bytes]);
        if stripe_buffer.unsure {
            self.counted().unverified_bytes += bytes as u64;
        } else if stripe_buffer.states[column] == BlockState::Verified {
            self.note_verified(bit);
        }
        Ok(bytes)
    }

    /// Loads the block of a column into `stripe_buffer`, reconstructing it if necessary, and counts the work.
    fn load(
        &self,
        protected: &ProtectedFile,
        stripe_buffer: &mut StripeBuffer,
        column: usize,
        cell: Range<u64>,
    ) -> Result<(), ReadError> {
        let before = stripe_buffer.states.clone();
        if before[column].is_correct() {
            return Ok(());
        }
        let had = protected.load(stripe_buffer, &[column])?;
        // Faults of blocks that were reconstructed are reported as well.
        let faults = std::mem::take(&mut stripe_buffer.faults);
        let made = stripe_buffer.states.iter().zip(&before);
        let made = made
            .filter(|(now, was)| **now == BlockState::Reconstructed && **was != BlockState::Reconstructed)
            .count() as u64;
        if made > 0 || !had {
            // A block that was written while it was read differs as well, without damage.
            if let Err(changed) = self.forget_if_changed(protected) {
                stripe_buffer.states.clear();
                return Err(changed);
            }
        }
        let mut report = self.counted();
        for (at, why) in faults {
            let name = DisplayPath::bytes(protected.place_of(at)).to_string();
            *report.faults.entry(name).or_default().entry(why).or_default() += 1;
            if at < protected.header.code.k() {
                self.suspicious.store(true, Ordering::Relaxed);
            }
            if why == BlockFault::Wrong && report.wrong.len() < MAX_LISTED {
                report.wrong.push((stripe_buffer.stripe, at));
            }
        }
        report.reconstructed += made;
        report.reconstructed_bytes += made * stripe_buffer.block as u64;
        drop(report);
        if had {
            return Ok(());
        }
        // Unverifiable data is not returned; another version may be on its way.
        let bad = stripe_buffer.bad().filter_map(|(at, why)| Some((at, why?)));
        let why: Vec<String> = bad
            .map(|(at, why)| format!("{} is {}", DisplayPath::bytes(protected.place_of(at)), why.words()))
            .collect();
        let retry = BlockFault::retry_of_lost(stripe_buffer.bad().map(|(_, why)| why));
        Err(ReadError::Lost { range: cell, why: Failure::new(why.join(", "), retry) })
    }

    fn note_verified(&self, bit: u64) {
        if self.verified.insert(bit) {
            self.counted().verified += 1;
        }
    }

    /// The cached stripe, if any of its blocks was loaded.
    fn kept(&self, stripe: u64) -> Option<Arc<Mutex<StripeBuffer>>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.iter().find(|(number, _)| *number == stripe).map(|(_, slot)| slot.clone())
    }

    /// Returns the cache slot of a stripe, evicting the least recently used one.
    fn slot(&self, stripe: u64) -> Arc<Mutex<StripeBuffer>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache.iter().position(|(number, _)| *number == stripe);
        if let Some(found) = known.and_then(|at| cache.remove(at)) {
            let slot = found.1.clone();
            cache.push_back(found);
            return slot;
        }
        let mut stripe_buffer = StripeBuffer::default();
        while cache.len() >= self.kept {
            // The buffers are reused unless a reader still has them.
            if let Some(used) = cache.pop_front().and_then(|(_, slot)| Arc::into_inner(slot)) {
                stripe_buffer = used.into_inner().unwrap_or_else(PoisonError::into_inner);
            }
        }
        stripe_buffer.states.clear();
        let slot = Arc::new(Mutex::new(stripe_buffer));
        cache.push_back((stripe, slot.clone()));
        slot
    }

    fn counted(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stripe of a cache slot, begun.
fn begun<'a>(
    protected: &ProtectedFile,
    slot: &'a Mutex<StripeBuffer>,
    stripe: u64,
) -> MutexGuard<'a, StripeBuffer> {
    let mut stripe_buffer = slot.lock().unwrap_or_else(PoisonError::into_inner);
    if stripe_buffer.states.is_empty() {
        protected.begin(&mut stripe_buffer, stripe);
    }
    stripe_buffer
}

/// Copies a whole file to `output`; returns the number of bytes.
///
/// # Errors
/// See [`ReadError`]; bytes written before an error are correct.
pub fn copy_out(reader: &DegradedReader, output: &mut dyn io::Write) -> Result<u64, CopyError> {
    let mut buffer = vec![0; PIECE];
    let mut at = 0;
    while at < reader.size() {
        let got = reader.read(at, &mut buffer)?;
        output.write_all(&buffer[..got]).map_err(CopyError::Write)?;
        at += got as u64;
    }
    Ok(at)
}

/// Size of a copied piece in bytes.
const PIECE: usize = 1 << 20;

/// Error of a copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Reading failed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Writing failed.
    #[error("writing the output: {0}")]
    Write(io::Error),
}
