//! Every byte of a file lies in exactly one cell.

use super::{Geometry, GeometryError, Tail, block_for, merge};
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

fn geometries() -> impl Strategy<Value = Geometry> {
    let shape = (1u64..9, 1u64..5, 1u64..6, any::<bool>());
    shape.prop_map(|(k, blocks, rows, striped)| match striped {
        true => Geometry::new(k, 64 * blocks, 1, Tail::Striped, 1).unwrap(),
        false => Geometry::new(k, 64 * blocks, rows, Tail::Balanced, 1).unwrap(),
    })
}

proptest! {
    #[test]
    fn every_byte_lies_in_one_cell(geometry in geometries(), size in 0u64..20_000, limit in 1u64..8) {
        let cut = geometry.cut(size);
        let mut owners = vec![0u8; size as usize];
        let mut next = 0;
        for run in cut.runs(limit) {
            prop_assert_eq!(run.first, next);
            next += run.count;
            for column in 0..geometry.k() {
                let mut bytes = Vec::new();
                for row in 0..run.count {
                    if let Some(byte) = run.cell(row, column).next_back() {
                        prop_assert_eq!(cut.locate(byte), (run.first + row, column));
                        prop_assert_eq!(cut.locate(run.cell(row, column).start), (run.first + row, column));
                    }
                    prop_assert_eq!(cut.block(run.first + row), run.block);
                    let cell = run.cell(row, column);
                    bytes.extend(cell.clone());
                    cell.for_each(|byte| owners[byte as usize] += 1);
                }
                prop_assert_eq!(bytes, run.piece(column).collect::<Vec<_>>());
            }
        }
        prop_assert_eq!(next, cut.stripes());
        prop_assert!(owners.iter().all(|&owner| owner == 1));
    }

    #[test]
    fn stripes_of_a_range_are_those_that_hold_its_bytes(
        geometry in geometries(), size in 1u64..20_000, start in 0u64..20_000, len in 0u64..9_000,
    ) {
        let cut = geometry.cut(size);
        let range = start..(start + len).min(size);
        let holds = |stripe: u64| {
            let run = cut.run(stripe, 1);
            (0..geometry.k()).any(|column| {
                let cell = run.cell(0, column);
                cell.start < range.end && range.start < cell.end && !range.is_empty()
            })
        };
        let expected: Vec<u64> = (0..cut.stripes()).filter(|&stripe| holds(stripe)).collect();
        let found: Vec<u64> = cut.stripes_of(range.clone()).into_iter().flatten().collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn full_segments_stay_while_a_file_grows(geometry in geometries(), size in 0u64..9_000, more in 0u64..9_000) {
        let (before, after) = (geometry.cut(size), geometry.cut(size + more));
        for stripe in 0..before.full_stripes() {
            let (old, new) = (before.run(stripe, 1), after.run(stripe, 1));
            (0..geometry.k()).for_each(|column| assert_eq!(old.cell(0, column), new.cell(0, column)));
        }
    }
}

#[test]
fn a_small_file_has_small_blocks() {
    let cut = Geometry::new(8, 65536, 256, Tail::Balanced, 1).unwrap().cut(2048);
    assert_eq!((cut.stripes(), cut.block(0)), (1, 256));
    assert_eq!(cut.run(0, 9).piece(7), 1792..2048);
}

#[test]
fn a_truncated_segment_loses_few_columns_of_every_stripe() {
    let cut = Geometry::new(8, 65536, 256, Tail::Balanced, 1).unwrap().cut(100 << 20);
    let quarter_gone = 75 << 20;
    for stripe in 0..cut.stripes() {
        let run = cut.run(stripe, 1);
        let hit = (0..8).filter(|&column| run.cell(0, column).end > quarter_gone).count();
        assert_eq!(hit, 2, "stripe {stripe}");
    }
}

#[test]
fn rules_that_cannot_be_are_refused_with_their_numbers() {
    let block = |block| Geometry::new(8, block, 1, Tail::Balanced, 1).unwrap_err();
    assert_eq!(block(0), GeometryError::Block { block: 0, unit: 64 });
    assert_eq!(block(100), GeometryError::Block { block: 100, unit: 64 });
    assert_eq!(block(1 << 30), GeometryError::Block { block: 1 << 30, unit: 64 });
    assert_eq!(Geometry::new(0, 64, 1, Tail::Balanced, 1), Err(GeometryError::Columns(0)));
    assert_eq!(Geometry::new(1, 64, 0, Tail::Balanced, 1), Err(GeometryError::Rows(0)));
    assert_eq!(Geometry::new(1, 64, 2, Tail::Striped, 1), Err(GeometryError::Rows(2)));
    // A packet code with packets of 48 bytes in 8 rows.
    assert_eq!(
        Geometry::new(1, 448, 1, Tail::Balanced, 384),
        Err(GeometryError::Block { block: 448, unit: 384 })
    );
}

#[test]
fn ranges_merge() {
    assert_eq!(merge(vec![5..7, 0..2, 2..3, 6..9, 4..4]), [0..3, 5..9]);
}

#[test]
fn files_have_rows_enough_that_damage_in_one_piece_hits_few_blocks_of_a_stripe() {
    const LARGEST: u64 = 64 << 10;
    for (k, m) in [(1, 2), (4, 2), (8, 2), (10, 4), (30, 3)] {
        for size in [1, 2048, 40_000, 4096 * k, 300_001, 8 * LARGEST * k, 16 * LARGEST * k, 10 << 20] {
            let block = block_for(size, k, 16, LARGEST, 1);
            let cut = Geometry::new(k, block, (16 << 20) / block, Tail::Balanced, 1).unwrap().cut(size);
            let rows = cut.stripes();
            assert!(block <= LARGEST && (rows <= 16 || block == LARGEST), "{k}: {size} bytes, {rows} rows");
            if size >= 16 * k * 4096.max(512 * k) {
                assert!(rows >= 15, "{k}: {size} bytes, {rows} rows of {block}");
            }
            // The longest piece, at any offset.
            let piece = ((m * rows - 1) * cut.block(0) + 1).min(size);
            let steps = (size - piece).div_ceil(97).max(1);
            for start in (0..=size - piece).step_by(steps as usize) {
                for stripe in 0..rows {
                    let run = cut.run(stripe, 1);
                    let touched = |column: &usize| {
                        let cell = run.cell(0, *column);
                        cell.start < start + piece && start < cell.end
                    };
                    let hit = (0..k as usize).filter(touched).count() as u64;
                    assert!(
                        hit <= m,
                        "{k}+{m}: {size} bytes, {piece} from {start}: {hit} of stripe {stripe}"
                    );
                }
            }
        }
    }
}

#[test]
fn blocks_obey_what_is_allowed_and_what_the_code_asks_for() {
    assert_eq!(block_for(0, 8, 16, 64 << 10, 1), 4096);
    assert_eq!(block_for(u64::MAX / 2, 8, 16, 64 << 10, 1), 64 << 10);
    assert_eq!(block_for(1 << 20, 8, 16, 1024, 1), 1024, "a policy's own block");
    assert_eq!(block_for(1, 64, 16, 64 << 10, 1), 32 << 10, "signatures of many columns");
    assert!(block_for(1_000_000, 8, 16, 48 * 4096, 48).is_multiple_of(192));
}
