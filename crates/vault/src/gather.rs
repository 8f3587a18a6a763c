//! Blocks of one stripe after the other: read from where they are, checked against their signatures, and made from others where
//! they are gone.
//!
//! The usual way reads as little as it can: the table of one redundancy file says what every block of the stripe has to be, and k
//! blocks that fit it are enough. Whatever does not fit ends the usual way: then everything there is of the stripe is read and
//! judged as in a scrub ([`examine`](mod@crate::examine)), and it is asked whether the redundancy itself may be older than the data.
//! Redundancy files of another version of the file than the one that is there are no source at all.

use crate::coder::{Coder, Coders};
use crate::examine::{self, ExamineError, Findings, Stripe, Subject, examine};
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

/// What blocks of a file can be had from.
#[derive(Debug)]
pub struct Sources {
    subject: Subject,
    cut: Cut,
    /// Per part of the subject: its file, and what waits for its disk.
    files: Vec<(Arc<File>, Option<Arc<DeadlineIo>>)>,
    /// Targets by column, redundancy last; nothing for a column that is nowhere.
    targets: Vec<Vec<u8>>,
    /// What is known of the redundancy as a whole, once there was a reason to ask.
    verdict: Mutex<Option<Arc<Verdict>>>,
}

/// Whether redundancy is as new as its headers say.
#[derive(Debug)]
enum Verdict {
    /// All frames are those that the headers speak of.
    Sure,
    /// Some are not; this is what a look at the whole file found.
    Examined(Findings),
}

/// Why a block is not what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ailment {
    /// Its target is gone, or has not got it.
    Lost,
    /// Its target did not answer in time.
    Timeout,
    /// The operating system could not read it.
    Unreadable,
    /// It was read, and is not what was protected.
    Wrong,
}

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Known {
    /// Nobody looked.
    #[default]
    Nothing,
    /// It is what was protected.
    Good,
    /// It was made from others.
    Made,
    /// It cannot be had.
    Bad(Option<Ailment>),
}

impl Known {
    /// Whether its bytes are right.
    pub fn is_right(self) -> bool {
        matches!(self, Known::Good | Known::Made)
    }
}

/// One stripe, as far as it was gathered. Buffers are kept from stripe to stripe.
#[derive(Debug, Default)]
pub struct Gathering {
    /// Which one.
    pub stripe: u64,
    /// Bytes of a block.
    pub block: usize,
    /// The blocks of all k + m columns, as far as they are known.
    pub blocks: Vec<Vec<u8>>,
    /// What is known of each.
    pub known: Vec<Known>,
    /// What each has to be; the first k are there whenever there is a table.
    pub seals: Vec<Option<Seal>>,
    /// Per part: the checks of its frames, where they were read.
    pub checks: Vec<Option<Check>>,
    /// Nothing could tell whether the data of this stripe is what was protected; it is given as it was read.
    pub unsure: bool,
    /// Blocks that could not be used, by column; whoever counts them takes them.
    pub ailing: Vec<(usize, Ailment)>,
    judged: bool,
}

impl Sources {
    /// Opens what there is of a file. Nothing if there is no redundancy for the file as it is now: then its bytes are all there is,
    /// and whoever makes redundancy of them is not waited for.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub fn open(
        storage: &dyn Storage,
        coders: &Coders,
        path: &[u8],
    ) -> Result<Option<Sources>, ExamineError> {
        let subject = match Subject::open_to_read(storage, coders, path) {
            Err(ExamineError::Unprotected | ExamineError::Unusable(_)) => return Ok(None),
            subject => subject?,
        };
        if subject.content.is_none() || subject.is_changed() {
            return Ok(None);
        }
        Sources::of(subject, storage, path).map(Some)
    }

    /// What there is of the version of a file that its redundancy is about.
    ///
    /// # Errors
    /// See [`ExamineError`].
    pub(crate) fn of(
        mut subject: Subject,
        storage: &dyn Storage,
        path: &[u8],
    ) -> Result<Sources, ExamineError> {
        let revision = subject.header.revision;
        subject.parts.retain(|part| part.header.revision == revision);
        let code = subject.header.code.clone();
        let layout = storage.layout(path, &code, subject.header.geometry.block());
        let mut targets = layout.map_or_else(|_| Vec::new(), |layout| layout.targets);
        targets.resize(code.k(), DATA.to_vec());
        targets.resize(code.blocks(), Vec::new());
        let repositories = storage.repositories();
        let mut files = Vec::new();
        for part in &subject.parts {
            let file = part.file.try_clone().map_err(ExamineError::Read)?;
            files.push((Arc::new(file), storage.io_deadline(&part.place)));
            let home = repositories.iter().find(|home| home.tree.path() == part.place.tree.path());
            let name = home.map(|home| home.target.clone()).filter(|name| !name.is_empty());
            for column in part.columns() {
                targets[code.k() + column] = name.clone().unwrap_or_else(|| REPOSITORY.to_vec());
            }
        }
        let cut = subject.cut();
        Ok(Sources { subject, cut, files, targets, verdict: Mutex::default() })
    }

    /// Lets others update the redundancy while this is open. What they write is noticed by the checks.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn unlock(&self) -> std::io::Result<()> {
        self.subject.parts.iter().try_for_each(|part| part.file.unlock())
    }

    /// The cut of the file.
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// The header that counts.
    pub fn header(&self) -> &Header {
        &self.subject.header
    }

    /// The code, ready.
    pub fn coder(&self) -> &Arc<Coder> {
        &self.subject.coder
    }

    /// The redundancy files, all of the newest revision.
    pub fn parts(&self) -> &[Part] {
        &self.subject.parts
    }

    /// The target of a column; empty where it is nowhere.
    pub fn target(&self, column: usize) -> &[u8] {
        self.targets.get(column).map_or(b"", |name| name)
    }

    /// What to call the place of a column that is missing: where it is, or where the header says that it was.
    pub fn place_of(&self, column: usize) -> &[u8] {
        let was = self.header().targets.get(column).map_or(&b""[..], |name| name);
        [self.target(column), was].into_iter().find(|name| !name.is_empty()).unwrap_or(REPOSITORY)
    }

    /// The file.
    pub fn content(&self) -> Option<&dyn Content> {
        self.subject.content.as_deref()
    }

    /// Whether the file system says that the file is another one by now.
    pub fn is_changed(&self) -> bool {
        let now = self.content().and_then(|content| content.stat().ok());
        now.is_none_or(|now| !version::is_unchanged(&self.subject.header, &now.generation()))
    }

    /// Begins with a stripe: what its blocks have to be. False if no table can be read; judging still may tell.
    pub fn begin(&self, gathering: &mut Gathering, stripe: u64) -> bool {
        let blocks = self.header().code.blocks();
        let block = self.cut.block(stripe) as usize;
        gathering.stripe = stripe;
        gathering.block = block;
        gathering.blocks.resize_with(blocks, Vec::new);
        gathering.known.clear();
        gathering.known.resize(blocks, Known::Nothing);
        gathering.checks.clear();
        gathering.checks.resize(self.subject.parts.len(), None);
        gathering.seals.clear();
        gathering.seals.resize(blocks, None);
        gathering.ailing.clear();
        (gathering.unsure, gathering.judged) = (false, false);
        let mut table = vec![0; self.coder().table_bytes()];
        for at in 0..self.subject.parts.len() {
            let part = &self.subject.parts[at];
            let start = part.records.frame_offset(0, stripe) + block as u64;
            if part.header.columns == 0 || !self.read(at, &mut table, start) {
                continue;
            }
            let (key, column) = (part.header.frame_key(), part.header.first);
            if let Some(frame) = Frame::open(&table, self.coder().shape(), key, column, stripe) {
                self.take_table(gathering, &frame, column);
                if part.header.columns == 1 {
                    gathering.checks[at] = Some(*frame.check());
                }
                return true;
            }
        }
        false
    }

    fn take_table(&self, gathering: &mut Gathering, frame: &Frame<'_>, column: usize) {
        let k = self.header().code.k();
        let data: Vec<Seal> = frame.data().collect();
        for (place, seal) in gathering.seals.iter_mut().zip(&data) {
            *place = Some(*seal);
        }
        match self.subject.coder.redundancy_seals(&data) {
            Some(seals) => {
                let places = gathering.seals[k..].iter_mut();
                places.zip(seals).for_each(|(place, seal)| *place = Some(seal));
            }
            None => gathering.seals[k + column] = Some(frame.own()),
        }
    }

    /// Reads from a redundancy file; false if not all of it is there.
    fn read(&self, part: usize, buffer: &mut [u8], offset: u64) -> bool {
        let (file, lane) = &self.files[part];
        let got = match lane {
            Some(lane) => lane.read(file, buffer, offset),
            None => read_up_to(file, buffer, offset).map_err(Fault::Io),
        };
        got.is_ok_and(|got| got == buffer.len())
    }

    fn run(&self, stripe: u64) -> Run {
        self.cut.run(stripe, 1)
    }

    /// Says that stripes will be read soon, as many at a time as lie behind each other: each call costs a look at every column.
    pub fn prefetch(&self, stripes: Range<u64>) {
        let (mut next, end) = (stripes.start, stripes.end.min(self.cut.stripes()));
        while next < end {
            let run = self.cut.run(next, end - next);
            self.content().iter().for_each(|content| content.prefetch(&run));
            next += run.count;
        }
    }

    /// Says that the tables of signatures of stripes will be read soon. They lie apart, each behind a redundancy block, so that the system does not see
    /// them coming.
    pub fn will_read_tables(&self, stripes: Range<u64>) {
        let Some(at) = self.subject.parts.iter().position(|part| part.header.columns > 0) else { return };
        let length = std::num::NonZeroU64::new(self.coder().table_bytes() as u64);
        for stripe in stripes.start..stripes.end.min(self.cut.stripes()) {
            let start = self.subject.parts[at].records.frame_offset(0, stripe) + self.cut.block(stripe);
            // Only advice: without it reading is slower, nothing else.
            let _ = rustix::fs::fadvise(&self.files[at].0, start, length, rustix::fs::Advice::WillNeed);
        }
    }

    /// Says that the first `count` redundancy blocks of a stripe will be read soon.
    pub fn will_read_frames(&self, stripe: u64, count: usize) {
        if stripe >= self.cut.stripes() {
            return;
        }
        let k = self.header().code.k();
        let held = (0..self.header().code.m()).filter(|&column| !self.target(k + column).is_empty());
        for column in held.take(count) {
            let Some(at) = self.subject.parts.iter().position(|part| part.columns().contains(&column)) else {
                continue;
            };
            let part = &self.subject.parts[at];
            let start = part.records.frame_offset(column - part.header.first, stripe);
            let length = std::num::NonZeroU64::new(part.records.frame_bytes(stripe));
            // Only advice: without it reading is slower, nothing else.
            let _ = rustix::fs::fadvise(&self.files[at].0, start, length, rustix::fs::Advice::WillNeed);
        }
    }

    /// Reads a block and checks it, unless that was done before.
    ///
    /// # Errors
    /// The code fails.
    pub fn fetch(&self, gathering: &mut Gathering, column: usize) -> Result<Known, ExamineError> {
        if gathering.known[column] == Known::Nothing {
            let mut buffer = std::mem::take(&mut gathering.blocks[column]);
            buffer.resize(gathering.block, 0);
            let k = self.header().code.k();
            let known = match column < k {
                true => self.fetch_data(gathering, column, &mut buffer)?,
                false => self.fetch_redundancy(gathering, column - k, &mut buffer)?,
            };
            gathering.known[column] = known;
            gathering.blocks[column] = buffer;
            if let Known::Bad(Some(why)) = known {
                gathering.ailing.push((column, why));
            }
        }
        Ok(gathering.known[column])
    }

    fn fetch_data(
        &self,
        gathering: &Gathering,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<Known, ExamineError> {
        let run = self.run(gathering.stripe);
        let cell = run.cell(0, column);
        if cell.is_empty() {
            buffer.fill(0);
            return Ok(Known::Good);
        }
        let Some(content) = self.content() else { return Ok(Known::Bad(Some(Ailment::Lost))) };
        match content.read(&run, 0, column, buffer) {
            Ok(got) if got as u64 == cell.end - cell.start => self.check(gathering, column, buffer),
            Ok(_) => Ok(Known::Bad(Some(Ailment::Lost))),
            Err(fault) => Ok(Known::Bad(Some(Ailment::of(&fault)))),
        }
    }

    /// Whether bytes are what a column has to be.
    ///
    /// # Errors
    /// The code fails.
    pub fn check(&self, gathering: &Gathering, column: usize, bytes: &[u8]) -> Result<Known, ExamineError> {
        let Some(wanted) = gathering.seals[column] else { return Ok(Known::Bad(None)) };
        Ok(match self.subject.coder.sign(bytes)?.fits(&wanted) {
            true => Known::Good,
            false => Known::Bad(Some(Ailment::Wrong)),
        })
    }

    fn fetch_redundancy(
        &self,
        gathering: &mut Gathering,
        column: usize,
        buffer: &mut [u8],
    ) -> Result<Known, ExamineError> {
        let (k, stripe, block) = (self.header().code.k(), gathering.stripe, gathering.block);
        let holder = |part: &Part| part.columns().contains(&column);
        let Some(at) = self.subject.parts.iter().position(holder) else {
            return Ok(Known::Bad(Some(Ailment::Lost)));
        };
        let part = &self.subject.parts[at];
        let mut table = vec![0; self.coder().table_bytes()];
        let start = part.records.frame_offset(column - part.header.first, stripe);
        if !self.read(at, buffer, start) || !self.read(at, &mut table, start + block as u64) {
            return Ok(Known::Bad(Some(Ailment::Unreadable)));
        }
        let wrong = Ok(Known::Bad(Some(Ailment::Wrong)));
        let key = part.header.frame_key();
        let Some(opened) = Frame::open(&table, self.coder().shape(), key, column, stripe) else {
            return wrong;
        };
        let agrees = opened.data().zip(&gathering.seals).all(|(says, seal)| Some(says) == *seal);
        // Without a law only the frame itself says what its block has to be.
        let (own, by_law) = (opened.own(), gathering.seals[k + column]);
        let lawful = by_law.is_none_or(|law| own.fits(&law));
        if !agrees || !lawful || self.subject.coder.sign(buffer)? != own {
            return wrong;
        }
        if part.header.columns == 1 {
            gathering.checks[at] = Some(*opened.check());
        }
        gathering.seals[k + column] = Some(own);
        Ok(Known::Good)
    }

    /// Sees to it that the `wanted` columns are there: read, or made from k others and checked. False if some cannot be had.
    ///
    /// # Errors
    /// The code fails; the redundancy may be older than the data, and nobody can tell.
    pub fn gather(&self, gathering: &mut Gathering, wanted: &[usize]) -> Result<bool, ExamineError> {
        let k = self.header().code.k();
        let has_table = gathering.seals[..k].iter().all(Option::is_some);
        let right = |gathering: &Gathering| wanted.iter().all(|&column| gathering.known[column].is_right());
        if has_table && !gathering.judged {
            for &column in wanted {
                self.fetch(gathering, column)?;
            }
            if right(gathering) {
                return Ok(true);
            }
            // Data first: it is read in the order of the file anyway.
            for column in 0..self.header().code.blocks() {
                let good = gathering.known.iter().filter(|known| known.is_right()).count();
                if good >= k {
                    break;
                }
                self.fetch(gathering, column)?;
            }
            let doubt = |known: &Known| matches!(known, Known::Bad(None | Some(Ailment::Wrong)));
            if !gathering.known.iter().any(doubt) && self.make(gathering, wanted)? {
                return Ok(true);
            }
        }
        if !gathering.judged {
            self.judge(gathering)?;
        }
        Ok(right(gathering))
    }

    /// Makes what is missing of `wanted`. False if there are too few right blocks or what was made is not what was protected.
    fn make(&self, gathering: &mut Gathering, wanted: &[usize]) -> Result<bool, ExamineError> {
        let (k, block) = (self.header().code.k(), gathering.block);
        let missing: Vec<usize> =
            wanted.iter().copied().filter(|&column| !gathering.known[column].is_right()).collect();
        if gathering.known.iter().filter(|known| known.is_right()).count() < k {
            return Ok(false);
        }
        let mut made: Vec<Vec<u8>> = missing
            .iter()
            .map(|&column| {
                let mut buffer = std::mem::take(&mut gathering.blocks[column]);
                buffer.resize(block, 0);
                buffer
            })
            .collect();
        let stripe: Vec<Option<&[u8]>> = gathering
            .blocks
            .iter()
            .zip(&gathering.known)
            .map(|(bytes, known)| known.is_right().then_some(&bytes[..]))
            .collect();
        let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(|buffer| &mut buffer[..]).collect();
        self.subject.coder.repair(&stripe, &missing, &mut outputs)?;
        let mut all_right = true;
        for (&column, bytes) in missing.iter().zip(made) {
            let seal = self.subject.coder.sign(&bytes)?;
            let right = gathering.seals[column].is_none_or(|wanted| wanted.fits(&seal));
            if right {
                gathering.seals[column] = Some(seal);
                gathering.known[column] = Known::Made;
            }
            gathering.blocks[column] = bytes;
            all_right &= right;
        }
        Ok(all_right)
    }

    /// Reads everything there is of a stripe and judges it.
    fn judge(&self, gathering: &mut Gathering) -> Result<(), ExamineError> {
        gathering.judged = true;
        let verdict = self.verdict()?;
        let (run, k, block) = (self.run(gathering.stripe), self.header().code.k(), gathering.block);
        let mut stripe = Stripe::default();
        stripe.read_records(&self.subject, &run);
        let (_, readable) = stripe.examine(&self.subject, &run, 0)?;
        if let Verdict::Examined(findings) = &*verdict {
            let fault = findings.faults.iter().find(|fault| fault.stripe == gathering.stripe);
            let bad_data = fault.is_some_and(|fault| !fault.data.is_empty());
            if fault.is_some_and(|fault| fault.stale) {
                stripe = stripe.trusting(&self.subject, block)?;
            } else if findings.doubtful && bad_data {
                // The data may be newer than what would be made in its place.
                leave_data(gathering, &stripe, k, readable);
                return Ok(());
            }
        }
        let found = stripe.good.clone();
        stripe.restore(&self.subject, block)?;
        for (column, bytes) in stripe.blocks.chunks_exact(block).enumerate() {
            let was = gathering.known[column];
            gathering.known[column] = match (found[column], stripe.good[column]) {
                (true, _) => Known::Good,
                (false, true) => Known::Made,
                (false, false) => Known::Bad(if let Known::Bad(why) = was { why } else { None }),
            };
            gathering.blocks[column].clear();
            gathering.blocks[column].extend_from_slice(bytes);
            gathering.seals[column] = stripe.seals.as_ref().map(|seals| seals[column]);
        }
        Ok(())
    }

    /// Whether the frames are those that the headers speak of.
    fn verdict(&self) -> Result<Arc<Verdict>, ExamineError> {
        let mut known = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(verdict) = &*known {
            return Ok(verdict.clone());
        }
        let verdict = match self.is_current() {
            true => Verdict::Sure,
            false => {
                let look = examine::ExamineOptions {
                    threads: 1,
                    from_medium: false,
                    progress: &|_| {},
                    stopped: &|| false,
                };
                Verdict::Examined(examine(&self.subject, look)?)
            }
        };
        Ok(known.insert(Arc::new(verdict)).clone())
    }

    /// Whether all tables are those that the headers speak of; reads all of them.
    pub(crate) fn is_current(&self) -> bool {
        (0..self.subject.parts.len()).all(|at| self.root_holds(at))
    }

    /// Whether the sum of the checks of all frames of a part is what its header says; reads their tables only.
    fn root_holds(&self, at: usize) -> bool {
        let part = &self.subject.parts[at];
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

/// Takes the data of a stripe as it was read, where all of it was.
fn leave_data(gathering: &mut Gathering, stripe: &Stripe, k: usize, readable: bool) {
    gathering.unsure = readable;
    for column in 0..k {
        let known = if readable || stripe.good[column] { Known::Good } else { Known::Bad(None) };
        gathering.known[column] = known;
        let bytes = &stripe.blocks[column * gathering.block..][..gathering.block];
        gathering.blocks[column] = bytes.to_vec();
    }
}

impl Ailment {
    fn of(fault: &Fault) -> Ailment {
        match fault {
            Fault::Lost(_) => Ailment::Lost,
            Fault::Timeout(_) => Ailment::Timeout,
            Fault::Io(_) => Ailment::Unreadable,
        }
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Ailment::Lost => "gone",
            Ailment::Timeout => "without an answer in time",
            Ailment::Unreadable => "unreadable",
            Ailment::Wrong => "not what was protected",
        }
    }
}
