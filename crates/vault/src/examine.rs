//! Looks at a protected file and its redundancy, block by block: what is right, what is not, what can be made again.
//!
//! Three checks: data against signatures; redundancy blocks against their own signatures; and the signatures of
//! redundancy against those of data through the linear law, without any block. A table of signatures counts only if its check
//! is right. Tables that disagree mean that a write was lost: that of the newest revision counts, among several of these the one
//! that fits most blocks, and the others' frames are stale.

mod subject;
mod versions;

pub use subject::Subject;
pub(crate) use subject::belonging;

use crate::catalogue::{Piece, Problem};
use crate::format::frame::Seal;
use crate::format::{Frame, Header};
use crate::geometry::Run;
use crate::redundancy::Part;
use crate::runs::{each_run, pieces};
use crate::storage::Fault;
use std::io;
use std::ops::Range;
use versions::Sums;

/// Why a file cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// It has no redundancy.
    #[error("it has no redundancy")]
    Unprotected,
    /// All of its redundancy is unusable.
    #[error("its redundancy cannot be used: {0}")]
    Unusable(String),
    /// A later program wrote its redundancy: nothing is known of it here, and it is left alone.
    #[error("its redundancy was written by a later version of the program: {0}")]
    Later(String),
    /// Its redundancy cannot be opened by this process, which says nothing of what is in it.
    #[error("its redundancy cannot be opened: {0}")]
    Refused(io::Error),
    /// The file cannot be opened, for another reason than being gone.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// It was written while it was read.
    #[error("it changed while it was read")]
    Changed,
    /// The code fails.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// It was stopped.
    #[error("stopped")]
    Stopped,
}

/// What is wrong with a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeFault {
    /// Which one.
    pub stripe: u64,
    /// Data columns that are not what was protected.
    pub data: Vec<usize>,
    /// Redundancy columns, counted from 0, that are not what was written.
    pub redundancy: Vec<usize>,
    /// There is too little left to make the data again.
    pub lost: bool,
    /// The data is right: what frames say of it is of an older version, or nothing.
    pub stale: bool,
}

/// What an examination found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Stripes that are not right, in order.
    pub faults: Vec<StripeFault>,
    /// Stripes that were looked at.
    pub stripes: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Headers that are damaged, of redundancy files by number.
    pub headers: Vec<usize>,
    /// Redundancy columns, counted from 0, that have no file.
    pub missing: Vec<usize>,
    /// Some redundancy is older than its header says, and nobody can tell which. Data that it says is wrong may be newer and right.
    pub doubtful: bool,
}

/// Stripes with faults that are listed for one file; what is beyond is not repaired in one go.
const MAX_FAULTS: usize = 1 << 20;

impl Findings {
    /// Whether all is right.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.headers.is_empty() && self.missing.is_empty() && !self.doubtful
    }

    /// Whether bytes of the file are beyond repair.
    pub fn is_lost(&self) -> bool {
        self.faults.iter().any(|fault| fault.lost)
    }

    /// Whether bytes of the file are not what was protected.
    pub fn has_bad_data(&self) -> bool {
        self.faults.iter().any(|fault| !fault.data.is_empty())
    }

    /// The damage in bytes: of the file, and of its redundancy files.
    pub fn problems(&self, subject: &Subject) -> Vec<Problem> {
        let cut = subject.cut();
        let (mut data, mut lost, mut redundancy) = (Vec::new(), Vec::new(), Vec::new());
        for fault in &self.faults {
            let run = cut.run(fault.stripe, 1);
            let cells = fault.data.iter().map(|&column| run.cell(0, column));
            if fault.lost { &mut lost } else { &mut data }.extend(cells);
            for part in &subject.parts {
                for &column in &fault.redundancy {
                    redundancy.extend(frame_range(part, fault.stripe, column));
                }
            }
        }
        let headers = self.headers.iter().map(|&at| {
            let records = &subject.parts[at].records;
            match subject.parts[at].head_damage {
                Some(_) => 0..records.header_bytes(),
                None => records.trailer()..records.file(),
            }
        });
        let all = [
            (Piece::Lost, lost),
            (Piece::Data, data),
            (Piece::Redundancy, redundancy),
            (Piece::Header, headers.collect()),
        ];
        let problems = all.into_iter().flat_map(|(piece, ranges)| {
            crate::geometry::merge(ranges).into_iter().map(move |range| Problem { piece, range })
        });
        problems.collect()
    }

    fn and(mut self, mut other: Findings) -> Findings {
        self.faults.append(&mut other.faults);
        self.stripes += other.stripes;
        self.bytes += other.bytes;
        self
    }
}

/// Where the frame of a column lies in a redundancy file, if it is in it.
fn frame_range(part: &Part, stripe: u64, column: usize) -> Option<Range<u64>> {
    let within = column.checked_sub(part.header.first).filter(|&at| at < part.header.columns)?;
    let start = part.records.frame_offset(within, stripe);
    Some(start..start + part.records.frame_bytes(stripe))
}

/// A stripe with everything that is known of it.
#[derive(Debug, Default)]
pub struct Stripe {
    /// All k + m blocks, one after the other.
    pub blocks: Vec<u8>,
    /// Whether each of them is what was protected.
    pub good: Vec<bool>,
    /// The seals of all k + m blocks, where a table is known.
    pub seals: Option<Vec<Seal>>,
    /// Buffers for records, per redundancy file.
    records: Vec<Vec<u8>>,
}

/// What frames of a stripe that agree say of its blocks.
struct Table {
    data: Vec<Seal>,
    /// Per redundancy column: the seal of a frame that says this.
    own: Vec<Option<Seal>>,
}

impl Table {
    /// The seals of all k + m blocks by this table, and which blocks are good then.
    fn judge(self, subject: &Subject, present: &[bool], actual: &[Seal]) -> (Vec<Seal>, Vec<bool>) {
        let k = self.data.len();
        // The law tells the seals of all redundancy; where there is none, a frame's own word counts.
        let by_law = subject.coder.redundancy_seals(&self.data);
        let mut seals = self.data;
        // A frame whose table is damaged or says otherwise is not good, even if its block is.
        let mut says = vec![true; k];
        for (column, own) in self.own.iter().enumerate() {
            let law = by_law.as_ref().map(|seals| seals[column]);
            let agrees = |own: &Seal| law.is_none_or(|law| own.fits(&law));
            says.push(own.as_ref().is_some_and(agrees));
            // The frame knows more than the law, as long as they agree.
            seals.push(own.filter(agrees).or(law).unwrap_or_default());
        }
        let good = (0..seals.len()).map(|at| says[at] && present[at] && actual[at].fits(&seals[at]));
        let good = good.collect();
        (seals, good)
    }
}

/// How to examine.
#[derive(Clone, Copy)]
pub struct ExamineOptions<'a> {
    /// Threads for a large file.
    pub threads: usize,
    /// Read from the medium, not from what the system keeps in memory.
    pub from_medium: bool,
    /// Called with bytes of data as they are done.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Asked now and then; true stops.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Examines all stripes.
///
/// # Errors
/// See [`ExamineError`]; damage is no error.
pub fn examine(subject: &Subject, options: ExamineOptions<'_>) -> Result<Findings, ExamineError> {
    let (cut, k) = (subject.cut(), subject.header.code.k());
    if options.from_medium {
        subject.content.iter().for_each(|content| content.drop_cache());
        subject.parts.iter().for_each(Part::drop_cache);
    }
    let state = || (Stripe::default(), Findings::default(), Sums::new(subject));
    let content = subject.content.as_deref();
    let states = each_run(
        &cut,
        pieces(k.max(subject.header.code.m())),
        content,
        options.threads,
        state,
        |run, (stripe, findings, sums)| {
            if (options.stopped)() {
                return Err(ExamineError::Stopped);
            }
            stripe.read_records(subject, run);
            for row in 0..run.count {
                let (fault, readable) = stripe.examine(subject, run, row)?;
                sums.take(subject, stripe, run.first + row, run.block as usize, readable)?;
                if findings.faults.len() < MAX_FAULTS {
                    findings.faults.extend(fault);
                }
                findings.stripes += 1;
            }
            let data: u64 = (0..k).map(|column| run.piece(column)).map(|piece| piece.end - piece.start).sum();
            findings.bytes += data + stripe.records.iter().map(|records| records.len() as u64).sum::<u64>();
            (options.progress)(data);
            Ok(())
        },
    )?;
    let mut findings = Findings::default();
    let mut sums = Sums::new(subject);
    for (_, some, more) in states {
        findings = findings.and(some);
        sums = sums.and(more);
    }
    findings.faults.sort_by_key(|fault| fault.stripe);
    let damaged = |part: &Part| part.head_damage.is_some() || part.trailer_damage.is_some();
    findings.headers = (0..subject.parts.len()).filter(|&at| damaged(&subject.parts[at])).collect();
    findings.missing = (0..subject.header.code.m()).filter(|&column| !subject.holds(column)).collect();
    sums.settle(subject, &mut findings);
    Ok(findings)
}

impl Stripe {
    /// Reads the records of a run; what cannot be read is no frame.
    pub fn read_records(&mut self, subject: &Subject, run: &Run) {
        self.records.resize_with(subject.parts.len(), Vec::new);
        for (part, buffer) in subject.parts.iter().zip(&mut self.records) {
            if part.read_records(run.first, run.count, buffer).is_err() {
                buffer.fill(0);
            }
        }
    }

    /// Examines the stripe in `row` of `run`, whose records were read. Says as well whether all of its data could be read.
    ///
    /// # Errors
    /// The code fails.
    pub fn examine(
        &mut self,
        subject: &Subject,
        run: &Run,
        row: u64,
    ) -> Result<(Option<StripeFault>, bool), ExamineError> {
        let (k, m) = (subject.header.code.k(), subject.header.code.m());
        let block = run.block as usize;
        let stripe = run.first + row;
        self.blocks.resize((k + m) * block, 0);
        self.good.clear();
        self.good.resize(k + m, false);
        let mut present = vec![false; k + m];
        for (column, buffer) in self.blocks.chunks_exact_mut(block).take(k).enumerate() {
            let cell = run.cell(row, column);
            let read = match &subject.content {
                Some(content) => content.read(run, row, column, buffer),
                None => Err(Fault::Lost(Vec::new())),
            };
            present[column] = read.is_ok_and(|got| got as u64 == cell.end - cell.start);
            // A block that lies wholly behind the file's end is zeros, whatever became of the file.
            if cell.is_empty() {
                buffer.fill(0);
                present[column] = true;
            }
        }
        let tables = self.read_frames(subject, stripe, row, block, &mut present);
        let mut actual: Vec<Seal> = Vec::with_capacity(k + m);
        if !tables.is_empty() {
            for bytes in self.blocks.chunks_exact(block) {
                actual.push(subject.coder.sign(bytes)?);
            }
        }
        // The first of equals: that of the first frame.
        let verdicts = tables.into_iter().rev().map(|table| table.judge(subject, &present, &actual));
        match verdicts.max_by_key(|(_, good)| good.iter().filter(|&&good| good).count()) {
            Some((seals, good)) => (self.seals, self.good) = (Some(seals), good),
            None => {
                self.seals = None;
                self.compare_without_seals(subject, block, &present)?;
            }
        }
        let data: Vec<usize> = (0..k).filter(|&column| !self.good[column]).collect();
        let redundancy: Vec<usize> = (0..m).filter(|&at| subject.holds(at) && !self.good[k + at]).collect();
        let lost = !data.is_empty() && self.good.iter().filter(|&&good| good).count() < k;
        let right = data.is_empty() && redundancy.is_empty();
        let fault = StripeFault { stripe, data, redundancy, lost, stale: false };
        Ok(((!right).then_some(fault), present[..k].iter().all(|&there| there)))
    }

    /// Takes the blocks from the frames, and the tables of the newest revision that has any for this stripe.
    fn read_frames(
        &mut self,
        subject: &Subject,
        stripe: u64,
        row: u64,
        block: usize,
        present: &mut [bool],
    ) -> Vec<Table> {
        let (k, m) = (subject.header.code.k(), subject.header.code.m());
        let frame = block + subject.coder.table_bytes();
        let (mut tables, mut newest): (Vec<Table>, u64) = (Vec::new(), 0);
        for (part, records) in subject.parts.iter().zip(&self.records) {
            let Header { first, columns, revision, .. } = part.header;
            let key = part.header.frame_key();
            let start = row as usize * columns * frame;
            for (at, bytes) in records[start..start + columns * frame].chunks_exact(frame).enumerate() {
                let column = first + at;
                self.blocks[(k + column) * block..][..block].copy_from_slice(&bytes[..block]);
                present[k + column] = true;
                let Some(opened) = Frame::open(bytes, subject.coder.shape(), key, column, stripe) else {
                    continue;
                };
                // Parts come in the order of their revisions.
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

    /// No table is left. If data gives a redundancy block that is there, both are right.
    fn compare_without_seals(
        &mut self,
        subject: &Subject,
        block: usize,
        present: &[bool],
    ) -> Result<(), ExamineError> {
        let (k, m) = (subject.header.code.k(), subject.header.code.m());
        if !present[..k].iter().all(|&there| there) {
            return Ok(());
        }
        let (data, redundancy) = self.blocks.split_at(k * block);
        let data: Vec<&[u8]> = data.chunks_exact(block).collect();
        let mut made = vec![0; m * block];
        let mut outputs: Vec<&mut [u8]> = made.chunks_exact_mut(block).collect();
        let seals = subject.coder.encode(&data, &mut outputs)?;
        let same = |column: usize| {
            let range = column * block..(column + 1) * block;
            present[k + column] && made[range.clone()] == redundancy[range]
        };
        if (0..m).any(same) {
            self.good[..k].fill(true);
            self.seals = Some(seals);
        }
        Ok(())
    }

    /// Makes the bad blocks from the good ones, checks them, and puts them in their place. False if there are too few good
    /// ones or what was made is not what was protected.
    ///
    /// # Errors
    /// The code fails.
    pub fn restore(&mut self, subject: &Subject, block: usize) -> Result<bool, ExamineError> {
        let k = subject.header.code.k();
        let wanted: Vec<usize> = (0..self.good.len()).filter(|&column| !self.good[column]).collect();
        if wanted.is_empty() {
            return Ok(true);
        }
        if self.good.iter().filter(|&&good| good).count() < k {
            return Ok(false);
        }
        let blocks: Vec<&[u8]> = self.blocks.chunks_exact(block).collect();
        let stripe: Vec<Option<&[u8]>> =
            blocks.iter().zip(&self.good).map(|(block, &good)| good.then_some(*block)).collect();
        let mut made = vec![0; wanted.len() * block];
        let mut outputs: Vec<&mut [u8]> = made.chunks_exact_mut(block).collect();
        subject.coder.repair(&stripe, &wanted, &mut outputs)?;
        for (bytes, &column) in made.chunks_exact(block).zip(&wanted) {
            let seal = subject.coder.sign(bytes)?;
            let right = self.seals.as_ref().is_none_or(|seals| column >= k || seals[column].fits(&seal));
            if !right {
                return Ok(false);
            }
            if let Some(seals) = &mut self.seals {
                seals[column] = seal;
            }
        }
        for (bytes, &column) in made.chunks_exact(block).zip(&wanted) {
            self.blocks[column * block..][..block].copy_from_slice(bytes);
            self.good[column] = true;
        }
        Ok(true)
    }
}
