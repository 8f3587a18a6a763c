use super::*;
use proptest::prelude::*;

/// A form of random distinct points and non-zero factors.
fn random_form(field: Field, rows: usize, columns: usize, seed: u64) -> CauchyForm {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 13 ^ state >> 41) & field.mask()
    };
    let mut points: Vec<Point> = Vec::new();
    while points.len() < rows + columns {
        let point = Point { at: next(), scale: next().max(1) };
        if points.iter().all(|other| other.at != point.at) {
            points.push(point);
        }
    }
    let columns = points.split_off(rows);
    CauchyForm { rows: points, columns }
}

fn form(rows: &[(u64, u64)], columns: &[(u64, u64)]) -> CauchyForm {
    let points = |list: &[(u64, u64)]| list.iter().map(|&(at, scale)| Point { at, scale }).collect();
    CauchyForm { rows: points(rows), columns: points(columns) }
}

#[test]
fn entries_are_quotients_with_and_without_a_table() {
    // Points close together (wide fields use a table) and far apart (they do not).
    for (field, far) in [(Field::GF8, 0x80), (Field::GF32, 1), (Field::GF32, 1 << 30), (Field::GF64, 1 << 63)]
    {
        let form = form(&[(0, 1), (3, 7)], &[(far << 1 | 4, 1), (far + 5, 3), (8, 1)]);
        let form = CauchyForm {
            columns: form.columns.into_iter().filter(|p| p.at <= field.mask()).collect(),
            ..form
        };
        let matrix = form.matrix(field).unwrap();
        for (i, row) in form.rows.iter().enumerate() {
            for (j, column) in form.columns.iter().enumerate() {
                let back = field.mul(matrix.at(i, j), row.at ^ column.at);
                assert_eq!(back, field.mul(row.scale, column.scale), "{field:?} {row:?} {column:?}");
            }
        }
    }
}

#[test]
fn invalid_cauchy_forms_are_refused_with_numbers() {
    let field = Field::GF4;
    assert_eq!(form(&[(1, 1)], &[(2, 1), (1, 1)]).matrix(field), Err(Error::PointTwice { at: 1 }));
    assert_eq!(form(&[(16, 1)], &[(2, 1)]).matrix(field), Err(Error::NotAnElement { value: 16, w: 4 }));
    assert_eq!(form(&[(1, 99)], &[(2, 1)]).inverse(field), Err(Error::NotAnElement { value: 99, w: 4 }));
    let wide = form(&[(1, 1)], &[(2, 1), (3, 1)]);
    assert_eq!(wide.inverse(field), Err(Error::SizeMismatch { left: 1, right: 2 }));
    assert_eq!(wide.exchange(field, 2), Err(Error::SizeMismatch { left: 2, right: 1 }));
    let repeated = form(&[(1, 1), (1, 2)], &[(2, 1), (3, 1)]);
    assert_eq!(repeated.inverse(field), Err(Error::PointTwice { at: 1 }));
    assert_eq!(form(&[(1, 1)], &[(1, 1)]).inverse(field), Err(Error::PointTwice { at: 1 }));
    let zero = form(&[(1, 1), (4, 0)], &[(2, 1), (3, 1)]);
    assert_eq!(zero.inverse(field), Err(Error::Singular { size: 2, rank: 1 }));
}

#[test]
fn the_empty_form_has_an_inverse() {
    let nothing = form(&[], &[]);
    assert_eq!(nothing.inverse(Field::GF8), Ok(nothing));
}

proptest! {
    #[test]
    fn inverse_equals_the_one_found_by_elimination(
        seed: u64,
        size in 1..8usize,
        w in proptest::sample::select(vec![4u32, 7, 8, 16, 32, 64]),
    ) {
        let field = Field::new(w).unwrap();
        let form = random_form(field, size, size, seed);
        let inverse = form.inverse(field).unwrap().matrix(field).unwrap();
        prop_assert_eq!(inverse, form.matrix(field).unwrap().inverse().unwrap());
    }

    /// By definition: if the form relates (x, y), the exchanged form relates them with elements exchanged.
    #[test]
    fn exchanged_elements_obey_the_exchanged_form(
        seed: u64,
        rows in 1..6usize,
        columns in 1..8usize,
        moved in 0..6usize,
        w in proptest::sample::select(vec![4u32, 8, 16, 64]),
    ) {
        let field = Field::new(w).unwrap();
        let form = random_form(field, rows, columns, seed);
        let moved = moved.min(rows).min(columns);
        let mut x: Vec<u64> = (0..columns as u64).map(|i| (seed ^ (i * 0x9e37_79b9)) & field.mask()).collect();
        let mut y = form.matrix(field).unwrap().mul_vector(&x).unwrap();
        y[..moved].swap_with_slice(&mut x[columns - moved..]);
        let exchanged = form.exchange(field, moved).unwrap().matrix(field).unwrap();
        prop_assert_eq!(exchanged.mul_vector(&x).unwrap(), y);
    }
}
