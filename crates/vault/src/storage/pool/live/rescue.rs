//! Bytes that cannot be read where they should be, made again from the other columns and redundancy.

use super::super::Pool;
use crate::coder::Coders;
use crate::examine::{ExamineError, Stripe, Subject};
use crate::tree::Generation;
use std::ops::Range;

/// Why bytes cannot be made again.
#[derive(Debug, thiserror::Error)]
pub(super) enum RescueError {
    #[error("its redundancy is of another version")]
    Outdated,
    #[error("too little is left of its stripe")]
    TooLittle,
    #[error(transparent)]
    Examine(#[from] ExamineError),
}

/// Makes bytes of the file at `path` again and gives them away piece by piece. Each range lies within one block. `is_in` says whether
/// redundancy of a version has bytes as they are now.
pub(super) fn rescue(
    pool: &Pool,
    coders: &Coders,
    path: &[u8],
    ranges: impl IntoIterator<Item = Range<u64>>,
    is_in: impl Fn(&Generation, &Range<u64>) -> bool,
    mut give: impl FnMut(Range<u64>, &[u8]) -> Result<(), RescueError>,
) -> Result<(), RescueError> {
    let subject = Subject::open(pool, coders, path)?;
    let generation = subject.header.generation;
    let cut = subject.cut();
    let mut stripe = Stripe::default();
    let mut loaded = None;
    for range in ranges {
        if range.end > generation.size || !is_in(&generation, &range) {
            return Err(RescueError::Outdated);
        }
        let Some(first) = cut.stripes_of(range.clone()).first().map(|stripes| stripes.start) else { continue };
        let run = cut.run(first, 1);
        let block = run.block as usize;
        if loaded != Some(first) {
            stripe.read_records(&subject, &run);
            stripe.examine(&subject, &run, 0)?;
            if !stripe.restore(&subject, block)? {
                return Err(RescueError::TooLittle);
            }
            loaded = Some(first);
        }
        let column = (0..subject.header.code.k()).find(|&column| {
            let cell = run.cell(0, column);
            cell.start <= range.start && range.end <= cell.end
        });
        let Some(column) = column else { return Err(RescueError::Outdated) };
        let start = column * block + (range.start - run.cell(0, column).start) as usize;
        let bytes = (range.end - range.start) as usize;
        give(range, &stripe.blocks[start..start + bytes])?;
    }
    Ok(())
}
