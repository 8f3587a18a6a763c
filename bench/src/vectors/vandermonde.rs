//! The systematic Vandermonde matrix that reed-solomon-erasure (and its Java and Go relatives) use.

use anyhow::{Context as _, ensure};
use reed_solomon_erasure::galois_8::ReedSolomon;

use super::{Case, hex_blocks, hex_matrix};
use crate::blocks::Blocks;
use crate::isal;

pub(super) const MADE_BY: &str = "gabion-bench vectors, with reed-solomon-erasure 6.0.0 \
     (galois_8, simd-accel); the matrix, read off its encoding of unit blocks, is V times the \
     inverse of the top of V with points 0..n-1, recomputed with ISA-L's arithmetic";

const SHAPES: [(usize, usize); 8] = [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (10, 4), (17, 3)];
const LENGTHS: [usize; 4] = [1, 31, 64, 257];

pub(super) fn cases() -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (k, m) in SHAPES {
        let library = ReedSolomon::new(k, m).context("reed-solomon-erasure refuses the shape")?;
        let rows = matrix_of(&library, k, m)?;
        ensure!(
            rows == systematic_vandermonde(k, m)?,
            "{k}+{m}: reed-solomon-erasure's matrix is not V * inverse(top of V)"
        );
        for len in LENGTHS {
            let code = format!("rs-vandermonde:{k}+{m}:w8");
            let data = Blocks::pseudo_random(&format!("{code}/{len}"), k, len);
            let mut out = Blocks::zeroed(m, len);
            library.encode_sep(&data.as_slices(), &mut out.as_mut_slices())?;
            cases.push(Case {
                code,
                source: "reed-solomon-erasure 6.0.0".to_owned(),
                block: len,
                matrix: hex_matrix(&rows, k, 8),
                data: hex_blocks(&data.as_slices()),
                redundancy: hex_blocks(&out.as_slices()),
            });
        }
    }
    Ok(cases)
}

/// The redundancy rows, which the library does not show: byte j of block j is 1 and everything else 0,
/// so the redundancy spells the matrix.
pub(crate) fn matrix_of(library: &ReedSolomon, k: usize, m: usize) -> anyhow::Result<Vec<u8>> {
    let mut units = vec![vec![0_u8; k]; k];
    for (index, unit) in units.iter_mut().enumerate() {
        unit[index] = 1;
    }
    let mut rows = vec![vec![0_u8; k]; m];
    library.encode_sep(&units, &mut rows)?;
    Ok(rows.concat())
}

/// `V[r][c]` = r^c, brought into systematic form.
fn systematic_vandermonde(k: usize, m: usize) -> anyhow::Result<Vec<u8>> {
    let power = |base: usize, exponent: usize| {
        (0..exponent).fold(1, |product, _| isal::multiply(product, base as u8))
    };
    let top: Vec<u8> = (0..k * k).map(|cell| power(cell / k, cell % k)).collect();
    let inverse = isal::invert(&top, k).context("distinct points make V invertible")?;
    let cell = |row: usize, column: usize| {
        (0..k).fold(0, |sum, i| sum ^ isal::multiply(power(row, i), inverse[i * k + column]))
    };
    Ok((k..k + m)
        .flat_map(|row| (0..k).map(move |column| (row, column)))
        .map(|(row, column)| cell(row, column))
        .collect())
}
