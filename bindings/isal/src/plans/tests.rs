//! The cache of plans: content decides, and its size is bounded.

use super::*;
use crate::tables::{bit_matrix, products};

fn expanded(coefficients: &[u8], expand: fn(u8) -> [u8; BYTES]) -> Vec<u8> {
    coefficients.iter().flat_map(|&c| expand(c)).collect()
}

fn shape(inputs: usize, rows: usize) -> Shape {
    Shape { inputs, rows, stride: inputs, add: false }
}

fn coefficients_of(shape: Shape, tables: &[u8]) -> Option<Vec<u64>> {
    let coefficient = |plan: &Compiled| {
        (0..shape.rows * shape.inputs)
            .map(|i| plan.plan().coefficient(i / shape.inputs, i % shape.inputs))
            .collect()
    };
    // SAFETY: the tests pass as many tables as their shape has.
    unsafe { with_plan(shape, tables.as_ptr(), coefficient) }
}

#[test]
fn tables_that_change_in_place_get_another_plan() {
    let mut tables = expanded(&[1, 2, 3, 4, 5, 6], products);
    assert_eq!(coefficients_of(shape(3, 2), &tables), Some(vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(coefficients_of(shape(2, 3), &tables), Some(vec![1, 2, 3, 4, 5, 6]));
    tables[5 * BYTES..].copy_from_slice(&products(9));
    assert_eq!(coefficients_of(shape(3, 2), &tables), Some(vec![1, 2, 3, 4, 5, 9]));
    tables[..BYTES].copy_from_slice(&bit_matrix(7));
    assert_eq!(coefficients_of(shape(3, 2), &tables), Some(vec![7, 2, 3, 4, 5, 9]));
    // One that belongs to no coefficient.
    tables[40] ^= 1;
    assert_eq!(coefficients_of(shape(3, 2), &tables), None);
    tables[40] ^= 1;
    assert_eq!(coefficients_of(shape(3, 2), &tables), Some(vec![7, 2, 3, 4, 5, 9]));
}

#[test]
fn a_column_is_found_by_its_rows() {
    let tables = expanded(&[1, 2, 3, 4, 5, 6], products);
    let column = Shape { inputs: 1, rows: 2, stride: 3, add: true };
    assert_eq!(coefficients_of(column, &tables[BYTES..]), Some(vec![2, 5]));
    assert_eq!(coefficients_of(Shape { stride: 1, ..column }, &tables[BYTES..]), Some(vec![2, 3]));
}

#[test]
fn the_cache_is_bounded() {
    let mut plans = Plans { known: None, bytes: 0, clock: 0 };
    for c in 0..3 * MAX_PLANS {
        let tables = expanded(&[c as u8, (c >> 8) as u8], products);
        plans.find(shape(2, 1), tables.into_boxed_slice());
    }
    let known = plans.known.as_ref().unwrap();
    assert_eq!((known.len(), plans.bytes), (MAX_PLANS, MAX_PLANS * 2 * BYTES));
    // Tables of 9 MiB, of which only one fits.
    for c in 1..4 {
        let mut large = vec![0; 9 << 20];
        large[..BYTES].copy_from_slice(&products(c));
        plans.find(shape((9 << 20) / BYTES, 1), large.into_boxed_slice());
    }
    assert!(plans.bytes <= MAX_BYTES && plans.known.unwrap().len() <= MAX_PLANS);
}

#[test]
fn the_points_of_cauchy_matrices_are_found() {
    for (k, rows) in [(4, 2), (10, 4), (16, 4), (64, 16), (200, 56)] {
        let form = cauchy_points(rows, k, |i, j| inv((k + i) as u8 ^ j as u8)).unwrap();
        assert_eq!(form.rows[0].at, k as u64);
        assert!(form.columns.iter().map(|point| point.at).eq(0..k as u64));
        // One other coefficient.
        let other = |i, j| inv((k + i) as u8 ^ j as u8) ^ u8::from((i, j) == (rows - 1, k - 1));
        assert_eq!(cauchy_points(rows, k, other), None);
    }
    assert_eq!(cauchy_points(2, 3, |_, _| 1), None);
    assert_eq!(cauchy_points(2, 3, |i, j| (i * j) as u8), None);
}

#[test]
fn raid_plans_are_the_parities() {
    let xor = raid(Parity::Xor, 5).unwrap();
    assert_eq!((xor.plan().inputs().len(), xor.plan().outputs().len()), (5, 1));
    let pq = raid(Parity::PQ, 3).unwrap().plan();
    assert_eq!((0..3).map(|j| pq.coefficient(1, j)).collect::<Vec<_>>(), [4, 2, 1]);
    assert!(raid(Parity::PQ, MAX_RAID).is_some());
    assert!(raid(Parity::PQ, MAX_RAID + 1).is_none() && raid(Parity::Xor, 0).is_none());
}
