use super::bits::{BitMatrix, ones};
use super::generators::{
    cauchy, cauchy_good, cauchy_isal_points, isal_vandermonde, isal_vandermonde_limit, raidz,
    subspace_points, vandermonde_points,
};
use super::*;
use proptest::prelude::*;

fn subspace(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    subspace_points(field, k, m).matrix(field)
}

fn cauchy_isal(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    cauchy_isal_points(k, m).matrix(field)
}

fn vandermonde(field: Field, k: usize, m: usize) -> Result<Matrix, Error> {
    vandermonde_points(field, k, m).matrix(field)
}

/// The systematic Vandermonde code by definition. Computed on the transpose, so that a column operation runs along a
/// row in memory.
fn vandermonde_by_column_operations(field: Field, k: usize, m: usize) -> Matrix {
    let power = |power, point| field.pow(point as u64, power as u64);
    let mut columns = Matrix::from_fn(field, k, k + m, power).unwrap();
    assert_eq!(columns.eliminate(None), k, "a Vandermonde matrix of distinct points has full rank");
    Matrix::from_fn(field, m, k, |row, column| columns.at(column, k + row)).unwrap()
}

type Generator = fn(Field, usize, usize) -> Result<Matrix, Error>;

/// True if every square submatrix is regular, tested one by one.
fn is_mds(redundancy: &Matrix) -> bool {
    let (m, k) = (redundancy.rows(), redundancy.columns());
    (1..=m.min(k)).all(|size| {
        subsets(m, size).all(|rows| {
            subsets(k, size).all(|columns| redundancy.select(&rows, &columns).unwrap().rank() == size)
        })
    })
}

/// All subsets of 0..n with `size` elements.
fn subsets(n: usize, size: usize) -> impl Iterator<Item = Vec<usize>> {
    (0u32..1 << n)
        .filter(move |set| set.count_ones() as usize == size)
        .map(move |set| (0..n).filter(|&i| set >> i & 1 == 1).collect())
}

#[test]
fn families_are_mds_for_every_small_shape() {
    let families: [Generator; 5] = [subspace, vandermonde, cauchy, cauchy_isal, cauchy_good];
    for w in [3, 4, 5, 8, 16, 32, 64] {
        let field = Field::new(w).unwrap();
        for family in families {
            for k in 1..=6 {
                for m in 0..=4usize.min(field.order() - k) {
                    let matrix = family(field, k, m).unwrap();
                    assert!(is_mds(&matrix), "{matrix:?}");
                }
            }
        }
    }
}

#[test]
fn full_field_shapes_are_mds() {
    // k + m = 2^w: every point of the field is in use.
    let families: [Generator; 5] = [subspace, vandermonde, cauchy, cauchy_isal, cauchy_good];
    for family in families {
        for (k, m) in [(13, 3), (12, 4), (2, 14)] {
            assert!(is_mds(&family(Field::GF4, k, m).unwrap()), "{k}+{m}");
        }
    }
}

/// Every minor of every shape over GF(2^4), and of some shapes over GF(2^8).
#[test]
fn subspace_is_mds_for_every_shape_of_a_small_field() {
    for k in 1..=16usize {
        for m in 0..=16 - k {
            assert!(is_mds(&subspace(Field::GF4, k, m).unwrap()), "{k}+{m}");
        }
    }
    for (k, m) in [(10, 4), (16, 3), (4, 9), (7, 5)] {
        assert!(is_mds(&subspace(Field::GF8, k, m).unwrap()), "{k}+{m}");
    }
}

/// When the cosets run out, the remaining points of the subspace are used: every point of a full field occurs once.
#[test]
fn subspace_takes_left_over_points() {
    for (field, k, m) in [
        (Field::GF8, 253, 3),
        (Field::GF8, 3, 253),
        (Field::GF8, 200, 56),
        (Field::GF4, 13, 3),
        (Field::GF4, 5, 11),
    ] {
        let form = subspace_points(field, k, m);
        let mut points: Vec<u64> = form.rows.iter().chain(&form.columns).map(|point| point.at).collect();
        points.sort_unstable();
        assert!(points.into_iter().eq(0..=field.mask()), "{k}+{m}");
        let matrix = form.matrix(field).unwrap();
        assert!((0..m).all(|row| matrix.row(row).iter().all(|&a| a != 0)));
    }
    let wide = subspace(Field::GF8, 253, 3).unwrap();
    // Redundancy 0, 1, 2 at these points, data 252 at the point 3 with the factor 1.
    let inverse = |a| Field::GF8.inv(a).unwrap();
    assert_eq!([0, 1, 2].map(|row| wide.at(row, 252)), [inverse(3), inverse(2), 1]);
    for rows in [[0, 1], [0, 2], [1, 2]] {
        for a in 0..253 {
            for b in a + 1..253 {
                assert_eq!(wide.select(&rows, &[a, b]).unwrap().rank(), 2, "{a} {b}");
            }
        }
    }
}

#[test]
fn subspace_of_one_is_parity_or_copies() {
    for field in Field::all() {
        let most = field.order().min(40) - 1;
        for blocks in [1, 2, 3, most] {
            for matrix in [subspace(field, blocks, 1).unwrap(), subspace(field, 1, blocks).unwrap()] {
                assert!((0..matrix.rows()).all(|row| matrix.row(row).iter().all(|&a| a == 1)), "{matrix:?}");
            }
        }
    }
}

/// The value at `at` of the polynomial through (x, y), by Lagrange.
fn interpolated(field: Field, points: &[(u64, u64)], at: u64) -> u64 {
    points.iter().fold(0, |sum, &(x, y)| {
        let others = points.iter().filter(|&&(other, _)| other != x);
        let term = others.fold(y, |term, &(other, _)| {
            field.mul(term, field.div(at ^ other, x ^ other).expect("points differ"))
        });
        sum ^ term
    })
}

/// The identity that makes the family fast: redundancy is the sum over the cosets of the polynomials through their
/// data, evaluated on the subspace; or, with more redundancy than data, the values of one polynomial on the cosets.
#[test]
fn subspace_interpolates_and_evaluates() {
    for (w, k, m) in [
        (8, 10, 4),
        (8, 16, 4),
        (8, 30, 3),
        (8, 7, 5),
        (8, 8, 8),
        (5, 9, 6),
        (16, 20, 9),
        (32, 9, 3),
        (64, 9, 4),
        (8, 3, 20),
        (8, 30, 33),
        (16, 5, 9),
        (64, 2, 7),
    ] {
        let field = Field::new(w).unwrap();
        let data: Vec<u64> =
            (1..=k as u64).map(|i| i.wrapping_mul(0x9d5e_a7c1_2b3f_8461) & field.mask()).collect();
        let got = subspace(field, k, m).unwrap().mul_vector(&data).unwrap();
        // Missing blocks are zero.
        let block = |j: u64| data.get(j as usize).copied().unwrap_or(0);
        let (rounded_k, rounded_m) = (k.next_power_of_two() as u64, m.next_power_of_two() as u64);
        let want = |i: u64| {
            if rounded_k < rounded_m {
                let points: Vec<(u64, u64)> = (0..rounded_k).map(|j| (j, block(j))).collect();
                return interpolated(field, &points, rounded_k + i);
            }
            (0..k as u64).step_by(rounded_m as usize).fold(0, |sum, start| {
                let coset = start..start + rounded_m;
                let points: Vec<(u64, u64)> = coset.map(|j| (rounded_m + j, block(j))).collect();
                sum ^ interpolated(field, &points, i)
            })
        };
        assert!(got.into_iter().eq((0..m as u64).map(want)), "w{w} {k}+{m}");
    }
}

#[test]
fn raidz_is_mds_up_to_255_columns() {
    for k in [1, 2, 3, 8, 17] {
        assert!(is_mds(&raidz(Field::GF8, k, 3).unwrap()));
    }
    // For large k: the minors of up to 2 x 2 by brute force, those of 3 x 3 by the Vandermonde law
    // (distinct points 2^j).
    let widest = raidz(Field::GF8, 255, 3).unwrap();
    for rows in [[0, 1], [0, 2], [1, 2]] {
        for a in 0..255 {
            for b in a + 1..255 {
                assert_eq!(widest.select(&rows, &[a, b]).unwrap().rank(), 2, "{a} {b}");
            }
        }
    }
}

#[test]
fn isal_vandermonde_is_mds_within_its_limit_and_not_beyond() {
    for (k, m) in [(3, 8), (4, 6), (5, 5), (10, 4), (21, 3), (15, 3)] {
        assert!(m <= isal_vandermonde_limit(k));
        assert!(is_mds(&isal_vandermonde(Field::GF8, k, m).unwrap()), "{k}+{m}");
    }
    let beyond = isal_vandermonde(Field::GF8, 10, 6).unwrap();
    assert!(!is_mds(&beyond), "the check can fail");
}

#[test]
fn points_of_vandermonde_give_what_column_operations_give() {
    for (field, k, m) in [
        (Field::GF4, 11, 5),
        (Field::GF4, 16, 0),
        (Field::GF4, 1, 3),
        (Field::GF8, 40, 30),
        (Field::GF16, 70, 9),
        (Field::GF64, 13, 4),
    ] {
        let by_columns = vandermonde_by_column_operations(field, k, m);
        assert_eq!(vandermonde(field, k, m).unwrap(), by_columns, "{field:?} {k}+{m}");
    }
}

#[test]
fn good_cauchy_has_fewer_ones_and_a_first_row_of_ones() {
    for (w, k, m) in [(4, 10, 4), (8, 10, 4), (8, 6, 2), (16, 12, 4), (7, 20, 3)] {
        let field = Field::new(w).unwrap();
        let good = cauchy_good(field, k, m).unwrap();
        let original = cauchy(field, k, m).unwrap();
        assert!(good.row(0).iter().all(|&a| a == 1));
        let weight = |matrix| BitMatrix::expand(matrix).unwrap().ones();
        assert!(weight(&good) < weight(&original), "{w} {k}+{m}");
    }
}

#[test]
fn bits_of_a_constant_multiply_like_it() {
    for field in Field::all() {
        let constant = 0x9d5e_a7c1_2b3f_8461 & field.mask();
        let matrix = Matrix::from_fn(field, 1, 1, |_, _| constant).unwrap();
        let bits = BitMatrix::expand(&matrix).unwrap();
        assert_eq!(bits.ones(), ones(field, constant));
        for a in [1, 2, 0x5a5a_1234_dead_beef & field.mask(), field.mask()] {
            let product = (0..field.w() as usize).fold(0u64, |product, row| {
                let parity = bits.ones_in_row(row).filter(|&bit| a >> bit & 1 == 1).count() & 1;
                product | (parity as u64) << row
            });
            assert_eq!(product, field.mul(constant, a), "{field:?}");
        }
    }
}

/// A code identity can come from a damaged or hostile header: none may take minutes.
#[test]
fn the_largest_shapes_are_generated_or_refused_quickly() {
    for field in [Field::GF16, Field::GF32, Field::GF64] {
        for (k, m) in [(65_000, 16), (16, 65_000), (65_536, 0), (1, 65_535)] {
            for family in [subspace as Generator, vandermonde, cauchy] {
                let matrix = family(field, k, m).unwrap();
                assert_eq!((matrix.rows(), matrix.columns()), (m, k));
            }
        }
        let refused = Error::SearchTooLarge { k: 512, m: 512, limit: 1 << 22 };
        assert_eq!(cauchy_good(field, 512, 512), Err(refused));
    }
    let wide = cauchy(Field::GF32, 512, 512).unwrap();
    assert!(matches!(BitMatrix::expand(&wide), Err(Error::MatrixTooLarge { rows: 16_384, .. })));
}

#[test]
fn hostile_sizes_are_refused_with_numbers() {
    let huge = Matrix::from_fn(Field::GF8, usize::MAX, 2, |_, _| 0);
    assert!(matches!(huge, Err(Error::MatrixTooLarge { columns: 2, .. })));
    let over = Matrix::from_fn(Field::GF8, 1, 1, |_, _| 256);
    assert_eq!(over, Err(Error::NotAnElement { value: 256, w: 8 }));
    let (two, three) = (Matrix::identity(Field::GF8, 2).unwrap(), Matrix::identity(Field::GF8, 3).unwrap());
    assert_eq!(two.mul(&three), Err(Error::SizeMismatch { left: 2, right: 3 }));
    assert_eq!(two.mul_vector(&[1]), Err(Error::SizeMismatch { left: 2, right: 1 }));
    let singular = Matrix::from_fn(Field::GF8, 2, 2, |_, _| 7).unwrap();
    assert_eq!(singular.inverse(), Err(Error::Singular { size: 2, rank: 1 }));
}

proptest! {
    #[test]
    fn inverse_times_matrix_is_identity(seed: u64, size in 1..12usize, w in proptest::sample::select(vec![4u32, 8, 16, 32, 64])) {
        let field = Field::new(w).unwrap();
        let mut state = seed;
        let random = Matrix::from_fn(field, size, size, |_, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 13 ^ state >> 41) & field.mask()
        }).unwrap();
        match random.inverse() {
            Ok(inverse) => {
                let identity = Matrix::identity(field, size).unwrap();
                prop_assert_eq!(random.mul(&inverse).unwrap(), identity.clone());
                prop_assert_eq!(inverse.mul(&random).unwrap(), identity);
                prop_assert_eq!(random.rank(), size);
            }
            Err(Error::Singular { rank, .. }) => prop_assert!(rank < size && rank == random.rank()),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

/// Numbers outside the field are refused, not used as table indices.
#[test]
fn other_fields_and_numbers_outside_the_field_are_refused() {
    let one = |field, value| Matrix::from_fn(field, 1, 1, |_, _| value).unwrap();
    let (narrow, wide) = (one(Field::GF4, 3), one(Field::GF16, 60_000));
    let wrong = |defined, w| Error::WrongField { family: "a product with this matrix", defined, w };
    assert_eq!(narrow.mul(&wide).unwrap_err(), wrong(4, 16));
    assert_eq!(wide.mul(&narrow).unwrap_err(), wrong(16, 4));
    assert_eq!(narrow.mul_vector(&[16]).unwrap_err(), Error::NotAnElement { value: 16, w: 4 });
}
