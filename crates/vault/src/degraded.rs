//! Reads a file that may be damaged as if it were not.
//!
//! Every block is checked against the signatures of the redundancy before bytes of it are given away, and made from others if it is
//! gone or wrong. A file whose redundancy is pending, or that has none, is read as it is: what would be made from older redundancy is
//! older content. What had to be done is counted ([`Report`]).
//!
//! A block that was found right once is not checked again: later reads of parts of it read only these. Stripes with a block that
//! had to be made are kept in memory, a few of them, since their neighbours are usually wanted next.

mod of_open;
mod record;

pub use record::{Record, note, recorded};

use crate::bit_set::AtomicBitSet;
use crate::coder::Coders;
use crate::examine::ExamineError;
use crate::gather::{Ailment, Gathering, Known, Sources};
use crate::geometry::Tail;
use crate::shown::Shown;
use crate::storage::{Content, Fault, Storage};
use crate::tree::Stat;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory for stripes that are kept; one is kept whatever it takes.
const KEPT_BYTES: usize = 32 << 20;

/// Most stripes that are kept.
const KEPT: usize = 8;

/// Bytes that are announced to the storage ahead of a sequential reader.
const AHEAD: u64 = 8 << 20;

/// Why bytes cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file is not there, or cannot be opened.
    #[error("it cannot be opened: {0}")]
    Open(io::Error),
    /// It has no redundancy for what is there now, and that cannot be read.
    #[error("bytes {}-{} cannot be read, and no redundancy is there for them: {fault}", .range.start, .range.end)]
    Unprotected {
        /// Which bytes.
        range: Range<u64>,
        /// Why.
        fault: Fault,
    },
    /// Too few blocks of a stripe are left.
    #[error("bytes {}-{} are lost: {}", .range.start, .range.end, .why)]
    Lost {
        /// Which bytes.
        range: Range<u64>,
        /// What is wrong with the blocks of the stripe.
        why: String,
    },
    /// The redundancy cannot be used.
    #[error(transparent)]
    Examine(#[from] ExamineError),
    /// It became shorter while it was read.
    #[error("it ends at byte {0}, before it should")]
    Short(u64),
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> io::Error {
        match error {
            ReadError::Open(error) => error,
            error => io::Error::other(error),
        }
    }
}

/// What a reader did.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Blocks that were found right.
    pub verified: u64,
    /// Blocks that were made from others.
    pub reconstructed: u64,
    /// Bytes of these.
    pub reconstructed_bytes: u64,
    /// Bytes that were given as they were read, with nothing to check them against.
    pub unverified_bytes: u64,
    /// Blocks that could not be used, by target and reason.
    pub ailing: BTreeMap<String, BTreeMap<Ailment, u64>>,
    /// Blocks that were read and not what was protected: stripe and column, the first ones.
    pub wrong: Vec<(u64, usize)>,
}

/// Blocks that are listed one by one; all are counted.
const MAX_LISTED: usize = 1000;

impl Report {
    /// Whether something had to be reconstructed.
    pub fn is_degraded(&self) -> bool {
        self.reconstructed > 0
    }

    /// What was wrong where, in words.
    pub fn causes(&self) -> String {
        let of = |(target, why): (&String, &BTreeMap<Ailment, u64>)| {
            let why: Vec<String> =
                why.iter().map(|(why, count)| format!("{count} {}", why.words())).collect();
            format!("{target}: {}", why.join(", "))
        };
        self.ailing.iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

/// A file, open for reading; may be shared by threads.
#[derive(Debug)]
pub struct DegradedReader {
    inner: Arc<Inner>,
    /// Threads that gather stripes before they are asked for, once a sequential reader needs blocks that have to be made.
    ahead: Mutex<Option<Sender<u64>>>,
}

#[derive(Debug)]
struct Inner {
    /// The file as it was when it was opened.
    stat: Stat,
    mode: Mode,
    cache: Mutex<VecDeque<(u64, Arc<Mutex<Gathering>>)>>,
    kept: usize,
    /// A data column could not be read: stripes are gathered as a whole from now on.
    suspicious: AtomicBool,
    /// Blocks that were found right.
    verified: AtomicBitSet,
    /// Where the last read ended, how far the storage was told of, and the first stripe that nobody gathers ahead yet.
    last: AtomicU64,
    announced: AtomicU64,
    gathered: AtomicU64,
    report: Mutex<Report>,
}

#[derive(Debug)]
enum Mode {
    Plain(Box<dyn Content>),
    Guarded(Box<Sources>),
}

impl DegradedReader {
    /// Opens a file of any storage.
    ///
    /// # Errors
    /// See [`ReadError`]; damage is no error.
    pub fn open(storage: &dyn Storage, coders: &Coders, path: &[u8]) -> Result<DegradedReader, ReadError> {
        storage.check_size_known(path).map_err(ReadError::Open)?;
        if let Some(sources) = Sources::open(storage, coders, path)? {
            return DegradedReader::guarded(sources);
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
        let Some(sources) = Sources::open(storage, coders, path)? else { return Ok(None) };
        storage.check_size_known(path).map_err(ReadError::Open)?;
        DegradedReader::guarded(sources).map(Some)
    }

    fn guarded(sources: Sources) -> Result<DegradedReader, ReadError> {
        sources.unlock().map_err(ReadError::Open)?;
        let stat = sources.content().map(Content::stat).transpose().map_err(ReadError::Open)?;
        let stat = stat.ok_or_else(|| ReadError::Open(io::ErrorKind::NotFound.into()))?;
        Ok(DegradedReader::new(Mode::Guarded(Box::new(sources)), stat))
    }

    fn new(mode: Mode, stat: Stat) -> DegradedReader {
        let (mut kept, mut bits) = (0, 0);
        if let Mode::Guarded(sources) = &mode {
            let code = &sources.header().code;
            let stripe = code.blocks() * sources.header().geometry.block() as usize;
            kept = (KEPT_BYTES / stripe.max(1)).clamp(1, KEPT);
            bits = sources.cut().stripes() * code.k() as u64;
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
            gathered: AtomicU64::new(0),
            report: Mutex::default(),
        });
        DegradedReader { inner, ahead: Mutex::default() }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.inner.stat.size
    }

    /// The file as it was when it was opened.
    pub fn stat(&self) -> &Stat {
        &self.inner.stat
    }

    /// Whether blocks are checked: there is redundancy for the file as it is.
    pub fn is_guarded(&self) -> bool {
        matches!(self.inner.mode, Mode::Guarded(_))
    }

    /// What was done so far.
    pub fn report(&self) -> Report {
        self.inner.counted().clone()
    }

    /// Reads from `offset` on until the buffer is full or the file ends; gives the number of bytes.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let sequential = self.inner.last.load(Ordering::Relaxed) == offset;
        if !sequential {
            self.inner.gathered.store(0, Ordering::Relaxed);
        }
        let got = self.inner.read(offset, buffer)?;
        if sequential && self.inner.suspicious.load(Ordering::Relaxed) {
            self.gather_ahead(offset + got as u64);
        }
        Ok(got)
    }

    /// Whether something was found wrong, so that nothing is believed unless it was looked at from all sides.
    pub fn is_suspicious(&self) -> bool {
        self.inner.suspicious.load(Ordering::Relaxed)
    }

    /// Whether these bytes, seen at `offset` of the file by whatever way, are those that were protected: each belongs to a block that was found
    /// right before, or is here as a whole and is found right now. If not, nothing is known: [`read`](DegradedReader::read) finds out.
    pub fn vouches_for(&self, offset: u64, bytes: &[u8]) -> bool {
        match &self.inner.mode {
            Mode::Plain(_) => false,
            Mode::Guarded(sources) => self.inner.vouches_for(sources, offset, bytes).unwrap_or(false),
        }
    }

    /// Has the stripes behind `offset` gathered by other threads.
    fn gather_ahead(&self, offset: u64) {
        let Mode::Guarded(sources) = &self.inner.mode else { return };
        if offset >= self.size() || sources.header().geometry.tail() != Tail::Striped {
            return;
        }
        let stripe = sources.cut().locate(offset).0;
        let until = (stripe + self.inner.kept as u64).saturating_sub(1).min(sources.cut().stripes());
        let next = self.inner.gathered.fetch_max(until, Ordering::Relaxed).max(stripe + 1);
        if next >= until {
            return;
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let send = ahead.get_or_insert_with(|| start(&self.inner));
        // If no thread could be started, nothing is gathered ahead, and reading is slower.
        for stripe in next..until {
            let _ = send.send(stripe);
        }
    }
}

/// Threads that gather stripes, until nobody asks for any more.
fn start(inner: &Arc<Inner>) -> Sender<u64> {
    let (send, receive) = channel::<u64>();
    let receive = Arc::new(Mutex::new(receive));
    for _ in 0..GATHERERS {
        let (inner, receive) = (inner.clone(), receive.clone());
        let work = move || {
            loop {
                let next = receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(stripe) = next else { break };
                inner.gather_stripe(stripe);
            }
        };
        let _ = std::thread::Builder::new().name("gather ahead".to_owned()).spawn(work);
    }
    send
}

/// Threads that gather ahead.
const GATHERERS: usize = 2;

impl Inner {
    /// Gathers all data of a stripe. What cannot be had is told to whoever asks for it.
    fn gather_stripe(&self, stripe: u64) {
        let Mode::Guarded(sources) = &self.mode else { return };
        let slot = self.slot(stripe);
        let mut gathering = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if gathering.known.is_empty() {
            sources.begin(&mut gathering, stripe);
        }
        let run = sources.cut().run(stripe, 1);
        for column in 0..sources.header().code.k() {
            if self.gather(sources, &mut gathering, column, run.cell(0, column)).is_err() {
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
            Mode::Guarded(sources) => {
                self.forget_if_changed(sources)?;
                self.announce(sources, offset, want as u64);
                let mut done = 0;
                while done < want {
                    done += self.read_cell(sources, offset + done as u64, &mut buffer[done..])?;
                }
                Ok(want)
            }
        }
    }

    fn vouches_for(&self, sources: &Sources, offset: u64, bytes: &[u8]) -> Result<bool, ReadError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if self.suspicious.load(Ordering::Relaxed) || end > self.stat.size {
            return Ok(false);
        }
        self.forget_if_changed(sources)?;
        self.announce(sources, offset, bytes.len() as u64);
        let mut at = offset;
        while at < end {
            let (stripe, column) = sources.cut().locate(at);
            let run = sources.cut().run(stripe, 1);
            let cell = run.cell(0, column);
            let bit = stripe * sources.header().code.k() as u64 + column as u64;
            if !self.verified.contains(bit) {
                // The end of a file is no whole block: it is checked with zeros behind it.
                let is_whole = cell.start == at && cell.end - cell.start == run.block;
                let Some(block) =
                    bytes.get((at - offset) as usize..(cell.end - offset) as usize).filter(|_| is_whole)
                else {
                    return Ok(false);
                };
                let slot = self.slot(stripe);
                let mut gathering = slot.lock().unwrap_or_else(PoisonError::into_inner);
                if gathering.known.is_empty() {
                    sources.begin(&mut gathering, stripe);
                }
                if gathering.known[column] != Known::Nothing
                    || sources.check(&gathering, column, block)? != Known::Good
                {
                    return Ok(false);
                }
                self.note_verified(bit);
            }
            at = cell.end;
        }
        Ok(true)
    }

    /// Storage whose bytes may change under an open file is asked whether they did. Then what is known of blocks is worth
    /// nothing, and what would be made would be older than what is there.
    fn forget_if_changed(&self, sources: &Sources) -> Result<(), ReadError> {
        let Some(content) = sources.content().filter(|content| !content.is_immutable()) else {
            return Ok(());
        };
        let now = content.stat().map_err(ReadError::Open)?;
        // Other rights and names change the ctime, and no byte.
        match now.generation().is_same_content(&self.stat.generation()) {
            true => Ok(()),
            // Whoever reads on opens it once more.
            false => Err(ReadError::Open(io::Error::new(
                io::ErrorKind::StaleNetworkFileHandle,
                "it was changed while it was read",
            ))),
        }
    }

    /// Tells the storage what comes next if this goes on from about where the last read ended: who is read by several threads comes in some disorder.
    fn announce(&self, sources: &Sources, offset: u64, bytes: u64) {
        let end = offset + bytes;
        if self.last.swap(end, Ordering::Relaxed).abs_diff(offset) > AHEAD / 2 && offset != 0 {
            return;
        }
        let until = (end + AHEAD).min(self.stat.size);
        let mut at = self.announced.load(Ordering::Relaxed);
        if at < offset || at > until + AHEAD {
            at = offset;
        }
        // In steps, so that not every small read costs a call.
        if until < at + AHEAD / 2 && until < self.stat.size || at >= until {
            return;
        }
        self.announced.store(until, Ordering::Relaxed);
        let suspicious = self.suspicious.load(Ordering::Relaxed);
        // The columns of a file that lies in one piece are far apart: the others of a stripe are not what comes next.
        let in_one_piece = sources.header().geometry.tail() != Tail::Striped;
        for stripes in sources.cut().stripes_of(at..until) {
            if suspicious || !in_one_piece {
                sources.prefetch(stripes.clone());
            }
            match suspicious {
                true => stripes.for_each(|stripe| sources.will_read_frames(stripe, 1)),
                false => sources.will_read_tables(stripes),
            }
        }
    }

    /// Reads what `buffer` takes of the block that has the byte at `offset`.
    fn read_cell(&self, sources: &Sources, offset: u64, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let (stripe, column) = sources.cut().locate(offset);
        let run = sources.cut().run(stripe, 1);
        let cell = run.cell(0, column);
        let within = (offset - cell.start) as usize;
        let bytes = ((cell.end - offset) as usize).min(buffer.len());
        let buffer = &mut buffer[..bytes];
        let bit = stripe * sources.header().code.k() as u64 + column as u64;
        let kept = self.kept(stripe);
        if kept.is_none() && self.verified.contains(bit) {
            let content = sources.content().map(|content| content.read_at(offset, buffer));
            if let Some(Ok(got)) = content
                && got == bytes
            {
                return Ok(bytes);
            }
        }
        let slot = kept.unwrap_or_else(|| self.slot(stripe));
        let mut gathering = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if gathering.known.is_empty() {
            sources.begin(&mut gathering, stripe);
        }
        // A whole block that is right goes straight to who asked.
        let whole = bytes as u64 == run.block && !self.suspicious.load(Ordering::Relaxed);
        if whole && gathering.known[column] == Known::Nothing {
            let read = sources.content().map(|content| content.read(&run, 0, column, buffer));
            if matches!(read, Some(Ok(got)) if got == bytes)
                && sources.check(&gathering, column, buffer)? == Known::Good
            {
                self.note_verified(bit);
                return Ok(bytes);
            }
        }
        self.gather(sources, &mut gathering, column, cell)?;
        buffer.copy_from_slice(&gathering.blocks[column][within..within + bytes]);
        if gathering.unsure {
            self.counted().unverified_bytes += bytes as u64;
        } else if gathering.known[column] == Known::Good {
            self.note_verified(bit);
        }
        Ok(bytes)
    }

    /// Has the block of a column in `gathering`, by whatever it takes, and counts that.
    fn gather(
        &self,
        sources: &Sources,
        gathering: &mut Gathering,
        column: usize,
        cell: Range<u64>,
    ) -> Result<(), ReadError> {
        let before = gathering.known.clone();
        if before[column].is_right() {
            return Ok(());
        }
        let had = sources.gather(gathering, &[column])?;
        let ailing = |known: Known| if let Known::Bad(why) = known { why } else { None };
        // What was bad on the way and is made by now is told as well.
        let troubles = std::mem::take(&mut gathering.ailing);
        let made = gathering.known.iter().zip(&before);
        let made = made.filter(|(now, was)| **now == Known::Made && **was != Known::Made).count() as u64;
        if made > 0 || !had {
            // A block that was written while it was read differs as well, and is no damage.
            if let Err(changed) = self.forget_if_changed(sources) {
                gathering.known.clear();
                return Err(changed);
            }
        }
        let mut report = self.counted();
        for (at, why) in troubles {
            let name = Shown::bytes(sources.place_of(at)).to_string();
            *report.ailing.entry(name).or_default().entry(why).or_default() += 1;
            if at < sources.header().code.k() {
                self.suspicious.store(true, Ordering::Relaxed);
            }
            if why == Ailment::Wrong && report.wrong.len() < MAX_LISTED {
                report.wrong.push((gathering.stripe, at));
            }
        }
        report.reconstructed += made;
        report.reconstructed_bytes += made * gathering.block as u64;
        drop(report);
        if had {
            return Ok(());
        }
        // What is there and cannot be told from what was protected is not given away either; another version may be there by now.
        let bad = gathering.known.iter().enumerate().filter_map(|(at, &known)| Some((at, ailing(known)?)));
        let why: Vec<String> = bad
            .map(|(at, why)| format!("{} is {}", Shown::bytes(sources.place_of(at)), why.words()))
            .collect();
        Err(ReadError::Lost { range: cell, why: why.join(", ") })
    }

    fn note_verified(&self, bit: u64) {
        if self.verified.insert(bit) {
            self.counted().verified += 1;
        }
    }

    /// The stripe, if it is kept and something of it was gathered.
    fn kept(&self, stripe: u64) -> Option<Arc<Mutex<Gathering>>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.iter().find(|(number, _)| *number == stripe).map(|(_, slot)| slot.clone())
    }

    /// A place for a stripe; the one that was longest unused makes room.
    fn slot(&self, stripe: u64) -> Arc<Mutex<Gathering>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let known = cache.iter().position(|(number, _)| *number == stripe);
        if let Some(found) = known.and_then(|at| cache.remove(at)) {
            let slot = found.1.clone();
            cache.push_back(found);
            return slot;
        }
        let mut gathering = Gathering::default();
        while cache.len() >= self.kept {
            // Its buffers serve again, unless someone reads from them.
            if let Some(used) = cache.pop_front().and_then(|(_, slot)| Arc::into_inner(slot)) {
                gathering = used.into_inner().unwrap_or_else(PoisonError::into_inner);
            }
        }
        gathering.known.clear();
        let slot = Arc::new(Mutex::new(gathering));
        cache.push_back((stripe, slot.clone()));
        slot
    }

    fn counted(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a whole file to `output`, in pieces; gives its bytes and what had to be done.
///
/// # Errors
/// See [`ReadError`]; what was written before is right, but not all.
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

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

/// Why a file was not copied out.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be written.
    #[error("writing what was asked for: {0}")]
    Write(io::Error),
}
