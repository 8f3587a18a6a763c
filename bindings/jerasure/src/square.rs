//! Inverses of square matrices over GF(2^w), by elimination; bits are elements of the smallest field.

use gabion_engine::Field;

/// The field of symbols of `w` bits; `None` if there is none. Its polynomial is that of GF-Complete.
pub(crate) fn field(w: i32) -> Option<Field> {
    Field::new(u32::try_from(w).ok()?).ok()
}

/// The field for matrices of zeros and ones, whose sums and products are those of bits.
pub(crate) const BITS: Field = Field::GF8;

/// The inverse of an n x n matrix; `None` if it is singular.
pub(crate) fn inverse(field: Field, n: usize, mut matrix: Vec<u64>) -> Option<Vec<u64>> {
    let mut inverse: Vec<u64> = (0..n * n).map(|at| u64::from(at / n == at % n)).collect();
    for column in 0..n {
        let pivot = (column..n).find(|&row| matrix[row * n + column] != 0)?;
        for at in 0..n {
            matrix.swap(pivot * n + at, column * n + at);
            inverse.swap(pivot * n + at, column * n + at);
        }
        let factor = field.inv(matrix[column * n + column])?;
        if factor != 1 {
            for at in column * n..(column + 1) * n {
                matrix[at] = field.mul(matrix[at], factor);
                inverse[at] = field.mul(inverse[at], factor);
            }
        }
        for row in (0..n).filter(|&row| row != column) {
            let factor = matrix[row * n + column];
            if factor == 0 {
                continue;
            }
            for at in 0..n {
                matrix[row * n + at] ^= field.mul(matrix[column * n + at], factor);
                inverse[row * n + at] ^= field.mul(inverse[column * n + at], factor);
            }
        }
    }
    Some(inverse)
}

/// The rows of surviving devices: unit rows of `unit` rows each for data, rows of `coding` for redundancy. Returns the
/// devices as well, the first k that survive.
pub(crate) fn surviving(
    k: usize,
    unit: usize,
    coding: &[u64],
    erased: &[bool],
) -> Option<(Vec<usize>, Vec<u64>)> {
    let devices: Vec<usize> = (0..erased.len()).filter(|&device| !erased[device]).take(k).collect();
    if devices.len() < k {
        return None;
    }
    let n = k * unit;
    let mut rows = Vec::with_capacity(n * n);
    for &device in &devices {
        match device.checked_sub(k) {
            None => {
                let row = |bit: usize| (0..n).map(move |at| u64::from(at == device * unit + bit));
                rows.extend((0..unit).flat_map(row));
            }
            Some(coding_device) => {
                rows.extend_from_slice(coding.get(coding_device * unit * n..)?.get(..unit * n)?)
            }
        }
    }
    Some((devices, rows))
}

#[cfg(test)]
mod tests {
    use super::{BITS, field, inverse, surviving};

    #[test]
    fn inverse_times_matrix_is_the_identity() {
        let field = field(16).unwrap();
        let matrix: Vec<u64> = [[3, 1, 7], [0, 0, 9], [1, 5, 0x8000]].concat();
        let inverted = inverse(field, 3, matrix.clone()).unwrap();
        for at in 0..9 {
            let (row, column) = (at / 3, at % 3);
            let sum = (0..3).fold(0, |sum, i| sum ^ field.mul(inverted[row * 3 + i], matrix[i * 3 + column]));
            assert_eq!(sum, u64::from(row == column));
        }
        assert_eq!(inverse(field, 2, vec![1, 2, 1, 2]), None);
        assert_eq!(inverse(BITS, 2, vec![1, 1, 0, 1]), Some(vec![1, 1, 0, 1]));
    }

    #[test]
    fn lost_data_is_replaced_by_redundancy() {
        let (devices, rows) = surviving(2, 1, &[1, 1, 1, 2], &[true, false, false, false]).unwrap();
        assert_eq!((devices, rows), (vec![1, 2], vec![0, 1, 1, 1]));
        assert_eq!(surviving(2, 1, &[1, 1], &[true, true, false]), None);
    }
}
