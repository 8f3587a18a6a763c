//! The libraries beside ISA-L that encode words of GF(2^8), each with outputs of its own.

use anyhow::{Context as _, ensure};
use reed_solomon_erasure::galois_8::ReedSolomon;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::bars::JERASURE;
use super::cases::Shape;
use super::race::Contender;
use crate::blocks::Blocks;
use crate::isal::{Encoder, Path};
use crate::jerasure::{Jerasure, Words};

/// All libraries, verified.
pub(super) struct Others<'lib> {
    jerasure: Words<'lib>,
    jerasure_out: Blocks,
    erasure: ReedSolomon,
    erasure_out: Blocks,
    simd: ReedSolomonEncoder,
}

impl<'lib> Others<'lib> {
    /// Jerasure takes any matrix, so it gets `rows`, which are ISA-L's, and must give the same bytes.
    pub(super) fn new(
        library: &'lib Jerasure,
        (k, m): Shape,
        rows: &[u8],
        data: &[&[u8]],
    ) -> anyhow::Result<Self> {
        let len = data[0].len();
        let wide_rows: Vec<u32> = rows.iter().map(|&value| value.into()).collect();
        let jerasure = library.words(k, m, 8, &wide_rows);
        let mut jerasure_out = Blocks::zeroed(m, len);
        jerasure.encode(data, &mut jerasure_out.as_mut_slices());
        check(rows, (k, m), data, &jerasure_out).context("Jerasure")?;

        let erasure = ReedSolomon::new(k, m)?;
        let mut erasure_out = Blocks::zeroed(m, len);
        erasure.encode_sep(data, &mut erasure_out.as_mut_slices())?;
        let own_rows = crate::vectors::matrix_of(&erasure, k, m)?;
        check(&own_rows, (k, m), data, &erasure_out).context("reed-solomon-erasure")?;

        let mut simd = ReedSolomonEncoder::new(k, m, len)?;
        check_simd(&mut simd, (k, m), data)?;
        Ok(Self { jerasure, jerasure_out, erasure, erasure_out, simd })
    }

    /// One pass of each.
    pub(super) fn contenders<'a, S>(&'a mut self, data: &'a [&'a [u8]]) -> Vec<Contender<'a, S>> {
        let Self { jerasure, jerasure_out, erasure, erasure_out, simd } = self;
        let mut erasure_out = erasure_out.as_mut_slices();
        let mut jerasure = jerasure.bind(data, jerasure_out.as_mut_slices());
        let all = [
            Contender::new("reed-solomon-erasure", move |_| {
                erasure.encode_sep(data, &mut erasure_out).expect("it did so before the race");
            }),
            Contender::new("reed-solomon-simd", move |_| {
                simd_pass(simd, data).expect("it did so before the race");
            }),
            Contender::new(JERASURE, move |_| jerasure()),
        ];
        all.map(Contender::rarely).into()
    }
}

/// Checks the output against ISA-L with the same matrix.
fn check(rows: &[u8], (k, m): Shape, data: &[&[u8]], out: &Blocks) -> anyhow::Result<()> {
    let mut expected = Blocks::zeroed(m, data[0].len());
    Encoder::new(Path::Dispatched, k, m, rows).encode(data, &mut expected.as_mut_slices());
    ensure!(out.as_slices() == expected.as_slices(), "its bytes are not those of its matrix");
    Ok(())
}

/// reed-solomon-simd has a code of its own; its decoder must restore what it encoded.
fn check_simd(encoder: &mut ReedSolomonEncoder, (k, m): Shape, data: &[&[u8]]) -> anyhow::Result<()> {
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

/// Its interface copies the data in, which counts as part of the encoding.
fn simd_pass(encoder: &mut ReedSolomonEncoder, data: &[&[u8]]) -> anyhow::Result<()> {
    for block in data {
        encoder.add_original_shard(block)?;
    }
    let encoded = encoder.encode()?;
    std::hint::black_box(encoded.recovery(0));
    Ok(())
}
