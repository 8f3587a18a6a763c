//! Examination of a protected file and its redundancy: which blocks are correct, which are not, and which can be
//! reconstructed.
//!
//! Three checks: data blocks against their signatures; redundancy blocks against their own signatures; and the
//! signatures of redundancy against those of data through the linear law, without reading a block. A table of
//! signatures is used only if its check is valid. Contradicting tables mean that a write was lost: the table of the
//! newest revision is used, among several of these the one that matches the most blocks, and the frames of the others
//! are stale.

mod in_order;
mod protected_file;
mod stripe;
mod stripe_reader;
mod versions;

pub(crate) use in_order::open_in_order;
pub use protected_file::ProtectedFile;
pub(crate) use protected_file::belonging;
pub use stripe::{BlockFault, BlockState, StripeBuffer, StripeFault};

use crate::catalogue::{Piece, Problem};
use crate::redundancy::Part;
use crate::retry::{Retry, Retryable};
use crate::runs::{each_run, pieces};
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

impl Retryable for ExamineError {
    fn retry(&self) -> Retry {
        match self {
            ExamineError::Changed | ExamineError::Stopped => Retry::Now,
            ExamineError::Refused(error) | ExamineError::Read(error) => error.retry(),
            ExamineError::Unprotected
            | ExamineError::Unusable(_)
            | ExamineError::Later(_)
            | ExamineError::Engine(_) => Retry::AfterChange,
        }
    }
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
            let records = protected.parts[at].own_records();
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

impl<'a> ExamineOptions<'a> {
    /// Reads through the page cache, without reports of progress.
    pub fn quiet(threads: usize, stopped: &'a (dyn Fn() -> bool + Sync)) -> ExamineOptions<'a> {
        ExamineOptions { threads, from_medium: false, progress: &|_| {}, stopped }
    }
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
    let state = || (StripeBuffer::default(), Findings::default(), Sums::new(protected));
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
            protected.read_run(stripe, run);
            for row in 0..run.count {
                protected.judge(stripe, run, row)?;
                sums.take(protected, stripe)?;
                if findings.faults.len() < MAX_FAULTS {
                    findings.faults.extend(stripe.fault(protected));
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
    sums.mark_stale(protected, &mut findings);
    Ok(findings)
}
