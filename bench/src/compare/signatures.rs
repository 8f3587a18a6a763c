//! Cost of signatures of all blocks: encoding with them against encoding without.

use std::time::Instant;

use anyhow::ensure;
use gabion_bench::engine::check_signature;

use super::bars::UNSIGNED;
use super::cases::{Choice, Shape};
use super::encode::check_encoder;
use super::race::{Contender, Timing, race};
use crate::blocks::Blocks;
use crate::ours::{self, Ours, run_again};

/// Encodes with the default code and signs with so many components.
pub(super) fn signatures(
    (k, m): Shape,
    len: usize,
    components: usize,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let stripe = Blocks::pseudo_random("signatures", k, len);
    let data = stripe.as_slices();
    let mut out = Blocks::zeroed(m, len);
    let mut outputs = out.as_mut_slices();
    let code = ours::code(&Choice::Default.identity((k, m)))?;
    let engine = Ours::on_threads(1)?;
    let plain = engine.encoder(&code)?;
    check_encoder(&plain, &code, &data, &mut outputs)?;
    let expected: Vec<Vec<u8>> = outputs.iter().map(|block| block.to_vec()).collect();

    let signing = engine.signing_encoder(&code, components)?;
    outputs.iter_mut().for_each(|block| block.fill(0));
    let signatures = signing.run(&data, &mut outputs)?;
    let same = expected.iter().zip(&outputs).all(|(expected, found)| expected == &**found);
    ensure!(same, "signing changes the redundancy");
    let blocks = data.iter().copied().chain(expected.iter().map(Vec::as_slice));
    ensure!(signatures.len() == k + m, "{} signatures of {} blocks", signatures.len(), k + m);
    for (block, signature) in blocks.zip(&signatures) {
        check_signature("signatures", code.field(), block, &signature.components()[0].to_le_bytes())?;
    }

    let contenders = vec![
        Contender::new("gabion", |out: &mut Vec<&mut [u8]>| {
            signing.run(&data, out).expect("it did so before the race");
        }),
        Contender::new(UNSIGNED, |out: &mut Vec<&mut [u8]>| run_again(&plain, &data, out)),
    ];
    Ok(race(contenders, &mut outputs, end))
}
