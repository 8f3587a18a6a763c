//! What is to be reached: for every kind of race the least ratio of ours to a reference. All bars are here.

use gabion_engine::raidz::Reconstruction;

use super::cases::{Choice, LARGE, MIDDLE, SMALL, Shape, Work};
use super::decode::Planning;
use super::raidz::Operation;

/// Names of references that more than one file has to spell alike.
pub(super) const ISAL: &str = "isal";
pub(super) const JERASURE: &str = "jerasure";
pub(super) const GF_COMPLETE: &str = "gf-complete";
pub(super) const PARPAR: &str = "parpar";
/// Every block read once, XORed once and the redundancy written: the limit in cache.
pub(super) const ROOF: &str = "roof";
/// The same past the caches: the limit in memory.
pub(super) const STREAM: &str = "stream";
/// Ourselves on one thread.
pub(super) const ONE_THREAD: &str = "1thread";
/// Ourselves without signatures.
pub(super) const UNSIGNED: &str = "unsigned";
/// Measured elsewhere, once; no contender of the run.
pub(super) const OPENZFS: &str = "openzfs (published figure)";

/// Against ISA-L with the default code: blocks of 4 KiB, 64 KiB and 10 MiB.
const ENCODE: [(&[Shape], [f64; 3]); 8] = [
    (&[(4, 2)], [1.3, 1.05, 1.5]),
    (&[(8, 3), (8, 4), (10, 4), (12, 4)], [1.6, 1.5, 1.25]),
    (&[(16, 4), (20, 4)], [1.9, 1.7, 1.15]),
    (&[(30, 3)], [1.6, 1.15, 1.05]),
    (&[(45, 8)], [2.7, 1.9, 2.0]),
    (&[(64, 16)], [3.5, 2.5, 3.0]),
    (&[(128, 32)], [5.0, 5.0, 6.0]),
    (&[(30, 33)], [3.5, 2.8, 3.0]),
];

/// In every cell of the grid, by code.
pub(super) fn everywhere(choice: Choice) -> f64 {
    match choice {
        Choice::Default => 1.0,
        // The same bytes as ISA-L leave no room but for noise.
        Choice::CauchyIsal => 0.98,
    }
}

/// Of the limit in cache, and of the limit in memory; both for m up to [`MOST_FOR_LIMITS`].
const OF_ROOF: f64 = 0.85;
const OF_STREAM: f64 = 0.9;
/// With more redundancy arithmetic is the limit, not moving bytes.
pub(super) const MOST_FOR_LIMITS: usize = 4;

const DECODE_FEW: f64 = 1.3;
const DECODE_MANY: f64 = 2.0;
/// From here on losses are many.
const MANY: usize = 8;
/// A loss never seen before, in small blocks.
const DECODE_FRESH: f64 = 2.5;

/// Two threads over one, in cache.
const TWO_THREADS: f64 = 1.8;

/// Rows of XORs that stay in the nearest caches against ISA-L, and in any case against Jerasure's best.
const PACKETS_ISAL: f64 = 2.5;
const PACKETS_JERASURE: f64 = 8.0;
/// Blocks of 2 KiB, four packets of 512 bytes: sixteen of them are 32 KiB, which an L1 cache holds.
pub(super) const PACKETS_IN_L1: usize = 2 << 10;
/// Blocks of four packets of 2 KiB: six of them are 48 KiB, sixteen 128 KiB. Longer ones leave the nearest caches.
pub(super) const PACKETS_SMALL: usize = 8 << 10;

/// Region multiply-add by width of the field.
const MULTIPLY_ADD: [(usize, f64); 3] = [(16, 4.0), (32, 6.0), (64, 6.0)];
/// In the planar layout, where it takes part: GF(2^16) only.
const MULTIPLY_ADD_PARPAR: f64 = 1.0;

/// RAID-Z in L2: parity P alone, everything else; and from memory.
const RAIDZ_P: f64 = 1.5;
const RAIDZ: f64 = 2.5;
const RAIDZ_LARGE: f64 = 1.4;

/// Encoding with signatures over encoding without.
const SIGNED: f64 = 0.8;

/// Neither side with AVX-512 or GFNI.
const AVX2: f64 = 1.0;

/// The bars of a race: names of references, each with the least ratio.
pub(super) fn of(work: &Work, shape: Shape, len: usize) -> Vec<(&'static str, f64)> {
    match *work {
        Work::Encode { choice: Choice::Default, .. } => encode(shape, len),
        Work::Encode { choice, .. } => vec![(ISAL, everywhere(choice))],
        Work::Versions => Vec::new(),
        Work::TwoThreads if len >= LARGE => vec![(STREAM, OF_STREAM)],
        Work::TwoThreads => vec![(ONE_THREAD, TWO_THREADS)],
        Work::Decode(planning) => decode(planning, shape, len).into_iter().map(|bar| (ISAL, bar)).collect(),
        Work::Packets { w: 4 } => {
            let isal = (len <= PACKETS_SMALL).then_some((ISAL, PACKETS_ISAL));
            isal.into_iter().chain([(JERASURE, PACKETS_JERASURE)]).collect()
        }
        Work::Packets { .. } => Vec::new(),
        Work::MultiplyAdd { w, planar } => {
            let found = MULTIPLY_ADD.iter().find(|(width, _)| *width == w);
            let parpar =
                (planar && w == 16 && crate::parpar::is_loaded()).then_some((PARPAR, MULTIPLY_ADD_PARPAR));
            found.map(|&(_, bar)| (GF_COMPLETE, bar)).into_iter().chain(parpar).collect()
        }
        Work::RaidZ(operation) => vec![(OPENZFS, raidz(operation, len))],
        Work::Signatures { components: 1 } => vec![(UNSIGNED, SIGNED)],
        Work::Signatures { .. } => Vec::new(),
        Work::Avx2 => vec![(ISAL, AVX2)],
    }
}

fn encode(shape: Shape, len: usize) -> Vec<(&'static str, f64)> {
    let row = ENCODE.iter().find(|(shapes, _)| shapes.contains(&shape));
    let column = [SMALL, MIDDLE, LARGE].iter().position(|&size| size == len);
    let bar = row.zip(column).map(|((_, bars), column)| (ISAL, bars[column]));
    bar.into_iter().chain([(ROOF, OF_ROOF), (STREAM, OF_STREAM)]).collect()
}

fn decode(planning: Planning, (_, m): Shape, len: usize) -> Option<f64> {
    match planning {
        Planning::Before => None,
        Planning::Fresh if len <= SMALL => Some(DECODE_FRESH),
        _ if m >= MANY => Some(DECODE_MANY),
        _ => Some(DECODE_FEW),
    }
}

fn raidz(operation: Operation, len: usize) -> f64 {
    let p_alone = matches!(operation, Operation::Generate(1) | Operation::Reconstruct(Reconstruction::P));
    match (len > MIDDLE, p_alone) {
        (true, _) => RAIDZ_LARGE,
        (false, true) => RAIDZ_P,
        (false, false) => RAIDZ,
    }
}

#[cfg(test)]
mod tests {
    use super::{ENCODE, ISAL, ROOF, encode};
    use crate::compare::cases::{LARGE, MIDDLE, SHAPES};

    #[test]
    fn every_shape_of_the_table_has_its_bars_once() {
        for shape in SHAPES {
            let rows = ENCODE.iter().filter(|(shapes, _)| shapes.contains(&shape)).count();
            assert_eq!(rows, 1, "{shape:?}");
        }
        assert_eq!(encode((10, 4), MIDDLE)[..2], [(ISAL, 1.5), (ROOF, 0.85)]);
        assert_eq!(encode((64, 16), LARGE)[0], (ISAL, 3.0));
        assert!(encode((5, 1), LARGE).iter().all(|(against, _)| *against != ISAL));
    }
}
