//! Examination of a protected file and its redundancy: which blocks are correct, which are not, and which can be
//! reconstructed.
//!
//! Three checks: data blocks against their signatures; redundancy blocks against their own signatures; and the
//! signatures of redundancy against those of data through the linear law, without reading a block. A table of
//! signatures is used only if its check is valid. Contradicting tables mean that a write was lost: the table of the
//! newest revision is used, among several of these the one that matches the most blocks, and the frames of the others
//! are stale.

mod protected_file;
mod versions;

pub use protected_file::ProtectedFile;
pub(crate) use protected_file::belonging;

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

/// Error that prevents the examination of a file.
#[derive(Debug, thiserror::Error)]
pub enum ExamineError {
    /// The file has no redundancy.
    #[error("it has no redundancy")]
    Unprotected,
    /// All redundancy of the file is unusable.
    #[error("its redundancy cannot be used: {0}")]
    Unusable(String),
    /// A newer program version wrote the redundancy; it is not touched.
    #[error("its redundancy was written by a later version of the program: {0}")]
    Later(String),
    /// This process cannot open the redundancy, which says nothing about its content.
    #[error("its redundancy cannot be opened: {0}")]
    Refused(io::Error),
    /// The file exists but cannot be opened.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// The file was written while it was read.
    #[error("it changed while it was read")]
    Changed,
    /// The code failed.
    #[error(transparent)]
    Engine(#[from] gabion_engine::Error),
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
}

/// Faults of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeFault {
    /// Number of the stripe.
    pub stripe: u64,
    /// Data columns that differ from their protected content.
    pub data: Vec<usize>,
    /// Redundancy columns, counted from 0, that are damaged or missing.
    pub redundancy: Vec<usize>,
    /// Too few blocks are left to reconstruct the data.
    pub lost: bool,
    /// The data is correct; its frames are of an older version or missing.
    pub stale: bool,
}

/// Result of an examination.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Faulty stripes, in order.
    pub faults: Vec<StripeFault>,
    /// Number of stripes examined.
    pub stripes: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Numbers of the redundancy files with a damaged header.
    pub headers: Vec<usize>,
    /// Redundancy columns, counted from 0, without a file.
    pub missing: Vec<usize>,
    /// Some redundancy is older than its header, and it is unknown which. Data that it contradicts may be newer and
    /// correct.
    pub doubtful: bool,
}

/// Maximum number of faulty stripes listed for one file. Further ones need another repair.
const MAX_FAULTS: usize = 1 << 20;

impl Findings {
    /// True if nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty() && self.headers.is_empty() && self.missing.is_empty() && !self.doubtful
    }

    /// True if data is lost.
    pub fn is_lost(&self) -> bool {
        self.faults.iter().any(|fault| fault.lost)
    }

    /// True if data differs from its protected content.
    pub fn has_bad_data(&self) -> bool {
        self.faults.iter().any(|fault| !fault.data.is_empty())
    }

    /// Byte ranges of the damage, in the file and in its redundancy files.
    pub fn problems(&self, protected: &ProtectedFile) -> Vec<Problem> {
        let cut = protected.cut();
        let (mut data, mut lost, mut redundancy) = (Vec::new(), Vec::new(), Vec::new());
        for fault in &self.faults {
            let run = cut.run(fault.stripe, 1);
            let cells = fault.data.iter().map(|&column| run.cell(0, column));
            if fault.lost { &mut lost } else { &mut data }.extend(cells);
            for part in &protected.parts {
                for &column in &fault.redundancy {
                    redundancy.extend(frame_range(part, fault.stripe, column));
                }
            }
        }
        let headers = self.headers.iter().map(|&at| {
            let records = &protected.parts[at].records;
            match protected.parts[at].head_damage {
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

/// Position of a column's frame in a redundancy file that holds the column.
fn frame_range(part: &Part, stripe: u64, column: usize) -> Option<Range<u64>> {
    let within = column.checked_sub(part.header.first).filter(|&at| at < part.header.columns)?;
    let start = part.records.frame_offset(within, stripe);
    Some(start..start + part.records.frame_bytes(stripe))
}

/// One stripe: its blocks and what is known of them.
#[derive(Debug, Default)]
pub struct Stripe {
    /// All k + m blocks, concatenated.
    pub blocks: Vec<u8>,
    /// Per block: true if it is correct.
    pub good: Vec<bool>,
    /// Signatures of all k + m blocks, if a table is known.
    pub seals: Option<Vec<Seal>>,
    /// Buffers for records, per redundancy file.
    records: Vec<Vec<u8>>,
}

/// Signatures that agreeing frames of a stripe contain.
struct Table {
    data: Vec<Seal>,
    /// Per redundancy column: the signature in the frame, if it is one of the agreeing frames.
    own: Vec<Option<Seal>>,
}

impl Table {
    /// Returns the signatures of all k + m blocks by this table, and which blocks match them.
    fn judge(self, protected: &ProtectedFile, present: &[bool], actual: &[Seal]) -> (Vec<Seal>, Vec<bool>) {
        let k = self.data.len();
        // The law gives the signatures of all redundancy blocks; without it only the frame's own entry does.
        let by_law = protected.coder.redundancy_seals(&self.data);
        let mut seals = self.data;
        // A frame with a damaged or different table is faulty even if its block is correct.
        let mut says = vec![true; k];
        for (column, own) in self.own.iter().enumerate() {
            let law = by_law.as_ref().map(|seals| seals[column]);
            let agrees = |own: &Seal| law.is_none_or(|law| own.fits(&law));
            says.push(own.as_ref().is_some_and(agrees));
            // The frame's entry also has hashes; it is used if it agrees with the law.
            seals.push(own.filter(agrees).or(law).unwrap_or_default());
        }
        let good = (0..seals.len()).map(|at| says[at] && present[at] && actual[at].fits(&seals[at]));
        let good = good.collect();
        (seals, good)
    }
}

/// Options of an examination.
#[derive(Clone, Copy)]
pub struct ExamineOptions<'a> {
    /// Threads for a large file.
    pub threads: usize,
    /// Read from the medium instead of the page cache.
    pub from_medium: bool,
    /// Called with the bytes of data that were processed.
    pub progress: &'a (dyn Fn(u64) + Sync),
    /// Polled during work; true stops the examination.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// Examines all stripes.
///
/// # Errors
/// See [`ExamineError`]; damage is no error.
pub fn examine(protected: &ProtectedFile, options: ExamineOptions<'_>) -> Result<Findings, ExamineError> {
    let (cut, k) = (protected.cut(), protected.header.code.k());
    if options.from_medium {
        protected.content.iter().for_each(|content| content.drop_cache());
        protected.parts.iter().for_each(Part::drop_cache);
    }
    let state = || (Stripe::default(), Findings::default(), Sums::new(protected));
    let content = protected.content.as_deref();
    let states = each_run(
        &cut,
        pieces(k.max(protected.header.code.m())),
        content,
        options.threads,
        state,
        |run, (stripe, findings, sums)| {
            if (options.stopped)() {
                return Err(ExamineError::Stopped);
            }
            stripe.read_records(protected, run);
            for row in 0..run.count {
                let (fault, readable) = stripe.examine(protected, run, row)?;
                sums.take(protected, stripe, run.first + row, run.block as usize, readable)?;
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
    let mut sums = Sums::new(protected);
    for (_, some, more) in states {
        findings = findings.and(some);
        sums = sums.and(more);
    }
    findings.faults.sort_by_key(|fault| fault.stripe);
    let damaged = |part: &Part| part.head_damage.is_some() || part.trailer_damage.is_some();
    findings.headers = (0..protected.parts.len()).filter(|&at| damaged(&protected.parts[at])).collect();
    findings.missing = (0..protected.header.code.m()).filter(|&column| !protected.holds(column)).collect();
    sums.settle(protected, &mut findings);
    Ok(findings)
}

impl Stripe {
    /// Reads the records of a run. An unreadable record is treated as missing.
    pub fn read_records(&mut self, protected: &ProtectedFile, run: &Run) {
        self.records.resize_with(protected.parts.len(), Vec::new);
        for (part, buffer) in protected.parts.iter().zip(&mut self.records) {
            if part.read_records(run.first, run.count, buffer).is_err() {
                buffer.fill(0);
            }
        }
    }

    /// Examines the stripe in `row` of `run`, whose records were read. Also returns whether all of its data could be
    /// read.
    ///
    /// # Errors
    /// The code fails.
    pub fn examine(
        &mut self,
        protected: &ProtectedFile,
        run: &Run,
        row: u64,
    ) -> Result<(Option<StripeFault>, bool), ExamineError> {
        let (k, m) = (protected.header.code.k(), protected.header.code.m());
        let block = run.block as usize;
        let stripe = run.first + row;
        self.blocks.resize((k + m) * block, 0);
        self.good.clear();
        self.good.resize(k + m, false);
        let mut present = vec![false; k + m];
        for (column, buffer) in self.blocks.chunks_exact_mut(block).take(k).enumerate() {
            let cell = run.cell(row, column);
            let read = match &protected.content {
                Some(content) => content.read(run, row, column, buffer),
                None => Err(Fault::Lost(Vec::new())),
            };
            present[column] = read.is_ok_and(|got| got as u64 == cell.end - cell.start);
            // A block wholly behind the end of the file is zero by definition.
            if cell.is_empty() {
                buffer.fill(0);
                present[column] = true;
            }
        }
        let tables = self.read_frames(protected, stripe, row, block, &mut present);
        let mut actual: Vec<Seal> = Vec::with_capacity(k + m);
        if !tables.is_empty() {
            for bytes in self.blocks.chunks_exact(block) {
                actual.push(protected.coder.sign(bytes)?);
            }
        }
        // Of equal results the first is used, that of the first frame.
        let verdicts = tables.into_iter().rev().map(|table| table.judge(protected, &present, &actual));
        match verdicts.max_by_key(|(_, good)| good.iter().filter(|&&good| good).count()) {
            Some((seals, good)) => (self.seals, self.good) = (Some(seals), good),
            None => {
                self.seals = None;
                self.compare_without_seals(protected, block, &present)?;
            }
        }
        let data: Vec<usize> = (0..k).filter(|&column| !self.good[column]).collect();
        let redundancy: Vec<usize> = (0..m).filter(|&at| protected.holds(at) && !self.good[k + at]).collect();
        let lost = !data.is_empty() && self.good.iter().filter(|&&good| good).count() < k;
        let right = data.is_empty() && redundancy.is_empty();
        let fault = StripeFault { stripe, data, redundancy, lost, stale: false };
        Ok(((!right).then_some(fault), present[..k].iter().all(|&there| there)))
    }

    /// Takes the blocks from the frames, and the tables of the newest revision that has any for this stripe.
    fn read_frames(
        &mut self,
        protected: &ProtectedFile,
        stripe: u64,
        row: u64,
        block: usize,
        present: &mut [bool],
    ) -> Vec<Table> {
        let (k, m) = (protected.header.code.k(), protected.header.code.m());
        let frame = block + protected.coder.table_bytes();
        let (mut tables, mut newest): (Vec<Table>, u64) = (Vec::new(), 0);
        for (part, records) in protected.parts.iter().zip(&self.records) {
            let Header { first, columns, revision, .. } = part.header;
            let key = part.header.frame_key();
            let start = row as usize * columns * frame;
            for (at, bytes) in records[start..start + columns * frame].chunks_exact(frame).enumerate() {
                let column = first + at;
                self.blocks[(k + column) * block..][..block].copy_from_slice(&bytes[..block]);
                present[k + column] = true;
                let Some(opened) = Frame::open(bytes, protected.coder.shape(), key, column, stripe) else {
                    continue;
                };
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

    /// Without any table: if encoding the data gives a redundancy block that exists, both are correct.
    fn compare_without_seals(
        &mut self,
        protected: &ProtectedFile,
        block: usize,
        present: &[bool],
    ) -> Result<(), ExamineError> {
        let (k, m) = (protected.header.code.k(), protected.header.code.m());
        if !present[..k].iter().all(|&there| there) {
            return Ok(());
        }
        let (data, redundancy) = self.blocks.split_at(k * block);
        let data: Vec<&[u8]> = data.chunks_exact(block).collect();
        let mut made = vec![0; m * block];
        let mut outputs: Vec<&mut [u8]> = made.chunks_exact_mut(block).collect();
        let seals = protected.coder.encode(&data, &mut outputs)?;
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

    /// Reconstructs the bad blocks in place and verifies them. Returns false if too few correct blocks are left or a
    /// result does not match its signature.
    ///
    /// # Errors
    /// The code fails.
    pub fn restore(&mut self, protected: &ProtectedFile, block: usize) -> Result<bool, ExamineError> {
        let k = protected.header.code.k();
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
        protected.coder.repair(&stripe, &wanted, &mut outputs)?;
        for (bytes, &column) in made.chunks_exact(block).zip(&wanted) {
            let seal = protected.coder.sign(bytes)?;
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
