//! Encoding against everybody: words layout in GF(256), packets layout, two threads.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::race::{Contender, Timing, race};
use super::{Field, Opponents};
use crate::blocks::Blocks;
use crate::isal::{self, Encoder, Path};
use crate::jerasure::{self, Jerasure};
use crate::ours::{Ours, run_again};

/// Encodes with ISA-L's Cauchy matrix, all of them where they can, and races.
pub(super) fn words(
    (k, m): (usize, usize),
    len: usize,
    opponents: Opponents,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let stripes = Blocks::painted("encode", k, len);
    let data = stripes.as_slices();
    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);

    let encoder = Encoder::new(Path::Dispatched, k, m, &rows);
    let mut isal_out = Blocks::zeroed(m, len);
    encoder.encode(&data, &mut isal_out.as_mut_slices());

    let ours = Ours::on_threads(1)?.encoder(&format!("cauchy-isal:{k}+{m}:w8"))?;
    let mut our_out = Blocks::zeroed(m, len);
    ours.run(&data, &mut our_out.as_mut_slices())?;
    ensure!(our_out.as_slices() == isal_out.as_slices(), "our bytes are not ISA-L's");

    if opponents == Opponents::IsalOnly {
        let (mut our_out, mut isal_out) = (our_out.as_mut_slices(), isal_out.as_mut_slices());
        let mut isal_call = encoder.bind(&data, &mut isal_out);
        let contenders = vec![
            Contender::new("gabion", || run_again(&ours, &data, &mut our_out)),
            Contender::new("isal", move || isal_call.run()),
        ];
        return Ok(race(contenders, end.saturating_duration_since(Instant::now())));
    }

    // Jerasure takes any matrix, so it gets ISA-L's and must give the same bytes.
    let library = Jerasure::acquire();
    let wide_rows: Vec<u32> = rows.iter().map(|&value| value.into()).collect();
    let jerasure = library.words(k, m, 8, &wide_rows);
    let mut jerasure_out = Blocks::zeroed(m, len);
    jerasure.encode(&data, &mut jerasure_out.as_mut_slices());
    ensure!(jerasure_out.as_slices() == isal_out.as_slices(), "Jerasure's bytes are not ISA-L's");

    let erasure = reed_solomon_erasure::galois_8::ReedSolomon::new(k, m)?;
    let mut erasure_out = Blocks::zeroed(m, len);
    erasure.encode_sep(&data, &mut erasure_out.as_mut_slices())?;
    check_vandermonde(&erasure, (k, m), &data, &erasure_out)?;

    let mut simd = ReedSolomonEncoder::new(k, m, len)?;
    check_simd(&mut simd, (k, m), &data)?;

    let (mut our_out, mut isal_out) = (our_out.as_mut_slices(), isal_out.as_mut_slices());
    let (mut jerasure_out, mut erasure_out) = (jerasure_out.as_mut_slices(), erasure_out.as_mut_slices());
    let mut isal_call = encoder.bind(&data, &mut isal_out);
    let contenders = vec![
        Contender::new("gabion", || run_again(&ours, &data, &mut our_out)),
        Contender::new("isal", move || isal_call.run()),
        Contender::new("reed-solomon-erasure", || {
            erasure.encode_sep(&data, &mut erasure_out).expect("it did so above");
        }),
        Contender::new("reed-solomon-simd", || {
            simd_pass(&mut simd, &data).expect("it did so above");
        }),
        Contender::new("jerasure", jerasure.bind(&data, &mut jerasure_out)),
    ];
    Ok(race(contenders, end.saturating_duration_since(Instant::now())))
}

/// reed-solomon-erasure has its own matrix; ISA-L with that matrix must come to the same bytes.
fn check_vandermonde(
    library: &reed_solomon_erasure::galois_8::ReedSolomon,
    (k, m): (usize, usize),
    data: &[&[u8]],
    out: &Blocks,
) -> anyhow::Result<()> {
    let rows = crate::vectors::matrix_of(library, k, m)?;
    let mut expected = Blocks::zeroed(m, data[0].len());
    Encoder::new(Path::Dispatched, k, m, &rows).encode(data, &mut expected.as_mut_slices());
    ensure!(out.as_slices() == expected.as_slices(), "reed-solomon-erasure computes otherwise");
    Ok(())
}

/// reed-solomon-simd has a code of its own; its decoder must restore what it encoded.
fn check_simd(
    encoder: &mut ReedSolomonEncoder,
    (k, m): (usize, usize),
    data: &[&[u8]],
) -> anyhow::Result<()> {
    let lost = m.min(k);
    for block in data {
        encoder.add_original_shard(block)?;
    }
    let encoded = encoder.encode()?;
    let mut decoder = ReedSolomonDecoder::new(k, m, data[0].len())?;
    for (index, block) in data.iter().enumerate().skip(lost) {
        decoder.add_original_shard(index, block)?;
    }
    for (index, block) in encoded.recovery_iter().take(lost).enumerate() {
        decoder.add_recovery_shard(index, block)?;
    }
    let decoded = decoder.decode()?;
    for (index, block) in data.iter().enumerate().take(lost) {
        let restored = decoded.restored_original(index).context("a block was not restored")?;
        ensure!(restored == *block, "reed-solomon-simd restored other bytes");
    }
    Ok(())
}

/// Its interface copies the data in; that is part of the price of using it.
fn simd_pass(encoder: &mut ReedSolomonEncoder, data: &[&[u8]]) -> anyhow::Result<()> {
    for block in data {
        encoder.add_original_shard(block)?;
    }
    let encoded = encoder.encode()?;
    std::hint::black_box(encoded.recovery(0));
    Ok(())
}

/// Jerasure's `cauchy-good` bit matrix in packets, by its schedule.
pub(super) fn packets(
    (k, m): (usize, usize),
    Field { w, packet }: Field,
    len: usize,
    end: Instant,
) -> anyhow::Result<Vec<Timing>> {
    let stripes = Blocks::painted("packets", k, len);
    let data = stripes.as_slices();
    let library = Jerasure::acquire();
    let rows =
        library.redundancy_rows(jerasure::Generator::Good, k, m, w).context("Jerasure has no such matrix")?;
    let encoder = library.packets(k, m, w, &rows);
    let mut jerasure_out = Blocks::zeroed(m, len);
    encoder.bind_schedule(packet, &data, &mut jerasure_out.as_mut_slices())();

    let ours = Ours::on_threads(1)?.encoder(&format!("cauchy-good:{k}+{m}:w{w}:packets={packet}"))?;
    let mut our_out = Blocks::zeroed(m, len);
    ours.run(&data, &mut our_out.as_mut_slices())?;
    ensure!(our_out.as_slices() == jerasure_out.as_slices(), "our bytes are not Jerasure's");

    let (mut our_out, mut jerasure_out) = (our_out.as_mut_slices(), jerasure_out.as_mut_slices());
    let contenders = vec![
        Contender::new("gabion", || run_again(&ours, &data, &mut our_out)),
        Contender::new("jerasure", encoder.bind_schedule(packet, &data, &mut jerasure_out)),
    ];
    Ok(race(contenders, end.saturating_duration_since(Instant::now())))
}

/// Ours on two threads against ISA-L called on the two halves of every block.
pub(super) fn two_threads((k, m): (usize, usize), len: usize, end: Instant) -> anyhow::Result<Vec<Timing>> {
    let stripes = Blocks::painted("two threads", k, len);
    let data = stripes.as_slices();
    let rows = isal::redundancy_rows(isal::Generator::Cauchy, k, m);
    let encoder = Encoder::new(Path::Dispatched, k, m, &rows);
    // Whole cache lines for each, or the threads would share one.
    let half = (len / 2).next_multiple_of(64);
    let split: (Vec<&[u8]>, Vec<&[u8]>) = data.iter().map(|block| block.split_at(half)).unzip();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;

    let mut isal_out = Blocks::zeroed(m, len);
    {
        let (mut low, mut high): (Vec<&mut [u8]>, Vec<&mut [u8]>) =
            isal_out.as_mut_slices().into_iter().map(|block| block.split_at_mut(half)).unzip();
        pool.install(|| {
            rayon::join(|| encoder.encode(&split.0, &mut low), || encoder.encode(&split.1, &mut high))
        });
    }
    let ours = Ours::on_threads(2)?.encoder(&format!("cauchy-isal:{k}+{m}:w8"))?;
    let mut our_out = Blocks::zeroed(m, len);
    ours.run(&data, &mut our_out.as_mut_slices())?;
    ensure!(our_out.as_slices() == isal_out.as_slices(), "our bytes are not ISA-L's");

    let mut our_out = our_out.as_mut_slices();
    let (mut low, mut high): (Vec<&mut [u8]>, Vec<&mut [u8]>) =
        isal_out.as_mut_slices().into_iter().map(|block| block.split_at_mut(half)).unzip();
    let contenders = vec![
        Contender::new("gabion", || run_again(&ours, &data, &mut our_out)),
        Contender::new("isal", || {
            pool.install(|| {
                rayon::join(|| encoder.encode(&split.0, &mut low), || encoder.encode(&split.1, &mut high))
            });
        }),
    ];
    Ok(race(contenders, end.saturating_duration_since(Instant::now())))
}
