//! A block times a constant, added to another block, against GF-Complete and ParPar.

use std::time::Instant;

use anyhow::ensure;

use super::bars::{GF_COMPLETE, PARPAR};
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::jerasure::Field;
use crate::ours::{Ours, run_again};
use crate::parpar;

/// Multiply-add of `len` bytes in GF(2^w).
pub(super) fn multiply_add(w: usize, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    // Any constant without special form; the top bit is set.
    let constant = 0xb5a7_93d1_6ec8_4f2b_u64 >> (64 - w);
    let input = Blocks::pseudo_random("multiply", 1, len);
    let input = input.as_slices();
    let mut field = Field::new(w);
    let (mut theirs, mut our_out) =
        (Blocks::pseudo_random("sum", 1, len), Blocks::pseudo_random("sum", 1, len));
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

/// The same in the planar layout. GF-Complete works on the same symbols in the words layout, ParPar in its own one.
pub(super) fn planar_multiply_add(w: usize, len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let constant = 0xb5a7_93d1_6ec8_4f2b_u64 >> (64 - w);
    let (words, sum) = (Blocks::pseudo_random("multiply", 1, len), Blocks::pseudo_random("sum", 1, len));
    let (words, sum) = (words.as_slices()[0], sum.as_slices()[0]);
    let [mut input, mut our_out, mut expected] = [(); 3].map(|()| Blocks::zeroed(1, len));
    planes_of(words, w / 8, input.as_mut_slices()[0]);
    planes_of(sum, w / 8, our_out.as_mut_slices()[0]);
    let input = input.as_slices();
    let ours = Ours::on_threads(1)?.planar_multiplier(w, constant)?;
    ours.run(&input, &mut our_out.as_mut_slices())?;
    let mut field = Field::new(w);
    let mut theirs = Blocks::pseudo_random("sum", 1, len);
    field.multiply_region(constant, words, theirs.as_mut_slices()[0], true);
    planes_of(theirs.as_slices()[0], w / 8, expected.as_mut_slices()[0]);
    ensure!(our_out.as_slices() == expected.as_slices(), "our planes are not GF-Complete's symbols");

    let takes_part = w == 16 && parpar::is_loaded();
    let [mut parpar_input, mut parpar_out] = [(); 2].map(|()| Blocks::zeroed(1, len));
    if takes_part {
        parpar::from_planes(input[0], parpar_input.as_mut_slices()[0]);
        let mut before = Blocks::zeroed(1, len);
        planes_of(sum, w / 8, before.as_mut_slices()[0]);
        parpar::from_planes(before.as_slices()[0], parpar_out.as_mut_slices()[0]);
        parpar::multiply_add(constant as u16, parpar_input.as_slices()[0], parpar_out.as_mut_slices()[0]);
        let mut made = Blocks::zeroed(1, len);
        parpar::from_planes(our_out.as_slices()[0], made.as_mut_slices()[0]);
        ensure!(made.as_slices() == parpar_out.as_slices(), "our planes are not ParPar's symbols");
    }
    let parpar_input = parpar_input.as_slices()[0];
    let mut out = our_out.as_mut_slices();
    let mut contenders = vec![
        Contender::new("gabion", |out: &mut Vec<&mut [u8]>| {
            ours.run(&input, out).expect("it did so before the race");
        }),
        Contender::new(GF_COMPLETE, |out: &mut Vec<&mut [u8]>| {
            field.multiply_region(constant, words, out[0], true);
        }),
    ];
    if takes_part {
        contenders.push(Contender::new(PARPAR, |out: &mut Vec<&mut [u8]>| {
            parpar::multiply_add(constant as u16, parpar_input, out[0]);
        }));
    }
    Ok(race(contenders, &mut out, end))
}

/// Symbols of so many bytes in the planar layout.
fn planes_of(words: &[u8], bytes: usize, out: &mut [u8]) {
    let plane = words.len() / bytes;
    for (i, symbol) in words.chunks(bytes).enumerate() {
        for (b, &byte) in symbol.iter().enumerate() {
            out[b * plane + i] = byte;
        }
    }
}
