//! Reconstruction of unreadable ranges of a file from the rest of their stripe.

use crate::coder::Coders;
use crate::examine::{ExamineError, ProtectedFile, StripeBuffer};
use crate::retry::{Failure, Retry, Retryable};
use crate::storage::Storage;
use crate::tree::Generation;
use std::ops::Range;

/// Why a range cannot be reconstructed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconstructError {
    #[error("its redundancy is of another version")]
    Outdated,
    #[error("too few blocks of its stripe are left")]
    TooLittle,
    #[error(transparent)]
    Examine(#[from] ExamineError),
}

impl Retryable for ReconstructError {
    fn retry(&self) -> Retry {
        match self {
            ReconstructError::Outdated => Retry::AfterChange,
            // Blocks may be missing because their targets are unreachable.
            ReconstructError::TooLittle => Retry::Later,
            ReconstructError::Examine(error) => error.retry(),
        }
    }
}

impl ReconstructError {
    /// The failure of a read or write that this one prevents, with a text in front.
    pub(crate) fn because(&self, of: &str) -> Failure {
        Failure::new(format_args!("{of}{self}"), self.retry())
    }
}

/// Receives reconstructed bytes.
type Sink<'a> = &'a mut dyn FnMut(Range<u64>, &[u8]) -> Result<(), ReconstructError>;

/// Reconstructs ranges of a file and passes them to `sink`. The file is at the first of `paths`, its redundancy at any
/// of them. Each range lies within one block. `is_unchanged_since` is true if redundancy of a version covers a range.
pub(crate) fn reconstruct_ranges(
    storage: &dyn Storage,
    coders: &Coders,
    paths: &[Vec<u8>],
    ranges: &[Range<u64>],
    is_unchanged_since: impl Fn(&Generation, &Range<u64>) -> bool,
    mut sink: impl FnMut(Range<u64>, &[u8]) -> Result<(), ReconstructError>,
) -> Result<(), ReconstructError> {
    let mut failed = ReconstructError::Outdated;
    for path in paths {
        let protected = ProtectedFile::open(storage, coders, path);
        let fits = |protected: &ProtectedFile| {
            let generation = &protected.header.generation;
            ranges.iter().all(|range| range.end <= generation.size && is_unchanged_since(generation, range))
        };
        match protected {
            Ok(mut protected) if fits(&protected) => {
                if path != &paths[0] {
                    protected.content = Some(storage.open(&paths[0]).map_err(ExamineError::Read)?);
                }
                return reconstruct_blocks(&protected, ranges, &mut sink);
            }
            Ok(_) => {}
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

fn reconstruct_blocks(
    protected: &ProtectedFile,
    ranges: &[Range<u64>],
    sink: Sink<'_>,
) -> Result<(), ReconstructError> {
    let cut = protected.cut();
    let mut stripe = StripeBuffer::default();
    let mut loaded = None;
    for range in ranges {
        let Some(first) = cut.stripes_of(range.clone()).first().map(|stripes| stripes.start) else {
            continue;
        };
        let run = cut.run(first, 1);
        if loaded != Some(first) {
            protected.read_whole(&mut stripe, first)?;
            if !stripe.restore(&protected.coder, 0..protected.header.code.blocks())? {
                return Err(ReconstructError::TooLittle);
            }
            loaded = Some(first);
        }
        let column = (0..protected.header.code.k()).find(|&column| {
            let cell = run.cell(0, column);
            cell.start <= range.start && range.end <= cell.end
        });
        let Some(column) = column else { return Err(ReconstructError::Outdated) };
        let start = (range.start - run.cell(0, column).start) as usize;
        let bytes = (range.end - range.start) as usize;
        sink(range.clone(), &stripe.blocks[column][start..start + bytes])?;
    }
    Ok(())
}
