//! ISA-L's two matrices in GF(256), words layout.

use anyhow::ensure;

use super::{Case, hex_blocks, hex_matrix};
use crate::blocks::Blocks;
use crate::isal::{Encoder, Generator, Path, VERSION, redundancy_rows};

pub(super) const MADE_BY: &str = "gabion-bench vectors, with ISA-L 2.31.0 commit 496255c \
     (isal-sys 0.5.3): gf_gen_cauchy1_matrix or gf_gen_rs_matrix, then ec_encode_data; its \
     dispatched and its portable path gave the same bytes";

const SHAPES: [(usize, usize); 8] = [(1, 1), (2, 1), (4, 2), (5, 3), (8, 3), (10, 4), (16, 4), (20, 6)];
/// Below, at and beyond a vector, and a single byte.
const LENGTHS: [usize; 4] = [1, 31, 64, 257];
/// gf_gen_rs_matrix is not MDS for every larger m.
const MOST_POWERS_OF_TWO_ROWS: usize = 4;

pub(super) fn cases() -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (family, generator) in [("cauchy-isal", Generator::Cauchy), ("rs-isal", Generator::PowersOfTwo)] {
        for (k, m) in SHAPES {
            if generator == Generator::PowersOfTwo && m > MOST_POWERS_OF_TWO_ROWS {
                continue;
            }
            for len in LENGTHS {
                cases.push(case(family, generator, k, m, len)?);
            }
        }
    }
    Ok(cases)
}

fn case(family: &str, generator: Generator, k: usize, m: usize, len: usize) -> anyhow::Result<Case> {
    let code = format!("{family}:{k}+{m}:w8");
    let rows = redundancy_rows(generator, k, m);
    let data = Blocks::pseudo_random(&format!("{code}/{len}"), k, len);
    let [dispatched, portable] = [Path::Dispatched, Path::Portable].map(|path| {
        let mut out = Blocks::zeroed(m, len);
        Encoder::new(path, k, m, &rows).encode(&data.as_slices(), &mut out.as_mut_slices());
        out
    });
    ensure!(
        dispatched.as_slices() == portable.as_slices(),
        "{code}: ISA-L's dispatched and portable code disagree at {len} bytes"
    );
    Ok(Case {
        code,
        source: VERSION.to_owned(),
        block: len,
        matrix: hex_matrix(&rows, k, 8),
        data: hex_blocks(&data.as_slices()),
        redundancy: hex_blocks(&dispatched.as_slices()),
    })
}
