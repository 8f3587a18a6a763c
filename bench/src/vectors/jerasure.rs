//! Jerasure's Cauchy matrices, in the words and in the packets layout.

use anyhow::{Context as _, ensure};

use super::{Case, hex_blocks, hex_matrix};
use crate::blocks::Blocks;
use crate::isal;
use crate::jerasure::{Generator, Jerasure, VERSION};

pub(super) const WORDS_MADE_BY: &str = "gabion-bench vectors, with Jerasure 2.0 git de1739cc84 on \
     GF-Complete 1.0.2 git ea75cdf (Debian 12): cauchy_original_coding_matrix, then \
     jerasure_matrix_encode; symbols are little endian; for w = 8 ISA-L gave the same bytes";
pub(super) const PACKETS_MADE_BY: &str = "gabion-bench vectors, with Jerasure 2.0 git de1739cc84 \
     on GF-Complete 1.0.2 git ea75cdf (Debian 12): cauchy_original_coding_matrix (cauchy) or \
     cauchy_good_general_coding_matrix (cauchy-good), then jerasure_bitmatrix_encode; \
     jerasure_schedule_encode gave the same bytes";

const WORD_SHAPES: [(usize, usize); 6] = [(1, 1), (2, 1), (4, 2), (5, 3), (8, 3), (10, 4)];
/// Jerasure works on longs, so lengths are multiples of 8.
const WORD_LENGTHS: [usize; 3] = [8, 64, 264];

pub(super) fn words() -> anyhow::Result<Vec<Case>> {
    let library = Jerasure::acquire();
    let mut cases = Vec::new();
    for w in [8, 16, 32] {
        for (k, m) in WORD_SHAPES {
            let code = format!("cauchy:{k}+{m}:w{w}");
            let rows = library
                .redundancy_rows(Generator::Original, k, m, w)
                .with_context(|| format!("{code}: Jerasure has no matrix"))?;
            for len in WORD_LENGTHS {
                let data = Blocks::pseudo_random(&format!("{code}/{len}"), k, len);
                let mut out = Blocks::zeroed(m, len);
                library.words(k, m, w, &rows).encode(&data.as_slices(), &mut out.as_mut_slices());
                if w == 8 {
                    ensure!(
                        out.as_slices() == isal_encode(k, m, &rows, &data, len)?.as_slices(),
                        "{code}: Jerasure and ISA-L disagree on one matrix at {len} bytes"
                    );
                }
                cases.push(Case {
                    code: code.clone(),
                    source: VERSION.to_owned(),
                    block: len,
                    matrix: hex_matrix(&rows, k, w),
                    data: hex_blocks(&data.as_slices()),
                    redundancy: hex_blocks(&out.as_slices()),
                });
            }
        }
    }
    Ok(cases)
}

fn isal_encode(k: usize, m: usize, rows: &[u32], data: &Blocks, len: usize) -> anyhow::Result<Blocks> {
    let rows = rows.iter().map(|&value| u8::try_from(value)).collect::<Result<Vec<u8>, _>>()?;
    let mut out = Blocks::zeroed(m, len);
    isal::Encoder::new(isal::Path::Dispatched, k, m, &rows)
        .encode(&data.as_slices(), &mut out.as_mut_slices());
    Ok(out)
}

/// w, k, m, packet bytes, super-packets in a block. Every w has an m = 2, for which Jerasure takes
/// the matrix of `cauchy-good` from tables instead of computing it.
const PACKET_SHAPES: [(usize, usize, usize, usize, usize); 20] = [
    (3, 3, 2, 8, 3),
    (3, 5, 3, 24, 2),
    (4, 2, 2, 128, 2),
    (4, 4, 2, 8, 2),
    (4, 8, 3, 16, 2),
    (4, 10, 4, 8, 3),
    (5, 6, 2, 8, 2),
    (5, 5, 3, 16, 2),
    (6, 4, 2, 24, 2),
    (6, 7, 3, 8, 2),
    (7, 5, 2, 8, 3),
    (7, 6, 4, 8, 2),
    (8, 1, 1, 8, 2),
    (8, 4, 2, 40, 2),
    (8, 8, 3, 8, 2),
    (8, 10, 4, 16, 2),
    (11, 3, 2, 8, 2),
    (11, 5, 3, 8, 2),
    (16, 4, 2, 8, 2),
    (16, 3, 3, 16, 2),
];

pub(super) fn packets() -> anyhow::Result<Vec<Case>> {
    let library = Jerasure::acquire();
    let mut cases = Vec::new();
    for (family, generator) in [("cauchy", Generator::Original), ("cauchy-good", Generator::Good)] {
        for (w, k, m, packet, super_packets) in PACKET_SHAPES {
            let code = format!("{family}:{k}+{m}:w{w}:packets={packet}");
            let rows = library
                .redundancy_rows(generator, k, m, w)
                .with_context(|| format!("{code}: Jerasure has no matrix"))?;
            let len = w * packet * super_packets;
            let data = Blocks::pseudo_random(&format!("{code}/{len}"), k, len);
            let encoder = library.packets(k, m, w, &rows);
            let (mut by_matrix, mut by_schedule) = (Blocks::zeroed(m, len), Blocks::zeroed(m, len));
            encoder.encode_bit_matrix(packet, &data.as_slices(), &mut by_matrix.as_mut_slices());
            encoder.bind_schedule(packet, &data.as_slices(), by_schedule.as_mut_slices())();
            ensure!(
                by_matrix.as_slices() == by_schedule.as_slices(),
                "{code}: Jerasure's bit matrix and its schedule disagree"
            );
            cases.push(Case {
                code,
                source: VERSION.to_owned(),
                block: len,
                matrix: hex_matrix(&rows, k, w),
                data: hex_blocks(&data.as_slices()),
                redundancy: hex_blocks(&by_matrix.as_slices()),
            });
        }
    }
    Ok(cases)
}
