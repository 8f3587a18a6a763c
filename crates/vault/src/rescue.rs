//! Bytes that cannot be read where they should be, made again from the other columns and redundancy.

use crate::coder::Coders;
use crate::examine::{ExamineError, ProtectedFile, Stripe};
use crate::storage::Storage;
use crate::tree::Generation;
use std::ops::Range;

/// Why bytes cannot be made again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RescueError {
    #[error("its redundancy is of another version")]
    Outdated,
    #[error("too little is left of its stripe")]
    TooLittle,
    #[error(transparent)]
    Examine(#[from] ExamineError),
}

/// Takes bytes that were made again.
type Give<'a> = &'a mut dyn FnMut(Range<u64>, &[u8]) -> Result<(), RescueError>;

/// Makes bytes of a file again and gives them away piece by piece. The file is at the first of `paths`, its redundancy at any of them.
/// Each range lies within one block. `is_in` says whether redundancy of a version has bytes as they are now.
pub(crate) fn rescue(
    storage: &dyn Storage,
    coders: &Coders,
    paths: &[Vec<u8>],
    ranges: &[Range<u64>],
    is_in: impl Fn(&Generation, &Range<u64>) -> bool,
    mut give: impl FnMut(Range<u64>, &[u8]) -> Result<(), RescueError>,
) -> Result<(), RescueError> {
    let mut failed = RescueError::Outdated;
    for path in paths {
        let protected = ProtectedFile::open(storage, coders, path);
        let fits = |protected: &ProtectedFile| {
            let generation = &protected.header.generation;
            ranges.iter().all(|range| range.end <= generation.size && is_in(generation, range))
        };
        match protected {
            Ok(mut protected) if fits(&protected) => {
                if path != &paths[0] {
                    protected.content = Some(storage.open(&paths[0]).map_err(ExamineError::Read)?);
                }
                return rescue_from(&protected, ranges, &mut give);
            }
            Ok(_) => {}
            Err(error) => failed = error.into(),
        }
    }
    Err(failed)
}

fn rescue_from(protected: &ProtectedFile, ranges: &[Range<u64>], give: Give<'_>) -> Result<(), RescueError> {
    let cut = protected.cut();
    let mut stripe = Stripe::default();
    let mut loaded = None;
    for range in ranges {
        let Some(first) = cut.stripes_of(range.clone()).first().map(|stripes| stripes.start) else {
            continue;
        };
        let run = cut.run(first, 1);
        let block = run.block as usize;
        if loaded != Some(first) {
            stripe.read_records(protected, &run);
            stripe.examine(protected, &run, 0)?;
            if !stripe.restore(protected, block)? {
                return Err(RescueError::TooLittle);
            }
            loaded = Some(first);
        }
        let column = (0..protected.header.code.k()).find(|&column| {
            let cell = run.cell(0, column);
            cell.start <= range.start && range.end <= cell.end
        });
        let Some(column) = column else { return Err(RescueError::Outdated) };
        let start = column * block + (range.start - run.cell(0, column).start) as usize;
        let bytes = (range.end - range.start) as usize;
        give(range.clone(), &stripe.blocks[start..start + bytes])?;
    }
    Ok(())
}
