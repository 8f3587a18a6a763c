//! A block times a constant, added to another block, against GF-Complete.

use std::time::Instant;

use anyhow::ensure;

use super::bars::GF_COMPLETE;
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::jerasure::Field;
use crate::ours::{Ours, run_again};

/// Multiply-add of `len` bytes in GF(2^w).
pub(super) fn multiply_add(w: usize, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    // Any constant without special form; the top bit is set.
    let constant = 0xb5a7_93d1_6ec8_4f2b_u64 >> (64 - w);
    let input = Blocks::painted("multiply", 1, len);
    let input = input.as_slices();
    let mut field = Field::new(w);
    let (mut theirs, mut our_out) = (Blocks::painted("sum", 1, len), Blocks::painted("sum", 1, len));
    field.multiply_region(constant, input[0], theirs.as_mut_slices()[0], true);
    let ours = Ours::on_threads(1)?.multiplier(w, constant)?;
    ours.run(&input, &mut our_out.as_mut_slices())?;
    ensure!(our_out.as_slices() == theirs.as_slices(), "our bytes are not GF-Complete's");

    let mut out = our_out.as_mut_slices();
    let contenders = vec![
        Contender::new("gabion", |out: &mut Vec<&mut [u8]>| run_again(&ours, &input, out)),
        Contender::new(GF_COMPLETE, |out: &mut Vec<&mut [u8]>| {
            field.multiply_region(constant, input[0], out[0], true);
        }),
    ];
    Ok(race(contenders, &mut out, end))
}
